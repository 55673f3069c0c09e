/* message.c - messages in their frames. */
#include "experiments/runner/message.h"

#include "experiments/results/row_json.h"
#include "experiments/support/digest.h"
#include "experiments/support/entropy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAME = (MESSAGE_TOKEN - 1) + 1 + 16 + 1 }; /* bytes before the object */

void message_token(char token[MESSAGE_TOKEN]) {
  snprintf(token, MESSAGE_TOKEN, "%016" PRIx64 "%016" PRIx64, entropy_bits(), entropy_bits());
}

static void frame_of(const char *token, const char *text, size_t length, char frame[FRAME + 1]) {
  snprintf(frame, FRAME + 1, "%s %016" PRIx64 " ", token, digest_of(text, length));
}

attn_status message_write(const char *token, const json_t *object, char **line, size_t *length) {
  char *text = NULL, frame[FRAME + 1];
  size_t size = 0;
  attn_status status = result_json_line(object, &text, &size);
  if (status) return status;
  char *out = malloc(FRAME + size + 1);
  if (out) {
    frame_of(token, text, size - 1, frame);
    memcpy(out, frame, FRAME);
    memcpy(out + FRAME, text, size);
    *line = out;
    *length = FRAME + size;
  }
  free(text);
  return out ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a message to the parent");
}

json_t *message_read(const char *token, const char *line, size_t length) {
  char frame[FRAME + 1];
  if (length < FRAME) return NULL;
  frame_of(token, line + FRAME, length - FRAME, frame);
  return memcmp(line, frame, FRAME) == 0 ? json_loadb(line + FRAME, length - FRAME, JSON_ALLOW_NUL, NULL)
                                         : NULL;
}

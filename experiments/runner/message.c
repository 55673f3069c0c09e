/* message.c - messages in their frames. */
#include "experiments/runner/message.h"

#include "experiments/results/row_json.h"
#include "experiments/support/digest.h"
#include "experiments/support/entropy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Before the text: "TOKEN DIGEST ", and what the digest includes: the bits of the time, the kind and a
 * blank. */
enum { SEAL = (MESSAGE_TOKEN - 1) + 1 + 16 + 1, HEAD = 16 + 2, FRAME = SEAL + HEAD };

void message_token(char token[MESSAGE_TOKEN]) {
  snprintf(token, MESSAGE_TOKEN, "%016" PRIx64 "%016" PRIx64, entropy_bits(), entropy_bits());
}

static void seal_of(const char *token, const char *rest, size_t length, char seal[SEAL + 1]) {
  snprintf(seal, SEAL + 1, "%s %016" PRIx64 " ", token, digest_of(rest, length));
}

attn_status message_write(const char *token, message_kind kind, double at, const json_t *json, char **line,
                          size_t *length) {
  char *text = NULL, seal[SEAL + 1], head[HEAD + 1];
  size_t size = 0;
  uint64_t bits;
  attn_status status = result_json_line(json, &text, &size);
  if (status) return status;
  memcpy(&bits, &at, sizeof bits);
  snprintf(head, sizeof head, "%016" PRIx64 "%c ", bits, kind);
  char *out = malloc(FRAME + size + 1);
  if (out) {
    memcpy(out + SEAL, head, HEAD);
    memcpy(out + FRAME, text, size);
    seal_of(token, out + SEAL, HEAD + size - 1, seal);
    memcpy(out, seal, SEAL);
    *line = out;
    *length = FRAME + size;
  }
  free(text);
  return out ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a message to the parent");
}

bool message_read(const char *token, const char *line, size_t length, worker_message *out) {
  char seal[SEAL + 1], head[HEAD + 1] = "";
  if (length < FRAME) return false;
  seal_of(token, line + SEAL, length - SEAL, seal);
  if (memcmp(line, seal, SEAL) != 0) return false;
  memcpy(head, line + SEAL, HEAD);
  const uint64_t bits = strtoull(head, NULL, 16);
  *out = (worker_message){.kind = (message_kind)head[16], .text = line + FRAME, .length = length - FRAME};
  memcpy(&out->at, &bits, sizeof bits);
  return true;
}

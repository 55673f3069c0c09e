/* json_stream.c - see json_stream.h. Numbers have five digits. */
#include "experiments/support/json_stream.h"

#include <string.h>

/* Where a memory stream cannot grow, glibc returns a short count and sets no error flag. */
static void put(json_stream *s, const char *text, size_t size) {
  if (fwrite(text, 1, size, s->out) < size) s->ok = false;
}

static int put_piece(const char *piece, size_t size, void *stream) {
  json_stream *s = stream;
  while (size) {
    const char *angle = memchr(piece, '<', size);
    const size_t before = angle ? (size_t)(angle - piece) : size, taken = before + (angle != NULL);
    put(s, piece, before);
    if (angle) put(s, "\\u003c", 6);
    piece += taken;
    size -= taken;
  }
  return s->ok ? 0 : -1;
}

static void separate(json_stream *s) {
  if (s->begun) put(s, ",", 1);
  s->begun = true;
}

void json_stream_open(json_stream *s, char bracket) {
  separate(s);
  put(s, &bracket, 1);
  s->begun = false;
}

void json_stream_close(json_stream *s, char bracket) {
  put(s, &bracket, 1);
  s->begun = true;
}

void json_stream_name(json_stream *s, const char *name) {
  separate(s);
  put(s, "\"", 1);
  put(s, name, strlen(name));
  put(s, "\":", 2);
  s->begun = false;
}

void json_stream_value(json_stream *s, json_t *value) {
  const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(5);
  separate(s);
  if (json_dump_callback(value, put_piece, s, flags)) s->ok = false;
  json_decref(value);
}

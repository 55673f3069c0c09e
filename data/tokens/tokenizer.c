/* tokenizer.c - what every tokenizer does: checks a text, cuts it at literal tokens, collects ids, and
 * decodes them. */
#include "data/tokens/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistr.h>

#include "data/support/file.h"

attn_status tokenizer_begin(const char *file, const tokenizer_kind *kind, data_tokenizer **out) {
  data_tokenizer *t = calloc(1, sizeof *t);
  if (!t) return attn_fail(ATTN_ENOMEM, "%s: no memory for a tokenizer", file);
  t->kind = kind;
  t->bos = t->unknown = -1;
  memset(t->byte_id, -1, sizeof t->byte_id);
  t->file = text_format("%s", file);
  if (!t->file) {
    data_tokenizer_close(t);
    return ATTN_ENOMEM;
  }
  *out = t;
  return ATTN_OK;
}

attn_status data_tokenizer_open(const char *path, data_tokenizer **out) {
  return file_is_regular(path) ? tokenizer_open_gguf(path, out) : tokenizer_open_json(path, out);
}

void data_tokenizer_close(data_tokenizer *t) {
  if (!t) return;
  for (int i = 0; i < t->steps; i++) pattern_free(t->step[i].cuts);
  vocabulary_free(&t->words);
  literals_free(&t->plain);
  literals_free(&t->normalised);
  token_map_free(&t->by_pair);
  free(t->pair);
  free(t->file);
  free(t);
}

int64_t data_tokenizer_size(const data_tokenizer *t) { return vocabulary_size(&t->words); }
int64_t data_tokenizer_bos(const data_tokenizer *t) { return t->bos; }

/* ---- encoding ------------------------------------------------------------------------------------------ */

attn_status encoder_put(encoder *e, int64_t id) {
  if (e->count == e->capacity) {
    const size_t more = e->capacity ? 2 * e->capacity : 1024;
    int64_t *grown = realloc(e->id, more * sizeof *grown);
    if (!grown) return attn_fail(ATTN_ENOMEM, "no memory for %zu token ids", more);
    e->id = grown;
    e->capacity = more;
  }
  e->id[e->count++] = id;
  return ATTN_OK;
}

attn_status encoder_cut(encoder *e, const literals *l, const uint8_t *text, size_t bytes,
                        attn_status (*encode)(encoder *, const uint8_t *, size_t)) {
  attn_status status = ATTN_OK;
  for (size_t done = 0, place; !status && done < bytes;) {
    const token *found = literals_find(l, text, bytes, done, &place);
    if (!found) return encode(e, text + done, bytes - done);
    if (place > done) status = encode(e, text + done, place - done);
    if (!status) status = encoder_put(e, found->id);
    done = place + found->bytes;
  }
  return status;
}

attn_status data_tokenizer_encode(const data_tokenizer *t, const char *name, const void *text, size_t bytes,
                                  int64_t **out, int64_t *count) {
  encoder e = {.t = t};
  const uint8_t *wrong = bytes ? u8_check(text, bytes) : NULL;
  if (wrong)
    return attn_fail(ATTN_EINVAL, "%s: not UTF-8 at byte %zu (0x%02x)", name,
                     (size_t)(wrong - (const uint8_t *)text), *wrong);
  attn_status status = pattern_work_make(&e.match);
  if (!status && bytes) status = t->kind->encode(&e, text, bytes);
  if (!status && !e.id) status = attn_fail(ATTN_EINVAL, "%s: there is no text to encode", name);
  if (!status) {
    *out = e.id;
    *count = (int64_t)e.count;
    e.id = NULL;
  }
  free(e.id);
  merge_free(&e.merge);
  pattern_work_free(e.match);
  return status;
}

/* ---- decoding ------------------------------------------------------------------------------------------ */

typedef struct decoder {
  char *text;
  size_t bytes, capacity;
} decoder;

attn_status decoder_put(void *to, const void *at, size_t bytes) {
  decoder *d = to;
  if (bytes + 1 > d->capacity - d->bytes) {
    const size_t more = 2 * d->capacity + bytes + 1;
    char *grown = realloc(d->text, more);
    if (!grown) return attn_fail(ATTN_ENOMEM, "no memory for a text of %zu bytes", more);
    d->text = grown;
    d->capacity = more;
  }
  memcpy(d->text + d->bytes, at, bytes);
  d->bytes += bytes;
  return ATTN_OK;
}

attn_status data_tokenizer_decode(const data_tokenizer *t, const int64_t *ids, int64_t count, char **out,
                                  size_t *bytes) {
  decoder d = {0};
  attn_status status = decoder_put(&d, "", 0);
  for (int64_t i = 0; !status && i < count; i++) {
    const token *next = vocabulary_at(&t->words, ids[i]);
    if (next)
      status = t->kind->decode(t, next, &d);
    else
      status = attn_fail(ATTN_EINVAL, "token %" PRId64 " is %" PRId64 ", which %s does not have", i, ids[i],
                         t->file);
  }
  if (status) {
    free(d.text);
    return status;
  }
  d.text[d.bytes] = '\0';
  const size_t blank = t->prefix && d.bytes && *d.text == ' ';
  memmove(d.text, d.text + blank, d.bytes + 1 - blank);
  *out = d.text;
  *bytes = d.bytes - blank;
  return ATTN_OK;
}

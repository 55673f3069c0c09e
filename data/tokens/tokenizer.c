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
  steps_free(&t->normaliser);
  steps_free(&t->cutter);
  vocabulary_free(&t->words);
  literals_free(&t->plain);
  literals_free(&t->normalised);
  literals_free(&t->pieces);
  literals_free(&t->continued);
  free(t->normalised_text);
  free(t->continuing);
  free(t->ending);
  free(t->score);
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

attn_status encoder_put_unknown(encoder *e, const uint8_t *character, size_t bytes) {
  if (e->t->unknown >= 0) return encoder_put(e, e->t->unknown);
  return attn_fail(ATTN_EINVAL,
                   "%s: no token for '%.*s', which the text has, and none for unknown characters", e->t->file,
                   (int)bytes, (const char *)character);
}

bool encoder_has_bytes(const encoder *e, const uint8_t *at, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (e->t->byte_id[at[i]] < 0) return false;
  return true;
}

/* Whether a word ends before the text from `at` on, or begins there. */
static bool is_inside(const uint8_t *text, size_t bytes, size_t begin, size_t end) {
  ucs4_t before = 0, behind = 0;
  if (begin) u8_prev(&before, text + begin, text);
  if (end < bytes) u8_mbtouc_unsafe(&behind, text + end, bytes - end);
  return (begin && character_is_word(before)) || (end < bytes && character_is_word(behind));
}

static size_t blanks_before(const uint8_t *text, size_t from, size_t at) {
  const uint8_t *previous;
  ucs4_t c;
  while (at > from && (previous = u8_prev(&c, text + at, text)) && character_is_space(c))
    at = (size_t)(previous - text);
  return at;
}

static size_t blanks_behind(const uint8_t *text, size_t bytes, size_t at) {
  ucs4_t c;
  int length;
  while (at < bytes && (length = u8_mbtouc_unsafe(&c, text + at, bytes - at)) > 0 && character_is_space(c))
    at += (size_t)length;
  return at;
}

attn_status encoder_cut(encoder *e, const literals *l, const uint8_t *text, size_t bytes,
                        piece_model *encode) {
  attn_status status = ATTN_OK;
  const token *found;
  size_t done = 0, from = 0, begin = 0;
  while (!status && (found = literals_find(l, text, bytes, from, &begin))) {
    const size_t end = from = begin + found->bytes;
    if (found->single_word && is_inside(text, bytes, begin, end)) continue;
    if (found->lstrip) begin = blanks_before(text, done, begin);
    if (begin > done) status = encode(e, text + done, begin - done);
    if (!status) status = encoder_put(e, found->id);
    done = found->rstrip ? blanks_behind(text, bytes, end) : end;
  }
  return status || done == bytes ? status : encode(e, text + done, bytes - done);
}

/* ---- from a text to the model -------------------------------------------------------------------------- */

static attn_status encode_piece(void *context, const uint8_t *text, size_t bytes, bool first) {
  encoder *e = context;
  (void)first;
  return e->t->model(e, text, bytes);
}

static attn_status cut_piece(encoder *e, const uint8_t *text, size_t bytes) {
  return steps_run(&e->t->cutter, e->match, encode_piece, e, text, bytes, text == e->start);
}

static attn_status cut_normalised(void *context, const uint8_t *text, size_t bytes, bool first) {
  encoder *e = context;
  e->start = first ? text : NULL;
  return encoder_cut(e, &e->t->normalised, text, bytes, cut_piece);
}

static attn_status normalise_piece(encoder *e, const uint8_t *text, size_t bytes) {
  return steps_run(&e->t->normaliser, e->match, cut_normalised, e, text, bytes, text == e->whole);
}

attn_status encode_by_steps(encoder *e, const uint8_t *text, size_t bytes) {
  e->whole = text;
  return encoder_cut(e, &e->t->plain, text, bytes, normalise_piece);
}

const token *tokenizer_find(const data_tokenizer *t, const void *text, size_t bytes) {
  const token *found = bytes <= t->words.longest ? vocabulary_find(&t->words, text, bytes) : NULL;
  return found && !found->added ? found : NULL;
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

attn_status data_tokenizer_decode(const data_tokenizer *t, const int64_t *ids, int64_t count, char **out,
                                  size_t *bytes) {
  buffer d = {0};
  attn_status status = buffer_put(&d, "", 0);
  for (int64_t i = 0; !status && i < count; i++) {
    const token *next = vocabulary_at(&t->words, ids[i]);
    if (next)
      status = t->kind->decode(t, next, &d);
    else
      status = attn_fail(ATTN_EINVAL, "token %" PRId64 " is %" PRId64 ", which %s does not have", i, ids[i],
                         t->file);
  }
  if (status) {
    free(d.at);
    return status;
  }
  d.at[d.bytes] = 0;
  const size_t blank = t->prefix && d.bytes && *d.at == ' ';
  memmove(d.at, d.at + blank, d.bytes + 1 - blank);
  *out = (char *)d.at;
  *bytes = d.bytes - blank;
  return ATTN_OK;
}

/* sentencepiece.c - SentencePiece's BPE (Kudo, Richardson 2018, arXiv:1808.06226) from the arrays that a GGUF
 * file has of a Llama: blanks become U+2581, one more stands before the text, and of all neighbours whose
 * joint text is a token those with the highest score merge, the leftmost first. A character that is no token
 * becomes those of its bytes, or the unknown one.
 *
 * Control, unknown, byte and unused tokens take no part in merges; user-defined ones are cut out of the text
 * first. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistr.h>

#include "data/tokens/tokenizer.h"
#include "data/tokens/utf8.h"

static const char blank[] = "\xe2\x96\x81"; /* U+2581 */
enum { BLANK = sizeof blank - 1 };

/* ---- encoding ------------------------------------------------------------------------------------------ */

typedef struct segment {
  const data_tokenizer *t;
  const uint8_t *text;
} segment;

static const token *find(const segment *s, uint32_t begin, uint32_t end) {
  if (end - begin > s->t->words.longest) return NULL;
  const token *found = vocabulary_find(&s->t->words, s->text + begin, end - begin);
  return found && found->kind == TOKEN_NORMAL ? found : NULL;
}

static bool find_text(const void *context, const merge_symbol *left, const merge_symbol *right, uint32_t end,
                      uint32_t *rank, int32_t *id) {
  const token *found = find(context, left->begin, end);
  (void)right;
  if (!found) return false;
  *rank = found->rank;
  *id = found->id;
  return true;
}

static attn_status put_bytes(encoder *e, const uint8_t *at, size_t bytes) {
  /* Unknown characters that follow one another are one token. */
  if (!encoder_has_bytes(e, at, bytes))
    return e->t->unknown >= 0 && e->count && e->id[e->count - 1] == e->t->unknown
               ? ATTN_OK
               : encoder_put_unknown(e, at, bytes);
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < bytes; i++) status = encoder_put(e, e->t->byte_id[at[i]]);
  return status;
}

static attn_status encode_segment(encoder *e, const uint8_t *text, size_t bytes) {
  const segment s = {e->t, text};
  size_t count = 0;
  attn_status status = merge_reserve(&e->merge, bytes, e->t->words.count);
  if (status) return status;
  for (size_t at = 0; at < bytes; count++) {
    const size_t end = utf8_end(text, bytes, at);
    const token *found = find(&s, (uint32_t)at, (uint32_t)end);
    e->merge.symbol[count] = (merge_symbol){.begin = (uint32_t)at, .id = found ? found->id : -1};
    at = end;
  }
  merge_run(&e->merge, count, (uint32_t)bytes, find_text, &s);
  for (int32_t i = 0; !status && i >= 0; i = e->merge.symbol[i].next) {
    const merge_symbol *symbol = &e->merge.symbol[i];
    const uint32_t end = merge_end(&e->merge, i, (uint32_t)bytes);
    status = symbol->id >= 0 ? encoder_put(e, symbol->id)
                             : put_bytes(e, text + symbol->begin, end - symbol->begin);
  }
  return status;
}

/* Puts a text with U+2581 for blanks. Returns its bytes, at most BLANK times as many. */
static size_t put_marked(const void *text, size_t bytes, void *to) {
  const char *from = text;
  char *at = to;
  for (size_t i = 0; i < bytes; i++) {
    const size_t length = from[i] == ' ' ? BLANK : 1;
    memcpy(at, from[i] == ' ' ? blank : &from[i], length);
    at += length;
  }
  return (size_t)(at - (char *)to);
}

static attn_status encode(encoder *e, const uint8_t *text, size_t bytes) {
  const size_t most = BLANK * (bytes + 1);
  uint8_t *marked = malloc(most);
  if (!marked) return attn_fail(ATTN_ENOMEM, "no memory for a text of %zu bytes", most);
  size_t used = put_marked(" ", e->t->prefix, marked);
  used += put_marked(text, bytes, marked + used);
  const attn_status status = encoder_cut(e, &e->t->plain, marked, used, encode_segment);
  free(marked);
  return status;
}

/* ---- decoding ------------------------------------------------------------------------------------------ */

int piece_byte(const char *text, size_t bytes) {
  unsigned byte;
  char name[7] = "", again[7];
  if (bytes != 6) return -1;
  memcpy(name, text, 6);
  if (sscanf(name, "<0x%2X>", &byte) != 1) return -1;
  snprintf(again, sizeof again, "<0x%02X>", byte & 255);
  return strcmp(name, again) == 0 ? (int)byte : -1;
}

attn_status piece_decode(const data_tokenizer *t, const token *from, buffer *to) {
  attn_status status = ATTN_OK;
  (void)t;
  if (from->kind == TOKEN_CONTROL) return ATTN_OK;
  if (from->kind == TOKEN_UNKNOWN) return buffer_put(to, " \xe2\x81\x87 ", 5); /* U+2047, as SentencePiece */
  if (from->kind == TOKEN_BYTE) {
    const char byte = (char)piece_byte(from->text, from->bytes);
    return buffer_put(to, &byte, 1);
  }
  for (uint32_t i = 0; !status && i < from->bytes;) {
    const bool is_blank = from->bytes - i >= BLANK && memcmp(from->text + i, blank, BLANK) == 0;
    status = buffer_put(to, is_blank ? " " : from->text + i, 1);
    i += is_blank ? BLANK : 1;
  }
  return status;
}

static const tokenizer_kind sentencepiece = {encode, piece_decode};

/* ---- from arrays --------------------------------------------------------------------------------------- */

static attn_status kind_of(const data_sentencepiece *s, int64_t i, token_kind *out) {
  const data_piece *p = &s->pieces[i];
  const int byte = piece_byte(p->text, p->bytes);
  if (!s->types) {
    *out = byte >= 0         ? TOKEN_BYTE
           : i == s->unknown ? TOKEN_UNKNOWN
           : i == s->bos     ? TOKEN_CONTROL
                             : TOKEN_NORMAL;
    return ATTN_OK;
  }
  if (s->types[i] < TOKEN_NORMAL || s->types[i] > TOKEN_BYTE)
    return attn_fail(ATTN_EINVAL, "%s: token %" PRId64 " has type %" PRId32 "; 1 to 6 are known", s->file, i,
                     s->types[i]);
  *out = (token_kind)s->types[i];
  if (*out == TOKEN_BYTE && byte < 0)
    return attn_fail(ATTN_EINVAL, "%s: token %" PRId64 " is of type byte, but not named as <0x0A> is",
                     s->file, i);
  return ATTN_OK;
}

static attn_status add_pieces(data_tokenizer *t, const data_sentencepiece *s) {
  size_t bytes = 0;
  for (int64_t i = 0; i < s->count; i++) bytes += BLANK * s->pieces[i].bytes;
  attn_status status = vocabulary_begin(&t->words, t->file, (size_t)s->count, bytes);
  for (int64_t i = 0; !status && i < s->count; i++) {
    token_kind kind;
    char marked[BLANK * TOKEN_BYTES_MAX];
    data_piece p = s->pieces[i];
    status = kind_of(s, i, &kind);
    if (status) return status;
    if (s->scores && isnan(s->scores[i]))
      return attn_fail(ATTN_EINVAL, "%s: the score of token %" PRId64 " is NaN", t->file, i);
    /* Else a text could be cut inside a character. */
    if (s->pieces[i].bytes && u8_check((const uint8_t *)s->pieces[i].text, s->pieces[i].bytes))
      return attn_fail(ATTN_EINVAL, "%s: token %" PRId64 " is not UTF-8", t->file, i);
    if (kind == TOKEN_BYTE) t->byte_id[piece_byte(s->pieces[i].text, s->pieces[i].bytes)] = (int32_t)i;
    if (kind == TOKEN_LITERAL && t->kind == &sentencepiece && p.bytes <= TOKEN_BYTES_MAX)
      p = (data_piece){marked, put_marked(p.text, p.bytes, marked)};
    status = vocabulary_add(&t->words, t->file, p.text, p.bytes, i, kind);
  }
  return status ? status : vocabulary_end(&t->words, t->file);
}

typedef struct scored {
  float score;
  int32_t id;
} scored;

static int best_first(const void *a, const void *b) {
  const float x = ((const scored *)a)->score, y = ((const scored *)b)->score;
  return (x < y) - (x > y);
}

/* Equal scores have equal ranks. */
static attn_status rank_pieces(data_tokenizer *t, const float *scores) {
  const size_t count = t->words.count;
  scored *order = malloc(count * sizeof *order);
  if (!order) return attn_fail(ATTN_ENOMEM, "%s: no memory for %zu scores", t->file, count);
  for (size_t i = 0; i < count; i++) order[i] = (scored){scores[i], (int32_t)i};
  qsort(order, count, sizeof *order, best_first);
  for (size_t i = 0, rank = 0; i < count; i++) {
    if (i && order[i].score < order[i - 1].score) rank = i;
    t->words.token[order[i].id].rank = (uint32_t)rank;
  }
  free(order);
  return ATTN_OK;
}

static attn_status find_literals(data_tokenizer *t) {
  size_t count = 0;
  token *items = malloc(t->words.count * sizeof *items);
  if (!items) return attn_fail(ATTN_ENOMEM, "%s: no memory for its tokens", t->file);
  for (size_t i = 0; i < t->words.count; i++)
    if (t->words.token[i].kind == TOKEN_LITERAL && t->words.token[i].bytes)
      items[count++] = t->words.token[i];
  literals_make(&t->plain, items, count);
  return ATTN_OK;
}

static attn_status check_id(const data_sentencepiece *s, int64_t id, const char *what) {
  if (id < s->count) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s: the %s token is %" PRId64 " of a vocabulary of %" PRId64, s->file, what,
                   id, s->count);
}

attn_status tokenizer_pieces(data_tokenizer *t, const data_sentencepiece *s) {
  attn_status status = check_id(s, s->bos, "first");
  if (!status) status = check_id(s, s->unknown, "unknown");
  if (!status) status = add_pieces(t, s);
  t->bos = s->bos < 0 ? -1 : s->bos;
  t->unknown = s->unknown < 0 ? -1 : s->unknown;
  return status ? status : find_literals(t);
}

attn_status data_tokenizer_make(const data_sentencepiece *s, data_tokenizer **out) {
  data_tokenizer *t = NULL;
  if (s->count < 1 || s->count > TOKENS_MAX)
    return attn_fail(ATTN_EINVAL, "%s: %" PRId64 " tokens; expected 1 to %d", s->file, s->count, TOKENS_MAX);
  attn_status status = tokenizer_begin(s->file, &sentencepiece, &t);
  if (status) return status;
  status = tokenizer_pieces(t, s);
  if (!status) status = rank_pieces(t, s->scores);
  t->prefix = s->prefix;
  if (status)
    data_tokenizer_close(t);
  else
    *out = t;
  return status;
}

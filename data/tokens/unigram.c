/* unigram.c - SentencePiece's unigram model (Kudo 2018, arXiv:1804.10959): of all ways to write a piece as
 * tokens the one with the largest sum of their scores, by Viterbi's algorithm; O(bytes times the longest
 * token). A character that is no token counts as the unknown one, with the least score less 10; unknown
 * characters that follow one another become one token, or those of their bytes. */
#include "data/tokens/tokenizer.h"
#include "data/tokens/utf8.h"

/* The best way to a place: where its last token begins, and the score. */
typedef struct node {
  double score;
  uint32_t from, to; /* to: where the next token ends, once the way is known */
  bool reached, unknown;
} node;

static void offer(node *to, double score, size_t from, bool unknown) {
  if (to->reached && !(score > to->score)) return;
  *to = (node){.score = score, .from = (uint32_t)from, .reached = true, .unknown = unknown};
}

static void find_best(const data_tokenizer *t, const uint8_t *text, size_t bytes, node *nodes) {
  for (size_t at = 0, end; at < bytes; at = end) {
    literals_walk walk = literals_walk_begin(&t->pieces, text + at, bytes - at);
    end = utf8_end(text, bytes, at);
    for (const token *next; (next = literals_next(&walk, text + at, bytes - at));)
      offer(&nodes[at + next->bytes], nodes[at].score + t->score[next->id], at, next->id == t->unknown);
    /* Less than a token of one character, if there is one. */
    offer(&nodes[end], nodes[at].score + t->unknown_score, at, true);
  }
  for (size_t at = bytes; at; at = nodes[at].from) nodes[nodes[at].from].to = (uint32_t)at;
}

static attn_status put_token(encoder *e, const uint8_t *text, size_t bytes) {
  attn_status status = ATTN_OK;
  const token *found = tokenizer_find(e->t, text, bytes);
  if (found) return encoder_put(e, found->id);
  if (!encoder_has_bytes(e, text, bytes)) return encoder_put_unknown(e, text, bytes);
  for (size_t i = 0; !status && i < bytes; i++) status = encoder_put(e, e->t->byte_id[text[i]]);
  return status;
}

attn_status unigram_encode(encoder *e, const uint8_t *text, size_t bytes) {
  attn_status status = ATTN_OK;
  if (bytes > MERGE_BYTES_MAX)
    return attn_fail(ATTN_EUNSUPPORTED, "%s: a piece of text of %zu bytes, more than %d", e->t->file, bytes,
                     MERGE_BYTES_MAX);
  node *nodes = calloc(bytes + 1, sizeof *nodes);
  if (!nodes) return attn_fail(ATTN_ENOMEM, "no memory to encode a text of %zu bytes", bytes);
  find_best(e->t, text, bytes, nodes);
  for (size_t at = 0, end; !status && at < bytes; at = end) {
    end = nodes[at].to;
    while (nodes[end].unknown && end < bytes && nodes[nodes[end].to].unknown) end = nodes[end].to;
    status = put_token(e, text + at, end - at);
  }
  free(nodes);
  return status;
}

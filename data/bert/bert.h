/* bert.h - BERT encoders (Devlin et al. 2018, arXiv:1810.04805), up to their queries, keys and values:
 * attention in which each token sees all. They predict no next token, so there are no logits here. Internal
 * to data/.
 *
 * x = norm(E[token] + P[position] + T[0]); a layer: q, k, v = x W^T + b each; x = norm(x + attention(q, k, v)
 * Wo^T + bo); x = norm(x + gelu(x W1^T + b1) W2^T + b2); gelu(a) = a (1 + erf(a / sqrt 2)) / 2; norm(x) = (x
 * - mean) / sqrt(variance + eps) * g + b. */
#ifndef DATA_BERT_BERT_H
#define DATA_BERT_BERT_H

#include "data/data.h"

typedef struct bert bert;

typedef struct bert_config {
  int64_t vocab, hidden, intermediate, layers, heads, max_positions;
  double eps;
} bert_config;

/* Does DIRECTORY/config.json describe a BERT model? Also false if it cannot be read. */
bool bert_is(const char *directory);

/* A directory in Hugging Face layout. EUNSUPPORTED names what is not supported. */
attn_status bert_open(const char *directory, bert **);
void bert_close(bert *);
const bert_config *bert_get_config(const bert *);
void bert_sha256(const bert *, char hex[65]);

/* Q, K and V of one layer, [heads, n, d] f32, of n tokens at positions 0 ... n - 1; all of type 0. */
attn_status bert_capture(const bert *, const int64_t *tokens, int64_t n, int64_t layer, data_qkv *out);

#endif

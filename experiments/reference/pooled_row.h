/* pooled_row.h - the weights that the definition of attn_pooling gives to the values of a row's keys. */
#ifndef EXPERIMENTS_REFERENCE_POOLED_ROW_H
#define EXPERIMENTS_REFERENCE_POOLED_ROW_H

#include "attn_variant.h"

/* Which entries a row sees. Rounding may order scores of the index that are close in either way. */
typedef struct pooled_choice {
  bool *kept;          /* [n_kv] by entry: is it seen for certain? */
  int64_t *open;       /* [n_kv] entries that may be seen or not */
  int64_t opened, due; /* how many; and how many of them are */
} pooled_choice;

/* Of a query, where `keys` keys exist; the arrays of the choice are given. low, high: room of [n_kv]. */
void pooled_choose(const attn_pooling *, const attn_query *, int64_t keys, double *low, double *high,
                   pooled_choice *);

/* Row i, which sees entries kept [n_kv], where `keys` keys exist; products[j] = scale q . k_j. The product of
 * a block's mean is the mean of the products of its keys, each of which has an equal share of its weight.
 * weights[keys] and the sink's sum to 1; they are all 0 where the query sees nothing. */
void pooled_row(const attn_pooling *, const attn_problem *, int64_t batch, int64_t head, int64_t i,
                int64_t keys, const double *products, const bool *kept, double *weights);

#endif

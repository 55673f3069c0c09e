/* ranking.h - the best of many scores: of equal ones the lower column, NaN as -Inf. */
#ifndef ATTN_CORE_ENGINES_SOFTMAX_RANKING_H
#define ATTN_CORE_ENGINES_SOFTMAX_RANKING_H

#include "core/internal.h"

typedef struct attn_ranking {
  const attn_kernels *kernels;
  int64_t kept;     /* most columns that are left */
  void *scores;     /* room for 2 kept and the columns of a stretch, in the kernels' dtype */
  int32_t *columns; /* the same */
  double least;     /* what a column must exceed; -Inf to begin with */
  int64_t count;    /* of candidates, in ascending order; 0 to begin with */
} attn_ranking;

/* Columns first ... first + count - 1, after all those before. */
void attn_ranking_offer(attn_ranking *, const void *scores, int64_t first, int64_t count);
/* Leaves the `kept` best of those offered. */
void attn_ranking_select_top(attn_ranking *);
/* Of all columns offered, at most `kept`, leaves the fewest whose softmax has the mass. weights: room for
 * `kept`. */
void attn_ranking_select_mass(attn_ranking *, double mass, double *weights);

/* Of a ranker with an index: columns [count][depth] of a batch entry; what row i of an index head multiplies
 * them with, [depth]; one score of the products of all index heads, in the first of their rows. */
void attn_index_columns(const attn_ranker *, const attn_call *, int64_t batch, int64_t first, int64_t count,
                        void *);
void attn_index_query(const attn_ranker *, const attn_call *, int64_t batch, int64_t head, int64_t i, void *);
void attn_index_join(const attn_ranker *, const attn_rank_chunk *);

/* Of a ranker with means: the number of entries; the means [entries][depth] of a kv head; their weights
 * [rows][entries] for a block; what these give to columns, in the first of the rows that share; the law. */
int64_t attn_means_entries(const attn_ranker *, int64_t keys);
void attn_means_prepare(const attn_ranker *, const attn_call *, int64_t batch, int64_t kv_head, void *means);
void attn_means_weigh(const attn_ranker *, const attn_rank_chunk *, const void *means, void *weights);
void attn_means_share(const attn_ranker *, const attn_rank_chunk *, const void *weights);
void attn_means_margins(const void *ranker, const attn_query *, int64_t keys, double *low, double *high);

#endif

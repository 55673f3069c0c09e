/* attn_selector.h - keys that are selected when a variant executes, from Q and K: top-k, pages, hashing. The
 * softmax engine then attends to what was selected, exactly. Part of attn_variant.h, which includes it. */
#ifndef ATTN_SELECTOR_H
#define ATTN_SELECTOR_H

/* What shares a selection. */
typedef enum {
  ATTN_SHARE_ROW,   /* nothing: one for each query of each head */
  ATTN_SHARE_GROUP, /* the query heads of a kv head: one for each query */
  ATTN_SHARE_TILE,  /* the queries of a block: one for each block of each head */
} attn_share;

/* Queries first ... first + count - 1 of a head; under ATTN_SHARE_GROUP of all heads of the kv head, of which
 * `head` is the first. */
typedef struct attn_block {
  int64_t batch, head, first, count;
} attn_block;

/* A query of a call. */
typedef struct attn_query {
  const attn_call *call;
  int64_t batch, head, i;
  /* Selection 0 of these are keys that are none of the selector's whose law is asked for (attn_picks.owned);
   * NULL: none. */
  const struct attn_picks *owned;
} attn_query;

/* Where a selection is written: of query i of a block (with ATTN_SHARE_TILE: of the block, i = 0) the runs,
 * of step 1, ascending and disjoint, at runs[i * max_runs], how many at counts[i], and what is added to the
 * scores of the keys of a run, 0 beforehand, at log_weights[i * max_runs + its number]. */
typedef struct attn_picks {
  int64_t max_runs;
  attn_run *runs;
  int64_t *counts;
  double *log_weights; /* NULL but with attn_selector.weighted */
  const struct attn_picks
      *owned; /* with attn_selector.restricts: keys that are none of this selector's; NULL: none */
} attn_picks;

/* Ranking by an index: I_ij = sum_h w_ih max(index_q_ih . index_k_j, 0) over the index heads, the same for
 * all heads of a batch entry. The vectors are the call's extra tensors (attn_extra); of a call without them
 * index_q is the queries, of index head h those of head h mod heads, index_k the mean of the keys over kv
 * heads, and w = 1; elements beyond d_qk are 0. */
typedef struct attn_index {
  int64_t heads, width; /* 0: none */
} attn_index;

/* The law: I of a query and the mean of index_k over keys first ... first + keys - 1, which exist, in fp64;
 * *error: how far what the problem's arithmetic makes of it may be off. */
ATTN_API double attn_index_score(const attn_index *, const attn_query *, int64_t first, int64_t keys,
                                 double *error);

/* Ranking by the weights of means: entry b is the mean of keys b block - overlap ... b block + block - 1,
 * where all exist, and p the softmax of scale q.k' over the entries of which a query sees the last key. The
 * score of a column is the sum of p over its keys, their entries, and the query heads of the kv head. */
typedef struct attn_means {
  int64_t block, overlap; /* block 0: none */
} attn_means;

/* A pure function of the call: selections are the same for any number of threads. It ranks no key that
 * causality, the problem's mask or padding hides from the query (of a block: from all its queries); of equal
 * keys the lower index comes first, and a score that is NaN ranks as -Inf does. */
typedef struct attn_selector {
  const void *state;
  attn_share share;
  int64_t rows;     /* of a block, which select is asked for at a time; 1 ... ATTN_TILE */
  int64_t max_runs; /* of a selection */
  int64_t max_keys; /* of a selection; 0: any number */
  bool every; /* selections are all visible keys whatever the data are: the engine attends as without one */
  bool weighted;  /* select writes weights */
  bool restricts; /* select heeds attn_picks.owned: it takes none of these keys, and draws among the others */
  /* What select reads of a kv head, made once a call: bytes, and the function. 0 and NULL: nothing. */
  size_t prepared_bytes;
  void (*prepare)(const void *state, const attn_call *, int64_t batch, int64_t kv_head, void *prepared,
                  void *scratch);
  size_t scratch_bytes; /* of a thread */
  void (*select)(const void *state, const attn_call *, const attn_block *, const void *prepared, attn_picks *,
                 void *scratch);
  /* With ATTN_SHARE_TILE: the queries of a head in the order in which they are cut into blocks, [n_q], as
   * prepare left it; attn_block.first then counts places of this order. NULL: as they come. */
  const int64_t *(*order)(const void *state, const attn_call *, const void *prepared, int64_t head);

  /* The law of the selection, which checks hold select against. It is written from the definition, apart from
   * select. Unit u is keys u grain ... u grain + grain - 1; a query takes the `kept` units of the largest
   * score among those of which it, or another that shares the selection, may see a key (all, where there are
   * fewer), besides those that it always takes. A key that a bias of -Inf hides may not be seen. */
  int64_t grain, kept; /* grain 0: no law */
  double mass;         /* > 0: instead of `kept`, the fewest whose softmax of scores has this mass */
  /* Of grain 1, instead of `kept` and a score: low[j] and high[j] <- the ends of an interval that holds the
   * margin of key j, 0 ... keys - 1, up to rounding; the query takes keys of a margin above 0, and none below
   * 0. */
  void (*margins)(const void *state, const attn_query *, int64_t keys, double *low, double *high);
  bool (*always)(const void *state, const attn_query *, int64_t unit); /* NULL: none is always taken */
  /* The score that select ranks by, in fp64, and how far select's own may be off; -Inf of a unit no key of
   * which may be seen. NULL: that of the only key. */
  double (*score)(const void *state, const attn_query *, int64_t unit, double *error);
  attn_index index; /* by which units are ranked: a unit by the mean of its keys' index_k */
  /* What the ranking knows of scale * q.k: of each unit an interval that holds those of all its keys that
   * exist, up to fp64's rounding; -Inf or Inf where an end is not known. NULL: nothing is known that is not
   * computed. */
  void (*enclose)(const void *state, const attn_query *, int64_t units, double *low, double *high);
  /* The law of what is left out: the weight of such a key is below `least` times that of some key that is
   * kept, or of the row's sink. 0: no such law. */
  double least;
  /* The law of hashing: a hash names which of buckets / 2 normal vectors, or of their negatives, has the
   * largest product; a key is kept if one of `hashes` independent hashes names for it what it names for the
   * query, or if it is always taken (always; units are keys). 0: no such law. */
  int64_t hashes, buckets;
  /* The law of weights. Keys are drawn; with weight 0 of a key that is not kept, the weight of each key that
   * the query sees has the mean 1 over draws (of other seeds), so that numerator and denominator of the
   * softmax are unbiased. moments: m[a * count + b] = the mean of the product of the weights of keys[a] and
   * keys[b], which the query sees (a key that is always taken has the weight 1). log_weight: of a key that is
   * kept. repeats: a key may be drawn several times, and its weight counts once for each draw. NULL: no such
   * law. log_weight without moments: nothing is drawn, the keys are those that are always taken, of grain 1,
   * and each counts e^log_weight times. */
  void (*moments)(const void *state, const attn_query *, const int64_t *keys, int64_t count, double *m);
  double (*log_weight)(const void *state, const attn_query *, int64_t key);
  bool repeats;
  /* What the draws promise of the denominator D and its estimate D~: |D~ - D| > epsilon D at most with
   * probability delta. 0: nothing. claimed: by who published it, without a proof that covers every input. */
  double epsilon, delta;
  bool claimed;
} attn_selector;

/* -- selectors that rank: a column is a key, or a page of `unit` keys -- */

/* A selection ranks the columns from ... to - 1 and keeps the best of them, besides the visible keys begin
 * ... end - 1 before the first of these columns and after the last. */
typedef struct attn_rank_span {
  int64_t begin, from, to, end;
} attn_rank_span;

/* The scores of columns first ... for the rows of a block, of its first query those of all heads that share,
 * and so on. */
typedef struct attn_rank_chunk {
  const attn_call *call;
  const attn_block *block;
  int64_t heads, rows;
  const void *queries; /* [rows][depth] */
  int64_t first, count, x_row;
  void *x;     /* [rows][x_row] */
  void *spare; /* of the same size */
  void *gemm;  /* attn_gemm_scratch */
  void *keys;  /* room for attn_load_rows of x_row keys; NULL where these need none */
} attn_rank_chunk;
static inline int64_t attn_rank_head(const attn_rank_chunk *c, int64_t r) {
  return c->block->head + r % c->heads;
}
static inline int64_t attn_rank_row(const attn_rank_chunk *c, int64_t r) {
  return c->block->first + r / c->heads;
}

/* Ranks by the score of a column, or by the largest score of all rows that share a selection. Its functions
 * are pure, and find parameters in the call's context. */
typedef struct attn_ranker {
  attn_share share;
  bool every;
  int64_t unit, depth; /* keys of a column; elements of a product */
  int64_t kept;        /* columns of a selection, besides those that are not ranked */
  int64_t max_keys;    /* of a selection */
  double mass;         /* > 0: not a number of columns is kept, but the fewest whose softmax has this mass */
  /* With heads, share is ATTN_SHARE_GROUP, depth the width, and the functions columns, query, scores and
   * score are the ranker's: each kv head ranks anew what is the same for all. */
  attn_index index;
  /* With a block, share is ATTN_SHARE_GROUP, depth d_qk, a query is written times the scale, columns, scores
   * and score are the ranker's, and only causality and padding hide keys. */
  attn_means means;
  /* Writes columns first ... of a kv head, [count][depth]. NULL: scores are no products. */
  void (*columns)(const attn_call *, int64_t batch, int64_t kv_head, int64_t first, int64_t count, void *x);
  /* Writes what row i of a head multiplies them with, [depth]. */
  void (*query)(const attn_call *, int64_t batch, int64_t head, int64_t i, void *x);
  /* Makes scores of the products, or of nothing, in place. NULL: the products are the scores. */
  void (*scores)(const attn_rank_chunk *);
  /* Of rows i ... i + count - 1, all of which see every column that is ranked. */
  attn_rank_span (*span)(const attn_call *, int64_t batch, int64_t head, int64_t i, int64_t count);
  /* The law (attn_selector): columns that are always kept, NULL: none; the score for one query that sees a
   * key of the column, NULL: that of the only key. */
  bool (*always)(const attn_query *, int64_t column);
  double (*score)(const attn_query *, int64_t column, double *error);
  void (*enclose)(const attn_query *, int64_t columns, double *low, double *high); /* NULL: nothing to say */
} attn_ranker;
/* For laws: the rounding error of a sum of `terms` products, whose magnitudes sum to `size`, in the problem's
 * arithmetic; the score of a key whose product q.k is given, *error of which becomes that of attn_score_row's
 * result. */
ATTN_API double attn_rank_error(const attn_problem *, int64_t terms, double size);
ATTN_API double attn_rank_score(const attn_query *, int64_t key, double product, double *error);

/* The selector of a ranker, which is its state. */
ATTN_API attn_selector attn_ranker_selector(const attn_context *, const attn_ranker *);
/* The same of a copy in the plan's memory; without a builder (NULL) for its sizes. */
ATTN_API attn_status attn_ranker_describe(attn_builder *, const attn_context *, const attn_ranker *,
                                          attn_selector *);
/* Of columns (an operation an element of K), ranking and attention. */
ATTN_API attn_cost attn_ranker_cost(const attn_context *, const attn_ranker *);

/* Query rows of a (batch, head), ascending. */
typedef struct attn_row_set {
  int64_t batch, head, count;
  const int64_t *rows;
} attn_row_set;

/* What an execution would attend to, before causality: the selection of query rows[r] of the set as that of
 * query r of a block; picks->max_runs is that of the view's selector (of its residual's), and log_weights may
 * be NULL. Prepares the kv head, and allocates. EUNSUPPORTED: the variant selects nothing. Of the
 * tensors q, k, v, kv_len and extra are read. */
ATTN_API attn_status attn_plan_select(const attn_plan *, const attn_tensors *, const attn_row_set *,
                                      attn_picks *);

#endif

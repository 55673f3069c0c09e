/* attn_selector.h - keys that are selected when a variant executes, from Q and K: top-k, pages, hashing. The softmax
 * engine then attends to what was selected, exactly. Part of attn_variant.h, which includes it. */
#ifndef ATTN_SELECTOR_H
#define ATTN_SELECTOR_H

/* What shares a selection. */
typedef enum {
  ATTN_SHARE_ROW,   /* nothing: one for each query of each head */
  ATTN_SHARE_GROUP, /* the query heads of a kv head: one for each query */
  ATTN_SHARE_TILE,  /* the queries of a block: one for each block of each head */
} attn_share;

/* Queries first ... first + count - 1 of a head; under ATTN_SHARE_GROUP of all heads of the kv head, of which `head` is
 * the first. */
typedef struct attn_block {
  int64_t batch, head, first, count;
} attn_block;

/* A query of a call. */
typedef struct attn_query {
  const attn_call *call;
  int64_t batch, head, i;
} attn_query;

/* A pure function of the call: selections are the same for any number of threads. It ranks no key that causality, the
 * problem's mask or padding hides from the query (of a block: from all its queries); of equal keys the lower index
 * comes first, and a score that is NaN ranks as -Inf does. */
typedef struct attn_selector {
  const void *state;
  attn_share share;
  int64_t rows;     /* of a block, which select is asked for at a time; 1 ... ATTN_TILE */
  int64_t max_runs; /* of a selection */
  int64_t max_keys; /* of a selection; 0: any number */
  /* What select reads of a kv head, made once a call: bytes, and the function. NULL: nothing. */
  size_t (*prepared_bytes)(const void *state, const attn_context *);
  void (*prepare)(const void *state, const attn_call *, int64_t batch, int64_t kv_head, void *prepared,
                  void *scratch);
  size_t (*scratch_bytes)(const void *state, const attn_context *); /* a thread's; NULL: none */
  /* Writes for each query of the block (with ATTN_SHARE_TILE: for the block) its runs, of step 1, ascending and
   * disjoint, at runs[i * max_runs], and how many at counts[i]. */
  void (*select)(const void *state, const attn_call *, const attn_block *, const void *prepared,
                 attn_run *runs, int64_t *counts, void *scratch);

  /* The law of the selection, which checks hold select against. It is written from the definition, apart from select.
   * Unit u is keys u grain ... u grain + grain - 1; a query takes the `kept` units of the largest score among those of
   * which it may see a key (all, where there are fewer), besides those that it takes in any case. */
  int64_t grain, kept;                                                 /* grain 0: no law */
  bool (*always)(const void *state, const attn_query *, int64_t unit); /* NULL: it takes none in any case */
  /* The score that select ranks by, in fp64, and how far select's own may be off. NULL: that of the only key. */
  double (*score)(const void *state, const attn_query *, int64_t unit, double *error);
} attn_selector;

/* selector: copied. state: what execute and inspect take, which are functions of a variant. EUNSUPPORTED: the problem's
 * mask is a user's graph. */
ATTN_API attn_status attn_selection_plan(attn_builder *, const attn_selector *, void **state);
ATTN_API attn_status attn_selection_execute(const void *state, const attn_call *);
ATTN_API void attn_selection_inspect(const void *state, const attn_context *, attn_view *);
/* Pure, as cost is to be: attn_softmax_cost of the pairs, and what ranking takes. */
ATTN_API size_t attn_selection_work_size(const attn_context *, const attn_selector *);

/* Query rows of a (batch, head), ascending. */
typedef struct attn_row_set {
  int64_t batch, head, count;
  const int64_t *rows;
} attn_row_set;

/* What an execution would attend to: the runs of query rows[r] of the set, before causality, at runs[r *
 * view.selector->max_runs], and how many at counts[r]. Prepares the kv head, and allocates. EUNSUPPORTED: the variant
 * selects nothing. Other arguments as in attn_plan_execute. */
ATTN_API attn_status attn_plan_select(const attn_plan *, const void *q, const void *k, const void *v,
                                      const int64_t *kv_len, const attn_row_set *, attn_run *runs,
                                      int64_t *counts);

#endif

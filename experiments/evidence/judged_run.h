/* judged_run.h - a run as it is judged: its inputs and output, exact rows, and all columns that follow from
 * them. */
#ifndef EXPERIMENTS_EVIDENCE_JUDGED_RUN_H
#define EXPERIMENTS_EVIDENCE_JUDGED_RUN_H

#include "attn_variant.h"
#include "experiments/reference/exact.h"
#include "experiments/results/bound.h"
#include "experiments/support/region.h"

/* A run as its judges see it. Q, K, V, O are contiguous [batch, heads, n, d] in problem->dtype. */
typedef struct evidence {
  const attn_plan *plan;
  const attn_problem *problem; /* the plan's */
  const attn_view *view;
  const void *q, *k, *v;
  const int64_t *kv_len;   /* or NULL */
  const attn_extra *extra; /* [extras] */
  int64_t extras;
  const void *o;      /* the run's output, not to be changed */
  const void *stored; /* the same as tensors of 16 bits have it, of type `as`, of which errors are; NULL: o */
  attn_dtype as;
  const exact_rows *exact;
  bool backward;             /* gradients are wanted */
  uint64_t seed;             /* for a check's own draws */
  const char *only;          /* the name of the one check that is asked; NULL: all are */
  struct block_cache *cache; /* the block's: results that the judges of several variants share */
  region *memory;            /* of a check, while it is evaluated: what it takes is released behind it */
} evidence;

/* What the run was given, for attn_plan_select and the like, and for laws. */
static inline attn_tensors evidence_tensors(const evidence *e) {
  return (attn_tensors){
      .q = e->q, .k = e->k, .v = e->v, .kv_len = e->kv_len, .extra = e->extra, .extras = e->extras};
}
static inline attn_call evidence_call(const evidence *e) {
  return (attn_call){.context = attn_plan_context(e->plan),
                     .q = e->q,
                     .k = e->k,
                     .v = e->v,
                     .kv_len = e->kv_len,
                     .extra = e->extra,
                     .extras = e->extras};
}

/* Of a batch entry, that exist. */
static inline int64_t evidence_keys(const evidence *e, int64_t batch) {
  return e->kv_len ? e->kv_len[batch] : e->problem->n_kv;
}

/* Query row.i of the run, for laws; call: evidence_call. */
static inline attn_query evidence_query(const attn_call *call, const sample_row *row) {
  return (attn_query){.call = call, .batch = row->batch, .head = row->head, .i = row->i};
}

/* A plan for another problem by the run's spec, or by another (NULL: that), on its instruction set; threads
 * 0: as many. view: what it shows, or NULL. */
attn_status evidence_plan(const evidence *, const attn_problem *, const attn_spec *, int threads,
                          attn_plan **, attn_view *view);
/* The same with another seed of the variant's draws; evidence_seed is the run's. */
attn_status evidence_seeded_plan(const evidence *, const attn_problem *, int64_t seed, int threads,
                                 attn_plan **, attn_view *view);
int64_t evidence_seed(const evidence *);

/* NULL if there is no memory. */
struct block_cache *block_cache_create(void);
void block_cache_free(struct block_cache *);

/* Appends the bounds of a run to its row, as checks_run does; ENOMEM. */
typedef attn_status evidence_judge(const evidence *, result_row *);

/* Fills every column of the row that follows from a run: errors, what the input is like, and for a plan the
 * sizes that theory requires, its map if that is wanted, the bounds and the worst verdict. Of an output
 * without a plan, view and cache: errors and input alone. */
attn_status evidence_all(const evidence *, bool map, evidence_judge *, result_row *);

#endif

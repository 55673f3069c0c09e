/* probe.h - a small problem cut from a run: head 0 of batch 0, some of its queries, all of its keys, computed
 * again by the same variant with the same parameters and hence the same draws.
 *
 * Softmax engines are probed in the run's dtype, so that their rounding bounds apply; linear and compression
 * engines in fp64, where the mathematics is not blurred. Queries: 64 of the sampled ones if rows do not
 * depend on their position (no pattern, not causal), else the last 64 (positions count from the end), else,
 * if n_q must equal n_kv, all. */
#ifndef EXPERIMENTS_CHECKS_PROBE_H
#define EXPERIMENTS_CHECKS_PROBE_H

#include "evidence_internal.h"
#include "checks/row.h"

typedef struct probe {
  evidence e; /* of the small problem: e.plan, e.problem, e.view, e.q, e.k, e.v, e.kv_len, e.o are its own */
  attn_problem problem;
  attn_plan *plan;
  attn_view view;
  void *q, *k, *v, *o; /* o: the run's rows if the dtype is the same, else computed */
  void *work;
  int64_t kv_len;
  int64_t *rows;  /* [problem.n_q] rows of the run */
  head_data head; /* of the small problem */
} probe;

/* The probe of e->plan, made at the first call and kept in e->cache. */
attn_status probe_get(const evidence *e, probe **);
void probe_forget(struct block_cache *);

/* Runs the probe's plan on other keys and values ([n_kv, d], rounded to its dtype): o [n_q, d_v]. */
attn_status probe_execute(const probe *, const double *k, const double *v, double *o);

#endif

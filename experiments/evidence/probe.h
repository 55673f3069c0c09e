/* probe.h - a small problem cut from a run: one (batch, head), some of its queries, computed again by the
 * same variant with the same parameters and hence the same draws.
 *
 * Softmax engines are probed in the run's dtype, so that their rounding bounds apply; linear, compression
 * and normaliser engines in fp64, where the mathematics is not blurred. Batch and head are drawn at random.
 * Queries: where rows do not depend on their position, 64 spread over all of them, edges of tiles and chunks
 * among them;
 * under a causal mask 64 neighbours anywhere, with the keys up to the last of them (or all rows: features);
 * else every row if that is cheap or n_q must equal n_kv, or the last 64 (positions count from the end). */
#ifndef EXPERIMENTS_EVIDENCE_PROBE_H
#define EXPERIMENTS_EVIDENCE_PROBE_H

#include "attn_variant.h"
#include "experiments/evidence/rows.h"
#include "experiments/evidence/stored_copies.h"
#include "experiments/reference/seen.h"

/* Features of the linear engine: phi(x) = exp(scale) f(x). */
typedef struct probe_features {
  int64_t columns;
  double *query, *query_scale; /* [n_q, columns], [n_q] */
  double *key, *key_scale;     /* [keys, columns], [keys] */
} probe_features;

/* Of the support of row r the weights and their magnitudes, eps included, relative to the largest scale of
 * its keys: s->weight, s->slack. Returns that scale. */
double features_weigh(const probe_features *, double eps, int64_t r, row_space *s);

struct fresh_draws;

typedef struct probe {
  region memory;        /* of itself */
  evidence e;           /* of the small problem: plan, problem, view, q, k, v, kv_len and o are its own */
  attn_problem problem; /* one head; the plan's own may have those of the run, on the same tensors */
  attn_plan *plan;
  attn_view view;
  void *q, *k, *v, *o; /* o: the run's rows if dtype and draws are the same, else computed */
  void *work;
  int64_t kv_len;
  int64_t batch, run_head;   /* of the run */
  int64_t own_head, kv_head; /* of the plan, whose draws they are: 0 unless heads draw for themselves */
  int64_t *rows;             /* [problem.n_q] rows of the run, counted through all batches and heads */
  head_data head;            /* of the small problem */
  seen_keys seen;            /* by its rows, of the small problem's keys */
  attn_problem slot_problem;
  head_data slots;           /* compression engines: projected keys and values; see probe_compress */
  struct fresh_draws *fresh; /* fresh draws of its features (feature_draws.h), or NULL */
  probe_features features;   /* linear engines; see probe_map */
  double *planted;           /* [n_q, d_v] see probe_plant */
} probe;

/* The probe of e->plan, made at the first call and kept in e->cache. */
attn_status probe_get(const evidence *e, probe **);
/* Forgets what the judges of one run share: its probe, and the facts of its rows. */
void probe_forget(struct block_cache *);

/* Runs the probe's plan on other keys and values ([n_kv, d], rounded to its dtype): o [n_q, d_v]. */
attn_status probe_execute(const probe *, const double *k, const double *v, double *o);

/* Fills planted: the output for values that are 1 in column 0, and in the others 1 in one column for each
 * key, drawn at random, and 0. */
attn_status probe_plant(probe *);

/* Fills features. EUNSUPPORTED if they would exceed 2^24 numbers. Linear engines only. */
attn_status probe_map(probe *);

/* Projects side (ATTN_KEY: E, d = d_qk; ATTN_VALUE: F, d = d_v) of [keys, d] into y [slots, d]. Returns in
 * *used the slots in use. Compression engines only. */
attn_status probe_project(const probe *, attn_side side, const double *x, int64_t d, double *y,
                          int64_t *used);
/* Fills slots. Compression engines only. */
attn_status probe_compress(probe *);

/* What the engine's weights act on: the slots of a compression engine, else the head. */
const head_data *probe_inner(const probe *);
/* The head of keys k, in the probe's type, and of its values, as the plan's store keeps them. Released by
 * stored_copies_free and head_data_free, also where it fails, if both were zeros. */
attn_status probe_stored(const probe *, const void *k, stored_copies *, head_data *);
/* Room for a row of keys or of slots. */
attn_status probe_space(const probe *, row_space *);

/* Up to `count` of the probe's rows, spread over them, edges among them; returns how many. */
int64_t probe_pick(const probe *, int64_t count, int64_t *rows);
/* Calls visit for rows[0 .. count) of the probe, in parallel, with the place among them; the space, one a
 * thread, has the probe's own output of the row as given. */
typedef void (*probe_visit)(void *context, int64_t place, int64_t row, row_space *);
attn_status probe_rows(const probe *, const int64_t *rows, int64_t count, probe_visit, void *context);

/* Judges up to `most` rows that probe_pick gives in the same way, and settles the worst finding. */
typedef outcome probe_judge(void *context, int64_t place, int64_t row, row_space *);
attn_status probe_check(const probe *, int64_t most, probe_judge *, void *context, result_bound *);

/* Row r of the probe: s->o by the algorithm in exact arithmetic (head: probe_inner, or its ones) and s->bound
 * on how far the engine's rounding may take it. moved: a vector added to every key, or NULL. After probe_map
 * or probe_compress; compression engines need convex weights. */
row_verdict probe_bound(const probe *, const head_data *head, const double *moved, int64_t r, row_space *s);

/* The same by the kernel of features that are not drawn, as an engine may err that computes in the type of
 * `run`; no map is called, and s->weight are the kernels. */
row_verdict probe_kernel(const probe *, attn_dtype run, int64_t r, row_space *s);
/* s->o <- exact attention of row r over every key that it sees; *error: how far fp64 may have taken its
 * norm. */
row_verdict probe_exact(const probe *, int64_t r, row_space *s, double *error);

/* The same for a compression engine that rounds to `unit`, its projection in chains of `chain` roundings. */
row_verdict probe_compression_bound(const probe *, const head_data *, double unit, int64_t chain,
                                    const double *moved, row_space *);

#endif

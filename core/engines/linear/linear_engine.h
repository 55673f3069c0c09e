/* linear_engine.h - what the files of the linear engine share: sizes, a thread's workspace, the running
 * state, and what joins them with a head of exact keys. */
#ifndef ATTN_CORE_ENGINES_LINEAR_LINEAR_ENGINE_H
#define ATTN_CORE_ENGINES_LINEAR_LINEAR_ENGINE_H

#include "core/internal.h"

/* Rows whose features are in the cache at a time, and keys that are summed from zero before they enter the
 * running sum. A chunk is a multiple of every register tile. */
enum { CHUNK = 96, SEGMENT = 21 * CHUNK };
/* Queries that share the keys that they are multiplied with, a multiple of every register tile. */
enum { STEP = 24 };

/* Sizes of a problem. Rows of features are f_row elements apart and rows of values v_row, both padded for
 * attn_product. */
typedef struct linear_shape {
  const attn_context *c;
  const attn_problem *p;
  const attn_kernels *simd;
  const attn_feature_map *map;
  int64_t columns; /* features */
  int64_t f_row, v_row;
  int64_t segments; /* of the keys */
  int64_t chains;   /* of segments: each is computed in order, see linear_engine.c */
  attn_dtype t;
  attn_guards *guards; /* of attn_plan_verify, or NULL */
  void *states;        /* of heads, see linear_engine.c */
  double *peaks;       /* [batch][kv heads][chunks] the largest c of a segment up to each chunk; or NULL */
  const struct linear_residual *residual; /* NULL: sums are divided, not joined with a head */
} linear_shape;

/* S: rows of sum_j e^(c_j - M) f_j v_j^T, and below them sum_j v_j. z: sum_j e^(c_j - M) f_j. M: the
 * reference, the largest c_j. One block of memory, in this order. */
typedef struct linear_state {
  void *sums; /* [columns + 1] rows */
  void *z;    /* [columns] */
  double *reference, *keys;
  double *norms; /* sum_j e^(c_j - M) |f_j|, where a residual needs it */
} linear_state;

/* Features of a chunk of keys, transposed, as the queries near it need them again. */
typedef struct linear_slot {
  int64_t tag;    /* of batch entry, kv head and chunk, from 1; 0: empty */
  void *features; /* [columns] rows of CHUNK */
  double *scales; /* [CHUNK] */
} linear_slot;

enum { SLOTS = 8 };

/* What the engine joins its sums with (residual.c). */
typedef struct linear_residual {
  const attn_pattern *pattern; /* of the head; NULL: it selects its keys */
  const void *head;            /* the engine's state */
  attn_call call;              /* that it has executed: outputs, log-sum-exp, and what was prepared */
  int64_t max_runs;            /* of a row of the head */
  size_t picker_bytes;
  double gain;     /* ln */
  double rounding; /* of the sums, relative to those of magnitudes */
  bool norms;      /* features may be negative: magnitudes are bounded by norms */
} linear_residual;

/* One thread's workspace for it, of a chunk of queries. */
typedef struct linear_residual_room {
  attn_run *runs;  /* [CHUNK][max_runs] keys of the head that are still in the sums */
  int64_t *counts; /* [CHUNK] of runs */
  int64_t *next;   /* [CHUNK] the first of these keys */
  int64_t *exact;  /* [CHUNK] keys that the head has */
  int64_t *seen;   /* [CHUNK] keys that the query sees */
  int64_t *left;   /* [CHUNK] of those, keys of the query's chunk that the head does not have */
  double *scale_q;
  double *reference, *size; /* [CHUNK] of the sums; sums of magnitudes */
  double *norms;            /* [CHUNK] of the features of the own chunk */
  void *numerators;         /* [CHUNK] rows of d_v */
  void *fk;                 /* [CHUNK] rows of features */
  void *weights, *mask;     /* [CHUNK] of keys; of those of one query */
  linear_slot slots[SLOTS + 1];
  int64_t own; /* the tag of the queries' own chunk, which stays */
  attn_picker picker;
} linear_residual_room;

/* One thread's workspace. */
typedef struct linear_worker {
  void *fq, *fk;            /* [CHUNK] rows of features */
  void *fk_transposed;      /* [columns] rows of CHUNK, causal */
  double *scale_k;          /* [CHUNK], of keys: that of a query cancels */
  void *weights, *eps_term; /* [CHUNK]; of keys, and of queries: eps sum_r (f_r + eps) */
  void *scores;             /* [CHUNK] rows of CHUNK, causal */
  void *values;             /* [CHUNK] rows of d_v */
  void *rows, *outputs;     /* of tensors stored in another type: [CHUNK] rows of any, [CHUNK] of d_v */
  double *sums;             /* [CHUNK] denominators */
  linear_state total, part, before;
  linear_residual_room residual;
} linear_worker;

size_t linear_state_bytes(const linear_shape *);
linear_state linear_state_at(const linear_shape *, void *block);
void linear_clear(const linear_shape *, linear_state);
void linear_copy(const linear_shape *, linear_state from, linear_state to);
/* The sums of a state times this factor, and its reference. */
void linear_refer(const linear_shape *, linear_state, double reference, double factor);
/* sum <- of_a a + of_b b, all but reference and keys; sum may be a */
void linear_combine(const linear_shape *, double of_a, linear_state a, double of_b, linear_state b,
                    linear_state sum);
/* sum <- a + b; sum may be a */
void linear_merge(const linear_shape *, linear_state a, linear_state b, linear_state sum);
/* Adds `rows` keys, mapped into w->fk and w->scale_k, and their values. Overwrites w->values. */
void linear_add_keys(const linear_shape *, linear_worker *, const void *v, int64_t rows, linear_state);

/* e^(from - to): 1 where both are still -inf, nothing having been added; at least the smallest normal number
 * of the dtype unless fp64 has 0, so that it does not turn Inf into 0 * Inf. */
double linear_rescale(const linear_shape *, double from, double to);
/* The larger of max and c; a NaN is passed over, its weight makes the sum NaN. */
static inline double linear_raise(double max, double c) { return c > max ? c : max; }

/* The variant's map under watch: what it leaves unwritten, and what it writes elsewhere. */
void linear_map_watched(const linear_shape *, const attn_feature_rows *, void *f, double *scale);

/* Maps rows of a head into w->fq, or w->fk and w->scale_k. With eps > 0 queries are f + eps, and
 * w->eps_term is set. */
void linear_map(const linear_shape *, linear_worker *, const attn_feature_rows *);
/* Rows of numerators: those of the output, or a residual's own. */
typedef struct linear_rows {
  void *at;
  int64_t row;
} linear_rows;
/* Numerators and w->sums, the denominators, <- mapped queries against a state. */
void linear_read(const linear_shape *, linear_worker *, int64_t rows, linear_state, linear_rows);
/* Both += what eps on the keys' side adds for the keys of a state. */
void linear_read_eps(const linear_shape *, linear_worker *, int64_t rows, linear_state, linear_rows);
/* Row i <- row i / w->sums */
void linear_divide(const linear_shape *, const linear_worker *, int64_t rows, linear_rows);

/* One head's tensors; head counts keys' heads. */
typedef struct linear_head {
  int64_t batch, head, keys;
  const void *k, *v;
} linear_head;

/* Queries first ... first + count - 1 of a query head, and their outputs. */
typedef struct linear_queries {
  const attn_call *call;
  const linear_head *h;
  int64_t head, first, count;
  const void *q;
  void *o;
} linear_queries;
/* Where their numerators are written, and what becomes of those at last. */
linear_rows linear_numerators(const linear_shape *, const linear_worker *, const linear_queries *);
void linear_finish(const linear_shape *, linear_worker *, const linear_queries *);

static inline double *linear_peak(const linear_shape *s, const linear_head *h, int64_t chunk) {
  return s->peaks + (h->batch * s->p->kv_heads + h->head) * attn_ceil_div(s->p->n_kv, CHUNK) + chunk;
}

/* Sums the keys of a segment into part, from zero. */
void linear_sum_segment(const linear_shape *, linear_worker *, const linear_head *, int64_t segment,
                        linear_state part);
/* The same into w->part, with the outputs of the queries at its positions; w->total: the state before it. */
void linear_causal_segment(const linear_shape *, linear_worker *, const attn_call *, const linear_head *,
                           int64_t segment);

/* A thread's workspace; one head; segments of keys, by the chain that takes them, and how many of a head are
 * summed beforehand. */
linear_worker linear_carve(const linear_shape *, attn_carver *);
linear_head linear_head_at(const linear_shape *, const attn_call *, int64_t index);
int64_t linear_chain_first(const linear_shape *, int64_t chain);
int64_t linear_summed(const linear_shape *);
/* Of a head: the total before each segment that is summed beforehand, and of all of them. */
size_t linear_states_bytes(const linear_shape *);
linear_state linear_state_before(const linear_shape *, int64_t head, int64_t segment);
/* Sums them, by the threads that call it. */
void linear_sum_before(const linear_shape *, linear_worker *, const attn_call *);

/* The engine for a map, its workspace, and an execution in it. */
linear_shape linear_shape_make(const attn_context *, const attn_feature_map *);
size_t linear_work_size(const linear_shape *);
/* EUNSUPPORTED: a call with positions of keys. */
attn_status linear_check(const attn_call *);
void linear_execute(const linear_shape *, const attn_call *, void *work);

/* -- joined with a head (residual_rows.c) -- */

void linear_residual_carve(const linear_shape *, attn_carver *, linear_residual_room *);
/* The keys that the head has of these queries. */
void linear_residual_find(const linear_shape *, linear_worker *, const linear_queries *);
/* Takes those before key `end` out of numerators and w->sums, which were read from a state. */
void linear_residual_subtract(const linear_shape *, linear_worker *, const linear_queries *, int64_t end,
                              const linear_state *);
/* Room for the features of the queries' own chunk of keys, transposed; w->fk has them. */
void *linear_residual_keep(const linear_shape *, linear_worker *, const linear_head *, int64_t chunk,
                           int64_t keys);
/* Of query i and keys first ... first + seen - 1, the last that it sees: w->weights, or 0 of those that the
 * head has; NULL: it has all of them. */
const void *linear_residual_weights(const linear_shape *, linear_worker *, int64_t i, int64_t first,
                                    int64_t seen);
/* What query i has is multiplied by `factor`, and refers to `reference`, after these keys were added. */
void linear_residual_rescale(const linear_shape *, linear_worker *, int64_t i, int64_t seen, double factor,
                             double added, double reference);
/* Joins sums with the outputs of the head. */
void linear_residual_join(const linear_shape *, linear_worker *, const linear_queries *);

/* -- the backward pass (linear_back.c) -- */

/* Of a query: its denominator and the gradient by it, its reference M, and the gradient by M, less its sign:
 * 0 unless eps > 0. */
typedef struct linear_back_row {
  double z, dz, reference, pull;
} linear_back_row;

typedef struct linear_back {
  const linear_shape *s;
  const attn_call *call;
  const attn_gradients *of;
  linear_back_row *rows; /* [batch][heads][n_q] */
  void *suffixes;        /* states of queries, see linear_back.c */
  linear_worker w;
  void *g, *dz;        /* [CHUNK] rows of d_v, the gradients by numerators; [CHUNK] */
  void *value_columns; /* [d_v] rows of CHUNK, causal */
  void *state_columns; /* [d_v] rows of features, of a state */
  void *df;            /* [CHUNK] rows of features */
  double *sums;        /* [CHUNK] of pairs */
  double *dscale;      /* [CHUNK] of keys */
  void *scratch;       /* attn_feature_gradients.scratch */
} linear_back;

/* Keys key ... key + keys - 1, of which the first query sees before + 1, and queries query ... query +
 * queries - 1 of each head that shares them. M of the keys before, and with these. */
typedef struct linear_block {
  const linear_head *h;
  int64_t key, keys, query, queries, before;
  double reference, peak;
} linear_block;

/* The queries of a block against the state of the keys before it and the block's own, which become mapped:
 * dq, what they add to dv within the block, and what is kept of the rows. to: a state of queries to which
 * they are added, of their reference, or NULL. */
void linear_back_queries(linear_back *, const linear_block *, linear_state before, const linear_state *to);
/* Adds the queries of a block to a state of queries, which gets the block's reference, and what they give its
 * keys, if there are any, to their df. */
void linear_back_sum(linear_back *, const linear_block *, linear_state);
/* dk of the block's keys, from the state of the queries after the block and its own queries, which are added
 * to part. Adds to dv what that state gives. */
void linear_back_keys(linear_back *, const linear_block *, linear_state after, linear_state part);

/* attn_method.backward_size and .backward */
attn_status linear_back_size(const void *state, const attn_context *, const attn_parts *, size_t *bytes);
attn_status linear_backward(const void *state, const attn_call *, const attn_gradients *);

#endif

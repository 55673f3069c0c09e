/* support_row.h - rows of attention in fp64 on their support, and the rounding bound FP-1/FP-2 of a computed
 * row. */
#ifndef EXPERIMENTS_EVIDENCE_SUPPORT_ROW_H
#define EXPERIMENTS_EVIDENCE_SUPPORT_ROW_H

#include "attn_variant.h"
#include "experiments/evidence/head.h"
#include "experiments/reference/seen.h"

/* Index of element (batch, head, i, 0) in a contiguous [batch, heads, n, d] tensor of queries or outputs. */
int64_t row_offset(const attn_problem *, const sample_row *, int64_t d);
/* d elements from an offset, widened. */
void row_widen(const void *at, attn_dtype, int64_t offset, int64_t d, double *out);

/* Room for one row: one thread's. */
typedef struct row_space {
  region memory;                 /* of all that follows */
  double *q, *o, *bound, *given; /* [d_qk], [d_v] exact on the support, [d_v], [d_v] the run's */
  double *kept, *left, *center;  /* [d_v], [d_v], [d_qk] for the caller */
  double *score, *size;          /* [n_kv], by place in the support; sums |c| sum |q_l k_jl| */
  double *units, *map;           /* [n_kv], by place: what the transform of a score costs (transform.h) */
  double *log_weight;            /* [n_kv], by place: what a selection adds to the score */
  double *weight, *slack;        /* [n_kv], by place in the support */
  double sink, sink_slack;       /* weight and error of the row's sink, a key of value 0; 0 without one */
  int64_t *index;                /* [n_kv] keys of the support, ascending within runs */
  bool *inside;                  /* [n_kv] is the key in the support? */
  attn_run *runs;
  int64_t i, count; /* the row, and the keys of its support */
} row_space;

attn_status row_space_make(const attn_problem *, const attn_pattern *, row_space *);
void row_space_free(row_space *);

/* Keys that the row sees under the pattern (NULL: all), causality and padding included: visible.h. */
void row_support(const head_data *, const attn_pattern *, int64_t i, row_space *);
/* Those of a recorded row, with their log-weights: the head's batch entry and head name it. */
void row_see(const head_data *, const seen_keys *, int64_t i, row_space *);

typedef enum {
  ROW_OK,
  ROW_INFINITE,
  ROW_OVERFLOW,
  ROW_CHAIN,
  ROW_LOOSE,
  ROW_CANCELLED,
  ROW_REFUSED
} row_verdict;
const char *row_reason(row_verdict); /* why a bound could not be certified */

/* Do scores, also in units of log 2 (1.4427 times as large) and before scaling, and sums of `count` weighted
 * values fit the type? */
bool row_fits(const head_data *, double size, double bias, int64_t count);

/* With space->q and the support set: fills score, size, weight and o (exact softmax on the support). top: the
 * greatest score; moved: a vector added to every key, or NULL. */
typedef struct row_extremes {
  double top;  /* greatest score */
  double size; /* greatest sum |q_l k_jl|, unscaled */
  double
      bias; /* greatest magnitude that the problem and the selection add to a score, or of the row's sink */
} row_extremes;
row_verdict row_attend(const head_data *, const double *moved, row_space *, row_extremes *);

/* After row_attend: e_j of FP-1 into slack, how far the computed score of each key of the support may be
 * off. */
row_verdict row_score_errors(const head_data *, const attn_rounding *, row_space *);

/* After row_attend: fills bound [d_v], such that a computation that rounds as described satisfies |o^_l -
 * o_l| <= bound_l (FP-1; FP-2 if rounding->block > 0). ordered: the support is visited in ascending blocks.
 * lambda > 0: the same by the probabilistic model of FP-5 (Higham & Mary 2019): a chain of k roundings grows
 * by at most e^(lambda sqrt(k) u + k u^2 / (1 - u)) - 1 where that is below gamma_k. The bound includes the
 * fp64 error of the reference itself. */
row_verdict row_error(const head_data *, const attn_rounding *, bool ordered, const double *moved,
                      double lambda, const row_extremes *, row_space *, double *bound);

/* After row_attend: the logarithm of the sum of e^score over the support, -Inf where that is empty, and by
 * how much that of a computation that rounds as described may differ: the errors h_j of the log weights, the
 * sum's chain, and some roundings of the logarithm, which is taken in fp64. */
row_verdict row_log_sum(const head_data *, const attn_rounding *, const row_extremes *, row_space *,
                        double *sum, double *bound);

/* Both, into space->bound. */
row_verdict row_bound(const head_data *, const attn_rounding *, bool ordered, const double *moved,
                      row_space *);

/* FP-3: the same a priori, one number per component, for rows of query norm |q| over all keys, with biases
 * and a sink of at most this magnitude (transform_most). */
typedef struct prior {
  double spread; /* H/2's tanh: multiplies the range of the values */
  double growth; /* G: multiplies the greatest magnitude */
  double floor;  /* what underflow may lose */
} prior;
row_verdict row_apriori_bound(const head_data *, const attn_rounding *, double q_norm, double bias,
                              int64_t count, prior *);
/* The range of component l of the values, 0 of a sink among them. */
double row_range(const head_data *, int64_t l);

/* How the fp64 reference rounds: its sums are sequential. */
attn_rounding row_reference_rounding(const attn_problem *, int64_t count);

/* Roundings that a weighted sum and its division put on a term. */
int64_t row_chain(const attn_rounding *);

/* gamma_k = k u / (1 - k u); infinite if k u >= 1. */
double gamma_of(int64_t k, double unit);

#endif

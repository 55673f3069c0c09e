/* defined.h - the output of a variant that describes a low rank, straight from what it describes, in fp64. */
#ifndef EXPERIMENTS_CHECKS_LOWRANK_DEFINED_H
#define EXPERIMENTS_CHECKS_LOWRANK_DEFINED_H

#include "attn_variant.h"
#include "experiments/support/region.h"

/* One head in fp64, contiguous: what exists. */
typedef struct low_rank_head {
  int64_t n_q, keys, d_qk, d_v;
  double scale;
  const double *q, *k, *v;
  const bool *seen;            /* [n_q, keys]: which keys a query sees */
  const attn_context *context; /* for what picks rows */
} low_rank_head;

/* o [n_q, d_v], and how far rounding to `unit` is amplified in each row: errors are of the order of unit *
 * amplified[i] times the values; infinite where the row is not defined. */
attn_status low_rank_output(const attn_low_rank *, const low_rank_head *, double unit, double *o,
                            double *amplified);

/* softmax over the columns of scale x y^T into w [rows, columns]; x, y of d components. */
void low_rank_softmax(double scale, const double *x, int64_t rows, const double *y, int64_t columns,
                      int64_t d, double *w);
/* The landmarks of a side, [landmarks, d], of x [n, d]. */
void low_rank_landmarks(const attn_low_rank *, attn_side, const double *x, int64_t n, int64_t d,
                        int64_t landmarks, double *to);
/* |A|_1 |A|_inf, of A [n, n] */
double low_rank_norms(const double *a, int64_t n);

#endif

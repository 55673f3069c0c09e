/* drawn_projection.h - matrices of random projections against the law of their entries: what is exact, and
 * p-values of what is drawn. The laws are stated here apart from the code that draws. */
#ifndef EXPERIMENTS_MATHEMATICS_DRAWN_PROJECTION_H
#define EXPERIMENTS_MATHEMATICS_DRAWN_PROJECTION_H

#include "attn_variant.h"
#include "experiments/mathematics/statistics.h"

/* E, k rows by n columns: of a transform, entries are sign_j T_(place_s, j) / sqrt(k), T of order N with
 * entries of mean square 1. Rows of the Walsh-Hadamard transform are known up to a common one, and so are the
 * signs: place 0 is 0. */
typedef struct drawn_matrix {
  int64_t k, n;
  double *e;      /* [k, n] times sqrt(k) */
  int64_t *place; /* [k] transforms */
  double *sign;   /* [n] transforms */
} drawn_matrix;

/* The order of the law's transform for n columns; 0: none. */
int64_t drawn_order(attn_projection_law, int64_t n);

/* Fills place and sign, and returns the greatest deviation of an entry (times sqrt(k)) from what the law
 * makes exact: its magnitude (rademacher), all of it but the draws (transforms; 2 for a row that is there
 * twice), nothing (gaussian). For dct n is odd. */
double drawn_deviation(attn_projection_law, drawn_matrix *);

/* Distribution, slots, and columns at every distance of one matrix. */
void drawn_alone(attn_projection_law, const drawn_matrix *, surprise *);
/* Two independent matrices of one shape. all: at every shift of their columns. */
void drawn_apart(attn_projection_law, const drawn_matrix *, const drawn_matrix *, bool all, surprise *);
/* Several independent matrices of one shape: mean and size; where rows of transforms lie, and in which
 * order. */
void drawn_together(attn_projection_law, const drawn_matrix *, int64_t count, surprise *);

/* e[k, n]: a draw of the law; k at most its order. ENOMEM leaves NaNs. */
void drawn_sample(attn_projection_law, int64_t k, int64_t n, attn_rng *, double *e);

#endif

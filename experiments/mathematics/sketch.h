/* sketch.h - the product of weights and values under a random projection: A E^T F B in place of A B. */
#ifndef EXPERIMENTS_MATHEMATICS_SKETCH_H
#define EXPERIMENTS_MATHEMATICS_SKETCH_H

#include "attn_variant.h"

enum { SKETCH_ROWS = 64 };

/* A: up to SKETCH_ROWS rows of weights; B = V. */
typedef struct sketch {
  attn_projection_law law;
  bool shared;                         /* F = E */
  int64_t rows, n, keys, d_v;          /* n columns of A, of which keys exist */
  const double *a[SKETCH_ROWS];        /* of n weights each */
  const double *v;                     /* [n, d_v] */
  double *product;                     /* [rows, d_v] A B */
  double a_norm, v_norm, product_norm; /* |A|^2 |B|^2 |AB|^2 */
  double cross, middle;                /* X, and its part where i = n-1-i */
  double mirrored, reflected;          /* sum_i A_:i.A_:m B_i:.B_m: and sum_i A2_i B2_m, m = n-1-i */
  double a_gain, v_gain;               /* sum_i A2_i g_i and sum_i B2_i g_i */
} sketch;

/* Why a projection (may be NULL) has no known random law, or NULL. */
const char *sketch_missing(const attn_projection *);

/* Fills the sums, all below `product`. ENOMEM. */
attn_status sketch_measure(sketch *);
void sketch_free(sketch *);

/* Mean of |A E^T F B - A B|^2 over projections of k rows. */
double sketch_mean(const sketch *, double k);

#endif

/* differentiable.h - the operations of a small model in fp64, each with its derivative. Rows are positions of
 * all sequences of a batch. All sums run in a fixed order; one thread. */
#ifndef EXPERIMENTS_TRAINING_DIFFERENTIABLE_H
#define EXPERIMENTS_TRAINING_DIFFERENTIABLE_H

#include "attn_variant.h"

/* What products are computed with: fp64 kernels and attn_gemm_scratch bytes, 64-byte aligned. */
typedef struct products {
  const attn_kernels *kernels;
  void *scratch;
} products;

/* y[rows, out] (+)= x[rows, in] W^T, W [out, in] */
void linear_forward(const products *, int64_t rows, int64_t in, int64_t out, const double *x, const double *w,
                    bool accumulate, double *y);
/* dx (+)= dy W, dW += dy^T x */
void linear_backward(const products *, int64_t rows, int64_t in, int64_t out, const double *x,
                     const double *w, const double *dy, bool accumulate, double *dx, double *dw);

/* y = gain x / sqrt(mean(x^2) + 1e-6), row by row (Zhang and Sennrich 2019, arXiv:1910.07467) */
void rms_forward(int64_t rows, int64_t d, const double *x, const double *gain, double *y);
/* dx += , dgain += */
void rms_backward(int64_t rows, int64_t d, const double *x, const double *gain, const double *dy, double *dx,
                  double *dgain);

/* y[rows, d] = silu(x[., 0 .. d)) x[., d .. 2d), silu(t) = t / (1 + exp(-t)) (Shazeer 2020,
 * arXiv:2002.05202) */
void swiglu_forward(int64_t rows, int64_t d, const double *x, double *y);
void swiglu_backward(int64_t rows, int64_t d, const double *x, const double *dy, double *dx); /* dx = */

typedef struct scored {
  double loss; /* sum over the scored rows of -log softmax(logits)[target], nats */
  int64_t rows, right;
} scored;

/* Rows of a negative target are not scored. right: rows whose largest logit, the first of equal ones, is the
 * target's. */
scored cross_entropy(int64_t rows, int64_t classes, const double *logits, const int32_t *targets);
/* logits <- d(loss / scored rows) / d logits */
void cross_entropy_backward(int64_t rows, int64_t classes, int64_t scored_rows, const int32_t *targets,
                            double *logits);

#endif

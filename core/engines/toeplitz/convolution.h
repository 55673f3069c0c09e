/* convolution.h - products with a circulant matrix by FFTW (Frigo and Johnson 2005), in fp64. */
#ifndef ATTN_CORE_ENGINES_TOEPLITZ_CONVOLUTION_H
#define ATTN_CORE_ENGINES_TOEPLITZ_CONVOLUTION_H

#include "core/internal.h"

typedef struct attn_convolution attn_convolution;

/* The least 2^a 3^b 5^c from n up. */
int64_t attn_convolution_length(int64_t n);
/* Of that length, at most INT32_MAX. */
attn_status attn_convolution_create(int64_t length, attn_convolution **);
void attn_convolution_destroy(void *);
/* spectrum [length / 2 + 1] of pairs <- the transform of x [length]; both 64-byte aligned. */
void attn_convolution_transform(const attn_convolution *, double *x, double *spectrum);
/* x [length] <- the sum over j of t_(i - j mod length) x_j, times length. of_t: the spectrum of t; room: one
 * more. */
void attn_convolve(const attn_convolution *, const double *of_t, double *room, double *x);

#endif

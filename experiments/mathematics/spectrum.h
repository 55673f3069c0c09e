/* spectrum.h - eigenvalues of symmetric matrices; singular values of a few long rows, through the eigenvalues
 * of their Gram matrix. */
#ifndef EXPERIMENTS_MATHEMATICS_SPECTRUM_H
#define EXPERIMENTS_MATHEMATICS_SPECTRUM_H

#include <gsl/gsl_matrix.h>

#include "attn.h"

/* Brings the largest element of a matrix next to 1, by a power of two, and returns that: GSL's iteration need
 * not end where elements are subnormal. */
double spectrum_scale(gsl_matrix *);
/* Eigenvalues, descending, of a symmetric matrix, which is overwritten. EFOREIGN: they did not converge. */
attn_status spectrum_symmetric(gsl_matrix *, double *values);

/* Squared singular values, descending, of the matrix of `count` rows of n elements; each within
 * spectrum_error() of the true one, so small ones may come out as zero. Cost count^2 n / 2 + count^3.
 * ENUMERIC if the rows are not finite. */
attn_status spectrum_squares(const double *const rows[], int64_t count, int64_t n, double *squares);

/* An upper bound of the largest singular value of W [rows, columns]: (tr (W^T W)^32)^(1/64), at most
 * columns^(1/64) times the truth, and its sum of squares. Needs no convergence, and its roundings, of columns
 * terms each, are a share of 1e-9 that is added. ENUMERIC: not finite. */
attn_status spectrum_norm(const float *w, int64_t rows, int64_t columns, double *norm, double *frobenius);

/* Bound on the error of one squared singular value; frobenius: sum of squares of all elements. */
double spectrum_error(int64_t count, int64_t n, double frobenius);

#endif

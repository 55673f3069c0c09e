/* spectrum.h - eigenvalues of symmetric matrices; singular values of a few long rows, through the eigenvalues
 * of their Gram matrix. */
#ifndef EXPERIMENTS_MATHEMATICS_SPECTRUM_H
#define EXPERIMENTS_MATHEMATICS_SPECTRUM_H

#include <gsl/gsl_matrix.h>

#include "attn.h"

/* Eigenvalues, descending, of a symmetric matrix, which is overwritten. EFOREIGN: they did not converge. */
attn_status spectrum_symmetric(gsl_matrix *, double *values);

/* Squared singular values, descending, of the matrix of `count` rows of n elements; each within
 * spectrum_error() of the true one, so small ones may come out as zero. Cost count^2 n / 2 + count^3.
 * ENUMERIC if the rows are not finite. */
attn_status spectrum_squares(const double *const rows[], int64_t count, int64_t n, double *squares);

/* Bound on the error of one squared singular value; frobenius: sum of squares of all elements. */
double spectrum_error(int64_t count, int64_t n, double frobenius);

#endif

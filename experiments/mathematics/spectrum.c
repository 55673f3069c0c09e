/* spectrum.c - eigenvalues of G = P P^T by GSL's symmetric QR.
 *
 * Error: each entry of G is off by at most gamma_n |p_i||p_j|, hence G by gamma_n |P|_F^2 in norm; the solver
 * is backward stable, off by a modest multiple of count u |G|, taken as 10 count u |P|_F^2; Weyl's inequality
 * carries both over to every eigenvalue. */
#include "experiments/mathematics/spectrum.h"

#include <float.h>
#include <gsl/gsl_eigen.h>
#include <gsl/gsl_sort_vector.h>
#include <math.h>

double spectrum_error(int64_t count, int64_t n, double frobenius) {
  return ((double)n + 10 * (double)count) * DBL_EPSILON * frobenius;
}

static double dot(const double *a, const double *b, int64_t n) {
  double part[4] = {0};
  int64_t j = 0;
  for (; j + 4 <= n; j += 4)
    for (int t = 0; t < 4; t++) part[t] += a[j + t] * b[j + t];
  for (; j < n; j++) part[0] += a[j] * b[j];
  return (part[0] + part[1]) + (part[2] + part[3]);
}

attn_status spectrum_squares(const double *const rows[], int64_t count, int64_t n, double *squares) {
  if (count == 0) return ATTN_OK;
  gsl_matrix *gram = gsl_matrix_alloc((size_t)count, (size_t)count);
  gsl_vector *values = gsl_vector_alloc((size_t)count);
  gsl_eigen_symm_workspace *work = gsl_eigen_symm_alloc((size_t)count);
  attn_status status = ATTN_OK;
  if (!gram || !values || !work) {
    status = attn_fail(ATTN_ENOMEM, "no memory for a spectrum of %lld rows", (long long)count);
    goto out;
  }
#pragma omp parallel for schedule(dynamic, 4)
  for (int64_t a = 0; a < count; a++)
    for (int64_t b = 0; b <= a; b++) {
      double g = dot(rows[a], rows[b], n);
      gsl_matrix_set(gram, (size_t)a, (size_t)b, g);
      gsl_matrix_set(gram, (size_t)b, (size_t)a, g);
    }
  double trace = 0;
  for (int64_t a = 0; a < count; a++) trace += gsl_matrix_get(gram, (size_t)a, (size_t)a);
  if (!isfinite(trace)) { /* the solver would not end */
    status = attn_fail(ATTN_ENUMERIC, "singular values of a matrix that is not finite");
    goto out;
  }
  if (gsl_eigen_symm(gram, values, work)) {
    status = attn_fail(ATTN_EFOREIGN, "the eigenvalues of a Gram matrix did not converge");
    goto out;
  }
  gsl_sort_vector(values);
  for (int64_t r = 0; r < count; r++) {
    double value = gsl_vector_get(values, (size_t)(count - 1 - r));
    squares[r] = value > 0 ? value : 0;
  }
out:
  gsl_eigen_symm_free(work);
  gsl_vector_free(values);
  gsl_matrix_free(gram);
  return status;
}

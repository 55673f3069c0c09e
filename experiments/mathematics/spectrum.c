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

#include "experiments/mathematics/vector.h"

double spectrum_error(int64_t count, int64_t n, double frobenius) {
  return ((double)n + 10 * (double)count) * DBL_EPSILON * frobenius;
}

attn_status spectrum_symmetric(gsl_matrix *m, double *values) {
  gsl_eigen_symm_workspace *work = gsl_eigen_symm_alloc(m->size1);
  if (!work) return attn_fail(ATTN_ENOMEM, "no memory for %zu eigenvalues", m->size1);
  gsl_vector_view view = gsl_vector_view_array(values, m->size1);
  const int failed = gsl_eigen_symm(m, &view.vector, work);
  gsl_eigen_symm_free(work);
  if (failed)
    return attn_fail(ATTN_EFOREIGN, "the eigenvalues of a %zu x %zu matrix did not converge", m->size1,
                     m->size1);
  gsl_sort_vector(&view.vector);
  gsl_vector_reverse(&view.vector);
  return ATTN_OK;
}

attn_status spectrum_squares(const double *const rows[], int64_t count, int64_t n, double *squares) {
  if (count == 0) return ATTN_OK;
  gsl_matrix *gram = gsl_matrix_alloc((size_t)count, (size_t)count);
  if (!gram) return attn_fail(ATTN_ENOMEM, "no memory for a spectrum of %lld rows", (long long)count);
#pragma omp parallel for schedule(dynamic, 4)
  for (int64_t a = 0; a < count; a++)
    for (int64_t b = 0; b <= a; b++) {
      const double g = vector_dot_fast(rows[a], rows[b], n);
      gsl_matrix_set(gram, (size_t)a, (size_t)b, g);
      gsl_matrix_set(gram, (size_t)b, (size_t)a, g);
    }
  double trace = 0;
  for (int64_t a = 0; a < count; a++) trace += gsl_matrix_get(gram, (size_t)a, (size_t)a);
  /* The solver would not converge. */
  attn_status status = isfinite(trace)
                           ? spectrum_symmetric(gram, squares)
                           : attn_fail(ATTN_ENUMERIC, "singular values of a matrix that is not finite");
  for (int64_t r = 0; !status && r < count; r++) squares[r] = squares[r] > 0 ? squares[r] : 0;
  gsl_matrix_free(gram);
  return status;
}

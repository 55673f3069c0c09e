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
#include <omp.h>
#include <stdlib.h>

#include "attn_variant.h"
#include "experiments/mathematics/vector.h"

double spectrum_error(int64_t count, int64_t n, double frobenius) {
  return ((double)n + 10 * (double)count) * DBL_EPSILON * frobenius;
}

double spectrum_scale(gsl_matrix *m) {
  double least, most;
  gsl_matrix_minmax(m, &least, &most);
  most = fmax(most, -least);
  const double scale = attn_unit_scale(1, &most);
  gsl_matrix_scale(m, scale);
  return scale;
}

attn_status spectrum_symmetric(gsl_matrix *m, double *values) {
  const double scale = spectrum_scale(m);
  gsl_eigen_symm_workspace *work = gsl_eigen_symm_alloc(m->size1);
  if (!work) return attn_fail(ATTN_ENOMEM, "no memory for %zu eigenvalues", m->size1);
  gsl_vector_view view = gsl_vector_view_array(values, m->size1);
  const int failed = gsl_eigen_symm(m, &view.vector, work);
  gsl_eigen_symm_free(work);
  if (failed)
    return attn_fail(ATTN_EFOREIGN, "the eigenvalues of a %zu x %zu matrix did not converge", m->size1,
                     m->size1);
  gsl_vector_scale(&view.vector, 1 / scale);
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

/* What the products of a norm are computed with. */
typedef struct products {
  attn_plan *plan;
  const attn_kernels *kernels;
  size_t scratch_bytes;
  char *scratch; /* of each thread */
  int threads;
} products;

static attn_status products_begin(products *p) {
  attn_problem problem = attn_problem_make(1, 1, 1, 1);
  problem.dtype = ATTN_F64;
  *p = (products){.threads = omp_get_max_threads()};
  attn_status status = attn_plan_create(&p->plan, &problem, "tiled", NULL);
  if (status) return status;
  p->kernels = attn_plan_context(p->plan)->kernels;
  p->scratch_bytes = (attn_gemm_scratch(p->kernels) + 63) / 64 * 64;
  p->scratch = aligned_alloc(64, (size_t)p->threads * p->scratch_bytes + 64);
  return p->scratch ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for products");
}

static void products_end(products *p) {
  attn_plan_destroy(p->plan);
  free(p->scratch);
}

/* to = from from^T / trace, of which *trace is the trace: rows of `columns` elements. */
static void multiply_rows(const products *p, const double *from, int64_t count, int64_t columns, double *to,
                          double *trace) {
  enum { SLICE = 128 };
#pragma omp parallel for num_threads(p->threads) schedule(dynamic)
  for (int64_t a = 0; a < count; a += SLICE)
    attn_gemm(p->kernels, count - a < SLICE ? count - a : SLICE, count, columns,
              (attn_matrix){from + a * columns, columns, 1}, (attn_matrix){from, 1, columns}, false,
              to + a * count, count, p->scratch + (size_t)omp_get_thread_num() * p->scratch_bytes);
  *trace = 0;
  for (int64_t a = 0; a < count; a++) *trace += to[a * count + a];
  for (int64_t a = 0; a < count * count; a++) to[a] /= *trace;
}

attn_status spectrum_norm(const float *w, int64_t rows, int64_t columns, double *norm, double *frobenius) {
  enum { SQUARINGS = 5 };
  double *columns_of = malloc((size_t)(rows * columns) * sizeof *columns_of),
         *power = malloc((size_t)(columns * columns) * sizeof *power),
         *next = malloc((size_t)(columns * columns) * sizeof *next), trace = 0, logarithm = 0;
  products p;
  attn_status status = products_begin(&p);
  if (!status && !(columns_of && power && next)) status = attn_fail(ATTN_ENOMEM, "no memory for a norm");
  if (!status) {
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j++) columns_of[j * rows + i] = (double)w[i * columns + j];
    multiply_rows(&p, columns_of, columns, rows, power, &trace);
    *frobenius = sqrt(trace);
    /* G^(2^k) = T_k A_k with tr A_k = 1: log T_k+1 = 2 log T_k + log tr A_k^2. */
    logarithm = log(trace);
    for (int k = 0; k < SQUARINGS; k++) {
      multiply_rows(&p, power, columns, columns, next, &trace);
      logarithm = 2 * logarithm + log(trace);
      double *swap = power;
      power = next;
      next = swap;
    }
    *norm = exp(logarithm / (2 << SQUARINGS)) * (1 + 1e-9);
    if (*frobenius == 0) *norm = 0;
    if (!isfinite(*norm)) status = attn_fail(ATTN_ENUMERIC, "the norm of a matrix that is not finite");
  }
  products_end(&p);
  free(columns_of);
  free(power);
  free(next);
  return status;
}

/* picked_kernel.c - see picked_kernel.h. G_SS^-1 by GSL's Cholesky factors of the picked points alone, point
 * by point; none of it is the engine's code. */
#include "experiments/checks/lowrank/picked_kernel.h"

#include <gsl/gsl_linalg.h>
#include <math.h>

#include "experiments/checks/lowrank/picked.h"
#include "experiments/mathematics/vector.h"

double picked_kernel_exponent(const picked_kernel *x, const low_rank_head *h, int64_t i, int64_t j) {
  return -h->scale * pow(vector_distance(x->x + i * h->d_qk, x->x + j * h->d_qk, h->d_qk), 2) / 2;
}

static void place(const attn_low_rank *law, const low_rank_head *h, picked_kernel *x) {
  const bool keys = law->picked == ATTN_PICKED_KEYS;
  const int64_t d = h->d_qk;
  for (int64_t l = 0; l < d; l++) {
    double mean = 0;
    for (int64_t j = 0; j < h->keys && keys; j++) mean += h->k[j * d + l] / (double)h->keys;
    for (int64_t i = 0; i < x->n; i++) {
      x->x[i * d + l] = i < h->n_q ? h->q[i * d + l] : h->k[(i - h->n_q) * d + l] - mean;
      if (keys) x->x[i * d + l] *= i < h->n_q ? law->temperature : 1 / law->temperature;
    }
  }
  for (int64_t i = 0; i < x->n; i++) {
    x->square[i] = x->raise[i] = 0;
    for (int64_t l = 0; l < d; l++) x->square[i] += h->scale * pow(x->x[i * d + l], 2) / 2;
  }
}

/* Which of the picked points stay: what those that stay leave of one is 1 - |L^-1 g|^2. */
static void leave_out(const attn_low_rank *law, const low_rank_head *h, const int64_t *picked, int64_t count,
                      double *lower, picked_kernel *x) {
  for (int64_t s = 0; s < count; s++) {
    const int64_t at = picked[s] + (law->picked == ATTN_PICKED_KEYS ? h->n_q : 0);
    double *row = lower + x->m * count, rest = 1;
    for (int64_t a = 0; a < x->m; a++) {
      row[a] = exp(picked_kernel_exponent(x, h, at, x->rows[a]));
      for (int64_t b = 0; b < a; b++) row[a] -= row[b] * lower[a * count + b];
      row[a] /= lower[a * count + a];
      rest -= row[a] * row[a];
    }
    x->decided = x->decided && fabs(rest - law->rcond) > law->rcond / 2 + 0x1p-48 * (double)count;
    if (!(rest > law->rcond)) continue;
    row[x->m] = sqrt(rest);
    x->rows[x->m++] = at;
  }
}

static attn_status solve(const low_rank_head *h, picked_kernel *x) {
  const size_t m = (size_t)x->m;
  gsl_matrix *a = gsl_matrix_alloc(m, m);
  gsl_vector *work = gsl_vector_alloc(3 * m);
  attn_status status = a && work ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a kernel");
  double reciprocal = 0;
  for (size_t i = 0; i < m * m && !status; i++)
    a->data[i] = exp(picked_kernel_exponent(x, h, x->rows[i / m], x->rows[i % m]));
  if (!status && (gsl_linalg_cholesky_decomp1(a) || gsl_linalg_cholesky_rcond(a, &reciprocal, work)))
    reciprocal = 0;
  x->condition = 1 / reciprocal;
  for (int64_t i = 0; i < x->n && !status; i++) {
    double *g = x->g + i * x->m, *w = x->w + i * x->m, far = -(double)INFINITY, sum = 0;
    for (int64_t s = 0; s < x->m; s++) far = fmax(far, g[s] = picked_kernel_exponent(x, h, i, x->rows[s]));
    if (x->raise[i] > 0) x->raise[i] = -far;
    for (int64_t s = 0; s < x->m; s++) w[s] = g[s] = exp(g[s] + x->raise[i]);
    gsl_vector_view to = gsl_vector_view_array(w, m);
    if (reciprocal > 0) gsl_linalg_cholesky_svx(a, &to.vector);
    for (int64_t s = 0; s < x->m; s++) sum += g[s] * w[s];
    x->rest[i] = fmax(0, 1 - sum * exp(-2 * x->raise[i]));
  }
  gsl_matrix_free(a);
  gsl_vector_free(work);
  return status;
}

attn_status picked_kernel_make(region *memory, const attn_low_rank *law, const low_rank_head *h,
                               picked_kernel *out) {
  const int64_t n = h->n_q + h->keys;
  int64_t *picked = NULL, count = 0;
  attn_status status = picked_rows(memory, law, h, &picked, &count);
  if (status) return status;
  double *lower = region_take(memory, count * count, sizeof *lower);
  *out = (picked_kernel){.n = n,
                         .decided = true,
                         .rows = region_take(memory, count, sizeof *out->rows),
                         .x = region_take(memory, n * h->d_qk, sizeof *out->x),
                         .square = region_take(memory, n, sizeof *out->square),
                         .raise = region_take(memory, n, sizeof *out->raise),
                         .rest = region_take(memory, n, sizeof *out->rest),
                         .g = region_take(memory, n * count, sizeof *out->g),
                         .w = region_take(memory, n * count, sizeof *out->w)};
  if (region_status(memory, "for a kernel")) return ATTN_ENOMEM;
  place(law, h, out);
  leave_out(law, h, picked, count, lower, out);
  for (int64_t i = 0; i < h->n_q && law->picked == ATTN_PICKED_KEYS; i++) out->raise[i] = 1;
  for (int64_t i = 0; i < n; i++) out->rest[i] = 1;
  return out->m > 0 ? solve(h, out) : ATTN_OK;
}

double picked_kernel_product(const picked_kernel *x, int64_t i, int64_t j) {
  return vector_dot(x->g + i * x->m, x->w + j * x->m, x->m);
}

/* Factors of G_SS are off by roundings of their elements, and solutions by the condition times that: w_ij by
 * |g_i| |w_j| times it, and a quotient by the sum of these over its denominator. Exponentials are off by
 * their exponents, e^-x at most by x e^-x < 1, what is raised by more. The engine's magnitudes are at most m
 * times these: a row that is judged is none that it finds lost. */
attn_status picked_kernel_weights(region *memory, const attn_low_rank *law, const low_rank_head *h,
                                  double unit, double *w, double *amplified) {
  const bool keys = law->picked == ATTN_PICKED_KEYS;
  picked_kernel x;
  const attn_status status = picked_kernel_make(memory, law, h, &x);
  double top = 0, all = 0;
  if (status) return status;
  for (int64_t j = h->n_q; j < x.n && keys; j++) top = fmax(top, x.square[j]);
  for (int64_t j = h->n_q; j < x.n; j++)
    all += vector_norm(x.w + j * x.m, x.m) * (keys ? exp(x.square[j] - top) : 1);
  for (int64_t i = 0; i < h->n_q; i++) {
    double sum = 0, *row = w + i * h->keys;
    for (int64_t j = 0; j < h->keys; j++)
      sum += row[j] = picked_kernel_product(&x, i, h->n_q + j) * (keys ? exp(x.square[h->n_q + j] - top) : 1);
    for (int64_t j = 0; j < h->keys && keys; j++) row[j] /= sum;
    const double off = x.condition * vector_norm(x.g + i * x.m, x.m) * all * (1 + top + x.raise[i]) /
                       (keys ? sum : 1),
                 most = keys ? 0x1p26 / (double)x.m : 0x1p33;
    amplified[i] =
        x.decided && x.m > 0 && off >= 0 && off < most ? 1 + off * 0x1p-53 / unit : (double)INFINITY;
  }
  return ATTN_OK;
}

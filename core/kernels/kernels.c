/* kernels.c - the products, rows and transforms of attn_arithmetic.h by the table of kernels that a plan
 * has. */
#include "core/kernels/kernels.h"

#include "attn_variant.h"

#include <math.h>
#include <string.h>

size_t attn_gemm_packed_bytes(const attn_kernels *kernels, int64_t k, int64_t n) {
  if (!kernels) return 0;
  size_t columns = (size_t)attn_ceil_div(n, kernels->gemm_group) * (size_t)kernels->gemm_group;
  return attn_size_times(attn_size_times(columns, (size_t)k), attn_dtype_size(kernels->dtype));
}

attn_packed attn_gemm_pack(const attn_kernels *kernels, int64_t k, int64_t n, attn_matrix b, void *packed) {
  if (!kernels || !packed || !b.at) return (attn_packed){0};
  kernels->gemm_pack(k, n, b, packed);
  return (attn_packed){packed, k, n};
}

void attn_gemm_packed(const attn_kernels *kernels, int64_t m, int64_t n, int64_t k, attn_matrix a,
                      attn_packed b, bool accumulate, void *c, int64_t c_row, void *scratch) {
  if (!kernels || !c || !scratch || (k && (!a.at || !b.at))) return;
  for (int64_t i = 0; !k && !accumulate && i < m; i++)
    memset(attn_at(c, i * c_row, kernels->dtype), 0, (size_t)n * attn_dtype_size(kernels->dtype));
  kernels->gemm(m, n, k, a, b, accumulate, c, c_row, scratch);
}

/* A block of A, then one of B. */
size_t attn_gemm_scratch(const attn_kernels *kernels) {
  if (!kernels) return 0;
  return kernels->gemm_scratch + attn_gemm_packed_bytes(kernels, kernels->gemm_depth, kernels->gemm_width);
}

void attn_gemm(const attn_kernels *kernels, int64_t m, int64_t n, int64_t k, attn_matrix a, attn_matrix b,
               bool accumulate, void *c, int64_t c_row, void *scratch) {
  if (!kernels || !a.at || !b.at || !c || !scratch) return;
  attn_dtype t = kernels->dtype;
  void *packed = (char *)scratch + kernels->gemm_scratch;
  for (int64_t j = 0; j < n; j += kernels->gemm_width) {
    int64_t width = attn_min(n - j, kernels->gemm_width), at = 0;
    do { /* at least once: with k = 0 the product is zero */
      int64_t depth = attn_min(k - at, kernels->gemm_depth);
      attn_matrix part = {attn_at(b.at, at * b.row + j * b.column, t), b.row, b.column};
      attn_gemm_packed(kernels, m, width, depth,
                       (attn_matrix){attn_at(a.at, at * a.column, t), a.row, a.column},
                       attn_gemm_pack(kernels, depth, width, part, packed), accumulate || at,
                       attn_at(c, j, t), c_row, scratch);
      at += kernels->gemm_depth;
    } while (at < k);
  }
}

void attn_product(const attn_kernels *kernels, int64_t m, int64_t n, int64_t k, attn_matrix a, const void *b,
                  int64_t b_row, bool accumulate, void *c, int64_t c_row) {
  if (kernels && a.at && b && c) kernels->product(m, n, k, a, b, b_row, accumulate, c, c_row);
}

void attn_weight_product(const attn_kernels *kernels, attn_weight_format format, int64_t rows, int64_t n,
                         int64_t k, const void *const *w, const float *x, int64_t x_row, bool accumulate,
                         float *y, int64_t y_row) {
  if (kernels && (unsigned)format < ATTN_WEIGHT_FORMATS && kernels->weights[format] && w && x && y)
    kernels->weights[format](rows, n, k, w, x, x_row, accumulate, y, y_row);
}

void attn_load_row(const attn_kernels *kernels, attn_dtype stored, int64_t count, const void *x, void *to) {
  if (kernels && x && to) kernels->load[stored](1, count, x, 0, NULL, to, 0);
}

void attn_store_row(const attn_kernels *kernels, attn_dtype stored, int64_t count, const void *x, void *to) {
  if (kernels && x && to) kernels->store[stored](count, x, to);
}

attn_matrix attn_load_rows(const attn_kernels *kernels, attn_dtype stored, const void *x, int64_t row,
                           int64_t rows, int64_t columns, void *room) {
  if (!kernels || !x) return (attn_matrix){0};
  if (stored == kernels->dtype || !room) return (attn_matrix){x, row, 1};
  kernels->load[stored](rows, columns, x, row, NULL, room, columns);
  return (attn_matrix){room, columns, 1};
}

void attn_wht(const attn_kernels *kernels, int64_t n, int64_t columns, void *x) {
  if (kernels && x) kernels->walsh(n, columns, x);
}

void attn_exp_rows(const attn_kernels *kernels, int64_t rows, int64_t count, void *x, int64_t x_row,
                   double *max) {
  if (kernels && x) kernels->exp_rows(rows, count, x, x_row, max);
}

void attn_trig_row(const attn_kernels *kernels, int64_t count, const void *x, void *cosines, void *sines) {
  if (kernels && x && cosines && sines) kernels->trig_row(count, x, cosines, sines);
}

void attn_scale_row(const attn_kernels *kernels, int64_t count, double a, const void *x, void *y) {
  if (kernels && x && y) kernels->scale_row(count, a, x, y);
}

void attn_add_row(const attn_kernels *kernels, int64_t count, double a, const void *x, void *y) {
  if (kernels && x && y) kernels->combine_rows(count, a, x, 1, y, y);
}

void attn_relu_row(const attn_kernels *kernels, int64_t count, void *x) {
  if (kernels && x) kernels->relu_row(count, x);
}

void attn_elu_row(const attn_kernels *kernels, int64_t count, void *x) {
  if (kernels && x) kernels->elu_row(count, x);
}

/* The first of the largest: e^0, which is looked for 64 at a time, unless f is no row of attn_exp_rows. */
static int64_t first_largest(const attn_kernels *kernels, int64_t count, const void *f) {
  const attn_dtype t = kernels->dtype;
  const double below = 1 - attn_numbers[t].unit;
  double most = -1;
  int64_t largest = 0;
  for (int64_t c = 0; c < count; c += 64) {
    const uint64_t ones = kernels->above(attn_min(64, count - c), attn_at(f, c, t), below);
    if (ones) return c + __builtin_ctzll(ones);
  }
  for (int64_t c = 0; c < count; c++)
    if (attn_get(f, c, t) > most) most = attn_get(f, largest = c, t);
  return largest;
}

void attn_exp_row_vjp(const attn_kernels *kernels, int64_t count, const void *f, void *df, double dmax) {
  if (!kernels || !f || !df) return;
  const attn_dtype t = kernels->dtype;
  const double rest = dmax - kernels->dot_row(count, f, df);
  const int64_t largest = first_largest(kernels, count, f);
  kernels->multiply_row(count, f, df, df);
  attn_set(df, largest, t, attn_get(df, largest, t) + rest);
}

void attn_multiply_row(const attn_kernels *kernels, int64_t count, const void *x, const void *y, void *z) {
  if (kernels && x && y && z) kernels->multiply_row(count, x, y, z);
}

void attn_pairs_row(const attn_kernels *kernels, int64_t count, const void *x, void *pairs) {
  if (kernels && x && pairs) kernels->pairs_row(count, x, pairs);
}

double attn_square_row(const attn_kernels *kernels, int64_t count, const void *x) {
  return kernels && x ? kernels->inner_row(count, x, x) : (double)NAN;
}

void attn_softmax_row(const attn_kernels *kernels, int64_t count, void *x, double scale) {
  if (kernels && x) kernels->softmax_row(count, x, scale * ATTN_LOG2E);
}

attn_rounding attn_softmax_row_rounding(const attn_context *c) {
  if (!c) return (attn_rounding){0};
  const attn_kernels *k = c->kernels;
  int64_t n = c->problem->n_kv + (c->problem->score.sink ? 1 : 0);
  return (attn_rounding){.unit = attn_numbers[k->dtype].unit,
                         .score =
                             attn_score_chain(c->problem) + attn_ceil_div(c->problem->d_qk, k->gemm_depth),
                         .value = attn_min(n, k->gemm_depth) + attn_ceil_div(n, k->gemm_depth) + 1,
                         .sum = attn_ceil_div(n, k->row_lanes) + 2 * k->row_lanes + 1,
                         .exp_error = k->exp_error,
                         .kappa_s = 1,
                         .kappa_d = 1,
                         .map = c->problem->score.softcap > 0 ? k->map_error : 0};
}

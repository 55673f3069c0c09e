/* census_check.c - rows by blocks against rows by the textbook.
 *
 * Both compute o = sum w_j v_j / sum w_j with w_j = e^(s_j - m), over the sink, too. Of a row with |s_j| <=
 * S, n keys, and u = 2^-53, the exponent of a weight is off by
 *   e = gamma_(d+2) |scale| |q| max |k_j|   a product of d terms, and the scale (Cauchy and Schwarz)
 *       + u (3 S + 8 B) + c S               what the problem makes of a score (transform.h), |bias| <= B
 *       + 2 u S                             s_j - m,
 * and e^x by 2 u (the C library's) or WEIGH_ERROR. Of k steps each multiplies weights and sums by e^(m - m'),
 * whose exponents' errors add up to 2 u S, and their own to k (WEIGH_ERROR + 2 u). Numerator and denominator
 * are chains of at most n + k + 3 roundings; so all terms have factors within e^(+-h), and
 *   |o^ - o| <= 2 (e^h - 1) / (2 - e^h) max |v_j|.
 * Underflow loses n 2^-1020 max |v_j| + n 2^-1074 at most. */
#include "experiments/reference/census.h"

#include "experiments/reference/transform.h"
#include "experiments/reference/weigh.h"

#include <math.h>
#include <stdlib.h>

static const double unit = 0x1p-53;

static double gamma_of(double k) { return k * unit < 1 ? k * unit / (1 - k * unit) : (double)INFINITY; }

static double norm(const void *x, int64_t at, int64_t d, attn_dtype t) {
  double sum = 0;
  for (int64_t l = 0; l < d; l++) sum += attn_get(x, at + l, t) * attn_get(x, at + l, t);
  return sqrt(sum) * (1 + 0x1p-40);
}

/* The larger of two; NaN if one is. */
static double larger(double a, double b) { return isnan(a) || a >= b ? a : b; }

/* Of the keys and values that a head sees. */
typedef struct extent {
  double key;    /* the greatest norm */
  double *value; /* [d_v] the greatest magnitude */
  bool finite;
} extent;

static void extent_measure(const attn_problem *p, const void *k, const void *v, int64_t batch, int64_t head,
                           int64_t exist, extent *out) {
  const int64_t kv_head = head / (p->heads / p->kv_heads);
  const void *keys = attn_rows(k, p->k, batch, kv_head, p->dtype),
             *values = attn_rows(v, p->v, batch, kv_head, p->dtype);
  out->key = 0;
  for (int64_t l = 0; l < p->d_v; l++) out->value[l] = 0;
  for (int64_t j = 0; j < exist; j++) {
    out->key = larger(norm(keys, j * p->k.row, p->d_qk, p->dtype), out->key);
    for (int64_t l = 0; l < p->d_v; l++)
      out->value[l] = larger(fabs(attn_get(values, j * p->v.row + l, p->dtype)), out->value[l]);
  }
  out->finite = isfinite(out->key);
  for (int64_t l = 0; l < p->d_v; l++) out->finite = out->finite && isfinite(out->value[l]);
}

/* How far apart both may take a component, over the greatest magnitude of its values. */
static double room_of(const attn_problem *p, const extent *x, double query, const sample_row *row,
                      int64_t keys) {
  enum { STEP_LEAST = 256 }; /* keys of a step, at least */
  const double d = (double)p->d_qk, n = (double)keys, steps = n / STEP_LEAST + 2;
  const double size = fabs(p->scale) * query * x->key,
               bias = transform_any(p) ? transform_most(p, row->batch, row->head, row->i) : 0,
               most = size + bias;
  const double score = gamma_of(d + 2) * size + unit * (5 * most + 8 * bias) +
                       transform_reference_map(p) * most + d * 0x1p-1070 * (1 + fabs(p->scale) + x->key);
  const double own = score + 2 * unit * most + WEIGH_ERROR + steps * (WEIGH_ERROR + 2 * unit) +
                     gamma_of(n + steps + 3),
               textbook = score + 2 * unit + gamma_of(n + 3);
  const double a = expm1(own), b = expm1(textbook);
  return a < 0.5 && b < 0.5 ? 2 * a / (1 - a) + 2 * b / (1 - b) + n * 0x1p-1019 : (double)INFINITY;
}

attn_status census_check(const attn_problem *p, const void *q, const void *k, const void *v,
                         const int64_t *kv_len, const exact_rows *rows, const double *o) {
  extent x = {.value = malloc((size_t)p->d_v * sizeof *x.value + 1)};
  attn_status status =
      x.value ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for %lld numbers", (long long)p->d_v);
  for (int64_t r = 0; r < rows->judged && !status; r++) {
    const sample_row *row = &rows->rows[r], *before = r ? row - 1 : NULL;
    if (!before || before->batch != row->batch || before->head != row->head)
      extent_measure(p, k, v, row->batch, row->head, kv_len ? kv_len[row->batch] : p->n_kv, &x);
    const void *queries = attn_rows(q, p->q, row->batch, row->head, p->dtype);
    const double query = norm(queries, row->i * p->q.row, p->d_qk, p->dtype);
    const double room = x.finite ? room_of(p, &x, query, row, rows->keys[r]) : (double)INFINITY;
    const double *given = o + ((row->batch * p->heads + row->head) * p->n_q + row->i) * p->d_v,
                 *want = rows->o + r * p->d_v;
    for (int64_t l = 0; l < p->d_v && isfinite(room) && !status; l++)
      if (!(fabs(given[l] - want[l]) <= room * x.value[l] + (double)p->n_kv * 0x1p-1072))
        status = attn_fail(
            ATTN_ENUMERIC,
            "exact attention, batch %lld, head %lld, row %lld: element %lld is %.17g by blocks and %.17g by "
            "the textbook, which differ by more than the %.3g that rounding explains",
            (long long)row->batch, (long long)row->head, (long long)row->i, (long long)l, given[l], want[l],
            room * x.value[l]);
  }
  free(x.value);
  return status;
}

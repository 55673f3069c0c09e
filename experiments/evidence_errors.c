/* evidence_errors.c - the error columns: a run's output against exact rows.
 *
 * err_rel_fro is r = sqrt(sum |o^_i - o_i|^2 / sum |o_i|^2) estimated from a stratified sample: both sums are
 * expanded by N_h / s_h per stratum, the variance of the ratio is that of the residuals e_i = X_i - r^2 Y_i, sum
 * over strata of N_h^2 (1 - s_h/N_h) S_h^2 / s_h, and the interval is Student's. */
#include "evidence_internal.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>

typedef struct row_error {
  double square;    /* |o^ - o|^2 */
  double reference; /* |o|^2 */
  double largest;   /* max |o^_l - o_l| */
  double cosine;    /* NaN if either is zero */
} row_error;

static double element(const void *at, attn_dtype type, int64_t index) {
  return type == ATTN_F64 ? ((const double *)at)[index] : (double)((const float *)at)[index];
}

/* Larger of two, a NaN winning and staying. */
static double worse(double a, double b) { return isnan(a) || a >= b ? a : b; }

static row_error row_compare(const void *o, attn_dtype type, int64_t at, const double *exact, int64_t d_v) {
  row_error e = {0, 0, 0, 0};
  double own = 0, dot = 0;
  for (int64_t l = 0; l < d_v; l++) {
    double x = element(o, type, at + l), diff = x - exact[l];
    e.square += diff * diff;
    e.reference += exact[l] * exact[l];
    e.largest = worse(e.largest, fabs(diff));
    own += x * x;
    dot += x * exact[l];
  }
  e.cosine = dot / sqrt(own * e.reference);
  return e;
}

/* Ratio of the expanded sums, and its standard error and degrees of freedom over the strata. */
typedef struct ratio {
  double value, se;
  int64_t freedom;
} ratio;

typedef struct stratum {
  int64_t first, count; /* rows of the sample */
  double size;          /* rows that it stands for */
} stratum;

static bool stratum_next(const attn_problem *p, const exact_rows *x, const sampling *s, stratum *at) {
  int64_t first = at->first + at->count;
  if (first >= x->count) return false;
  const sample_row *head = &x->rows[first];
  int64_t bin = sampling_bin(s, p->n_q, head->i), count = 1;
  while (first + count < x->count) {
    const sample_row *row = &x->rows[first + count];
    if (row->batch != head->batch || row->head != head->head || sampling_bin(s, p->n_q, row->i) != bin) break;
    count++;
  }
  int64_t size = sampling_start(s, p->n_q, bin + 1) - sampling_start(s, p->n_q, bin);
  *at = (stratum){first, count, (double)size};
  return true;
}

static ratio ratio_estimate(const attn_problem *p, const exact_rows *x, const row_error *errors) {
  sampling s = sampling_of(p);
  double above = 0, below = 0, variance = 0;
  for (stratum h = {0}; stratum_next(p, x, &s, &h);)
    for (int64_t r = h.first; r < h.first + h.count; r++) {
      above += errors[r].square * h.size / (double)h.count;
      below += errors[r].reference * h.size / (double)h.count;
    }
  ratio out = {.value = above / below};
  for (stratum h = {0}; stratum_next(p, x, &s, &h);) {
    double mean = 0, spread = 0, count = (double)h.count;
    for (int64_t r = h.first; r < h.first + h.count; r++)
      mean += (errors[r].square - out.value * errors[r].reference) / count;
    for (int64_t r = h.first; r < h.first + h.count; r++) {
      double residual = errors[r].square - out.value * errors[r].reference - mean;
      spread += residual * residual;
    }
    if (h.count > 1) variance += h.size * h.size * (1 - count / h.size) / count * spread / (count - 1);
    out.freedom += h.count - 1;
  }
  out.se = sqrt(variance) / below;
  return out;
}

static void frobenius_fill(const attn_problem *p, const exact_rows *x, const row_error *errors,
                           result_row *row) {
  ratio r = ratio_estimate(p, x, errors);
  double half = x->complete || r.freedom < 1 ? 0 : gsl_cdf_tdist_Pinv(0.975, (double)r.freedom) * r.se;
  row->err_rel_fro = sqrt(r.value);
  row->err_rel_fro_lo = r.value < half ? 0 : sqrt(r.value - half); /* a NaN stays one */
  row->err_rel_fro_hi = sqrt(r.value + half);
}

static void profile_fill(const attn_problem *p, const exact_rows *x, const row_error *errors,
                         result_row *row) {
  double above[RESULT_PROFILE_BINS] = {0}, below[RESULT_PROFILE_BINS] = {0};
  for (int b = 0; b < RESULT_PROFILE_BINS; b++) row->profile_l2[b] = row->profile_max[b] = (double)NAN;
  for (int64_t r = 0; r < x->count; r++) {
    int64_t b = x->rows[r].i * RESULT_PROFILE_BINS / p->n_q;
    bool first = above[b] == 0 && below[b] == 0 && isnan(row->profile_max[b]);
    above[b] += errors[r].square;
    below[b] += errors[r].reference;
    row->profile_max[b] = first ? errors[r].largest : worse(errors[r].largest, row->profile_max[b]);
    row->profile_l2[b] = sqrt(above[b] / below[b]);
  }
}

/* Implied weights of head 0 of batch 0, [n_q, n_kv] in the problem's dtype, by V = I. */
static attn_status weights_compute(const evidence *e, void **weights) {
  attn_problem p = *e->problem;
  p.batch = p.heads = p.kv_heads = 1;
  p.d_v = p.n_kv;
  p.q = p.k = p.v = p.o = (attn_stride){0, 0, 0};
  size_t size = attn_dtype_size(p.dtype);
  attn_options options = {.threads = attn_plan_context(e->plan)->threads, .isa = attn_plan_isa(e->plan)};
  attn_plan *plan = NULL;
  void *v = calloc((size_t)(p.n_kv * p.n_kv), size), *o = malloc((size_t)(p.n_q * p.n_kv) * size),
       *work = NULL;
  attn_status status =
      v && o ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the implied weights of a head");
  if (status == ATTN_OK) status = attn_plan_create(&plan, &p, attn_plan_spec(e->plan), &options);
  if (status != ATTN_OK) goto out;
  work = malloc(attn_plan_work_size(plan) + 1);
  if (!work) {
    status = attn_fail(ATTN_ENOMEM, "no memory for the implied weights of a head");
    goto out;
  }
  for (int64_t j = 0; j < p.n_kv; j++) {
    if (p.dtype == ATTN_F64)
      ((double *)v)[j * p.n_kv + j] = 1;
    else
      ((float *)v)[j * p.n_kv + j] = 1;
  }
  status = attn_plan_execute(plan, e->q, e->k, v, e->kv_len, o, work);
out:
  attn_plan_destroy(plan);
  free(v);
  free(work);
  if (status == ATTN_OK)
    *weights = o;
  else
    free(o);
  return status;
}

static attn_status weights_fill(const evidence *e, result_row *row) {
  const attn_problem *p = e->problem;
  const exact_rows *x = e->exact;
  row->err_row_l1_max = row->err_kl_mean = (double)NAN;
  if (!e->plan || p->n_kv > (INT64_C(1) << 20) / p->n_q) return ATTN_OK;
  void *weights = NULL;
  attn_status status = weights_compute(e, &weights);
  if (status != ATTN_OK) return status;
  double largest = 0, kl_sum = 0;
  int64_t rows = 0;
  for (int64_t r = 0; r < x->count && x->rows[r].batch == 0 && x->rows[r].head == 0; r++, rows++) {
    double l1 = 0, kl = 0;
    for (int64_t j = 0; j < p->n_kv; j++) {
      double own = element(weights, p->dtype, x->rows[r].i * p->n_kv + j), exact = x->p[r * p->n_kv + j];
      l1 += fabs(own - exact);
      if (!(own <= 0) && exact > 0) kl += own * log(own / exact);
    }
    largest = worse(l1, largest);
    kl_sum += kl;
  }
  free(weights);
  if (rows == 0) return ATTN_OK;
  row->err_row_l1_max = largest;
  if (e->view && e->view->caps & ATTN_CAP_CONVEX) row->err_kl_mean = kl_sum / (double)rows;
  return ATTN_OK;
}

attn_status evidence_errors(const evidence *e, result_row *row) {
  const attn_problem *p = e->problem;
  const exact_rows *x = e->exact;
  row_error *errors = malloc((size_t)(x->count > 0 ? x->count : 1) * sizeof *errors);
  if (!errors) return attn_fail(ATTN_ENOMEM, "no memory for the errors of %lld rows", (long long)x->count);
  double relative_sum = 0;
  int64_t relatives = 0;
  row->err_max_abs = row->err_rel_l2_max = 0;
  row->err_cos_min = 1;
  for (int64_t r = 0; r < x->count; r++) {
    const sample_row *at = &x->rows[r];
    int64_t index = ((at->batch * p->heads + at->head) * p->n_q + at->i) * p->d_v;
    errors[r] = row_compare(e->o, p->dtype, index, x->o + r * p->d_v, p->d_v);
    row->err_max_abs = worse(errors[r].largest, row->err_max_abs);
    if (errors[r].reference == 0) continue;
    double relative = sqrt(errors[r].square / errors[r].reference);
    relative_sum += relative;
    relatives++;
    row->err_rel_l2_max = worse(relative, row->err_rel_l2_max);
    row->err_cos_min = -worse(-errors[r].cosine, -row->err_cos_min);
  }
  row->err_rel_l2_mean = relative_sum / (double)relatives;
  row->rows_sampled = x->count;
  row->ref = REF_EXACT_F64;
  frobenius_fill(p, x, errors, row);
  profile_fill(p, x, errors, row);
  free(errors);
  return weights_fill(e, row);
}

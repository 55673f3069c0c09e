/* errors.c - the error columns: a run's output against all exact rows, or those of a sample.
 *
 * err_rel_fro of a sample is r = sqrt(sum |o^_i - o_i|^2 / sum |o_i|^2) estimated from a stratified sample:
 * both sums are expanded by N_h / s_h per stratum, the variance of the ratio is that of the residuals e_i =
 * X_i - r^2 Y_i, sum over strata of N_h^2 (1 - s_h/N_h) S_h^2 / s_h, and the interval is Student's (RS-1: it
 * presumes light tails, and is for display; certify.c presumes nothing). Means over rows are ratios to the
 * number of rows. */
#include "experiments/evidence/columns.h"

#include "experiments/evidence/certify.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>

typedef struct row_error {
  double square;    /* |o^ - o|^2 */
  double reference; /* |o|^2 */
  double largest;   /* max |o^_l - o_l| */
  double cosine;    /* NaN if either is zero */
} row_error;

/* The larger of two; NaN if either is NaN. */
static double worse(double a, double b) { return isnan(a) || a >= b ? a : b; }

static row_error row_compare(const void *o, attn_dtype type, int64_t at, const double *exact, int64_t d_v) {
  row_error e = {0, 0, 0, 0};
  double own = 0, dot = 0;
  for (int64_t l = 0; l < d_v; l++) {
    double x = attn_get(o, at + l, type), diff = x - exact[l];
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

/* Of numbers of all rows. */
static ratio ratio_whole(int64_t count, const double *above, const double *below) {
  double sum = 0, reference = 0;
  for (int64_t r = 0; r < count; r++) {
    sum += above[r];
    reference += below[r];
  }
  return (ratio){.value = sum / reference};
}

/* Of numbers of the rows up to `last` of the sample, which are whole strata. */
static ratio ratio_estimate(const attn_problem *p, const exact_rows *x, int64_t last, const double *above,
                            const double *below) {
  double sum = 0, reference = 0, variance = 0;
  if (x->complete) return ratio_whole(last, above, below);
  for (stratum h = {0}; h.first + h.count < last && stratum_next(p, x, &h);)
    for (int64_t r = h.first; r < h.first + h.count; r++) {
      sum += above[r] * h.size / (double)h.count;
      reference += below[r] * h.size / (double)h.count;
    }
  ratio out = {.value = sum / reference};
  for (stratum h = {0}; h.first + h.count < last && stratum_next(p, x, &h);) {
    double mean = 0, spread = 0, count = (double)h.count;
    for (int64_t r = h.first; r < h.first + h.count; r++) mean += (above[r] - out.value * below[r]) / count;
    for (int64_t r = h.first; r < h.first + h.count; r++) {
      double residual = above[r] - out.value * below[r] - mean;
      spread += residual * residual;
    }
    if (h.count > 1) variance += h.size * h.size * (1 - count / h.size) / count * spread / (count - 1);
    out.freedom += h.count - 1;
  }
  out.se = sqrt(variance) / reference;
  return out;
}

static double half_width(const ratio *r) {
  return r->freedom < 1 ? 0 : gsl_cdf_tdist_Pinv(0.975, (double)r->freedom) * r->se;
}

/* -- rows that are compared -- */

/* All rows, or the sample. */
typedef struct compared {
  const evidence *e;
  int64_t count;
  bool whole;
} compared;

static compared compared_of(const evidence *e) {
  const attn_problem *p = e->problem;
  const bool all = e->exact->all;
  return (compared){e, all ? p->batch * p->heads * p->n_q : e->exact->count, all || e->exact->complete};
}

/* The place of a row that is compared among all rows of the output. */
static int64_t place_of(const compared *c, int64_t r) {
  const attn_problem *p = c->e->problem;
  if (c->e->exact->all) return r;
  const sample_row *at = &c->e->exact->rows[r];
  return (at->batch * p->heads + at->head) * p->n_q + at->i;
}

static ratio ratio_of(const compared *c, const double *above, const double *below) {
  return c->whole ? ratio_whole(c->count, above, below)
                  : ratio_estimate(c->e->problem, c->e->exact, c->count, above, below);
}

static double tail_of(const compared *c) {
  return c->whole ? 0 : certify_tail(c->e->problem, c->e->exact, c->count, CERTIFY_ALPHA);
}

static void profile_fill(const compared *c, const row_error *errors, result_row *row) {
  const int64_t n_q = c->e->problem->n_q;
  double above[RESULT_PROFILE_BINS] = {0}, below[RESULT_PROFILE_BINS] = {0};
  for (int b = 0; b < RESULT_PROFILE_BINS; b++) row->profile_l2[b] = row->profile_max[b] = (double)NAN;
  for (int64_t r = 0; r < c->count; r++) {
    int64_t b = place_of(c, r) % n_q * RESULT_PROFILE_BINS / n_q;
    bool first = above[b] == 0 && below[b] == 0 && isnan(row->profile_max[b]);
    above[b] += errors[r].square;
    below[b] += errors[r].reference;
    row->profile_max[b] = first ? errors[r].largest : worse(errors[r].largest, row->profile_max[b]);
    row->profile_l2[b] = sqrt(above[b] / below[b]);
  }
}

/* Sampled rows of head 0 of batch 0. */
static attn_status weights_fill(const evidence *e, double *divergence, double *one, result_row *row) {
  const attn_problem *p = e->problem;
  const exact_rows *x = e->exact;
  row->err_row_l1_max = row->err_row_l1_tail = (double)NAN;
  row->err_kl_mean = row->err_kl_mean_lo = row->err_kl_mean_hi = (double)NAN;
  if (!e->plan || p->n_kv > (INT64_C(1) << 20) / p->n_q) return ATTN_OK;
  void *weights = NULL;
  attn_status status = attention_map_weights(e, p->n_kv, &weights);
  if (status || !weights) return status;
  double largest = 0;
  int64_t rows = 0;
  for (int64_t r = 0; r < x->count && x->rows[r].batch == 0 && x->rows[r].head == 0; r++, rows++) {
    double l1 = 0, kl = 0;
    for (int64_t j = 0; j < p->n_kv; j++) {
      double own = attn_get(weights, x->rows[r].i * p->n_kv + j, p->dtype), exact = x->p[r * p->n_kv + j];
      l1 += fabs(own - exact);
      if (!(own <= 0) && exact > 0) kl += own * log(own / exact);
    }
    largest = worse(l1, largest);
    divergence[r] = kl;
    one[r] = 1;
  }
  free(weights);
  if (rows == 0) return ATTN_OK;
  row->err_row_l1_max = largest;
  row->err_row_l1_tail = certify_tail(p, x, rows, CERTIFY_ALPHA);
  /* With a sink neither side's weights add up to 1. */
  if (p->score.sink || !(e->view && e->view->caps & ATTN_CAP_CONVEX)) return ATTN_OK;
  ratio mean = ratio_estimate(p, x, rows, divergence, one);
  double half = half_width(&mean);
  row->err_kl_mean = mean.value;
  row->err_kl_mean_lo = mean.value - half;
  row->err_kl_mean_hi = mean.value + half;
  return ATTN_OK;
}

/* err_rel_fro and its two intervals. */
static void frobenius_fill(const compared *of, const double *squares, const double *references,
                           result_row *row) {
  ratio r = ratio_of(of, squares, references);
  double half = half_width(&r);
  row->err_rel_fro = sqrt(r.value);
  row->err_rel_fro_lo = r.value < half ? 0 : sqrt(r.value - half); /* a NaN stays one */
  row->err_rel_fro_hi = sqrt(r.value + half);
  certified c = {row->err_rel_fro, row->err_rel_fro};
  if (row->rows_degenerate && !of->whole)
    c = (certified){(double)NAN, (double)NAN};
  else if (!of->whole)
    c = certify_frobenius(of->e, squares, references);
  row->err_rel_fro_cert_lo = c.lo;
  row->err_rel_fro_cert_hi = c.hi;
}

/* Relative errors of rows, which those without a reference have none of, and the maxima. above and below
 * become those errors and 1, or 0 and 0. */
static void relatives_fill(const compared *c, const row_error *errors, double *above, double *below,
                           result_row *row) {
  row->err_max_abs = row->err_rel_l2_max = 0;
  row->err_cos_min = 1;
  for (int64_t r = 0; r < c->count; r++) {
    bool some = errors[r].reference != 0;
    row->err_max_abs = worse(errors[r].largest, row->err_max_abs);
    above[r] = some ? sqrt(errors[r].square / errors[r].reference) : 0;
    below[r] = some ? 1 : 0;
    if (!some) continue;
    row->err_rel_l2_max = worse(above[r], row->err_rel_l2_max);
    row->err_cos_min = -worse(-errors[r].cosine, -row->err_cos_min);
  }
  ratio mean = ratio_of(c, above, below);
  double half = half_width(&mean);
  row->err_rel_l2_mean = mean.value;
  row->err_rel_l2_mean_lo = mean.value < half ? 0 : mean.value - half;
  row->err_rel_l2_mean_hi = mean.value + half;
  row->err_max_tail = tail_of(c);
}

/* Weights that may be negative can cancel: such rows are counted. */
static bool is_degenerate(const evidence *e, const row_error *x) {
  return e->view && !(e->view->caps & (ATTN_CAP_EXACT | ATTN_CAP_CONVEX)) && !isfinite(x->square) &&
         isfinite(x->reference);
}

/* Compares all that there are to compare. */
static void rows_compare(const compared *c, row_error *errors) {
  const attn_problem *p = c->e->problem;
  const exact_rows *x = c->e->exact;
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < c->count; r++)
    errors[r] = row_compare(c->e->stored ? c->e->stored : c->e->o, c->e->stored ? c->e->as : p->dtype,
                            place_of(c, r) * p->d_v, (x->all ? x->all : x->o) + r * p->d_v, p->d_v);
}

attn_status evidence_errors(const evidence *e, result_row *row) {
  const compared c = compared_of(e);
  size_t count = (size_t)c.count;
  row_error *errors = malloc((count + 1) * sizeof *errors);
  double *above = malloc((2 * count + 1) * sizeof *above), *below = above ? above + count : NULL;
  attn_status status =
      errors && above ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the errors of %zu rows", count);
  if (status) goto out;
  rows_compare(&c, errors);
  row->rows_degenerate = 0;
  for (int64_t r = 0; r < c.count; r++) {
    if (is_degenerate(e, &errors[r])) {
      errors[r] = (row_error){0, 0, 0, 0};
      row->rows_degenerate++;
    }
    above[r] = errors[r].square;
    below[r] = errors[r].reference;
  }
  row->rows_sampled = c.count;
  row->ref = REF_EXACT_F64;
  frobenius_fill(&c, above, below, row);
  relatives_fill(&c, errors, above, below, row);
  profile_fill(&c, errors, row);
  status = weights_fill(e, above, below, row);
out:
  free(errors);
  free(above);
  return status;
}

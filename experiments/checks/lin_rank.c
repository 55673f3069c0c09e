/* lin_rank.c - LIN-3: no matrix of rank k comes closer to the exact weights than their singular values allow
 * (Eckart and Young 1936).
 *
 * For rows S and columns C, both more than k, |P_SC - W_SC|^2 >= sum over j > k of sigma_j(P_SC)^2 for the
 * weights W of any rank-k method. W_SC is read off in fp64 by V = the columns C of the identity; S and C are
 * evenly spaced, k + 64 of each, at most n. The margin printed is lower limit / error^2, the
 * inverse of the ratio (>= 1). It rejects a method that is not of the rank it claims. Zeros and the mean of V
 * have rank at most 1: blind to both; random keys chosen per row have rank above k, and are rejected where
 * they come close enough, which needs P itself to be nearly of rank k: blind to them otherwise. Non-causal
 * only: a mask breaks the rank. */
#include "experiments/checks/table.h"

#include "experiments/evidence/cache.h"
#include "experiments/evidence/probe.h"
#include "experiments/mathematics/spectrum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 640 };                          /* of S: the eigenvalues of a 640 x 640 matrix */
static const int64_t work_max = INT64_C(1) << 31; /* multiply-adds of reading W off: n_kv k |C| */

/* Evenly spaced: place t of count among n. */
static int64_t place(int64_t t, int64_t count, int64_t n) { return t * n / count; }

static attn_status exact_block(const evidence *e, int64_t count, double *out) {
  const attn_problem *x = e->problem;
  bool failed = false;
#pragma omp parallel
  {
    double *weights = malloc((size_t)x->n_kv * sizeof *weights),
           *scratch = malloc((size_t)x->n_kv * sizeof *scratch);
    if (!weights || !scratch) {
#pragma omp atomic write
      failed = true;
    }
#pragma omp for schedule(dynamic, 4)
    for (int64_t t = 0; t < count; t++) {
      if (!weights || !scratch) continue;
      attn_reference_row(x, NULL, e->q, e->k, e->v, e->kv_len, 0, 0, place(t, count, x->n_q), weights, NULL,
                         scratch);
      for (int64_t c = 0; c < count; c++) out[t * count + c] = weights[place(c, count, x->n_kv)];
    }
    free(weights);
    free(scratch);
  }
  return failed ? attn_fail(ATTN_ENOMEM, "no memory for a block of exact weights") : ATTN_OK;
}

/* The exact block and the squares of its singular values, from the cache if it holds them. */
static attn_status exact_spectrum(const evidence *e, int64_t count, const spectrum_entry **out) {
  struct block_cache *cache = e->cache;
  for (int i = 0; i < SPECTRA; i++)
    if (cache->spectra[i].count == count) {
      *out = &cache->spectra[i];
      return ATTN_OK;
    }
  spectrum_entry *entry = &cache->spectra[cache->spectrum_next];
  spectrum_entry made = {.count = count,
                         .block = malloc((size_t)(count * count) * sizeof(double)),
                         .squares = malloc((size_t)count * sizeof(double))};
  const double **rows = malloc((size_t)count * sizeof *rows);
  attn_status status =
      made.block && made.squares && rows ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for exact weights");
  if (!status) status = exact_block(e, count, made.block);
  for (int64_t t = 0; t < count && !status; t++) rows[t] = made.block + t * count;
  if (!status) status = spectrum_squares(rows, count, count, made.squares);
  free(rows);
  if (status) {
    free(made.block);
    free(made.squares);
    return status;
  }
  free(entry->block);
  free(entry->squares);
  *entry = made;
  cache->spectrum_next = (cache->spectrum_next + 1) % SPECTRA;
  *out = entry;
  return ATTN_OK;
}

/* W_SC in fp64, [count, count]. */
static attn_status implied_block(const evidence *e, int64_t count, double *out) {
  attn_problem x = *e->problem;
  x.batch = x.heads = x.kv_heads = 1;
  x.q = x.k = x.v = x.o = (attn_stride){0, 0, 0};
  x.dtype = ATTN_F64;
  x.n_q = count;
  x.d_v = count;
  attn_options options = {.threads = attn_plan_context(e->plan)->threads, .isa = attn_plan_isa(e->plan)};
  attn_plan *plan = NULL;
  double *q = malloc((size_t)(count * x.d_qk) * sizeof *q),
         *k = malloc((size_t)(x.n_kv * x.d_qk) * sizeof *k);
  double *v = calloc((size_t)(x.n_kv * count), sizeof *v);
  void *work = NULL;
  attn_status status = q && k && v ? attn_plan_create(&plan, &x, attn_plan_spec(e->plan), &options)
                                   : attn_fail(ATTN_ENOMEM, "no memory to read weights off");
  if (!status) {
    work = malloc(attn_plan_work_size(plan) + 1);
    if (!work) status = attn_fail(ATTN_ENOMEM, "no memory to read weights off");
  }
  if (!status) {
    for (int64_t t = 0; t < count; t++) {
      row_widen(e->q, e->problem->dtype, place(t, count, e->problem->n_q) * x.d_qk, x.d_qk, q + t * x.d_qk);
      v[place(t, count, x.n_kv) * count + t] = 1;
    }
    row_widen(e->k, e->problem->dtype, 0, x.n_kv * x.d_qk, k);
    status = attn_plan_execute(plan, q, k, v, e->kv_len, out, work);
  }
  attn_plan_destroy(plan);
  free(q);
  free(k);
  free(v);
  free(work);
  return status;
}

static attn_status rank_judge(const evidence *e, int64_t k, int64_t count, result_bound *bound) {
  const spectrum_entry *exact;
  double *implied = malloc((size_t)(count * count) * sizeof *implied), error = 0, size = 0, tail = 0;
  attn_status status = implied ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the weights of a method");
  if (!status) status = exact_spectrum(e, count, &exact);
  if (status == ATTN_ENUMERIC) {
    bound_uncertifiable(bound, "the exact weights are not finite");
    status = ATTN_OK;
    goto out;
  }
  if (!status) status = implied_block(e, count, implied);
  if (status) goto out;
  for (int64_t i = 0; i < count * count; i++) {
    double diff = exact->block[i] - implied[i];
    error += diff * diff;
    size += exact->block[i] * exact->block[i];
  }
  if (!isfinite(
          error)) { /* a denominator of 0, weights beyond the range: FP-6 and the run's own output tell */
    bound_uncertifiable(bound, "the method's weights are not finite");
    goto out;
  }
  for (int64_t j = k; j < count; j++) tail += exact->squares[j] - spectrum_error(count, count, size);
  bound_hard(bound, fmax(tail, 0), error);
out:
  free(implied);
  return status;
}

static attn_status rank_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  int64_t k = e->view->features ? e->view->features->columns : e->view->projection->slots;
  int64_t n = p->n_q < p->n_kv ? p->n_q : p->n_kv, count = k + 64;
  if (count > n) count = n;
  if (p->causal)
    bound_not_applicable(bound, "a causal mask breaks the rank");
  else if (!(e->view->caps & ATTN_CAP_CROSS))
    bound_not_applicable(bound, "queries cannot be chosen");
  else if (k >= n)
    bound_not_applicable(bound, "the rank is not below the length");
  else if (count > ROWS_MAX)
    bound_uncertifiable(bound, "rank above 576: its singular values would cost too much");
  else if (p->n_kv > work_max / k / count)
    bound_uncertifiable(bound, "more than 2^31 operations to read the weights off");
  else
    return rank_judge(e, k, count, bound);
  return ATTN_OK;
}

const check check_lin3 = {
    .name = "LIN-3",
    .of = &of_bounded_rank,
    .kind = KIND_HARD,
    .statement =
        "a block of the method's weights is no closer to the exact one than the best matrix of its rank",
    .source = "Eckart and Young 1936",
    .formula =
        "|P_SC - W_SC|_F^2 >= sum over j > k of sigma_j(P_SC)^2 for rows S and columns C of the "
        "exact weights P and of the method's W, of rank k. It sees what is too good alone: a rank above the "
        "one that is described, weights taken from the exact ones; no error is too large for it.",
    .assumes =
        "Not causal (a mask breaks the rank), |S|, |C| > k, and the method's weights are finite and can "
        "be read off by V = I within the check's budget.",
    .nulls[CHECK_ZEROS].blind = "of rank 0, and no closer than the best matrix of rank k",
    .nulls[CHECK_MEAN_V].blind = "of rank 1, and no closer than the best matrix of rank k",
    .nulls[CHECK_RANDOM_KEYS].blind =
        "of a rank above k, but rejected only where they come closer to P than its best matrix of rank k, "
        "which a quarter of the keys does on no recorded input",
    .evaluate = rank_evaluate,
};

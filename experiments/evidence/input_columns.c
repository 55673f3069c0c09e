/* input_columns.c - columns that describe how hard an input is to approximate.
 *
 * entropy -sum p ln p and the mass of the 16 largest weights of a row, the effective rank exp(-sum s ln s) of
 * the singular values normalised to sum 1 (Roy & Vetterli 2007), and the range of the scores. */
#include "experiments/evidence/columns.h"

#include "experiments/evidence/cache.h"
#include "experiments/mathematics/spectrum.h"
#include "experiments/reference/transform.h"

#include <math.h>
#include <stdlib.h>

enum { TOP = 16, RANK_ROWS = 64 };

static double top_mass(const double *p, int64_t n) {
  double top[TOP] = {0}, mass = 0; /* ascending */
  for (int64_t j = 0; j < n; j++) {
    if (!(p[j] > top[0])) continue;
    int at = 0;
    for (; at + 1 < TOP && p[j] > top[at + 1]; at++) top[at] = top[at + 1];
    top[at] = p[j];
  }
  for (int t = 0; t < TOP; t++) mass += top[t];
  return mass;
}

static double entropy(const double *p, int64_t n) {
  double sum = 0;
  for (int64_t j = 0; j < n; j++)
    if (p[j] > 0) sum -= p[j] * log(p[j]);
  return sum;
}

/* x.y in fp64, part by part. */
static double row_product(const void *x, const void *y, int64_t d, attn_dtype t) {
  enum { PART = 64 };
  double a[PART], b[PART], sum = 0;
  for (int64_t l = 0; l < d; l += PART) {
    const int64_t count = d - l < PART ? d - l : PART;
    attn_numbers[t].load(attn_at(x, l, t), count, a);
    attn_numbers[t].load(attn_at(y, l, t), count, b);
    for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
  }
  return sum;
}

/* max - min of the scores, transformed, of the keys that have a weight among the leading ones; keys that the
 * row does not see have none, and of the others only those whose weight is below the least number. */
static double score_range(const evidence *e, const sample_row *at, const double *weights, int64_t keys) {
  const attn_problem *p = e->problem;
  int64_t group = p->heads / p->kv_heads;
  int64_t q_at = ((at->batch * p->heads + at->head) * p->n_q + at->i) * p->d_qk;
  int64_t k_at = (at->batch * p->kv_heads + at->head / group) * p->n_kv * p->d_qk;
  double low = (double)INFINITY, high = -(double)INFINITY;
  const bool masked = p->mask.kind != ATTN_MASK_NONE || p->score.dense.at;
  for (int64_t j = 0; j < keys; j++) {
    if (masked && !(weights[j] > 0)) continue;
    double s = row_product(attn_at(e->q, q_at, p->dtype), attn_at(e->k, k_at + j * p->d_qk, p->dtype),
                           p->d_qk, p->dtype);
    s = transform_score(p, at->batch, at->head, at->i, j, p->scale * s).score;
    low = s < low ? s : low;
    high = s > high ? s : high;
  }
  return high >= low ? high - low : 0;
}

static attn_status effective_rank(const evidence *e, double *out) {
  const exact_rows *x = e->exact;
  int64_t n = e->problem->n_kv, head_rows = 0;
  while (head_rows < x->count && x->rows[head_rows].batch == 0 && x->rows[head_rows].head == 0) head_rows++;
  int64_t rows = head_rows < RANK_ROWS ? head_rows : RANK_ROWS;
  const double *chosen[RANK_ROWS] = {0};
  double squares[RANK_ROWS], total = 0, sum = 0;
  for (int64_t r = 0; r < rows; r++) chosen[r] = x->p + r * head_rows / rows * n;
  attn_status status = spectrum_squares(chosen, rows, n, squares);
  if (status == ATTN_ENUMERIC) *out = (double)NAN;
  if (status) return status == ATTN_ENUMERIC ? ATTN_OK : status;
  for (int64_t r = 0; r < rows; r++) total += sqrt(squares[r]);
  for (int64_t r = 0; r < rows; r++) {
    double share = sqrt(squares[r]) / total;
    if (share > 0) sum -= share * log(share);
  }
  *out = total > 0 ? exp(sum) : (double)NAN;
  return ATTN_OK;
}

static attn_status describe_input(const evidence *e, struct block_cache *cache) {
  const exact_rows *x = e->exact;
  int64_t n = e->problem->n_kv;
  attn_status status = effective_rank(e, &cache->eff_rank);
  if (status) return status;
  double(*of_row)[3] = calloc((size_t)x->count + 1, sizeof *of_row), sum[3] = {0};
  if (!of_row) return attn_fail(ATTN_ENOMEM, "no memory to describe %lld rows", (long long)x->count);
#pragma omp parallel for schedule(dynamic, 4)
  for (int64_t r = 0; r < x->count; r++) {
    of_row[r][0] = entropy(x->p + r * n, n);
    of_row[r][1] = top_mass(x->p + r * n, n);
    of_row[r][2] = score_range(e, &x->rows[r], x->p + r * n, x->keys[r]);
  }
  /* Row after row, so that the means are the same in every process. */
  for (int64_t r = 0; r < x->count; r++)
    for (int c = 0; c < 3; c++) sum[c] += of_row[r][c];
  free(of_row);
  const double count = (double)x->count;
  /* Weights that do not add up to 1 have no entropy. */
  cache->row_entropy_mean = e->problem->score.sink ? (double)NAN : sum[0] / count;
  cache->top16_mass_mean = sum[1] / count;
  cache->score_osc = sum[2] / count;
  cache->described = true;
  return ATTN_OK;
}

attn_status evidence_describe_input(const evidence *e, result_row *row) {
  if (!e->cache->described) {
    attn_status status = describe_input(e, e->cache);
    if (status) return status;
  }
  row->row_entropy_mean = e->cache->row_entropy_mean;
  row->top16_mass_mean = e->cache->top16_mass_mean;
  row->eff_rank = e->cache->eff_rank;
  row->score_osc = e->cache->score_osc;
  return ATTN_OK;
}

/* probe_bound.c - how far rounding may take a row of a probe: per engine, the terms of the algorithm in exact
 * arithmetic and a bound on the error of the computed one.
 *
 * Softmax: FP-1. Linear, with a_j = sum_r |f_r(q)| |e^(c_j - M) f_r(k_j)| (eps included) and the mapped
 * features taken as given (they are the same bits however the rows are grouped): every term a_j v_j passes
 * through at most 2 n + m + 64 roundings (sums over keys in chunks, one rescale a chunk, sum over features,
 * division), and its rescales, whose exponents telescope to M - c_j, add 2 u (M - c_j); with Z = sum_j A_j
 *   |o^_l - o_l| <= sum_j a_j kappa_j (|v_jl| + |o_l|) / (|Z| - sum_j a_j kappa_j).
 * Fixed features, by their kernel k_j alone, whose rounding is relative to s_j: err_j = gamma_G s_j with G =
 * 2 n + m + 2 d + 64 roundings in a chain (features, their product, sums over keys, a rescale a chunk, the
 * division), and what underflow takes from a feature of the query or the key, none of which is larger than
 *   sqrt(k(x, x)); with LOST, what it takes from products of a key's features and a value, times the query's,
 *   |o^_l - o_l| <= (sum_j err_j (|v_jl| + |o_l|) + LOST) / (|sum k| - sum_j err_j).
 * Without a denominator sum_j err_j |v_jl|, and LOST of fixed features.
 * Compression: FP-1 on the slots with 3 slots + 8 as chain (any number of steps), and the rounding of the
 * projection, gamma_(n+3) max|k|, gamma_(n+3) max|v| for weights that are means. */
#include "experiments/evidence/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/evidence/rounding/normaliser_bound.h"
#include "experiments/mathematics/vector.h"
#include "experiments/reference/exact.h"

static const double unit = 0x1p-53;
static const uint64_t purpose_pick = 0x7069636b; /* "pick" */
enum { CHUNK = 128 };

const head_data *probe_inner(const probe *p) { return p->view.projection ? &p->slots : &p->head; }

attn_status probe_space(const probe *p, row_space *out) {
  attn_problem larger = p->problem;
  if (p->view.projection && p->view.projection->slots > larger.n_kv) larger.n_kv = p->view.projection->slots;
  return row_space_make(&larger, p->view.pattern, out);
}

int64_t probe_pick(const probe *p, int64_t count, int64_t *rows) {
  attn_rng rng;
  attn_rng_init(&rng, p->e.seed, purpose_pick, 0);
  if (count > p->problem.n_q) count = p->problem.n_q;
  rows_spread(&rng, p->problem.n_q, count, rows);
  return count;
}

attn_status probe_rows(const probe *p, const int64_t *rows, int64_t count, probe_visit visit, void *context) {
  bool failed = false;
#pragma omp parallel
  {
    row_space space = {0};
    bool ready = !probe_space(p, &space);
    if (!ready) {
#pragma omp atomic write
      failed = true;
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t at = 0; at < count; at++) {
      if (!ready) continue;
      row_widen(p->o, p->problem.dtype, rows[at] * p->problem.d_v, p->problem.d_v, space.given);
      visit(context, at, rows[at], &space);
    }
    row_space_free(&space);
  }
  return failed ? attn_fail(ATTN_ENOMEM, "no memory for the rows of a probe") : ATTN_OK;
}

typedef struct check_rows {
  probe_judge *judge;
  void *context;
  outcome *found;
} check_rows;

static void check_row(void *context, int64_t place, int64_t row, row_space *s) {
  const check_rows *c = context;
  c->found[place] = c->judge(c->context, place, row, s);
}

attn_status probe_check(const probe *p, int64_t most, probe_judge *judge, void *context,
                        result_bound *bound) {
  region memory = {.last = NULL};
  outcome worst = OUTCOME_NONE;
  int64_t *rows = region_take(&memory, most, sizeof *rows);
  check_rows c = {judge, context, region_take(&memory, most, sizeof *c.found)};
  attn_status status = region_status(&memory, "for the rows of a probe");
  const int64_t count = status ? 0 : probe_pick(p, most, rows);
  if (!status) status = probe_rows(p, rows, count, check_row, &c);
  for (int64_t r = 0; !status && r < count; r++) outcome_worsen(&worst, c.found[r]);
  region_free(&memory);
  return status ? status : outcome_to_verdict(&worst, bound);
}

/* One chunk of rows on its way through the map. */
static void map_chunk(const probe *p, attn_side side, int64_t first, int64_t rows) {
  const probe_features *f = &p->features;
  const attn_feature_map *map = p->view.features;
  const double *x = side == ATTN_QUERY ? p->q : p->k;
  double *to = side == ATTN_QUERY ? f->query : f->key,
         *scale = side == ATTN_QUERY ? f->query_scale : f->key_scale;
  int64_t d = p->problem.d_qk, shift = side == ATTN_QUERY ? attn_problem_position(&p->problem, 0) : 0;
  map->map(map->state, attn_plan_context(p->plan),
           &(attn_feature_rows){p->kv_head, side, x + first * d, d, shift + first, rows},
           to + first * f->columns, f->columns, scale + first);
}

attn_status probe_map(probe *p) {
  probe_features *f = &p->features;
  const attn_feature_map *map = p->view.features;
  if (f->key) return ATTN_OK;
  int64_t keys = p->head.keys, queries = p->problem.n_q, m = map->columns;
  if (keys + queries > (INT64_C(1) << 24) / m)
    return attn_fail(ATTN_EUNSUPPORTED, "the features of all keys exceed 2^24 numbers");
  f->columns = m;
  f->query = region_take(&p->memory, queries * m, sizeof(double));
  f->query_scale = region_take(&p->memory, queries, sizeof(double));
  f->key_scale = region_take(&p->memory, keys, sizeof(double));
  f->key = region_take(&p->memory, keys * m, sizeof(double));
  if (region_status(&p->memory, "for the features of a probe")) return ATTN_ENOMEM;
  int64_t query_chunks = (queries + CHUNK - 1) / CHUNK, key_chunks = (keys + CHUNK - 1) / CHUNK;
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t c = 0; c < query_chunks + key_chunks; c++) {
    bool query = c < query_chunks;
    int64_t first = (query ? c : c - query_chunks) * CHUNK, left = (query ? queries : keys) - first;
    map_chunk(p, query ? ATTN_QUERY : ATTN_KEY, first, left < CHUNK ? left : CHUNK);
  }
  return ATTN_OK;
}

attn_status probe_project(const probe *p, attn_side side, const double *x, int64_t d, double *y,
                          int64_t *used) {
  const attn_projection *e = p->view.projection;
  const attn_context *c = attn_plan_context(p->plan);
  void *scratch = aligned_alloc(64, (e->scratch + 64) / 64 * 64);
  if (!scratch) return attn_fail(ATTN_ENOMEM, "no memory for the scratch of a projection");
  attn_slab slab = {
      .head = p->kv_head, .side = side, .x = x, .x_row = d, .rows = p->head.keys, .d = d, .y = y, .y_row = d};
  *used = p->head.keys > 0 ? e->project(e->state, c, &slab, scratch) : 0;
  free(scratch);
  return ATTN_OK;
}

attn_status probe_compress(probe *p) {
  int64_t used = 0;
  if (p->slots.k) return ATTN_OK;
  p->slot_problem = p->problem;
  p->slot_problem.n_kv = p->view.projection->slots;
  attn_status status = head_data_alloc(&p->slot_problem, &p->slots);
  if (!status) status = probe_project(p, ATTN_KEY, p->k, p->problem.d_qk, p->slots.k, &used);
  if (!status) status = probe_project(p, ATTN_VALUE, p->v, p->problem.d_v, p->slots.v, &used);
  p->slots.keys = used;
  if (!status)
    head_data_measure(&p->slots);
  else
    head_data_free(&p->slots);
  return status;
}

double features_weigh(const probe_features *f, double eps, int64_t r, row_space *s) {
  int64_t m = f->columns;
  const double *q = f->query + r * m;
  double top = -(double)INFINITY;
  for (int64_t a = 0; a < s->count; a++) top = fmax(top, f->key_scale[s->index[a]]);
  for (int64_t a = 0; a < s->count; a++) {
    const double *k = f->key + s->index[a] * m;
    double factor = exp(f->key_scale[s->index[a]] - top), sum[4] = {0}, size[4] = {0};
    for (int64_t c = 0; c < m; c += 4)
      for (int64_t t = 0; t < 4 && c + t < m; t++) {
        double x = (q[c + t] + eps) * (factor * k[c + t] + eps);
        sum[t] += x;
        size[t] += fabs(x);
      }
    s->weight[a] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    s->slack[a] = (size[0] + size[1]) + (size[2] + size[3]);
  }
  return top;
}

/* The output of the weights in s->weight, each off by its s->slack at the most; their sums are given. */
static row_verdict weighted_row(const probe *p, const head_data *h, double sum, double off, row_space *s) {
  const bool divided = !p->view.features->unnormalised;
  const int64_t d_v = p->problem.d_v;
  if (!divided) {
    sum = 1;
    off = 0;
  }
  if (!(fabs(sum) > 2 * off)) return ROW_CANCELLED;
  for (int64_t a = 0; a < s->count; a++)
    for (int64_t l = 0; l < d_v; l++) s->o[l] += s->weight[a] / sum * h->v[s->index[a] * d_v + l];
  for (int64_t a = 0; a < s->count; a++)
    for (int64_t l = 0; l < d_v; l++)
      s->bound[l] += s->slack[a] * (fabs(h->v[s->index[a] * d_v + l]) + (divided ? fabs(s->o[l]) : 0));
  /* Twice: the sums of this function round as well, in chains that are shorter. */
  for (int64_t l = 0; l < d_v; l++) s->bound[l] *= 2 / (fabs(sum) - off);
  return ROW_OK;
}

/* The sum of the absolute values of a row's features. */
static double size_of(const double *x, int64_t m, double eps) {
  double sum = 0;
  for (int64_t c = 0; c < m; c++) sum += fabs(x[c]) + eps;
  return sum;
}

static row_verdict linear_bound(const probe *p, const head_data *h, int64_t r, row_space *s) {
  const probe_features *f = &p->features;
  int64_t d_v = p->problem.d_v;
  memset(s->o, 0, (size_t)d_v * sizeof *s->o);
  memset(s->bound, 0, (size_t)d_v * sizeof *s->bound);
  if (s->count == 0) return ROW_OK;
  if (!h->finite) return ROW_INFINITE;
  const attn_number *number = &attn_numbers[ATTN_F64];
  const int64_t m = f->columns;
  const double eps = p->view.features->eps, columns = (double)m, tiny = number->normal,
               query = size_of(f->query + r * m, m, eps),
               growth = gamma_of(2 * p->problem.n_kv + m + 64, unit);
  double top = features_weigh(f, eps, r, s), sum = 0, off = 0, keys = 0;
  for (int64_t a = 0; a < s->count; a++) {
    const double key = size_of(f->key + s->index[a] * m, m, eps);
    sum += s->weight[a];
    s->slack[a] *= growth + 2 * unit * (top - f->key_scale[s->index[a]] + 1);
    s->slack[a] += columns * tiny * (1 + query + key);
    off += s->slack[a];
    keys += key;
  }
  if (!((query + 1) * fmax(1, keys) * fmax(1, h->v_max) < number->largest / 8)) return ROW_OVERFLOW;
  for (int64_t l = 0; l < d_v; l++) s->bound[l] = (double)s->count * columns * tiny * (1 + query);
  return weighted_row(p, h, sum, off, s);
}

static double kernel_of(const probe *p, const double *q, int64_t i, const double *k, int64_t j,
                        double *size) {
  const attn_feature_map *map = p->view.features;
  const attn_feature_pair pair = {q, k, i, j};
  return map->law.kernel(map->state, attn_plan_context(p->plan), &pair, size);
}

/* The square root of the sum of the squares of a row's features. */
static double length_of(const probe *p, const double *x, int64_t i) {
  double size = 0;
  kernel_of(p, x, i, x, i, &size);
  return sqrt(size);
}

row_verdict probe_kernel(const probe *p, attn_dtype run, int64_t r, row_space *s) {
  const attn_problem *x = &p->problem;
  const attn_number *number = &attn_numbers[run];
  const double u = number->unit, tiny = number->normal, huge = number->largest / 2,
               columns = (double)p->view.features->columns;
  const double growth = gamma_of(2 * x->n_kv + p->view.features->columns + 2 * x->d_qk + 64, u);
  const int64_t d = x->d_qk, d_v = x->d_v, position = attn_problem_position(x, r);
  double sum = 0, off = 0, keys = 0;
  row_widen(p->q, x->dtype, r * d, d, s->q);
  row_support(&p->head, NULL, r, s);
  memset(s->o, 0, (size_t)d_v * sizeof *s->o);
  memset(s->bound, 0, (size_t)d_v * sizeof *s->bound);
  if (s->count == 0) return ROW_OK;
  if (!p->head.finite) return ROW_INFINITE;
  const double query = length_of(p, s->q, position);
  for (int64_t a = 0; a < s->count; a++) {
    const double *k = p->head.k + s->index[a] * d, key = length_of(p, k, s->index[a]);
    double size = 0;
    s->weight[a] = kernel_of(p, s->q, position, k, s->index[a], &size);
    s->slack[a] = growth * size + columns * tiny * (1 + query + key);
    sum += s->weight[a];
    off += s->slack[a];
    keys += key;
  }
  if (!((query + 1) * fmax(1, keys) * fmax(1, p->head.v_max) < huge / 4)) return ROW_OVERFLOW;
  for (int64_t l = 0; l < d_v; l++) s->bound[l] = (double)s->count * columns * tiny * (1 + query);
  return weighted_row(p, &p->head, sum, off, s);
}

row_verdict probe_compression_bound(const probe *p, const head_data *h, double unit_of_run, int64_t chain,
                                    const double *moved, row_space *s) {
  int64_t slots = h->problem->n_kv, d = p->problem.d_qk;
  attn_rounding rounding = {.unit = unit_of_run,
                            .score = d,
                            .value = 3 * slots + 8,
                            .sum = 3 * slots + 8,
                            .block = 1,
                            .exp_error = 4 * unit_of_run,
                            .kappa_s = 1,
                            .kappa_d = 1};
  row_verdict verdict = row_bound(h, &rounding, false, moved, s);
  if (verdict != ROW_OK) return verdict;
  double size = 0, projection = gamma_of(chain, unit_of_run);
  for (int64_t l = 0; l < d; l++) size += fabs(s->q[l]);
  const double norm = moved ? vector_norm(moved, d) : 0;
  double shift = projection * fabs(p->problem.scale) * size * (p->head.k_max + norm);
  for (int64_t l = 0; l < p->problem.d_v; l++) {
    double most = fmax(fabs(h->low[l]), fabs(h->high[l]));
    s->bound[l] += tanh(shift) * (h->high[l] - h->low[l]) + projection * fmax(most, p->head.v_max);
  }
  return ROW_OK;
}

row_verdict probe_exact(const probe *p, int64_t r, row_space *s, double *error) {
  const attn_problem *x = &p->problem;
  attn_rounding own = row_reference_rounding(x, s->count);
  prior reference;
  row_verdict verdict =
      row_apriori_bound(&p->head, &own, vector_norm(s->q, x->d_qk), 0, s->count, &reference);
  if (attn_reference_row(x, NULL, p->q, p->k, p->v, p->e.kv_len, 0, 0, r, NULL, s->o, s->weight) < 0)
    return ROW_REFUSED;
  if (verdict == ROW_OK)
    *error = (2 * reference.spread + reference.growth) * sqrt((double)x->d_v) * p->head.v_max;
  return verdict;
}

row_verdict probe_bound(const probe *p, const head_data *h, const double *moved, int64_t r, row_space *s) {
  row_widen(p->q, p->problem.dtype, r * p->problem.d_qk, p->problem.d_qk, s->q);
  row_see(h, &p->seen, r, s);
  if (p->view.features) return linear_bound(p, h, r, s);
  if (p->view.normaliser) return normaliser_bound(&p->e, h, moved, s);
  if (p->view.projection) return probe_compression_bound(p, h, unit, p->problem.n_kv + 3, moved, s);
  return row_bound(h, &p->view.rounding, !p->view.pattern && !p->view.selector, moved, s);
}

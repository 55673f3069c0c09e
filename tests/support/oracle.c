/* oracle.c - softmax rows in long double and the bounds FP-1 and FP-2 (see oracle.h). */
#include "tests/support/oracle.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "tests/support/oracle_parts.h"

double oracle_gamma(double k, double u) { return k * u < 0.5 ? k * u / (1 - k * u) : (double)INFINITY; }

void *calloc_or_abort(size_t count, size_t size) {
  void *block = calloc(count ? count : 1, size);
  if (!block) abort();
  return block;
}

const void *head_rows(const inputs *in, tensor which, int64_t batch, int64_t head) {
  const attn_problem *p = &in->problem;
  attn_stride s = which == TENSOR_Q ? p->q : which == TENSOR_K ? p->k : p->v;
  const unsigned char *base = which == TENSOR_Q ? in->q : which == TENSOR_K ? in->k : in->v;
  return attn_at(base, batch * s.batch + head * s.head, attn_stored(s, p->dtype));
}

/* The bias of a score in attn_score.dense, -Inf where it hides the key. */
static double dense_bias(const attn_problem *p, int64_t batch, int64_t head, int64_t i, int64_t j) {
  const attn_bias *b = &p->score.dense;
  if (!b->at) return 0;
  return element_at(b->dtype, b->at, batch * b->batch + head * b->head + i * b->row + j);
}

/* The runs of a row of a graph, to be freed. */
static attn_run *runs_of(const attn_pattern *graph, int64_t head, int64_t position, int64_t *count) {
  attn_run *runs = calloc_or_abort((size_t)graph->max_runs, sizeof *runs);
  *count = graph->row(graph->state, head, position, runs);
  return runs;
}

/* The masks of a problem by their definitions; the row of its graph, if it has one. */
static bool problem_sees(const attn_problem *p, int64_t batch, int64_t head, int64_t i, int64_t j,
                         const attn_run *graph, int64_t graph_count) {
  const attn_mask *m = &p->mask;
  const int64_t position = i + p->n_kv - p->n_q;
  bool together = false, in_graph = false;
  if (p->causal && j > position) return false;
  if (dense_bias(p, batch, head, i, j) == -(double)INFINITY) return false;
  switch (m->kind) {
  case ATTN_MASK_NONE:
    return true;
  case ATTN_MASK_PREFIX:
    return j < m->size || j <= position;
  case ATTN_MASK_BLOCK_CAUSAL:
    return position >= 0 && j / m->size <= position / m->size;
  case ATTN_MASK_DOCUMENTS:
    for (int64_t d = 0; d < m->count; d++)
      together |= j >= m->offsets[d] && j < m->offsets[d + 1] && position >= m->offsets[d] &&
                  position < m->offsets[d + 1];
    return together;
  case ATTN_MASK_PATTERN:
    for (int64_t r = 0; r < graph_count; r++)
      in_graph |= j >= graph[r].first && j < graph[r].first + graph[r].count;
    return in_graph;
  }
  return false;
}

int64_t oracle_keys(const inputs *in, const attn_pattern *pattern, int64_t batch, int64_t head, int64_t i,
                    int64_t *keys) {
  const attn_problem *p = &in->problem;
  int64_t position = i + p->n_kv - p->n_q, end = inputs_keys(in, batch), count = 0;
  attn_run every = {0, p->n_kv, 1}, *runs = &every, *graph = NULL;
  int64_t run_count = 1, graph_count = 0;
  if (pattern) runs = runs_of(pattern, head, position, &run_count);
  if (p->mask.kind == ATTN_MASK_PATTERN) graph = runs_of(p->mask.pattern, head, position, &graph_count);
  for (int64_t r = 0; r < run_count; r++)
    for (int64_t t = 0; t < runs[r].count; t++) {
      int64_t j = runs[r].first + t * runs[r].step;
      if (j < end && problem_sees(p, batch, head, i, j, graph, graph_count)) keys[count++] = j;
    }
  if (pattern) free(runs);
  free(graph);
  return count;
}

attn_rounding sequential_rounding(const attn_problem *p) {
  double u = attn_numbers[p->dtype].unit;
  return (attn_rounding){.unit = u,
                         .score = p->d_qk,
                         .value = p->n_kv,
                         .sum = p->n_kv,
                         .exp_error = 4 * u,
                         .kappa_s = 3,
                         .kappa_d = 2};
}

/* One row: its scores, their absolute counterparts sum |q||k|, and the values it averages. */
typedef struct row {
  const attn_problem *problem;
  const void *q, *k, *v; /* row 0 of the head */
  int64_t batch, head, i, count;
  int64_t *keys; /* -1: the sink, a key of value 0 */
  long double *s, *p, max, z;
  double *a, *h, *b; /* b: of the score's transforms, in units of u; the last of the map's error */
  const slot_errors *errors;
  double key_sum_max; /* of sum_l |k_jl| + |q_l|, for products that underflow */
} row;

static double row_value(const row *r, int64_t t, int64_t l) {
  if (r->keys[t] < 0) return 0;
  const attn_stride s = r->problem->v;
  return element_at(attn_stored(s, r->problem->dtype), r->v, r->keys[t] * s.row + l);
}

/* The score after its transforms; *roundings: u times this is what adding the biases costs; *map: the
 * magnitude after the map, of which the map's own error is a part. */
static long double transformed(const row *r, int64_t j, long double s, double *roundings, double *map) {
  const attn_problem *p = r->problem;
  const attn_score *x = &p->score;
  *roundings = 0;
  if (x->softcap > 0) s = (long double)x->softcap * tanhl(s / (long double)x->softcap);
  if (x->leaky > 0 && s < 0) s *= (long double)x->leaky, *roundings += (double)fabsl(s);
  *map = x->softcap > 0 ? (double)fabsl(s) : 0;
  if (x->relative) {
    int64_t at = r->i + p->n_kv - p->n_q - j + x->zero;
    at = at < 0 ? 0 : at > x->span - 1 ? x->span - 1 : at;
    double b = x->relative[(x->relative_heads > 1 ? r->head : 0) * x->span + at];
    s += (long double)b;
    *roundings += 3 * fabs(b);
  }
  double dense = dense_bias(p, r->batch, r->head, r->i, j);
  s += (long double)dense;
  if (x->dense.at) *roundings += 3 * fabs(dense);
  if (x->relative || x->dense.at) *roundings += 2 * (double)fabsl(s) + 2 * fabs(dense);
  return s;
}

static void row_scores(row *r) {
  const attn_problem *p = r->problem;
  r->max = -(long double)INFINITY;
  for (int64_t t = 0; t < r->count; t++) {
    if (r->keys[t] < 0) {
      r->s[t] = (long double)p->score.sink[r->head];
      r->b[2 * t] = 2 * fabs(p->score.sink[r->head]);
      if (!(r->s[t] <= r->max)) r->max = r->s[t];
      continue;
    }
    long double dot = 0;
    double absolute = 0, sums = 0;
    for (int64_t l = 0; l < p->d_qk; l++) {
      double q = element_at(attn_stored(p->q, p->dtype), r->q, r->i * p->q.row + l);
      double k = element_at(attn_stored(p->k, p->dtype), r->k, r->keys[t] * p->k.row + l);
      dot += (long double)q * (long double)k;
      absolute += fabs(q * k);
      sums += fabs(q) + fabs(k);
    }
    r->s[t] = transformed(r, r->keys[t], (long double)p->scale * dot, &r->b[2 * t], &r->b[2 * t + 1]);
    r->a[t] = absolute;
    if (sums > r->key_sum_max) r->key_sum_max = sums;
    if (!(r->s[t] <= r->max)) r->max = r->s[t];
  }
  r->z = 0;
  for (int64_t t = 0; t < r->count; t++) r->z += r->p[t] = expl(r->s[t] - r->max);
}

/* Error that underflow leaves in a product. */
static double least(const attn_problem *p, const attn_rounding *d) {
  return d->underflow > 0 ? d->underflow : attn_numbers[p->dtype].subnormal;
}

static void row_log_errors(row *r, const attn_rounding *d, bool every_key) {
  const attn_problem *p = r->problem;
  double u = d->unit, tiny = least(p, d), e_max = 0, operands = d->operand * (2 + d->operand);
  double c = fabs(p->scale), g = oracle_gamma((double)d->score + 2, u) * (1 + operands) + operands;
  for (int64_t t = 0; t < r->count; t++) {
    r->h[t] = g * c * r->a[t] + 2 * tiny * ((double)p->d_qk * (c + 1) + r->key_sum_max);
    r->h[t] += u * (1 + 8 * u) * r->b[2 * t] + d->map * r->b[2 * t + 1];
    for (int64_t l = 0; r->errors && r->keys[t] >= 0 && l < p->d_qk; l++)
      r->h[t] += c * fabs(element_at(attn_stored(p->q, p->dtype), r->q, r->i * p->q.row + l)) *
                 r->errors->k[r->keys[t] * p->d_qk + l];
    if (!(r->h[t] <= e_max)) e_max = r->h[t];
  }
  /* A row is rescaled once per later step at most, and never more often than it has keys. Over a pattern the
   * steps of its tile may begin at any run. */
  int64_t steps = d->block > 0 ? (p->n_kv + d->block - 1) / d->block + (every_key ? 0 : r->count) : 1;
  for (int64_t t = 0; t < r->count; t++) {
    int64_t later = steps - 1 - (every_key && d->block > 0 ? r->keys[t] / d->block : 0);
    if (later > r->count - 1) later = r->count - 1;
    double e = r->h[t];
    r->h[t] = e + d->kappa_s * u * (1 + u) * ((double)(r->max - r->s[t]) + e + e_max) -
              (1 + (double)later) * log1p(-d->exp_error) - log1p(-d->weight);
  }
}

/* FP-1 of the row under a descriptor: adds what |v - o| and |v| are multiplied by, for each key. */
static void row_factors(row *r, const attn_rounding *d, bool every_key, double *spread, double *sums) {
  double g = oracle_gamma((double)(d->value + d->sum) + d->kappa_d, d->unit), low = 0;
  g = g * (1 + d->operand) + d->operand;
  row_log_errors(r, d, every_key);
  for (int64_t t = 0; t < r->count; t++) low += (double)(r->p[t] / r->z) * exp(-r->h[t]);
  for (int64_t t = 0; t < r->count; t++) {
    const double w = (double)(r->p[t] / r->z) / low;
    /* An infinity times a value of 0 would be no bound. */
    spread[t] = fmin(spread[t] + w * expm1(r->h[t]), DBL_MAX);
    sums[t] = fmin(sums[t] + g * w * exp(r->h[t]), DBL_MAX);
  }
}

/* The bound [d_v] of both descriptors' roundings together, and of what values carry. */
static void row_bound(row *r, const attn_rounding *const d[2], bool every_key, const double *o,
                      double *bound) {
  const attn_problem *p = r->problem;
  const double n = (double)r->count, normal = attn_numbers[p->dtype].normal,
               tiny = least(p, d[0]) + least(p, d[1]);
  double *spread = calloc_or_abort((size_t)r->count, sizeof *spread),
         *sums = calloc_or_abort((size_t)r->count, sizeof *sums);
  for (int k = 0; k < 2; k++) row_factors(r, d[k], every_key, spread, sums);
  for (int64_t l = 0; l < p->d_v; l++) {
    double sum = 0, carried = 0, lowest = (double)INFINITY, most = -(double)INFINITY;
    for (int64_t t = 0; t < r->count; t++) {
      const double v = row_value(r, t, l);
      sum += spread[t] * fabs(v - o[l]) + sums[t] * fabs(v);
      if (r->errors && r->keys[t] >= 0) carried = fmax(carried, r->errors->v[r->keys[t] * p->d_v + l]);
      if (v < lowest) lowest = v;
      if (v > most) most = v;
    }
    const double largest = fmax(fabs(lowest), fabs(most));
    bound[l] =
        1.000001 * sum + 2 * carried + 2 * n * normal * (most - lowest) + 2 * (n + 1) * tiny * (1 + largest);
  }
  free(spread);
  free(sums);
}

void oracle_row(const inputs *in, const attn_rounding *rounding, const slot_errors *errors, int64_t batch,
                int64_t head, int64_t i, const int64_t *keys, int64_t count, bool every_key, double *o,
                double *bound) {
  const attn_problem *p = &in->problem;
  const bool sink = p->score.sink && count;
  size_t n = (size_t)count + 1;
  int64_t kv_head = head / (p->heads / p->kv_heads);
  row r = {.problem = p,
           .q = head_rows(in, TENSOR_Q, batch, head),
           .k = head_rows(in, TENSOR_K, batch, kv_head),
           .v = head_rows(in, TENSOR_V, batch, kv_head),
           .batch = batch,
           .head = head,
           .i = i,
           .count = count + (sink ? 1 : 0),
           .errors = errors,
           .keys = calloc_or_abort(n, sizeof *r.keys),
           .b = calloc_or_abort(n, 2 * sizeof *r.b),
           .s = calloc_or_abort(n, sizeof *r.s),
           .p = calloc_or_abort(n, sizeof *r.p),
           .a = calloc_or_abort(n, sizeof *r.a),
           .h = calloc_or_abort(n, sizeof *r.h)};
  double *exact = calloc_or_abort((size_t)p->d_v, sizeof *exact);
  for (int64_t t = 0; t < count; t++) r.keys[t] = keys[t];
  r.keys[count] = -1;
  if (count) row_scores(&r);
  for (int64_t l = 0; l < p->d_v && count; l++) {
    long double sum = 0;
    for (int64_t t = 0; t < r.count; t++) sum += r.p[t] * (long double)row_value(&r, t, l);
    exact[l] = (double)(sum / r.z);
  }
  for (int64_t l = 0; l < p->d_v; l++) {
    if (o) o[l] = exact[l];
    if (bound) bound[l] = 0;
  }
  if (bound && rounding && count) {
    attn_rounding own = sequential_rounding(p);
    own.unit = (double)LDBL_EPSILON / 2;
    own.exp_error = 2 * (double)LDBL_EPSILON;
    own.map = p->score.softcap > 0 ? 4 * (double)LDBL_EPSILON : 0;
    row_bound(&r, (const attn_rounding *const[]){rounding, &own}, every_key, exact, bound);
    for (int64_t l = 0; l < p->d_v; l++)
      bound[l] += fabs(exact[l]) * DBL_EPSILON / 2; /* o is stored in fp64 */
    /* What is stored in 16 bits is rounded once more: |o'| u, or half the least number. */
    const attn_number *stored = &attn_numbers[attn_stored(p->o, p->dtype)];
    for (int64_t l = 0; l < p->d_v && p->o.stored; l++)
      bound[l] += (fabs(exact[l]) + bound[l]) * stored->unit + stored->subnormal / 2;
  }
  free(r.keys);
  free(r.b);
  free(r.s);
  free(r.p);
  free(r.a);
  free(r.h);
  free(exact);
}

void oracle_free(oracle *x) {
  free(x->o);
  free(x->bound);
  *x = (oracle){0};
}

static int number_class(double x) { return isnan(x) ? 0 : isinf(x) ? (x > 0 ? 1 : 2) : 3; }

void expect_within(const attn_problem *p, const void *o, const oracle *expected, const char *what) {
  if (!o || !expected->o) return; /* the failed run is noted already */
  double worst = 0;
  int64_t where[4] = {0}, bad = 0;
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++)
      for (int64_t i = 0; i < p->n_q; i++)
        for (int64_t l = 0; l < p->d_v; l++) {
          size_t at = output_index(p, b, h, i, l);
          double got = output_get(p, o, b, h, i, l), want = expected->o[at], err = fabs(got - want);
          bool finite = number_class(want) == 3;
          if (finite ? err <= expected->bound[at] : number_class(got) == number_class(want)) continue;
          double ratio = finite && isfinite(err) ? err / expected->bound[at] : (double)INFINITY;
          if (!bad++ || ratio > worst) {
            worst = ratio;
            int64_t here[] = {b, h, i, l};
            for (int k = 0; k < 4; k++) where[k] = here[k];
          }
        }
  if (!bad) return;
  size_t at = output_index(p, where[0], where[1], where[2], where[3]);
  note_failure("%s: %d of %d outputs are off, worst at %d,%d,%d,%d: %.9g, expected %.9g within %.3g", what,
               (int)bad, (int)output_count(p), (int)where[0], (int)where[1], (int)where[2], (int)where[3],
               output_get(p, o, where[0], where[1], where[2], where[3]), expected->o[at],
               expected->bound[at]);
}

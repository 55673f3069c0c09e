/* means.c - see means.h. */
#include "experiments/evidence/weights/means.h"

#include "experiments/evidence/weights/law.h"
#include "experiments/mathematics/statistics.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static const double fp64 = 1e-9; /* of a sum's largest terms: what its rounding stays below */
static const uint64_t purpose_signs = 0x7369676e; /* "sign" */

/* -- a row and its law -- */

static void exact_weights(const attn_call *call, weight_line *l) {
  const attn_problem *p = call->context->problem;
  double top = -(double)INFINITY, sum = 0;
  for (int64_t j = 0; j < l->end; j++) {
    l->p[j] = 0;
    for (int64_t c = 0; c < p->d_qk; c++)
      l->p[j] +=
          attn_get(call->q, l->i * p->d_qk + c, p->dtype) * attn_get(call->k, j * p->d_qk + c, p->dtype);
    l->p[j] *= p->scale;
    top = fmax(top, l->p[j]);
  }
  for (int64_t j = 0; j < l->end; j++) sum += l->p[j] = exp(l->p[j] - top);
  for (int64_t j = 0; j < l->end; j++) l->p[j] /= sum;
}

static void columns(const attn_call *call, uint64_t seed, weight_line *l) {
  const attn_problem *p = call->context->problem;
  double mean[WEIGHT_COLUMNS] = {0};
  attn_rng rng;
  attn_rng_init(&rng, seed, purpose_signs, 0);
  for (int64_t j = 0; j < l->end * WEIGHT_COLUMNS; j++) l->x[j] = j % WEIGHT_COLUMNS == 0;
  for (int c = 1; c < WEIGHT_COLUMNS; c++)
    for (int64_t a = 0; a < p->d_v; a++) {
      const double sign = attn_rng_below(&rng, 2) ? 1 : -1;
      for (int64_t j = 0; j < l->end; j++)
        l->x[j * WEIGHT_COLUMNS + c] += sign * attn_get(call->v, j * p->d_v + a, p->dtype);
    }
  for (int64_t j = 0; j < l->end; j++)
    for (int c = 1; c < WEIGHT_COLUMNS; c++) mean[c] += l->p[j] * l->x[j * WEIGHT_COLUMNS + c];
  for (int c = 0; c < WEIGHT_COLUMNS; c++) l->least[c] = DBL_MIN;
  for (int64_t j = 0; j < l->end; j++)
    for (int c = 0; c < WEIGHT_COLUMNS; c++) {
      double *x = &l->x[j * WEIGHT_COLUMNS + c];
      l->least[c] = fmax(l->least[c], fp64 * fabs(*x));
      *x -= mean[c];
    }
}

/* Of keys that may be drawn several times: how many draws there are (law.h); 0: once at most, or unknown. */
static double draws_of(const attn_selector *x, const double *m, int64_t count) {
  for (int64_t a = 0; x->repeats && a + 1 < count; a++)
    for (int64_t b = a + 1; b < count && !weight_always(m, count, a); b++)
      if (!weight_always(m, count, b)) return m[a * count + b] < 0 ? -1 / m[a * count + b] : 0;
  return 0;
}

/* By the moments: a weight that is a number or 0, of mean 1, has the mean square of the number; of n draws of
 * one key, 1 - 1/n and the number. */
void weight_law_find(weight_law *law, const weight_line *l, const attn_selector *x, const attn_query *query,
                     const int64_t *keys) {
  weight_moments(x, query, keys, l->end, law->m);
  weight_variances(law->m, l->end, l->p, l->x, WEIGHT_COLUMNS, law->variance);
  law->draws = draws_of(x, law->m, l->end);
  for (int64_t j = 0; j < l->end; j++) {
    const double excess = law->m[j * l->end + j];
    law->log_weight[j] = excess == 0 ? 0 : law->draws > 0 ? log(excess + 1 / law->draws) : log1p(excess);
  }
}

attn_status weight_line_make(weight_line *l, const attn_selector *x, const attn_call *call, int64_t i,
                             uint64_t seed, const int64_t *keys) {
  const attn_problem *p = call->context->problem;
  l->i = i;
  l->end = p->causal ? attn_problem_position(p, i) + 1 : p->n_kv;
  l->p = malloc((size_t)l->end * (WEIGHT_COLUMNS + 2) * sizeof(double));
  l->law.m = malloc((size_t)(l->end * l->end) * sizeof(double));
  if (!l->p || !l->law.m) return attn_fail(ATTN_ENOMEM, "no memory for a row of weights");
  l->x = l->p + l->end;
  l->law.log_weight = l->x + l->end * WEIGHT_COLUMNS;
  exact_weights(call, l);
  columns(call, seed, l);
  weight_law_find(&l->law, l, x, &(attn_query){.call = call, .i = i}, keys);
  return ATTN_OK;
}

void weight_line_free(weight_line *l) {
  free(l->p);
  free(l->law.m);
}

bool weight_law_holds(const weight_line *l, const attn_selector *x, const double *weight) {
  static const double near = 0x1p-20;
  bool once = !x->repeats;
  for (int64_t j = 0; j < l->end; j++) {
    const bool certain = weight_always(l->law.m, l->end, j);
    if (!(weight[j] > 0)) {
      if (certain) return false;
      continue;
    }
    const double times = weight[j] * exp(-l->law.log_weight[j]),
                 whole = x->repeats && !certain ? fmax(1, round(times)) : 1;
    if (fabs(times - whole) > near * whole) return false;
    once = once || (!certain && whole < 2);
  }
  return once;
}

/* -- what is asked -- */

static double kept(const weight_line *l, const weight_law *law, int64_t a) {
  return weight_always(law->m, l->end, a) ? 1 : inclusion_probability(law->log_weight[a], law->draws);
}

static double both(const weight_line *l, const weight_law *law, int64_t a, int64_t b) {
  if (weight_always(law->m, l->end, a)) return kept(l, law, b);
  if (weight_always(law->m, l->end, b)) return kept(l, law, a);
  return joint_inclusion_probability(law->log_weight[a], law->log_weight[b], law->m[a * l->end + b],
                                     law->draws);
}

/* The mean of a test and the deviation of a draw, by the law. False: it gives no numbers. */
static bool state(const weight_line *l, const weight_law *law, const weight_test *t, double *mean,
                  double *deviation) {
  if (t->kind == WEIGHT_SUM || t->kind == WEIGHT_VALUES) {
    *mean = t->kind == WEIGHT_SUM;
    *deviation = sqrt(law->variance[t->a]);
    if (*deviation < l->least[t->a]) *deviation = l->least[t->a];
  } else {
    *mean = t->kind == WEIGHT_KEPT ? kept(l, law, t->a) : both(l, law, t->a, t->b);
    *deviation = fmax(sqrt(fmax(*mean * (1 - *mean), 0)), 1e-6);
  }
  return isfinite(*mean) && isfinite(*deviation);
}

static void add_test(weight_draws *d, weight_kind kind, int r, int64_t a, int64_t b, const weight_line *l) {
  weight_test *t = &d->test[d->count];
  *t = (weight_test){.kind = kind, .row = r, .a = a, .b = b, .off = d->off + d->count * d->draws};
  d->count += state(l, &l->law, t, &t->mean, &t->deviation);
}

/* Keys with a fair chance, or else any that are drawn; evenly, with the first and the last of them. */
void weight_ask(weight_draws *d, int r, const weight_line *l, const attn_selector *x, int64_t *room) {
  const weight_law *law = &l->law;
  int64_t count = 0;
  for (int wide = 0; wide < 2 && count < 2; wide++) {
    count = 0;
    for (int64_t j = 0; j < l->end; j++) {
      const double chance = kept(l, law, j);
      if (chance < 1 && (wide || (chance >= 0.1 && chance <= 0.9))) room[count++] = j;
    }
  }
  const int64_t keys = count < WEIGHT_KEYS ? count : WEIGHT_KEYS;
  for (int64_t k = 0; k < keys; k++) {
    const int64_t key = room[keys > 1 ? k * (count - 1) / (keys - 1) : 0];
    add_test(d, WEIGHT_KEPT, r, key, key, l);
  }
  /* Neighbours, and keys far apart. */
  for (int64_t k = 0; k < WEIGHT_PAIRS && count > 1 && (!x->repeats || law->draws > 0); k++) {
    const int64_t at = k / 2 * (count - 1) / (WEIGHT_PAIRS / 2), far = count / 2 > 1 ? count / 2 : 1;
    add_test(d, WEIGHT_BOTH, r, room[at], room[(at + (k % 2 ? far : 1)) % count], l);
  }
  for (int c = 0; c < WEIGHT_COLUMNS; c++) add_test(d, c ? WEIGHT_VALUES : WEIGHT_SUM, r, c, c, l);
}

static double sum_of(const weight_line *l, const double *weight, int64_t column) {
  double sum = 0;
  for (int64_t j = 0; j < l->end; j++) sum += l->p[j] * weight[j] * l->x[j * WEIGHT_COLUMNS + column];
  return sum;
}

static double seen_in(const weight_line *l, const weight_test *t, const double *weight) {
  switch (t->kind) {
  case WEIGHT_KEPT:
    return weight[t->a] > 0;
  case WEIGHT_BOTH:
    return weight[t->a] > 0 && weight[t->b] > 0;
  case WEIGHT_SUM:
  case WEIGHT_VALUES:
    break;
  }
  return sum_of(l, weight, t->a);
}

void weight_note(weight_draws *d, int r, int64_t t, const weight_line *l, const weight_law *law,
                 const attn_selector *x, const double *weight) {
  for (int64_t at = 0; at < d->count; at++) {
    const weight_test *test = &d->test[at];
    double mean, deviation;
    if (test->row != r) continue;
    const bool stated = state(l, law, test, &mean, &deviation);
    const double seen = seen_in(l, test, weight);
    test->off[t] = stated ? (seen - mean) / deviation : 0;
    if (test->kind != WEIGHT_SUM || fabs(seen - 1) <= x->epsilon * (1 + fp64)) continue;
#pragma omp atomic
    d->missed[r]++;
  }
}

const weight_test *weight_draws_worst(const weight_draws *d, const bool kinds[WEIGHT_VALUES + 1], double *p,
                                      int64_t *tests) {
  const weight_test *worst = NULL;
  double lowest = 2;
  *tests = 0;
  for (int64_t at = 0; at < d->count; at++) {
    if (!kinds[d->test[at].kind]) continue;
    const double own = mean_p_value(d->test[at].off, d->draws, 0, 1, 0);
    ++*tests;
    if (own >= lowest) continue;
    lowest = own;
    worst = &d->test[at];
  }
  *p = worst ? fmin(1, lowest * (double)*tests) : 1;
  return worst;
}

/* law_weights.c - LAW-4, LAW-5: the weights of a run's own keys, one by one and together. Where LAW-2 needs
 * thousands of draws to see a wrong weight in a mean, these see it in one. */
#include "experiments/checks/selection/selection_picks.h"
#include "experiments/checks/tails/run_law.h"

#include "experiments/evidence/weights/law.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 8, KEYS = 256, LOOK = 64, ALL_KEYS = 1024 };
/* Probabilities come of angles, whose fp64 error grows with the number of hashes; far below 1/m for any
 * number m of draws. */
static const double known = 0x1p-20;

/* E w^2 - 1 of one key: 0 where it is always taken. */
static double excess_of(const attn_selector *x, const attn_query *query, int64_t key) {
  double m;
  weight_moments(x, query, &key, 1, &m);
  return m;
}

/* The picked keys that the row sees, in s->index with their log-weights; how many of them are looked at at a
 * time. */
static int64_t see(const pick_case *c) {
  const row_case *row = c->row;
  row_space *s = row->space;
  int64_t count = 0;
  row_support(row->head, NULL, row->row->i, s);
  for (int64_t r = 0; r < c->count; r++)
    for (int64_t j = c->runs[r].first; j < c->runs[r].first + c->runs[r].count; j++) {
      if (!s->inside[j]) continue;
      s->index[count] = j;
      s->log_weight[count++] = c->log_weights ? c->log_weights[r] : 0;
    }
  s->count = count;
  return count / KEYS + 1;
}

/* How far the weight is from a whole multiple of the law's. */
static double off_by(const attn_selector *x, double given, double law) {
  if (!x->repeats) return fabs(given - law);
  const double times = fmax(1, round(exp(given - law)));
  return fabs(given - law - log(times));
}

static bool finite_inputs(const row_case *c) {
  bool finite = c->head->finite;
  for (int64_t l = 0; l < c->e->problem->d_qk; l++) finite = finite && isfinite(c->space->q[l]);
  return finite;
}

/* -- LAW-4 -- */

static void judge_weights(const void *context, const pick_case *c, pick_finding *f) {
  const attn_selector *x = context;
  row_space *s = c->row->space;
  const attn_call call = evidence_call(c->row->e);
  const attn_query query = evidence_query(&call, c->row->row);
  const int64_t step = see(c);
  f->x = (outcome)OUTCOME_NONE;
  for (int64_t a = 0; a < s->count; a += step) {
    const int64_t key = s->index[a];
    const double excess = excess_of(x, &query, key);
    if (excess == 0) continue;
    if (isnan(excess) && !finite_inputs(c->row)) {
      f->x = (outcome){.why = row_reason(ROW_INFINITE)};
      return;
    }
    const double given = s->log_weight[a], law = x->log_weight(x->state, &query, key),
                 off = off_by(x, given, law);
    if (outcome_worsen(&f->x, (outcome){.measured = off, .value = known * (1 + fabs(law))}))
      snprintf(f->text, sizeof f->text, "gives key %" PRId64 " the log-weight %.9g, and its law %.9g", key,
               given, law);
    /* The law's own: a weight that is a number or 0, of mean 1, has the mean square of the number. */
    if (x->repeats) continue;
    const outcome own = {.measured = fabs(log1p(excess) - law), .value = known * (1 + fabs(law))};
    if (outcome_worsen(&f->x, own))
      snprintf(f->text, sizeof f->text,
               "has for key %" PRId64 " the log-weight %.9g and a mean square of e^%.9g", key, law,
               log1p(excess));
  }
}

static attn_status weights_evaluate(const evidence *e, result_bound *bound) {
  const char *missing = law_missing(e);
  if (missing) return bound_not_applicable(bound, missing);
  return picks_check(e, ROWS, judge_weights, e->view->selector, bound);
}

const check check_law4 = {
    .name = "LAW-4",
    .of = &of_weighted,
    .kind = KIND_HARD,
    .statement = "the weight of each key that was drawn is the inverse of its probability",
    .source = "derived: the estimator of Horvitz and Thompson 1952",
    .formula = "of the keys drawn for up to 8 judged rows, |log_weight - what the law says of this key|; of "
               "keys that may be drawn several times, from the nearest ln of a whole multiple. And, of the "
               "law itself: |ln M_jj - log_weight|. measured: the largest, against 2^-20 (1 + |log_weight|).",
    .assumes =
        "The selector states its weights' law. Probabilities of hashes come of angles, whose fp64 error "
        "times the hashes is far below 2^-20; so is any number of draws below 10^6 taken for its neighbour "
        "far above. Blind to a law that is wrong itself, which LAW-1 holds against draws.",
    .cause = "ln(N / m) of another N or m, the formula of another number of hits, or weights of other keys",
    .nulls = CHECK_BLIND("it judges the weights, and looks at no output: FP-2, SP-1 and LAW-2 do"),
    .evaluate = weights_evaluate,
};

/* -- LAW-5 -- */

/* Keys that are always taken: once, with weight 1. */
static void judge_certain(const attn_selector *x, const attn_query *query, int64_t step, const row_case *row,
                          pick_finding *f) {
  const row_space *s = row->space;
  const int64_t look = row->keys / LOOK + 1;
  for (int64_t a = 0; a < s->count; a += step) {
    if (excess_of(x, query, s->index[a]) != 0) continue;
    if (outcome_worsen(&f->x, (outcome){.measured = fabs(s->log_weight[a]), .value = known}))
      snprintf(f->text, sizeof f->text, "counts key %" PRId64 ", which it always takes, %.6g times",
               s->index[a], exp(s->log_weight[a]));
  }
  for (int64_t j = 0, a = 0; j < row->keys; j++) {
    if (a < s->count && s->index[a] == j) {
      a++;
      continue;
    }
    if (j % look || !s->inside[j] || excess_of(x, query, j) != 0) continue;
    outcome_worsen(&f->x, (outcome){.measured = 1, .value = known});
    snprintf(f->text, sizeof f->text, "leaves out key %" PRId64 ", which it always takes", j);
  }
}

/* Is the sum of all weights uncorrelated with that of the first key that is drawn? */
static bool may_be_fixed(const attn_selector *x, const attn_query *query, const int64_t *keys,
                         int64_t count) {
  double sum = 0, size = 0;
  int64_t first = 0;
  while (first < count && excess_of(x, query, keys[first]) == 0) first++;
  for (int64_t a = 0; first < count && a < count; a++) {
    double m[4];
    weight_moments(x, query, (const int64_t[]){keys[first], keys[a]}, 2, m);
    const double own = m[a != first];
    sum += own;
    size += fabs(own);
  }
  return size > 0 && isfinite(size) && fabs(sum) <= 0x1p-30 * size;
}

/* Where the law leaves the sum of all weights no variance, it is the number of keys. */
static void judge_total(const attn_selector *x, const attn_query *query, const row_case *row,
                        pick_finding *f) {
  row_space *s = row->space;
  double *m = NULL, sum = 0, total = 0, size = 0, given = 0;
  int64_t count = 0, *keys = malloc((size_t)row->keys * sizeof *keys + 1);
  for (int64_t j = 0; keys && j < row->keys; j++)
    if (s->inside[j]) keys[count++] = j;
  if (keys && count <= ALL_KEYS && may_be_fixed(x, query, keys, count))
    m = malloc((size_t)(count * count) * sizeof *m + 1);
  if (m) {
    weight_moments(x, query, keys, count, m);
    for (int64_t i = 0; i < count * count; i++) sum += m[i], size += fabs(m[i]);
    for (int64_t a = 0, b = 0; a < count; a++) {
      while (b < s->count && s->index[b] < keys[a]) b++;
      if (weight_always(m, count, a)) continue;
      total++;
      if (b < s->count && s->index[b] == keys[a]) given += exp(s->log_weight[b]);
    }
    const outcome own = {.measured = fabs(given / total - 1), .value = known};
    if (total > 0 && fabs(sum) <= 0x1p-30 * size && outcome_worsen(&f->x, own))
      snprintf(f->text, sizeof f->text,
               "draws keys that stand for %.6g keys, and leaves out the others of %.0f", given, total);
  }
  free(m);
  free(keys);
}

static void judge_once(const void *context, const pick_case *c, pick_finding *f) {
  const attn_selector *x = context;
  const attn_call call = evidence_call(c->row->e);
  const attn_query query = evidence_query(&call, c->row->row);
  const int64_t step = see(c);
  f->x = (outcome)OUTCOME_NONE;
  judge_certain(x, &query, step, c->row, f);
  judge_total(x, &query, c->row, f);
}

static attn_status once_evaluate(const evidence *e, result_bound *bound) {
  const char *missing = law_missing(e);
  if (missing) return bound_not_applicable(bound, missing);
  return picks_check(e, ROWS, judge_once, e->view->selector, bound);
}

const check check_law5 = {
    .name = "LAW-5",
    .of = &of_weighted,
    .kind = KIND_HARD,
    .statement = "a key that is always taken counts once, and drawn keys represent the others",
    .source = "derived: a weight without variance is its mean",
    .formula = "of up to 8 judged rows: keys with M_jj = 1 (always taken) are there with log-weight 0; "
               "where sum_jl (M_jl - 1) over the keys that are drawn is 0, the weights of those kept add up "
               "to their number (rows of up to 1024 keys). measured: the largest |log-weight|, and deviation "
               "of the sum from 1 times it, against 2^-20.",
    .assumes =
        "The selector states its weights' law. The sum has no variance where a fixed number of keys is drawn "
        "uniformly, with or without replacement; weights of other probabilities add up to no fixed "
        "number, and a sample of theirs that counts the head twice is seen by its keys alone.",
    .cause = "keys are drawn from all keys, those that are always taken among them, which then count "
             "twice or take the place of others",
    .nulls = CHECK_BLIND("it judges the weights, and looks at no output: FP-2, SP-1 and LAW-2 do"),
    .evaluate = once_evaluate,
};

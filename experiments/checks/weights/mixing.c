/* mixing.c - PROP-DOB: rows of non-negative weights of sum 1 contract: two rows differ in a component of the
 * output by at most their distance in total variation times the range of the component,
 *
 *   |o_il - o_i'l| = |sum_j (p_ij - p_i'j) v_jl| <= |p_i - p_i'|_1 (max_j v_jl - min_j v_jl) / 2.
 *
 * The largest total variation is Dobrushin's coefficient, by which a layer brings tokens together (rank
 * collapse). The weights are measured, not taken from a law: keys are thrown into groups, some columns of V
 * are 1 on one group each, and the others are constant on groups, in one execution. Grouping makes total
 * variations smaller, and the inequality holds of groups as of keys. */
#include "experiments/checks/check_table.h"
#include "experiments/checks/weights/ready.h"

#include "experiments/evidence/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16 };
static const uint64_t purpose_groups = 0x646f62; /* "dob" */

/* Columns 0 ... groups - 1 are groups; the others have values of their own for each. */
typedef struct mixture {
  const head_data *ones;
  const probe *p;
  int64_t groups;
  double *v, *value, *o, *range; /* [n_kv, d_v], [groups, d_v], [n_q, d_v], [d_v] */
  double rounding[ROWS];         /* of a number in each row */
  const char *why[ROWS];         /* there is no bound */
} mixture;

static void draw(mixture *x) {
  const int64_t d_v = x->p->problem.d_v;
  attn_rng rng;
  attn_rng_init(&rng, x->p->e.seed, purpose_groups, 0);
  for (int64_t l = 0; l < d_v; l++) {
    double low = 1, high = 0;
    for (int64_t g = 0; g < x->groups; g++) {
      const double drawn = attn_rng_bits(&rng) >> 63 ? 1 : 0, own = l < x->groups ? l == g : drawn;
      x->value[g * d_v + l] = own;
      low = fmin(low, own);
      high = fmax(high, own);
    }
    x->range[l] = high - low;
  }
  for (int64_t j = 0; j < x->p->head.keys; j++)
    memcpy(x->v + j * d_v, x->value + attn_rng_below(&rng, x->groups) * d_v, (size_t)d_v * sizeof *x->v);
}

/* The computed weights are the same in every column: what is left is the rounding of values that are all
 * 1. */
static void bound_row(void *context, int64_t place, int64_t row, row_space *s) {
  mixture *x = context;
  row_verdict verdict = probe_bound(x->p, x->ones, NULL, row, s);
  if (verdict == ROW_OK && !isfinite(s->bound[0])) verdict = ROW_INFINITE;
  x->why[place] = verdict != ROW_OK ? row_reason(verdict) : s->count ? NULL : outcome_nothing;
  x->rounding[place] = s->bound[0];
}

static outcome judge_pair(const mixture *x, const double *a, const double *b, double rounding,
                          double *variation) {
  outcome worst = OUTCOME_NONE;
  *variation = 0;
  for (int64_t g = 0; g < x->groups; g++) *variation += fabs(a[g] - b[g]) / 2;
  for (int64_t l = x->groups; l < x->p->problem.d_v; l++)
    outcome_worsen(
        &worst, (outcome){.measured = fabs(a[l] - b[l]),
                          .value = (*variation + (double)x->groups / 2 * rounding) * x->range[l] + rounding});
  return worst;
}

static void judge_pairs(const mixture *x, const int64_t *rows, int64_t count, outcome *worst, double *most) {
  const int64_t d_v = x->p->problem.d_v;
  for (int64_t a = 0; a < count; a++)
    for (int64_t b = 0; b <= a; b++) {
      double variation = 0;
      const char *why = x->why[a] ? x->why[a] : x->why[b];
      if (a == b && !why) continue;
      outcome_worsen(worst, why ? (outcome){.why = why}
                                : judge_pair(x, x->o + rows[a] * d_v, x->o + rows[b] * d_v,
                                             x->rounding[a] + x->rounding[b], &variation));
      *most = fmax(*most, variation);
    }
}

static attn_status mix(mixture *x, result_bound *bound) {
  head_data ones = {.k = NULL};
  outcome worst = OUTCOME_NONE;
  int64_t rows[ROWS] = {0};
  double most = 0;
  const int64_t count = probe_pick(x->p, ROWS, rows);
  attn_status status = head_data_ones(probe_inner(x->p), &ones);
  x->ones = &ones;
  draw(x);
  if (!status) status = probe_execute(x->p, x->p->head.k, x->v, x->o);
  if (!status) status = probe_rows(x->p, rows, count, bound_row, x);
  if (!status) judge_pairs(x, rows, count, &worst, &most);
  if (!status) outcome_to_verdict(&worst, bound);
  if (!status && bound->verdict == VERDICT_PASS)
    bound_say(bound, "Dobrushin's coefficient is at least %.3g", most);
  head_data_free(&ones);
  return status;
}

static attn_status mixing_evaluate(const evidence *e, result_bound *bound) {
  const int64_t d_v = e->problem->d_v;
  probe *p = NULL;
  if (d_v < 3) return bound_not_applicable(bound, "values of fewer than three components hold no groups");
  attn_status status = probe_ready(e, bound, &p);
  if (status || !p) return status;
  mixture x = {.p = p, .groups = (d_v + 1) / 2};
  x.v = region_zeros(e->memory, p->problem.n_kv * d_v, sizeof *x.v);
  x.value = region_zeros(e->memory, x.groups * d_v, sizeof *x.value);
  x.o = region_zeros(e->memory, p->problem.n_q * d_v, sizeof *x.o);
  x.range = region_zeros(e->memory, d_v, sizeof *x.range);
  status = region_status(e->memory, "for the groups of a probe");
  return status ? status : mix(&x, bound);
}

const check check_prop_dob = {
    .name = "PROP-DOB",
    .of = &of_convex,
    .kind = KIND_HARD,
    .statement =
        "two rows differ in the output by at most the total variation of their weights times the range",
    .source = "Dobrushin 1956: rows that are not negative and sum to 1 contract oscillations",
    .formula =
        "|o^_il - o^_i'l| <= sum_g |P^_ig - P^_i'g| / 2 (max_g w_gl - min_g w_gl) + rounding, for 16 rows in "
        "pairs: keys in random groups g, P^ the outputs of columns that are 1 on a group, o^ those of "
        "columns that are 0 or 1 on groups, w_gl. Passing cells say the largest total variation.",
    .assumes = "Declared: weights that are not negative and sum to 1; three components of V. Runs the "
               "algorithm again on a probe.",
    .cause =
        "a row is divided by another row's sum, columns of V meet different weights, or V enters the weights",
    .nulls =
        CHECK_BLIND("zeros, equal weights and keys chosen by position are the same rows, or convex weights"),
    .evaluate = mixing_evaluate,
};

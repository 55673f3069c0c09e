/* prop.c - PROP-ONES, PROP-HULL, PROP-PERM, PROP-SHIFT: the properties of exact attention that a variant
 * keeps, each checked where its view declares it.
 *
 * All but PROP-HULL on softmax engines run on a probe: they judge the algorithm, on other inputs, and see the
 * run's output only as the base of PERM and SHIFT for softmax engines. Zeros are rejected by PROP-ONES, and
 * by PROP-HULL where the values of a component have one sign; PERM and SHIFT are blind to an algorithm that
 * writes zeros. The mean of V and random keys chosen by position are convex combinations: PROP-ONES,
 * PROP-HULL and (with fixed weights) SHIFT are blind to them; PERM rejects random keys by position, and is
 * blind to the mean of V, which is invariant. */
#include "experiments/checks/check_table.h"
#include "experiments/checks/weights/ready.h"

#include "experiments/evidence/rows.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 16 };
static const uint64_t purpose_permutation = 0x7065726d, purpose_shift = 0x73686966;

/* Up to 16 rows of the probe's own output, and another one that a judge compares with. */
typedef struct compared {
  const probe *p;
  const head_data *head;
  const double *other;
} compared;

static attn_status compare_rows(const probe *p, const head_data *h, probe_judge *judge, const double *other,
                                result_bound *bound) {
  return probe_check(p, ROWS, judge, &(compared){p, h, other}, bound);
}

/* -- V = 1 gives 1 -- */

/* Column 0 of the planted output, and the sum of the others, where each key has one 1. */
static outcome judge_ones(void *context, int64_t place, int64_t r, row_space *s) {
  const compared *c = context;
  int64_t d_v = c->p->problem.d_v;
  const double *o = c->other + r * d_v;
  double sum = 0;
  row_verdict verdict = probe_bound(c->p, c->head, NULL, r, s);
  (void)place;
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  const double one = s->count > 0;
  outcome worst = outcome_components(o, &one, s->bound, 1);
  for (int64_t l = 1; l < d_v; l++) sum += o[l];
  if (d_v > 1)
    outcome_worsen(&worst, (outcome){.measured = fabs(sum - one), .value = (double)(d_v - 1) * s->bound[0]});
  return worst;
}

/* Judges rows of the planted output, whose rounding is at most that of values which are all 1. */
static attn_status planted_check(probe *p, probe_judge *judge, result_bound *bound) {
  head_data ones = {0};
  attn_status status = probe_plant(p);
  if (!status) status = head_data_ones(probe_inner(p), &ones);
  if (!status) status = compare_rows(p, &ones, judge, p->planted, bound);
  head_data_free(&ones);
  return status;
}

static attn_status ones_evaluate(const evidence *e, result_bound *bound) {
  probe *p = NULL;
  attn_status status = probe_ready(e, bound, &p);
  return status || !p ? status : planted_check(p, judge_ones, bound);
}

/* -- the output lies in the hull of V -- */

/* |x - middle| <= half the range and what rounding adds, which is the value. */
static outcome within(double x, double low, double high, double rounding) {
  return (outcome){.measured = fabs(x - (low + high) / 2), .value = (high - low) / 2 + rounding};
}

/* Softmax engines, on the run's output: whatever the computed weights are, they are not negative and the
 * quotient of the sums is off by growth max|v_l|. Components and a few random directions g:
 * min g.v_j - sum |g_l| slack_l <= g.o <= max g.v_j + ... */
static outcome judge_hull(const evidence *e, const row_facts *f, const double *given) {
  int64_t d_v = e->problem->d_v;
  outcome worst = OUTCOME_NONE;
  if (f->support == 0) return worst;
  if (f->hulled != ROW_OK) return (outcome){.why = row_reason(f->hulled)};
  for (int64_t l = 0; l < d_v; l++)
    outcome_worsen(&worst, within(given[l], f->low[l], f->high[l], f->slack[l]));
  for (int t = 0; t < ROW_DIRECTIONS; t++) {
    double own = 0, slack = 0;
    for (int64_t l = 0; l < d_v; l++) {
      double g = row_direction(e, t, l), size = fmax(fabs(f->low[l]), fabs(f->high[l]));
      own += g * given[l];
      slack += fabs(g) * (f->slack[l] + gamma_of(d_v + 2, 0x1p-53) * size);
    }
    outcome_worsen(&worst, within(own, f->least[t], f->most[t], slack));
  }
  return worst;
}

/* The support and the run's row are set, and in space->bound what rounding may add to each component. */
static outcome hull_row(const head_data *h, const row_space *s) {
  int64_t d_v = h->problem->d_v;
  outcome worst = OUTCOME_NONE;
  for (int64_t l = 0; l < d_v && s->count > 0; l++) {
    double low = (double)INFINITY, high = -(double)INFINITY;
    for (int64_t a = 0; a < s->count; a++) {
      double x = h->v[s->index[a] * d_v + l];
      low = x < low ? x : low;
      high = x > high ? x : high;
    }
    outcome_worsen(&worst, within(s->given[l], low, high, s->bound[l]));
  }
  return worst;
}

static outcome judge_probe_hull(void *context, int64_t place, int64_t r, row_space *s) {
  const compared *c = context;
  row_verdict verdict = probe_bound(c->p, c->head, NULL, r, s);
  (void)place;
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  row_support(&c->p->head, NULL, r, s);
  return hull_row(&c->p->head, s);
}

/* The other columns of the planted output are the weights of some of the keys: none is negative, or above
 * 1. */
static outcome judge_planted_hull(void *context, int64_t place, int64_t r, row_space *s) {
  const compared *c = context;
  const int64_t d_v = c->p->problem.d_v;
  outcome worst = OUTCOME_NONE;
  row_verdict verdict = probe_bound(c->p, c->head, NULL, r, s);
  (void)place;
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  for (int64_t l = 1; l < d_v && s->count > 0; l++)
    outcome_worsen(&worst, within(c->other[r * d_v + l], 0, 1, s->bound[0]));
  return worst;
}

static attn_status hull_evaluate(const evidence *e, result_bound *bound) {
  probe *p = NULL;
  result_bound planted = *bound;
  bool softmax = !e->view->features && !e->view->projection && e->view->rounding.unit > 0;
  attn_status status = softmax ? facts_check(e, judge_hull, bound) : ATTN_OK;
  if (status || (softmax && bound->verdict != VERDICT_PASS)) return status;
  status = probe_ready(e, softmax ? &planted : bound, &p);
  if (status || !p) return status;
  if (!softmax) status = compare_rows(p, probe_inner(p), judge_probe_hull, NULL, bound);
  if (!status) status = planted_check(p, judge_planted_hull, &planted);
  if (!status && planted.verdict == VERDICT_VIOLATED && bound->verdict == VERDICT_PASS) *bound = planted;
  return status;
}

/* -- permuted keys -- */

/* Two computations of one exact row, each within its bound: other is the second one's output. */
static outcome judge_both_runs(void *context, int64_t place, int64_t r, row_space *s) {
  const compared *c = context;
  const int64_t d_v = c->p->problem.d_v;
  const double *other = c->other + r * d_v;
  row_verdict verdict = probe_bound(c->p, c->head, NULL, r, s);
  (void)place;
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  for (int64_t l = 0; l < d_v; l++) {
    s->bound[l] *= 2;
    if (!isfinite(s->given[l]) && !isfinite(other[l]))
      return (outcome){.why = "both outputs hold numbers that are not finite"};
  }
  return outcome_components(s->given, other, s->bound, d_v);
}

/* Copies of the keys and values in an order drawn from the seed; padding stays where it is. */
static void permute(const probe *p, double *k, double *v) {
  const head_data *h = &p->head;
  int64_t d = p->problem.d_qk, d_v = p->problem.d_v;
  attn_rng rng;
  attn_rng_init(&rng, p->e.seed, purpose_permutation, 0);
  row_widen(h->k, ATTN_F64, 0, p->problem.n_kv * d, k);
  row_widen(h->v, ATTN_F64, 0, p->problem.n_kv * d_v, v);
  for (int64_t j = h->keys - 1; j > 0; j--) {
    int64_t other = attn_rng_below(&rng, j + 1);
    for (int64_t l = 0; l < d; l++) {
      double x = k[j * d + l];
      k[j * d + l] = k[other * d + l];
      k[other * d + l] = x;
    }
    for (int64_t l = 0; l < d_v; l++) {
      double x = v[j * d_v + l];
      v[j * d_v + l] = v[other * d_v + l];
      v[other * d_v + l] = x;
    }
  }
}

static attn_status permutation_evaluate(const evidence *e, result_bound *bound) {
  if (e->problem->causal)
    return bound_not_applicable(bound, "under a causal mask the order of the keys matters");
  probe *p = NULL;
  attn_status status = probe_ready(e, bound, &p);
  if (status || !p) return status;
  const attn_problem *x = &p->problem;
  double *k = region_take(e->memory, x->n_kv * x->d_qk, sizeof *k);
  double *v = region_take(e->memory, x->n_kv * x->d_v, sizeof *v);
  double *other = region_take(e->memory, x->n_q * x->d_v, sizeof *other);
  if ((status = region_status(e->memory, "to permute the keys of a probe"))) return status;
  permute(p, k, v);
  status = probe_execute(p, k, v, other);
  /* Rounding is of what is read, which a store makes of numbers that may be zeros. */
  stored_copies copies = {.k = NULL};
  head_data stored = {.k = NULL};
  if (!status && e->view->store) status = probe_stored(p, p->k, &copies, &stored);
  if (!status)
    status = compare_rows(p, e->view->store ? &stored : probe_inner(p), judge_both_runs, other, bound);
  head_data_free(&stored);
  stored_copies_free(&copies);
  return status;
}

/* -- one vector added to every key -- */

/* Of the length of the longest key or less: the scores change by as much as they vary. */
static void shift_vector(const probe *p, double *shift) {
  double norm = 0;
  attn_rng rng;
  attn_rng_init(&rng, p->e.seed, purpose_shift, 0);
  for (int64_t l = 0; l < p->problem.d_qk; l++) {
    shift[l] = attn_rng_normal(&rng);
    norm += shift[l] * shift[l];
  }
  for (int64_t l = 0; l < p->problem.d_qk; l++) shift[l] *= p->head.k_max / sqrt(norm);
}

/* The shifted run saw round(k + shift): one more rounding of every product than the descriptor says. */
static outcome judge_shift(void *context, int64_t place, int64_t r, row_space *s) {
  const compared *c = context;
  int64_t d_v = c->p->problem.d_v;
  const double *shift = c->other + c->p->problem.n_q * d_v;
  row_verdict verdict = probe_bound(c->p, c->head, NULL, r, s);
  (void)place;
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  for (int64_t l = 0; l < d_v; l++) s->kept[l] = s->bound[l];
  probe moved = *c->p;
  moved.view.rounding.score++;
  verdict = probe_bound(&moved, c->head, shift, r, s);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  for (int64_t l = 0; l < d_v; l++) s->bound[l] += s->kept[l];
  return outcome_components(s->given, c->other + r * d_v, s->bound, d_v);
}

static attn_status shift_evaluate(const evidence *e, result_bound *bound) {
  if (e->view->features)
    return bound_not_applicable(bound,
                                "features of shifted keys estimate the same weights, and are not the same");
  probe *p = NULL;
  attn_status status = probe_ready(e, bound, &p);
  if (status || !p) return status;
  const attn_problem *x = &p->problem;
  double *k = region_take(e->memory, x->n_kv * x->d_qk, sizeof *k);
  /* The other output, and after it the shift. */
  double *other = region_take(e->memory, x->n_q * x->d_v + x->d_qk, sizeof *other);
  if ((status = region_status(e->memory, "to shift the keys of a probe"))) return status;
  double *shift = other + x->n_q * x->d_v;
  shift_vector(p, shift);
  for (int64_t i = 0; i < x->n_kv * x->d_qk; i++) k[i] = p->head.k[i] + shift[i % x->d_qk];
  status = probe_execute(p, k, p->head.v, other);
  return status ? status : compare_rows(p, probe_inner(p), judge_shift, other, bound);
}

const check check_prop_ones = {
    .name = "PROP-ONES",
    .of = &of_stochastic,
    .kind = KIND_HARD,
    .statement = "values of 1 give outputs of 1, to within rounding",
    .source = "weights that sum to 1",
    .formula = "V = 1 gives |o^_l - 1| <= rounding, also as the sum of columns with one 1 for each key.",
    .assumes = "Declared: the weights of a row sum to 1. Runs the algorithm again on a probe.",
    .nulls[CHECK_ZEROS].rejected_on = "any input: an algorithm that writes zeros",
    .nulls[CHECK_MEAN_V].blind = "its weights sum to 1 and are not negative, as those of exact attention",
    .nulls[CHECK_RANDOM_KEYS].blind =
        "its weights sum to 1 and are not negative, as those of exact attention",
    .cause = "a sum is not normalised, or keys enter the one sum and not the other",
    .evaluate = ones_evaluate,
};

const check check_prop_hull = {
    .name = "PROP-HULL",
    .of = &of_convex,
    .kind = KIND_HARD,
    .statement =
        "every output lies between the least and the greatest value, in each component and random directions",
    .source = "weights that are not negative and sum to 1",
    .formula = "min_j v_jl - rounding <= o^_l <= max_j v_jl + rounding; likewise of x.o^ against x.v_j in "
               "two random directions x. Planted values, one 1 for each key in a random column and 0: 0 - "
               "rounding <= o^_l <= 1 + rounding.",
    .assumes = "Declared: weights that are not negative and sum to 1. Spread values hide weights that are a "
               "little negative (the margin is near 1 on them); the planted ones, on a probe, show them.",
    .nulls[CHECK_ZEROS].rejected_on = "values of one sign: 0 lies outside",
    .nulls[CHECK_MEAN_V].blind = "its weights sum to 1 and are not negative, as those of exact attention",
    .nulls[CHECK_RANDOM_KEYS].blind =
        "its weights sum to 1 and are not negative, as those of exact attention",
    .cause = "weights are negative or too large: a sum is not normalised, or a value is taken of another "
             "head or of memory that holds none",
    .evaluate = hull_evaluate,
};

const check check_prop_perm = {
    .name = "PROP-PERM",
    .of = &of_permutable,
    .kind = KIND_HARD,
    .statement = "permuting the keys with their values changes the output by no more than rounding",
    .source = "attention is a function of the set of keys",
    .formula = "|o^(K, V) - o^(K pi, V pi)| <= both runs' rounding, for a random permutation pi of the keys.",
    .assumes = "Declared, not causal; runs the algorithm again on a probe.",
    .nulls[CHECK_ZEROS].blind = "zeros depend on no order",
    .nulls[CHECK_MEAN_V].blind = "a mean depends on no order",
    .nulls[CHECK_RANDOM_KEYS].rejected_on = "Gaussian inputs of std 1, one key in four chosen by position",
    .cause = "a key is treated by its position: the last ones of a tile or of an odd length are lost, or "
             "another row is read",
    .evaluate = permutation_evaluate,
};

const check check_prop_shift = {
    .name = "PROP-SHIFT",
    .of = &of_shiftable,
    .kind = KIND_HARD,
    .statement = "adding one vector to every key changes the output by no more than rounding",
    .source = "softmax ignores a constant added to a row of scores",
    .formula = "|o^(K + 1x') - o^(K)| <= both runs' rounding and that of K + x, for a random vector x.",
    .assumes = "Declared; runs the algorithm again on a probe.",
    .nulls[CHECK_ZEROS].blind = "zeros do not depend on the keys",
    .nulls[CHECK_MEAN_V].blind = "a mean of V does not depend on the keys",
    .nulls[CHECK_RANDOM_KEYS].rejected_on =
        "more than 64 rows of a variant that claims to be exact: the probe has them at other positions",
    .cause = "the largest score is not subtracted from every score of the row, or the output is not computed "
             "from these keys",
    .evaluate = shift_evaluate,
};

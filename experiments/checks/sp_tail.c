/* sp_tail.c - SP-1, SP-2, SP-3: what attention on a pattern S of keys leaves out, T the others.
 *
 *   o_S - o = t (o_S - o_T),  t = sum of exact weights on T
 *
 * SP-1 compares the output with the identity: it rejects zeros, the mean of V and random keys wherever they
 * differ from o_S by more than rounding. SP-2 is a bound on the error: when t is not small it is wide, and
 * blind to all three (on Gaussian inputs none of them violates it); where the pattern holds nearly all the
 * mass (keys that match their own query only) it rejects all three. SP-3 bounds t without the scores of T:
 * for a block b of keys with centroid k_b and radius r_b, q.k_j <= q.k_b + |q| r_b, so that
 *   Z_T = sum over T of e^s_j <= Z = sum over blocks of |b in T| e^(c q.k_b + |c||q| r_b),  t <= Z / (Z_S +
 *     Z);
 * the error is at most that times Delta_V. */
#include "experiments/checks/table.h"

#include "experiments/evidence/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is known of a row after the split of its keys. */
typedef struct split {
  double mass; /* t */
  prior exact; /* fp64 error of an exact output */
} split;

/* Sets space->bound and space->o to the rounding bounds and o_S, and t. Returns why it cannot, or NULL. */
static const char *row_split(const row_case *c, split *out) {
  row_space *s = c->space;
  row_support(c->head, c->e->view->pattern, c->row->i, s);
  row_verdict verdict = row_bound(c->head, &c->e->view->rounding, false, NULL, s);
  if (verdict != ROW_OK) return row_reason(verdict);
  double norm = 0;
  for (int64_t l = 0; l < c->e->problem->d_qk; l++) norm += s->q[l] * s->q[l];
  attn_rounding own = row_reference_rounding(c->e->problem, c->keys);
  verdict = row_prior(c->head, &own, sqrt(norm), c->keys, &out->exact);
  if (verdict != ROW_OK) return row_reason(verdict);
  out->mass = 0;
  for (int64_t j = 0; j < c->keys; j++)
    if (!s->inside[j]) out->mass += c->p[j];
  return NULL;
}

/* fp64 error of a component of an exact output. */
static double exact_error(const row_case *c, const prior *exact, int64_t l) {
  const head_data *h = c->head;
  return exact->spread * (h->high[l] - h->low[l]) + exact->growth * fmax(fabs(h->low[l]), fabs(h->high[l])) +
         exact->floor;
}

/* space->kept = o_S and space->left = t o_T by the exact weights, independently of space->o; but where
 * the kept weights are too small to be normal numbers, o_S is space->o. */
static void weighted_means(const row_case *c) {
  int64_t d_v = c->e->problem->d_v;
  row_space *s = c->space;
  double inside = 0;
  for (int64_t a = 0; a < s->count; a++) inside += c->p[s->index[a]];
  memset(s->kept, 0, (size_t)d_v * sizeof *s->kept);
  memset(s->left, 0, (size_t)d_v * sizeof *s->left);
  for (int64_t j = 0; j < c->keys; j++) {
    const double *v = c->head->v + j * d_v;
    double weight = s->inside[j] ? c->p[j] / inside : c->p[j], *to = s->inside[j] ? s->kept : s->left;
    for (int64_t l = 0; l < d_v; l++) to[l] += weight * v[l];
  }
  if (!(inside > 1e-200)) memcpy(s->kept, s->o, (size_t)d_v * sizeof *s->kept);
}

static outcome judge_identity(const row_case *c) {
  split x;
  const char *why = row_split(c, &x);
  if (why) return (outcome){.why = why};
  row_space *s = c->space;
  weighted_means(c);
  /* left becomes o + t (o_S - o_T). Four fp64 results enter: o, o_S, t o_S and t o_T. */
  for (int64_t l = 0; l < c->e->problem->d_v; l++) {
    s->left[l] = c->o[l] + (x.mass * s->kept[l] - s->left[l]);
    s->bound[l] += 4 * exact_error(c, &x.exact, l);
  }
  return outcome_components(s->given, s->left, s->bound, c->e->problem->d_v);
}

static outcome judge_tail(const row_case *c) {
  split x;
  const char *why = row_split(c, &x);
  if (why) return (outcome){.why = why};
  int64_t d_v = c->e->problem->d_v;
  double error = 0, rounding = 0, far = 0;
  for (int64_t l = 0; l < d_v; l++) {
    double diff = c->space->given[l] - c->o[l], slack = c->space->bound[l] + exact_error(c, &x.exact, l);
    error += diff * diff;
    rounding += slack * slack;
  }
  for (int64_t j = 0; j < c->keys; j++) {
    if (c->space->inside[j]) continue;
    double distance = 0;
    for (int64_t l = 0; l < d_v; l++) {
      double diff = c->head->v[j * d_v + l] - c->space->o[l];
      distance += diff * diff;
    }
    far = fmax(far, distance);
  }
  return (outcome){sqrt(error), x.mass * sqrt(far) + sqrt(rounding), NULL};
}

/* ln of the sum over blocks, from keys that exist and their whole blocks; -inf if nothing is left out. */
static double log_left(const row_case *c, int64_t block, double q_norm) {
  const attn_problem *p = c->e->problem;
  const head_data *h = c->head;
  row_space *s = c->space;
  int64_t d = p->d_qk, used = 0;
  double top = -(double)INFINITY, sum = 0;
  for (int64_t first = 0; first < c->keys; first += block) {
    int64_t end = first + block < h->keys ? first + block : h->keys, left = 0;
    for (int64_t j = first; j < end && j < c->keys; j++) left += !s->inside[j];
    if (left == 0) continue;
    double score = 0, radius = 0;
    for (int64_t l = 0; l < d; l++) {
      double mean = 0;
      for (int64_t j = first; j < end; j++) mean += h->k[j * d + l];
      s->center[l] = mean / (double)(end - first);
      score += s->q[l] * s->center[l];
    }
    for (int64_t j = first; j < end; j++) {
      double distance = 0;
      for (int64_t l = 0; l < d; l++) {
        double x = h->k[j * d + l] - s->center[l];
        distance += x * x;
      }
      radius = fmax(radius, distance);
    }
    double at = p->scale * score + fabs(p->scale) * q_norm * sqrt(radius) + log((double)left);
    s->slack[used++] = at;
    top = fmax(top, at);
  }
  for (int64_t b = 0; b < used; b++) sum += exp(s->slack[b] - top);
  return used ? top + log(sum) : top;
}

static double log_kept(const row_space *s) {
  double top = -(double)INFINITY, sum = 0;
  for (int64_t a = 0; a < s->count; a++) top = fmax(top, s->score[a]);
  for (int64_t a = 0; a < s->count; a++) sum += exp(s->score[a] - top);
  return top + log(sum);
}

static outcome judge_certified(const row_case *c) {
  split x;
  const char *why = row_split(c, &x);
  if (why) return (outcome){.why = why};
  const attn_problem *p = c->e->problem;
  int64_t grain = c->e->view->pattern->grain, block = grain > 0 ? grain : ATTN_TILE;
  double norm = 0, error = 0, rounding = 0;
  for (int64_t l = 0; l < p->d_qk; l++) norm += c->space->q[l] * c->space->q[l];
  for (int64_t l = 0; l < p->d_v; l++) {
    double diff = c->space->given[l] - c->o[l], slack = c->space->bound[l] + exact_error(c, &x.exact, l);
    error += diff * diff;
    rounding += slack * slack;
  }
  /* The fp64 error of scores on either side. */
  double score = gamma_of(2 * p->d_qk + block + 8, 0x1p-53) * fabs(p->scale) * sqrt(norm) * c->head->k_max;
  double certified = 1;
  if (c->space->count > 0)
    certified = 1 / (1 + exp(log_kept(c->space) - log_left(c, block, sqrt(norm)) - 4 * score));
  outcome worst = {x.mass, certified, NULL};
  outcome_worsen(&worst, (outcome){sqrt(error), certified * c->head->diameter + sqrt(rounding), NULL});
  return worst;
}

static double split_cost(const evidence *e) {
  return row_cost(e) + (double)e->problem->n_kv * (double)e->problem->d_v;
}

static attn_status identity_evaluate(const evidence *e, result_bound *bound) {
  return rows_check(e, split_cost(e), judge_identity, bound);
}

static attn_status tail_evaluate(const evidence *e, result_bound *bound) {
  return rows_check(e, split_cost(e), judge_tail, bound);
}

/* Two passes over the keys, for the centroids and the radii. */
static attn_status certified_evaluate(const evidence *e, result_bound *bound) {
  double cost = split_cost(e) + 2 * (double)e->problem->n_kv * (double)e->problem->d_qk;
  return rows_check(e, cost, judge_certified, bound);
}

const check check_sp1 = {
    .name = "SP-1",
    .of = &of_patterns,
    .kind = KIND_HARD,
    .statement = "the output is o + t (o_S - o_T), t the exact mass left out, to within rounding",
    .source = "derived: law of total expectation under the exact weights",
    .formula = "S the keys of a row's pattern, T the others, p exact weights, t = sum of p over T: o = "
               "(1 - t) o_S + t o_T, hence o_S = o + t (o_S - o_T). |o^_l - o_Sl| <= FP-1's bound on S "
               "plus four fp64 errors.",
    .assumes = "The variant has a pattern and FP-1's hypotheses hold on it. An equality, so that it is "
               "as sharp for large t as for small.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, a window of 9 of 96 keys"),
    .evaluate = identity_evaluate,
};

const check check_sp2 = {
    .name = "SP-2",
    .of = &of_patterns,
    .kind = KIND_HARD,
    .statement = "the error of a row is at most t max |v_j - o_S| over the keys left out, plus rounding",
    .source = "derived from SP-1",
    .formula = "S the keys of a row's pattern, T the others, p exact weights, t = sum of p over T: |o^ - "
               "o| <= t max over j in T of |v_j - o_S| + rounding; attained where V is constant on S and "
               "on T.",
    .assumes = "As SP-1. Wide where t is large: on Gaussian inputs blind to all three nulls (no row "
               "violates it).",
    .nulls = CHECK_REJECTS_ALL(
        "keys that match their own query alone (norm 16), a window of 9 of 96 keys: the window "
        "holds all the mass"),
    .evaluate = tail_evaluate,
};

const check check_sp3 = {
    .name = "SP-3",
    .of = &of_patterns,
    .kind = KIND_HARD,
    .statement =
        "the mass left out, and the error over Delta_V, are at most what block centroids certify without the "
        "scores left out",
    .source = "derived: Cauchy-Schwarz on each block, monotonicity of Z / (Z_S + Z)",
    .formula = "t <= Z / (Z_S + Z), |o^ - o| <= Delta_V Z / (Z_S + Z) + rounding, Z_S = sum of e^s_j over "
               "the kept keys, Z = sum over blocks b of the number of keys of b left out times e^(c q.k_b "
               "+ |c| |q| r_b), k_b the mean of the block's keys, r_b the largest distance from it, "
               "Delta_V = 2 max_j |v_j - mean V|.",
    .assumes = "As SP-1. Blocks are the pattern's, or of 64 keys. Of use where keys of a block are alike; "
               "else near 1.",
    .nulls = CHECK_REJECTS_ALL("keys of blocks of 16 that match their own block's queries alone (norm 16), a "
                               "window of three blocks"),
    .evaluate = certified_evaluate,
};

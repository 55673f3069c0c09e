/* jacobian.c - JAC-1: weights move at most half as far as their scores.
 *
 * The Jacobian of softmax, diag(p) - p p^T, has norm at most 1/2: x^T (diag(p) - p p^T) x is the variance of x_j under
 * p, at most (max x - min x)^2 / 4 (Popoviciu), and (x_a - x_b)^2 <= 2 |x|^2. Hence |p(s) - p(s')| <= |s - s'| / 2, with
 * equality in the limit where two keys have half of the mass each and their scores change by opposite amounts.
 *
 * That is what is asked here: of some queries two keys are put in the direction of the query, above all others by
 * some nats, at scores L - e and L + e, and then exchanged. One column of V each reads their weights. A plain softmax
 * reaches tanh(e) / e = 0.98 of the bound for one query, and less where keys of the others move, too. */
#include "experiments/checks/table.h"

#include "experiments/evidence/probe.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, SIDES = 2 };
static const double apart = 0.25;                /* e, in nats */
static const double above = 3;                   /* of the sum of all others, in nats */
static const uint64_t purpose_keys = 0x6a616331; /* "jac1" */

/* The two problems: heads with their own keys, values that are 1 in a column of one key, and the outputs. */
typedef struct planted_keys {
  head_data head[SIDES];
  double *o[SIDES];
  int64_t columns;
  row_space space, other;
} planted_keys;

static double rounded(double x, attn_dtype t) { return t == ATTN_F64 ? x : (double)(float)x; }

/* Gives the key the score `wanted` of the query in s->q, and a column of its own. */
static void plant(const probe *p, planted_keys *x, int side, int64_t key, double wanted, const row_space *s) {
  const int64_t d = p->problem.d_qk;
  const double norm = vector_norm(s->q, d);
  for (int64_t l = 0; l < d; l++)
    x->head[side].k[key * d + l] =
        rounded(wanted / (p->problem.scale * norm * norm) * s->q[l], p->problem.dtype);
}

/* Two places of the support whose keys have no column as yet. */
static bool choose(const probe *p, const planted_keys *x, attn_rng *rng, int64_t *keys) {
  const int64_t d_v = p->problem.d_v;
  for (int found = 0, attempt = 0; attempt < 64; attempt++) {
    const int64_t key = x->space.index[attn_rng_below(rng, x->space.count)];
    bool taken = found && keys[0] == key;
    for (int64_t l = 0; l < x->columns; l++) taken |= x->head[0].v[key * d_v + l] > 0;
    if (taken) continue;
    keys[found++] = key;
    if (found == 2) return true;
  }
  return false;
}

/* Of a row whose query is not 0 and that sees two free keys. */
static void plant_row(const probe *p, planted_keys *x, attn_rng *rng, int64_t r) {
  row_space *s = &x->space;
  row_extremes scores;
  int64_t keys[2] = {0, 0};
  row_widen(p->q, p->problem.dtype, r * p->problem.d_qk, p->problem.d_qk, s->q);
  row_see(&p->head, &p->seen, r, s);
  if (s->count < 2 || !(vector_norm(s->q, p->problem.d_qk) > 0) || !choose(p, x, rng, keys) ||
      row_attend(&p->head, NULL, s, &scores) != ROW_OK)
    return;
  const double level = scores.top + log((double)s->count) + above;
  for (int side = 0; side < SIDES; side++)
    for (int k = 0; k < 2; k++) {
      plant(p, x, side, keys[k], level + (k == side ? -apart : apart), s);
      if (x->columns + k < p->problem.d_v) x->head[side].v[keys[k] * p->problem.d_v + x->columns + k] = 1;
    }
  x->columns += x->columns + 2 <= p->problem.d_v ? 2 : 1;
}

static outcome judge_row(const probe *p, planted_keys *x, int64_t r) {
  row_space *s[SIDES] = {&x->space, &x->other};
  const int64_t d_v = p->problem.d_v;
  double scores = 0, room = 0, weights = 0, lost = 0;
  for (int side = 0; side < SIDES; side++) {
    const row_verdict verdict = probe_bound(p, &x->head[side], NULL, r, s[side]);
    if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  }
  if (s[0]->count == 0) return (outcome)OUTCOME_NONE;
  for (int64_t a = 0; a < s[0]->count; a++) {
    const double step = s[0]->score[a] - s[1]->score[a], size = s[0]->size[a] + s[1]->size[a];
    scores += step * step;
    lost += size * size;
  }
  for (int64_t l = 0; l < x->columns; l++) {
    const double step = x->o[0][r * d_v + l] - x->o[1][r * d_v + l], off = s[0]->bound[l] + s[1]->bound[l];
    weights += step * step;
    room += off * off;
  }
  return (outcome){.measured = sqrt(weights),
                   .value =
                       (sqrt(scores) + gamma_of(p->problem.d_qk + 8, 0x1p-53) * sqrt(lost)) / 2 + sqrt(room)};
}

static attn_status make(const probe *p, planted_keys *x) {
  const size_t bytes = (size_t)(p->problem.n_kv * p->problem.d_qk) * sizeof(double),
               out = (size_t)(p->problem.n_q * p->problem.d_v) * sizeof(double);
  attn_status status = probe_space(p, &x->space);
  if (!status) status = probe_space(p, &x->other);
  for (int side = 0; side < SIDES && !status; side++) {
    if ((status = head_data_alloc(&p->problem, &x->head[side]))) break;
    memcpy(x->head[side].k, p->head.k, bytes);
    x->head[side].keys = p->head.keys;
    x->head[side].head = p->head.head;
    x->o[side] = malloc(out + 1);
    if (!x->o[side]) status = attn_fail(ATTN_ENOMEM, "no memory for the weights of a probe");
  }
  return status;
}

static attn_status jacobian_evaluate(const evidence *e, result_bound *bound) {
  if (!(e->view->rounding.unit > 0)) return bound_not_applicable(bound, "the variant describes no rounding");
  if (!(e->problem->scale > 0)) return bound_not_applicable(bound, "the scale is not positive");
  probe *p;
  planted_keys x = {.columns = 0};
  outcome worst = OUTCOME_NONE;
  int64_t rows[ROWS] = {0};
  attn_rng rng;
  attn_status status = probe_get(e, &p);
  if (status) return status;
  attn_rng_init(&rng, e->seed, purpose_keys, 0);
  const int64_t count = probe_pick(p, ROWS, rows);
  status = make(p, &x);
  for (int64_t r = 0; !status && r < count && x.columns < p->problem.d_v; r++)
    plant_row(p, &x, &rng, rows[r]);
  for (int side = 0; side < SIDES && !status; side++) {
    head_data_measure(&x.head[side]);
    status = probe_execute(p, x.head[side].k, x.head[side].v, x.o[side]);
  }
  for (int64_t r = 0; !status && x.columns && r < count; r++)
    outcome_worsen(&worst, judge_row(p, &x, rows[r]));
  if (!status) status = outcome_settle(&worst, bound);
  for (int side = 0; side < SIDES; side++) {
    head_data_free(&x.head[side]);
    free(x.o[side]);
  }
  row_space_free(&x.space);
  row_space_free(&x.other);
  return status;
}

const check check_jac1 = {
    .name = "JAC-1",
    .of = &of_fixed_softmax,
    .kind = KIND_HARD,
    .statement = "the weights of a row move at most half as far as its scores",
    .source = "Popoviciu 1935 on the variance under p: |diag(p) - p p^T| <= 1/2",
    .formula =
        "|p^(s) - p^(s')| <= |s - s'| / 2 + |b + b'|, Euclidean; p^ the outputs for values that are 1 in one "
        "column of one key, b of FP-1. s and s': of 4 queries of a probe two keys have most of the mass, and "
        "scores 0.5 apart that are exchanged, so that a softmax reaches nine tenths of the bound.",
    .assumes =
        "A softmax over keys that do not depend on Q and K; a positive scale. Runs the algorithm twice on "
        "a probe, with keys and values of its own.",
    .cause = "the scale is too large, weights are of another base than e, or not normalised",
    .nulls =
        CHECK_BLIND("zeros, equal weights and keys chosen by position never move more than a softmax would"),
    .evaluate = jacobian_evaluate,
};

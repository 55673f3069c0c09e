/* hopfield.c - HOP-1 and HOP-2: a row of attention with V = K is one step of a modern Hopfield network.
 *
 * With patterns x_j, beta > 0 and f(xi) = sum_j p_j x_j, p = softmax(beta x_j.xi):
 *
 * HOP-1. L(u) = ln sum_j e^(x_j.u) is convex, and f(xi) its gradient at beta xi. Hence
 *   L(beta f) >= L(beta xi) + beta f.(f - xi),   that is   E(f) <= E(xi) - |f - xi|^2 / 2
 * for the energy E(xi) = |xi|^2 / 2 - L(beta xi) / beta: a step lowers it. Of a computed o = f + e, |e_l| <= b_l, the
 * same algebra leaves E(o) - E(xi) + |o - xi|^2 / 2 = L(beta xi) / beta - L(beta o) / beta - o.(xi - o) <= b.|o - xi|.
 *
 * HOP-2. f - x_i = sum_(j != i) p_j (x_j - x_i), |x_j - x_i| <= 2 M, and beta (x_i - x_j).xi >= beta (Delta_i - 2 M
 * |xi - x_i|) bounds p_j / p_i: |f - x_i| <= 2 M (N - 1) e^(-beta (Delta_i - 2 M |xi - x_i|)). It needs no more; where
 * patterns are nearer to one another than the theorem of Ramsauer et al. asks for, none is stored and it says nothing.
 *
 * A query is beta xi = c q: beta is free, and chosen where xi is as long as the patterns (HOP-1), or nearest to the
 * pattern (HOP-2). */
#include "experiments/checks/table.h"

#include "experiments/evidence/probe.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/vector.h"
#include "experiments/reference/transform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16 };

/* L(u) over the row's support of keys. *size: the largest sum of |x_l u_l|. */
static double log_sum(const head_data *h, const row_space *s, const double *u, double *size) {
  const int64_t d = h->problem->d_qk;
  double top = -(double)INFINITY, sum = 0;
  *size = 0;
  for (int64_t a = 0; a < s->count; a++) {
    const double *x = h->k + s->index[a] * d;
    double whole = 0;
    for (int64_t l = 0; l < d; l++) whole += fabs(x[l] * u[l]);
    top = fmax(top, vector_dot(x, u, d));
    *size = fmax(*size, whole);
  }
  for (int64_t a = 0; a < s->count; a++) sum += exp(vector_dot(h->k + s->index[a] * d, u, d) - top);
  return top + log(sum);
}

/* -- HOP-1: on the probe's keys, which are its values as well -- */

typedef struct step_case {
  const probe *p;
  const head_data *h;
  const double *o; /* [n_q, d] */
  outcome found[ROWS];
} step_case;

/* |c q| over the mean length of the patterns that the row sees; 0: there are none, or no query. */
static double temperature(const head_data *h, const row_space *s) {
  const int64_t d = h->problem->d_qk;
  double squares = 0;
  for (int64_t a = 0; a < s->count; a++) {
    const double norm = vector_norm(h->k + s->index[a] * d, d);
    squares += norm * norm;
  }
  return squares > 0 ? h->problem->scale * vector_norm(s->q, d) / sqrt(squares / (double)s->count) : 0;
}

/* In nats, beta times the energy: L(c q) - L(beta o) - o.(c q - beta o) <= b.|c q - beta o|. */
static void judge_step(void *context, int64_t place, int64_t r, row_space *s) {
  step_case *x = context;
  const head_data *h = x->h;
  const int64_t d = h->problem->d_qk;
  const double *o = x->o + r * d;
  const row_verdict verdict = probe_bound(x->p, h, NULL, r, s);
  const double beta = verdict == ROW_OK ? temperature(h, s) : 0;
  double before, after, inner = 0, room = 0, whole = 0;
  x->found[place] = (outcome)OUTCOME_NONE;
  if (verdict != ROW_OK) x->found[place].why = row_reason(verdict);
  if (!(beta > 0)) return;
  for (int64_t l = 0; l < d; l++) {
    s->center[l] = h->problem->scale * s->q[l];
    s->left[l] = beta * o[l];
    inner += o[l] * (s->center[l] - s->left[l]);
    whole += fabs(o[l]) * (fabs(s->center[l]) + fabs(s->left[l]));
    room += s->bound[l] * fabs(s->center[l] - s->left[l]);
  }
  const double rise = log_sum(h, s, s->center, &before) - log_sum(h, s, s->left, &after) - inner;
  room += gamma_of(2 * d + s->count + 16, 0x1p-53) * (before + after + whole + 1 + log((double)s->count));
  if (!isfinite(room)) x->found[place].why = row_reason(ROW_OVERFLOW);
  if (isfinite(room)) x->found[place] = (outcome){.measured = rise <= 0 ? 0 : rise, .value = room};
}

static attn_status energy_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *to = e->problem;
  if (to->d_qk != to->d_v) return bound_not_applicable(bound, "values and keys differ in width");
  if (!(to->scale > 0)) return bound_not_applicable(bound, "the scale is not positive");
  if (!(e->view->rounding.unit > 0)) return bound_not_applicable(bound, "the variant describes no rounding");
  probe *p;
  attn_status status = probe_get(e, &p);
  if (status) return status;
  head_data h = {.k = NULL};
  double *o = malloc((size_t)(p->problem.n_q * p->problem.d_v) * sizeof *o + 1);
  int64_t rows[ROWS] = {0};
  const int64_t count = probe_pick(p, ROWS, rows);
  outcome worst = OUTCOME_NONE;
  status =
      o ? head_data_alloc(&p->problem, &h) : attn_fail(ATTN_ENOMEM, "no memory for a step of the patterns");
  if (!status) {
    const size_t bytes = (size_t)(p->problem.n_kv * p->problem.d_qk) * sizeof *h.k;
    memcpy(h.k, p->head.k, bytes);
    memcpy(h.v, p->head.k, bytes);
    h.keys = p->head.keys;
    h.head = p->head.head;
    head_data_measure(&h);
    status = probe_execute(p, h.k, h.v, o);
  }
  step_case x = {.p = p, .h = &h, .o = o};
  if (!status) status = probe_rows(p, rows, count, judge_step, &x);
  for (int64_t r = 0; !status && r < count; r++) outcome_worsen(&worst, x.found[r]);
  if (!status) status = outcome_settle(&worst, bound);
  head_data_free(&h);
  free(o);
  return status;
}

/* -- HOP-2: on a run whose values are its keys -- */

static const char apart[] =
    "the patterns are too near to one another for this temperature: the theorem's separation is missing";

static bool values_are_keys(const evidence *e) {
  const attn_problem *p = e->problem;
  return p->d_qk == p->d_v &&
         memcmp(e->k, e->v,
                (size_t)(p->batch * p->kv_heads * p->n_kv * p->d_qk) * attn_dtype_size(p->dtype)) == 0;
}

/* The pattern of the largest score. */
static int64_t nearest(const row_space *s) {
  int64_t at = 0;
  for (int64_t a = 1; a < s->count; a++)
    if (s->score[a] > s->score[at]) at = a;
  return s->index[at];
}

static outcome judge_retrieval(const row_case *c) {
  const attn_problem *p = c->e->problem;
  const int64_t d = p->d_qk;
  row_space *s = c->space;
  row_extremes scores;
  double longest = 0, other = -(double)INFINITY, far = 0, moved = 0, room = 0;
  row_support(c->head, c->e->view->pattern, c->row->i, s);
  if (s->count < 2) return (outcome)OUTCOME_NONE;
  row_verdict verdict = row_attend(c->head, NULL, s, &scores);
  if (verdict == ROW_OK)
    verdict = row_error(c->head, &c->e->view->rounding, false, NULL, 0, &scores, s, s->bound);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  const int64_t i = nearest(s);
  const double *x = c->head->k + i * d, own = vector_dot(x, x, d), count = (double)s->count;
  for (int64_t a = 0; a < s->count; a++) {
    const double *y = c->head->k + s->index[a] * d;
    longest = fmax(longest, vector_norm(y, d));
    if (s->index[a] != i) other = fmax(other, vector_dot(x, y, d));
  }
  const double beta = p->scale * vector_dot(s->q, x, d) / own,
               apart_by = own - other - 2 * gamma_of(d + 2, 0x1p-53) * longest * longest;
  if (!(beta > 0) ||
      !(apart_by >= (2 / count + log(2 * (count - 1) * count * beta * longest * longest)) / beta))
    return (outcome){.why = apart};
  for (int64_t l = 0; l < d; l++) {
    const double step = p->scale * s->q[l] / beta - x[l], off = s->given[l] - x[l];
    far += step * step;
    moved += off * off;
    room += s->bound[l] * s->bound[l];
  }
  far = sqrt(far) + gamma_of(d + 8, 0x1p-53) * (longest + fabs(p->scale) * vector_norm(s->q, d) / beta);
  return (outcome){.measured = sqrt(moved),
                   .value =
                       2 * longest * (count - 1) * exp(-beta * (apart_by - 2 * longest * far)) + sqrt(room)};
}

static attn_status retrieval_evaluate(const evidence *e, result_bound *bound) {
  if (!values_are_keys(e))
    return bound_not_applicable(bound, "the values are not the keys: the run looks up no patterns");
  if (transform_any(e->problem)) return bound_not_applicable(bound, "scores are transformed, or have a sink");
  if (!(e->problem->scale > 0)) return bound_not_applicable(bound, "the scale is not positive");
  if (!(e->view->rounding.unit > 0)) return bound_not_applicable(bound, "the variant describes no rounding");
  return rows_check(e, 3 * row_cost(e), judge_retrieval, bound);
}

const check check_hop1 = {
    .name = "HOP-1",
    .of = &of_fixed_softmax,
    .kind = KIND_HARD,
    .statement = "with V = K a row lowers the energy of a Hopfield network by half the square of its step",
    .source = "Ramsauer et al. 2021, arXiv:2008.02217: the energy falls; by how much follows from convexity",
    .formula =
        "E(xi) = |xi|^2 / 2 - ln(sum_j e^(beta x_j.xi)) / beta, x_j the keys that the query sees, beta xi = "
        "c q with |xi| the mean length of a key: beta (E(o^) - E(xi) + |o^ - xi|^2 / 2) <= beta sum_l b_l "
        "|o^_l - xi_l| + fp64's rounding, b of FP-1. measured: 0 where the energy falls further.",
    .assumes = "A softmax over keys that do not depend on Q and K; d_qk = d_v, a positive scale. Runs the "
               "algorithm again on a probe, whose values are its keys.",
    .cause = "weights that are not the softmax of the scores: the scale, the keys of another head, or sums "
             "that are not normalised",
    .nulls = CHECK_REJECTS_ALL("Gaussian queries and keys of deviation 1, an algorithm in their place"),
    .evaluate = energy_evaluate,
};

const check check_hop2 = {
    .name = "HOP-2",
    .of = &of_fixed_softmax,
    .kind = KIND_HARD,
    .statement = "a query near a stored pattern gets that pattern back, to an error that falls exponentially",
    .source = "Ramsauer et al. 2021, arXiv:2008.02217, as recalled, for the separation; the bound is derived "
              "in hopfield.c, without fixed points",
    .formula = "|o^ - x_i| <= 2 M (N - 1) e^(-beta (Delta_i - 2 M |xi - x_i|)) + |b|: N patterns x_j = k_j = "
               "v_j that the query sees, M the longest, x_i that of the largest score, Delta_i = x_i.x_i - "
               "max over the others of x_i.x_j, beta xi = c q with xi nearest to x_i, b of FP-1.",
    .assumes =
        "The values are the keys, bit by bit (dataset hopfield); scores as they are; a positive scale. "
        "Uncertifiable unless Delta_i >= 2 / (beta N) + ln(2 (N - 1) N beta M^2) / beta in every judged row.",
    .cause = "as HOP-1, or a value of another key than the weight's",
    .nulls = CHECK_REJECTS_ALL("96 patterns of length 6, queries at one of them"),
    .evaluate = retrieval_evaluate,
};

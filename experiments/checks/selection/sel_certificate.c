/* sel_certificate.c - SEL-3: the mass of pages that are not taken is at most what is known of them without
 * their scores.
 *
 * For a unit u of keys with least and largest elements m and M, mean k' and largest distance r from it,
 * every key j of it has
 *   c q.k_j <= z_u = min(box_u, ball_u, high_u),
 *   box_u = sum_l max(c q_l m_l, c q_l M_l),  ball_u = c q.k' + |c| |q| r,
 * high_u what the selector states (attn_selector.enclose). With T the keys left out, S the others, Z_S =
 * sum of e^s over S,
 *   t <= Z / (Z_S + Z),  Z = sum over units of |u in T| e^(z_u),
 * since Z / (Z_S + Z) grows with Z. Of 16 keys a box is usually the smaller, of 64 a ball. */
#include "experiments/checks/selection/selection_picks.h"

#include "experiments/mathematics/vector.h"
#include "experiments/reference/transform.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

enum { ROWS = 16 };

/* The least upper bound of a key's score from the keys first ... end - 1 alone. center: [d_qk] */
static double reach(const row_case *c, int64_t first, int64_t end) {
  const int64_t d = c->e->problem->d_qk;
  const double scale = c->e->problem->scale, *k = c->head->k;
  double *center = c->space->center, box = 0, far = 0;
  for (int64_t l = 0; l < d; l++) {
    const double x = scale * c->space->q[l];
    double most = -(double)INFINITY;
    center[l] = 0;
    for (int64_t j = first; j < end; j++) {
      most = fmax(most, x * k[j * d + l]);
      center[l] += k[j * d + l] / (double)(end - first);
    }
    box += most;
  }
  for (int64_t j = first; j < end; j++) far = fmax(far, vector_distance(k + j * d, center, d));
  return fmin(box,
              scale * vector_dot(c->space->q, center, d) + fabs(scale) * vector_norm(c->space->q, d) * far);
}

/* ln Z of the keys that are left out; of those that are kept in *kept, and in *left their exact weight.
 * high: what the selector states of its units, or NULL. */
static double log_left(const pick_case *c, const double *high, double *kept, double *left) {
  const row_case *row = c->row;
  const row_space *s = row->space;
  const int64_t grain = row->e->view->selector->grain, keys = row->head->keys;
  double top = -(double)INFINITY, sum = 0, log_kept = -(double)INFINITY;
  *left = 0;
  for (int64_t from = 0, to; from < s->count; from = to) {
    const int64_t unit = s->index[from] / grain, first = unit * grain;
    double out = 0;
    for (to = from; to < s->count && s->index[to] / grain == unit; to++) {
      if (picks_have(c->runs, c->count, s->index[to])) {
        const double most = fmax(log_kept, s->score[to]);
        log_kept = most + log(exp(log_kept - most) + exp(s->score[to] - most));
      } else {
        out++;
        *left += s->weight[to];
      }
    }
    if (out == 0) continue;
    double z = reach(row, first, first + grain < keys ? first + grain : keys);
    if (high) z = fmin(z, high[unit]);
    z += log(out);
    const double most = fmax(top, z);
    sum = sum * exp(top - most) + exp(z - most);
    top = most;
  }
  *kept = log_kept;
  return sum > 0 ? top + log(sum) : -(double)INFINITY;
}

static void judge_row(const void *context, const pick_case *c, pick_finding *f) {
  const row_case *row = c->row;
  const attn_problem *p = row->e->problem;
  const attn_selector *x = row->e->view->selector;
  row_space *s = row->space;
  const attn_query query = evidence_query(context, row->row);
  row_extremes scores;
  double kept, left;
  row_support(row->head, NULL, row->row->i, s);
  const row_verdict verdict = row_attend(row->head, NULL, s, &scores);
  f->x = (outcome){.why = verdict == ROW_OK ? outcome_nothing : row_reason(verdict)};
  if (verdict != ROW_OK || !s->count) return;
  double *low = s->size, *high = s->slack; /* by unit */
  if (x->enclose) x->enclose(x->state, &query, (row->head->keys + x->grain - 1) / x->grain, low, high);
  const double z = log_left(c, x->enclose ? high : NULL, &kept, &left),
               room = 4 * gamma_of(2 * p->d_qk + x->grain + 64, 0x1p-53) * fabs(p->scale) *
                      vector_norm(s->q, p->d_qk) * row->head->k_max;
  if (z == -(double)INFINITY) return;
  const double certified = 1 / (1 + exp(kept - z - room)) + (double)s->count * (DBL_MIN + 0x1p-50);
  f->tells = true;
  f->told[0] = left;
  f->told[1] = certified;
  f->x = (outcome){.measured = left, .value = certified};
  snprintf(f->text, sizeof f->text, "leaves out the mass %.7g, stated to be at most %.7g", left, certified);
}

static attn_status certificate_evaluate(const evidence *e, result_bound *bound) {
  if (transform_any(e->problem))
    return bound_not_applicable(bound,
                                "the scores are transformed: boxes and balls of keys do not bound them");
  const attn_call call = evidence_call(e);
  pick_sums sums;
  const attn_status status = picks_sum(e, ROWS, judge_row, &call, bound, &sums);
  if (!status && bound->verdict == VERDICT_PASS && sums.rows > 0)
    bound_say(bound, "on average %.3g of a row is left out, and %.3g is certified", sums.told[0] / sums.rows,
              sums.told[1] / sums.rows);
  return status;
}

const check check_sel3 = {
    .name = "SEL-3",
    .of = &of_pages,
    .kind = KIND_HARD,
    .statement =
        "the mass of the pages left out is at most what their boxes and balls certify without their scores",
    .source = "derived: the largest product over a box and over a ball, monotonicity of Z / (Z_S + Z)",
    .formula =
        "t <= Z / (Z_S + Z): t the exact weight of the keys left out, Z_S = sum of e^s_j over the keys kept, "
        "Z = sum over units u of the number of their keys left out times e^(z_u), z_u the least of sum_l "
        "max(c q_l m_l, c q_l M_l), m and M the least and largest elements of the unit's keys; of c q.k' + "
        "|c| |q| r, k' their mean, r the largest distance from it; and of high_u (attn_selector.enclose) "
        "where the selector states it. Of 16 rows; passing cells say the means of both sides.",
    .assumes = "The selector keeps units of several keys (attn_selector.grain > 1), and scores are not "
               "transformed. Usually vacuous, near 1, on captured keys; of use where the keys of a page are "
               "alike. A bound on the mass: SP-1 judges the output.",
    .cause = "the selector states an upper end that is too low, or keeps parts of units",
    .nulls = CHECK_BLIND("it judges what is selected, and looks at no output: SP-1 does"),
    .evaluate = certificate_evaluate,
};

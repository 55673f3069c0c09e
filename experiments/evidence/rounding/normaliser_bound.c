/* normaliser_bound.c - see normaliser_bound.h. With |s^_j - s_j| <= e_j and weights w that do not fall with
 * the score, sum_j w(s^_j - tau^) in 1 - r ... 1 + r confines tau^: to at least the tau of the scores s - e
 * for the sum 1 + r, and at most that of s + e for 1 - r. Each weight lies between w(s_j - e_j - high) and
 * w(s_j + e_j - low): no condition number enters. With w-_j, w+_j these ends, and gamma for the sum,
 *   |o^_l - o_l| <= sum_j (max(w+_j - w_j, w_j - w-_j) + gamma w+_j) |v_jl|. */
#include "experiments/evidence/rounding/normaliser_bound.h"

#include "experiments/reference/normalise.h"

#include <math.h>

double normaliser_sum_error(const evidence *e) {
  const attn_rounding *r = &e->view->rounding;
  return gamma_of(r->sum, r->unit) + gamma_of(4 * e->problem->n_kv + 64, 0x1p-53) + NORMALISER_ERROR;
}

/* What gates add to the scores of the row, from its last key back. */
static row_verdict add_gates(const evidence *e, const head_data *head, row_space *s) {
  const attn_normaliser *x = e->view->normaliser;
  const attn_call call = evidence_call(e);
  int64_t at = attn_problem_position(e->problem, s->i);
  double sum = 0;
  if (at >= head->keys) at = head->keys - 1;
  for (int64_t a = s->count - 1; a >= 0; a--) {
    for (; at > s->index[a]; at--) sum += x->gate(x->state, &call, head->batch, head->head, at);
    if (!(sum <= 0)) return ROW_INFINITE;
    s->score[a] += sum;
    if (isfinite(sum)) s->slack[a] += 0x1p-52 * ((double)head->keys + 4) * fabs(sum);
  }
  return ROW_OK;
}

row_verdict normaliser_scores(const evidence *e, const head_data *head, const double *moved, row_space *s) {
  const attn_normaliser *x = e->view->normaliser;
  row_extremes extremes;
  for (int64_t l = 0; l < e->problem->d_qk && x->columns; l++)
    s->q[l] *= l >= x->first && l < x->first + x->columns ? x->gain : 0;
  row_verdict verdict = row_attend(head, moved, s, &extremes);
  if (verdict == ROW_OK) verdict = row_score_errors(head, &e->view->rounding, s);
  if (verdict == ROW_OK && x->gates) verdict = add_gates(e, head, s);
  double top = s->count ? s->score[0] : 0;
  for (int64_t a = 0; a < s->count; a++) top = fmax(top, s->score[a]);
  for (int64_t a = 0; a < s->count && verdict == ROW_OK; a++) {
    /* Twice: the scores here round as well, and their difference. */
    s->slack[a] = 2 * s->slack[a] + (isinf(s->score[a]) ? 0 : 0x1p-50 * (fabs(s->score[a]) + fabs(top)));
    if (x->sums) s->score[a] -= top;
    s->units[a] = s->score[a] - s->slack[a];
    s->map[a] = s->score[a] + s->slack[a];
  }
  return verdict;
}

/* s->weight, and s->units and s->map from scores to weights. */
static row_verdict weigh(const evidence *e, row_space *s) {
  const attn_normaliser *x = e->view->normaliser;
  const double off = normaliser_sum_error(e), tiny = attn_numbers[e->problem->dtype].normal,
               relative = NORMALISER_ERROR + e->view->rounding.weight + 2 * e->view->rounding.unit;
  if (!(off < 0.5)) return ROW_CHAIN;
  const double tau = normalise_threshold(x, s->count, s->score, 1, false),
               low = normalise_threshold(x, s->count, s->units, 1 + off, false),
               high = normalise_threshold(x, s->count, s->map, 1 - off, true);
  if (isnan(tau) || isnan(low) || isnan(high)) return ROW_LOOSE;
  for (int64_t a = 0; a < s->count; a++) {
    const double least = x->weight(x->state, s->count, s->units[a] - high),
                 most = x->weight(x->state, s->count, s->map[a] - low);
    s->weight[a] = x->weight(x->state, s->count, s->score[a] - tau);
    s->units[a] = fmax(0, least * (1 - relative) - tiny);
    s->map[a] = fmin(most, x->sums ? 1 + off : (double)INFINITY) * (1 + relative) + (most > 0 ? tiny : 0);
  }
  return ROW_OK;
}

row_verdict normaliser_bound(const evidence *e, const head_data *head, const double *moved, row_space *s) {
  const attn_problem *p = e->problem;
  const attn_rounding *r = &e->view->rounding;
  const double tiny = attn_numbers[p->dtype].normal;
  double reach = 0;
  for (int64_t l = 0; l < p->d_v; l++) s->o[l] = s->bound[l] = 0;
  if (s->count == 0) return ROW_OK;
  row_verdict verdict = normaliser_scores(e, head, moved, s);
  if (verdict == ROW_OK) verdict = weigh(e, s);
  if (verdict != ROW_OK) return verdict;
  const double growth = gamma_of(r->value + 2, r->unit) + gamma_of(s->count + 2, 0x1p-53);
  for (int64_t l = 0; l < p->d_v; l++) s->o[l] = 0;
  for (int64_t a = 0; a < s->count; a++) {
    const double *v = head->v + s->index[a] * p->d_v, w = s->weight[a], most = s->map[a],
                 off = fmax(most - w, w - s->units[a]);
    reach += most;
    for (int64_t l = 0; l < p->d_v; l++) {
      s->o[l] += w * v[l];
      s->bound[l] += (off + growth * most) * fabs(v[l]) + (most > 0 ? 2 * tiny : 0);
    }
  }
  return reach * fmax(1, head->v_max) < attn_numbers[p->dtype].largest / 4 ? ROW_OK : ROW_OVERFLOW;
}

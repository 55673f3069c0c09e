/* kernel.c - KER-1: softmax attention is a kernel smoother. With q.k = (|q|^2 + |k|^2 - |q - k|^2) / 2 and c the scale,
 *
 *   p_j  ~  e^(b_j) e^(c |k_j|^2 / 2)  e^(-c |q - k_j|^2 / 2),
 *
 * Nadaraya and Watson's regression on the keys with a Gaussian kernel of variance 1/c, keys weighted by their length
 * (and by a bias b, where the problem has one). The weights are made here from distances alone, so that the reference
 * of FP-1, which multiplies, is held against another formula, too. */
#include "experiments/checks/table.h"

#include "experiments/evidence/rows.h"
#include "experiments/mathematics/vector.h"
#include "experiments/reference/transform.h"

#include <math.h>
#include <string.h>

/* Of t = c q.k by distances: the score, and how far fp64 may have taken it. */
static double score_by_distance(const row_case *c, int64_t j, double *error) {
  const attn_problem *p = c->e->problem;
  const double *q = c->space->q, *k = c->head->k + j * p->d_qk, q_norm = vector_norm(q, p->d_qk),
               k_norm = vector_norm(k, p->d_qk), far = vector_distance(q, k, p->d_qk),
               size = fabs(p->scale) / 2 * (q_norm * q_norm + k_norm * k_norm + far * far),
               t = p->scale / 2 * (q_norm * q_norm + k_norm * k_norm - far * far);
  *error = gamma_of(p->d_qk + 12, 0x1p-53) * size;
  return transform_score(p, c->row->batch, c->row->head, c->row->i, j, t).score;
}

/* Scores in space->score become a weighted mean in space->kept; *error: the largest of a score. */
static void smooth(const row_case *c, double *error) {
  const attn_problem *p = c->e->problem;
  row_space *s = c->space;
  const double sink = p->score.sink ? p->score.sink[c->row->head] : -(double)INFINITY;
  double top = sink, sum, own;
  *error = 0;
  for (int64_t a = 0; a < s->count; a++) {
    s->score[a] = score_by_distance(c, s->index[a], &own);
    top = s->score[a] > top ? s->score[a] : top;
    *error = fmax(*error, own);
  }
  sum = exp(sink - top);
  memset(s->kept, 0, (size_t)p->d_v * sizeof *s->kept);
  for (int64_t a = 0; a < s->count; a++) {
    const double weight = exp(s->score[a] - top), *v = c->head->v + s->index[a] * p->d_v;
    sum += weight;
    for (int64_t l = 0; l < p->d_v; l++) s->kept[l] += weight * v[l];
  }
  for (int64_t l = 0; l < p->d_v; l++) s->kept[l] /= sum;
}

/* Lemma P: scores that are off by at most e each move a mean by at most tanh(e / 2) times the range of the values. */
static outcome judge_row(const row_case *c) {
  const attn_problem *p = c->e->problem;
  row_space *s = c->space;
  row_extremes scores;
  double error;
  row_support(c->head, NULL, c->row->i, s);
  if (s->count == 0) return (outcome)OUTCOME_NONE;
  row_verdict verdict = row_attend(c->head, NULL, s, &scores);
  if (verdict == ROW_OK)
    verdict = row_error(c->head, &c->e->view->rounding, false, NULL, 0, &scores, s, s->bound);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  smooth(c, &error);
  if (!isfinite(error)) return (outcome){.why = row_reason(ROW_OVERFLOW)};
  for (int64_t l = 0; l < p->d_v; l++)
    s->bound[l] += tanh(error / 2) * row_range(c->head, l) +
                   gamma_of(s->count + 8, 0x1p-53) * fmax(fabs(c->head->low[l]), fabs(c->head->high[l]));
  return outcome_rounded(s->given, s->kept, s->bound, p->d_v, c->head->v_max);
}

/* By how much c |k|^2 / 2 differs among the keys of the first head: 0, and the smoother is a plain Gaussian one. */
static attn_status key_spread(const evidence *e, double *spread) {
  head_data h;
  double least = (double)INFINITY, most = -(double)INFINITY;
  const attn_status status = head_data_borrow(e, 0, 0, &h);
  if (status) return status;
  for (int64_t j = 0; j < h.keys; j++) {
    const double norm = vector_norm(h.k + j * e->problem->d_qk, e->problem->d_qk);
    least = fmin(least, norm * norm);
    most = fmax(most, norm * norm);
  }
  *spread = h.keys ? fabs(e->problem->scale) / 2 * (most - least) : 0;
  head_data_return(e, &h);
  return ATTN_OK;
}

static attn_status kernel_evaluate(const evidence *e, result_bound *bound) {
  double spread;
  if (e->problem->score.softcap > 0 || e->problem->score.leaky > 0)
    return bound_not_applicable(bound, "a soft cap or a leaky score leaves no Gaussian kernel");
  if (!(e->view->rounding.unit > 0)) return bound_not_applicable(bound, "the variant describes no rounding");
  attn_status status = rows_check(e, 3 * row_cost(e), judge_row, bound);
  if (!status && bound->verdict == VERDICT_PASS) {
    status = key_spread(e, &spread);
    if (!status) bound_say(bound, "weights of keys by their length spread over %.3g nats", spread);
  }
  return status;
}

const check check_ker1 = {
    .name = "KER-1",
    .of = &of_exact,
    .kind = KIND_HARD,
    .statement = "rows are those of a Gaussian kernel smoother whose weights come from distances",
    .source = "Nadaraya 1964, Watson 1964; q.k = (|q|^2 + |k|^2 - |q - k|^2) / 2",
    .formula = "p_j = e^(b_j + c |k_j|^2 / 2 - c |q - k_j|^2 / 2) over their sum and the sink's; |o^_l - "
               "sum_j p_j v_jl| <= FP-1's bound + tanh(e / 2) range_l, e = gamma_(d+12) |c| (|q|^2 + |k|^2 + "
               "|q - k|^2) / 2 in fp64. Passing cells say how far the weights e^(c |k|^2 / 2) spread: where "
               "they do not, it is plain Gaussian smoothing.",
    .assumes = "The variant is exact and describes its rounding; no soft cap and no leaky score.",
    .cause =
        "as FP-1: the scale, a key that is lost or of another head, or weights that are not the exponential",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs"),
    .evaluate = kernel_evaluate,
};

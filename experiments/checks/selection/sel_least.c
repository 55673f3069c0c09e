/* sel_least.c - SKIP-1: keys that are left out because their weights are small hold little of a row's mass.
 *
 * With s the scores in fp64, M the largest of a key that is kept, or the row's sink, and n keys left out,
 *   s_j < M + ln(least) + e for each of them, so that t = sum of their exact weights <= n L / (1 + n L), L =
 *   least e^e:
 * what is kept holds e^M at least, and Z_T / (Z_S + Z_T) grows with Z_T and falls with Z_S. e is what
 * rounding may have done to the two scores, and to the limit between them. */
#include "experiments/checks/selection/selection_picks.h"

#include <math.h>
#include <stdio.h>

/* What a row leaves out, and the largest score that it keeps. */
typedef struct left_out {
  int64_t count, most;     /* keys, and the one of the largest score, or -1 */
  double mass, score, top; /* their exact weights; the largest score left out, and kept */
  double room, size;       /* how far a computed score may be off at most; the largest magnitude of one */
} left_out;

static left_out weigh(const pick_case *c) {
  const row_case *row = c->row;
  const attn_problem *p = row->e->problem;
  const row_space *s = row->space;
  const double *sink = p->score.sink ? &p->score.sink[row->row->head] : NULL;
  left_out x = {.most = -1, .score = -(double)INFINITY, .top = -(double)INFINITY};
  if (sink) x = (left_out){.most = -1, .score = x.score, .top = *sink, .size = fabs(*sink)};
  for (int64_t a = 0; a < s->count; a++) {
    x.room = fmax(x.room, s->slack[a] + gamma_of(p->d_qk + 3, 0x1p-53) * s->size[a]);
    x.size = fmax(x.size, fabs(s->score[a]));
    if (picks_have(c->runs, c->count, s->index[a])) {
      x.top = fmax(x.top, s->score[a]);
      continue;
    }
    x.count++;
    x.mass += s->weight[a];
    if (s->score[a] > x.score) x.score = s->score[x.most = a];
  }
  if (x.most >= 0) x.most = s->index[x.most];
  return x;
}

static void judge_left_out(const void *context, const pick_case *c, pick_finding *f) {
  const double least = *(const double *)context, unit = c->row->e->view->rounding.unit;
  const row_case *row = c->row;
  row_extremes scores;
  row_support(row->head, NULL, row->row->i, row->space);
  row_verdict verdict = row_attend(row->head, NULL, row->space, &scores);
  if (verdict == ROW_OK) verdict = row_score_errors(row->head, &row->e->view->rounding, row->space);
  f->x = (outcome){.why = verdict == ROW_OK ? outcome_nothing : row_reason(verdict)};
  if (verdict != ROW_OK) return;
  const left_out x = weigh(c);
  const double e = 2 * x.room + 4 * unit * (x.size + x.room - 2 * log(least)), most = least * exp(e);
  if (!x.count) return;
  if (!(x.score - x.top <= log(least) + e)) {
    f->x = (outcome){.measured = exp(x.score - x.top), .value = most};
    snprintf(f->text, sizeof f->text, "leaves out key %lld, whose weight is %.3g of the heaviest kept key's",
             (long long)x.most, exp(x.score - x.top));
    return;
  }
  const double n = (double)x.count, bound = isfinite(most) ? n * most / (1 + n * most) : 1;
  f->x = (outcome){.measured = x.mass, .value = bound + (n + 64) * 0x1p-50};
  snprintf(f->text, sizeof f->text, "leaves out %lld keys, which hold %.3g of its mass", (long long)x.count,
           x.mass);
}

static attn_status least_evaluate(const evidence *e, result_bound *bound) {
  return picks_check(e, 0, judge_left_out, &e->view->selector->least, bound);
}

const check check_skip1 = {
    .name = "SKIP-1",
    .of = &of_thresholds,
    .kind = KIND_HARD,
    .statement = "each key left out has less than a stated fraction of the weight of the heaviest key kept, "
                 "so that n of them hold little",
    .source = "derived: the running maximum grows by keys that are kept alone; the rule of BLASST, "
              "arXiv:2512.12087",
    .formula = "lambda what the selector states (attn_selector.least), S the keys kept, M the largest score "
               "in S, or the row's sink: s_j < M + ln(lambda) + e for every key left out, hence t = sum of "
               "exact weights of the n keys left out <= n L / (1 + n L), L = lambda e^e; e: twice FP-1's "
               "error of a score, and the rounding of the limit.",
    .assumes = "The selector states how little a key that it leaves out may weigh. Where keys are left out "
               "by the step, the mass is usually far below the bound.",
    .cause = "a step is passed over when some query has no use of it rather than none, or the limit has the "
             "wrong sign",
    .nulls = CHECK_BLIND("it judges what is left out, and looks at no output; SP-1, on the same keys, does"),
    .evaluate = least_evaluate,
};

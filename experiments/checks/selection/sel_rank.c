/* sel_rank.c - SEL-1, SEL-2: what is selected has the largest scores, the exact ones or those of the
 * selector's law.
 *
 * A unit is kept whole or not at all. With s the scores in fp64 and e how far the selector's own may be off,
 *   min over kept (s + e) >= max over dropped (s - e),
 * over units that are not always taken; min(kept, number of units) are kept, or the fewest that have the
 * mass. Keys that are the same to the bit have the same score, and the earlier one comes first. */
#include "experiments/checks/selection/selection_picks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SCORED_ROWS = 64, MARGIN_ROWS = 16 };

/* Units of a row that were ranked. */
typedef struct ranking {
  int64_t units, kept;
  int64_t least, most;             /* the kept one of the least score, the dropped one of the largest */
  double least_score, least_error; /* least s + e */
  double most_score, most_error;   /* largest s - e */
  double log_kept, log_all;        /* ln of the sums of e^s */
  double widest;                   /* largest e */
} ranking;

static double log_add(double a, double b) {
  const double high = fmax(a, b);
  return isfinite(high) ? high + log(exp(a - high) + exp(b - high)) : high;
}

static void rank(ranking *r, int64_t unit, bool kept, double score, double error) {
  r->units++;
  r->kept += kept;
  r->log_all = log_add(r->log_all, score);
  if (kept) r->log_kept = log_add(r->log_kept, score);
  r->widest = fmax(r->widest, error);
  if (kept && score + error <= r->least_score + r->least_error) { /* the last of equal ones */
    r->least = unit;
    r->least_score = score;
    r->least_error = error;
  } else if (!kept && score - error > r->most_score - r->most_error) {
    r->most = unit;
    r->most_score = score;
    r->most_error = error;
  }
}

/* The first dropped key that is the kept one of the least score again, and comes before it; -1. */
static int64_t tied(const row_case *c, const pick_case *picks, const ranking *r) {
  const int64_t d = c->e->problem->d_qk;
  const row_space *s = c->space;
  for (int64_t a = 0; r->least >= 0 && a < s->count && s->index[a] < r->least; a++)
    if (memcmp(c->head->k + s->index[a] * d, c->head->k + r->least * d, (size_t)d * sizeof(double)) == 0 &&
        !picks_have(picks->runs, picks->count, s->index[a]))
      return s->index[a];
  return -1;
}

/* Have the kept units the mass, and without the least of them less? */
static void settle_mass(const ranking *r, double mass, pick_finding *f) {
  if (!isfinite(r->log_all)) return; /* no unit has any mass */
  const double share = exp(r->log_kept - r->log_all), least = r->kept ? exp(r->least_score - r->log_all) : 0;
  f->x = (outcome){.measured = fmax(0, fmax(mass - share, r->kept ? share - least - mass : 0)),
                   .value = expm1(2 * r->widest) + (double)(r->units + 8) * 0x1p-50};
  snprintf(f->text, sizeof f->text, "selects the mass %.6g, %.6g without the least unit, to keep %.6g", share,
           share - least, mass);
}

static void judge_ranking(const row_case *c, const pick_case *picks, const ranking *r, pick_finding *f) {
  const attn_selector *x = c->e->view->selector;
  const char *what = x->grain > 1 ? "unit" : "key";
  const int64_t due = r->units < x->kept ? r->units : x->kept;
  if (x->mass > 0 && r->units) settle_mass(r, x->mass, f);
  if (!(f->x.measured <= f->x.value)) return;
  if (!(x->mass > 0) && r->kept != due) {
    f->x = (outcome){.measured = fabs((double)(r->kept - due))};
    snprintf(f->text, sizeof f->text, "selects %lld of %lld %ss by score, and should %lld",
             (long long)r->kept, (long long)r->units, what, (long long)due);
    return;
  }
  if (r->kept == 0 || r->kept == r->units) return;
  f->x =
      (outcome){.measured = fmax(0, r->most_score - r->least_score), .value = r->most_error + r->least_error};
  snprintf(f->text, sizeof f->text, "selects %s %lld of score %.6g and leaves %s %lld of score %.6g", what,
           (long long)r->least, r->least_score, what, (long long)r->most, r->most_score);
  if (x->score || !attn_problem_plain(c->e->problem) || f->x.measured > f->x.value) return;
  const int64_t first = tied(c, picks, r);
  if (first < 0) return;
  f->x = (outcome){.measured = 1};
  snprintf(f->text, sizeof f->text,
           "selects key %lld and leaves key %lld, which is the same: the lower comes first",
           (long long)r->least, (long long)first);
}

/* Places first ... of the support that belong to a unit: are all, or some, selected? */
static int64_t selected(const pick_case *c, const row_space *s, int64_t from, int64_t to) {
  int64_t count = 0;
  for (int64_t a = from; a < to; a++) count += picks_have(c->runs, c->count, s->index[a]);
  return count;
}

/* The score of a unit that biases hide from this query; -Inf where none that shares the selection sees a key
 * of it. */
static double score_of_others(const attn_selector *x, const attn_query *query, int64_t unit, double *error) {
  return x->score && x->share != ATTN_SHARE_ROW ? x->score(x->state, query, unit, error) : -(double)INFINITY;
}

static void judge_ranks(const void *context, const pick_case *c, pick_finding *f) {
  const attn_call *call = context;
  const row_case *row = c->row;
  const attn_selector *x = row->e->view->selector;
  row_space *s = row->space;
  const attn_query query = {.call = call, .batch = row->row->batch, .head = row->row->head, .i = row->row->i};
  ranking r = {.least = -1,
               .most = -1,
               .least_score = (double)INFINITY,
               .most_score = -(double)INFINITY,
               .log_kept = -(double)INFINITY,
               .log_all = -(double)INFINITY};
  row_extremes scores;
  int64_t first, end, to = 0;
  attn_visible_span(row->e->problem, row->row->i, &first, &end);
  if (end > row->head->keys) end = row->head->keys;
  row_support(row->head, NULL, row->row->i, s);
  row_verdict verdict = row_attend(row->head, NULL, s, &scores);
  if (verdict == ROW_OK) verdict = row_score_errors(row->head, &row->e->view->rounding, s);
  f->x = (outcome){.why = verdict == ROW_OK ? outcome_nothing : row_reason(verdict)};
  for (int64_t unit = first / x->grain; verdict == ROW_OK && unit * x->grain < end; unit++) {
    const int64_t from = to;
    while (to < s->count && s->index[to] / x->grain == unit) to++;
    const int64_t kept = selected(c, s, from, to);
    const bool always = x->always && x->always(x->state, &query, unit);
    if (kept != to - from && (kept || always)) {
      f->x = (outcome){.measured = (double)(to - from - kept)};
      snprintf(f->text, sizeof f->text, "selects %lld of the %lld keys of unit %lld that it sees%s",
               (long long)kept, (long long)(to - from), (long long)unit,
               always ? ", which it always takes" : "");
      return;
    }
    if (always) continue;
    if (from == to) {
      double error = 0;
      const double score = score_of_others(x, &query, unit, &error);
      const int64_t key = unit * x->grain > first ? unit * x->grain : first;
      if (score > -(double)INFINITY) rank(&r, unit, picks_have(c->runs, c->count, key), score, error);
      continue;
    }
    double score = s->score[from],
           error = s->slack[from] + gamma_of(row->e->problem->d_qk + 3, 0x1p-53) * s->size[from];
    if (x->score) score = x->score(x->state, &query, unit, &error);
    rank(&r, unit, kept > 0, score, error);
  }
  if (verdict == ROW_OK) judge_ranking(row, c, &r, f);
}

/* By margins a key is taken or not, whatever others are. */
static void judge_margins(const void *context, const pick_case *c, pick_finding *f) {
  const row_case *row = c->row;
  const attn_selector *x = row->e->view->selector;
  row_space *s = row->space;
  const attn_query query = {
      .call = context, .batch = row->row->batch, .head = row->row->head, .i = row->row->i};
  double *low = s->size, *high = s->slack;
  row_support(row->head, NULL, row->row->i, s);
  f->x = (outcome){.why = s->count ? NULL : outcome_nothing};
  x->margins(x->state, &query, row->head->keys, low, high);
  for (int64_t a = 0; a < s->count; a++) {
    const int64_t key = s->index[a];
    const bool kept = picks_have(c->runs, c->count, key),
               always = x->always && x->always(x->state, &query, key);
    const double off = always && !kept ? (double)INFINITY : always ? 0 : kept ? -high[key] : low[key];
    if (!(off > f->x.measured)) continue;
    f->x.measured = off;
    snprintf(f->text, sizeof f->text, "%s key %lld, whose margin is %.6g ... %.6g%s",
             kept ? "selects" : "leaves", (long long)key, low[key], high[key],
             always ? ", and which it always takes" : "");
  }
}

attn_status picks_rank(const evidence *e, const attn_call *law, result_bound *bound) {
  /* A score of the selector's own takes as long as a row of it. */
  return picks_check(e, e->view->selector->score ? SCORED_ROWS : 0, judge_ranks, law, bound);
}

static attn_status rank_evaluate(const evidence *e, result_bound *bound) {
  const attn_call call = evidence_call(e);
  if (e->view->selector->margins) return picks_check(e, MARGIN_ROWS, judge_margins, &call, bound);
  return picks_rank(e, &call, bound);
}

#define RANKED                                                                                               \
  "min over kept (s + e) >= max over dropped (s - e); kept whole or not at all; min(kept, those there are) " \
  "are kept (or, of a law of mass, the fewest whose softmax has it), besides those that the law takes in "   \
  "any case. "
#define CAUSE                                                                                            \
  "scores are ranked by magnitude or without their sign, the last keys are not ranked, keys of another " \
  "head "                                                                                                \
  "are, or k is off by one"
#define BLIND  \
  CHECK_BLIND( \
      "it judges what is selected, and looks at no output: FP-1, FP-2 and SP-1 judge what is made of it")

const check check_sel1 = {
    .name = "SEL-1",
    .of = &of_rankings,
    .kind = KIND_HARD,
    .statement = "the selected keys are those of the largest exact scores, as many as the law says",
    .source = "definition of top-k attention (Gupta et al. 2021)",
    .formula = RANKED "s the exact scores of the keys that the query may see, e of FP-1 (e_j = gamma_(d+3) "
                      "|c| sum_l |q_l k_jl|). Of keys that are the same to the bit the earlier one is kept.",
    .assumes = "The selector states a law without a score function (attn_selector.grain = 1, kept), and "
               "FP-1's hypotheses. Scores closer than e + e' are not told apart, unless their keys are the "
               "same and no transform of scores depends on the position.",
    .cause = CAUSE ", or ties go to the later key",
    .nulls = BLIND,
    .evaluate = rank_evaluate,
};

const check check_sel2 = {
    .name = "SEL-2",
    .of = &of_scored_rankings,
    .kind = KIND_HARD,
    .statement = "the selected units have the largest scores by the selector's own law, as many as it says",
    .source = "definition of the selection (attn_selector.score)",
    .formula = RANKED "s the score that the law states in fp64, e the error that it states. Of a law of "
                      "margins: low_j <= 0 of each key that is dropped, high_j >= 0 of each that is kept.",
    .assumes =
        "The selector states a law with a score (attn_selector.grain, kept, score), or one of margins, "
        "which is asked for 16 rows. What the score is "
        "worth is not judged: the columns kept_mass_mean and regret_mean have it.",
    .cause = CAUSE,
    .nulls = BLIND,
    .evaluate = rank_evaluate,
};

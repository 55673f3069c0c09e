/* sp_random.c - SP-4: random blocks leave out, on average, the mass that they should, and are drawn apart.
 *
 * Of N blocks outside of the window and the global ones, F, R = min(r, N) are drawn without replacement, each
 * with probability R/N whatever its length, so that for any weights p of a row
 *   E t = (1 - p(F)) (1 - R/N),  0 <= t <= 1 - p(F),
 * and of the R blocks the lower half of the N holds R floor(N/2)/N on average: the first is blind to a choice
 * by position where the mass does not depend on it. Rows of different blocks and heads, and other seeds, are
 * independent draws; Hoeffding's inequality for ranges c_i, P(|sum (t_i - E t_i)| >= x) <= 2 exp(-2 x^2 / sum
 * c_i^2), gives an exact p-value. That they are independent is seen from their ranks among the candidates,
 * which follow the stream of random numbers wherever the window is: a draw is compared with those of earlier
 * blocks of its head, of the head before, and of the seed before (overlap.h). Bonferroni over the three. It
 * judges the pattern, not the output: blind to all three nulls. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/rows.h"
#include "experiments/mathematics/overlap.h"
#include "experiments/mathematics/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 8, SEED_STEP = 7919, BLOCKS_MAX = 64, HEADS_MAX = 8 };
static const double overlap_work = 0x1p25;

/* Deviations from expectations, and what bounds them. */
typedef struct tally {
  double sum, squares;
} tally;

/* Ranks of the drawn blocks among the candidates. */
typedef struct drawn_set {
  int64_t *ranks, size, candidates;
} drawn_set;

/* Sets of the last blocks of queries of some heads, under two seeds: the later one is compared. */
typedef struct draw_sets {
  int64_t heads, blocks, most;    /* of ranks in a set */
  drawn_set *sets, *now, *before; /* both of [heads, blocks] */
  int64_t *ranks;
  bool again;                     /* before is filled */
  overlap *lags, *offsets, seeds; /* [blocks] of one head; [2 blocks] from head to head */
} draw_sets;

typedef struct draw_case {
  const evidence *e;
  draw_sets sets;
  attn_run *runs;
  bool *inside;
  tally mass, place;
  double left, expected; /* sums of t and E t */
  int64_t rows;
} draw_case;

static double hoeffding(const tally *t) {
  return t->squares > 0 ? fmin(1, 2 * exp(-2 * t->sum * t->sum / t->squares)) : 1;
}

static void see(draw_case *c, const attn_pattern *pattern, int64_t head, int64_t i) {
  int64_t found = attn_pattern_row(pattern, c->e->problem, head, i, c->runs);
  memset(c->inside, 0, (size_t)c->e->problem->n_kv * sizeof *c->inside);
  for (int64_t r = 0; r < found; r++)
    for (int64_t k = 0; k < c->runs[r].count; k++) c->inside[c->runs[r].first + k * c->runs[r].step] = true;
}

static void judge_row(draw_case *c, const attn_pattern *pattern, int64_t r) {
  const exact_rows *x = c->e->exact;
  const sample_row *row = &x->rows[r];
  int64_t n = c->e->problem->n_kv, grain = pattern->grain, position = row->i + n - c->e->problem->n_q;
  int64_t count = 0, rank = 0, low = 0;
  for (int64_t b = 0; b * grain < n; b++) count += pattern->candidate(pattern->state, row->head, position, b);
  if (count == 0) return;
  int64_t half = count / 2;
  double mass = 0, left = 0, drawn = (double)(pattern->drawn < count ? pattern->drawn : count);
  see(c, pattern, row->head, row->i);
  for (int64_t first = 0; first < n; first += grain) {
    if (!pattern->candidate(pattern->state, row->head, position, first / grain)) continue;
    int64_t end = first + grain < n ? first + grain : n;
    for (int64_t j = first; j < end; j++) {
      double p = x->p[r * n + j];
      mass += p;
      left += c->inside[j] ? 0 : p;
    }
    low += rank++ < half && c->inside[first];
  }
  double expected = mass * (1 - drawn / (double)count), least = fmax(0, drawn - (double)(count - half));
  double range = fmin(drawn, (double)half) - least;
  c->mass.sum += left - expected;
  c->mass.squares += mass * mass;
  c->place.sum += (double)low - drawn * (double)half / (double)count;
  c->place.squares += range * range;
  c->left += left;
  c->expected += expected;
  c->rows++;
}

/* One row of each head and block of queries: rows of one block share its draw, as do all batches, and heads
 * unless the pattern says that they differ. */
static void judge_rows(draw_case *c, const attn_pattern *pattern) {
  const exact_rows *x = c->e->exact;
  int64_t shift = attn_problem_position(c->e->problem, 0), grain = pattern->grain;
  for (int64_t r = 0; r < x->count && x->rows[r].batch == 0; r++) {
    const sample_row *row = &x->rows[r], *before = row - 1;
    if (row->head > 0 && !pattern->per_head) break;
    if (r == 0 || before->head != row->head || (before->i + shift) / grain != (row->i + shift) / grain)
      judge_row(c, pattern, r);
  }
}

/* -- draws that are not apart -- */

static int64_t blocks_of(const evidence *e) { return (e->problem->n_kv - 1) / e->view->pattern->grain + 1; }

static attn_status sets_make(const evidence *e, draw_sets *s) {
  const attn_pattern *p = e->view->pattern;
  int64_t all = blocks_of(e), shift = attn_problem_position(e->problem, 0),
          first = shift > 0 ? shift / p->grain : 0;
  s->heads = !p->per_head ? 1 : e->problem->heads < HEADS_MAX ? e->problem->heads : HEADS_MAX;
  s->most = p->drawn < all ? p->drawn : all;
  s->blocks = all - first < BLOCKS_MAX ? all - first : BLOCKS_MAX;
  while (s->blocks > 1 && (double)(s->heads * s->blocks * SEEDS) * ((double)(3 * s->blocks * s->most) +
                                                                    (double)e->problem->n_kv + (double)all) >
                              overlap_work)
    s->blocks /= 2;
  const int64_t sets = 2 * s->heads * s->blocks;
  s->sets = s->now = region_zeros(e->memory, sets, sizeof *s->now);
  s->ranks = region_zeros(e->memory, sets * s->most, sizeof *s->ranks);
  s->lags = region_zeros(e->memory, s->blocks, sizeof *s->lags);
  s->offsets = region_zeros(e->memory, 2 * s->blocks, sizeof *s->offsets);
  if (region_status(e->memory, "for the draws of a pattern")) return ATTN_ENOMEM;
  s->before = s->now + sets / 2;
  for (int64_t i = 0; i < sets; i++) s->now[i].ranks = s->ranks + i * s->most;
  return ATTN_OK;
}

/* The set of a block of queries, from a row in it. */
static void set_fill(draw_case *c, const attn_pattern *pattern, int64_t head, int64_t block, drawn_set *out) {
  const attn_problem *p = c->e->problem;
  int64_t shift = attn_problem_position(p, 0), first = block * pattern->grain,
          position = first > shift ? first : shift;
  out->size = out->candidates = 0;
  see(c, pattern, head, position - shift);
  for (int64_t b = 0; b * pattern->grain < p->n_kv; b++) {
    if (!pattern->candidate(pattern->state, head, position, b)) continue;
    if (c->inside[b * pattern->grain] && out->size < c->sets.most) out->ranks[out->size++] = out->candidates;
    out->candidates++;
  }
}

static void compare(overlap *o, const drawn_set *set, int64_t drawn, const drawn_set *before) {
  overlap_add(o, set->ranks, set->size, set->candidates, drawn, before->ranks, before->size);
}

/* All draws of one seed, in order. */
static void judge_sets(draw_case *c, const attn_pattern *pattern) {
  draw_sets *s = &c->sets;
  int64_t first = blocks_of(c->e) - s->blocks, drawn = pattern->drawn;
  drawn_set *swap = s->now;
  s->now = s->before;
  s->before = swap;
  for (int64_t h = 0; h < s->heads; h++)
    for (int64_t i = 0; i < s->blocks; i++) {
      drawn_set *own = &s->now[h * s->blocks + i], *last = own - s->blocks;
      set_fill(c, pattern, h, first + i, own);
      for (int64_t lag = 1; lag <= i; lag++) compare(&s->lags[lag], own, drawn, own - lag);
      for (int64_t other = 0; other < s->blocks && h > 0; other++)
        compare(&s->offsets[s->blocks + other - i], own, drawn, last + other - i);
      if (s->again) compare(&s->seeds, own, drawn, &s->before[h * s->blocks + i]);
    }
  s->again = true;
}

/* p of the mean of the three, and what is largest. */
static double overlap_p_value(const draw_sets *s, const char **which) {
  static const char *const names[] = {"blocks of queries", "heads", "seeds"};
  double found[3], top = 0, sum = 0;
  found[0] = overlap_evidence(s->lags, s->blocks);
  found[1] = overlap_evidence(s->offsets, 2 * s->blocks);
  found[2] = overlap_evidence(&s->seeds, 1);
  for (int i = 0; i < 3; i++) {
    if (found[i] > top) *which = names[i];
    top = fmax(top, found[i]);
  }
  for (int i = 0; i < 3; i++) sum += exp(found[i] - top) / 3;
  return fmin(1, exp(-top) / sum);
}

/* Why there are no draws to judge, or NULL. */
static const char *missing(const attn_view *view) {
  const attn_pattern *p = view->pattern;
  if (!p || (p->sees && !p->candidate)) return "no random blocks";
  if (!p->sees || p->grain < 1)
    return "the variant describes no law of its pattern: nothing to hold it against";
  if (p->drawn == 0) return "no random blocks";
  return view->seed ? NULL : "the variant names no seed: there are no other draws";
}

static attn_status judge_seed(draw_case *c, int64_t seed) {
  const evidence *e = c->e;
  attn_plan *plan = NULL;
  attn_view view;
  attn_status status = evidence_seeded_plan(e, e->problem, seed, 0, &plan, &view);
  if (!status && (missing(&view) || view.pattern->max_runs > e->view->pattern->max_runs))
    status =
        attn_fail(ATTN_EUNSUPPORTED, "%s: the law of the pattern depends on the seed", attn_plan_spec(plan));
  if (!status) {
    judge_rows(c, view.pattern);
    judge_sets(c, view.pattern);
  }
  attn_plan_destroy(plan);
  return status;
}

static attn_status random_evaluate(const evidence *e, result_bound *bound) {
  draw_case c = {.e = e};
  const attn_pattern *pattern = e->view->pattern;
  const char *why = missing(e->view);
  const attn_problem *p = e->problem;
  if (!why && (p->mask.kind != ATTN_MASK_NONE || p->score.dense.at || p->score.sink))
    why = "the problem hides keys or has a sink: the mass of a row is not all its blocks'";
  if (why) return bound_not_applicable(bound, why);
  const int64_t seed = evidence_seed(e);
  c.runs = region_zeros(e->memory, pattern->max_runs, sizeof *c.runs);
  c.inside = region_zeros(e->memory, e->problem->n_kv, sizeof *c.inside);
  attn_status status = region_status(e->memory, "for the runs of a pattern");
  if (!status) status = sets_make(e, &c.sets);
  if (!status) {
    judge_rows(&c, pattern);
    judge_sets(&c, pattern);
  }
  for (int64_t s = 1; s < SEEDS && !status; s++) status = judge_seed(&c, seed + s * SEED_STEP);
  const char *which = "";
  double apart = status ? 1 : overlap_p_value(&c.sets, &which);
  if (status == ATTN_EUNSUPPORTED) {
    bound_uncertifiable(bound, attn_last_error());
    return ATTN_OK;
  }
  if (status) return status;
  if (!isfinite(c.left))
    bound_uncertifiable(bound, "the exact weights are not finite");
  else if (c.rows == 0)
    bound_not_applicable(bound, "no row has a block left to draw");
  else {
    bound_prob(bound, c.left / (double)c.rows, c.expected / (double)c.rows,
               BONFERRONI(apart, hoeffding(&c.mass), hoeffding(&c.place)));
    bound_say(bound, "T = %lld rows of %d seeds, %lld and every %d more%s%s", (long long)c.rows, SEEDS,
              (long long)seed, SEED_STEP, apart < 1e-3 ? "; draws are not apart for different " : "",
              apart < 1e-3 ? which : "");
  }
  return ATTN_OK;
}

const check check_sp4 = {
    .name = "SP-4",
    .of = &of_patterns,
    .kind = KIND_PROB,
    .statement = "random blocks leave out (1 - p(F))(1 - R/N) of the mass on average, fall evenly on all "
                 "positions, and are drawn apart for every head, block of queries and seed",
    .source = "derived: every block is drawn with probability R/N; Hoeffding 1963, Thms 2 and 4, over rows, "
              "heads and 8 seeds",
    .formula =
        "t_i = the exact weights p of row i on the keys left out, F the window and global blocks, N the "
        "blocks beside them, R = min(drawn, N): E t_i = (1 - p(F))(1 - R/N); p = 2 exp(-2 (sum t_i - E "
        "t_i)^2 / sum (1 - p(F))^2), and the like for the number of blocks drawn from the lower half of the "
        "N; p = 1/e, e the mean over lags, and over powers z, of the product over draws S of z^|S n P| / (1 "
        "+ (z - 1) |P| / N)^R, P an earlier draw of the head, one of the head before, or of the seed before, "
        "as ranks among the N; three times the least. Blocks of any length: each has the same probability.",
    .assumes = "The variant states its draws: blocks are drawn uniformly without replacement, apart for "
               "every block of queries, and for every head if per_head is set, by a seed. One row of each "
               "head and block; up to 64 blocks of 8 heads.",
    .nulls = CHECK_BLIND("the pattern is judged, of this seed and others; no output is looked at"),
    .evaluate = random_evaluate,
};

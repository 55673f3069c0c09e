/* policies.c - how many keys every policy holds, in closed form, and scores of a file. That policies hold
 * what their definitions say is for EVICT-1 and EVICT-2, and that a cache is that plan for CACHE-1
 * (experiments/checks). */
#include <stdio.h>

#include "tests/support/kv_inputs.h"

/* Of rows that are not there, and twice. */
static const int64_t bad[] = {3, 3, N, -1};
static const attn_row_set refused[] = {{BATCH, 0, 1, bad}, {-1, 0, 1, bad},    {0, HEADS, 1, bad},
                                       {0, -1, 1, bad},    {0, 0, 1, bad + 2}, {0, 0, 1, bad + 3},
                                       {0, 0, 2, bad}};
static const char *const said[] = {"entry 2 of 2", "entry -1", "head 4 of 4", "head -1",
                                   "not 90",       "not -1",   "not 3"};

/* Which keys each query of a head attends to: [N][N]. */
static void hold(const inputs *x, const char *spec, int64_t head, bool held[N][N]) {
  static attn_run runs[N * N];
  const attn_problem p = problem_of(N);
  int64_t rows[N], counts[N];
  attn_view view;
  attn_plan *plan = NULL;
  cr_assert_eq(attn_plan_create(&plan, &p, spec, NULL), ATTN_OK, "%s", attn_last_error());
  cr_assert(attn_plan_inspect(plan, &view) == ATTN_OK && view.selector && view.selector->max_runs <= N);
  for (int64_t t = 0; t < N; t++) rows[t] = t;
  const int64_t most = view.selector->max_runs;
  const attn_row_set set = {1, head, N, rows};
  attn_picks picks = {.max_runs = most, .runs = runs, .counts = counts};
  const attn_tensors given = {.q = x->q, .k = x->k, .v = x->v};
  cr_assert_eq(attn_plan_select(plan, &given, &set, &picks), ATTN_OK);
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    cr_expect(attn_plan_select(plan, &given, &refused[i], &picks) && strstr(attn_last_error(), said[i]), "%s",
              said[i]);
  for (int64_t t = 0; t < N; t++) {
    for (int64_t j = 0; j < N; j++) held[t][j] = false;
    for (int64_t r = t * most; r < t * most + counts[t]; r++)
      for (int64_t j = 0; j < runs[r].count; j++) held[t][runs[r].first + j] = true;
  }
  attn_plan_destroy(plan);
}

/* What goes is the key of the largest product, of all that are held and not recent, which are all. */
Test(core_policies, a_kv_head_has_its_own_filter) {
  enum { BUDGET = 40 };
  inputs *x = inputs_make();
  static bool held[N][N];
  for (int h = 0; h < KV_HEADS; h++) {
    hold(x, "evict:score=qfilter,filters=f,budget=40,recent=1", h * GROUP, held);
    for (int64_t t = BUDGET; t < N; t++) {
      double most = -(double)INFINITY;
      int64_t gone = -1;
      for (int64_t j = 0; j < t; j++) {
        double product = 0;
        for (int l = 0; l < D; l++) product += filter(h, l) * (double)x->k[1][h][j][l];
        if (held[t - 1][j] && product > most) most = product, gone = j;
      }
      for (int64_t j = 0; j < t; j++)
        cr_expect_eq(held[t][j], held[t - 1][j] && j != gone, "head %d, key %d at %d", h, (int)j, (int)t);
    }
  }
}

/* Of equal keys the higher position goes, of those that are not recent. */
Test(core_policies, of_equal_keys_the_first_stay) {
  inputs *x = inputs_make();
  static bool held[N][N];
  for (int64_t i = 0; i < BATCH * KV_HEADS * N * D; i++) (&x->k[0][0][0][0])[i] = 1;
  hold(x, "evict:score=knorm,budget=12,recent=4", 0, held);
  for (int64_t t = 0; t < N; t++)
    for (int64_t j = 0; j <= t; j++)
      cr_expect_eq(held[t][j], j < 12 - 4 || j > t - 4, "%d at %d", (int)j, (int)t);
  x->k[1][0][5][0] = (float)NAN; /* what has no score goes before all */
  hold(x, "evict:score=knorm,budget=12,recent=4", 0, held);
  for (int64_t t = 5; t < N; t++) cr_expect_eq(held[t][5], t < 12, "no score, at %d", (int)t);
}

/* Closed forms against counting: keys at a position, in the mean of kv heads, and query-key pairs of the last
 * queries, besides which heads that share look at those of the prompt. They bound what is admitted. */
static void check_counts(const inputs *x, const attn_kv_rule *r) {
  static bool held[N][N];
  char spec[140];
  int64_t count[N] = {0};
  snprintf(spec, sizeof spec,
           "evict:score=knorm,budget=%d,recent=%d,prompt=%d,every=%d,chunk=%d,shared=%g,admit=%g",
           (int)r->budget, (int)r->recent, (int)r->prompt, (int)r->every, (int)r->chunk, r->shared, r->admit);
  for (int h = 0; h < KV_HEADS; h++) {
    hold(x, spec, h * GROUP, held);
    for (int64_t t = 0; t < N; t++)
      for (int64_t j = 0; j <= t; j++) count[t] += held[t][j];
  }
  int64_t fewer = 0;
  for (int64_t t = 0; t < N; t++) {
    const int64_t most = KV_HEADS * attn_kv_count(r, t);
    cr_assert(attn_kv_admits(r) ? count[t] <= most : count[t] == most, "%s: position %d", spec, (int)t);
    fewer += most - count[t];
  }
  if (attn_kv_admits(r)) cr_expect_gt(fewer, 0, "%s", spec);
  for (int64_t n = 1; n <= N && !(r->shared > 0) && !attn_kv_admits(r); n++) {
    const attn_problem p = problem_of(n);
    attn_cost cost;
    size_t work;
    int64_t pairs = 0;
    for (int64_t t = N - n; t < N; t++) pairs += count[t] / KV_HEADS;
    cr_assert_eq(attn_estimate(&p, spec, NULL, &work, &cost), ATTN_OK, "%s", attn_last_error());
    cr_assert_eq(cost.mul_add, (double)(BATCH * HEADS * pairs * (D + D_V)), "%s: %d queries", spec, (int)n);
  }
}

Test(core_policies, counts_keys_and_pairs_in_closed_form) {
  inputs *x = inputs_make();
  int count = 0;
  for (int64_t i = 0; i < 2 * 2 * 2 * 3 * 3 * 3; i++) {
    static const int64_t budgets[] = {9, 22}, recents[] = {1, 5}, prompts[] = {0, 14, 40},
                         every[] = {1, 3, 7}, chunks[] = {1, 4, 5};
    const attn_kv_rule r = {.score = attn_kv_score_at(0),
                            .budget = budgets[i % 2],
                            .recent = recents[i / 2 % 2],
                            .prompt = prompts[i / 4 % 3],
                            .every = every[i / 12 % 3],
                            .chunk = chunks[i / 36 % 3],
                            .shared = i < 108 ? 0 : 0.7,
                            .admit = i < 12 ? -1.8 : 0};
    if (r.recent - 1 + (r.every + r.chunk - 1) / r.chunk * r.chunk > r.budget) continue;
    if (r.shared > 0 && r.prompt <= r.budget) continue;
    check_counts(x, &r);
    count++;
  }
  cr_expect_gt(count, 80);
}

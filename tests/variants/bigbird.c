/* bigbird.c - the weights of bigbird:tail=uniform: beside the keys of tail=drop no others, and over seeds of
 * the mean and products that the law states. */
#include "tests/support/core.h"

enum { N = 97, BLOCK = 6, HEADS = 2, D = 8, SEEDS = 3000 };

static const char *const settings[] = {"window=3,random=3,global=1", "window=1,random=2,global=0",
                                       "window=5,random=9,global=2"};

static inputs make(int64_t n_q, bool causal) {
  attn_problem p = attn_problem_make(1, HEADS, N, D);
  p.n_q = n_q;
  p.causal = causal;
  return inputs_make(&p, false, 5, 1);
}

/* A query's visible keys are those of the pattern; of drawn blocks they weigh the candidates over the
 * drawn. */
static void check_keys(const char *setting, int64_t n_q, bool causal) {
  inputs in = make(n_q, causal);
  char spec[160];
  snprintf(spec, sizeof spec, "bigbird:block=%d,%s,seed=7", BLOCK, setting);
  attn_plan *drop = plan_or_note(&in.problem, spec, NULL);
  snprintf(spec, sizeof spec, "bigbird:block=%d,%s,seed=7,tail=uniform", BLOCK, setting);
  attn_plan *own = plan_or_note(&in.problem, spec, NULL);
  note_context("%s%s, %d queries", spec, causal ? ", causal" : "", (int)n_q);
  attn_view view;
  static double got[N][N];
  int64_t wrong = 0, weighed = 0;
  cr_assert_eq(attn_plan_inspect(drop, &view), ATTN_OK);
  attn_run *runs = calloc((size_t)view.pattern->max_runs, sizeof *runs);
  for (int64_t h = 0; h < HEADS; h++) {
    selected_weights(own, &in, 0, h, N, got[0]);
    for (int64_t i = 0; i < n_q; i++) {
      const int64_t position = i + N - n_q, visible = causal ? position + 1 : N;
      bool inside[N] = {false};
      int64_t drawn = 0, candidates = 0;
      const int64_t count = attn_pattern_row(view.pattern, &in.problem, h, i, runs);
      for (int64_t r = 0; r < count; r++)
        for (int64_t j = 0; j < runs[r].count; j++) inside[runs[r].first + j] = true;
      for (int64_t b = 0; b * BLOCK < N; b++)
        if (view.pattern->candidate(view.pattern->state, h, position, b)) {
          candidates++;
          drawn += inside[b * BLOCK];
        }
      for (int64_t j = 0; j < visible; j++) {
        const bool random = view.pattern->candidate(view.pattern->state, h, position, j / BLOCK);
        const double want = !inside[j] ? 0 : random ? (double)candidates / (double)drawn : 1;
        weighed += want > 1;
        wrong += !(fabs(got[i][j] - want) < 1e-12 * (1 + want));
      }
    }
  }
  if (wrong || !weighed) note_failure("%d of %d weights", (int)wrong, (int)weighed);
  free(runs);
  attn_plan_destroy(drop);
  attn_plan_destroy(own);
  inputs_free(&in);
}

Test(variants_bigbird, drawn_blocks_stand_for_their_candidates) {
  for (size_t s = 0; s < sizeof settings / sizeof *settings; s++)
    for (int causal = 0; causal <= 1; causal++) {
      check_keys(settings[s], N, causal);
      check_keys(settings[s], 40, causal);
    }
}

static void check_law(const char *setting, bool causal, int64_t row) {
  enum { KEYS = 6 };
  static const int64_t keys[KEYS] = {0, 20, 22, 41, 60, 61};
  inputs in = make(N, causal);
  static double got[N][N];
  double sum[KEYS][KEYS] = {{0}}, square[KEYS][KEYS] = {{0}}, law[KEYS * KEYS];
  note_context("%s%s, query %d", setting, causal ? ", causal" : "", (int)row);
  for (int seed = 0; seed < SEEDS; seed++) {
    char spec[160];
    attn_view view;
    snprintf(spec, sizeof spec, "bigbird:block=%d,%s,seed=%d,tail=uniform", BLOCK, setting, seed);
    attn_plan *plan = plan_or_note(&in.problem, spec, NULL);
    selected_weights(plan, &in, 0, 0, N, got[0]);
    cr_assert_eq(attn_plan_inspect(plan, &view), ATTN_OK);
    const attn_call call = {.context = attn_plan_context(plan), .q = in.q, .k = in.k, .v = in.v};
    const attn_query query = {.call = &call, .i = row};
    const attn_selector *x = view.selector;
    if (!seed) x->moments(x->state, &query, keys, KEYS, law);
    for (int64_t a = 0; a < KEYS; a++) {
      const double own = got[row][keys[a]];
      if (own > 0 && !(fabs(own / exp(x->log_weight(x->state, &query, keys[a])) - 1) < 1e-12))
        note_failure("key %d has the weight %g", (int)keys[a], own);
      if (x->always(x->state, &query, keys[a])) EXPECT(fabs(own - 1) < 1e-15);
      for (int64_t b = 0; b < KEYS; b++) {
        const double product = own * got[row][keys[b]];
        sum[a][b] += product / SEEDS;
        square[a][b] += product * product / SEEDS;
      }
    }
    attn_plan_destroy(plan);
  }
  for (int64_t a = 0; a < KEYS; a++)
    for (int64_t b = 0; b < KEYS; b++) {
      const double deviation = sqrt((square[a][b] - sum[a][b] * sum[a][b]) / SEEDS), want = law[a * KEYS + b];
      if (!(fabs(sum[a][b] - want) <= 5 * deviation + 1e-9))
        note_failure("keys %d, %d: %g, expected %g +- %g", (int)keys[a], (int)keys[b], sum[a][b], want,
                     deviation);
    }
  inputs_free(&in);
}

Test(variants_bigbird, draws_follow_the_moments) {
  check_law(settings[0], false, 44);
  check_law(settings[1], true, 90);
  check_law(settings[2], false, 13);
}

Test(variants_bigbird, a_tail_without_draws_is_refused) {
  attn_problem p = attn_problem_make(1, 1, 40, 4);
  attn_plan *plan = NULL;
  EXPECT_STATUS(attn_plan_create(&plan, &p, "bigbird:random=0,tail=uniform", NULL), ATTN_EINVAL);
  EXPECT(strstr(attn_last_error(), "random=0 draws nothing"));
}

/* bigbird.c - the weights of bigbird:tail=uniform: beside the keys of tail=drop no others. That draws follow
 * their law is for LAW-1 (experiments/checks). */
#include "tests/support/core.h"

enum { N = 97, BLOCK = 6, HEADS = 2, D = 8 };

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
  const char *dropping = text_of("bigbird:block=%d,%s,seed=7", BLOCK, setting),
             *spec = text_of("%s,tail=uniform", dropping);
  attn_plan *drop = plan_or_note(&in.problem, dropping, NULL), *own = plan_or_note(&in.problem, spec, NULL);
  note_context("%s%s, %d queries", spec, causal ? ", causal" : "", (int)n_q);
  attn_view view;
  static double got[N][N];
  int64_t wrong = 0, weighed = 0;
  cr_assert_eq(attn_plan_inspect(drop, &view), ATTN_OK);
  attn_run *runs = kept_memory(calloc((size_t)view.pattern->max_runs, sizeof *runs));
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
  attn_plan_destroy(drop), attn_plan_destroy(own);
}

Test(variants_bigbird, drawn_blocks_stand_for_their_candidates) {
  for (size_t s = 0; s < sizeof settings / sizeof *settings; s++)
    for (int causal = 0; causal <= 1; causal++) {
      check_keys(settings[s], N, causal);
      check_keys(settings[s], 40, causal);
    }
}

/* generator.c - Patterns: SP-0's independent membership, SP-4's expectation of random blocks, SP-6's reach.
 * Wrong patterns are those of a real variant, changed on the way out. */
#include "tests/support/checks_fake.h"
#include "tests/support/checks_shown.h"

static char specs[] =
    "longformer:window=8;longformer:window=6,dilation=3,global=2;"
    "longformer:window=4,global_at=3+50+90;bigbird:block=8,random=2;bigbird:block=4,global=0;"
    "bigbird:block=5,random=30";

static attn_problem sequence(int64_t n, bool causal) {
  return case_problem(2, 4, 2, n, 8, 5, causal, ATTN_F32);
}

Test(checks_generator, correct_patterns_pass) {
  static const int64_t kv_len[] = {97, 61};
  char *rest;
  for (const char *spec = strtok_r(specs, ";", &rest); spec; spec = strtok_r(NULL, ";", &rest))
    for (int causal = 0; causal < 2; causal++)
      for (int cross = 0; cross < 2; cross++) {
        attn_problem p = sequence(97, causal);
        p.n_q -= 40 * cross;
        run_case *c = case_lengths(spec, p, 1, cross ? kv_len : NULL);
        expect_verdict(&c->e, "SP-0", VERDICT_PASS, spec);
        check_verdict reach = case_check(&c->e, "SP-6").verdict, draw = case_check(&c->e, "SP-4").verdict;
        cr_expect(reach == VERDICT_PASS || reach == VERDICT_NOT_APPLICABLE, "%s: %d", spec, (int)reach);
        bool random = strncmp(spec, "bigbird", 7) == 0;
        cr_expect_eq(draw, random ? VERDICT_CONSISTENT : VERDICT_NOT_APPLICABLE, "%s: %d", spec, (int)draw);
        case_free(c);
      }
}

/* -- a real variant with a wrong pattern -- */

static const attn_pattern *honest;
static int64_t (*lie)(int64_t position, int64_t count,
                      attn_run *runs); /* changes the runs, returns how many */

static int64_t (*lie_in_row)(const void *, int64_t, int64_t, attn_run *); /* in the place of row, or NULL */

static int64_t liar_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state;
  return lie(position, honest->row(honest->state, head, position, runs), runs);
}

static void show_lie(attn_view *view) {
  static attn_pattern pattern;
  honest = view->pattern;
  pattern = *honest;
  pattern.row = lie_in_row ? lie_in_row : liar_row;
  pattern.max_runs += 2;
  view->pattern = &pattern;
}

static result_bound lying(const char *name, const char *parameters, const char *check_name, bool causal,
                          int64_t (*how)(int64_t, int64_t, attn_run *)) {
  static char own[20];
  char spec[100];
  snprintf(own, sizeof own, "lying_%.10s", name);
  snprintf(spec, sizeof spec, "%s:%s", own, parameters);
  show_as(name, own, show_lie);
  lie = how;
  return case_judge(spec, sequence(128, causal), 1, check_name);
}

static int64_t honestly(int64_t position, int64_t count, attn_run *runs) {
  (void)position;
  (void)runs;
  return count;
}

static int64_t one_key_less(int64_t position, int64_t count, attn_run *runs) {
  if (position == 60) runs[count - 1].count--;
  return count;
}

static int64_t one_key_twice(int64_t position, int64_t count, attn_run *runs) {
  if (position == 60) runs[count++] = (attn_run){60, 1, 1};
  return count;
}

static int64_t no_global(int64_t position, int64_t count, attn_run *runs) {
  if (position < 4 || runs[0].first > 0) return count;
  runs[0].first++;
  runs[0].count--;
  return count;
}

static int64_t last_run_missing(int64_t position, int64_t count, attn_run *runs) {
  (void)runs;
  return position >= 64 && count > 1 ? count - 1 : count;
}

Test(checks_generator, honest_copies_pass) {
  cr_expect_eq(lying("longformer", "window=8,global=1", "SP-0", false, honestly).verdict, VERDICT_PASS);
}
Test(checks_generator, a_key_less) {
  cr_expect_eq(lying("longformer", "window=8", "SP-0", false, one_key_less).verdict, VERDICT_VIOLATED);
}
Test(checks_generator, a_key_twice) {
  result_bound b = lying("longformer", "window=8", "SP-0", true, one_key_twice);
  cr_expect(b.verdict == VERDICT_VIOLATED && b.measured == 1, "%g", b.measured);
}
Test(checks_generator, a_global_key_that_others_do_not_see) {
  cr_expect_eq(lying("longformer", "window=8,global=1", "SP-0", false, no_global).verdict, VERDICT_VIOLATED);
}
Test(checks_generator, a_random_block_missing) {
  cr_expect_eq(lying("bigbird", "block=8,random=2", "SP-0", false, last_run_missing).verdict,
               VERDICT_VIOLATED);
}

/* -- SP-4 -- */

/* The first blocks beside the window in place of the random ones: the mass is as large, the places are
 * not. */
static int64_t first_blocks(int64_t position, int64_t count, attn_run *runs) {
  (void)count;
  int64_t own = position / 4, first = own > 0 ? own - 1 : 0, end = own + 2 < 32 ? own + 2 : 32, made = 0;
  if (first >= 4) runs[made++] = (attn_run){0, 8, 1};
  runs[made++] = (attn_run){4 * first, 4 * (end - first), 1};
  if (first < 4) runs[made++] = (attn_run){4 * end, 8, 1};
  return made;
}

Test(checks_generator, a_choice_by_position_is_no_draw) {
  result_bound b = lying("bigbird", "block=4,random=2,global=0", "SP-4", false, first_blocks);
  cr_expect(b.verdict == VERDICT_CONSISTENT && b.p_value < 1e-9, "%g", b.p_value);
}
Test(checks_generator, honest_draws_are_draws) {
  result_bound b = lying("bigbird", "block=4,random=2,global=0", "SP-4", false, honestly);
  cr_expect(b.verdict == VERDICT_CONSISTENT && b.p_value > 1e-3, "%g", b.p_value);
}

static int64_t no_draws(int64_t position, int64_t count, attn_run *runs) {
  int64_t own = position / 4, first = own > 0 ? own - 1 : 0, end = own + 2 < 32 ? own + 2 : 32;
  (void)count;
  runs[0] = (attn_run){4 * first, 4 * (end - first), 1};
  return 1;
}
Test(checks_generator, draws_left_out) {
  result_bound b = lying("bigbird", "block=4,random=8,global=0", "SP-4", false, no_draws);
  cr_expect(b.verdict == VERDICT_CONSISTENT && b.p_value < 1e-9, "%g", b.p_value);
}

/* -- draws that are not apart: own blocks of 4 keys and 3 of the 31 others, by a stream of the test's own */

static uint64_t (*stream_of)(int64_t head, int64_t block);
static bool seed_ignored;

static int64_t streamed_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  attn_run drawn[8];
  int64_t own = position / 4, picks[3], count = 0, made = 0;
  uint64_t seed = 0;
  /* What bigbird draws tells its seed. */
  for (int64_t r = honest->row(honest->state, 0, 60, drawn) - 1; r >= 0 && !seed_ignored; r--)
    seed = 131 * seed + (uint64_t)drawn[r].first;
  (void)state;
  attn_rng rng;
  attn_rng_init(&rng, seed, 5, stream_of(head, own));
  while (count < 3) {
    int64_t pick = attn_rng_below(&rng, 31), at = 0;
    for (int64_t i = 0; i < count; i++) at += picks[i] == pick;
    if (!at) picks[count++] = pick;
  }
  for (int64_t b = 0; b < 32; b++) {
    bool seen = b == own;
    for (int64_t i = 0; i < 3; i++) seen = seen || b == picks[i] + (picks[i] >= own);
    if (seen) runs[made++] = (attn_run){4 * b, 4, 1};
  }
  return made;
}

static uint64_t apart(int64_t head, int64_t block) { return (uint64_t)(head << 32 | block); }
static uint64_t by_pairs(int64_t head, int64_t block) { return (uint64_t)(head << 32 | block / 2); }
static uint64_t same_heads(int64_t head, int64_t block) { return (uint64_t)(block + 0 * head); }
static uint64_t shifted_heads(int64_t head, int64_t block) { return (uint64_t)(20 * head + block); }
static uint64_t one_draw(int64_t head, int64_t block) { return (uint64_t)(0 * (head + block)); }

static result_bound streamed(uint64_t (*stream)(int64_t, int64_t), bool same_seed, const char *seed) {
  char parameters[100];
  snprintf(parameters, sizeof parameters, "block=4,window=1,random=3,global=0,seed=%s", seed);
  stream_of = stream;
  seed_ignored = same_seed;
  lie_in_row = streamed_row;
  result_bound b = lying("bigbird", parameters, "SP-4", false, honestly);
  lie_in_row = NULL;
  cr_expect_eq(b.verdict, VERDICT_CONSISTENT, "%s", b.message);
  return b;
}

Test(checks_generator, draws_apart_are_not_rejected) {
  int small = 0;
  for (int s = 0; s < 40; s++) {
    char seed[12];
    snprintf(seed, sizeof seed, "%d", 1000 * s);
    small += streamed(apart, false, seed).p_value < 0.05;
  }
  cr_expect_leq(small, 6); /* of Binomial(40, 0.05): more has probability 0.003 */
}
Test(checks_generator, neighbouring_blocks_share_draws) {
  result_bound b = streamed(by_pairs, false, "1");
  cr_expect(b.p_value < 1e-12 && strstr(b.message, "blocks of queries"), "%g %s", b.p_value, b.message);
}
Test(checks_generator, heads_share_draws) {
  result_bound b = streamed(same_heads, false, "1");
  cr_expect(b.p_value < 1e-12 && strstr(b.message, "heads"), "%g %s", b.p_value, b.message);
}
Test(checks_generator, draws_of_heads_overlap) {
  cr_expect_lt(streamed(shifted_heads, false, "1").p_value, 1e-12);
}
Test(checks_generator, all_share_one_draw) { cr_expect_lt(streamed(one_draw, false, "1").p_value, 1e-12); }
Test(checks_generator, another_seed_draws_the_same) {
  result_bound b = streamed(apart, true, "1");
  cr_expect(b.p_value < 1e-12 && strstr(b.message, "seeds"), "%g %s", b.p_value, b.message);
}

/* E t = (1 - p(F)) (1 - R/N) with R/N counted in blocks, the last one shorter, causal or not: the mean over
 * seeds, on skewed weights, within five standard errors. */
Test(checks_generator, the_mass_left_out_has_the_stated_mean) {
  enum { SEEDS = 400 };
  for (int causal = 0; causal < 2; causal++) {
    attn_problem p = attn_problem_make(1, 1, 61, 8);
    p.causal = causal;
    run_case *c = case_make(p, 1.5, 5);
    case_run(c, "bigbird:block=7,window=1,random=2,global=1", NULL);
    double ratio = 0, squares = 0;
    for (int s = 0; s < SEEDS; s++) {
      char spec[80];
      attn_plan *plan;
      attn_view view;
      attn_run runs[8];
      snprintf(spec, sizeof spec, "bigbird:block=7,window=1,random=2,global=1,seed=%d", s);
      cr_assert_eq(attn_plan_create(&plan, &p, spec, NULL), ATTN_OK);
      cr_assert_eq(attn_plan_inspect(plan, &view), ATTN_OK);
      int64_t i = 45; /* of block 6 of 9; candidates 1 to 5, and 7 and 8 unless causal */
      double left = 1, fixed = 0, blocks = causal ? 5 : 7;
      int64_t found = attn_pattern_row(view.pattern, &p, 0, i, runs);
      for (int64_t r = 0; r < found; r++)
        for (int64_t k = 0; k < runs[r].count; k++) left -= c->exact->p[i * 61 + runs[r].first + k];
      for (int64_t j = 0; j < 61; j++) fixed += j < 7 || j / 7 == 6 ? c->exact->p[i * 61 + j] : 0;
      double x = left / ((1 - fixed) * (1 - 2 / blocks));
      ratio += x / SEEDS;
      squares += x * x / SEEDS;
      attn_plan_destroy(plan);
    }
    double error = sqrt((squares - ratio * ratio) / SEEDS);
    cr_expect(fabs(ratio - 1) < 5 * error && error < 0.05, "causal %d: %g, standard error %g", causal, ratio,
              error);
    case_free(c);
  }
}

/* p-values of correct draws are not small more often than they may be. */
Test(checks_generator, p_values_of_draws_are_conservative) {
  enum { RUNS = 60 };
  int small = 0;
  for (int s = 0; s < RUNS; s++) {
    char spec[80];
    snprintf(spec, sizeof spec, "bigbird:block=4,window=1,random=3,global=1,seed=%d", 100000 * s);
    run_case *c = case_gaussian(spec, attn_problem_make(1, 2, 96, 8), 2);
    small += case_check(&c->e, "SP-4").p_value < 0.05;
    case_free(c);
  }
  cr_expect_leq(small, 8); /* of Binomial(60, 0.05): more than 8 has probability 0.005 */
}

/* -- SP-6 -- */

static result_bound reach(int64_t half) {
  static const attn_pattern window_pattern = {.row = window_row, .max_runs = 1};
  fake_reset(weight_window);
  used_half = half;
  fake.view.pattern = &window_pattern;
  return case_judge("fake", sequence(96, false), 1, "SP-6");
}

Test(checks_generator, reach_of_a_window) {
  result_bound b = reach(4);
  cr_expect(b.verdict == VERDICT_PASS && strncmp(b.message, "3 layers", 8) == 0, "%s", b.message);
  cr_expect_eq(reach(3).verdict, VERDICT_PASS);
  /* One row on each side in each of 8 (batch, head), after one, two, three layers: 1, 2 and 3 on each
   * side. */
  b = reach(5);
  cr_expect(b.verdict == VERDICT_VIOLATED && b.measured > 0 && b.measured <= 8 * 2 * (1 + 2 + 3), "%g",
            b.measured);
}

/* A window that is wider than its parameters say: its pattern has the real reach, the closed form has not. */
static int64_t wider(int64_t position, int64_t count, attn_run *runs) {
  (void)count;
  int64_t first = position > 5 ? position - 5 : 0, end = position + 6 < 128 ? position + 6 : 128;
  runs[0] = (attn_run){first, end - first, 1};
  return 1;
}

Test(checks_generator, the_closed_form_of_a_window) {
  cr_expect_eq(lying("longformer", "window=8", "SP-6", false, wider).verdict, VERDICT_PASS);
  cr_expect_eq(lying("longformer", "window=8", "SP-0", false, wider).verdict, VERDICT_VIOLATED);
}

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
  for (const char *spec = strtok(specs, ";"); spec; spec = strtok(NULL, ";"))
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
  const char *own = *name == 'b' ? "lying_bigbird" : "lying_longformer";
  show_as(name, own, show_lie);
  lie = how;
  return case_judge(text_of("%s:%s", own, parameters), sequence(128, causal), 1, check_name);
}

static int64_t honestly(int64_t position, int64_t count, attn_run *runs) {
  (void)position, (void)runs;
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

/* A key of one row; key 0 of all rows from the fourth on; some of a drawn block. */
Test(checks_generator, lies_about_keys) {
  static const struct {
    const char *name, *parameters;
    int64_t (*how)(int64_t, int64_t, attn_run *);
    double wrong;
  } lies[] = {{"longformer", "window=8,global=1", honestly, 0},
              {"longformer", "window=8", one_key_less, 1},
              {"longformer", "window=8", one_key_twice, 1},
              {"longformer", "window=8,global=1", no_global, 128 - 4},
              {"bigbird", "block=8,random=2", last_run_missing, (double)NAN}};
  for (size_t l = 0; l < sizeof lies / sizeof *lies; l++) {
    const result_bound b = lying(lies[l].name, lies[l].parameters, "SP-0", l == 2, lies[l].how);
    cr_expect(b.verdict == (l ? VERDICT_VIOLATED : VERDICT_PASS) &&
                  (isnan(lies[l].wrong) || b.measured == lies[l].wrong),
              "%zu: %g %s", l, b.measured, b.message);
  }
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

static int64_t no_draws(int64_t position, int64_t count, attn_run *runs) {
  int64_t own = position / 4, first = own > 0 ? own - 1 : 0, end = own + 2 < 32 ? own + 2 : 32;
  (void)count;
  runs[0] = (attn_run){4 * first, 4 * (end - first), 1};
  return 1;
}

/* A row of each of 32 blocks of 4 heads, of 8 seeds. */
Test(checks_generator, draws_that_are_none) {
  static int64_t (*const how[])(int64_t, int64_t, attn_run *) = {honestly, first_blocks, no_draws};
  for (int i = 0; i < 3; i++) {
    const result_bound b = lying("bigbird", i < 2 ? "block=4,random=2,global=0" : "block=4,random=8,global=0",
                                 "SP-4", false, how[i]);
    cr_expect((i ? b.p_value < 1e-9 : b.p_value > 1e-3) && strncmp(b.message, "T = 1024 rows", 13) == 0,
              "%d: %g %s", i, b.p_value, b.message);
  }
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
  attn_rng rng = rng_of(seed, 5, stream_of(head, own));
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

static result_bound streamed(uint64_t (*stream)(int64_t, int64_t), bool same_seed) {
  stream_of = stream;
  seed_ignored = same_seed;
  lie_in_row = streamed_row;
  result_bound b = lying("bigbird", "block=4,window=1,random=3,global=0,seed=1", "SP-4", false, honestly);
  lie_in_row = NULL;
  cr_expect_eq(b.verdict, VERDICT_CONSISTENT, "%s", b.message);
  return b;
}

Test(checks_generator, draws_that_are_not_apart) {
  static const struct {
    uint64_t (*stream)(int64_t, int64_t);
    bool seed_ignored;
    const char *said;
  } faults[] = {{apart, false, "T = "},
                {by_pairs, false, "different blocks of queries"},
                {same_heads, false, "different heads"},
                {shifted_heads, false, "different heads"},
                {one_draw, false, "not apart"},
                {apart, true, "different seeds"}};
  for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
    const result_bound b = streamed(faults[f].stream, faults[f].seed_ignored);
    cr_expect((f ? b.p_value < 1e-12 : b.p_value > 1e-3) && strstr(b.message, faults[f].said), "%zu: %g %s",
              f, b.p_value, b.message);
  }
}

/* p-values of correct draws are not small more often than they may be; and the mass that they leave out has
 * the mean that is stated: R/N counted in blocks, the last one shorter, causal or not. */
Test(checks_generator, honest_draws_are_as_stated) {
  enum { RUNS = 60 };
  int small = 0;
  for (int causal = 0; causal < 2; causal++) {
    double mean = 0, squares = 0, left = 0;
    attn_problem p = attn_problem_make(1, 2, 61, 8);
    p.causal = causal;
    for (int s = 0; s < RUNS / 2; s++) {
      const char *spec = text_of("bigbird:block=7,window=1,random=2,global=1,seed=%d", 100000 * s);
      const result_bound b = case_judge(spec, p, 2, "SP-4");
      const double off = b.measured - b.value;
      small += b.p_value < 0.05;
      left += b.value / (RUNS / 2);
      mean += off / (RUNS / 2);
      squares += off * off / (RUNS / 2);
    }
    const double error = sqrt((squares - mean * mean) / (RUNS / 2));
    cr_expect(fabs(mean) < 5 * error && error < 0.02 * left, "causal %d: %g of %g, standard error %g", causal,
              mean, left, error);
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
  /* Up to five positions away for each layer, in each of 8 (batch, head), and four are said. */
  b = reach(5);
  int at = -1, strays = 0;
  sscanf(b.message, "3 layers, position %d", &at);
  for (int i = 0; i < 3 * 96; i++)
    strays += abs(i % 96 - at) > 4 * (i / 96 + 1) && abs(i % 96 - at) <= 5 * (i / 96 + 1);
  cr_expect(b.verdict == VERDICT_VIOLATED && b.measured == 8 * strays, "%g, %s", b.measured, b.message);
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

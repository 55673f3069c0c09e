/* sparse.c - pattern checks: they pass on correct sparse attention and fail on wrong ones. */
#include "tests/support/checks_fake.h"

static const char *const names[] = {"SP-0", "SP-1", "SP-2", "FP-2", "SP-3"};

static attn_problem sequence(int64_t n, bool causal, attn_dtype type) {
  return case_problem(2, 4, 2, n, 16, 9, causal, type);
}

Test(checks_sparse, correct_patterns_pass) {
  static const char *const specs[] = {"longformer:window=8", "longformer:window=6,dilation=3,global=2",
                                      "longformer:window=4,global_at=3+50+90", "bigbird:block=8,random=2",
                                      "bigbird:block=4,global=0"};
  static const int64_t kv_len[] = {97, 61};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int causal = 0; causal < 2; causal++)
      for (int type = 0; type < 2; type++) {
        run_case *c = case_lengths(specs[s], sequence(97, causal, type ? ATTN_F64 : ATTN_F32), 1.5,
                                   type ? kv_len : NULL);
        for (size_t i = 0; i < 5; i++) expect_verdict(&c->e, names[i], VERDICT_PASS, specs[s]);
        /* fp64 holds the identity to fp64 accuracy. */
        if (type) cr_expect_lt(case_check(&c->e, "SP-1").value, 1e-10);
        case_free(c);
      }
}

/* -- a window of the fake, claimed and, to a parameter, used -- */

static bool window_sees(const void *state, int64_t head, int64_t position, int64_t key) {
  (void)state, (void)head;
  return llabs(position - key) <= 4;
}

static const attn_pattern window_pattern = {.row = window_row, .max_runs = 1, .sees = window_sees};

static run_case *window_case(int64_t queries) {
  attn_problem p = sequence(96, false, ATTN_F32);
  p.n_q = queries; /* at the last positions */
  return case_gaussian("fake", p, 1);
}

static void fake_window(double (*weight)(int64_t, int64_t, double)) {
  fake_reset(weight);
  used_half = 4;
  fake.view.pattern = &window_pattern;
}

Test(checks_sparse, the_claimed_window_passes) {
  fake_window(weight_window);
  run_case *c = window_case(96);
  for (size_t i = 0; i < 5; i++)
    if (strcmp(names[i], "FP-2") != 0) expect_verdict(&c->e, names[i], VERDICT_PASS, "window");
  expect_verdict(&c->e, "FP-1", VERDICT_PASS, "window");
}

Test(checks_sparse, a_window_off_by_one_fails) {
  fake_window(weight_window);
  used_half = 5;
  run_case *c = window_case(3);
  /* A row of 8 heads, in four executions. */
  const result_bound b = case_check(&c->e, "SP-0");
  cr_expect(b.verdict == VERDICT_VIOLATED && b.measured == 32, "reads one key more: %g", b.measured);
  expect_verdict(&c->e, "SP-1", VERDICT_VIOLATED, "one key more");
  case_free(c);
  used_half = 3;
  c = window_case(3);
  expect_verdict(&c->e, "SP-0", VERDICT_PASS, "reads less than it claims");
  expect_verdict(&c->e, "SP-1", VERDICT_VIOLATED, "one key less");
}

static double weight_hotter(int64_t i, int64_t j, double score) { return weight_window(i, j, 1.001 * score); }

Test(checks_sparse, perturbed_weights_fail_the_identity) {
  fake_window(weight_hotter);
  run_case *c = window_case(96);
  expect_verdict(&c->e, "SP-0", VERDICT_PASS, "hotter");
  expect_verdict(&c->e, "SP-1", VERDICT_VIOLATED, "hotter");
}

Test(checks_sparse, one_wrong_row_fails) {
  fake_window(weight_window);
  run_case *c = window_case(96);
  int64_t at = case_count_o(&c->problem) / 2;
  case_set(c, c->o, at, case_get(c, c->o, at) + 1e-3);
  expect_verdict(&c->e, "SP-1", VERDICT_VIOLATED, "one component");
  case_set(c, c->o, at, 1e3);
  expect_verdict(&c->e, "SP-2", VERDICT_VIOLATED, "one component");
  case_set(c, c->o, at, (double)NAN);
  expect_verdict(&c->e, "SP-1", VERDICT_VIOLATED, "NaN");
  expect_verdict(&c->e, "SP-2", VERDICT_VIOLATED, "NaN");
}

/* SP-2 is attained where the values on S are equal, and those on T. */
Test(checks_sparse, the_tail_bound_is_sharp) {
  fake_window(weight_window);
  attn_problem p = attn_problem_make(1, 1, 96, 16);
  p.n_q = 1; /* at the last position: S = 91 ... 95 */
  run_case *c = case_make(p, 1, 100);
  for (int64_t i = 0; i < case_count_v(&p); i++) case_set(c, c->v, i, i / p.d_v >= 91 ? 1 : -1);
  case_run(c, "fake", NULL);
  result_bound b = case_check(&c->e, "SP-2");
  cr_expect_eq(b.verdict, VERDICT_PASS);
  cr_expect_gt(b.margin, 0.98);
  expect_verdict(&c->e, "SP-0", VERDICT_PASS, "one row");
}

/* -- SP-3 -- */

/* Keys of a block of 16 are the unit vector of their block, as are its queries, 16 times as large, with a
 * little noise: what the window of 33 leaves out has a small and certified mass. */
static int64_t wide_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state, (void)head;
  int64_t first = position > 16 ? position - 16 : 0, end = position + 17 < 96 ? position + 17 : 96;
  runs[0] = (attn_run){first, end - first, 1};
  return 1;
}

static double weight_wide(int64_t i, int64_t j, double score) { return llabs(i - j) <= 16 ? exp(score) : 0; }

static run_case *blocks_case(double noise) {
  static const attn_pattern wide_pattern = {.row = wide_row, .max_runs = 1, .grain = 16};
  fake_reset(weight_wide);
  fake.view.pattern = &wide_pattern;
  run_case *c = case_make(sequence(96, false, ATTN_F32), noise, 100);
  for (int64_t i = 0; i < case_count_q(&c->problem); i++)
    if (i % 16 == i / 16 % 96 / 16) case_set(c, c->q, i, 16);
  for (int64_t i = 0; i < case_count_k(&c->problem); i++)
    if (i % 16 == i / 16 % 96 / 16) case_set(c, c->k, i, 16);
  case_run(c, "fake", NULL);
  return c;
}

Test(checks_sparse, the_mass_left_out_is_certified) {
  for (double noise = 0; noise < 0.5; noise += 0.1) {
    run_case *c = blocks_case(noise);
    result_bound b = case_check(&c->e, "SP-3");
    cr_expect(b.verdict == VERDICT_PASS && b.margin > 1e-6, "noise %g: %g of %g", noise, b.measured, b.value);
    if (noise < 0.25) cr_expect_lt(b.value, 1e-3, "noise %g: %g", noise, b.value);
    case_free(c);
  }
}

/* Over Gaussian inputs of any scale no certificate is exceeded, and one wrong row is seen where it is
 * small. */
Test(checks_sparse, certificates_hold_on_gaussian_inputs) {
  for (double std = 0.01; std < 10; std *= 3)
    expect_gaussian("bigbird:block=8,random=1", sequence(97, true, ATTN_F32), std, "SP-3", VERDICT_PASS,
                    "Gaussian");
  run_case *c = blocks_case(0.05);
  case_set(c, c->o, 77, case_get(c, c->o, 77) + 0.5);
  expect_verdict(&c->e, "SP-3", VERDICT_VIOLATED, "one component");
  case_set(c, c->o, 77, (double)NAN);
  expect_verdict(&c->e, "SP-3", VERDICT_VIOLATED, "NaN");
}

/* The mass left out is below the least normal number: the mass is a subnormal, its certificate 0. */
Test(checks_sparse, masses_that_underflow_are_no_violation) {
  for (double size = 600; size < 760; size += 5) {
    run_case *c = case_make(sequence(96, false, ATTN_F64), 0, 100);
    const int64_t d = c->problem.d_qk;
    for (int64_t i = 0; i < case_count_q(&c->problem); i += d) case_set(c, c->q, i, 4);
    for (int64_t i = 0; i < case_count_k(&c->problem); i += d)
      case_set(c, c->k, i, i / d % 96 < 40 ? 0 : size);
    case_run(c, "longformer:window=16", NULL);
    static const char *const tails[] = {"SP-1", "SP-2", "SP-3"};
    for (size_t n = 0; n < 3; n++) expect_verdict(&c->e, tails[n], VERDICT_PASS, "underflow");
    case_free(c);
  }
}

/* -- SP-5 -- */

enum { RING = 25 };
static int64_t ring_gap = 0; /* the edge from 0 to RING - 1 and that to ring_gap are left out if > 0 */

static int64_t ring_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state, (void)head;
  int64_t below = (position + RING - 1) % RING, above = (position + 1) % RING;
  int64_t count = 0;
  if (!(ring_gap && (position == 0 || position == ring_gap))) runs[count++] = (attn_run){below, 1, 1};
  if (!(ring_gap && (above == 0 || above == ring_gap))) runs[count++] = (attn_run){above, 1, 1};
  return count;
}

static result_bound ring_check(int64_t grain, bool global, int64_t gap) {
  attn_pattern pattern = {.row = ring_row, .max_runs = 2, .grain = grain, .global = global};
  fake_reset(weight_exact);
  ring_gap = gap;
  fake.view.pattern = &pattern;
  return case_judge("fake", attn_problem_make(1, 1, RING, 8), 1, "SP-5");
}

/* An odd ring: its eigenvalues are cos(2 pi k / n), the largest in modulus cos(pi / n); degrees 2, volume
 * 2n. */
Test(checks_sparse, the_ring_has_the_known_spectrum) {
  result_bound b = ring_check(1, false, 0);
  double lambda = cos(acos(-1) / RING);
  cr_expect_eq(b.verdict, VERDICT_PASS);
  cr_expect_eq(b.measured, RING / 2);
  cr_expect_eq(b.value, floor(log(1.0 / RING) / log(lambda)) + 1);
}

Test(checks_sparse, broken_graphs) {
  cr_expect_eq(ring_check(1, false, 12).verdict, VERDICT_UNCERTIFIABLE);
  cr_expect_eq(ring_check(1, true, 0).verdict, VERDICT_VIOLATED);
  cr_expect_eq(ring_check(1, true, 12).verdict, VERDICT_VIOLATED);
  cr_expect_eq(ring_check(25, false, 0).verdict, VERDICT_NOT_APPLICABLE);
}

Test(checks_sparse, bigbird_graphs) {
  static const char *const specs[] = {"bigbird:block=8,random=2", "bigbird:block=8,random=2,global=0",
                                      "bigbird:block=4,random=0,global=0,window=3"};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int causal = 0; causal < 2; causal++)
      expect_gaussian(specs[s], sequence(130, causal, ATTN_F32), 1, "SP-5", VERDICT_PASS, specs[s]);
}

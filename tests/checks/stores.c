/* stores.c - codes of rows that are no number type: the law of their errors by quadrature, by draws, and as
 * published; QNT-3 is seldom surprised by right ones; what a view may not say of a store, and of the rule by
 * which a cache gives up keys. */
#include "experiments/mathematics/scheme_law.h"
#include "tests/support/checks_fake.h"
#include "tests/support/checks_shown.h"

/* D of d = 64 and 128 by an independent computation; Zandieh et al. 2025, arXiv:2504.19874, theorem 1, has as
 * d grows .36, .117, .03, .009, which are rounded down. */
Test(checks_stores, errors_of_levels_by_quadrature) {
  static const struct {
    int64_t d;
    double error[4];
  } known[] = {{64, {.35839, .11453, .03339, .00913}},
               {128, {.36089, .11600, .03397, .00931}},
               {100000, {.36338, .11748, .03455, .00950}}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    for (int64_t bits = 1; bits <= 4; bits++) {
      scheme_levels s;
      scheme_levels_make(bits, known[i].d, &s);
      const double error = (double)known[i].d * s.mean;
      cr_expect_float_eq(error, known[i].error[bits - 1], 1e-5, "d %d, %d bits: %.6f", (int)known[i].d,
                         (int)bits, error);
      cr_expect_leq(error, sqrt(3) * acos(-1) / 2 * pow(4, -(double)bits));
    }
}

/* In three dimensions a coordinate is uniform, and so are its levels: the mean square is that of steps of
 * 2^(1-bits). */
Test(checks_stores, levels_of_a_sphere_are_uniform) {
  for (int64_t bits = 1; bits <= 4; bits++) {
    scheme_levels s;
    const double step = pow(2, 1 - (double)bits);
    scheme_levels_make(bits, 3, &s);
    for (int64_t i = 0; i < s.count; i++)
      cr_expect_float_eq(s.at[i], ((double)i + 0.5) * step - 1, 1e-9, "%g", s.at[i]);
    cr_expect_float_eq(s.mean, step * step / 12, 1e-7 * step * step);
    cr_expect_float_eq(s.variance, pow(step, 4) / 180, 1e-6 * pow(step, 4));
  }
}

/* Of draws by the law, within 5 standard errors; the stated variance is no less than the seen one. */
Test(checks_stores, draws_have_the_moments_of_the_law) {
  enum { DRAWS = 20000, D = 16 };
  static const attn_kv_law laws[] = {{.bits = 1}, {.bits = 3}, {.signs = 24}, {.bits = 2, .signs = D}};
  for (size_t i = 0; i < sizeof laws / sizeof *laws; i++) {
    scheme_levels s;
    double room[3 * D], sum = 0, squares = 0;
    attn_rng rng = rng_of(1, 2, i);
    scheme_levels_make(laws[i].bits, D, &s);
    for (int r = 0; r < DRAWS; r++) {
      const double error = scheme_error_draw(&laws[i], &s, &rng, room);
      sum += error;
      squares += error * error;
    }
    const double mean = sum / DRAWS, spread = squares / DRAWS - mean * mean,
                 expected = scheme_error_mean(&laws[i], &s);
    cr_expect_float_eq(mean, expected, 5 * sqrt(spread / DRAWS), "law %d: %g, expected %g", (int)i, mean,
                       expected);
    if (laws[i].signs) continue;
    const double most = scheme_error_variance(&laws[i], &s);
    cr_expect(spread <= 1.1 * most && spread >= 0.3 * most, "law %d: variance %g, at most %g", (int)i, spread,
              most);
  }
}

Test(checks_stores, right_draws_seldom_surprise) {
  enum { RUNS = 20 };
  static const char *const specs[] = {"turbo:bits=1",          "turbo:bits=4,of=v", "turbo:bits=1,prod=yes",
                                      "turbo:bits=3,prod=yes", "qjl:bits=1",        "qjl:bits=3"};
  const attn_problem p = case_problem(1, 1, 1, 8, 24, 12, false, ATTN_F32);
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
    int low = 0;
    for (int seed = 0; seed < RUNS; seed++) {
      const char *spec = text_of("%s,seed=%d", specs[s], seed);
      const result_bound b = case_judge(spec, p, 1, "QNT-3");
      cr_assert(b.verdict == VERDICT_CONSISTENT && b.kind == KIND_PROB, "%s: %s", spec, b.message);
      cr_assert_gt(b.p_value, 1e-4, "%s: %s", spec, b.message);
      low += b.p_value <= 0.1;
    }
    cr_expect_leq(low, 0.1 * RUNS + 4 * sqrt(RUNS * 0.09), "%s: %d of %d", specs[s], low, RUNS);
  }
}

/* -- views -- */

/* A norm of 16 bits, the coordinates, signs, and a norm of what the coordinates leave. */
Test(checks_stores, bits_are_all_that_is_stored) {
  static const struct {
    const char *spec;
    double k, v; /* of rows of 24 and 12 elements; 0: no scheme */
  } cases[] = {{"turbo:bits=1", 16 + 24, 16 + 12},
               {"turbo:bits=4,of=v", 0, 16 + 48},
               {"turbo:bits=3,prod=yes", 32 + 72, 32 + 36},
               {"turbo:bits=1,prod=yes,of=k", 16 + 24, 0},
               {"qjl:bits=5", 16 + 120, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    run_case *c = case_gaussian(cases[i].spec, case_problem(1, 1, 1, 8, 24, 12, false, ATTN_F32), 1);
    const attn_kv_store *s = c->view.store;
    cr_expect(s->k_scheme.bits == cases[i].k && s->v_scheme.bits == cases[i].v, "%s: %g and %g bits",
              cases[i].spec, s->k_scheme.bits, s->v_scheme.bits);
    case_free(c);
  }
}

/* A residual needs a reader that meets keys one by one, each query its own. */
Test(checks_stores, a_residual_is_read_by_softmaxes_alone) {
  static const char *const good[] = {"tiled | kivi", "longformer | kivi", "topk:k=4 + streaming | kivi"},
                           *const bad[] = {"linear | kivi", "latent:rank=4 | kivi", "svd:r=4 | kivi",
                                           "tiled:skip=0.01 | kivi", "(0.5*tiled + 0.5*streaming) | kivi"};
  attn_problem p = attn_problem_make(1, 2, 40, 16);
  attn_plan *plan = NULL;
  p.causal = true;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    cr_expect_eq(attn_plan_create(&plan, &p, good[i], NULL), ATTN_OK, "%s: %s", good[i], attn_last_error());
    attn_plan_destroy(plan);
    plan = NULL;
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    cr_expect_eq(attn_plan_create(&plan, &p, bad[i], NULL), ATTN_EUNSUPPORTED, "%s", bad[i]);
    cr_expect(strstr(attn_last_error(), "reads no store with a residual"), "%s: %s", bad[i],
              attn_last_error());
  }
  cr_expect_eq(attn_plan_create(&plan, &p, "kivi:group=12", NULL), ATTN_EINVAL);
  cr_expect(strstr(attn_last_error(), "residual=128 is no multiple of group=12"), "%s", attn_last_error());
}

static void say_nothing(const void *state, int64_t d, double *x, double *kept) {
  (void)state;
  for (int64_t l = 0; l < d; l++) kept[l] = x[l];
}

static attn_status describe_bare(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b, (void)c;
  out->store.v_scheme = (attn_kv_scheme){.decode = say_nothing, .bits = 1, .law = {.bits = 1}};
  return ATTN_OK;
}

Test(checks_stores, a_law_without_its_draws_is_refused) {
  const attn_problem p = attn_problem_make(1, 1, 8, 4);
  attn_plan *plan = NULL;
  variant_described("qjl", "bare", describe_bare);
  cr_expect_eq(attn_plan_create(&plan, &p, "bare", NULL), ATTN_EINVAL);
  cr_expect(strstr(attn_last_error(), "lacks its rotation or its vectors"), "%s", attn_last_error());
}

/* A store may read numbers where all that is given is 0, which rounding is of. */
Test(checks_stores, permuted_keys_of_a_column_of_zeros) {
  run_case *c = case_make(case_problem(1, 1, 1, 24, 15, 12, false, ATTN_F64), 1, 3);
  for (int64_t j = 0; j < 24; j++)
    for (int64_t l = 0; l < 6; l++) case_set(c, c->v, j * 12 + l, 0);
  case_run(c, "turbo:bits=3", NULL);
  expect_verdict(&c->e, "PROP-PERM", VERDICT_PASS, "zeros in V");
}

/* -- caches: a rule that is misstated, and how the keys of 40 tokens tell -- */

static attn_kv_rule more; /* than the rule */
static double by_place(const attn_kv_history *h, int64_t t, int64_t key) {
  return (double)(key + 0 * (h->n + t));
}
static const attn_kv_score placed = {.law = by_place}, unsaid = {.law = NULL};

static void misstate(attn_view *view) {
  static attn_kv_rule rule;
  rule = *view->cache;
  rule.budget += more.budget;
  rule.recent += more.recent;
  rule.prompt += more.prompt;
  rule.every += more.every;
  rule.chunk += more.chunk;
  rule.admit += more.admit;
  if (more.score) rule.score = more.score;
  view->cache = &rule;
}

static result_bound misstated(const char *parameters, attn_kv_rule by, const char *name) {
  show_as("evict", "misstated_rule", misstate);
  more = by;
  const char *spec = text_of("misstated_rule:score=knorm,%s", parameters);
  return case_judge(spec, case_problem(1, 2, 2, 40, 8, 4, true, ATTN_F32), 1, name);
}

Test(checks_stores, rules_that_are_misstated) {
  static const struct {
    const char *parameters;
    attn_kv_rule by;
    const char *text, *what;
    double measured;
  } told[] = {
      {"budget=24,recent=4,prompt=30", {0}, "", "", 0},
      {"budget=24,recent=4", {.budget = -1}, "head 1, query at position 23: key 23", "is one too many", 34},
      {"budget=24,recent=4,prompt=30", {.budget = -1}, "position 30: key 30", "is one too many", 20},
      {"budget=24,recent=4", {.budget = 1}, "position 24: key", "went before the budget was spent", -1},
      {"budget=24,recent=4", {.prompt = 26}, "position 24: key", "went before the prompt was over", -1},
      {"budget=24,recent=1", {.recent = 9}, "position 2", "is recent, and went", -1},
      {"budget=24,recent=4", {.chunk = 1}, "position 2", "is parted from its chunk", -1},
      {"budget=24,recent=4", {.every = 1}, "position 24:", "24 keys are held, and should be 23", 16},
      {"budget=24,recent=4,prompt=30,shared=0.5", {.budget = 1}, "", "share: they hold -2 keys", 2},
      {"budget=24,recent=4,prompt=30,shared=0.5", {.budget = -1}, "", "share: they hold 2 keys", 2},
      {"budget=24,recent=4,every=4",
       {.every = -3},
       "position 24:",
       "21 keys are held, and should be 24",
       -1}};
  for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
    const result_bound b = misstated(told[i].parameters, told[i].by, "EVICT-1");
    cr_expect(b.verdict == (*told[i].what ? VERDICT_VIOLATED : VERDICT_PASS) &&
                  strstr(b.message, told[i].text) && strstr(b.message, told[i].what) &&
                  (told[i].measured < 0 || b.measured == told[i].measured),
              "%s, %s: %d, %g, %s", told[i].text, told[i].what, (int)b.verdict, b.measured, b.message);
  }
}

Test(checks_stores, scores_that_are_misstated) {
  int entry, head, t, gone, kept;
  result_bound b = misstated("budget=24,recent=4", (attn_kv_rule){.score = &placed}, "EVICT-2");
  cr_assert_eq(sscanf(b.message, "batch entry %d, kv head %d, position %d: key %d went, and key %d of",
                      &entry, &head, &t, &gone, &kept),
               5, "%s", b.message);
  cr_expect(b.verdict == VERDICT_VIOLATED && entry == 0 && head < 2 && t >= 24 && t < 40 && gone <= t - 4,
            "%s", b.message);
  cr_expect_eq(b.measured, gone - kept, "%s", b.message);
  b = misstated("budget=24,recent=4", (attn_kv_rule){.score = &unsaid}, "EVICT-2");
  cr_expect_eq(b.verdict, VERDICT_UNCHECKED);
  for (int i = -1; i < 2; i++) {
    b = misstated("budget=36,recent=4,prompt=8,admit=-2.8", (attn_kv_rule){.admit = i}, "EVICT-2");
    cr_expect(b.verdict == (i ? VERDICT_VIOLATED : VERDICT_PASS) &&
                  (!i || strstr(b.message, i > 0 ? "is admitted against" : "is refused against")),
              "%d: %d, %g, %s", i, (int)b.verdict, b.measured, b.message);
  }
}

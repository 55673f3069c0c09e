/* stores.c - codes of rows that are no number type: the law of their errors by quadrature, by draws, and as
 * published; QNT-3 is seldom surprised by right ones; what a view may not say of a store. */
#include "experiments/mathematics/scheme_law.h"
#include "tests/support/checks_fake.h"

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
    attn_rng rng;
    double room[3 * D], sum = 0, squares = 0;
    attn_rng_init(&rng, 1, 2, i);
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
      char spec[64];
      snprintf(spec, sizeof spec, "%s,seed=%d", specs[s], seed);
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
  case_free(c);
}

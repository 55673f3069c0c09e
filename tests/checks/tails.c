/* tails.c - LAW-1 ... LAW-5, VA-1: the moments of weights against sums over every draw, sound samples, and
 * which check finds which fault of plugins/planted_sample.c. */
#include "tests/support/checks_case.h"

#include "experiments/evidence/budget.h"
#include "experiments/evidence/weights/law.h"
#include "experiments/evidence/weights/means.h"
#include "experiments/results/set.h"

#include <stdio.h>

extern const attn_variant attn_variant_planted_sample;

static void enter(void) { cr_assert_eq(attn_variant_register(&attn_variant_planted_sample), ATTN_OK); }
TestSuite(checks_tails, .init = enter);

/* -- moments, by every draw -- */

enum { KEYS = 5 };
static const double weight[KEYS] = {0.1, 0.3, 0.05, 0.35, 0.2}, number[KEYS] = {1, -2, 0.5, 3, -1};

static void expect_near(double a, double b, const char *what) {
  cr_expect(fabs(a - b) <= 1e-13 * (1 + fabs(b)), "%s: %.17g, and %.17g", what, a, b);
}

/* Two of five keys without replacement, each draw as likely. */
Test(checks_tails, uniform_draws_without_replacement) {
  double mean = 0, square = 0, draws = 0, m[KEYS * KEYS], variance;
  for (int a = 0; a < KEYS; a++)
    for (int b = a + 1; b < KEYS; b++) {
      const double sum = 2.5 * (weight[a] * number[a] + weight[b] * number[b]);
      draws++;
      mean += sum;
      square += sum * sum;
    }
  for (int a = 0; a < KEYS; a++)
    for (int b = 0; b < KEYS; b++) m[a * KEYS + b] = (a == b ? 2.5 : 2.5 * 2.5 * 0.1) - 1;
  weight_variances(m, KEYS, weight, number, 1, &variance);
  expect_near(mean / draws, 0.1 - 0.6 + 0.025 + 1.05 - 0.2, "mean");
  expect_near(square / draws - mean * mean / draws / draws, variance, "variance");
  expect_near(inclusion_probability(log(2.5), 0), 0.4, "one");
  expect_near(joint_inclusion_probability(log(2.5), log(2.5), m[1], 0), 0.1, "two");
}

/* Three draws of a key each, with unequal probabilities. */
Test(checks_tails, draws_with_replacement) {
  enum { DRAWS = 3 };
  static const double share[KEYS] = {0.1, 0.2, 0.3, 0.15, 0.25};
  double one = 0, two = 0, mean = 0, square = 0, m[KEYS * KEYS], variance;
  for (int all = 0; all < KEYS * KEYS * KEYS; all++) {
    const int key[DRAWS] = {all % KEYS, all / KEYS % KEYS, all / KEYS / KEYS};
    double chance = 1, sum = 0;
    bool first = false, second = false;
    for (int d = 0; d < DRAWS; d++) {
      chance *= share[key[d]];
      sum += weight[key[d]] * number[key[d]] / (DRAWS * share[key[d]]);
      first = first || key[d] == 1;
      second = second || key[d] == 3;
    }
    mean += chance * sum;
    square += chance * sum * sum;
    one += first ? chance : 0;
    two += first && second ? chance : 0;
  }
  for (int a = 0; a < KEYS; a++)
    for (int b = 0; b < KEYS; b++) m[a * KEYS + b] = -1.0 / DRAWS + (a == b ? 1 / (DRAWS * share[a]) : 0);
  weight_variances(m, KEYS, weight, number, 1, &variance);
  expect_near(square - mean * mean, variance, "variance");
  expect_near(inclusion_probability(-log(DRAWS * share[1]), DRAWS), one, "one");
  expect_near(joint_inclusion_probability(-log(DRAWS * share[1]), -log(DRAWS * share[3]), m[KEYS + 3], DRAWS),
              two, "two");
}

/* Four draws of four keys, of weight 1 each; two draws have weights of 2 and 4. */
Test(checks_tails, half_as_many_draws_have_another_law) {
  double m[16], log_weight[4] = {0};
  weight_line l = {.end = 4, .law = {.m = m, .log_weight = log_weight, .draws = 4}};
  for (int a = 0; a < 16; a++) m[a] = (a % 5 ? 0 : 1) - 0.25;
  const attn_selector again = {.repeats = true}, once = {.repeats = false};
  cr_expect(weight_law_holds(&l, &again, (const double[]){2, 1, 1, 0}));
  cr_expect(!weight_law_holds(&l, &again, (const double[]){2, 0, 2, 0}));
  cr_expect(!weight_law_holds(&l, &again, (const double[]){1.5, 1, 0, 0}));
  cr_expect(weight_law_holds(&l, &once, (const double[]){1, 1, 0, 0}));
  cr_expect(!weight_law_holds(&l, &once, (const double[]){2, 1, 0, 0}));
}

/* Of two keys one is missed by n draws with probability 2^-n, and never both. */
Test(checks_tails, draws_of_two_keys) {
  for (int n = 1; n <= 400; n++) {
    const double excess = 1 - 1.0 / n - 1, draws = -1 / excess, own = log(1 + 1.0 / n - 1 + 1 / draws);
    expect_near(joint_inclusion_probability(own, own, excess, draws), 1 - ldexp(1, 1 - n), "both of two");
  }
}

/* -- sound samples -- */

static const char *const laws[] = {"LAW-1", "LAW-2", "LAW-3", "LAW-4", "LAW-5"};
enum { LAWS = sizeof laws / sizeof *laws };

static bool rejected(const result_bound *b) {
  return b->verdict == VERDICT_VIOLATED || b->verdict == VERDICT_ERROR || b->p_value < RESULTS_REPEAT;
}

Test(checks_tails, sound_samples_keep_their_law) {
  static const char *const specs[] = {"planted_sample", "planted_sample:replacement=yes,sample=5",
                                      "planted_sample:window=0,sample=30,seed=4",
                                      "planted_sample:window=20,sample=3"};
  static const int64_t kv_len[2] = {61, 90};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int i = 0; i < 2; i++) {
      run_case *c = case_lengths(specs[s], case_problem(2, 4, 2, 90, 12, 5, i, i ? ATTN_F64 : ATTN_F32), 1,
                                 i ? kv_len : NULL);
      for (int l = 0; l < LAWS; l++) {
        const result_bound b = case_check(&c->e, laws[l]);
        cr_expect(!rejected(&b) && b.verdict != VERDICT_NOT_APPLICABLE, "%s of %s: %d, p %g, %s", laws[l],
                  specs[s], (int)b.verdict, b.p_value, b.message);
        int keys = 0, draws = 0, tests = 0;
        const char *of = l ? NULL : strstr(b.message, ", of ");
        if (of) sscanf(of, ", of %d keys, %d draws; worst of %d", &keys, &draws, &tests);
        cr_expect(l || (keys == (i ? 61 : 64) && draws > 100 && tests > 0 && tests < 100), "%s", b.message);
      }
      for (int n = 2; n < 4; n++)
        expect_verdict(&c->e, n == 2 ? "SP-2" : "SP-3", VERDICT_NOT_APPLICABLE, "keys with weights");
    }
}

static void expect_sound(run_case *c, const char *spec, const char *what) {
  for (int l = 0; l < LAWS; l++) {
    const result_bound b = case_check(&c->e, laws[l]);
    cr_expect(!rejected(&b), "%s of %s, %s: %d, measured %g, %g, p %g, %s", laws[l], spec, what,
              (int)b.verdict, b.measured, b.value, b.p_value, b.message);
  }
}

Test(checks_tails, few_queries_are_judged) {
  for (int64_t n_q = 1; n_q < 10; n_q++) {
    attn_problem p = case_problem(1, 2, 1, 90, 8, 4, n_q % 2, ATTN_F32);
    p.n_q = n_q;
    run_case *c = case_gaussian("planted_sample", p, 1);
    const char *what = text_of("%d queries", (int)n_q);
    expect_sound(c, "planted_sample", what);
    cr_expect_eq(case_check(&c->e, "LAW-1").verdict, VERDICT_CONSISTENT, "%s", what);
  }
}

/* Rows of a causal problem have 2, 10, 18 and 26 keys before the window. */
Test(checks_tails, rows_with_two_keys_to_draw_from) {
  static const char spec[] = "planted_sample:replacement=yes,window=38,sample=11";
  run_case *c = case_gaussian(spec, case_problem(1, 1, 1, 90, 8, 4, true, ATTN_F32), 1);
  expect_sound(c, spec, "two keys");
}

/* Keys that are always taken may be drawn, too, where draws repeat keys. */
Test(checks_tails, heads_that_depend_on_the_seed) {
  static const char *const specs[] = {"lsh:rounds=1,buckets=4 + sample:count=5,replacement=yes",
                                      "lsh:rounds=1,buckets=4 + lsh_tail:k=2,l=5"};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
    run_case *c = case_gaussian(specs[s], case_problem(1, 1, 1, 20, 8, 4, false, ATTN_F32), 0.5);
    expect_sound(c, specs[s], "a head that is drawn");
  }
}

/* Of one component keys have the direction of a query, or the opposite one, which no hash shares. */
Test(checks_tails, keys_that_are_never_drawn_have_no_law) {
  static const char spec[] = "lsh_tail:k=3,l=10";
  run_case *c = case_gaussian(spec, case_problem(1, 1, 1, 90, 1, 4, false, ATTN_F64), 1);
  expect_sound(c, spec, "keys opposite to queries");
  expect_verdict(&c->e, "LAW-1", VERDICT_CONSISTENT, "keys opposite to queries");
  expect_verdict(&c->e, "LAW-2", VERDICT_NOT_APPLICABLE, "keys opposite to queries");
  expect_verdict(&c->e, "LAW-3", VERDICT_UNCERTIFIABLE, "keys opposite to queries");
  c = case_gaussian(spec, case_problem(1, 1, 1, 3, 1, 4, true, ATTN_F64), 1);
  expect_sound(c, spec, "few keys opposite to queries");
}

/* Queries behind the last key have no key of the window: features that are no weights may sum to less than 0
 * there. */
Test(checks_tails, rows_of_features_alone_are_the_features) {
  static const int64_t kv_len[1] = {20};
  for (int seed = 0; seed < 8; seed++) {
    run_case *c = case_make(case_problem(1, 1, 1, 48, 12, 5, false, ATTN_F32), 1, 100);
    const char *spec = text_of("longformer:window=4 + performer:features=9,kernel=trig,seed=%d", seed);
    case_run(c, spec, kv_len);
    for (int n = 1; n <= 2; n++) {
      const result_bound b = case_check(&c->e, n == 1 ? "RES-1" : "RES-2");
      cr_expect(!rejected(&b), "RES-%d of %s: measured %g, %g, %s", n, spec, b.measured, b.value, b.message);
    }
  }
  const attn_problem few = case_problem(1, 1, 1, 3, 12, 5, true, ATTN_F32);
  expect_gaussian("longformer:window=2 + linear", few, 1, "RES-2", VERDICT_PASS, "the rest is key 0");
}

/* The share of the rest that is drawn. */
Test(checks_tails, what_a_sample_spends) {
  run_case *c = case_gaussian("planted_sample", case_problem(1, 2, 1, 96, 8, 4, false, ATTN_F32), 1);
  kept_keys kept;
  cr_assert_eq(budget_kept(&c->e, &kept), ATTN_OK);
  expect_near(kept.drawn_share, 8.0 / 92, "8 keys of 92");
  cr_expect_eq(kept.keys_mean, 12);
  c = case_gaussian("planted_sample:window=96", case_problem(1, 2, 1, 96, 8, 4, false, ATTN_F32), 1);
  cr_assert_eq(budget_kept(&c->e, &kept), ATTN_OK);
  cr_expect(kept.drawn_share == 1 && kept.keys_mean == 96, "%g of %g", kept.drawn_share, kept.keys_mean);
}

/* -- faults: a check a letter -- */

static void expect_found(const char *fault, const char *by) {
  const char *spec = text_of("planted_sample:fault=%s", fault);
  run_case *c = case_gaussian(spec, case_problem(1, 2, 1, 96, 8, 4, false, ATTN_F32), 0.5);
  for (int l = 0; l < LAWS; l++) {
    const result_bound b = case_check(&c->e, laws[l]);
    cr_expect_eq(rejected(&b), strchr(by, '1' + l) != NULL, "%s, %s: %d, %g of %g, p %g, %s", fault, laws[l],
                 (int)b.verdict, b.measured, b.value, b.p_value, b.message);
  }
  const result_bound b = case_check(&c->e, "VA-1");
  cr_expect_eq(rejected(&b), strchr(by, 'V') != NULL, "%s: VA-1: %d, p %g, %s", fault, (int)b.verdict,
               b.p_value, b.message);
}

Test(checks_tails, faults_are_found) {
  expect_found("none", "");
  expect_found("dropped", "245");
  expect_found("off", "245");
  expect_found("shifted", "245");
  expect_found("last", "12");
  expect_found("neighbours", "1");
  expect_found("double", "25");
  expect_found("head", "25");
  expect_found("frozen", "12");
  expect_found("promise", "V");
}

/* -- laws that are missing, misstated or about nothing -- */

static void (*change)(attn_selector *);
static attn_status describe_changed(attn_builder *b, const attn_context *c, attn_parts *out) {
  const attn_status status = attn_variant_planted_sample.describe(b, c, out);
  change(&out->selector);
  return status;
}
static void forget_law(attn_selector *x) {
  x->moments = NULL;
  x->log_weight = NULL;
}
static double heavier(const void *state, const attn_query *q, int64_t key) {
  (void)state, (void)q, (void)key;
  return log(11.5) * (1 + 1e-5); /* 92 keys, 8 drawn */
}
static void misstate_weights(attn_selector *x) { x->log_weight = heavier; }
static void claim(attn_selector *x) {
  x->epsilon = 1e-6;
  x->delta = 0.5;
  x->claimed = true;
}

static run_case *changed(void (*how)(attn_selector *)) {
  change = how;
  return case_gaussian("changed_sample", case_problem(1, 2, 1, 96, 8, 4, false, ATTN_F32), 0.5);
}

Test(checks_tails, laws_that_are_missing_misstated_or_claimed) {
  variant_described("planted_sample", "changed_sample", describe_changed);
  run_case *c = changed(forget_law);
  for (int l = 0; l < LAWS; l++) expect_verdict(&c->e, laws[l], VERDICT_NOT_APPLICABLE, "no law");
  c = changed(misstate_weights);
  expect_verdict(&c->e, "LAW-4", VERDICT_VIOLATED, "1e-5 more");
  c = changed(claim);
  const result_bound b = case_check(&c->e, "VA-1");
  cr_expect(b.kind == KIND_MODEL && b.verdict == VERDICT_UNCERTIFIABLE && b.measured > 0.9, "%d, %g, %s",
            (int)b.verdict, b.measured, b.message);
}

Test(checks_tails, where_nothing_is_drawn) {
  run_case *c = case_gaussian("planted_sample:window=99", case_problem(1, 1, 1, 40, 8, 4, true, ATTN_F32), 1);
  expect_verdict(&c->e, "LAW-1", VERDICT_NOT_APPLICABLE, "a window of all");
  expect_verdict(&c->e, "LAW-3", VERDICT_CONSISTENT, "a window of all");
  expect_verdict(&c->e, "LAW-5", VERDICT_PASS, "a window of all");
}

/* selections.c - LSH-1 and SEL-3: the law of hashes against values that were drawn elsewhere, certificates
 * by hand; sound selections pass, and laws that are misstated are found. */
#include "tests/support/checks_case.h"
#include "tests/support/checks_shown.h"

#include "experiments/mathematics/collision.h"
#include "experiments/mathematics/statistics.h"

/* -- the law of a hash -- */

/* Frequencies of NumPy's normal numbers, argmax over [x R, -x R], with 10^8 to 4 10^6 draws. */
Test(checks_selections, collisions_of_a_hash) {
  static const struct {
    int64_t buckets;
    double angle, seen, deviation;
  } drawn[] = {{8, 0.3, 0.766472, 4.3e-5},    {8, 0.5, 0.626993, 4.9e-5},    {8, 1.0, 0.339105, 4.8e-5},
               {8, 1.5, 0.144893, 3.6e-5},    {8, 2.0, 0.040986, 2.0e-5},    {64, 0.3, 0.647820, 1.4e-4},
               {64, 0.5, 0.461137, 1.5e-4},   {64, 1.0, 0.148736, 1.1e-4},   {64, 1.5, 0.022680, 4.3e-5},
               {64, 2.0, 0.000596, 7.0e-6},   {1024, 0.3, 0.540829, 8.0e-4}, {1024, 0.5, 0.327570, 7.6e-4},
               {1024, 1.0, 0.055158, 1.4e-4}, {1024, 1.5, 0.001949, 2.7e-5}};
  for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++)
    cr_expect_float_eq(collision_probability(drawn[i].angle, drawn[i].buckets), drawn[i].seen,
                       5 * drawn[i].deviation + 1e-4, "%d buckets, angle %g: %g", (int)drawn[i].buckets,
                       drawn[i].angle, collision_probability(drawn[i].angle, drawn[i].buckets));
  cr_expect_float_eq(collision_probability(1, 2), 1 - 1 / acos(-1), 1e-15);
  cr_expect_float_eq(collision_probability(1, 4), pow(1 - 1 / acos(-1), 2), 1e-15);
  const double angle = collision_angle(0.5, 64, 4), one = collision_probability(angle, 64);
  cr_expect_float_eq(collision_any(angle, 64, 4), 1 - pow(1 - one, 4), 1e-14);
  cr_expect_float_eq(collision_any(angle, 64, 4), 0.5, 0.02);
}

/* Two-sided binomial tails of 100 events, by Python's fractions. */
Test(checks_selections, hits_of_a_known_probability) {
  cr_expect_float_eq(hits_p_value(5, 100, 0.2, 0.2), 3.736013260064844e-05, 1e-15);
  cr_expect_float_eq(hits_p_value(38, 100, 0.2, 0.2), 4.994042944081638e-05, 1e-15);
  cr_expect_eq(hits_p_value(20, 100, 0.2, 0.2), 1);
  cr_expect_gt(hits_p_value(5, 100, 0.19, 0.21), hits_p_value(5, 100, 0.2, 0.2));
  cr_expect_gt(hits_p_value(38, 100, 0.19, 0.21), hits_p_value(38, 100, 0.2, 0.2));
}

/* A score says what it may be off by: far less than what lies between scores, or no rank is judged. */
Test(checks_selections, scores_are_known_well) {
  static const char *const specs[] = {"topk:k=6,by=sparq,r=2", "topk:k=6,by=random",
                                      "evict:score=knorm,budget=16,recent=4"};
  for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
    run_case *c = case_gaussian(specs[k], case_problem(1, 2, 1, 64, 8, 8, true, ATTN_F64), 1);
    const attn_call call = evidence_call(&c->e);
    const attn_selector *x = c->e.view->selector;
    double low = (double)INFINITY, high = -low, most = 0, error;
    cr_assert(x->score, "%s", specs[k]);
    for (int64_t unit = 0; unit < 64 / x->grain; unit++) {
      const double score = x->score(x->state, &(attn_query){.call = &call, .i = 63}, unit, &error);
      low = fmin(low, score);
      high = fmax(high, score);
      most = fmax(most, error);
    }
    cr_expect(most < 1e-9 * (high - low), "%s: %g of %g", specs[k], most, high - low);
    case_free(c);
  }
}

/* Margins decide every key: none may be both taken and left. */
Test(checks_selections, margins_are_known_well) {
  enum { N = 48, SINK = 3 };
  for (int causal = 0; causal < 2; causal++) {
    run_case *c = case_gaussian("vslash:vertical=7,slash=5,last=9,sink=3,window=2",
                                case_problem(1, 2, 1, N, 8, 8, causal, ATTN_F64), 1);
    const attn_call call = evidence_call(&c->e);
    const attn_selector *x = c->e.view->selector;
    double low[N], high[N];
    int taken = 0;
    x->margins(x->state, &(attn_query){.call = &call, .head = 1, .i = N - 1}, N, low, high);
    for (int j = SINK; j < N; j++) {
      cr_expect(low[j] > 0 || high[j] < 0, "key %d, causal %d: %g ... %g", j, causal, low[j], high[j]);
      taken += low[j] > 0;
    }
    cr_expect(taken >= 7 && taken <= 7 + 5, "%d", taken);
    case_free(c);
  }
}

static attn_selector said; /* what is not 0 */

static void say_otherwise(attn_view *view) {
  static attn_selector own;
  own = *view->selector;
  if (said.hashes) own.hashes = said.hashes;
  if (said.buckets) own.buckets = said.buckets;
  if (said.kept) own.kept = said.kept;
  if (said.grain) own.grain = said.grain;
  if (said.mass > 0) own.mass = said.mass;
  if (said.always) own.always = said.always;
  if (said.enclose) own.enclose = said.enclose;
  if (said.margins) own.margins = said.margins, own.kept = 0;
  view->selector = &own;
}

Test(checks_selections, hashes_of_the_library) {
  static const char *const specs[] = {"lsh:rounds=4,buckets=16", "lsh:rounds=1,buckets=2",
                                      "lsh:rounds=2,buckets=64,window=9", "lsh:rounds=7,buckets=4,seed=5"};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int i = 0; i < 2; i++) {
      const result_bound b =
          case_judge(specs[s], case_problem(1, 2, 1, 40, 16, 5, i, i ? ATTN_F64 : ATTN_F32), 1, "LSH-1");
      cr_expect(b.verdict == VERDICT_CONSISTENT && b.p_value > 1e-4 && fabs(b.measured - b.value) < 0.1,
                "%s: %d, %g of %g, p %g, %s", specs[s], (int)b.verdict, b.measured, b.value, b.p_value,
                b.message);
    }
}

Test(checks_selections, hashes_that_are_misstated) {
  static const attn_selector by[] = {{.hashes = 2, .buckets = 8}, {.hashes = 3}, {.buckets = 24}};
  show_as("lsh", "said_lsh", say_otherwise);
  for (int i = 0; i < 3; i++) {
    said = by[i];
    const result_bound b = case_judge("said_lsh:rounds=2,buckets=8",
                                      case_problem(1, 2, 1, 40, 32, 5, true, ATTN_F32), 1, "LSH-1");
    cr_expect(i ? b.p_value < 1e-8 : b.p_value > 1e-4, "%d: p %g, %s", i, b.p_value, b.message);
  }
}

/* Checks take further seeds than that of the run, of which there are none behind the last. */
Test(checks_selections, other_draws_than_by_the_last_seed) {
  static const struct {
    const char *spec, *check;
  } drawn[] = {{"lsh:rounds=2,buckets=8", "LSH-1"},
               {"lsh_tail:k=3,l=10", "LAW-1"},
               {"bigbird:block=4,random=2", "SP-4"},
               {"performer:features=16", "FAV-3"},
               {"linformer:k=8", "LIN-3"}};
  for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++) {
    const char *spec = text_of("%s,seed=1000000000000000", drawn[i].spec);
    const result_bound b =
        case_judge(spec, case_problem(1, 2, 1, 64, 16, 5, false, ATTN_F32), 1, drawn[i].check);
    cr_expect(b.verdict == VERDICT_PASS || b.verdict == VERDICT_CONSISTENT, "%s: %s, %s", spec,
              check_verdict_names[b.verdict], b.message);
  }
}

/* Where moments are NaN they would be taken anew for each of thousands of draws. */
Test(checks_selections, draws_of_keys_that_are_not_finite) {
  run_case *c = case_make(case_problem(1, 1, 1, 40, 8, 5, false, ATTN_F32), 1, 100);
  attn_set(c->k, 11, ATTN_F32, (double)INFINITY);
  case_run(c, "lsh_tail:k=3,l=9", NULL);
  const result_bound b = case_check(&c->e, "LAW-1");
  cr_expect(b.verdict != VERDICT_VIOLATED && strstr(b.message, "are not finite"), "%s, %s",
            check_verdict_names[b.verdict], b.message);
}

/* Of keys in few directions many meet a query, and those of a window always do. */
Test(checks_selections, costs_of_hashing_count_the_keys_that_are_met) {
  static const struct {
    const char *spec;
    int64_t d;
  } hashed[] = {{"lsh_tail", 1},
                {"lsh_tail", 2},
                {"lsh_tail", 3},
                {"lsh_tail", 33},
                {"lsh", 1},
                {"lsh", 2},
                {"lsh:rounds=1,window=30", 33},
                {"lsh_tail:l=2,window=30", 33}};
  for (size_t i = 0; i < sizeof hashed / sizeof *hashed; i++)
    expect_gaussian(hashed[i].spec, case_problem(1, 2, 1, 31, hashed[i].d, 129, false, ATTN_F32), 1,
                    "PROP-COST", VERDICT_PASS, hashed[i].spec);
}

Test(checks_selections, what_cannot_be_judged) {
  expect_gaussian("lsh:window=100", case_problem(1, 1, 1, 40, 16, 5, true, ATTN_F32), 1, "LSH-1",
                  VERDICT_NOT_APPLICABLE, "every key is in the window");
  expect_gaussian("lsh", case_problem(1, 1, 1, 40, 1, 5, true, ATTN_F32), 1, "LSH-1", VERDICT_NOT_APPLICABLE,
                  "one component");
  expect_gaussian("topk:p=0.5", case_problem(1, 1, 1, 40, 9, 5, true, ATTN_F32), 1, "SEL-6",
                  VERDICT_NOT_APPLICABLE, "of a mass twice the number of keys buys nothing");
}

/* -- certificates of pages -- */

Test(checks_selections, certificates_of_the_library) {
  static const char *const specs[] = {
      "pages:page=8,budget=24", "pages:page=8,budget=24,score=ball,share=group",
      "pages:page=13,budget=39,score=mean,first=1", "pages:page=4,budget=16,score=max"};
  static const int64_t kv_len[2] = {61, 90};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int i = 0; i < 2; i++) {
      attn_problem p = case_problem(2, 4, 2, 90, 12, 5, i, i ? ATTN_F64 : ATTN_F32);
      run_case *c = case_lengths(specs[s], p, i ? 1 : 3, i ? kv_len : NULL);
      expect_verdict(&c->e, "SEL-3", VERDICT_PASS, specs[s]);
      case_free(c);
    }
}

/* Two queries 1, keys of one component: pages {0, -1}, {1, 0}, {2, 1} are left out, {3, 3} is kept. */
static run_case *four_pages(const char *spec) {
  static const double keys[] = {0, -1, 1, 0, 2, 1, 3, 3};
  attn_problem p = case_problem(1, 1, 1, 8, 1, 1, false, ATTN_F64);
  p.n_q = 2;
  p.scale = 1;
  run_case *c = case_make(p, 1, 100);
  for (int64_t i = 0; i < 2; i++) case_set(c, c->q, i, 1);
  for (int64_t j = 0; j < 8; j++) case_set(c, c->k, j, keys[j]);
  case_run(c, spec, NULL);
  return c;
}

Test(checks_selections, a_certificate_by_hand) {
  run_case *c = four_pages("pages:page=2,budget=2");
  const result_bound b = case_check(&c->e, "SEL-3");
  const double e = exp(1), left = 1 + 1 / e + e + 1 + e * e + e, most = 2 * (1 + e + e * e),
               kept = 2 * e * e * e;
  cr_expect_eq(b.verdict, VERDICT_PASS);
  cr_expect_float_eq(b.measured, left / (left + kept), 1e-12);
  cr_expect_float_eq(b.value, most / (most + kept), 1e-12);
  cr_expect_str_eq(b.message, "on average 0.274 of a row is left out, and 0.356 is certified");
}

/* The same keys and laws that say something else: how SEL-1 and SEL-2 tell. */
static bool is_first(const void *state, const attn_query *x, int64_t unit) {
  return unit == 0 || !x || state == x;
}

static double moved;
static void margins_by_place(const void *state, const attn_query *x, int64_t keys, double *low,
                             double *high) {
  (void)state, (void)x;
  for (int64_t j = 0; j < keys; j++) low[j] = (double)j - moved, high[j] = low[j] + 0.25;
}

Test(checks_selections, selections_that_are_misstated) {
  static const struct {
    const char *of, *check;
    attn_selector by;
    double moved, measured;
    const char *text;
  } told[] = {
      {"topk:k=2", "SEL-1", {.kept = 2}, 0, 0, ""},
      {"topk:k=2", "SEL-1", {.kept = 3}, 0, 1, "selects 2 of 8 keys by score, and should 3"},
      {"topk:k=2",
       "SEL-1",
       {.mass = 0.9},
       0,
       0.9 - 0.725574,
       "selects the mass 0.725574, 0.362787 without the least unit, to keep 0.9"},
      {"topk:k=2",
       "SEL-1",
       {.always = is_first},
       0,
       1,
       "selects 0 of the 1 keys of unit 0 that it sees, which it always takes"},
      {"pages:page=2,budget=2", "SEL-2", {.kept = 2}, 0, 1, "selects 1 of 4 units by score, and should 2"},
      {"pages:page=2,budget=2",
       "SEL-2",
       {.grain = 4},
       0,
       2,
       "selects 2 of the 4 keys of unit 1 that it sees"},
      {"topk:k=2", "SEL-2", {.margins = margins_by_place}, 6, 0, ""},
      {"topk:k=2",
       "SEL-2",
       {.margins = margins_by_place},
       4.5,
       0.5,
       "leaves key 5, whose margin is 0.5 ... 0.75"},
      {"topk:k=2",
       "SEL-2",
       {.margins = margins_by_place},
       6.5,
       0.25,
       "selects key 6, whose margin is -0.5 ... -0.25"}};
  for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
    show_as(*told[i].of == 't' ? "topk" : "pages", *told[i].of == 't' ? "said_topk" : "said_pages",
            say_otherwise);
    said = told[i].by;
    moved = told[i].moved;
    run_case *c = four_pages(text_of("said_%s", told[i].of));
    const result_bound b = case_check(&c->e, told[i].check);
    cr_expect(b.verdict == (*told[i].text ? VERDICT_VIOLATED : VERDICT_PASS) &&
                  strstr(b.message, told[i].text) && fabs(b.measured - told[i].measured) < 1e-4,
              "%s: %d, %g, %s", told[i].text, (int)b.verdict, b.measured, b.message);
    case_free(c);
  }
}

static double lowered;

static void enclose_too_low(const void *state, const attn_query *x, int64_t units, double *low,
                            double *high) {
  static const double most[] = {0, 1, 2, 3};
  (void)state, (void)x;
  for (int64_t u = 0; u < units; u++) {
    low[u] = -(double)INFINITY;
    high[u] = most[u] - lowered;
  }
}

Test(checks_selections, a_page_that_states_too_little) {
  show_as("pages", "said_pages", say_otherwise);
  said = (attn_selector){.enclose = enclose_too_low};
  for (int i = 0; i < 2; i++) {
    lowered = i;
    run_case *c = four_pages("said_pages:page=2,budget=2");
    expect_verdict(&c->e, "SEL-3", i ? VERDICT_VIOLATED : VERDICT_PASS, i ? "too low" : "as it is");
    case_free(c);
  }
}

/* Patterns, hashes and tiles go by places and directions: a key that a bias hides from a query has no weight
 * there. */
Test(checks_selections, keys_that_a_bias_hides_may_be_selected) {
  enum { N = 96 };
  static const char *const specs[] = {"streaming:sink=2,window=9 + topk:k=8", "lsh:rounds=2,buckets=4",
                                      "lsh_tail:k=3,l=10", "streaming:sink=2,window=9 + sample:count=9",
                                      "bigbird:block=8,random=2,global=1,tail=uniform"};
  static double bias[N * N];
  attn_rng rng = rng_of(3, 1, 0);
  for (int64_t at = 0; at < N * N; at++)
    bias[at] = attn_rng_below(&rng, 2) || at % N == 0 ? 0 : -(double)INFINITY;
  attn_problem p = case_problem(1, 2, 1, N, 8, 4, true, ATTN_F32);
  p.score.dense = (attn_bias){.at = bias, .dtype = ATTN_F64, .row = N};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    expect_gaussian(specs[s], p, 1, "SEL-0", VERDICT_PASS, specs[s]);
}

/* A page, or a key of a proxy, that nobody who shares the selection sees takes no place: biases of most keys,
 * others for each head, and rows of which no key is left. */
Test(checks_selections, what_biases_hide_takes_no_place) {
  enum { N = 70, HEADS = 2 };
  static const char *const specs[] = {"pages:page=2,budget=12",
                                      "pages:page=2,budget=12,score=mean,last=0",
                                      "pages:page=4,budget=12,score=ball,share=tile",
                                      "pages:page=2,budget=12,score=max,share=tile",
                                      "pages:page=2,budget=12,score=mass,share=group",
                                      "topk:k=8,share=group",
                                      "topk:k=8,by=sparq,r=2"};
  static double bias[HEADS * N * N];
  attn_rng rng = rng_of(3, 1, 0);
  for (int64_t at = 0; at < HEADS * N * N; at++) bias[at] = attn_rng_below(&rng, 10) ? -(double)INFINITY : 0;
  for (size_t s = 0; s < 2 * sizeof specs / sizeof *specs; s++) {
    attn_problem p = case_problem(1, HEADS, 1, N, 8, 4, s & 1, ATTN_F32);
    p.score.dense = (attn_bias){.at = bias, .dtype = ATTN_F64, .head = N * N, .row = N};
    expect_gaussian(specs[s / 2], p, 1, "SEL-2", VERDICT_PASS, specs[s / 2]);
  }
}

/* properties.c - the property checks: gated by what a view declares, passed by correct variants, failed by
 * wrong ones. */
#include "tests/support/checks_fake.h"

static const char *const names[] = {"PROP-ONES", "PROP-HULL", "PROP-PERM", "PROP-SHIFT"};

static attn_problem shape(bool causal, attn_dtype type) {
  return case_problem(2, 4, 2, 90, 16, 9, causal, type);
}

/* What applies: a letter per property, p pass, n not applicable; non-causal and causal ('-': refused). */
static const struct {
  const char *spec;
  char want[5], causal[5];
} table[] = {{"full", "pppp", "ppnp"},
             {"tiled:block_k=16", "pppp", "ppnp"},
             {"longformer:window=8,global=2", "ppnp", "ppnp"},
             {"bigbird:block=8", "ppnp", "ppnp"},
             {"performer:features=40", "pppn", "ppnn"},
             {"performer:features=24,kernel=hyperbolic,eps=1e-4", "pppn", "ppnn"},
             {"performer:features=64,kernel=trig", "pnpn", "pnnn"},
             {"linformer:k=20", "nnnn", "-"},
             {"linformer:k=20,projection=pool", "ppnp", "-"},
             {"performer:features=40,kernel=relu", "nnpn", "nnnn"},
             {"performer:features=40,kernel=relu,eps=1e-3", "pppn", "ppnn"},
             {"linear", "pppn", "ppnn"},
             {"linear:feature=taylor,degree=1", "pnpn", "pnnn"},
             {"linear:feature=cos", "nnnn", "nnnn"}};

/* The values of each query's own position, but NaN for the first head. */
static void a_head_of_nan(const attn_call *c) {
  const attn_problem *p = c->context->problem;
  const int64_t group = p->heads / p->kv_heads;
  for (int64_t line = 0; line < p->batch * p->heads; line++)
    for (int64_t i = 0; i < p->n_q * p->d_v; i++) {
      const int64_t kv = line / p->heads * p->kv_heads + line % p->heads / group;
      attn_set(c->o, line * p->n_q * p->d_v + i, p->dtype,
               line ? attn_get(c->v, kv * p->n_kv * p->d_v + i, p->dtype) : -(double)NAN);
    }
}

/* NaN again is the same output, and no sign that inputs were not looked at. */
Test(checks_properties, equal_patterns_of_nan_are_equal) {
  fake_reset(weight_exact);
  fake.execute = a_head_of_nan;
  run_case *c = case_gaussian("fake", attn_problem_make(1, 2, 40, 8), 1);
  expect_verdict(&c->e, "PROP-REPEAT", VERDICT_PASS, "NaN again");
  expect_verdict(&c->e, "PROP-THREADS", VERDICT_PASS, "NaN again");
  case_free(c);
  result_bound said;
  bound_begin(&said, "x", KIND_HARD);
  bound_say(&said, "is %g, expected %g (of nan.npy, banana; %g)", -(double)NAN, 1.0, (double)NAN);
  cr_expect_str_eq(said.message, "is NaN, expected 1 (of nan.npy, banana; NaN)");
}

/* Features of a huge key cancel, in a term as alone. */
Test(checks_properties, a_huge_key_meets_features_in_a_term) {
  static const char *const features[] = {"linear:feature=taylor", "1*linear:feature=taylor",
                                         "0.25*topk:k=1 + 0.75*linear:feature=taylor",
                                         "0.5*full + 0.5*(0.5*full + 0.5*linear:feature=taylor)"};
  for (size_t i = 0; i < sizeof features / sizeof *features; i++)
    expect_gaussian(features[i], shape(false, ATTN_F32), 3, "PROP-EXTREME", VERDICT_PASS, features[i]);
}

Test(checks_properties, correct_variants_pass_what_they_declare) {
  static const int64_t kv_len[] = {71, 90};
  for (size_t t = 0; t < sizeof table / sizeof *table; t++)
    for (int causal = 0; causal < 2; causal++)
      for (int type = 0; type < 2; type++) {
        const char *want = causal ? table[t].causal : table[t].want;
        if (*want == '-') continue;
        run_case *c =
            case_lengths(table[t].spec, shape(causal, type ? ATTN_F64 : ATTN_F32), 0.8, type ? kv_len : NULL);
        for (size_t i = 0; i < 4; i++)
          expect_verdict(&c->e, names[i], want[i] == 'p' ? VERDICT_PASS : VERDICT_NOT_APPLICABLE,
                         table[t].spec);
        case_free(c);
      }
}

/* The verdicts of the four on the fake, a letter each: p pass, v violated, n not applicable, u
 * uncertifiable. */
static void expect_verdicts(const char *want, const char *what) {
  static const char letter[] = {
      [VERDICT_PASS] = 'p',          [VERDICT_CONSISTENT] = 'c',     [VERDICT_VIOLATED] = 'v',
      [VERDICT_UNCERTIFIABLE] = 'u', [VERDICT_NOT_APPLICABLE] = 'n', [VERDICT_ERROR] = 'e'};
  run_case *c = case_gaussian("fake", shape(false, ATTN_F32), 0.8);
  for (size_t i = 0; i < 4; i++) {
    result_bound b = case_check(&c->e, names[i]);
    cr_expect_eq(letter[b.verdict], want[i], "%s, %s: %c, measured %g value %g %s", what, names[i],
                 letter[b.verdict], b.measured, b.value, b.message);
  }
}

static double weight_of_key_norm(int64_t i, int64_t j, double score) {
  (void)i, (void)j;
  return 1 + score * score; /* positive, changes with a shift */
}

static double weight_by_place(int64_t i, int64_t j, double score) {
  (void)i;
  return exp(score) * (1 + (double)j);
}

/* Weights that spread values hide: the planted ones show them. */
static double weight_slightly_negative(int64_t i, int64_t j, double score) {
  (void)i, (void)score;
  return j == 3 ? -0.05 : j == 4 ? 1.05 : 0.001;
}

Test(checks_properties, what_weights_break) {
  static const struct {
    double (*weight)(int64_t, int64_t, double);
    double gain;
    const char *want, *what;
  } fakes[] = {{weight_exact, 1, "pppp", "exact"},
               {weight_exact, 1.001, "vppp", "a gain stays inside the hull, and is as invariant as before"},
               {weight_exact, 40, "vvpp", "a large gain"},
               {weight_by_place, 1, "ppvp", "place"},
               {weight_of_key_norm, 1, "pppv", "shift"},
               {weight_slightly_negative, 1, "pvvp", "one in twenty"}};
  for (size_t f = 0; f < sizeof fakes / sizeof *fakes; f++) {
    fake_reset(fakes[f].weight);
    fake.gain = fakes[f].gain;
    expect_verdicts(fakes[f].want, fakes[f].what);
  }
}

Test(checks_properties, what_is_not_declared_is_not_checked) {
  fake_reset(weight_exact);
  fake.view.caps = 0;
  expect_verdicts("nnnn", "no caps");
  fake_reset(weight_exact);
  fake.view.rounding.unit = 0;
  expect_verdicts("nnnn", "no rounding");
}

/* A corrupted output shows where the run's own rows are the base. */
Test(checks_properties, corrupted_rows_fail) {
  run_case *c = case_gaussian("tiled", shape(false, ATTN_F32), 0.8);
  for (int64_t i = 0; i < case_count_o(&c->problem); i++) case_set(c, c->o, i, case_get(c, c->o, i) + 5);
  expect_verdict(&c->e, "PROP-HULL", VERDICT_VIOLATED, "moved");
  expect_verdict(&c->e, "PROP-PERM", VERDICT_VIOLATED, "moved");
  expect_verdict(&c->e, "PROP-SHIFT", VERDICT_VIOLATED, "moved");
  case_set(c, c->o, 0, (double)NAN);
  expect_verdict(&c->e, "PROP-HULL", VERDICT_VIOLATED, "NaN");
}

static const result_bound *bound_of(const result_row *row, const char *name) {
  for (int i = 0; i < row->bounds_count; i++)
    if (strcmp(row->bounds[i].name, name) == 0) return &row->bounds[i];
  return NULL;
}

/* What a variant declares and describes chooses its checks: here neither a pattern nor features nor a
 * projection. */
Test(checks_properties, every_check_of_the_kind_of_variant) {
  static const char *const families[] = {"SP-", "FAV-", "LIN-"};
  fake_reset(weight_exact);
  run_case *c = case_gaussian("fake", shape(false, ATTN_F32), 0.8);
  result_row row = case_checks(c);
  for (const check *const *k = checks_all; *k; k++)
    cr_expect_eq(bound_of(&row, (*k)->name) != NULL,
                 (*k)->kind != KIND_PROPERTY && (*k)->of->holds(c->e.view), "%s", (*k)->name);
  cr_assert(bound_of(&row, "FP-1") && bound_of(&row, "PROP-ONES"));
  cr_expect_eq(bound_of(&row, "PROP-ONES")->verdict, VERDICT_PASS);
  cr_expect(isnan(bound_of(&row, "PROP-ONES")->p_value));
  for (int b = 0; b < row.bounds_count; b++)
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
      cr_expect(strncmp(row.bounds[b].name, families[f], strlen(families[f])), "a cell of another kind: %s",
                row.bounds[b].name);
}

/* A variant that says nothing of itself: whatever it computes, its declared checks say why they say nothing,
 * and the run is unchecked. */
Test(checks_properties, nothing_described_is_unchecked) {
  fake_reset(weight_exact);
  fake.view.rounding.unit = 0;
  run_case *c = case_gaussian("fake", shape(false, ATTN_F32), 0.8);
  result_row row = case_checks(c);
  cr_assert(bound_of(&row, "FP-1") && bound_of(&row, "PROP-ONES"));
  for (const result_bound *b = row.bounds; b < row.bounds + row.bounds_count; b++)
    cr_expect(b->verdict == VERDICT_NOT_APPLICABLE &&
                  strcmp(b->message, "the variant describes no rounding") == 0,
              "%s: %d, %s", b->name, (int)b->verdict, b->message);
  cr_expect_eq(bounds_worst(row.bounds, row.bounds_count), VERDICT_UNCHECKED);
}

/* What holds of the rows that are numbers says nothing of the others. */
static void expect_row(result_row *row, check_verdict want, check_verdict model, const char *what) {
  result_row_judge(row);
  cr_expect(row->verdict == want && row->model_verdict == model, "%s: %d, %d", what, (int)row->verdict,
            (int)row->model_verdict);
}

Test(checks_properties, rows_that_are_not_finite_are_uncertified) {
  const check_verdict none = VERDICT_NOT_APPLICABLE;
  result_bound b[1] = {{.name = "A"}};
  result_row row = {.bounds = b, .bounds_count = 1, .rows_sampled = 4, .err_max_abs = 0.5};
  bound_hard(&b[0], 1, 2);
  expect_row(&row, VERDICT_PASS, none, "it holds");
  row.rows_degenerate = 1;
  expect_row(&row, VERDICT_UNCERTIFIABLE, none, "a row's weights cancel");
  row.rows_degenerate = 0;
  row.err_max_abs = (double)NAN;
  expect_row(&row, VERDICT_UNCERTIFIABLE, none, "there is no error");
  bound_hard(&b[0], 2, 1);
  expect_row(&row, VERDICT_VIOLATED, none, "it does not hold");
}

/* A model proves nothing, a report judges nothing: neither makes a verdict better or worse, unless it fails
 * with an error. */
Test(checks_properties, models_have_a_verdict_of_their_own) {
  result_bound b[2] = {{.name = "A"}, {.name = "B"}};
  result_row row = {.bounds = b, .bounds_count = 2};
  bound_hard(&b[0], 1, 2);
  bound_model(&b[1], 1, 2);
  expect_row(&row, VERDICT_PASS, VERDICT_CONSISTENT, "a model that holds");
  bound_model(&b[1], 2, 1);
  expect_row(&row, VERDICT_PASS, VERDICT_UNCERTIFIABLE, "a model that does not");
  bound_model(&b[1], 1, (double)INFINITY);
  expect_row(&row, VERDICT_PASS, VERDICT_UNCERTIFIABLE, "a model that allows everything");
  b[1].verdict = VERDICT_ERROR;
  expect_row(&row, VERDICT_PASS, VERDICT_ERROR, "a model that could not be evaluated");
  bound_report(&b[1], 2, 1);
  b[1].verdict = VERDICT_UNCERTIFIABLE;
  expect_row(&row, VERDICT_PASS, VERDICT_NOT_APPLICABLE, "a report");
  b[1].verdict = VERDICT_ERROR;
  expect_row(&row, VERDICT_ERROR, VERDICT_NOT_APPLICABLE, "a report that could not be evaluated");
  bound_model(&b[0], 1, 2);
  bound_model(&b[1], 1, 2);
  expect_row(&row, VERDICT_UNCHECKED, VERDICT_CONSISTENT, "a model alone certifies nothing");
}

Test(checks_properties, verdicts_follow_their_rules) {
  result_bound b = {0};
  bound_hard(&b, 1, 1);
  cr_expect_eq(b.verdict, VERDICT_PASS);
  bound_hard(&b, 0, 0);
  cr_expect(b.verdict == VERDICT_PASS && b.margin == 0);
  bound_hard(&b, (double)NAN, 1);
  cr_expect_eq(b.verdict, VERDICT_VIOLATED);
  bound_hard(&b, 1, (double)NAN);
  cr_expect_eq(b.verdict, VERDICT_VIOLATED);
  bound_prob(&b, 3, 1, 0.25);
  cr_expect(b.verdict == VERDICT_CONSISTENT && b.p_value == 0.25 && b.kind == KIND_PROB);
  bound_report(&b, 3, 1);
  cr_expect(b.verdict == VERDICT_NOT_APPLICABLE && b.kind == KIND_REPORT && b.measured == 3);
  cr_expect(b.margin == 3 && bounds_worst(&b, 0) == VERDICT_UNCHECKED);
  for (int excess = 0; excess < 3; excess++) {
    const double x = 1 + excess * 6e-7;
    bound_property(&b, x, 1);
    cr_expect(b.kind == KIND_PROPERTY && b.verdict == (excess > 1 ? VERDICT_VIOLATED : VERDICT_PASS), "%g",
              x);
    bound_model(&b, x, 1);
    cr_expect(b.verdict == (excess > 1 ? VERDICT_UNCERTIFIABLE : VERDICT_CONSISTENT) && b.margin == x, "%g",
              x);
  }
  bound_hard(&b, 1, (double)INFINITY);
  cr_expect_eq(b.verdict, VERDICT_UNCERTIFIABLE);
  bound_say(&b, "-nan, (nan)=-nan [nan] xnan nanx x-nan nan");
  cr_expect_str_eq(b.message, "NaN, (NaN)=NaN [NaN] xnan nanx x-nan NaN");
  bound_uncertifiable(&b, "because");
  cr_expect(b.verdict == VERDICT_UNCERTIFIABLE && strcmp(b.message, "because") == 0);
  for (const check *const *c = checks_all; *c; c++) {
    cr_expect_eq(check_find((*c)->name), *c);
    cr_expect((*c)->statement && (*c)->source);
    cr_expect((*c)->formula && (*c)->assumes, "%s: no formula, or no assumptions", (*c)->name);
    for (int i = 0; i < CHECK_NULLS; i++)
      cr_expect(!(*c)->nulls[i].rejected_on != !(*c)->nulls[i].blind, "%s: null %d", (*c)->name, i);
  }
  cr_expect_null(check_find("FP-9"));
}

/* Scores of 1e20 have roundings that dwarf every weight: no check holds or fails, and each says why. */
Test(checks_properties, scores_that_are_too_large_leave_no_bound) {
  static const char large[] = "leaves no bound on the weights",
                    cancels[] = "is zero, or lost to cancellation";
  static const struct {
    const char *spec, *names, *why;
  } of[] = {{"longformer:window=6",
             "FP-2 FP-5 SP-1 SP-2 SP-3 GR-1 CACHE-1 PROP-ONES PROP-HULL PROP-SHIFT PROP-DOB PROP-LSE GRAD-FP "
             "SINK-1",
             large},
            {"evict:budget=24,recent=4", "FP-2 SP-1 SP-2 SP-3 SEL-5 CACHE-3 PROP-DOB GRAD-FP SINK-1", large},
            {"tiled:precision=bf16", "FP-3 FP-4 CACHE-1 PROP-ONES PROP-HULL PROP-SHIFT", large},
            {"turbo:bits=3", "QNT-0 QNT-2 GRAD-FP SINK-1", large},
            {"kivi:bits=3,group=8,residual=16", "QNT-0 QNT-2", large},
            {"sage:group=8", "QNT-2 QNT-4", large},
            {"latent:rank=3", "MLA-1 MLA-3", large},
            {"streaming_cache:sink=2,window=9", "POS-1 PROP-ONES PROP-HULL PROP-DOB", large},
            {"longnet:segments=12+36,dilations=1+3", "LN-1 PROP-SHIFT", large},
            {"lsh_tail:k=3,l=10", "LAW-3", large},
            {"pooled:block=4,window=5", "POOL-1", large},
            {"normaliser:kind=sparsemax", "ENT-0 PROP-HULL", large},
            {"forget", "ENT-0 PROP-HULL", large},
            {"forget", "ENT-1", "an infinite bound certifies nothing"},
            {"performer:features=16", "FP-6 FAV-5 FAV-6 PROP-ONES PROP-HULL PROP-DOB", cancels},
            {"performer:features=16", "FAV-4b", "the second moment of the features overflows"},
            {"performer:features=16", "FAV-9", "are too large for their rounding to be small"},
            {"scatterbrain:window=4,features=16", "RES-1 RES-2", "rounding is what is left"},
            {"linformer:k=8,projection=pool", "FP-6 LIN-5 PROP-ONES PROP-HULL PROP-SHIFT PROP-DOB", large},
            {"linformer:k=8,projection=pool", "LIN-6", "may change every weight by any factor"}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    char list[160], *rest;
    const bool projected = strncmp(of[i].spec, "linformer", 9) == 0;
    run_case *c = case_make(case_problem(1, 2, 1, 40, 8, 5, !projected, ATTN_F32), 1, 100);
    c->problem.scale = 1e20;
    case_run(c, of[i].spec, NULL);
    strcpy(list, of[i].names);
    for (char *name = strtok_r(list, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
      const result_bound b = case_check(&c->e, name);
      cr_expect(b.verdict == VERDICT_UNCERTIFIABLE && strstr(b.message, of[i].why), "%s, %s: %s, %s",
                of[i].spec, name, check_verdict_names[b.verdict], b.message);
    }
    case_free(c);
  }
}

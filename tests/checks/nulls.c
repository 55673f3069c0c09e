/* nulls.c - the null approximations - all zeros, the mean of V, a quarter of the keys at random - in place of
 * a variant's own algorithm, under its own parameters, view and bounds: each check rejects them on the input
 * recorded here, or is as blind to them as it declares, while the variant itself passes. */
#include "tests/checks/check_records.h"
#include "tests/support/checks_fake.h"
#include "tests/support/checks_shown.h"
#include "tests/support/spec.h"

#include "core/expression/attn_expression.h"
#include "experiments/results/set.h"

/* A name for the expression. */
static attn_variant named(const char *expression) {
  static const attn_param none[] = {{.name = NULL}};
  const attn_variant v = {.abi = ATTN_ABI,
                          .size = sizeof v,
                          .summary = "an expression",
                          .cite = "none",
                          .caps = spec_of(expression)->variant->caps,
                          .params = none,
                          ATTN_EXPRESSION(expression)};
  return v;
}

enum { MOST = 40 };
static attn_variant impostors[MOST];
static const char *of[MOST];

/* Plans what it stands in for, and shows that; executes the fake. */
static attn_status impostor_plan(attn_builder *b, const attn_parts *parts, void **state) {
  (void)parts;
  return shown_plan_of(b, of[attn_builder_context(b)->variant - impostors], state);
}

static void impostor_inspect(const void *state, const attn_context *c, attn_view *view) {
  (void)c;
  cr_assert_eq(attn_plan_inspect(state, view), ATTN_OK, "%s", attn_last_error());
}

static DESCRIBE_METHOD(impostor_describe, NO_ROUNDING, .plan = impostor_plan, .execute = fake_execute,
                       .inspect = impostor_inspect);

/* The variant, or the expression, with its algorithm replaced by the fake's. */
static const char *impostor_of(const char *name) {
  static char names[MOST][24];
  const attn_variant *real;
  for (int i = 0; i < MOST; i++) {
    if (of[i] && strcmp(of[i], name) == 0) return names[i];
    if (of[i]) continue;
    of[i] = name;
    snprintf(names[i], sizeof names[i], "impostor%d", i);
    if (strchr(name, '('))
      impostors[i] = named(name);
    else if (!attn_variant_find(name, &real))
      impostors[i] = *real;
    impostors[i].name = names[i];
    impostors[i].describe = impostor_describe;
    cr_assert_eq(attn_variant_register(&impostors[i]), ATTN_OK, "%s", attn_last_error());
    return names[i];
  }
  return NULL;
}

static bool rejects(const check *c, const result_bound *b) {
  if (c->kind == KIND_PROB || b->kind == KIND_PROB)
    return b->verdict == VERDICT_VIOLATED || b->p_value < RESULTS_REPEAT;
  if (c->kind == KIND_MODEL) return strncmp(b->message, "warning", 7) == 0;
  return b->verdict == VERDICT_VIOLATED;
}

static result_bound judged(const record *x, const char *variant) {
  run_case *c = make_input(x);
  case_run(c, text_of("%s%s%s", variant, *x->parameters ? ":" : "", x->parameters), NULL);
  result_bound b = case_check(&c->e, x->check);
  case_free(c);
  return b;
}

static void try_nulls(const record *x) {
  double (*const weights[CHECK_NULLS])(int64_t, int64_t, double) = {
      [CHECK_ZEROS] = NULL, [CHECK_MEAN_V] = weight_equal, [CHECK_RANDOM_KEYS] = weight_random};
  const check *c = check_find(x->check);
  cr_assert_not_null(c, "%s", x->check);
  result_bound b = judged(x, x->variant);
  cr_expect(!rejects(c, &b) &&
                (b.verdict == VERDICT_PASS || b.verdict == VERDICT_CONSISTENT || b.kind == KIND_REPORT),
            "%s on %s itself: verdict %d, %g of %g, p %g, %s", x->check, x->variant, (int)b.verdict,
            b.measured, b.value, b.p_value, b.message);
  cr_expect(b.kind != KIND_HARD || b.measured <= 0 || b.value <= ldexp(b.measured, x->loose),
            "%s on %s: a bound of %g tells nothing of %g", x->check, x->variant, b.value, b.measured);
  for (int null = 0; null < CHECK_NULLS; null++) {
    fake_reset(weights[null]);
    b = judged(x, impostor_of(x->variant));
    cr_expect_eq(rejects(c, &b), c->nulls[null].rejected_on != NULL,
                 "%s, null %d: verdict %d, %g of %g, p %g, %s", x->check, null, (int)b.verdict, b.measured,
                 b.value, b.p_value, b.message);
  }
}

/* Every check but properties has a record, and every record holds. */
Test(checks_nulls, the_table) {
  cr_assert_eq(attn_variant_register(&attn_variant_planted_sample), ATTN_OK);
  for (const check *const *c = checks_all; *c; c++) {
    if ((*c)->kind == KIND_PROPERTY) continue; /* they look at no run's output */
    bool found = false;
    for (size_t r = 0; r < sizeof records / sizeof *records; r++) {
      if (strcmp(records[r].check, (*c)->name) != 0) continue;
      found = true;
      try_nulls(&records[r]);
    }
    cr_expect(found, "%s: no input is recorded for the null approximations", (*c)->name);
  }
}

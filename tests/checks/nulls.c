/* nulls.c - the null approximations - all zeros, the mean of V, a quarter of the keys at random - in place of
 * a variant's own algorithm, under its own parameters, view and bounds: each check rejects them on the input
 * recorded here, or is as blind to them as it declares, while the variant itself passes. It also
 * rejects an algorithm that is wrong in one component, be it for one query alone, in runs of several
 * shapes. */
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
/* Who answers: the fake, or what it stands in for, which is then made wrong for one query or for all. */
static enum { BY_THE_FAKE, RIGHTLY, WRONGLY_ONE, WRONGLY_ALL } answered;
static double wrong_one;             /* the first element of that query */
static bool last_alone;              /* only the last component is wrong */
static const double wrong_value = 9; /* far beyond values of variance 1 */

/* Plans what it stands in for, and shows that. */
static attn_status impostor_plan(attn_builder *b, const attn_parts *parts, void **state) {
  (void)parts;
  return shown_plan_of(b, of[attn_builder_context(b)->variant - impostors], state);
}

static attn_status impostor_work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  (void)parts;
  return shown_work_size_of(c, of[c->variant - impostors], bytes);
}

static attn_status impostor_execute(const void *inner, const attn_call *call) {
  const attn_problem *p = call->context->problem;
  if (answered == BY_THE_FAKE) return fake_execute(inner, call);
  const attn_status status = shown_execute(inner, call);
  for (int64_t r = 0; answered != RIGHTLY && r < p->batch * p->heads * p->n_q && !status; r++) {
    const int64_t batch = r / p->n_q / p->heads, head = r / p->n_q % p->heads, i = r % p->n_q;
    const double first = attn_get(attn_row(call->q, p->q, batch, head, i, p->dtype), 0, p->dtype);
    if (answered == WRONGLY_ONE && first != wrong_one) continue;
    void *o = attn_row(call->o, p->o, batch, head, i, p->dtype);
    for (int64_t l = last_alone ? p->d_v - 1 : 0; l < p->d_v; l++) attn_set(o, l, p->dtype, wrong_value);
  }
  return status;
}

static void impostor_inspect(const void *state, const attn_context *c, attn_view *view) {
  (void)c;
  cr_assert_eq(attn_plan_inspect(state, view), ATTN_OK, "%s", attn_last_error());
}

static DESCRIBE_METHOD(impostor_describe, NO_ROUNDING, .work_size = impostor_work_size, .plan = impostor_plan,
                       .execute = impostor_execute, .inspect = impostor_inspect);

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

static const char *spec_of_record(const record *x, const char *variant) {
  return text_of("%s%s%s", variant, *x->parameters ? ":" : "", x->parameters);
}

static result_bound judged(const record *x, run_case *c, const int64_t *lengths, const char *variant) {
  case_run(c, spec_of_record(x, variant), lengths);
  result_bound b = case_check(&c->e, x->check);
  case_free(c);
  return b;
}

static void expect_tight(const record *x, const result_bound *b, int loose) {
  cr_expect(b->kind != KIND_HARD || b->measured <= 0 || b->value <= ldexp(b->measured, loose),
            "%s on %s itself: a bound of %g tells nothing of %g", x->check, x->variant, b->value,
            b->measured);
}

static void try_nulls(const record *x) {
  double (*const weights[CHECK_NULLS])(int64_t, int64_t, double) = {
      [CHECK_ZEROS] = NULL, [CHECK_MEAN_V] = weight_equal, [CHECK_RANDOM_KEYS] = weight_random};
  const check *c = check_find(x->check);
  cr_assert_not_null(c, "%s", x->check);
  result_bound b = judged(x, make_input(x), NULL, x->variant);
  cr_expect(!rejects(c, &b) &&
                (b.verdict == VERDICT_PASS || b.verdict == VERDICT_CONSISTENT || b.kind == KIND_REPORT),
            "%s on %s itself: verdict %d, %g of %g, p %g, %s", x->check, x->variant, (int)b.verdict,
            b.measured, b.value, b.p_value, b.message);
  expect_tight(x, &b, x->loose);
  for (int null = 0; null < CHECK_NULLS; null++) {
    fake_reset(weights[null]);
    b = judged(x, make_input(x), NULL, impostor_of(x->variant));
    cr_expect_eq(rejects(c, &b), c->nulls[null].rejected_on != NULL,
                 "%s, null %d: verdict %d, %g of %g, p %g, %s", x->check, null, (int)b.verdict, b.measured,
                 b.value, b.p_value, b.message);
  }
}

/* A run, whether one query after the other is answered wrongly, or all of them, and how many records
 * their checks hold in it, at least. */
typedef struct shape {
  attn_problem problem;
  const int64_t *lengths;
  bool each;
  int held;
} shape;

static result_bound judged_as(const record *x, const shape *s, int64_t wrong_row) {
  run_case *input = make_shaped(x, s->problem);
  answered = wrong_row < 0 ? RIGHTLY : s->each ? WRONGLY_ONE : WRONGLY_ALL;
  if (wrong_row >= 0) wrong_one = case_get(input, input->q, wrong_row * s->problem.d_qk);
  const result_bound b = judged(x, input, s->lengths, impostor_of(x->variant));
  answered = BY_THE_FAKE;
  return b;
}

/* Whether the check holds the variant; it then rejects it where answers are wrong. Its bound is at most
 * 2^8 wider there than on the recorded input: what would make it useless is more, a lost unit roundoff. */
static bool rejects_wrong(const record *x, const shape *s) {
  const check *c = check_find(x->check);
  const result_bound right = judged_as(x, s, -1);
  if (right.verdict != VERDICT_PASS) return false;
  expect_tight(x, &right, x->loose + 8);
  last_alone = strncmp(c->name, "RES-", 4) != 0 && strcmp(c->name, "SP-3") != 0; /* these ask some of them */
  for (int64_t row = 0; row < (s->each ? s->problem.n_q : 1); row++) {
    const result_bound b = judged_as(x, s, row);
    cr_expect(rejects(c, &b), "%s of %s, %d queries, row %d: verdict %d, %g of %g, %s", x->check, x->variant,
              (int)s->problem.n_q, (int)row, (int)b.verdict, b.measured, b.value, b.message);
  }
  return true;
}

static bool planned(const record *x, attn_problem p) {
  attn_plan *plan = NULL;
  p.causal = p.causal || x->input == CAUSAL;
  const attn_status status = attn_plan_create(&plan, &p, spec_of_record(x, x->variant), NULL);
  attn_plan_destroy(plan);
  return !status;
}

/* Checks of outputs look at every row of few, and at runs of any type and shape. */
Test(checks_nulls, wrong_rows_are_rejected) {
  static const int64_t kv_len[2] = {61, 96};
  shape shapes[] = {{case_problem(1, 1, 1, 96, 16, 7, false, ATTN_F32), NULL, true, 56},
                    {case_problem(2, 4, 2, 96, 16, 5, false, ATTN_F32), kv_len, false, 56},
                    {case_problem(2, 2, 1, 96, 16, 5, true, ATTN_F64), kv_len, false, 37}};
  shapes[0].problem.n_q = 4;
  cr_assert_eq(attn_variant_register(&attn_variant_planted_sample), ATTN_OK);
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    int holds = 0;
    for (size_t r = 0; r < sizeof records / sizeof *records; r++) {
      const record *x = &records[r];
      if (check_find(x->check)->nulls[CHECK_ZEROS].rejected_on && x->input != TWO_KINDS &&
          planned(x, shapes[s].problem))
        holds += rejects_wrong(x, &shapes[s]);
    }
    cr_expect(holds >= shapes[s].held, "shape %zu: only %d checks hold a variant", s, holds);
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

/* lies.c - a stranger's selector that breaks its contract, alone and as a term: it is refused with what is
 * wrong, when it is planned or when it runs, and nothing is read or written where it points
 * (plugins/planted_coin.c). */
#include "tests/support/core.h"

extern const attn_variant attn_variant_planted_coin;

enum { N = 70 };

static attn_problem problem_of(void) {
  attn_problem p = attn_problem_make(2, 4, N, 8);
  p.kv_heads = 2;
  p.causal = true;
  return p;
}

/* The status of the first that fails: planning, executing, asking for the selections again. */
static attn_status try_spec(const char *spec, inputs *in) {
  const attn_problem *p = &in->problem;
  attn_plan *plan = NULL;
  attn_view view;
  attn_status status = attn_plan_create(&plan, p, spec, NULL);
  void *o = calloc(output_count(p), 8), *work = plan ? malloc(attn_plan_work_size(plan) + 1) : NULL;
  if (!status) status = attn_plan_inspect(plan, &view);
  if (!status) status = attn_plan_execute(plan, in->q, in->k, in->v, NULL, o, work);
  const attn_status first = status;
  if (plan && !attn_plan_inspect(plan, &view) && view.selector) {
    static const int64_t rows[] = {3, 40, N - 1};
    const int64_t room = 3 * view.selector->max_runs;
    int64_t counts[3];
    attn_run *runs = calloc((size_t)room, sizeof *runs);
    double *weights = calloc((size_t)room, sizeof *weights);
    attn_picks picks = {
        .max_runs = view.selector->max_runs, .runs = runs, .counts = counts, .log_weights = weights};
    status = attn_plan_select(plan, &(attn_tensors){.q = in->q, .k = in->k, .v = in->v},
                              &(attn_row_set){1, 2, 3, rows}, &picks);
    if (first && !status) note_failure("its selections are given nevertheless");
    free(runs), free(weights);
  }
  attn_plan_destroy(plan);
  free(o), free(work);
  return first ? first : status;
}

static void expect_refusal(const char *fault, const char *reason) {
  static const char *const places[] = {
      "planted_coin:fault=%s", "streaming:sink=2,window=3 + planted_coin:fault=%s",
      "topk:k=3 + planted_coin:fault=%s", "0.5*tiled + 0.5*planted_coin:fault=%s"};
  const attn_problem p = problem_of();
  inputs in = inputs_make(&p, false, 3, 1);
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const char *spec = text_of(places[i], fault);
    note_context("%s", spec);
    const attn_status status = try_spec(spec, &in);
    if (status != ATTN_EINVAL && status != ATTN_EUNSUPPORTED) note_failure("status %d", (int)status);
    if (!strstr(attn_last_error(), reason)) note_failure("'%s' does not say '%s'", attn_last_error(), reason);
  }
}

Test(expression_lies, what_breaks_the_contract_is_refused) {
  cr_assert_eq(attn_variant_register(&attn_variant_planted_coin), ATTN_OK, "%s", attn_last_error());
  expect_refusal("many", "more than max_runs runs");
  expect_refusal("negative", "a negative number of runs");
  expect_refusal("beyond", "goes beyond the last key");
  expect_refusal("before", "overlap or do not ascend");
  expect_refusal("endless", "goes beyond the last key");
  expect_refusal("backward", "overlap or do not ascend");
  expect_refusal("hollow", "a run of no keys");
  expect_refusal("stride", "another step than 1");
  expect_refusal("weight_nan", "a weight that is not finite");
  expect_refusal("weight_inf", "a weight that is not finite");
  expect_refusal("delta", "selector.delta = 2");
}

static void expect_alone(const char *spec, const char *reason) {
  const attn_problem p = problem_of();
  inputs in = inputs_make(&p, false, 3, 1);
  note_context("%s", spec);
  EXPECT_STATUS(try_spec(spec, &in), ATTN_EINVAL);
  if (!strstr(attn_last_error(), reason)) note_failure("'%s' does not say '%s'", attn_last_error(), reason);
}

Test(expression_lies, of_one_term) {
  cr_assert_eq(attn_variant_register(&attn_variant_planted_coin), ATTN_OK, "%s", attn_last_error());
  expect_alone("streaming:sink=2,window=3 + planted_coin:fault=again", "a term before it owns");
  expect_alone("streaming:sink=2,window=3 + planted_coin:fault=shifting", "and without a builder in");
  expect_alone("planted_coin:fault=order", "does not exist");
  expect_alone("(planted_coin:fault=order)", "does not exist");
  expect_alone("planted_coin:fault=order_twice", "it has already");
}

/* -- a pattern -- */

static attn_run torn_run;
static int64_t torn_count;
static int64_t torn_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state, (void)head;
  runs[0] = (attn_run){0, 1, 1};
  if (position < 20) return 1;
  runs[1] = torn_run;
  return torn_count;
}
static attn_status torn_parts(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b, (void)c;
  out->pattern = (attn_pattern){.row = torn_row, .max_runs = 2};
  return ATTN_OK;
}
ATTN_VARIANT(torn, TOY, .caps = ATTN_CAP_SOFTMAX, .describe = torn_parts, .cost = no_cost)

static void expect_torn(attn_run run, int64_t count, const char *reason) {
  torn_run = run;
  torn_count = count;
  expect_alone("torn", reason);
  expect_alone("torn + topk:k=3", reason);
  expect_alone("topk:k=3 + torn", reason);
  expect_alone("torn + linear", reason);
}

Test(expression_lies, rows_of_a_pattern) {
  cr_assert_eq(attn_variant_register(&attn_variant_torn), ATTN_OK, "%s", attn_last_error());
  expect_torn((attn_run){2, 1, 1}, 1 << 24, "expected 0 ... max_runs = 2");
  expect_torn((attn_run){2, 1, 1}, -1, "returns -1 runs");
  expect_torn((attn_run){0, 5, 1}, 2, "does not begin after");
  expect_torn((attn_run){2, INT64_C(1) << 62, 2}, 2, "goes beyond the last key");
  expect_torn((attn_run){-4, 3, 1}, 2, "begins before key 0");
  expect_torn((attn_run){2, 3, 0}, 2, "has a step below 1");
}

static int64_t stepping_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state, (void)head, (void)position;
  runs[0] = (attn_run){0, N / 7, 7};
  return 1;
}
static attn_status stepping_parts(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b;
  const bool stated = c->params && *(const int64_t *)c->params;
  out->pattern = (attn_pattern){.row = stepping_row, .max_runs = 1, .max_pieces = stated ? N / 7 : 0};
  return ATTN_OK;
}
static const attn_param stated_or_not[] = {
    {"stated", ATTN_INT, 0, 0, 1, "0", NULL, "whether max_pieces is stated"}, {.name = NULL}};
ATTN_VARIANT(stepping, .summary = "a pattern of another step", .cite = "none", .caps = ATTN_CAP_SOFTMAX,
             .params = stated_or_not, .params_size = sizeof(int64_t), .describe = stepping_parts,
             .cost = no_cost)

/* Alone the engine follows any steps; a join needs to know how many runs of step 1 they are. */
Test(expression_lies, steps_without_pieces) {
  const attn_problem p = problem_of();
  inputs in = inputs_make(&p, false, 3, 1);
  cr_assert_eq(attn_variant_register(&attn_variant_stepping), ATTN_OK, "%s", attn_last_error());
  cr_expect_eq(try_spec("stepping", &in), ATTN_OK, "%s", attn_last_error());
  cr_expect_eq(try_spec("stepping:stated=1 + topk:k=3", &in), ATTN_OK, "%s", attn_last_error());
  cr_expect_eq(try_spec("topk:k=3 + stepping:stated=1", &in), ATTN_OK, "%s", attn_last_error());
  cr_expect_eq(try_spec("topk:k=3 + stepping", &in), ATTN_EINVAL);
  cr_expect(strstr(attn_last_error(), "the keys of query 7 are 2 runs of step 1, and max_runs = 1"), "%s",
            attn_last_error());
}

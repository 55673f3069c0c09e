/* residual.c - a head of exact keys joined with the features of all others: its degenerate cases, threads on
 * a long sequence, and what it refuses. That it is its definition is for RES-1, RES-2 and PROP-LEN
 * (experiments/). */
#include "tests/support/core.h"

/* What the toy joins: parts of other plans. */
static attn_residual parts;

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b, (void)c;
  if (parts.pattern) out->pattern = *parts.pattern;
  if (parts.selector) out->selector = *parts.selector;
  if (parts.features) out->features = *parts.features;
  return ATTN_OK;
}
static attn_cost cost(const attn_context *c) { return attn_residual_cost(c, parts.features, 1); }
ATTN_VARIANT(toy_residual, TOY,
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_STOCHASTIC |
                     ATTN_CAP_LSE | ATTN_CAP_SCORE,
             .describe = describe, .cost = cost)

static const char performer[] = "performer:features=48,seed=3";

/* A head, and performer's features of all other keys. */
static void *joined(const inputs *in, const attn_pattern *head) {
  attn_view view;
  keep_object(plan_inspected(&in->problem, performer, NULL, &view), destroy_plan);
  parts = (attn_residual){.pattern = head, .features = view.features};
  return run_spec("toy_residual", NULL, in);
}

static inputs make(case_shape shape, attn_dtype t, double std) {
  attn_problem p = shape_problem(shape, t);
  return inputs_make(&p, shape.padded, 5, std);
}

/* -- heads that are something simpler -- */

static int64_t no_runs(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state, (void)head, (void)position, (void)runs;
  return 0;
}

/* The keys of a pattern, a run each. */
static int64_t one_by_one(const void *state, int64_t head, int64_t position, attn_run *runs) {
  const attn_pattern *of = state;
  attn_run own[9];
  int64_t count = 0;
  for (int64_t r = 0, all = of->row(of->state, head, position, own); r < all; r++)
    for (int64_t l = 0; l < own[r].count; l++)
      runs[count++] = (attn_run){own[r].first + l * own[r].step, 1, 1};
  return count;
}

Test(variants_residual, heads_of_nothing_of_everything_and_of_steps) {
  cr_assert_eq(attn_variant_register(&attn_variant_toy_residual), ATTN_OK);
  const attn_pattern none = {.row = no_runs, .max_runs = 1};
  for (int causal = 0; causal <= 1; causal++) {
    inputs in = make((case_shape){2, 4, 2, 300, 411, 16, 16, causal, true}, ATTN_F32, 1);
    expect_same_outputs(&in.problem, joined(&in, &none), run_spec(performer, NULL, &in), "no head");
    expect_same_outputs(&in.problem, run_spec("longformer:window=1000 + performer:features=48", NULL, &in),
                        run_spec("longformer:window=1000", NULL, &in), "every key");
    in = make((case_shape){2, 4, 2, 300, 411, 16, 16, causal, true}, ATTN_F64, 1);
    attn_view view;
    attn_plan *plan = plan_inspected(&in.problem, "longformer:window=90,dilation=3", NULL, &view);
    const attn_pattern single = {.state = view.pattern, .row = one_by_one, .max_runs = 411};
    double *steps = kept_memory(joined(&in, view.pattern)), *keys = kept_memory(joined(&in, &single));
    for (size_t x = 0; x < output_count(&in.problem); x++) EXPECT(fabs(steps[x] - keys[x]) < 1e-11);
    attn_plan_destroy(plan);
  }
}

Test(variants_residual, threads_change_no_bit) {
  static const char *const specs[] = {"longformer:window=40,global=1 + performer:features=16",
                                      "topk:k=4 + performer:features=16"};
  for (int i = 0; i < 4; i++) {
    inputs in = make((case_shape){2, 2, 1, 4500, 4500, 8, 8, i & 1, true}, ATTN_F32, 0.5);
    void *o[3];
    for (int t = 0; t < 3; t++)
      o[t] = run_spec(specs[i / 2], &(attn_options){.threads = 1 + t, .blocks = {64, 96}}, &in);
    for (int t = 1; t < 3; t++) expect_same(&in.problem, o[0], o[t], "threads");
    for (int t = 0; t < 3; t++) free(o[t]);
  }
}

/* -- rows whose denominator is lost -- */

/* One feature: 1e-4, but 1e5 of the key that a pattern takes. */
static int64_t tall;
static int64_t tall_run(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state, (void)head, (void)position;
  runs[0] = (attn_run){tall, 1, 1};
  return 1;
}
static void steep(const void *state, const attn_context *c, const attn_feature_rows *x, void *f,
                  int64_t f_row, double *scale) {
  (void)state;
  for (int64_t i = 0; i < x->rows; i++) {
    attn_set(f, i * f_row, c->problem->dtype, x->side == ATTN_KEY && x->first + i == tall ? 1e5 : 1e-4);
    if (scale) scale[i] = 0;
  }
}

Test(variants_residual, a_lost_denominator_is_no_number) {
  cr_assert_eq(attn_variant_register(&attn_variant_toy_residual), ATTN_OK);
  const attn_feature_map map = {.columns = 1, .map = steep};
  const attn_pattern pattern = {.row = tall_run, .max_runs = 1};
  parts = (attn_residual){.pattern = &pattern, .features = &map};
  for (int k = 0; k < 12; k++) { /* of the first chunk of keys, of a later one, of the queries' own */
    const attn_dtype t = k % 2 ? ATTN_F64 : ATTN_F32;
    const bool causal = k / 2 % 2;
    tall = (int64_t[]){0, 101, 150}[k / 4];
    note_context("%s%s, key %d", attn_numbers[t].name, causal ? ", causal" : "", (int)tall);
    inputs in = make((case_shape){1, 1, 1, 90, 200, 8, 8, causal, false}, t, 0);
    void *o = kept_memory(run_spec("toy_residual", NULL, &in));
    /* A_j = 1 of the head; of the rest 200 times 1e-8, lost beside 10 in fp32 if the head were nothing. */
    for (int64_t i = 0; i < 90; i++) EXPECT(isfinite(output_get(&in.problem, o, 0, 0, i, 0)));
    /* Scores of -40: the head is nothing. */
    for (int64_t i = 0; i < 90; i++) inputs_set_row(&in, TENSOR_Q, 0, 0, i, -20);
    for (int64_t i = 0; i < 200; i++) inputs_set_row(&in, TENSOR_K, 0, 0, i, 1);
    o = kept_memory(run_spec("toy_residual", NULL, &in));
    for (int64_t i = 0; i < 90; i++)
      EXPECT(isnan(output_get(&in.problem, o, 0, 0, i, 0)) == (t == ATTN_F32 && (!causal || tall < i + 111)));
  }
}

static const int64_t *in_order(const void *state, const attn_call *call, const void *prepared, int64_t head) {
  (void)state, (void)call, (void)prepared, (void)head;
  return NULL;
}

Test(variants_residual, what_cannot_be_joined_is_named) {
  cr_assert_eq(attn_variant_register(&attn_variant_toy_residual), ATTN_OK);
  const attn_problem p = attn_problem_make(1, 1, 50, 8);
  attn_view head, features;
  attn_plan *of_head = plan_inspected(&p, "topk:k=4", NULL, &head),
            *of_features = plan_inspected(&p, performer, NULL, &features);
  attn_selector weighted = *head.selector;
  attn_feature_map map = *features.features;
  weighted.weighted = true;
  parts = (attn_residual){.selector = &weighted, .features = features.features};
  expect_no_plan(&p, "toy_residual", ATTN_EINVAL, "weighted keys already represent the rest");
  weighted.weighted = false;
  weighted.order = in_order;
  weighted.share = ATTN_SHARE_TILE;
  expect_no_plan(&p, "toy_residual", ATTN_EINVAL, "a selector that orders the queries");
  attn_problem capped = p;
  capped.score.softcap = 2;
  parts.selector = head.selector;
  expect_no_plan(&capped, "toy_residual", ATTN_EUNSUPPORTED, "neither score transforms nor masks");
  map.unnormalised = true;
  parts.features = &map;
  expect_no_plan(&p, "toy_residual", ATTN_EINVAL, "sums without a denominator");
  map.unnormalised = false;
  map.eps = 0.5;
  parts = (attn_residual){.selector = head.selector, .features = &map};
  expect_no_plan(&p, "toy_residual", ATTN_EINVAL, "eps = 0.5");
  parts.features = features.features;
  parts.pattern = &(attn_pattern){.row = no_runs, .max_runs = 1};
  expect_no_plan(&p, "toy_residual", ATTN_EUNSUPPORTED, "no engine takes its parts together");
  attn_plan_destroy(of_head), attn_plan_destroy(of_features);
}

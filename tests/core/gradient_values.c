/* gradient_values.c - gradients are the slopes of the outputs and log-sum-exps, by q, k, v and sinks, in fp64
 * on every instruction set. tests/python/gradients_test.py has more variants, shapes and scores. */
#include "tests/support/core.h"
#include "tests/support/method.h"

enum { HEADS = 4, N = 40, D = 9, D_V = 7, RESULTS = 4, LARGEST = HEADS * N * D };

static double d_o[HEADS * N * D_V], dlse[HEADS * N];

/* sum o.d_o + lse.dlse; into, if given, its gradients. most: the sum of magnitudes. */
static double loss(const inputs *in, const char *spec, const char *isa, double *into[RESULTS], double *most) {
  const attn_options options = {.isa = isa, .threads = 1, .blocks = {16, 16}};
  double o[HEADS * N * D_V], lse[HEADS * N], sum = 0;
  attn_plan *plan = plan_kept(&in->problem, spec, &options);
  size_t size = 0;
  EXPECT_STATUS(attn_plan_backward_size(plan, &size), ATTN_OK);
  void *work = malloc(size + attn_plan_work_size(plan) + 1);
  const attn_tensors x = {.q = in->q, .k = in->k, .v = in->v, .o = o, .lse = lse, .work = work};
  EXPECT_STATUS(attn_plan_run(plan, &x), ATTN_OK);
  *most = 0;
  for (int i = 0; i < HEADS * N * D_V; i++) sum += o[i] * d_o[i], *most += fabs(o[i] * d_o[i]);
  for (int i = 0; i < HEADS * N; i++) sum += lse[i] * dlse[i], *most += fabs(lse[i] * dlse[i]);
  const attn_gradients g = {.d_o = d_o, .dlse = dlse};
  if (into) {
    attn_gradients to = g;
    to.dq = into[0], to.dk = into[1], to.dv = into[2], to.dsink = into[3];
    EXPECT_STATUS(attn_plan_backward(plan, &x, &to), ATTN_OK);
  }
  free(work);
  return sum;
}

/* The slope along a line is what differences of a step and of half of it come to. */
static void expect_slopes(const inputs *in, const char *spec, const char *isa) {
  static double results[RESULTS][LARGEST];
  double *into[RESULTS] = {results[0], results[1], results[2], results[3]}, sinks[HEADS], most;
  const int counts[RESULTS] = {HEADS * N * D, HEADS / 2 * N * D, HEADS / 2 * N * D_V, HEADS};
  uint64_t random = 3;
  loss(in, spec, isa, into, &most);
  for (int which = 0; which < (in->problem.score.sink ? RESULTS : 3); which++) {
    double along[LARGEST], slope = 0, differences[2];
    for (int i = 0; i < counts[which]; i++) slope += (along[i] = normal_draw(&random)) * results[which][i];
    for (int half = 0; half < 2; half++) {
      double ends[2], h = half ? 0x1p-8 : 0x1p-7;
      for (int end = 0; end < 2; end++) {
        inputs moved = inputs_copy(in);
        if (which == 3) moved.problem.score.sink = memcpy(sinks, in->problem.score.sink, sizeof sinks);
        double *x = (double *[]){(void *)moved.q, (void *)moved.k, (void *)moved.v, sinks}[which];
        for (int i = 0; i < counts[which]; i++) x[i] += (end ? h : -h) * along[i];
        ends[end] = loss(&moved, spec, isa, NULL, &most);
        inputs_free(&moved);
      }
      differences[half] = (ends[1] - ends[0]) / (2 * h);
    }
    const double expected = (4 * differences[1] - differences[0]) / 3,
                 off = fabs(differences[0] - differences[1]) / 16 + 0x1p-53 * 256 * most / 0x1p-8;
    if (!(fabs(slope - expected) <= off))
      note_failure("by %c: %.15g, by differences %.15g, expected within %.1g", "qkvs"[which], slope, expected,
                   off);
  }
}

Test(core_gradient_values, slopes) {
  static const char *const specs[] = {"tiled", "longformer:window=12,global=2",
                                      "bigbird:block=4,window=3,random=1,global=1",
                                      "sparse_transformer:stride=7"};
  static const double sinks[HEADS] = {0.5, -1, 2, 0.1};
  uint64_t random = 2;
  for (int i = 0; i < HEADS * N * D_V; i++) d_o[i] = normal_draw(&random);
  for (int i = 0; i < HEADS * N; i++) dlse[i] = normal_draw(&random);
  for (int i = 0; i < 8; i++) {
    attn_problem p = shape_problem((case_shape){1, HEADS, HEADS / 2, N, N, D, D_V, true, false}, ATTN_F64);
    if (i % 2) p.score.softcap = 2;
    if (i / 2 % 2) p.score.sink = sinks;
    inputs in = inputs_make(&p, false, 9, 1);
    for (const char *const *isa = isas_under_test(); *isa; isa++) {
      note_context("%s %s%s", specs[i / 2], *isa, i % 2 ? " capped" : "");
      expect_slopes(&in, specs[i / 2], *isa);
    }
    inputs_free(&in);
  }
}

static attn_status describe_every_key(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b, (void)c, (void)out;
  return ATTN_OK;
}

ATTN_VARIANT(unsummed, TOY, .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_EXACT, .describe = describe_every_key,
             .cost = no_cost)

/* Weights are recomputed from the log-sum-exp: a plug-in that does not declare it has no gradient. */
Test(core_gradient_values, without_the_log_sum_exp_there_are_none) {
  const attn_problem p = attn_problem_make(1, 1, 8, 4);
  attn_plan *plan = NULL;
  attn_view view;
  size_t size;
  cr_assert_eq(attn_variant_register(&attn_variant_unsummed), ATTN_OK, "%s", attn_last_error());
  cr_assert_eq(attn_plan_create(&plan, &p, "unsummed", NULL), ATTN_OK, "%s", attn_last_error());
  cr_expect_eq(attn_plan_backward_size(plan, &size), ATTN_EUNSUPPORTED);
  cr_expect(strstr(attn_last_error(), "variant unsummed: no gradient without the log-sum-exp"), "%s",
            attn_last_error());
  cr_expect_eq(attn_plan_inspect(plan, &view), ATTN_OK);
  cr_expect(!view.gradients);
  attn_plan_destroy(plan);
}

static attn_status no_size(const void *state, const attn_context *c, const attn_parts *p, size_t *bytes) {
  (void)state, (void)c, (void)p;
  *bytes = 0;
  return ATTN_OK;
}
static attn_status none(const void *state, const attn_call *call, const attn_gradients *g) {
  (void)state, (void)call, (void)g;
  return ATTN_OK;
}
static attn_status nothing(const void *state, const attn_call *call) { return none(state, call, NULL); }
static DESCRIBE_METHOD(describe_method, NO_ROUNDING, .execute = nothing, .backward_size = no_size,
                       .backward = none);

ATTN_VARIANT(unbiased, TOY, .caps = ATTN_CAP_SCORE, .describe = describe_method, .cost = no_cost)

/* A method that does not add to the gradients by biases, and a problem without: nothing is written. */
Test(core_gradient_values, by_biases_there_are_none) {
  attn_problem p = attn_problem_make(1, 1, 2, 1);
  const double table[] = {1};
  float x[4] = {0};
  double of = 7;
  attn_plan *plan = NULL;
  const attn_tensors t = {.q = x, .k = x, .v = x, .o = x};
  p.score = (attn_score){.relative = table, .relative_heads = 1, .span = 1};
  cr_assert_eq(attn_variant_register(&attn_variant_unbiased), ATTN_OK, "%s", attn_last_error());
  cr_assert_eq(attn_plan_create(&plan, &p, "unbiased", NULL), ATTN_OK, "%s", attn_last_error());
  cr_expect_eq(attn_plan_backward(plan, &t, &(attn_gradients){.d_o = x, .drelative = &of}),
               ATTN_EUNSUPPORTED);
  cr_expect(strstr(attn_last_error(), "variant unbiased: no gradient by biases"), "%s", attn_last_error());
  cr_expect_eq(attn_plan_backward(plan, &t, &(attn_gradients){.d_o = x, .ddense = &of}), ATTN_EINVAL);
  cr_expect(strstr(attn_last_error(), "no score.dense") && of > 6, "%s", attn_last_error());
  attn_plan_destroy(plan);
}

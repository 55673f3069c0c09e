/* recurrent_refused.c - what recurrences cannot do is refused, with the reason: problems, parts of a
 * plug-in that contradict each other, and gradients. */
#include "tests/support/core.h"

#include <stdlib.h>
#include <string.h>

Test(variants_recurrent_refused, what_it_cannot_do_is_refused) {
  attn_problem p = attn_problem_make(1, 1, 8, 8);
  attn_plan *plan = NULL;
  expect_no_plan(&p, "recurrent", ATTN_EUNSUPPORTED, "only causal");
  p.causal = true;
  p.score.softcap = 3;
  expect_no_plan(&p, "recurrent", ATTN_EUNSUPPORTED, "a transform of the scores");
  p.score.softcap = 0;
  expect_no_plan(&p, "recurrent:rule=mamba3,beta=one", ATTN_EINVAL, "beta=one");
  expect_no_plan(&p, "recurrent:rule=gated_delta2,normaliser=rows", ATTN_EUNSUPPORTED, "a vector writes");
  float x[64] = {0}, o[64];
  char work[1 << 16];
  static const char *const stateless[] = {"tiled", "recurrent:normaliser=rows"};
  for (size_t s = 0; s < sizeof stateless / sizeof *stateless; s++) {
    cr_assert_eq(attn_plan_create(&plan, &p, stateless[s], NULL), ATTN_OK);
    cr_expect_eq(attn_plan_state_size(plan), 0);
    EXPECT_STATUS(
        attn_plan_run(plan, &(attn_tensors){.q = x, .k = x, .v = x, .o = o, .work = work, .state_after = x}),
        ATTN_EUNSUPPORTED);
    attn_plan_destroy(plan);
  }
  cr_assert_eq(attn_plan_create(&plan, &p, "recurrent", NULL), ATTN_OK);
  attn_tensors part = {.q = x, .k = x, .v = x, .o = o, .work = work, .state = x};
  for (int after = 0; after < 2; after++, part.state = NULL, part.state_after = x)
    EXPECT_STATUS(attn_plan_backward(plan, &part, &(attn_gradients){.d_o = x, .dq = o}), ATTN_EUNSUPPORTED);
  attn_plan_destroy(plan);
  p.mask = (attn_mask){.kind = ATTN_MASK_DOCUMENTS, .offsets = (const int64_t[]){0, 8}, .count = 1};
  cr_assert_eq(attn_plan_create(&plan, &p, "recurrent", NULL), ATTN_OK);
  part = (attn_tensors){.q = x, .k = x, .v = x, .o = o, .work = work, .state = x};
  EXPECT_STATUS(attn_plan_run(plan, &part), ATTN_EUNSUPPORTED);
  attn_plan_destroy(plan);
}

/* -- a recurrence of a plug-in -- */

static void no_gates(const void *state, const attn_call *call, int64_t batch, int64_t head, int64_t first,
                     int64_t count, double *logs, double *betas) {
  (void)state, (void)call, (void)batch, (void)head, (void)first, (void)count, (void)logs, (void)betas;
}

static attn_recurrence unfit;

static attn_status describe_unfit(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b, (void)c;
  out->recurrence = unfit;
  return ATTN_OK;
}

ATTN_VARIANT(unfit, TOY, .caps = ATTN_CAP_CAUSAL, .describe = describe_unfit, .cost = attn_recurrent_cost)

Test(variants_recurrent_refused, recurrences_that_contradict_themselves_are_refused) {
  const struct {
    attn_recurrence x;
    const char *said;
  } bad[] = {{{.chunk = 8, .betas = 2}, "recurrence.betas = 2"},
             {{.chunk = 8, .carries = true, .betas = 1}, "recurrence.carries"},
             {{.chunk = 8, .carries = true, .betas = 2, .delta = true}, "recurrence.carries"},
             {{.chunk = 8, .carries = true, .betas = 2, .columns = true}, "recurrence.carries"},
             {{.chunk = 8, .normalised = true, .betas = 16}, "recurrence.normalised"},
             {{.chunk = 8, .turns = 5}, "recurrence.turns = 5"},
             {{.chunk = 8, .turns = 2, .columns = true}, "recurrence.turns = 2"},
             {{.chunk = 8, .turns = 2, .betas = 16}, "recurrence.turns = 2"}};
  attn_problem p = attn_problem_make(1, 1, 8, 8);
  p.causal = true;
  cr_assert_eq(attn_variant_register(&attn_variant_unfit), ATTN_OK, "%s", attn_last_error());
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    unfit = bad[i].x;
    unfit.gates = no_gates;
    expect_no_plan(&p, "unfit", ATTN_EINVAL, bad[i].said);
  }
}

static double one_scale(const void *state, int64_t d, double square) {
  (void)state, (void)d, (void)square;
  return 1;
}

static void expect_no_gradient(const attn_problem *p, const char *spec, const char *said) {
  attn_plan *plan = plan_kept(p, spec, NULL);
  size_t bytes;
  EXPECT_STATUS(attn_plan_backward_size(plan, &bytes), ATTN_EUNSUPPORTED);
  EXPECT(strstr(attn_last_error(), said));
}

Test(variants_recurrent_refused, gradients_that_there_are_not) {
  attn_problem p = attn_problem_make(1, 1, 8, 8);
  p.causal = true;
  expect_no_gradient(&p, "recurrent:state=bf16", "the state is rounded");
  cr_assert_eq(attn_variant_register(&attn_variant_unfit), ATTN_OK, "%s", attn_last_error());
  unfit = (attn_recurrence){.chunk = 8, .gates = no_gates, .key_scale = one_scale};
  expect_no_gradient(&p, "unfit", "recurrence.key_slope");
  attn_plan *plan = plan_kept(&p, "recurrent", NULL);
  float x[64] = {0}, o[64];
  size_t bytes = 0;
  double lse[8] = {0};
  EXPECT_STATUS(attn_plan_backward_size(plan, &bytes), ATTN_OK);
  attn_tensors given = {.q = x, .k = x, .v = x, .o = o, .work = malloc(bytes), .state = x};
  cr_assert_not_null(given.work);
  EXPECT_STATUS(attn_plan_backward(plan, &given, &(attn_gradients){.d_o = x}), ATTN_EUNSUPPORTED);
  EXPECT(strstr(attn_last_error(), "a part of a sequence"));
  given.state = NULL;
  EXPECT_STATUS(attn_plan_backward(plan, &given, &(attn_gradients){.d_o = x, .dlse = lse}),
                ATTN_EUNSUPPORTED);
  EXPECT(strstr(attn_last_error(), "no log-sum-exp"));
  EXPECT_STATUS(attn_plan_backward(plan, &given, &(attn_gradients){.d_o = x}), ATTN_OK);
  free(given.work);
}

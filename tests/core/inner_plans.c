/* inner_plans.c - plans within plans: the same bits as the plan by itself, with the options of the outer one;
 * memory that is the outer plan's, counted and released with it, and nothing left where planning fails. */
#include "tests/support/core.h"
#include "tests/support/basics/counted.h"
#include "tests/support/method.h"

/* A variant that attends as another spec, over a part of the heads of a private work tensor. */
static const char *inner_spec = "tiled";
static bool fail_afterwards;
static int64_t seen_threads;
static const char *seen_isa;

static attn_status plan(attn_builder *b, const attn_parts *parts, void **state) {
  const attn_context *c = attn_builder_context(b);
  (void)parts;
  const attn_plan *inner = NULL;
  attn_status status = attn_builder_plan(b, c->problem, inner_spec, &inner);
  if (status) return status;
  seen_threads = attn_plan_context(inner)->threads;
  seen_isa = attn_plan_isa(inner);
  EXPECT(attn_plan_bytes(inner) == 0);
  *state = (void *)(uintptr_t)inner;
  return fail_afterwards ? attn_fail(ATTN_EFOREIGN, "afterwards") : ATTN_OK;
}
static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  size_t inner = 0;
  attn_carver carver = attn_carver_count(c);
  (void)parts;
  const attn_status status = attn_context_estimate(c, c->problem, inner_spec, &inner, NULL);
  attn_carve(&carver, 1, 1, inner);
  *bytes = carver.used;
  return status;
}
static attn_cost cost(const attn_context *c) {
  attn_cost out = {0};
  attn_context_estimate(c, c->problem, inner_spec, NULL, &out);
  return out;
}
static attn_status execute(const void *state, const attn_call *call) {
  attn_carver carver = attn_carver_at(call, call->work);
  void *work = attn_carve(&carver, 1, 1, attn_plan_work_size(state));
  return call->lse
             ? attn_plan_execute_lse(state, call->q, call->k, call->v, call->kv_len, call->o, call->lse, work)
             : attn_plan_execute(state, call->q, call->k, call->v, call->kv_len, call->o, work);
}

static DESCRIBE_METHOD(describe, NO_ROUNDING, .work_size = work_size, .plan = plan, .execute = execute);

ATTN_VARIANT(outer, TOY, .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_LSE, .describe = describe, .cost = cost)

static void use_outer(const char *spec) {
  inner_spec = spec;
  cr_assert_eq(attn_variant_register(&attn_variant_outer), ATTN_OK);
}

static const char *const specs[] = {"tiled", "longformer:window=16,global=2", "topk:k=9", "streaming"};
enum { SPECS = sizeof specs / sizeof *specs };

Test(core_inner_plans, give_the_bits_of_the_plan_itself) {
  for (int s = 0; s < SPECS; s++)
    for (int padded = 0; padded < 2; padded++) {
      attn_problem p = attn_problem_make(2, 4, 150, 16);
      p.kv_heads = 2;
      p.causal = s % 2;
      use_outer(specs[s]);
      note_context("%s%s", specs[s], padded ? ", padded" : "");
      inputs in = inputs_make(&p, padded, 3, 1);
      void *expected = run_spec(specs[s], NULL, &in), *got = run_spec("outer", NULL, &in);
      expect_same(&p, got, expected, "a plan within a plan");
      attn_plan *it = plan_made(&p, "outer", NULL);
      attn_tensors x = tensors_of(&in);
      x.o = got;
      EXPECT_STATUS(verify_tensors(it, x), ATTN_OK);
      attn_plan_destroy(it);
      free(expected);
      free(got);
      inputs_free(&in);
    }
}

Test(core_inner_plans, have_the_options_and_memory_of_the_outer_plan) {
  attn_problem p = attn_problem_make(1, 2, 3000, 32);
  const char *isa = "scalar";
  attn_options options = {.threads = 3, .isa = isa};
  size_t bytes, inner_bytes;
  attn_cost here, inner;
  use_outer("longformer:window=16");
  attn_plan *it = plan_or_note(&p, "outer", &options), *alone = plan_or_note(&p, inner_spec, &options);
  cr_assert(it && alone);
  EXPECT(seen_threads == 3 && !strcmp(seen_isa, isa));
  EXPECT(attn_plan_bytes(it) >= attn_plan_bytes(alone));
  EXPECT_STATUS(attn_estimate(&p, "outer", &options, &bytes, &here), ATTN_OK);
  EXPECT_STATUS(attn_estimate(&p, inner_spec, &options, &inner_bytes, &inner), ATTN_OK);
  EXPECT(bytes == attn_plan_work_size(it) && bytes >= inner_bytes);
  EXPECT(here.mul_add <= inner.mul_add && here.mul_add >= inner.mul_add);
  attn_plan_destroy(it);
  attn_plan_destroy(alone);
}

/* -- memory -- */

Test(core_inner_plans, leave_nothing_where_planning_fails) {
  attn_problem p = attn_problem_make(1, 4, 3000, 64);
  static counted c;
  attn_allocator allocator;
  attn_options options = {.threads = 2, .allocator = &allocator};
  attn_plan *it = NULL;
  use_outer("bigbird:block=8");
  for (int n = 0; n < 1000; n++) {
    allocator = counted_begin(&c, n);
    attn_status status = attn_plan_create(&it, &p, "outer", &options);
    if (!status) {
      EXPECT(n > 1);
      attn_plan_destroy(it);
      EXPECT(c.live == 0);
      break;
    }
    EXPECT(status == ATTN_ENOMEM && c.live == 0 && !it);
  }
  it = NULL;
  allocator = counted_begin(&c, -1);
  fail_afterwards = true;
  EXPECT_STATUS(attn_plan_create(&it, &p, "outer", &options), ATTN_EFOREIGN);
  EXPECT(c.live == 0 && !it);
  fail_afterwards = false;
  use_outer("linformer:k=nine");
  EXPECT_STATUS(attn_plan_create(&it, &p, "outer", &options), ATTN_EINVAL);
  EXPECT(strstr(attn_last_error(), "linformer") && c.live == 0 && !it);
}

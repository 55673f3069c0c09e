/* alloc.c - the injected allocator: its nth refusal becomes ATTN_ENOMEM without a leak, execute
 * asks it for nothing, and pieces go back as they were given. */
#include "tests/support/core.h"
#include "tests/support/basics/counted.h"

static attn_status create(attn_plan **plan, const attn_problem *problem, const char *spec, counted *c,
                          int refuse_at) {
  attn_allocator allocator = counted_begin(c, refuse_at);
  attn_options options = {.threads = 2, .allocator = &allocator};
  return attn_plan_create(plan, problem, spec, &options);
}

static counted c;

static void every_refusal(const attn_problem *problem, const char *spec) {
  int needed = 0;
  for (int n = 0;; n++) {
    attn_plan *plan = NULL;
    attn_status status = create(&plan, problem, spec, &c, n);
    if (!status) {
      needed = n;
      attn_plan_destroy(plan);
      EXPECT(c.live == 0 && c.live_bytes == 0);
      break;
    }
    if (status != ATTN_ENOMEM) {
      note_failure("allocation %d refused gave %s: %s", n, attn_status_name(status), attn_last_error());
      break;
    }
    EXPECT(plan == NULL && c.live == 0 && c.calls > n);
    EXPECT(strchr(attn_last_error(), '\n') == NULL && attn_last_error()[0]);
    if (failures_noted()) break;
  }
  EXPECT(needed >= 1); /* all memory of a plan comes from its allocator */
}

Test(core_alloc, refusals_become_enomem) {
  for (size_t v = 0; v < attn_variant_count(); v++)
    for (int k = 0; k < property_shape_count; k += 3) {
      attn_problem problem = shape_problem(property_shapes[k], k % 2 ? ATTN_F64 : ATTN_F32);
      spec_list specs = specs_for(attn_variant_at(v), &problem, 64);
      for (int s = 0; s < specs.count; s++) {
        note_context("%s shape %d", specs.text[s], k);
        every_refusal(&problem, specs.text[s]);
      }
      spec_list_free(&specs);
    }
}

/* Plans of more than one chunk, so that later allocations too are refused. */
Test(core_alloc, refusals_in_large_plans) {
  const attn_problem problem = attn_problem_make(1, 4, 3000, 64);
  const char *specs = "tiled longformer:window=16,global=2 bigbird:block=8 linformer:k=64 "
                      "linformer:k=64,projection=dct linformer:k=64,projection=srht,share=none "
                      "performer:features=256 performer:features=64,share_heads=no";
  char spec[80];
  for (int size; sscanf(specs, "%79s%n", spec, &size) == 1; specs += size) {
    note_context("%s", spec);
    every_refusal(&problem, spec);
  }
}

Test(core_alloc, plans_use_what_they_say_and_execute_nothing) {
  for (size_t v = 0; v < attn_variant_count(); v++) {
    attn_problem problem = attn_problem_make(2, 2, 300, 16);
    problem.causal = causal_only(attn_variant_at(v));
    inputs in = inputs_make(&problem, false, 1, 1);
    attn_plan *plan = NULL;
    note_context("%s", attn_variant_at(v)->name);
    EXPECT_STATUS(create(&plan, &problem, attn_variant_at(v)->name, &c, -1), ATTN_OK);
    cr_assert_not_null(plan);
    EXPECT(attn_plan_bytes(plan) == c.live_bytes);
    int calls = c.calls;
    void *watched = run_plain(plan, &in), *plain = run_spec(attn_variant_at(v)->name, NULL, &in);
    EXPECT(c.calls == calls);
    expect_same_outputs(&problem, watched, plain, "memory that is not zero at first");
    size_t bytes;
    attn_allocator allocator = {counted_alloc, counted_release, &c};
    attn_options options = {.allocator = &allocator};
    EXPECT_STATUS(attn_estimate(&problem, attn_variant_at(v)->name, &options, &bytes, NULL), ATTN_OK);
    EXPECT(c.calls == calls);
    attn_plan_destroy(plan);
    EXPECT(c.live == 0);
    inputs_free(&in);
  }
}

/* A plan that is refused for another reason leaves nothing behind either. */
Test(core_alloc, refused_problems_leave_nothing) {
  attn_problem causal = attn_problem_make(1, 1, 64, 8), wrong = causal;
  causal.causal = true;
  wrong.n_q = 0;
  attn_plan *plan = NULL;
  EXPECT_STATUS(create(&plan, &causal, "linformer:k=4", &c, -1), ATTN_EUNSUPPORTED);
  EXPECT(plan == NULL && c.live == 0);
  EXPECT_STATUS(create(&plan, &wrong, "tiled", &c, -1), ATTN_EINVAL);
  EXPECT(plan == NULL && c.live == 0);
  EXPECT(create(&plan, &causal, "nosuch", &c, -1) == ATTN_ENOTFOUND);
  EXPECT(plan == NULL && c.live == 0);
  EXPECT(create(&plan, &wrong, "linformer:k=4,projection=file,projection_file=/nosuch.npy", &c, -1) !=
         ATTN_OK);
  EXPECT(plan == NULL && c.live == 0);
}

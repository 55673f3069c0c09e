/* decode.c - few queries against many keys: the keys are cut into splits that are merged, and the heads of a
 * group share tiles. Within the bound of the declared rounding, and bitwise independent of the threads. */
#include "tests/support/core.h"

/* The splits of 1024 keys end inside a step, at one, and with a short last one; heads fill a tile, and
 * overfill it. */
static const case_shape shapes[] = {
    {1, 2, 2, 1, 2500, 9, 7, false, false},   {2, 3, 1, 1, 2500, 33, 16, false, true},
    {1, 2, 2, 3, 1030, 16, 33, true, true},   {1, 8, 2, 4, 2100, 20, 20, true, false},
    {1, 5, 1, 7, 5000, 8, 65, false, false},  {1, 1, 1, 17, 2048, 5, 3, true, false},
    {1, 24, 1, 20, 2100, 3, 2, false, false}, {1, 1, 1, 2, 3100, 130, 70, false, true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const char *const specs[] = {"tiled", "tiled:block_k=50", "tiled:block_q=2,block_k=3000",
                                    "longformer:window=2600,global=3", "longformer:window=1000,dilation=3"};
enum { SPECS = sizeof specs / sizeof *specs };

static void *run_with(const char *spec, const char *isa, int threads, const inputs *in) {
  attn_options options = {.isa = isa, .threads = threads};
  return run_spec(spec, &options, in);
}

static void try(const char *spec, const char *isa, const inputs *in) {
  attn_options options = {.isa = isa, .threads = 1};
  attn_plan *plan = plan_or_note(&in->problem, spec, &options);
  if (!plan) return;
  expect_same_outputs(&in->problem, run_within(plan, in, "decode"), run_with(spec, isa, 5, in),
                      "1 and 5 threads");
  attn_plan_destroy(plan);
}

Test(core_decode, splits_and_groups) {
  for (int s = 0; s < SHAPES; s++)
    for (int k = 0; k < SPECS; k++)
      for (const char *const *isa = isas_under_test(); *isa; isa++) {
        note_context("%s %s %s", specs[k], *isa, shape_text(shapes[s]));
        inputs in = inputs_shaped(shapes[s], (s + k) % 3 ? ATTN_F32 : ATTN_F64, (uint64_t)s, 1.5);
        try(specs[k], *isa, &in);
        inputs_free(&in);
      }
}

/* A weight in one split vanishes beside a score in another, and non-finite values stay in their rows. */
Test(core_decode, splits_of_unlike_scores) {
  for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++)
    for (int n_q = 2; n_q <= 20; n_q += 18)
      for (const char *const *isa = isas_under_test(); *isa; isa++) {
        inputs in = inputs_shaped((case_shape){1, 1, 1, n_q, 3000, 4, 5, true, false}, dtype, 5, 1);
        in.problem.scale = 1;
        inputs_set_row(&in, TENSOR_K, 0, 0, 1500, 150);
        inputs_set(&in, TENSOR_V, 0, 0, 2999, 2, (double)NAN); /* seen by the last query alone */
        inputs_set(&in, TENSOR_V, 0, 0, 1500, 4, (double)INFINITY);
        inputs_set(&in, TENSOR_K, 0, 0, 2998, 1, (double)NAN); /* by the last two */
        note_context("%s %d queries", *isa, n_q);
        try("tiled", *isa, &in);
        inputs_free(&in);
      }
}

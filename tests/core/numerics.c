/* numerics.c - exact variants against the long double oracle within FP-1 and FP-2: sizes round
 * every tile, hard magnitudes, and the rounding descriptors themselves. No tolerance is chosen: all come from
 * the descriptors. */

#include "tests/support/core.h"
#include <float.h>

static const char *const specs[] = {"full",
                                    "tiled",
                                    "tiled:block_q=8,block_k=16",
                                    "tiled:block_q=5,block_k=1",
                                    "tiled:precision=bf16",
                                    "tiled:path=split",
                                    "tiled:path=split,block_q=70,block_k=33"};
enum { SPECS = sizeof specs / sizeof *specs };

static bool has_dtype(const char *spec, attn_dtype dtype) {
  return dtype == ATTN_F32 || !(strstr(spec, "bf16") || strstr(spec, "split"));
}

/* One shape through every setting, dtype and instruction set in turn: `turn` picks, so that neighbours
 * differ. */
static void try_shape(case_shape shape, int turn) {
  const char *const *isas = isas_under_test();
  int isa_count = 0;
  while (isas[isa_count]) isa_count++;
  for (int k = 0; k < SPECS; k++) {
    attn_dtype dtype = (turn + k) % 3 == 2 && has_dtype(specs[k], ATTN_F64) ? ATTN_F64 : ATTN_F32;
    const char *isa = isas[(turn + k) % isa_count];
    attn_problem problem = shape_problem(shape, dtype);
    const char *where = shape_text(shape);
    note_context("%s %s %s %s", specs[k], isa, where, dtype == ATTN_F64 ? "f64" : "f32");
    inputs in = inputs_make(&problem, shape.padded, (uint64_t)turn, 1.5);
    expect_spec_within(specs[k], &(attn_options){.isa = isa}, &in, where);
    inputs_free(&in);
  }
}

static const int64_t sizes[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 200};
enum { SIZES = sizeof sizes / sizeof *sizes };

Test(core_numerics, lengths_round_tiles) {
  for (int k = 0; k < SIZES; k++) {
    try_shape((case_shape){1, 1, 1, sizes[k], sizes[k], 9, 7, k % 2, false}, k);
    try_shape((case_shape){1, 1, 1, sizes[k], sizes[SIZES - 1 - k], 5, 6, false, false}, k + 1);
    try_shape((case_shape){1, 1, 1, sizes[k], sizes[(k + 5) % SIZES], 4, 3, true, k % 2}, k + 2);
  }
}

Test(core_numerics, widths_round_tiles) {
  for (int k = 0; k < SIZES; k++) {
    try_shape((case_shape){1, 1, 1, 35, 35, sizes[k], sizes[k], false, false}, k);
    try_shape((case_shape){1, 1, 1, 18, 41, sizes[k], sizes[(k + 7) % SIZES], true, false}, k + 1);
  }
}

/* A sum over keys in one block and in many, gemm depths included. */
Test(core_numerics, long_sums) {
  try_shape((case_shape){1, 1, 1, 3, 1025, 8, 4, false, false}, 0);
  try_shape((case_shape){1, 1, 1, 3, 1025, 8, 4, false, false}, 1);
  try_shape((case_shape){1, 1, 1, 3, 1025, 8, 4, false, false}, 2);
  try_shape((case_shape){1, 2, 1, 2, 511, 300, 5, true, false}, 3);
  try_shape((case_shape){1, 1, 1, 300, 70, 3, 2, true, false}, 4);
}

/* -- magnitudes -- */

static inputs magnitude_inputs(attn_dtype dtype, double std, double scale) {
  attn_problem problem = shape_problem((case_shape){1, 2, 1, 37, 130, 11, 9, false, false}, dtype);
  problem.scale = scale;
  return inputs_make(&problem, false, 3, std);
}

static void every_spec(const inputs *in, const char *what) {
  for (const char *const *isa = isas_under_test(); *isa; isa++)
    for (int k = 0; k < SPECS; k++) {
      if (!has_dtype(specs[k], in->problem.dtype)) continue;
      note_context("%s %s %s %s", what, specs[k], *isa, in->problem.dtype == ATTN_F64 ? "f64" : "f32");
      expect_spec_within(specs[k], &(attn_options){.isa = *isa}, in, what);
    }
}

static void every_magnitude(double std, double scale, const char *what) {
  for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
    inputs in = magnitude_inputs(dtype, std, scale);
    every_spec(&in, what);
  }
}

Test(core_numerics, scores_to_1e4) {
  every_magnitude(55, 1, "scores of 1e4");
  every_magnitude(1, 3000, "scale 3000");
  every_magnitude(1, -3000, "scale -3000");
}

Test(core_numerics, odd_scales) {
  every_magnitude(1, 0, "scale 0");
  every_magnitude(1, -0.25, "negative scale");
  every_magnitude(1, 1e-30, "tiny scale");
  every_magnitude(1e-12, 1e24, "huge scale");
}

Test(core_numerics, subnormals) {
  every_magnitude(1e-20, 1, "scores that underflow");
  for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
    inputs in = magnitude_inputs(dtype, 1, 0.5);
    double tiny = dtype == ATTN_F64 ? DBL_TRUE_MIN : (double)FLT_TRUE_MIN;
    for (int64_t j = 0; j < in.problem.n_kv; j++)
      for (int64_t l = 0; l < in.problem.d_v; l++)
        inputs_set(&in, TENSOR_V, 0, 0, j, l, tiny * (double)((j * 131 + l * 17) % 4001 - 2000));
    every_spec(&in, "subnormal values");
    for (int64_t j = 0; j < in.problem.n_kv; j++)
      for (int64_t l = 0; l < in.problem.d_qk; l++)
        inputs_set(&in, TENSOR_K, 0, 0, j, l, tiny * (double)((j * 7 + l) % 1000));
    every_spec(&in, "subnormal keys");
  }
}

/* Scores that rise by `rise` from key to key: every step raises the maximum, and old weights fade or
 * vanish. */
static void rising(attn_dtype dtype, double rise) {
  inputs in = magnitude_inputs(dtype, 1, 1);
  for (int64_t h = 0; h < in.problem.heads; h++)
    for (int64_t i = 0; i < in.problem.n_q; i++)
      for (int64_t l = 0; l < in.problem.d_qk; l++)
        inputs_set(&in, TENSOR_Q, 0, h, i, l, l == 0 ? (i % 2 ? 1 : -1) : 0);
  for (int64_t j = 0; j < in.problem.n_kv; j++) inputs_set(&in, TENSOR_K, 0, 0, j, 0, rise * (double)j);
  every_spec(&in, "rising and falling scores");
}

Test(core_numerics, rescaling) {
  static const double rises[] = {1e-3, 0.1, 1, 30, 90, 200};
  for (size_t k = 0; k < sizeof rises / sizeof *rises; k++) {
    rising(ATTN_F32, rises[k]);
    rising(ATTN_F64, rises[k]);
  }
}

/* Values with a large common part: term 1 of the bound, not the rounding of sums, is then small. */
Test(core_numerics, offset_values) {
  for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
    inputs in = magnitude_inputs(dtype, 1, 0.3);
    for (int64_t j = 0; j < in.problem.n_kv; j++)
      for (int64_t l = 0; l < in.problem.d_v; l++)
        inputs_set(&in, TENSOR_V, 0, 0, j, l, 1000 + inputs_get(&in, TENSOR_V, 0, 0, j, l));
    every_spec(&in, "values round 1000");
  }
}

/* -- long sequences of the linear engine: chunks of keys, and segments of chunks that are summed apart and
 * merged -- */

/* Keys whose norms grow or shrink along the sequence, so that every chunk and segment has a log scale of its
 * own. */
static void linear_sums(case_shape shape, const char *spec, double from, double to) {
  for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
    inputs in = inputs_shaped(shape, dtype, 15, 1);
    for (int64_t b = 0; b < shape.batch; b++)
      for (int64_t j = 0; j < shape.n_kv; j++)
        for (int64_t l = 0; l < shape.d_qk; l++) {
          double growth = from + (to - from) * (double)j / (double)shape.n_kv;
          inputs_set(&in, TENSOR_K, b, 0, j, l, growth * inputs_get(&in, TENSOR_K, b, 0, j, l));
        }
    void *alone = NULL;
    for (int threads = 1; threads <= 3; threads++) {
      attn_options options = {.threads = threads};
      attn_plan *plan = plan_kept(&in.problem, spec, &options);
      note_context("%s n %dx%d%s %s, %d threads", spec, (int)shape.n_q, (int)shape.n_kv,
                   shape.causal ? " causal" : "", dtype == ATTN_F64 ? "f64" : "f32", threads);
      if (threads == 1) {
        alone = kept_memory(run_within(plan, &in, "linear sums"));
      } else {
        const void *o = kept_memory(run_plain(plan, &in));
        expect_same(&in.problem, alone, o, "another number of threads");
      }
    }
    inputs_free(&in);
  }
}

Test(core_numerics, linear_segments) {
  const case_shape all = {1, 1, 1, 5, 4200, 4, 3, false, false},
                   causal = {1, 1, 1, 300, 4300, 4, 3, true, false};
  const case_shape padded = {1, 1, 1, 6, 4400, 4, 3, false, true},
                   early = {1, 1, 1, 300, 260, 4, 3, true, false};
  static const char *const some[] = {"performer:features=6", "performer:features=6,eps=1e-3",
                                     "performer:features=5,kernel=hyperbolic",
                                     "performer:features=6,kernel=trig"};
  for (int k = 0; k < 4; k++) {
    linear_sums(all, some[k], 0.1, 3);
    linear_sums(all, some[k], 3, 0.1);
    linear_sums(causal, some[k], 0.1, 3);
    linear_sums(causal, some[k], 3, 0.1);
    linear_sums(padded, some[k], 0.1, 2);
    linear_sums(early, some[k], 2, 0.1);
  }
}

/* -- the descriptors: a loose one would make every test above pass -- */

Test(core_numerics, descriptors_are_no_looser_than_sequential_sums) {
  attn_problem problem = shape_problem((case_shape){1, 1, 1, 40, 500, 33, 17, false, false}, ATTN_F32);
  for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++)
    for (const char *const *isa = isas_under_test(); *isa; isa++)
      for (int k = 0; k < SPECS; k++) {
        if (!has_dtype(specs[k], dtype)) continue;
        problem.dtype = dtype;
        attn_options options = {.isa = *isa};
        attn_view view;
        attn_plan *plan = plan_inspected(&problem, specs[k], &options, &view);
        attn_rounding r = view.rounding, s = sequential_rounding(&problem);
        int64_t steps = r.block > 0 ? (problem.n_kv + r.block - 1) / r.block : 0;
        /* Tile products and other rows of a step are two parts. */
        int64_t parts = r.path ? 2 : 1, chain = r.block > 0 ? r.block + 2 * parts * steps + 2 : s.value + 8;
        note_context("descriptor of %s %s", specs[k], *isa);
        EXPECT(r.unit >= s.unit && r.unit <= s.unit);
        EXPECT(r.score >= 1 && r.score <= s.score + 2);
        EXPECT(r.value >= 1 && r.value <= chain);
        EXPECT(r.sum >= 1 && r.sum <= chain);
        EXPECT(r.exp_error > 0 && r.exp_error <= (double)parts * s.exp_error);
        bool rounded = strstr(specs[k], "bf16") != NULL;
        EXPECT(r.operand >= 0 && r.operand <= (rounded ? 0x1p-8 : 0));
        EXPECT(r.weight >= 0 && r.weight <= (rounded ? 0x1p-8 : 0));
        EXPECT(r.underflow >= 0 && r.underflow <= 0x1p-123);
        EXPECT(r.kappa_s >= 1 && r.kappa_s <= 3);
        EXPECT(r.kappa_d >= 1 && r.kappa_d <= 2);
        attn_plan_destroy(plan);
      }
}

/* attn_exp_rows: a subtraction, a product and the constant log2(e) in the exponent, then one exponential. */
Test(core_numerics, exponentials_keep_their_error) {
  enum { POINTS = 4099 };
  static double x64[POINTS], x[POINTS];
  static float x32[POINTS];
  for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++)
    for (const char *const *isa = isas_under_test(); *isa; isa++) {
      attn_problem problem = shape_problem((case_shape){1, 1, 1, 4, 4, 4, 4, false, false}, dtype);
      attn_options options = {.isa = *isa};
      attn_view view;
      attn_plan *plan = plan_inspected(&problem, "tiled", &options, &view);
      note_context("exp %s %s", *isa, dtype == ATTN_F64 ? "f64" : "f32");
      double span = dtype == ATTN_F64 ? 700 : 87, u = view.rounding.unit;
      for (int k = 0; k < POINTS; k++) {
        x64[k] = 3 - span * pow((double)k / POINTS, 3);
        x32[k] = (float)x64[k];
        x[k] = dtype == ATTN_F64 ? x64[k] : (double)x32[k];
      }
      bool f64 = dtype == ATTN_F64;
      double max;
      attn_exp_rows(attn_plan_context(plan)->kernels, 1, POINTS, f64 ? (void *)x64 : (void *)x32, POINTS,
                    &max);
      if (!(max >= 3 && max <= 3)) note_failure("the maximum is %g, expected 3", max);
      for (int k = 0; k < POINTS; k++) {
        double got = f64 ? x64[k] : (double)x32[k];
        long double want = expl((long double)x[k] - 3);
        double bound = (expm1(3 * u * (1 + u) * (3 - x[k])) + view.rounding.exp_error) * 1.0001;
        if (!(fabsl((long double)got - want) <= (long double)bound * want))
          note_failure("exp(%g) = %.17g, expected %.17Lg", x[k] - 3, got, want);
      }
      attn_plan_destroy(plan);
    }
}

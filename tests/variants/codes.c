/* codes.c - keys and values stored as codes. Kernels compute in fp32 on the numbers that codes stand for, so
 * that a run is that of fp32 tensors of these numbers, bit for bit, for every variant and instruction set;
 * and the codes are those of the definitions, block by block. */
#include "tests/support/core.h"

enum { STEP = 24 }; /* keys of a step: where it is not set, few queries take fewer keys that are converted */

/* Keys and values of contiguous inputs as codes, kept; the inputs become the numbers that these stand for. */
typedef struct coded {
  attn_problem problem;
  void *k, *v;
} coded;

static void *encode(const inputs *in, void *x, int64_t d, attn_dtype t) {
  const attn_problem *p = &in->problem;
  const int64_t rows = p->batch * p->kv_heads * p->n_kv;
  char *codes = kept_memory(malloc((size_t)rows * attn_row_bytes(d, t) + 1));
  cr_assert_not_null(codes);
  for (int64_t r = 0; r < rows; r++) {
    char *row = codes + (size_t)r * attn_row_bytes(d, t);
    attn_convert(attn_at(x, r * d, ATTN_F32), ATTN_F32, d, t, row);
    attn_convert(row, t, d, ATTN_F32, attn_at(x, r * d, ATTN_F32));
  }
  return codes;
}

static coded code_inputs(inputs *in, attn_dtype k, attn_dtype v) {
  coded c = {.problem = in->problem};
  c.problem.k = (attn_stride){.stored = k};
  c.problem.v = (attn_stride){.stored = v};
  c.k = encode(in, in->k, in->problem.d_qk, k);
  c.v = encode(in, in->v, in->problem.d_v, v);
  return c;
}

/* Whether the spec takes the problem. */
static bool expect_same_bits(const char *spec, const char *isa, const inputs *in, const coded *c) {
  const attn_options options = {.isa = isa, .threads = 2, .blocks.key = STEP};
  attn_plan *own = NULL, *plan = NULL;
  const attn_status status = attn_plan_create(&plan, &in->problem, spec, &options),
                    own_status = attn_plan_create(&own, &c->problem, spec, &options);
  if (status != own_status) note_failure("%s: %s", spec, attn_last_error());
  if (!status && !own_status) {
    float *want = run_plain(plan, in), *o = calloc(output_count(&in->problem), sizeof *o);
    cr_assert(want && o);
    if (verify_tensors(own, (attn_tensors){.q = in->q, .k = c->k, .v = c->v, .o = o}))
      note_failure("%s: %s", spec, attn_last_error());
    int64_t bad = 0;
    for (size_t i = 0; i < output_count(&in->problem); i++)
      if (memcmp(&o[i], &want[i], sizeof *o) && !(isnan(o[i]) && isnan(want[i])) && !bad++)
        note_failure("%s: output %d is %a, of the numbers that codes stand for %a", spec, (int)i,
                     (double)o[i], (double)want[i]);
    free(want), free(o);
  }
  attn_plan_destroy(own), attn_plan_destroy(plan);
  return !status;
}

/* Widths that are not multiples of 32, one that is, and a single element. */
static const case_shape shapes[] = {
    {2, 4, 2, 37, 37, 17, 9, true, false},
    {1, 2, 1, 5, 130, 40, 1, false, false},
    {1, 1, 1, 1, 129, 1, 33, true, false},
    {1, 2, 2, 70, 70, 64, 32, true, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

Test(variants_codes, every_variant_reads_codes) {
  static const attn_dtype of[][2] = {{ATTN_Q8_0, ATTN_Q4_0}, {ATTN_INT3, ATTN_FP8}};
  int ran[64] = {0};
  for (int s = 0; s < SHAPES; s++)
    for (int m = 0; m < 2; m++) {
      const attn_problem p = shape_problem(shapes[s], ATTN_F32);
      inputs in = inputs_make(&p, false, 7, 1);
      coded c = code_inputs(&in, of[m][0], of[m][1]);
      note_context("%s and %s, n %dx%d, d %d, d_v %d", attn_numbers[of[m][0]].name,
                   attn_numbers[of[m][1]].name, (int)p.n_q, (int)p.n_kv, (int)p.d_qk, (int)p.d_v);
      for (size_t v = 0; v < attn_variant_count(); v++) {
        spec_list specs = specs_for(attn_variant_at(v), &in.problem, 4);
        for (int i = 0; i < specs.count; i++) ran[v] += expect_same_bits(specs.text[i], NULL, &in, &c);
        spec_list_free(&specs);
      }
    }
  for (size_t v = 0; v < attn_variant_count(); v++)
    if (ran[v] < 4) note_failure("%s ran %d times", attn_variant_at(v)->name, ran[v]);
}

Test(variants_codes, every_type_under_every_instruction_set) {
  static const char *const specs[] = {"tiled", "full", "topk:k=8", "longformer:window=8",
                                      "evict:budget=16,recent=4"};
  for (const char *const *isa = isas_under_test(); *isa; isa++)
    for (int t = ATTN_DTYPES; t < ATTN_STORES; t++) {
      inputs in = inputs_shaped((case_shape){1, 2, 1, 70, 70, 48, 40, true, false}, ATTN_F32, (uint64_t)t, 1);
      inputs_set(&in, TENSOR_V, 0, 0, 66, 3, (double)NAN);
      coded c = code_inputs(&in, (attn_dtype)t, (attn_dtype)t);
      note_context("%s, %s", *isa, attn_numbers[t].name);
      for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        EXPECT(expect_same_bits(specs[i], *isa, &in, &c));
      for (int heads = 1; heads <= 2; heads++) { /* one query a head of keys reads the codes, two do not */
        in = inputs_shaped((case_shape){1, heads, 1, 1, 170, 64, 96, false, false}, ATTN_F32, (uint64_t)t, 1);
        c = code_inputs(&in, (attn_dtype)t, (attn_dtype)t);
        EXPECT(expect_same_bits("tiled", *isa, &in, &c));
      }
    }
}

/* Blocks of 16 columns of a projection begin within blocks of codes. */
Test(variants_codes, projections_of_columns_read_codes) {
  static const char *const specs[] = {"linformer:projection=dct,k=8", "linformer:projection=srht,k=8",
                                      "linformer:projection=gaussian,k=8", "linformer:projection=pool,k=8"};
  inputs in = inputs_shaped((case_shape){1, 4, 2, 90, 90, 80, 56, false, false}, ATTN_F32, 3, 1);
  coded c = code_inputs(&in, ATTN_Q8_0, ATTN_INT4);
  note_context("d 80, d_v 56");
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) EXPECT(expect_same_bits(specs[i], NULL, &in, &c));
}

/* A padded row of blocks, and rows of heads that lie within each other. */
Test(variants_codes, strides_are_whole_blocks) {
  inputs in = inputs_shaped((case_shape){1, 4, 2, 33, 33, 40, 32, true, false}, ATTN_F32, 5, 1);
  coded c = code_inputs(&in, ATTN_Q8_0, ATTN_INT4);
  attn_plan *plan = plan_kept(&c.problem, "tiled", NULL);
  const size_t row = attn_row_bytes(40, ATTN_Q8_0);
  char *k = kept_memory(calloc(2 * 33, 2 * row));
  c.problem.k = (attn_stride){0, 64, 128, ATTN_Q8_0}; /* [n, heads, 64] */
  attn_plan *strided = plan_kept(&c.problem, "tiled", NULL);
  cr_assert(k);
  for (int64_t h = 0; h < 2; h++)
    for (int64_t i = 0; i < 33; i++)
      memcpy(k + (size_t)(2 * i + h) * row, (char *)c.k + (size_t)(33 * h + i) * row, row);
  float o[4 * 33 * 32], other[4 * 33 * 32];
  EXPECT_STATUS(run_tensors(plan, (attn_tensors){.q = in.q, .k = c.k, .v = c.v, .o = o}), ATTN_OK);
  EXPECT_STATUS(run_tensors(strided, (attn_tensors){.q = in.q, .k = k, .v = c.v, .o = other}), ATTN_OK);
  EXPECT(!memcmp(o, other, sizeof o));
}

Test(variants_codes, refusals) {
  attn_problem p = attn_problem_make(1, 1, 4, 40);
  p.dtype = ATTN_Q8_0;
  expect_no_plan(&p, "tiled", ATTN_EINVAL, "");
  p.dtype = ATTN_F32;
  p.q.stored = ATTN_Q8_0;
  expect_no_plan(&p, "tiled", ATTN_EINVAL, "");
  p.q.stored = ATTN_F32;
  p.k = (attn_stride){160, 160, 40, ATTN_Q8_0};
  expect_no_plan(&p, "tiled", ATTN_EINVAL, "multiples of 32");
  p.k = (attn_stride){.stored = ATTN_Q8_0};
  p.dtype = ATTN_F64;
  expect_no_plan(&p, "tiled", ATTN_EINVAL, "");
  expect_no_plan(&p, "store", ATTN_EINVAL, "");
  p.k = (attn_stride){.stored = ATTN_F32};
  expect_no_plan(&p, "store", ATTN_EUNSUPPORTED, "");
  p.dtype = ATTN_F32;
  expect_no_plan(&p, "store:k=f32,v=f32", ATTN_EINVAL, "");
  expect_no_plan(&p, "store:k=f64", ATTN_EINVAL, "");
  p.k = (attn_stride){.stored = ATTN_Q8_0};
  p.v = (attn_stride){.stored = ATTN_INT2};
  EXPECT_STATUS(attn_problem_resolve(&p), ATTN_OK);
  /* A row of 40 elements is two blocks: q, o of 4 bytes, 34 and 12 bytes a block. */
  EXPECT(p.k.row == 64 && fabs(attn_problem_bytes(&p) - 4 * (2 * 160 + 2 * 34 + 2 * 12)) < 0.5);
}

/* ---- codes --------------------------------------------------------------------------------------------- */

static void expect_block(attn_dtype t, const float x[32], const unsigned char *bytes, const float want[32]) {
  unsigned char own[64];
  float back[32];
  attn_convert(x, ATTN_F32, 32, t, own);
  attn_convert(own, t, 32, ATTN_F32, back);
  if (memcmp(own, bytes, attn_row_bytes(32, t))) note_failure("%s: other bytes", attn_numbers[t].name);
  for (int i = 0; i < 32; i++)
    if (memcmp(&back[i], &want[i], sizeof *back))
      note_failure("%s: element %d is %a, not %a", attn_numbers[t].name, i, (double)back[i], (double)want[i]);
}

/* Bytes by hand: x = i - 16, so that the scale of q8_0 is 16 / 127, of q4_0 2, and of int2 31 / 3. */
Test(variants_codes, bytes_by_hand) {
  float x[32], q8[32], q4[32], i2[32];
  unsigned char bytes[3][64] = {{0x08, 0x30}, {0x00, 0x40}, {0x2b, 0x49, 0x00, 0xcc}};
  for (int i = 0; i < 32; i++) x[i] = (float)(i - 16);
  for (int i = 0; i < 32; i++) {
    const int code = (int)roundf((float)(i - 16) * (1 / (16.0f / 127)));
    bytes[0][2 + i] = (unsigned char)code;
    q8[i] = (float)code * 0x1.02p-3f; /* 16 / 127 in f16 */
    const int nibble = i < 31 ? (int)floor((i - 16) / 2.0 + 8.5) : 15;
    bytes[1][2 + i % 16] |= (unsigned char)(nibble << 4 * (i / 16));
    q4[i] = (float)(2 * (nibble - 8));
    const int two = (int)rint(i / 0x1.4acp3); /* 31 / 3 in f16 */
    bytes[2][4 + i % 8] |= (unsigned char)(two << 2 * (i / 8));
    i2[i] = (float)two * 0x1.4acp3f - 16;
  }
  expect_block(ATTN_Q8_0, x, bytes[0], q8);
  expect_block(ATTN_Q4_0, x, bytes[1], q4);
  expect_block(ATTN_INT2, x, bytes[2], i2);
}

Test(variants_codes, what_is_no_number_makes_its_block_one) {
  for (int t = ATTN_DTYPES; t < ATTN_STORES; t++) {
    float x[64], back[64];
    unsigned char codes[128];
    for (int i = 0; i < 64; i++) x[i] = (float)i / 8;
    x[40] = t % 2 ? INFINITY : NAN;
    attn_convert(x, ATTN_F32, 64, (attn_dtype)t, codes);
    attn_convert(codes, (attn_dtype)t, 64, ATTN_F32, back);
    for (int i = 0; i < 64; i++) {
      const bool none = t == ATTN_FP8 ? i == 40 : i >= 32;
      if (isfinite(back[i]) == none)
        note_failure("%s: element %d is %g", attn_numbers[t].name, i, (double)back[i]);
    }
    EXPECT(!attn_all_finite(codes, 64, 1, 64, (attn_dtype)t));
    EXPECT(attn_all_finite(codes, 64, 1, 32, (attn_dtype)t));
    /* Zeros, and numbers without a difference, are kept. */
    for (int i = 0; i < 64; i++) x[i] = i < 32 ? 0 : 1.5f;
    attn_convert(x, ATTN_F32, 64, (attn_dtype)t, codes);
    attn_convert(codes, (attn_dtype)t, 64, ATTN_F32, back);
    for (int i = 0; i < 64; i++)
      if (!(fabsf(back[i] - x[i]) <= (t == ATTN_Q8_0 ? 1e-3f : 0)))
        note_failure("%s: %g is %g", attn_numbers[t].name, (double)x[i], (double)back[i]);
  }
}

/* Each of the 256 numbers of e4m3 is itself; between two the nearest, ties to even; what is larger is 448. */
Test(variants_codes, fp8_is_e4m3) {
  for (int code = 0; code < 256; code++) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const double size = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9),
                 want = (code & 127) == 127 ? (double)NAN
                        : code & 128        ? -size
                                            : size;
    unsigned char block[32] = {(unsigned char)code}, again[32];
    double x[32];
    attn_convert(block, ATTN_FP8, 32, ATTN_F64, x);
    EXPECT(isnan(want) ? isnan(x[0]) : x[0] == want && signbit(x[0]) == signbit(want));
    attn_convert(x, ATTN_F64, 32, ATTN_FP8, again);
    EXPECT(again[0] == code);
    if ((code & 127) >= 126) continue;
    double next[32];
    block[0]++;
    attn_convert(block, ATTN_FP8, 32, ATTN_F64, next);
    double between[32] = {(x[0] + next[0]) / 2, x[0] + 0.49 * (next[0] - x[0]),
                          x[0] + 0.51 * (next[0] - x[0])};
    attn_convert(between, ATTN_F64, 32, ATTN_FP8, again);
    EXPECT(again[0] == code + code % 2 && again[1] == code && again[2] == code + 1);
  }
  double large[32] = {449, -1e30, 464, 475};
  unsigned char block[32];
  attn_convert(large, ATTN_F64, 32, ATTN_FP8, block);
  EXPECT(block[0] == 126 && block[1] == 254 && block[2] == 126 && block[3] == 126);
}

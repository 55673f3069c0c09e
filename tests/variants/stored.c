/* stored.c - tensors that are stored in 16 bits. Kernels compute in fp32 on the numbers that are stored, so
 * that a run is that of fp32 tensors of the same numbers, its outputs rounded once: bit for bit, for every
 * variant and instruction set. */
#include "tests/support/core.h"

enum { STEP = 24 }; /* keys of a step: where it is not set, few queries take fewer keys that are converted */

/* The same numbers in fp32. */
static inputs widened(const inputs *in) {
  attn_problem p = in->problem;
  p.q.stored = p.k.stored = p.v.stored = p.o.stored = ATTN_F32;
  return inputs_gather(in, &p, 0);
}

/* svd computes in fp64, of which fp32 outputs are rounded already. */
static bool rounded_alike(attn_dtype t, double stored, double wide, bool twice) {
  const double want = attn_rounded(wide, t), off = fabs(stored - want);
  if (isnan(want)) return isnan(stored);
  if (!(off > 0)) return signbit(stored) == signbit(want) || twice;
  return twice && off <= 2 * attn_numbers[t].unit * fabs(want) + attn_numbers[t].subnormal;
}

/* Whether the spec takes the problem. */
static bool expect_rounded_once(const char *spec, const char *isa, int threads, const inputs *in) {
  const attn_options options = {.isa = isa, .threads = threads, .blocks.key = STEP};
  inputs wide = widened(in);
  const attn_problem *p = &in->problem;
  attn_plan *own = NULL, *plan = NULL;
  const attn_status status = attn_plan_create(&plan, &wide.problem, spec, &options);
  const attn_status own_status = attn_plan_create(&own, p, spec, &options);
  if (status != own_status) note_failure("%s: %s", spec, attn_last_error());
  if (status || own_status) goto out;
  void *o = run_plain(own, in), *want = kept_memory(run_plain(plan, &wide));
  const attn_dtype t = attn_stored(p->o, p->dtype);
  const bool twice = strstr(spec, "svd");
  int64_t bad = 0;
  for (size_t i = 0; o && want && i < output_count(p); i++) {
    const double got = attn_get(o, (int64_t)i, t), x = attn_get(want, (int64_t)i, p->dtype);
    if (!rounded_alike(t, got, x, twice) && !bad++)
      note_failure("%s: output %d is %a, in fp32 %a, rounded %a", spec, (int)i, got, x, attn_rounded(x, t));
  }
  /* It keeps to its work memory, writes every output and changes no input. */
  attn_tensors x = tensors_of(in);
  x.o = malloc(tensor_bytes(p, TENSOR_O) + 1);
  if (verify_tensors(own, x)) note_failure("%s: %s", spec, attn_last_error());
  free(x.o);
  free(o);
out:
  attn_plan_destroy(own), attn_plan_destroy(plan);
  return !status;
}

static const case_shape shapes[] = {
    {2, 4, 2, 37, 37, 17, 9, false, true},    {2, 4, 2, 37, 37, 17, 9, true, true},
    {1, 2, 1, 5, 130, 3, 1, false, false},    {1, 1, 1, 1, 129, 1, 3, true, false},
    {1, 2, 2, 133, 133, 64, 64, true, false}, {1, 2, 2, 133, 133, 16, 16, false, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const attn_dtype halves[] = {ATTN_F16, ATTN_BF16};

static void name_case(const attn_problem *p, const char *isa, const char *what) {
  note_context("%s %s, n %dx%d, d %d, d_v %d%s%s", isa ? isa : "", attn_numbers[p->o.stored].name,
               (int)p->n_q, (int)p->n_kv, (int)p->d_qk, (int)p->d_v, p->causal ? ", causal" : "", what);
}

/* Of a setting each shape has one of the two types, by turns. */
Test(variants_stored, every_variant_computes_on_what_is_stored) {
  int ran[64] = {0};
  for (int s = 0; s < SHAPES; s++)
    for (int h = 0; h < 2; h++) {
      inputs in = inputs_shaped(shapes[s], halves[h], 7, 1);
      name_case(&in.problem, NULL, "");
      for (size_t v = 0; v < attn_variant_count(); v++) {
        spec_list specs = specs_for(attn_variant_at(v), &in.problem, 6);
        EXPECT(attn_variant_at(v)->caps & ATTN_CAP_HALF);
        for (int i = (s + h) % 2; i < specs.count; i += 2)
          ran[v] += expect_rounded_once(specs.text[i], NULL, 0, &in);
        spec_list_free(&specs);
      }
    }
  for (size_t v = 0; v < attn_variant_count(); v++)
    if (ran[v] < 4) note_failure("%s ran %d times", attn_variant_at(v)->name, ran[v]);
}

static const char *const expressions[] = {"longformer:window=8,global=2 + topk:k=4",
                                          "longformer:window=4 + performer:features=16",
                                          "topk:k=4 + linear",
                                          "0.5*tiled + 0.5*linear",
                                          "2*topk:k=8",
                                          "dyadic(topk:k=8,base=16)",
                                          "longformer:window=8 + sample:base=16"};
enum { EXPRESSIONS = sizeof expressions / sizeof *expressions };

Test(variants_stored, expressions_round_what_is_joined_once) {
  for (int s = 0; s < SHAPES; s++)
    for (int h = 0; h < 2; h++) {
      inputs in = inputs_shaped(shapes[s], halves[h], 8, 1);
      name_case(&in.problem, NULL, "");
      for (int e = 0; e < EXPRESSIONS; e++)
        EXPECT(expect_rounded_once(expressions[e], NULL, 0, &in) || strstr(expressions[e], "dyadic"));
    }
}

/* How many of the engines execute, all of which are asked. */
enum { ENGINES = 15 };
static int each_engine(const char *isa, int threads, const inputs *in) {
  const char *specs =
      "tiled tiled:path=split tiled:precision=bf16 tiled:skip=0.1 longformer:window=16 topk:k=8 "
      "pages:page=8,budget=24,score=max performer:features=16 linformer:k=8 "
      "nystrom:landmarks=8 lsh:buckets=4 vslash:vertical=5,slash=5,sink=2 "
      "longnet:segments=8+32,dilations=1+4 hyper:block=16 full";
  char spec[80];
  int count = 0;
  for (int size; sscanf(specs, "%79s%n", spec, &size) == 1; specs += size)
    count += expect_rounded_once(spec, isa, threads, in);
  return count;
}

/* Tensors of different types, with strides and transformed scores, under every instruction set. */
Test(variants_stored, mixed_types_strides_and_scores) {
  static const attn_dtype of[][4] = {{ATTN_F16, ATTN_BF16, ATTN_F32, ATTN_F16},
                                     {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_F32},
                                     {ATTN_BF16, ATTN_F32, ATTN_F16, ATTN_BF16}};
  for (const char *const *isa = isas_under_test(); *isa; isa++)
    for (int m = 0; m < 3; m++) {
      attn_problem p = shape_problem((case_shape){1, 4, 2, 70, 70, 17, 9, false, false}, ATTN_F32);
      p.q = (attn_stride){70 * 4 * 17, 17, 4 * 17, of[m][0]};
      p.k = (attn_stride){2 * 70 * 23, 70 * 23, 23, of[m][1]};
      p.v = (attn_stride){70 * 2 * 9, 9, 2 * 9, of[m][2]};
      p.o = (attn_stride){70 * 4 * 9, 9, 4 * 9, of[m][3]};
      inputs in = inputs_make(&p, false, 9, 1);
      name_case(&in.problem, *isa, ", mixed");
      EXPECT(each_engine(*isa, 3, &in) == ENGINES);
      in.problem.score.softcap = 3;
      each_engine(*isa, 0, &in);
    }
}

/* Up to four queries of a head of keys read what is stored, if its rows are whole vectors. */
Test(variants_stored, few_queries) {
  for (const char *const *isa = isas_under_test(); *isa; isa++)
    for (int h = 0; h < 2; h++)
      for (int heads = 1; heads <= 5; heads++)
        for (int64_t d = 60; d <= 64; d += 4) {
          inputs in = inputs_shaped((case_shape){1, heads, 1, 1, 170, d, 96, false, false}, halves[h], 9, 1);
          name_case(&in.problem, *isa, "");
          EXPECT(expect_rounded_once("tiled", *isa, 1, &in));
        }
}

/* NaN and Inf in keys and values, and outputs beyond what f16 holds. */
Test(variants_stored, numbers_that_are_none) {
  for (int h = 0; h < 2; h++)
    for (int causal = 0; causal < 2; causal++) {
      inputs in = inputs_shaped((case_shape){1, 2, 1, 70, 70, 8, 5, causal, false}, halves[h], 10, 1);
      inputs_set(&in, TENSOR_V, 0, 0, 40, 2, (double)INFINITY);
      inputs_set(&in, TENSOR_V, 0, 0, 50, 3, (double)NAN);
      inputs_set(&in, TENSOR_K, 0, 0, 60, 1, (double)NAN);
      inputs_set(&in, TENSOR_V, 0, 0, 0, 4, -attn_numbers[halves[h]].largest);
      name_case(&in.problem, NULL, ", not finite");
      each_engine(NULL, 0, &in);
      EXPECT(expect_rounded_once("linear:feature=taylor,normalise=no", NULL, 0, &in));
    }
}

/* The oracle reads what is stored, and its bound has the last rounding. */
Test(variants_stored, oracle) {
  for (int h = 0; h < 2; h++) {
    inputs in = inputs_shaped((case_shape){2, 4, 2, 37, 53, 17, 9, true, true}, halves[h], 11, 1);
    name_case(&in.problem, NULL, ", oracle");
    for (const char *const *spec =
             (const char *const[]){"tiled", "full", "topk:k=8", "longformer:window=8", NULL};
         *spec; spec++) {
      attn_plan *plan = plan_kept(&in.problem, *spec, NULL);
      void *o = kept_memory(run_plain(plan, &in));
      oracle expected = oracle_of_run(plan, &in);
      expect_within(&in.problem, o, &expected, *spec);
      oracle_free(&expected);
    }
    /* So does the reference of the library. */
    inputs wide = widened(&in);
    double o[2][9], scratch[53];
    for (int64_t i = 0; i < 37; i++) {
      attn_reference_row(&in.problem, NULL, in.q, in.k, in.v, in.kv_len, 0, 3, i, NULL, o[0], scratch);
      attn_reference_row(&wide.problem, NULL, wide.q, wide.k, wide.v, in.kv_len, 0, 3, i, NULL, o[1],
                         scratch);
      EXPECT(!memcmp(o[0], o[1], sizeof o[0]));
    }
  }
}

Test(variants_stored, refusals) {
  attn_problem p = attn_problem_make(1, 1, 4, 4);
  p.dtype = ATTN_F64;
  p.q.stored = ATTN_F16;
  expect_no_plan(&p, "tiled", ATTN_EINVAL, "q is stored in f16");
  p.q.stored = (attn_dtype)9;
  expect_no_plan(&p, "tiled", ATTN_EINVAL, "");
  p.q.stored = ATTN_F32;
  p.dtype = (attn_dtype)ATTN_DTYPES;
  expect_no_plan(&p, "tiled", ATTN_EINVAL, "");
  p.dtype = ATTN_BF16;
  EXPECT_STATUS(attn_problem_resolve(&p), ATTN_OK);
  EXPECT(!p.dtype && p.q.stored == (attn_dtype)ATTN_BF16 && p.o.stored == (attn_dtype)ATTN_BF16);
  EXPECT_STATUS(attn_problem_resolve(&p), ATTN_OK);
  EXPECT(attn_problem_bytes(&p) >= 128 && attn_problem_bytes(&p) <= 128);
}

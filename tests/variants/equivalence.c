/* equivalence.c - settings at which an approximation is none: it must then be full attention within its own
 * rounding bound; and one step short of them it must not. */
#include "tests/support/core.h"

/* Full attention as the oracle has it. */
static oracle truth_of(const inputs *in) {
  attn_plan *plan = plan_kept(&in->problem, "full", NULL);
  oracle truth = oracle_of(plan, in);
  return truth;
}

/* The largest ratio of |o - full| to the bound of the spec's own run. */
static double excess(const char *spec, const inputs *in) {
  const attn_problem *p = &in->problem;
  attn_plan *plan = plan_kept(p, spec, NULL);
  void *o = kept_memory(run_plain(plan, in));
  oracle own = oracle_of_run(plan, in), truth = truth_of(in);
  double worst = 0;
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++)
      for (int64_t i = 0; i < p->n_q; i++)
        for (int64_t l = 0; l < p->d_v; l++) {
          size_t at = output_index(p, b, h, i, l);
          double err = fabs(output_get(p, o, b, h, i, l) - truth.o[at]);
          if (!(err <= own.bound[at] * worst))
            worst = own.bound[at] > 0 ? err / own.bound[at] : err > 0 ? 1e300 : worst;
        }
  oracle_free(&own);
  oracle_free(&truth);
  return worst;
}

static void expect_full(const char *spec, const inputs *in) {
  double worst = excess(spec, in);
  if (!(worst <= 1)) note_failure("%s is off full attention by %.3g of its bound", spec, worst);
}

static void expect_not_full(const char *spec, const inputs *in) {
  double worst = excess(spec, in);
  if (!(worst > 10)) note_failure("%s should differ from full attention, ratio %.3g", spec, worst);
}

enum { N = 67 };

static inputs self_inputs(bool causal, attn_dtype dtype) {
  attn_problem p = shape_problem((case_shape){2, 2, 1, N, N, 9, 6, causal, true}, dtype);
  return inputs_make(&p, true, 31, 1);
}

typedef void (*examine)(const inputs *);
static void in_all_forms(examine f, bool causal_too) {
  for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++)
    for (int causal = 0; causal <= (int)causal_too; causal++) {
      inputs in = self_inputs(causal, dtype);
      note_context("%s%s", dtype == ATTN_F64 ? "f64" : "f32", causal ? " causal" : "");
      f(&in);
      inputs_free(&in);
    }
}

static void longformer(const inputs *in) {
  expect_full("longformer:window=132", in); /* 2 (n - 1) */
  expect_full("longformer:window=1000000", in);
  expect_full("longformer:window=2,global=67", in);
  expect_full("longformer:window=2,dilation=5,global=1000", in);
  expect_not_full("longformer:window=132,dilation=2", in);
  expect_not_full("longformer:window=20", in);
}
Test(variants_equivalence, longformer) { in_all_forms(longformer, true); }

/* One short of 2 (n - 1): the first query misses the last key, and no padding hides it. */
Test(variants_equivalence, longformer_one_short) {
  attn_problem p = attn_problem_make(1, 1, N, 9);
  inputs in = inputs_make(&p, false, 31, 0.3);
  expect_full("longformer:window=132", &in);
  expect_not_full("longformer:window=130", &in);
}

static void bigbird(const inputs *in) {
  expect_full("bigbird:block=16,window=9,random=0,global=0", in); /* 5 blocks, 4 to either side */
  expect_full("bigbird:block=16,window=1,random=0,global=5", in);
  expect_full("bigbird:block=67,window=1,random=0,global=0", in);
  expect_full("bigbird:block=16,window=1,random=5,global=0", in);
  expect_full("bigbird:block=16,window=3,random=9,global=1", in);
  expect_not_full("bigbird:block=8,window=1,random=1,global=0", in);
}
Test(variants_equivalence, bigbird) { in_all_forms(bigbird, true); }

/* One segment; LN-1 and papers.py hold branches to their definition. */
static void longnet(const inputs *in) {
  expect_full("longnet:segments=67,dilations=1", in);
  expect_full("longnet:segments=4096,dilations=1", in);
  expect_not_full("longnet:segments=33,dilations=1", in);
}
Test(variants_equivalence, longnet) { in_all_forms(longnet, true); }

static void tiled(const inputs *in) {
  static const int sizes[] = {1, 7, 64, 100, N, 1000};
  for (int a = 0; a < 6; a++)
    for (int b = 0; b < 6; b++) {
      expect_full(text_of("tiled:block_q=%d,block_k=%d", sizes[a], sizes[b]), in);
    }
}
Test(variants_equivalence, tiled) { in_all_forms(tiled, true); }

/* -- linformer -- */

/* The file that a projection names: the identity, its mirror image (its slots are the keys too), or a
 * failure. */
static attn_status read_identity(const char *path, int64_t *rows, int64_t *columns, double **values) {
  if (strcmp(path, "missing") == 0) return attn_fail(ATTN_ENOTFOUND, "%s: no such file", path);
  int64_t n = strcmp(path, "small") == 0 ? 3 : N;
  double *x = calloc((size_t)(n * n), sizeof *x);
  if (!x) return attn_fail(ATTN_ENOMEM, "%s", path);
  for (int64_t i = 0; i < n; i++) x[i * n + (strcmp(path, "mirror") == 0 ? n - 1 - i : i)] = 1;
  *rows = *columns = n;
  *values = x;
  return ATTN_OK;
}

/* Blocks of one key, whatever exists. (The identity would keep slots of absent keys: zeros, of weight
 * one.) */
static void pool(const inputs *in) {
  expect_full("linformer:k=67,projection=pool", in);
  expect_not_full("linformer:k=44,projection=pool", in); /* of 45 keys that exist */
}
Test(variants_equivalence, linformer_pool) { in_all_forms(pool, false); }

Test(variants_equivalence, linformer_identity) {
  attn_matrix_reader_set(read_identity);
  for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
    inputs in = inputs_shaped((case_shape){2, 4, 2, 20, N, 9, 6, false, false}, dtype, 8, 1);
    expect_full("linformer:k=67,projection=file,projection_file=identity", &in);
    expect_full("linformer:k=67,projection=file,projection_file=mirror", &in);
    expect_full("linformer:k=67,projection=file,projection_file=identity,share=none,share_heads=no", &in);
    expect_not_full("linformer:k=67,projection=rademacher", &in);
    expect_not_full("linformer:k=66,projection=pool", &in);
    inputs_free(&in);
  }
}

Test(variants_equivalence, linformer_files_that_do_not_fit) {
  attn_problem p = attn_problem_make(1, 1, N, 4);
  attn_plan *plan = NULL;
  EXPECT(attn_plan_create(&plan, &p, "linformer:k=3,projection=file,projection_file=x", NULL));
  attn_matrix_reader_set(read_identity);
  expect_no_plan(&p, "linformer:k=3,projection=file,projection_file=missing", ATTN_ENOTFOUND, "missing");
  expect_no_plan(&p, "linformer:k=3,projection=file,projection_file=small", ATTN_EINVAL, "small");
  expect_no_plan(&p, "linformer:k=3,projection=file", ATTN_EINVAL, "");
  expect_no_plan(&p, "linformer:k=3,projection_file=small", ATTN_EINVAL, "");
  EXPECT(plan == NULL);
}

/* -- performer -- */

/* At z = 0 no vector is weighted: bitwise kernel=positive. */
Test(variants_equivalence, performer_optimal_at_zero) {
  static const char *const pairs[][2] = {
      {"performer:features=40,kernel=optimal,z=0", "performer:features=40"},
      {"performer:features=40,kernel=optimal,z=0,norm=sqrt_d,eps=1e-3",
       "performer:features=40,norm=sqrt_d,eps=1e-3"}};
  inputs in = inputs_shaped((case_shape){1, 2, 1, 60, 60, 8, 5, true, false}, ATTN_F32, 3, 1);
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    float *got = run_spec(pairs[i][0], NULL, &in), *want = run_spec(pairs[i][1], NULL, &in);
    cr_assert(got && want);
    cr_assert_arr_eq(got, want, output_count(&in.problem) * sizeof *got, "%s", pairs[i][0]);
    free(got), free(want);
  }
}

/* -- the same draws in fp32 and fp64 -- */

/* Draws are rounded to fp32 in either precision, so that runs differ by rounding alone. No closed bound joins
 * the two for every engine; what other draws do to the output is the scale: rounding must be 1e-3 of it at
 * most. fp32 leaves 1e-7 times a chain of some hundred roundings, 1e-5; another draw changes it by 1e-1. */
Test(variants_equivalence, draws_do_not_depend_on_the_dtype) {
  const char *specs =
      "linformer:k=16 linformer:k=16,projection=srht linformer:k=16,projection=dct,share=none "
      "linformer:k=16,projection=rademacher,share_heads=no performer:features=64 "
      "performer:features=64,kernel=hyperbolic performer:features=64,kernel=optimal "
      "performer:features=64,orthogonal=no,share_heads=no bigbird:block=4";
  char spec[100], first[128], other[128];
  attn_problem p32 = shape_problem((case_shape){1, 2, 2, N, N, 8, 6, false, false}, ATTN_F32), p64 = p32;
  p64.dtype = ATTN_F64;
  inputs in32 = inputs_make(&p32, false, 12, 0.7), in64 = inputs_gather(&in32, &p64, 0);
  for (int size; sscanf(specs, "%99s%n", spec, &size) == 1; specs += size)
    for (const char *const *isa = isas_under_test(); *isa; isa++) {
      const attn_options options = {.isa = *isa};
      snprintf(first, sizeof first, "%s,seed=1", spec);
      snprintf(other, sizeof other, "%s,seed=2", spec);
      void *a = run_spec(first, &options, &in32), *b = run_spec(first, &options, &in64),
           *c = run_spec(other, &options, &in64);
      double same = 0, apart = 0;
      for (size_t at = 0; a && b && c && at < output_count(&p32); at++) {
        same += pow((double)((float *)a)[at] - ((double *)b)[at], 2);
        apart += pow(((double *)c)[at] - ((double *)b)[at], 2);
      }
      if (!(sqrt(same) <= 1e-3 * sqrt(apart)))
        note_failure("%s %s: fp32 is %g off, another seed %g", first, options.isa, sqrt(same), sqrt(apart));
      free(a);
      free(b);
      free(c);
    }
}

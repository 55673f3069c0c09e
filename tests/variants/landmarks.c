/* landmarks.c - nystrom where all rows are landmarks, its log-sum-exp there, and what it refuses; rows that
 * are picked, where they stand for themselves alone. */
#include "tests/support/core.h"

#include <math.h>

enum { N = 40, D = 8 };

typedef struct outcome {
  attn_problem problem;
  inputs in;
  void *o;
  double *lse;
} outcome;

static outcome outcome_on(const char *spec, attn_dtype dtype, void (*change)(inputs *)) {
  outcome x = {.problem = attn_problem_make(2, 4, N, D)};
  x.problem.kv_heads = 2;
  x.problem.d_v = 5;
  x.problem.dtype = dtype;
  x.in = inputs_make(&x.problem, false, 11, 1);
  if (change) change(&x.in);
  attn_plan *plan = plan_kept(&x.problem, spec, NULL);
  const size_t rows = (size_t)(x.problem.batch * x.problem.heads * N);
  x.o = kept_memory(malloc(rows * 5 * sizeof(double)));
  x.lse = kept_memory(malloc(rows * sizeof *x.lse));
  cr_assert(x.o && x.lse);
  attn_tensors run = tensors_of(&x.in);
  run.o = x.o;
  if (attn_plan_variant(plan)->caps & ATTN_CAP_LSE) run.lse = x.lse;
  cr_assert_eq(run_tensors(plan, run), ATTN_OK, "%s", attn_last_error());
  return x;
}

static outcome outcome_of(const char *spec, attn_dtype dtype) { return outcome_on(spec, dtype, NULL); }

static double largest(const outcome *a, const outcome *b, bool lse) {
  double most = 0;
  const int64_t count = a->problem.batch * a->problem.heads * N * (lse ? 1 : 5);
  for (int64_t i = 0; i < count; i++) {
    const double off = lse ? a->lse[i] - b->lse[i]
                           : attn_get(a->o, i, a->problem.dtype) - attn_get(b->o, i, b->problem.dtype);
    most = fabs(off) <= most ? most : fabs(off);
  }
  return most;
}

/* P P^+ P = P, up to singular values that are left out; the sums of all keys are those of the landmarks. */
Test(variants_landmarks, all_rows_and_an_inverse_are_exact) {
  outcome exact = outcome_of("tiled", ATTN_F64), own = outcome_of("nystrom:middle=pinv,rcond=1e-9", ATTN_F64);
  cr_expect(largest(&exact, &own, false) < 1e-6, "%g", largest(&exact, &own, false));
  cr_expect(largest(&exact, &own, true) < 1e-12, "%g", largest(&exact, &own, true));
  own = outcome_of("nystrom:middle=newton,iterations=40", ATTN_F64);
  cr_expect(largest(&exact, &own, false) < 1e-6, "%g", largest(&exact, &own, false));
  own = outcome_of("nystrom:middle=agents", ATTN_F64);
  cr_expect(largest(&exact, &own, false) > 0.05, "agents are P of the queries alone, times P V: %g",
            largest(&exact, &own, false));
}

/* P = [0.9 0.1; 0.8 0.2] has the singular values 1.2221 and 0.0818, of the ratio 0.0670: below rcond times
 * the first the second is left out, and rank 1 remains. */
Test(variants_landmarks, rcond_is_relative_to_the_largest) {
  static const double q[] = {2.1972245773362196, 1.3862943611198906}, k[] = {1, 0}, v[] = {1, 0, 0, 1};
  attn_problem p = attn_problem_make(1, 1, 2, 1);
  p.d_v = 2;
  p.scale = 1;
  p.dtype = ATTN_F64;
  for (int out = 0; out < 2; out++) {
    double o[4];
    attn_plan *plan =
        plan_made(&p, out ? "nystrom:middle=pinv,rcond=0.068" : "nystrom:middle=pinv,rcond=0.066", NULL);
    cr_assert_eq(run_tensors(plan, (attn_tensors){.q = q, .k = k, .v = v, .o = o}), ATTN_OK);
    cr_expect(fabs(o[0] * o[3] - o[1] * o[2] - (out ? 0 : 0.1)) < 1e-12 && fabs(o[0] - 0.9) < 0.1,
              "%g %g %g %g", o[0], o[1], o[2], o[3]);
    attn_plan_destroy(plan);
  }
}

/* Of one segment a row is the segment's mean, whatever is drawn; else other seeds draw other rows. */
Test(variants_landmarks, rows_are_drawn_by_the_seed) {
  outcome mean = outcome_of("nystrom:landmarks=40,middle=agents", ATTN_F32),
          drawn = outcome_of("nystrom:landmarks=40,middle=agents,by=sample", ATTN_F32);
  cr_expect_eq(largest(&mean, &drawn, false), 0);
  mean = outcome_of("nystrom:landmarks=8,by=sample,seed=1", ATTN_F32);
  drawn = outcome_of("nystrom:landmarks=8,by=sample,seed=2", ATTN_F32);
  cr_expect(largest(&mean, &drawn, false) > 0.01);
}

/* Means: nearly equal segments of all rows, in order; draws: a row of each. */
Test(variants_landmarks, segments_cover_the_rows) {
  for (int64_t n = 1; n <= 70; n += 3)
    for (int drawn = 0; drawn < 2; drawn++) {
      attn_problem p = attn_problem_make(1, 1, n, 4);
      attn_view view;
      attn_plan *plan =
          plan_or_note(&p, drawn ? "nystrom:landmarks=20,by=sample" : "nystrom:landmarks=20", NULL);
      cr_assert(plan && attn_plan_inspect(plan, &view) == ATTN_OK && view.low_rank);
      const int64_t landmarks = n < 20 ? n : 20;
      for (int64_t l = 0, next = 0; l < landmarks; l++) {
        int64_t first, count;
        view.low_rank->segment(view.low_rank->state, ATTN_KEY, n, landmarks, l, &first, &count);
        const int64_t least = n / landmarks, most = least + (n % landmarks != 0);
        if (drawn)
          cr_expect(count == 1 && first >= l * n / landmarks && first < (l + 1) * n / landmarks);
        else
          cr_expect(first == next && count >= least && count <= most);
        next = first + count;
        cr_expect(l < landmarks - 1 || drawn || next == n);
      }
      attn_plan_destroy(plan);
    }
}

/* An estimate, of the size of what it estimates, and a number in every row. */
Test(variants_landmarks, sums_are_estimated) {
  static const char *const specs[] = {"nystrom:landmarks=8", "nystrom:landmarks=8,middle=agents",
                                      "nystrom:landmarks=8,by=sample"};
  outcome exact = outcome_of("tiled", ATTN_F32);
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
    outcome own = outcome_of(specs[s], ATTN_F32);
    cr_expect(largest(&exact, &own, true) < 6, "%s: %g", specs[s], largest(&exact, &own, true));
  }
}

Test(variants_landmarks, a_mask_is_refused) {
  attn_problem p = attn_problem_make(1, 1, 64, 8);
  p.causal = true;
  expect_no_plan(&p, "nystrom", ATTN_EUNSUPPORTED, "dyadic");
}

/* -- rows that are picked -- */

static void expect_apart(const char *spec, const char *other, void (*change)(inputs *), double least,
                         double most) {
  outcome a = outcome_on(spec, ATTN_F64, change), b = outcome_on(other, ATTN_F64, change);
  const double off = largest(&a, &b, false);
  cr_expect(off >= least && off < most, "%s, %s: %g", spec, other, off);
}

/* Queries of one direction in each fifth of the sequence. */
static void repeat_queries(inputs *in) {
  const attn_problem *p = &in->problem;
  for (int64_t i = 0; i < p->batch * p->heads * N * D; i++)
    attn_set(in->q, i, p->dtype, attn_get(in->q, i / (8 * D) * 8 * D + i % D, p->dtype));
}

static void far_queries(inputs *in) {
  const attn_problem *p = &in->problem;
  for (int64_t i = 0; i < p->batch * p->heads * N * D; i++)
    attn_set(in->q, i, p->dtype, 20 * attn_get(in->q, i, p->dtype));
}

Test(variants_landmarks, clusters_of_one_query_or_of_equal_ones_are_exact) {
  expect_apart("cluster:clusters=40,topk=0", "tiled", NULL, 0, 1e-13);
  expect_apart("cluster:clusters=1,topk=40", "tiled", NULL, 0, 1e-13); /* all keys are the queries' own */
  expect_apart("cluster:clusters=5,topk=0", "tiled", repeat_queries, 0, 1e-13);
  expect_apart("cluster:clusters=5,topk=0", "tiled", NULL, 0.01, 1e9);
  /* Seeds start from other queries. */
  expect_apart("cluster:clusters=5,topk=0", "cluster:clusters=5,topk=0,seed=1", NULL, 0.001, 1e9);
}

/* A vector added to all keys of a head changes no weight, however far it takes them from 0. */
static void shift_keys(inputs *in) {
  const attn_problem *p = &in->problem;
  for (int64_t i = 0; i < p->batch * p->kv_heads * N * D; i++)
    attn_set(in->k, i, p->dtype, attn_get(in->k, i, p->dtype) + 40);
}

/* With every key, the kernel's inverse is exact. */
Test(variants_landmarks, a_coreset_of_all_keys_is_exact) {
  expect_apart("coreset:keys=40", "tiled", NULL, 0, 1e-9);
  expect_apart("coreset:keys=40,temperature=0.7", "tiled", NULL, 0, 1e-9);
  /* Queries whose kernel is below the least number. */
  expect_apart("coreset:keys=40", "tiled", far_queries, 0, 1e-9);
  expect_apart("coreset:keys=40", "tiled", shift_keys, 0, 1e-9); /* far keys */
  expect_apart("coreset:keys=6", "coreset:keys=6,seed=1", NULL, 0.001, 1e9);
}

/* With every point, the kernel itself, and another for each set of fewer. */
Test(variants_landmarks, a_kernel_of_all_landmarks_is_its_own) {
  outcome x = outcome_of("skyformer:landmarks=80", ATTN_F64);
  const int64_t kv = 2 * D * N; /* of a batch entry's keys */
  double off = 0;
  for (int64_t i = 0; i < N; i++)
    for (int64_t c = 0; c < 5; c++) {
      double sum = 0;
      for (int64_t j = 0; j < N; j++) {
        double far = 0;
        for (int64_t l = 0; l < D; l++)
          far += pow(attn_get(x.in.q, ((4 + 3) * N + i) * D + l, ATTN_F64) -
                         attn_get(x.in.k, kv + (N + j) * D + l, ATTN_F64),
                     2);
        sum += exp(-x.problem.scale * far / 2) * attn_get(x.in.v, (3 * N + j) * 5 + c, ATTN_F64);
      }
      off = fmax(off, fabs(sum - attn_get(x.o, ((4 + 3) * N + i) * 5 + c, ATTN_F64)));
    }
  cr_expect(off < 1e-9, "%g", off);
  expect_apart("skyformer:landmarks=6", "skyformer:landmarks=6,seed=1", NULL, 0.001, 1e9);
  /* The queries alone are as good as all points, half of the points are not. */
  expect_apart("skyformer:landmarks=40", "skyformer:landmarks=80", NULL, 0.001, 1e9);
}

/* What is not finite stays in its head. */
static void spoil(inputs *in) { attn_set(in->q, 3, in->problem.dtype, (double)NAN); }

Test(variants_landmarks, what_is_not_finite_stays_in_its_head) {
  static const char *const specs[] = {"cluster:clusters=4,topk=3", "coreset:keys=5", "skyformer:landmarks=5"};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
    outcome plain = outcome_of(specs[s], ATTN_F32), spoilt = outcome_on(specs[s], ATTN_F32, spoil);
    cr_expect(isnan(attn_get(spoilt.o, 0, ATTN_F32)), "%s", specs[s]);
    for (int64_t i = N * 5; i < 2 * 4 * N * 5; i++)
      cr_assert_eq(attn_get(plain.o, i, ATTN_F32), attn_get(spoilt.o, i, ATTN_F32), "%s: %d", specs[s],
                   (int)i);
  }
}

static int64_t picked_count, picked_first;

static int64_t pick_wrongly(const void *state, const attn_context *c, const attn_picked_head *h,
                            int64_t *picked, void *memory) {
  (void)state, (void)c, (void)memory;
  for (int64_t i = 1; i < h->n_q; i++) picked[i] = 0;
  if (picked_first != INT64_MIN) picked[0] = picked_first;
  return picked_count;
}

static attn_status describe_wrongly(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b, (void)c;
  out->low_rank = (attn_low_rank){.rank = 3, .pick = pick_wrongly};
  return ATTN_OK;
}

ATTN_VARIANT(picks_wrongly, TOY, .describe = describe_wrongly, .cost = no_cost)

/* A plug-in's pick is no better than what is checked of it. */
Test(variants_landmarks, rows_that_there_are_not_are_refused) {
  static const int64_t wrong[][2] = {{0, 0}, {4, 0}, {3, 3}, {3, -1}, {3, INT64_MIN}, {-1, 0}};
  attn_problem p = attn_problem_make(1, 1, 8, 4);
  inputs in = inputs_make(&p, false, 5, 1);
  float o[32];
  cr_assert_eq(attn_variant_register(&attn_variant_picks_wrongly), ATTN_OK, "%s", attn_last_error());
  for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
    picked_count = wrong[w][0];
    picked_first = wrong[w][1];
    attn_plan *plan = plan_made(&p, "picks_wrongly", NULL);
    attn_tensors x = tensors_of(&in);
    x.o = o;
    EXPECT_STATUS(run_tensors(plan, x), ATTN_EFOREIGN);
    attn_plan_destroy(plan);
  }
}

Test(variants_landmarks, what_they_cannot_be_is_refused) {
  attn_problem p = attn_problem_make(1, 1, 64, 8);
  static const char *const names[] = {"cluster", "coreset", "skyformer"};
  for (int i = 0; i < 3; i++) {
    p.causal = true;
    expect_no_plan(&p, names[i], ATTN_EUNSUPPORTED, names[i]);
    p.causal = false;
    p.scale = -1;
    if (i > 0) expect_no_plan(&p, names[i], ATTN_EUNSUPPORTED, names[i]);
    p.scale = 1;
  }
}

/* -- landmarks of a plug-in -- */

static void halves(const void *state, attn_side side, int64_t n, int64_t landmarks, int64_t l, int64_t *first,
                   int64_t *count) {
  (void)side, (void)landmarks;
  *first = l * n / 2;
  *count = n / 2 + *(const int64_t *)state;
}

static int64_t too_many;

static attn_status describe_halves(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b, (void)c;
  out->low_rank = (attn_low_rank){.state = &too_many, .rank = 2, .iterations = 6, .segment = halves};
  return ATTN_OK;
}

ATTN_VARIANT(halves, TOY, .caps = ATTN_CAP_LSE, .describe = describe_halves, .cost = no_cost)

Test(variants_landmarks, segments_of_a_plugin_are_all_that_it_writes) {
  const attn_problem p = attn_problem_make(1, 1, 8, 4);
  inputs in = inputs_make(&p, false, 7, 1);
  cr_assert_eq(attn_variant_register(&attn_variant_halves), ATTN_OK, "%s", attn_last_error());
  attn_plan *plan = plan_kept(&p, "halves", NULL);
  float o[8 * 4];
  attn_tensors x = tensors_of(&in);
  x.o = o;
  for (too_many = 0; too_many < 2; too_many++)
    EXPECT_STATUS(run_tensors(plan, x), too_many ? ATTN_EFOREIGN : ATTN_OK);
  EXPECT(strstr(attn_last_error(), "variant halves: low_rank.segment gives rows that there are not"));
  float *own = (void *)run_spec("nystrom:landmarks=2", NULL, &in);
  for (int i = 0; i < 8 * 4; i++) EXPECT(memcmp(&own[i], &o[i], sizeof o[i]) == 0);
  free(own);
}

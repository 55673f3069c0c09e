/* landmarks.c - nystrom where all rows are landmarks, its log-sum-exp there, and what it refuses. */
#include "tests/support/core.h"

#include <math.h>

enum { N = 40, D = 8 };

typedef struct outcome {
  attn_problem problem;
  inputs in;
  void *o;
  double *lse;
} outcome;

static outcome outcome_of(const char *spec, attn_dtype dtype) {
  outcome x = {.problem = attn_problem_make(2, 4, N, D)};
  x.problem.kv_heads = 2;
  x.problem.d_v = 5;
  x.problem.dtype = dtype;
  x.in = inputs_make(&x.problem, false, 11, 1);
  attn_plan *plan = plan_or_note(&x.problem, spec, NULL);
  cr_assert_not_null(plan);
  const size_t rows = (size_t)(x.problem.batch * x.problem.heads * N);
  void *work = malloc(attn_plan_work_size(plan) + 1);
  x.o = malloc(rows * 5 * sizeof(double));
  x.lse = malloc(rows * sizeof *x.lse);
  cr_assert(work && x.o && x.lse);
  cr_assert_eq(attn_plan_execute_lse(plan, x.in.q, x.in.k, x.in.v, NULL, x.o, x.lse, work), ATTN_OK, "%s",
               attn_last_error());
  attn_plan_destroy(plan);
  free(work);
  return x;
}

static void release(outcome *x) {
  inputs_free(&x->in);
  free(x->o);
  free(x->lse);
}

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
  release(&own);
  own = outcome_of("nystrom:middle=newton,iterations=40", ATTN_F64);
  cr_expect(largest(&exact, &own, false) < 1e-6, "%g", largest(&exact, &own, false));
  release(&own);
  own = outcome_of("nystrom:middle=agents", ATTN_F64);
  cr_expect(largest(&exact, &own, false) > 0.05, "agents are P of the queries alone, times P V: %g",
            largest(&exact, &own, false));
  release(&own);
  release(&exact);
}

/* Of one segment a row is the segment's mean, whatever is drawn; else other seeds draw other rows. */
Test(variants_landmarks, rows_are_drawn_by_the_seed) {
  outcome mean = outcome_of("nystrom:landmarks=40,middle=agents", ATTN_F32),
          drawn = outcome_of("nystrom:landmarks=40,middle=agents,by=sample", ATTN_F32);
  cr_expect_eq(largest(&mean, &drawn, false), 0);
  release(&mean);
  release(&drawn);
  mean = outcome_of("nystrom:landmarks=8,by=sample,seed=1", ATTN_F32);
  drawn = outcome_of("nystrom:landmarks=8,by=sample,seed=2", ATTN_F32);
  cr_expect(largest(&mean, &drawn, false) > 0.01);
  release(&mean);
  release(&drawn);
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
    release(&own);
  }
  release(&exact);
}

Test(variants_landmarks, a_mask_is_refused) {
  attn_problem p = attn_problem_make(1, 1, 64, 8);
  attn_plan *plan = NULL;
  p.causal = true;
  EXPECT_STATUS(attn_plan_create(&plan, &p, "nystrom", NULL), ATTN_EUNSUPPORTED);
  cr_expect(strstr(attn_last_error(), "dyadic"), "%s", attn_last_error());
}

/* index.c - rankings by an index (attn_index): tensors that do not fit, and any numbers in them. What they
 * select TK-2 judges, and papers.py. */
#include "tests/support/core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 61, N_Q = 37, HEADS = 4, LINES = 3, WIDTH = 5, BATCH = 2 };
static double index_q[BATCH * LINES * N_Q * WIDTH], index_k[BATCH * N * WIDTH], index_w[BATCH * LINES * N_Q];
static const attn_extra tensors[] = {{"index_q", ATTN_F64, index_q, BATCH, LINES, N_Q, WIDTH},
                                     {"index_k", ATTN_F64, index_k, BATCH, 1, N, WIDTH},
                                     {"index_w", ATTN_F64, index_w, BATCH, LINES, N_Q, 1}};
static const char spec[] = "topk:by=index,k=7,index_heads=3,index_width=5",
                  paged[] = "pages:score=index,page=4,budget=16,index_heads=3,index_width=5",
                  pooled[] = "pooled:block=2,window=1,top=4,index_heads=3,index_width=5";

static void draw(double *x, int64_t count, uint64_t stream) {
  attn_rng rng = rng_of(3, stream, 0);
  for (int64_t i = 0; i < count; i++) x[i] = attn_rng_normal(&rng);
}

static void draw_all(void) {
  draw(index_q, sizeof index_q / sizeof *index_q, 0);
  draw(index_k, sizeof index_k / sizeof *index_k, 1);
  draw(index_w, sizeof index_w / sizeof *index_w, 2);
}

static attn_problem problem_of(attn_dtype t, bool causal) {
  return shape_problem((case_shape){BATCH, HEADS, 2, N_Q, N, 8, 6, causal, true}, t);
}

static attn_status run_to(const attn_problem *p, const char *text, const attn_extra *extra, int64_t extras,
                          bool padded, void *o) {
  inputs in = inputs_make(p, padded, 5, 1);
  attn_plan *plan = plan_kept(p, text, NULL);
  attn_tensors x = tensors_of(&in);
  x.o = o;
  x.extra = extra;
  x.extras = extras;
  attn_status status = verify_tensors(plan, x);
  if (!status) status = run_tensors(plan, x);
  return status;
}

static attn_status run(const attn_problem *p, const char *text, const attn_extra *extra, int64_t extras) {
  void *o = kept_memory(malloc(output_count(p) * attn_dtype_size(p->dtype)));
  return run_to(p, text, extra, extras, true, o);
}

Test(variants_index, tensors_that_do_not_fit_are_refused) {
  const attn_problem p = problem_of(ATTN_F32, true);
  static const char *const said[] = {"index_q of 3 heads and 4 columns: the index has 3 heads of 5",
                                     "index_q [2, 3, 61, 5]: expected [1 or 2, any, 37, any]",
                                     "index_k [2, 2, 61, 5]: expected [1 or 2, 1, 61, any]",
                                     "index_k [2, 1, 37, 5]: expected [1 or 2, 1, 61, any]",
                                     "index_w [2, 3, 37, 5]: expected [1 or 2, any, 37, 1]",
                                     "index_w of 1 heads and 1 columns: the index has 3 heads of 5",
                                     "index_k [3, 1, 61, 5]: expected [1 or 2, 1, 61, any]"};
  attn_extra bad[7][3];
  draw_all();
  for (size_t i = 0; i < 7; i++)
    for (size_t t = 0; t < 3; t++) bad[i][t] = tensors[t];
  bad[0][0].columns = WIDTH - 1;
  bad[1][0].n = N;
  bad[2][1].heads = 2;
  bad[3][1].n = N_Q;
  bad[4][2].columns = WIDTH;
  bad[5][2].heads = 1;
  bad[6][1].batch = 3;
  for (size_t i = 0; i < 7; i++) {
    EXPECT_STATUS(run(&p, spec, bad[i], 3), ATTN_EINVAL);
    EXPECT_STATUS(run(&p, pooled, bad[i], 3), ATTN_EINVAL);
    cr_expect(strstr(attn_last_error(), said[i]), "%s", attn_last_error());
  }
  for (size_t t = 0; t < 2; t++) EXPECT_STATUS(run(&p, spec, &tensors[t], 1), ATTN_EINVAL);
  EXPECT_STATUS(run(&p, "topk:by=index,k=7", tensors, 3), ATTN_EINVAL);
  static const char *const good[] = {spec, paged, pooled, "tiled",
                                     "streaming:sink=1,window=3 + topk:by=index,k=7,"
                                     "index_heads=3,index_width=5"};
  for (size_t s = 0; s < sizeof good / sizeof *good; s++)
    cr_expect_eq(run(&p, good[s], tensors, 3), ATTN_OK, "%s: %s", good[s], attn_last_error());
  expect_no_plan(&p, "topk:by=index,k=7 + topk:by=index,k=7,index_heads=3", ATTN_EINVAL, "");
}

/* Other keys of the index for the last batch entry change that entry alone. */
Test(variants_index, tensors_are_those_of_the_batch_entry) {
  const attn_problem p = problem_of(ATTN_F64, true);
  const size_t count = output_count(&p);
  static const char *const specs[] = {spec, paged, pooled};
  double *o = kept_memory(calloc(2 * count, sizeof *o));
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
    draw_all();
    EXPECT_STATUS(run_to(&p, specs[s], tensors, 3, false, o), ATTN_OK);
    draw(index_k + N * WIDTH, N * WIDTH, 7);
    EXPECT_STATUS(run_to(&p, specs[s], tensors, 3, false, o + count), ATTN_OK);
    for (size_t half = 0; half < 2; half++)
      cr_expect_eq(!memcmp(o + half * count / 2, o + count + half * count / 2, count / 2 * sizeof *o), !half,
                   "%s, batch entry %zu", specs[s], half);
  }
}

/* Numbers that no arithmetic holds rank last or first, and nothing but the selection depends on them. */
Test(variants_index, any_numbers_are_ranked) {
  const attn_problem p = problem_of(ATTN_F32, false);
  static const double odd[] = {1e30, 1e-30, -1e300, 0};
  for (size_t x = 0; x < sizeof odd / sizeof *odd; x++) {
    draw_all();
    for (size_t i = 0; i < sizeof index_k / sizeof *index_k; i++) index_k[i] *= odd[x];
    index_w[1] = (double)NAN;
    index_q[2] = (double)INFINITY;
    cr_expect_eq(run(&p, spec, tensors, 3), ATTN_OK, "%s", attn_last_error());
    cr_expect_eq(run(&p, paged, tensors, 3), ATTN_OK, "%s", attn_last_error());
  }
}

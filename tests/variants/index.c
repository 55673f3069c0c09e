/* index.c - rankings by an index (attn_index): selections against a full ranking of the call's tensors, and
 * tensors that do not fit. */
#include "tests/support/core.h"

#include <math.h>
#include <stdlib.h>

enum { N = 61, N_Q = 37, HEADS = 4, LINES = 3, WIDTH = 5, BATCH = 2, KEPT = 7 };
static double index_q[BATCH * LINES * N_Q * WIDTH], index_k[BATCH * N * WIDTH], index_w[BATCH * LINES * N_Q];
static const attn_extra tensors[] = {{"index_q", ATTN_F64, index_q, BATCH, LINES, N_Q, WIDTH},
                                     {"index_k", ATTN_F64, index_k, BATCH, 1, N, WIDTH},
                                     {"index_w", ATTN_F64, index_w, BATCH, LINES, N_Q, 1}};
static const char spec[] = "topk:by=index,k=7,index_heads=3,index_width=5",
                  paged[] = "pages:score=index,page=4,budget=16,index_heads=3,index_width=5";

static void draw(double *x, int64_t count, uint64_t stream) {
  attn_rng rng;
  attn_rng_init(&rng, 3, stream, 0);
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

/* Of `unit` keys, of which `keys` exist. */
static double score_of(int64_t b, int64_t i, int64_t first, int64_t unit, int64_t keys, bool weighted) {
  double sum = 0;
  const int64_t end = first + unit < keys ? first + unit : keys;
  for (int64_t h = 0; h < LINES; h++) {
    double product = 0;
    for (int64_t j = first; j < end; j++)
      for (int64_t l = 0; l < WIDTH; l++)
        product += index_q[((b * LINES + h) * N_Q + i) * WIDTH + l] * index_k[(b * N + j) * WIDTH + l] /
                   (double)(end - first);
    sum += (weighted ? index_w[(b * LINES + h) * N_Q + i] : 1) * (product > 0 ? product : 0);
  }
  return sum;
}

/* Units that are ranked above this one. */
static int64_t above(int64_t b, int64_t i, int64_t unit, int64_t of, int64_t units, int64_t keys,
                     bool weighted) {
  int64_t count = 0;
  const double own = score_of(b, i, of * unit, unit, keys, weighted);
  for (int64_t u = 0; u < units; u++) {
    const double other = score_of(b, i, u * unit, unit, keys, weighted);
    count += other > own || (!(other < own) && u < of);
  }
  return count;
}

/* Of topk every visible key is ranked; of pages those before the own page, which is kept. */
static void check_rows(const attn_problem *p, const char *text, int64_t extras) {
  inputs in = inputs_make(p, true, 5, 1);
  attn_plan *plan = plan_or_note(p, text, NULL);
  attn_view view;
  cr_assert(plan && attn_plan_inspect(plan, &view) == ATTN_OK);
  const bool pages = text == paged;
  const int64_t unit = view.selector->grain, ranked = view.selector->kept, most = view.selector->max_runs;
  attn_run *runs = calloc((size_t)most, sizeof *runs);
  for (int64_t at = 0; at < BATCH * HEADS * N_Q; at++) {
    const int64_t b = at / (HEADS * N_Q), i = at % N_Q;
    int64_t count = 0, keys = in.kv_len[b],
            seen = p->causal && N - N_Q + i + 1 < keys ? N - N_Q + i + 1 : keys;
    const attn_row_set set = {b, at / N_Q % HEADS, 1, &i};
    attn_picks picks = {.max_runs = most, .runs = runs, .counts = &count};
    cr_assert_eq(
        attn_plan_select(
            plan,
            &(attn_tensors){
                .q = in.q, .k = in.k, .v = in.v, .kv_len = in.kv_len, .extra = tensors, .extras = extras},
            &set, &picks),
        ATTN_OK);
    const int64_t units = pages && p->causal ? (seen - 1) / unit : (seen + unit - 1) / unit;
    for (int64_t j = 0, r = 0; j < seen; j++) {
      while (r < count && runs[r].first + runs[r].count <= j) r++;
      const bool has = r < count && runs[r].first <= j,
                 due = j / unit >= units || above(b, i, unit, j / unit, units, keys, extras > 2) < ranked;
      cr_expect_eq(has, due, "%s: entry %d, query %d, key %d", text, (int)b, (int)i, (int)j);
    }
  }
  free(runs);
  attn_plan_destroy(plan);
  inputs_free(&in);
}

Test(variants_index, selections_are_those_of_the_tensors) {
  draw_all();
  for (int causal = 0; causal < 2; causal++)
    for (int64_t extras = 2; extras <= 3; extras++) {
      const attn_problem p = problem_of(ATTN_F64, causal);
      check_rows(&p, spec, extras);
      check_rows(&p, paged, extras);
    }
}

static attn_status run(const attn_problem *p, const char *text, const attn_extra *extra, int64_t extras) {
  inputs in = inputs_make(p, true, 5, 1);
  attn_plan *plan = plan_or_note(p, text, NULL);
  cr_assert(plan != NULL);
  char *o = malloc((size_t)(p->batch * p->heads * p->n_q * p->d_v) * attn_dtype_size(p->dtype)),
       *work = malloc(attn_plan_verify_size(plan) + 1);
  const attn_tensors x = {.q = in.q,
                          .k = in.k,
                          .v = in.v,
                          .kv_len = in.kv_len,
                          .o = o,
                          .work = work,
                          .extra = extra,
                          .extras = extras};
  attn_status status = attn_plan_verify(plan, &x);
  if (!status) status = attn_plan_run(plan, &x);
  free(o);
  free(work);
  attn_plan_destroy(plan);
  inputs_free(&in);
  return status;
}

Test(variants_index, tensors_that_do_not_fit_are_refused) {
  const attn_problem p = problem_of(ATTN_F32, true);
  attn_extra bad[7][3];
  attn_plan *plan = NULL;
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
  for (size_t i = 0; i < 7; i++) EXPECT_STATUS(run(&p, spec, bad[i], 3), ATTN_EINVAL);
  for (size_t t = 0; t < 2; t++) EXPECT_STATUS(run(&p, spec, &tensors[t], 1), ATTN_EINVAL);
  EXPECT_STATUS(run(&p, "topk:by=index,k=7", tensors, 3), ATTN_EINVAL);
  static const char *const good[] = {spec, paged, "tiled",
                                     "streaming:sink=1,window=3 + topk:by=index,k=7,"
                                     "index_heads=3,index_width=5"};
  for (size_t s = 0; s < sizeof good / sizeof *good; s++)
    cr_expect_eq(run(&p, good[s], tensors, 3), ATTN_OK, "%s: %s", good[s], attn_last_error());
  EXPECT_STATUS(attn_plan_create(&plan, &p, "topk:by=index,k=7 + topk:by=index,k=7,index_heads=3", NULL),
                ATTN_EINVAL);
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

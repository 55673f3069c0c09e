/* recurrent.c - a state that is carried from key to key, against the recursion key by key in fp64: chunks of
 * any size, padding, heads that share keys, queries behind a prompt, and decays that leave nothing. */
#include "tests/support/core.h"

#include <math.h>
#include <stdlib.h>

enum { N = 70, D = 6, D_V = 5 };

/* o [n_q, d_v] of a head of decay a; size: the same of magnitudes. */
static void recur(const inputs *in, int64_t b, int64_t h, double a, double *o, double *size) {
  const attn_problem *p = &in->problem;
  const int64_t kv_head = h / (p->heads / p->kv_heads), keys = inputs_keys(in, b);
  double s[D][D_V] = {{0}}, sizes[D][D_V] = {{0}};
  for (int64_t t = 0; t < p->n_kv; t++) {
    for (int64_t l = 0; l < D && t < keys; l++)
      for (int64_t m = 0; m < D_V; m++) {
        const double write =
            inputs_get(in, TENSOR_K, b, kv_head, t, l) * inputs_get(in, TENSOR_V, b, kv_head, t, m);
        s[l][m] = a * s[l][m] + write;
        sizes[l][m] = a * sizes[l][m] + fabs(write);
      }
    const int64_t i = t - (p->n_kv - p->n_q);
    for (int64_t m = 0; m < D_V && i >= 0; m++) {
      o[i * D_V + m] = size[i * D_V + m] = 0;
      for (int64_t l = 0; l < D; l++) {
        const double q = p->scale * inputs_get(in, TENSOR_Q, b, h, i, l);
        o[i * D_V + m] += q * s[l][m];
        size[i * D_V + m] += fabs(q) * sizes[l][m];
      }
    }
  }
}

/* The roundings of a term that REC-1 counts, in chunks of 1 ... N keys. */
static double tolerance(attn_dtype t, double size) {
  return (2 * D + 4 * N + 16 + 3 * (N + 1)) * attn_numbers[t].unit * size;
}

static void compare(const char *spec, const inputs *in, double (*decay)(int64_t head)) {
  const attn_problem *p = &in->problem;
  attn_plan *plan = plan_or_note(p, spec, NULL);
  cr_assert_not_null(plan, "%s", spec);
  void *o = run_plain(plan, in);
  double own[N * D_V], size[N * D_V];
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++) {
      recur(in, b, h, decay(h), own, size);
      for (int64_t x = 0; x < p->n_q * D_V; x++) {
        const double got = output_get(p, o, b, h, x / D_V, x % D_V);
        if (!(fabs(got - own[x]) <= tolerance(p->dtype, size[x])))
          note_failure("%s: batch %lld head %lld row %lld: %.9g, not %.9g", spec, (long long)b, (long long)h,
                       (long long)(x / D_V), got, own[x]);
      }
    }
  free(o);
  attn_plan_destroy(plan);
}

static double of_head(int64_t h) { return 1 - pow(2, (double)(-5 - h)); }
static double of_nothing(int64_t h) { return h < 0 ? 0 : exp(-40); }
static double of_all(int64_t h) { return h < 0 ? 0 : 1; }

Test(variants_recurrent, outputs_are_those_of_the_recursion) {
  for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++)
    for (int64_t n_q = 1; n_q <= N; n_q += n_q == 1 ? 32 : 37) {
      const attn_problem p = shape_problem((case_shape){3, 4, 2, n_q, N, D, D_V, true, true}, dtype);
      inputs in = inputs_make(&p, true, 7, 1);
      compare("recurrent:chunk=1", &in, of_head);
      compare("recurrent:chunk=16", &in, of_head);
      compare("recurrent", &in, of_head);
      compare("recurrent:decay=constant,gamma=1,chunk=32", &in, of_all);
      compare("recurrent:decay=constant,gamma=4.248354255291589e-18,chunk=32", &in, of_nothing);
      inputs_free(&in);
    }
}

/* Parts of a sequence, from the state that the part before it left, in place; a part of one key is a step. */
Test(variants_recurrent, parts_hand_their_state_on) {
  static const int64_t ends[] = {1, 2, 19, 20, 53, 69, N};
  for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
    const size_t size = attn_dtype_size(dtype);
    const attn_problem p = shape_problem((case_shape){1, 4, 2, N, N, D, D_V, true, false}, dtype);
    inputs in = inputs_make(&p, false, 7, 1);
    char *whole = malloc((size_t)(p.heads * N * D_V) * size),
         *state = calloc((size_t)(p.heads * D * D_V), size);
    double own[N * D_V], sizes[N * D_V];
    cr_assert(whole && state);
    for (int64_t e = 0, from = 0; e < (int64_t)(sizeof ends / sizeof *ends); from = ends[e++]) {
      attn_problem part = attn_problem_make(1, p.heads, ends[e] - from, D);
      part.kv_heads = p.kv_heads;
      part.d_v = D_V;
      part.causal = true;
      part.dtype = dtype;
      part.q = (attn_stride){p.heads * N * D, N * D, D, 0};
      part.k = (attn_stride){p.kv_heads * N * D, N * D, D, 0};
      part.v = (attn_stride){p.kv_heads * N * D_V, N * D_V, D_V, 0};
      part.o = (attn_stride){p.heads * N * D_V, N * D_V, D_V, 0};
      attn_plan *plan = plan_or_note(&part, "recurrent:chunk=16", NULL);
      cr_assert_not_null(plan);
      cr_expect_eq(attn_plan_state_size(plan), (size_t)(p.heads * D * D_V) * size);
      void *work = malloc(attn_plan_work_size(plan));
      const attn_tensors x = {.q = in.q + (size_t)(from * D) * size,
                              .k = in.k + (size_t)(from * D) * size,
                              .v = in.v + (size_t)(from * D_V) * size,
                              .o = whole + (size_t)(from * D_V) * size,
                              .work = work,
                              .state = from ? state : NULL,
                              .state_after = state};
      cr_assert_eq(attn_plan_run(plan, &x), ATTN_OK, "%s", attn_last_error());
      free(work);
      attn_plan_destroy(plan);
    }
    for (int64_t h = 0; h < p.heads; h++) {
      recur(&in, 0, h, of_head(h), own, sizes);
      for (int64_t i = 0; i < N * D_V; i++) {
        const double got = attn_get(whole, h * N * D_V + i, dtype);
        if (!(fabs(got - own[i]) <= tolerance(dtype, sizes[i])))
          note_failure("head %d row %d: %.9g, not %.9g", (int)h, (int)(i / D_V), got, own[i]);
      }
    }
    free(whole);
    free(state);
    inputs_free(&in);
  }
}

/* A decay of 0 forgets: what is left is the query's own key. */
Test(variants_recurrent, what_is_forgotten_leaves_numbers) {
  const attn_problem p = shape_problem((case_shape){1, 1, 1, N, N, D, D_V, true, false}, ATTN_F32);
  inputs in = inputs_make(&p, false, 7, 1);
  compare("recurrent:decay=constant,gamma=0,chunk=8", &in, of_nothing);
  inputs_free(&in);
}

Test(variants_recurrent, what_it_cannot_do_is_refused) {
  attn_problem p = attn_problem_make(1, 1, 8, 8);
  attn_plan *plan = NULL;
  EXPECT_STATUS(attn_plan_create(&plan, &p, "recurrent", NULL), ATTN_EUNSUPPORTED);
  p.causal = true;
  p.score.softcap = 3;
  EXPECT_STATUS(attn_plan_create(&plan, &p, "recurrent", NULL), ATTN_EUNSUPPORTED);
  p.score.softcap = 0;
  float x[64] = {0}, o[64];
  cr_assert_eq(attn_plan_create(&plan, &p, "tiled", NULL), ATTN_OK);
  cr_expect_eq(attn_plan_state_size(plan), 0);
  void *work = malloc(attn_plan_work_size(plan) + 1);
  const attn_tensors with = {.q = x, .k = x, .v = x, .o = o, .work = work, .state_after = x};
  EXPECT_STATUS(attn_plan_run(plan, &with), ATTN_EUNSUPPORTED);
  free(work);
  attn_plan_destroy(plan);
}

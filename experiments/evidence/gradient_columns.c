/* gradient_columns.c - how far the gradients that a run gives are from those of exact attention, for one
 * normal gradient by the output. The exact ones are tiled's in fp64, which GRAD-FP and GRAD-FD judge. */
#include "experiments/evidence/columns.h"

#include "attn_gradients.h"
#include "experiments/evidence/cache.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* Multiply-adds of the exact gradients of a block: some seconds. */
static const double most_work = 0x1p38;
static const uint64_t purpose_upstream = 0x677261642d6f; /* "grad-o" */

enum { SIDES = 3 }; /* q, k, v */

static int64_t count_of(const attn_problem *p, int side) {
  return p->batch * (side ? p->kv_heads * p->n_kv : p->heads * p->n_q) * (side < 2 ? p->d_qk : p->d_v);
}

/* Where a side's gradients stand behind those of the sides before it. */
static int64_t place_of(const attn_problem *p, int side) {
  return side ? place_of(p, side - 1) + count_of(p, side - 1) : 0;
}

/* Tensors of a forward and a backward pass, of one type. */
typedef struct passes {
  region memory;
  attn_tensors x;
  attn_gradients g;
  void *d[SIDES];
  double seconds; /* of the backward pass */
} passes;

/* The same for every variant of a block. */
static void draw_upstream(const attn_problem *p, void *d_o) {
  attn_rng rng;
  attn_rng_init(&rng, 1, purpose_upstream, 0);
  for (int64_t i = 0; i < p->batch * p->heads * p->n_q * p->d_v; i++)
    attn_set(d_o, i, p->dtype, attn_rng_normal(&rng));
}

static attn_status passes_run(const attn_plan *plan, const evidence *e, const void *const inputs[SIDES],
                              passes *out) {
  const attn_problem *p = attn_plan_problem(plan);
  const size_t size = attn_dtype_size(p->dtype);
  const int64_t rows = p->batch * p->heads * p->n_q;
  size_t bytes = 0;
  attn_view view;
  passes r = {.x = evidence_tensors(e)};
  attn_status status = attn_plan_backward_size(plan, &bytes);
  if (!status) status = attn_plan_inspect(plan, &view);
  if (status) return status;
  void *d_o = region_take(&r.memory, rows * p->d_v, size);
  r.x.q = inputs[0], r.x.k = inputs[1], r.x.v = inputs[2];
  r.x.o = region_take(&r.memory, rows * p->d_v, size);
  if (view.caps & ATTN_CAP_LSE) r.x.lse = region_take(&r.memory, rows, sizeof *r.x.lse);
  r.x.work = region_take(&r.memory, 1, bytes + attn_plan_work_size(plan) + 1);
  for (int s = 0; s < SIDES; s++) r.d[s] = region_take(&r.memory, count_of(p, s), size);
  r.g = (attn_gradients){.d_o = d_o, .dq = r.d[0], .dk = r.d[1], .dv = r.d[2]};
  status = region_status(&r.memory, "for the gradients of a run");
  if (!status) {
    draw_upstream(p, d_o);
    status = attn_plan_run(plan, &r.x);
  }
  const double start = omp_get_wtime();
  if (!status) status = attn_plan_backward(plan, &r.x, &r.g);
  r.seconds = omp_get_wtime() - start;
  *out = r;
  return status;
}

/* Exact gradients of the block's inputs in fp64, [q, k, v] one behind the other, into its cache. */
static attn_status find_exact(const evidence *e) {
  attn_problem p = *e->problem;
  attn_plan *plan = NULL;
  passes r = {.seconds = 0};
  region memory = {.last = NULL};
  const void *const given[SIDES] = {e->q, e->k, e->v};
  double *wide[SIDES], *exact = NULL;
  p.q = p.k = p.v = p.o = (attn_stride){0};
  p.dtype = ATTN_F64;
  for (int s = 0; s < SIDES; s++) wide[s] = region_take(&memory, count_of(&p, s), sizeof(double));
  attn_status status = region_status(&memory, "for the exact gradients of a block");
  if (!status && !(exact = malloc((size_t)place_of(&p, SIDES) * sizeof *exact)))
    status = attn_fail(ATTN_ENOMEM, "no memory for the exact gradients of a block");
  for (int s = 0; !status && s < SIDES; s++)
    attn_convert(given[s], e->problem->dtype, count_of(&p, s), ATTN_F64, wide[s]);
  if (!status)
    status =
        attn_plan_create(&plan, &p, "tiled", &(attn_options){.threads = attn_plan_context(e->plan)->threads});
  if (!status) status = passes_run(plan, e, (const void *const[]){wide[0], wide[1], wide[2]}, &r);
  for (int s = 0; !status && s < SIDES; s++)
    memcpy(exact + place_of(&p, s), r.d[s], (size_t)count_of(&p, s) * sizeof *exact);
  /* Its weight is 1 whatever its score is, and what remains of the differences is rounding. */
  if (!status && p.n_kv == 1 && !p.score.sink) memset(exact, 0, (size_t)place_of(&p, 2) * sizeof *exact);
  if (status)
    free(exact);
  else
    e->cache->gradients = exact;
  attn_plan_destroy(plan);
  region_free(&r.memory);
  region_free(&memory);
  return status;
}

/* |x - y| / |y| and the cosine of x and y; 0 and 1 of two zeros, and NaN where y alone is zeros. */
static void compare(const void *x, attn_dtype type, const double *y, int64_t count, double *error,
                    double *cosine) {
  double off = 0, size = 0, own = 0, both = 0;
  for (int64_t i = 0; i < count; i++) {
    const double a = attn_get(x, i, type), b = y[i];
    off += (a - b) * (a - b);
    size += b * b;
    own += a * a;
    both += a * b;
  }
  *error = !(off > 0) ? off : size > 0 ? sqrt(off / size) : (double)NAN;
  *cosine = off > 0 ? both / sqrt(own * size) : 1;
}

attn_status evidence_gradients(const evidence *e, result_row *row) {
  const attn_problem *p = e->problem;
  const double pairs = (double)(p->batch * p->heads) * (double)p->n_q * (double)p->n_kv;
  passes r = {.seconds = 0};
  double *const errors[SIDES] = {&row->grad_err_q, &row->grad_err_k, &row->grad_err_v},
                *const cosines[SIDES] = {&row->grad_cos_q, &row->grad_cos_k, &row->grad_cos_v};
  if (!e->view->gradients || !(pairs * (double)(3 * p->d_qk + 2 * p->d_v) <= most_work)) return ATTN_OK;
  attn_status status = e->cache->gradients ? ATTN_OK : find_exact(e);
  if (!status) status = passes_run(e->plan, e, (const void *const[]){e->q, e->k, e->v}, &r);
  for (int s = 0; !status && s < SIDES; s++)
    compare(r.d[s], p->dtype, e->cache->gradients + place_of(p, s), count_of(p, s), errors[s], cosines[s]);
  if (!status) row->grad_time = r.seconds;
  region_free(&r.memory);
  return status;
}

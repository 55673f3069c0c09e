/* products.c - the matrix products of `full` alone, as a variant: K^T and V packed once a head, S = Q K^T and
 * O = S V for blocks of rows, the whole of S in memory. */
#include "experiments/peers/products.h"

#include <omp.h>

#include "attn_variant.h"

enum { ROWS = 96 }; /* of one task, as in full */

/* The workspace; sizes of a head's and of a thread's part. */
typedef struct layout {
  char *s, *k, *v, *scratch;
  size_t s_bytes, k_bytes, v_bytes, scratch_bytes;
} layout;

static layout lay_out(const attn_context *c, attn_carver *carver) {
  const attn_problem *p = c->problem;
  layout l = {.s_bytes = attn_size_times((size_t)p->n_q, (size_t)p->n_kv * sizeof(float)),
              .k_bytes = attn_gemm_packed_bytes(c->kernels, p->d_qk, p->n_kv),
              .v_bytes = attn_gemm_packed_bytes(c->kernels, p->n_kv, p->d_v),
              .scratch_bytes = attn_gemm_scratch(c->kernels)};
  l.s = attn_carve(carver, p->heads, 1, l.s_bytes);
  l.k = attn_carve(carver, p->heads, 1, l.k_bytes);
  l.v = attn_carve(carver, p->heads, 1, l.v_bytes);
  l.scratch = attn_carve(carver, c->threads, 1, l.scratch_bytes);
  return l;
}

static size_t work_size(const attn_context *c) {
  attn_carver counter = {0};
  lay_out(c, &counter);
  return counter.used;
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *p = c->problem;
  return (attn_cost){.mul_add =
                         (double)p->heads * (double)p->n_q * (double)p->n_kv * (double)(p->d_qk + p->d_v)};
}

static attn_status applicable(const attn_context *c) {
  const attn_problem *p = c->problem;
  if (p->dtype == ATTN_F32 && !p->causal && p->batch == 1 && p->heads == p->kv_heads) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED, "products: fp32, one batch entry, no groups, not causal");
}

static attn_status plan(attn_builder *b, void **state) {
  (void)b;
  *state = NULL;
  return ATTN_OK;
}

static attn_status execute(const void *state, const attn_call *call) {
  (void)state;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  attn_carver carver = {.base = call->work};
  const layout l = lay_out(c, &carver);
  const int64_t blocks = (p->n_q + ROWS - 1) / ROWS;
#pragma omp parallel num_threads(c->threads)
  {
#pragma omp for schedule(dynamic, 1)
    for (int64_t head = 0; head < p->heads; head++) {
      attn_gemm_pack(c->kernels, p->d_qk, p->n_kv,
                     (attn_matrix){attn_rows(call->k, p->k, 0, head, p->dtype), 1, p->k.row},
                     l.k + (size_t)head * l.k_bytes);
      attn_gemm_pack(c->kernels, p->n_kv, p->d_v,
                     (attn_matrix){attn_rows(call->v, p->v, 0, head, p->dtype), p->v.row, 1},
                     l.v + (size_t)head * l.v_bytes);
    }
    void *scratch = l.scratch + (size_t)omp_get_thread_num() * l.scratch_bytes;
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < p->heads * blocks; task++) {
      const int64_t head = task / blocks, i0 = task % blocks * ROWS;
      const int64_t rows = p->n_q - i0 < ROWS ? p->n_q - i0 : ROWS;
      const attn_packed k = {l.k + (size_t)head * l.k_bytes, p->d_qk, p->n_kv},
                        v = {l.v + (size_t)head * l.v_bytes, p->n_kv, p->d_v};
      const float *q = attn_rows(call->q, p->q, 0, head, p->dtype);
      float *s = (float *)(void *)(l.s + (size_t)head * l.s_bytes) + i0 * p->n_kv;
      float *o = (float *)call->o + head * p->o.head + i0 * p->o.row;
      attn_gemm_packed(c->kernels, rows, p->n_kv, p->d_qk, (attn_matrix){q + i0 * p->q.row, p->q.row, 1}, k,
                       false, s, p->n_kv, scratch);
      attn_gemm_packed(c->kernels, rows, p->d_v, p->n_kv, (attn_matrix){s, p->n_kv, 1}, v, false, o, p->o.row,
                       scratch);
    }
  }
  return ATTN_OK;
}

static const attn_param table[] = {{.name = NULL}};

const attn_variant products = {
    .abi = ATTN_ABI,
    .size = sizeof(attn_variant),
    .name = "products",
    .summary = "(Q K^T) V",
    .cite = "",
    .params = table,
    .applicable = applicable,
    .work_size = work_size,
    .cost = cost,
    .plan = plan,
    .execute = execute,
};

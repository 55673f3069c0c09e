/* attnlab.c - a variant of libattn, by its spec, as a participant of the comparison.
 *
 * Adds one variant of its own, products: O = (Q K^T) V with the n x n matrix in memory and no softmax, which is
 * the matrix products of `full` alone, in its blocks and on its kernels: what OpenBLAS's sgemm is compared
 * with. */
#include "peer.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 128 }; /* of a task, as in variants/full.c */

static size_t products_work_size(const attn_context *c) {
  const attn_problem *p = c->problem;
  size_t matrix = attn_size_times((size_t)(p->heads * p->n_q), (size_t)p->n_kv * sizeof(float));
  return attn_size_sum(matrix, attn_size_times((size_t)c->threads, attn_gemm_scratch(c->kernels)) + 64);
}

static attn_cost products_cost(const attn_context *c) {
  const attn_problem *p = c->problem;
  return (attn_cost){.mul_add =
                         (double)p->heads * (double)p->n_q * (double)p->n_kv * (double)(p->d_qk + p->d_v)};
}

static attn_status products_applicable(const attn_context *c) {
  if (c->problem->dtype == ATTN_F32 && !c->problem->causal) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED, "products: fp32, not causal");
}

static attn_status products_plan(attn_builder *b, void **state) {
  (void)b;
  *state = NULL;
  return ATTN_OK;
}

static attn_status products_execute(const void *state, const attn_call *call) {
  (void)state;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  int64_t blocks = (p->n_q + ROWS - 1) / ROWS;
  char *scratch = call->work;
  float *matrix = (float *)(void *)(scratch + (size_t)c->threads * attn_gemm_scratch(c->kernels));
#pragma omp parallel for num_threads(c->threads) schedule(dynamic, 1)
  for (int64_t task = 0; task < p->heads * blocks; task++) {
    int64_t head = task / blocks, i0 = task % blocks * ROWS, rows = p->n_q - i0 < ROWS ? p->n_q - i0 : ROWS;
    char *mine = scratch + (size_t)omp_get_thread_num() * attn_gemm_scratch(c->kernels);
    float *s = matrix + (head * p->n_q + i0) * p->n_kv;
    const float *q = attn_rows(call->q, p->q, 0, head, p->dtype);
    attn_gemm(c->kernels, rows, p->n_kv, p->d_qk, (attn_matrix){q + i0 * p->q.row, p->q.row, 1},
              (attn_matrix){attn_rows(call->k, p->k, 0, head, p->dtype), 1, p->k.row}, false, s, p->n_kv,
              mine);
    attn_gemm(c->kernels, rows, p->d_v, p->n_kv, (attn_matrix){s, p->n_kv, 1},
              (attn_matrix){attn_rows(call->v, p->v, 0, head, p->dtype), p->v.row, 1}, false,
              (float *)call->o + head * p->o.head + i0 * p->o.row, p->o.row, mine);
  }
  return ATTN_OK;
}

static const attn_param products_table[] = {{.name = NULL}};
static const char *const products_checks[] = {NULL};

static const attn_variant products = {
    .abi = ATTN_ABI,
    .size = sizeof(attn_variant),
    .name = "products",
    .summary = "(Q K^T) V",
    .cite = "",
    .params = products_table,
    .applicable = products_applicable,
    .work_size = products_work_size,
    .cost = products_cost,
    .plan = products_plan,
    .execute = products_execute,
    .checks = products_checks,
};

static const char *spec;
static attn_plan *plan;
static void *work;

static attn_status load(const peer_problem *problem, char description[PEER_TEXT]) {
  attn_problem p = data_qkv_problem(&problem->in);
  p.causal = problem->causal;
  attn_status status = attn_plan_create(&plan, &p, spec, &(attn_options){.threads = problem->threads});
  if (status != ATTN_OK) return status;
  size_t bytes = attn_plan_work_size(plan);
  work = malloc(bytes + 1);
  if (!work) return attn_fail(ATTN_ENOMEM, "no memory for %zu bytes of work", bytes);
  snprintf(description, PEER_TEXT, "%s, %s", attn_plan_spec(plan), attn_plan_isa(plan));
  return ATTN_OK;
}

static attn_status run(const peer_problem *p) {
  return attn_plan_execute(plan, p->in.q, p->in.k, p->in.v, NULL, p->o, work);
}

static void unload(void) {
  attn_plan_destroy(plan);
  free(work);
  plan = NULL, work = NULL;
}

int main(int count, char **arguments) {
  if (count != 2) {
    fputs("Usage: peer_attnlab SPEC\n", stderr);
    return 2;
  }
  spec = arguments[1];
  if (attn_variant_register(&products) != ATTN_OK) {
    fprintf(stderr, "peer_attnlab: %s\n", attn_last_error());
    return 70;
  }
  return peer_serve(&(peer_methods){load, run, unload});
}

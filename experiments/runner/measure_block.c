/* measure_block.c - what the runs of a block share: inputs that cannot be written, exact rows, and the
 * output. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/runner/measure.h"

#include <string.h>

#include "experiments/reference/census.h"

enum { ALIGNMENT = 64 };

attn_status measure_tensor_bytes(const attn_problem *p, size_t *total, size_t *output) {
  const int64_t size = (int64_t)attn_dtype_size(p->dtype);
  size_t q = 0, k = 0, v = 0, o = 0;
  attn_status status = attn_size_product("q", (int64_t[]){p->batch, p->heads, p->n_q, p->d_qk, size}, 5, &q);
  if (!status)
    status = attn_size_product("k", (int64_t[]){p->batch, p->kv_heads, p->n_kv, p->d_qk, size}, 5, &k);
  if (!status)
    status = attn_size_product("v", (int64_t[]){p->batch, p->kv_heads, p->n_kv, p->d_v, size}, 5, &v);
  if (!status) status = attn_size_product("o", (int64_t[]){p->batch, p->heads, p->n_q, p->d_v, size}, 5, &o);
  if (status) return status;
  *output = o;
  *total = q <= SIZE_MAX - k && v <= SIZE_MAX - o && q + k <= SIZE_MAX - v - o ? q + k + v + o : SIZE_MAX;
  return ATTN_OK;
}

static size_t bytes_of(const attn_problem *p, int64_t heads, int64_t rows, int64_t columns) {
  return (size_t)(p->batch * heads * rows * columns) * attn_dtype_size(p->dtype);
}

/* Makes Q, K and V, and puts them where a variant can only read them. */
static attn_status make_inputs(measure_block *block) {
  const grid_block *b = &block->job->block;
  const attn_problem *p = &block->problem;
  const data_request request = {p->batch, p->heads, p->kv_heads,           p->n_q, p->n_kv, p->d_qk,
                                p->d_v,   p->dtype, (uint64_t)b->data_seed};
  data_qkv made = {0};
  attn_status status = data_source_make(b->dataset, &request, &made, NULL);
  if (status) return status;
  data_qkv_find_nonfinite(&made, block->nonfinite);
  status = guard_adopt(&block->q, &made.q, bytes_of(p, p->heads, p->n_q, p->d_qk), ALIGNMENT);
  if (!status)
    status = guard_adopt(&block->k, &made.k, bytes_of(p, p->kv_heads, p->n_kv, p->d_qk), ALIGNMENT);
  if (!status) status = guard_adopt(&block->v, &made.v, bytes_of(p, p->kv_heads, p->n_kv, p->d_v), ALIGNMENT);
  data_qkv_free(&made);
  return status;
}

/* The sample that checks look at, and all rows for errors where that is wanted. */
static attn_status make_exact(measure_block *block) {
  const grid_block *b = &block->job->block;
  const attn_problem *p = &block->problem;
  const int64_t rows = b->rows > ROWS_ALL ? b->rows : 0;
  const bool affordable = census_affordable(p, (double)block->job->budget_memory);
  attn_status status = exact_rows_draw(p, block->q.at, block->k.at, block->v.at, NULL, (uint64_t)b->data_seed,
                                       rows, &block->exact);
  if (status || block->exact->complete) return status;
  if (b->rows != ROWS_ALL && !(b->rows == ROWS_AUTO && affordable)) return ATTN_OK;
  return census_take(p, block->q.at, block->k.at, block->v.at, NULL, block->exact);
}

attn_status measure_block_open(measure_block *block) {
  const grid_block *b = &block->job->block;
  size_t total = 0, output = 0;
  counters_open(&block->counters, COUNTERS_POWERCAP); /* before anything starts threads */
  attn_status status = grid_target(b, &block->problem, &block->target);
  if (!status) status = measure_tensor_bytes(&block->problem, &total, &output);
  if (!status) status = make_inputs(block);
  if (!status) status = make_exact(block);
  if (!status && b->cache == CACHE_COLD) status = evict_open(&block->evictor, (int)b->threads);
  if (!status) status = guard_open(&block->o, output, ALIGNMENT);
  if (status) return status;
  block->cache = block_cache_create();
  memset(block->o.at, 0, block->o.bytes); /* resident from now on */
  block->resident = memory_reset_peak();
  return block->cache ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a block's cache");
}

void measure_block_close(measure_block *block) {
  counters_close(&block->counters);
  evict_close(&block->evictor);
  block_cache_free(block->cache);
  properties_found_free(&block->found);
  exact_rows_free(block->exact);
  data_target_free(block->target);
  guard_close(&block->q);
  guard_close(&block->k);
  guard_close(&block->v);
  guard_close(&block->o);
}

bool measure_block_has_nan(const measure_block *block) {
  const size_t count = block->o.bytes / attn_dtype_size(block->problem.dtype);
  size_t found = 0;
  if (block->problem.dtype == ATTN_F64) {
    const double *o = (const void *)block->o.at;
    for (size_t i = 0; i < count; i++) found += o[i] != o[i];
  } else {
    const float *o = (const void *)block->o.at;
    for (size_t i = 0; i < count; i++) found += o[i] != o[i];
  }
  return found > 0;
}

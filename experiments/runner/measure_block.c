/* measure_block.c - what the runs of a block share: inputs that cannot be written, exact rows, and the
 * output. */
#include "experiments/runner/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/reference/census.h"

enum { ALIGNMENT = 64 };

attn_status measure_tensor_bytes(const attn_problem *p, size_t *total, size_t *output) {
  const int64_t size = (int64_t)attn_dtype_size(attn_stored(p->q, p->dtype));
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
  return (size_t)(p->batch * heads * rows * columns) * attn_dtype_size(attn_stored(p->q, p->dtype));
}

/* Makes Q, K and V, and puts them where a variant can only read them. */
static attn_status make_inputs(measure_block *block) {
  const grid_block *b = &block->job->block;
  const attn_problem *p = &block->problem;
  const data_request request = {p->batch, p->heads,  p->kv_heads,           p->n_q, p->n_kv, p->d_qk,
                                p->d_v,   block->as, (uint64_t)b->data_seed};
  data_qkv made = {0};
  attn_status status = data_source_make(b->dataset, &request, &made, NULL);
  if (status) return status;
  data_qkv_find_nonfinite(&made, block->nonfinite);
  status = guard_adopt(&block->q, &made.q, bytes_of(p, p->heads, p->n_q, p->d_qk), ALIGNMENT);
  if (!status)
    status = guard_adopt(&block->k, &made.k, bytes_of(p, p->kv_heads, p->n_kv, p->d_qk), ALIGNMENT);
  if (!status) status = guard_adopt(&block->v, &made.v, bytes_of(p, p->kv_heads, p->n_kv, p->d_v), ALIGNMENT);
  block->extras = data_qkv_extras(&made, block->extra);
  memcpy(block->gates, made.extra, sizeof made.extra);
  memset(made.extra, 0, sizeof made.extra);
  data_qkv_free(&made);
  return status;
}

bool measure_block_stored(const measure_block *block) { return block->as != block->judged.dtype; }

/* A tensor in the type of the arithmetic, of `bytes` as it is stored; at: NULL, it is filled later. */
static void *widened(const measure_block *block, const void *at, size_t bytes) {
  const size_t count = bytes / attn_dtype_size(block->as);
  void *wide = malloc(count * attn_dtype_size(block->judged.dtype) + 1);
  if (wide) attn_convert(at, block->as, (int64_t)count, block->judged.dtype, wide);
  return wide;
}

static attn_status make_judged(measure_block *block) {
  attn_problem *p = &block->judged;
  *p = block->problem;
  p->dtype = attn_numbers[block->as].arithmetic;
  p->q.stored = p->k.stored = p->v.stored = p->o.stored = ATTN_F32;
  const guard *from[] = {&block->q, &block->k, &block->v, &block->o};
  void **to[] = {&block->judged_q, &block->judged_k, &block->judged_v, &block->judged_o};
  for (int i = 0; i < 4; i++) {
    const bool output = from[i] == &block->o;
    *to[i] = measure_block_stored(block) ? widened(block, output ? NULL : from[i]->at, from[i]->bytes)
                                         : from[i]->at;
    if (!*to[i]) return attn_fail(ATTN_ENOMEM, "no memory for the tensors in fp32");
  }
  return ATTN_OK;
}

/* The sample that checks look at, and all rows for errors where that is wanted. */
static attn_status make_exact(measure_block *block) {
  const grid_block *b = &block->job->block;
  const attn_problem *p = &block->judged;
  const int64_t rows = b->rows > ROWS_ALL ? b->rows : 0;
  const bool affordable = census_affordable(p, (double)block->job->budget_memory);
  attn_status status = exact_rows_draw(p, block->judged_q, block->judged_k, block->judged_v, NULL,
                                       (uint64_t)b->data_seed, rows, &block->exact);
  if (status || block->exact->complete) return status;
  if (b->rows != ROWS_ALL && !(b->rows == ROWS_AUTO && affordable)) return ATTN_OK;
  return census_take(p, block->judged_q, block->judged_k, block->judged_v, NULL, block->exact);
}

attn_status measure_block_open(measure_block *block) {
  const grid_block *b = &block->job->block;
  size_t total = 0, output = 0;
  counters_open(&block->counters, COUNTERS_POWERCAP); /* before anything starts threads */
  attn_status status = grid_target(b, &block->problem, &block->target);
  block->as = attn_stored(block->problem.q, block->problem.dtype);
  if (!status) status = measure_tensor_bytes(&block->problem, &total, &output);
  if (!status) status = make_inputs(block);
  if (!status) status = guard_open(&block->o, output, ALIGNMENT);
  if (!status) status = make_judged(block);
  if (!status) status = make_exact(block);
  if (!status && b->cache == CACHE_COLD) status = evict_open(&block->evictor, (int)b->threads);
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
  void *const wide[] = {block->judged_q, block->judged_k, block->judged_v, block->judged_o};
  for (int i = 0; i < 4 && measure_block_stored(block); i++) free(wide[i]);
  for (int i = 0; i < ATTN_EXTRA_KINDS; i++) data_array_free(&block->gates[i]);
  guard_close(&block->q);
  guard_close(&block->k);
  guard_close(&block->v);
  guard_close(&block->o);
}

bool measure_block_has_nan(const measure_block *block) {
  const size_t count = block->o.bytes / attn_dtype_size(block->as);
  bool found = false;
  for (size_t i = 0; i < count; i++) found |= isnan(attn_get(block->o.at, (int64_t)i, block->as));
  return found;
}

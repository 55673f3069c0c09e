/* index_tensors.c - see index_tensors.h. */
#include "experiments/checks/selection/index_tensors.h"

static const uint64_t purpose_index = 0x696e646578; /* "index" */

bool index_tensors_fit(const evidence *e, const attn_index *x) {
  const attn_problem *p = e->problem;
  return (double)x->width * ((double)x->heads * (double)p->n_q + (double)(p->batch * p->n_kv)) <= 0x1p24;
}

attn_status index_tensors_draw(const evidence *e, const attn_index *x, attn_extra *extra) {
  static const char *const names[INDEX_TENSORS] = {"index_q", "index_k", "index_w"};
  const attn_problem *p = e->problem;
  for (int t = 0; t < INDEX_TENSORS; t++) {
    const int64_t batch = t == 1 ? p->batch : 1, lines = t == 1 ? 1 : x->heads, n = t == 1 ? p->n_kv : p->n_q,
                  columns = t == 2 ? 1 : x->width, count = batch * lines * n * columns;
    void *to = region_take(e->memory, count, attn_dtype_size(p->dtype));
    attn_rng rng;
    attn_rng_init(&rng, e->seed, purpose_index, (uint64_t)t);
    if (region_status(e->memory, "for the tensors of an index")) return ATTN_ENOMEM;
    for (int64_t i = 0; i < count; i++) attn_set(to, i, p->dtype, 2 * attn_rng_uniform(&rng) - 1);
    extra[t] = (attn_extra){names[t], p->dtype, to, batch, lines, n, columns};
  }
  return ATTN_OK;
}

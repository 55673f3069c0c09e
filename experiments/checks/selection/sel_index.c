/* sel_index.c - TK-2: a ranking by an index (attn_index) ranks by what its tensors say, which are drawn here.
 *
 * So it does when the columns of index_q and index_k are reversed and every other one has its sign changed:
 * an orthogonal transform, under which no product changes, nor the magnitudes that bound its rounding. What
 * is then selected is judged by the scores of the tensors as they were. */
#include "experiments/checks/selection/selection_picks.h"

enum { TENSORS = 3, MOST = 1 << 24 };               /* numbers of index_q and index_k */
static const uint64_t purpose_index = 0x696e646578; /* "index" */

static void reverse(const attn_extra *x, int64_t rows, void *to) {
  for (int64_t at = 0; at < rows * x->columns; at++) {
    const int64_t l = at % x->columns;
    const double own = attn_get(x->at, at - l + x->columns - 1 - l, x->dtype);
    attn_set(to, at, x->dtype, l % 2 ? -own : own);
  }
}

/* extra: as drawn, then reversed. */
static attn_status draw(const evidence *e, attn_extra *extra) {
  static const char *const names[TENSORS] = {"index_q", "index_k", "index_w"};
  const attn_problem *p = e->problem;
  const attn_index *x = &e->view->selector->index;
  for (int t = 0; t < TENSORS; t++) {
    const int64_t lines = t == 1 ? 1 : x->heads, n = t == 1 ? p->n_kv : p->n_q,
                  columns = t == 2 ? 1 : x->width, count = lines * n * columns;
    void *to = region_take(e->memory, count, attn_dtype_size(p->dtype)),
         *reversed = t == 2 ? to : region_take(e->memory, count, attn_dtype_size(p->dtype));
    attn_rng rng;
    attn_rng_init(&rng, e->seed, purpose_index, (uint64_t)t);
    if (region_status(e->memory, "for the tensors of an index")) return ATTN_ENOMEM;
    for (int64_t i = 0; i < count; i++) attn_set(to, i, p->dtype, 2 * attn_rng_uniform(&rng) - 1);
    extra[t] = extra[TENSORS + t] = (attn_extra){names[t], p->dtype, to, 1, lines, n, columns};
    if (t < 2) reverse(&extra[t], lines * n, reversed);
    extra[TENSORS + t].at = reversed;
  }
  return ATTN_OK;
}

static attn_status index_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const attn_index *x = &e->view->selector->index;
  attn_extra extra[2 * TENSORS];
  evidence own = *e;
  own.extra = extra;
  own.extras = TENSORS;
  const attn_call law = evidence_call(&own);
  if ((double)x->width * ((double)x->heads * (double)p->n_q + (double)p->n_kv) > MOST)
    return bound_not_applicable(bound, "its tensors would take more than 2^24 numbers");
  attn_status status = draw(e, extra);
  for (int turned = 0; turned < 2 && !status && (!turned || bound->verdict == VERDICT_PASS); turned++) {
    own.extra = extra + turned * TENSORS;
    own.cache = block_cache_create();
    status = own.cache ? picks_rank(&own, &law, bound) : attn_fail(ATTN_ENOMEM, "no memory for a check");
    block_cache_free(own.cache);
  }
  return status;
}

const check check_tk2 = {
    .name = "TK-2",
    .of = &of_indexes,
    .kind = KIND_HARD,
    .statement = "a ranking by an index ranks by its tensors, and as well when queries and keys of the index "
                 "are turned together",
    .source = "definition of the lightning indexer of DeepSeek-V3.2; (R q).(R k) = q.k",
    .formula =
        "SEL-2 with drawn tensors index_q, index_k and w: I_iu = sum_h w_ih max(index_q_ih . m_u, 0), m_u "
        "the mean of index_k over the keys of unit u, the same for all heads. Again with R index_q and R "
        "index_k, by the same I: R reverses their columns and changes the sign of every other one, which "
        "changes no product and no magnitude.",
    .assumes = "The selector names its index (attn_selector.index) and a law with units. What the run's own "
               "tensors select is judged by SEL-2.",
    .cause = "weights of another index head, products without their sign, or an index for each head",
    .nulls = CHECK_BLIND("it judges what is selected, and looks at no output"),
    .evaluate = index_evaluate,
};

/* sel_index.c - TK-2: a ranking by an index (attn_index) ranks by what its tensors say, which are drawn here.
 *
 * So it does when the columns of index_q and index_k are reversed and every other one has its sign changed:
 * an orthogonal transform, under which no product changes, nor the magnitudes that bound its rounding. What
 * is then selected is judged by the scores of the tensors as they were. */
#include "experiments/checks/selection/index_tensors.h"
#include "experiments/checks/selection/selection_picks.h"

static void reverse(const attn_extra *x, int64_t rows, void *to) {
  for (int64_t at = 0; at < rows * x->columns; at++) {
    const int64_t l = at % x->columns;
    const double own = attn_get(x->at, at - l + x->columns - 1 - l, x->dtype);
    attn_set(to, at, x->dtype, l % 2 ? -own : own);
  }
}

/* extra: as drawn, then reversed. */
static attn_status draw(const evidence *e, attn_extra *extra) {
  attn_status status = index_tensors_draw(e, &e->view->selector->index, extra);
  for (int t = 0; t < INDEX_TENSORS && !status; t++) {
    const int64_t rows = extra[t].batch * extra[t].heads * extra[t].n;
    void *reversed = region_take(e->memory, rows * extra[t].columns, attn_dtype_size(extra[t].dtype));
    extra[INDEX_TENSORS + t] = extra[t];
    status = region_status(e->memory, "for the tensors of an index");
    if (t == 2 || status) continue;
    reverse(&extra[t], rows, reversed);
    extra[INDEX_TENSORS + t].at = reversed;
  }
  return status;
}

static attn_status index_evaluate(const evidence *e, result_bound *bound) {
  attn_extra extra[2 * INDEX_TENSORS];
  evidence own = *e;
  own.extra = extra;
  own.extras = INDEX_TENSORS;
  const attn_call law = evidence_call(&own);
  if (!index_tensors_fit(e, &e->view->selector->index))
    return bound_not_applicable(bound, "its tensors would take more than 2^24 numbers");
  attn_status status = draw(e, extra);
  for (int turned = 0; turned < 2 && !status && (!turned || bound->verdict == VERDICT_PASS); turned++) {
    own.extra = extra + turned * INDEX_TENSORS;
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

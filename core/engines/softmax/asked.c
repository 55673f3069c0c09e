/* asked.c - attn_plan_select: what an execution would attend to, asked for by who looks at a plan from
 * outside. */
#include "core/engines/softmax/softmax.h"

#include <string.h>

static attn_status check_rows(const attn_problem *p, const attn_row_set *set) {
  if (set->batch < 0 || set->batch >= p->batch)
    return attn_fail(ATTN_EINVAL, "select: batch entry %lld of %lld", (long long)set->batch,
                     (long long)p->batch);
  if (set->head < 0 || set->head >= p->heads)
    return attn_fail(ATTN_EINVAL, "select: head %lld of %lld", (long long)set->head, (long long)p->heads);
  for (int64_t r = 0; r < set->count; r++)
    if (set->rows[r] < (r ? set->rows[r - 1] + 1 : 0) || set->rows[r] >= p->n_q)
      return attn_fail(ATTN_EINVAL, "select: rows must ascend in 0 ... %lld, not %lld", (long long)p->n_q - 1,
                       (long long)set->rows[r]);
  return ATTN_OK;
}

/* What is asked for, block by block as an execution does. */
typedef struct asked {
  const attn_selector *x;
  const attn_call *call;
  void *prepared, *scratch;
  attn_picks own; /* of a block */
  int64_t *place; /* of each query in the selector's order; NULL: as they come */
} asked;

/* Where each query stands in the order. */
static attn_status find_places(const attn_context *c, const int64_t *order, int64_t *place) {
  const int64_t n = c->problem->n_q;
  for (int64_t i = 0; i < n; i++) place[i] = -1;
  for (int64_t i = 0; i < n; i++) {
    if (order[i] < 0 || order[i] >= n || place[order[i]] >= 0)
      return attn_fail(ATTN_EINVAL, "variant %s: its order of the queries has %lld at place %lld, which %s",
                       c->variant->name, (long long)order[i], (long long)i,
                       order[i] < 0 || order[i] >= n ? "does not exist" : "it has already");
    place[order[i]] = i;
  }
  return ATTN_OK;
}

static attn_status select_rows(asked *a, const attn_row_set *set, attn_picks *out) {
  const attn_selector *x = a->x;
  const attn_call *call = a->call;
  const attn_problem *p = call->context->problem;
  const int64_t rows = attn_selection_rows(p, x), group = p->heads / p->kv_heads,
                head = x->share == ATTN_SHARE_GROUP ? set->head / group * group : set->head;
  const int64_t *order = x->order ? x->order(x->state, call, a->prepared, head) : NULL;
  int64_t held = -1;
  const attn_status status = order ? find_places(call->context, order, a->place) : ATTN_OK;
  if (status) return status;
  for (int64_t r = 0; r < set->count; r++) {
    const int64_t at = order ? a->place[set->rows[r]] : set->rows[r], first = at / rows * rows,
                  of = x->share == ATTN_SHARE_TILE ? 0 : at - first;
    const attn_block block = {
        .batch = set->batch, .head = head, .first = first, .count = attn_min(rows, p->n_q - first)};
    if (first != held) attn_picks_ask(x, call, &block, a->prepared, &a->own, a->scratch);
    held = first;
    const char *wrong = attn_picks_error_text(x, p->n_kv, &a->own, of);
    if (wrong)
      return attn_fail(ATTN_EINVAL, "variant %s: the selection of query %lld %s",
                       call->context->variant->name, (long long)set->rows[r], wrong);
    const size_t count = (size_t)(out->counts[r] = a->own.counts[of]);
    memcpy(out->runs + r * x->max_runs, a->own.runs + of * x->max_runs, count * sizeof *out->runs);
    if (!out->log_weights) continue;
    double *weights = out->log_weights + r * x->max_runs;
    memset(weights, 0, count * sizeof *weights);
    if (x->weighted) memcpy(weights, a->own.log_weights + of * x->max_runs, count * sizeof *weights);
  }
  return ATTN_OK;
}

attn_status attn_plan_select(const attn_plan *plan, const attn_tensors *in, const attn_row_set *set,
                             attn_picks *out) {
  attn_view view;
  if (!plan) return attn_null("select", "plan");
  if (!in) return attn_null("select", "tensors");
  if (!in->q) return attn_null("select", "q");
  if (!in->k) return attn_null("select", "k");
  if (!in->v) return attn_null("select", "v");
  if (!set || !set->rows) return attn_null("select", "rows");
  if (!out || !out->runs) return attn_null("select", "runs");
  if (!out->counts) return attn_null("select", "counts");
  attn_status status = attn_plan_inspect(plan, &view);
  if (status) return status;
  const attn_context *c = attn_plan_context(plan);
  const attn_problem *p = c->problem;
  const attn_selector *x = view.residual ? view.residual->selector : view.selector;
  if (!x) return attn_fail(ATTN_EUNSUPPORTED, "variant %s: selects no keys", c->variant->name);
  if ((status = check_rows(p, set))) return status;
  const attn_call call = {.context = c,
                          .q = in->q,
                          .k = in->k,
                          .v = in->v,
                          .kv_len = in->kv_len,
                          .extra = in->extra,
                          .extras = in->extras};
  if ((status = attn_extras_check(&x->index, &call))) return status;
  attn_arena arena = {.allocator = attn_allocator_libc};
  attn_carver room = {0};
  attn_picks_carve(x, attn_selection_rows(p, x), &room);
  asked a = {.x = x,
             .call = &call,
             .prepared = attn_arena_alloc(&arena, 1, x->prepared_bytes + 64),
             .scratch = attn_arena_alloc(&arena, 1, x->scratch_bytes + 64),
             .place = attn_arena_alloc(&arena, x->order ? p->n_q : 1, sizeof(int64_t))};
  room = (attn_carver){.base = attn_arena_alloc(&arena, 1, room.used + 64)};
  fenv_t outer;
  attn_float_enter(&outer);
  if (!a.prepared || !a.scratch || !a.place || !room.base) status = ATTN_ENOMEM;
  if (!status) a.own = attn_picks_carve(x, attn_selection_rows(p, x), &room);
  if (!status && x->prepare)
    x->prepare(x->state, &call, set->batch, set->head / (p->heads / p->kv_heads), a.prepared, a.scratch);
  if (!status) status = select_rows(&a, set, out);
  attn_float_leave(&outer);
  attn_arena_free(&arena);
  return status;
}

/* picked_engine.c - the engine of picked rows: of each head, in fp64, the weights that attn_low_rank.picked
 * makes of the rows that the variant picks. A (batch, head) is one thread's. */
#include "core/engines/lowrank/picked_head.h"

#include <omp.h>
#include <string.h>

/* The rows that may be picked, or the clusters that there may be. */
static int64_t most_of(const attn_low_rank *x, int64_t n_q, int64_t keys) {
  const int64_t of = x->picked == ATTN_PICKED_CLUSTERS ? n_q
                     : x->picked == ATTN_PICKED_KEYS   ? keys
                                                       : n_q + keys;
  return attn_min(x->rank, of);
}

/* A head of `keys` keys, as much as the problem has of them for sizes. */
static picked_head head_at(const attn_context *c, const attn_low_rank *x, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const int64_t row = attn_padded(p->d_v + 1, ATTN_F64);
  picked_head h = {.context = c,
                   .law = x,
                   .wide = attn_kernels_f64(c->kernels),
                   .n_q = p->n_q,
                   .keys = p->n_kv,
                   .d = p->d_qk,
                   .d_v = p->d_v,
                   .v_row = row,
                   .most = most_of(x, p->n_q, p->n_kv),
                   .q = attn_carve(carver, p->n_q + p->n_kv, p->d_qk, sizeof(double)),
                   .v = attn_carve(carver, p->n_kv, row, sizeof(double)),
                   .o = attn_carve(carver, p->n_q, row, sizeof(double))};
  h.picked = attn_carve(carver, attn_max(p->n_q, h.most), 1, sizeof(int64_t));
  h.scratch = attn_carve(carver, 1, 1, x->scratch);
  attn_carver space = {.base = NULL};
  if (x->picked == ATTN_PICKED_CLUSTERS)
    picked_clusters_room(&h, &space);
  else
    picked_points_room(&h, &space);
  h.space = attn_carve(carver, 1, 1, space.used);
  return h;
}

static size_t head_bytes(const attn_context *c, const attn_low_rank *x) {
  attn_carver counter = attn_carver_count(c);
  head_at(c, x, &counter);
  return counter.used;
}

static bool accepts(const attn_parts *p) { return attn_parts_kinds(p) == ATTN_PART_PICKED; }

static attn_status work_size(const attn_context *c, const attn_parts *p, size_t *bytes) {
  attn_carver counter = attn_carver_count(c);
  attn_carve_slices(&counter, c->threads, head_bytes(c, &p->low_rank));
  *bytes = counter.used;
  return ATTN_OK;
}

static attn_status plan(attn_builder *b, const attn_parts *p, void **state) {
  (void)b;
  *state = (void *)(uintptr_t)&p->low_rank;
  return ATTN_OK;
}

static void widen(const void *x, attn_stride s, int64_t rows, int64_t d, attn_dtype t, double *to,
                  int64_t to_row) {
  for (int64_t i = 0; i < rows; i++)
    attn_numbers[attn_stored(s, t)].load(attn_row_behind(x, s, i, t), d, to + i * to_row);
}

/* Are the picked rows some of those that there are? */
static bool is_sound(const picked_head *h, int64_t count) {
  const bool clusters = h->law->picked == ATTN_PICKED_CLUSTERS;
  const int64_t most = most_of(h->law, h->n_q, h->keys), end = clusters ? count
                                                               : h->law->picked == ATTN_PICKED_KEYS
                                                                   ? h->keys
                                                                   : h->n_q + h->keys;
  if (count < clusters || count > most) return false;
  for (int64_t i = 0; i < (clusters ? h->n_q : count); i++)
    if (h->picked[i] < 0 || h->picked[i] >= end) return false;
  return true;
}

static bool attend(const attn_call *call, const attn_low_rank *x, int64_t batch, int64_t head, void *work) {
  const attn_problem *p = call->context->problem;
  const int64_t kv_head = head / (p->heads / p->kv_heads);
  attn_carver carver = attn_carver_at(call, work);
  picked_head h = head_at(call->context, x, &carver);
  h.keys = attn_call_keys(call, batch);
  h.k = h.q + h.n_q * h.d;
  memset(h.o, 0, (size_t)(h.n_q * h.v_row) * sizeof *h.o);
  memset(h.v, 0, (size_t)(h.keys * h.v_row) * sizeof *h.v); /* rows are read to their ends */
  memset(h.picked, -1, (size_t)attn_max(h.n_q, h.most) * sizeof *h.picked);
  widen(attn_rows(call->q, p->q, batch, head, p->dtype), p->q, h.n_q, h.d, p->dtype, h.q, h.d);
  widen(attn_rows(call->k, p->k, batch, kv_head, p->dtype), p->k, h.keys, h.d, p->dtype, h.k, h.d);
  widen(attn_rows(call->v, p->v, batch, kv_head, p->dtype), p->v, h.keys, h.d_v, p->dtype, h.v, h.v_row);
  if (h.keys > 0) {
    const attn_picked_head seen = {h.n_q, h.keys, h.d, h.q, h.k};
    const int64_t count = x->pick(x->state, call->context, &seen, h.picked, h.scratch);
    if (!is_sound(&h, count)) return false;
    if (x->picked == ATTN_PICKED_CLUSTERS)
      picked_clusters(&h, count);
    else
      picked_points(&h, count);
  }
  for (int64_t i = 0; i < h.n_q; i++)
    for (int64_t l = 0; l < h.d_v; l++)
      attn_set(attn_row(call->o, p->o, batch, head, i, p->dtype), l, attn_stored(p->o, p->dtype),
               attn_rounded(h.o[i * h.v_row + l], p->dtype));
  return true;
}

static attn_status execute(const void *state, const attn_call *call) {
  const attn_low_rank *x = state;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  attn_carver carver = attn_carver_at(call, call->work);
  const attn_slices rooms = attn_carve_slices(&carver, c->threads, head_bytes(c, x));
  bool sound = true;
#pragma omp parallel for num_threads(c->threads) schedule(dynamic, 1)
  for (int64_t task = 0; task < p->batch * p->heads; task++) {
    fenv_t outer;
    attn_float_enter(&outer);
    if (!attend(call, x, task / p->heads, task % p->heads, attn_slice(rooms, omp_get_thread_num()))) {
#pragma omp atomic write
      sound = false;
    }
    attn_float_leave(&outer);
  }
  return sound ? ATTN_OK
               : attn_fail(ATTN_EFOREIGN, "variant %s: low_rank.pick gives rows that there are not",
                           c->variant->name);
}

const attn_engine attn_engine_picked = {
    "picked",
    accepts,
    {.work_size = work_size,
     .plan = plan,
     .execute = execute,
     .no_gradient = "the derivative of weights among picked rows is not written"}};

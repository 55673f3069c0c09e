/* settled.c - keys and values of which a query reads the older ones as a store keeps them, and the newest as
 * they are given (attn_settled): where rows of a tile differ in a step of keys, the step is taken once in
 * each way, by the rows that read so. */
#include "core/engines/softmax/softmax.h"

enum { K, V };

softmax_rows_read attn_softmax_read(const softmax_task *t, unsigned way) {
  const attn_problem *p = t->call->context->problem;
  const attn_settled *s = t->call->settled;
  const int64_t kv_head = t->head / (p->heads / p->kv_heads);
  softmax_rows_read x = {t->k, t->v, p->k, p->v};
  if (way >> K & 1) x.k = attn_rows(s->k, s->k_at, t->batch, kv_head, p->dtype), x.k_at = s->k_at;
  if (way >> V & 1) x.v = attn_rows(s->v, s->v_at, t->batch, kv_head, p->dtype), x.v_at = s->v_at;
  return x;
}

/* Before which keys row r of the tile reads stored ones. */
static void find_ends(const softmax_task *t, int64_t r, int64_t *end) {
  const attn_settled *s = t->call->settled;
  const int64_t at = attn_problem_position(&t->problem, t->tile->rows[r]);
  end[K] = s->k ? attn_kv_coded(s->store, true, at, t->keys) : 0;
  end[V] = s->v ? attn_kv_coded(s->store, false, at, t->keys) : 0;
}

static unsigned way_of(const int64_t *end, int64_t key) {
  return (unsigned)(key < end[K]) << K | (unsigned)(key < end[V]) << V;
}

unsigned attn_softmax_way(const softmax_task *t, int64_t r, int64_t key) {
  int64_t end[2];
  if (!t->call->settled) return 0;
  find_ends(t, r, end);
  return way_of(end, key);
}

unsigned attn_softmax_ways(const softmax_task *t, const softmax_worker *w, int64_t count) {
  int64_t first = w->keys[0], last = first;
  unsigned some[2] = {0, 0}; /* of keys, of values: bit 0, some are as given, bit 1, some as stored */
  for (int64_t j = 1; j < count; j++) {
    first = attn_min(first, w->keys[j]);
    last = attn_max(last, w->keys[j]);
  }
  for (int64_t r = 0; r < t->tile->row_count; r++) {
    int64_t end[2];
    find_ends(t, r, end);
    for (int i = K; i <= V; i++) some[i] |= (end[i] <= last ? 1u : 0) | (end[i] > first ? 2u : 0);
  }
  return (some[V] & 1 ? some[K] : 0) | (some[V] & 2 ? some[K] << 2 : 0);
}

void attn_softmax_keep_way(const softmax_task *t, softmax_worker *w, int64_t row0, int64_t count,
                           unsigned way) {
  const int64_t lanes = attn_min(softmax_rows(t) - row0, t->s->shape.kernels->lanes);
  for (int64_t lane = 0; lane < lanes; lane++) {
    int64_t end[2];
    find_ends(t, (row0 + lane) % t->tile->row_count, end);
    for (int64_t j = 0; j < count; j++)
      if (way_of(end, w->keys[j]) != way) w->mask[j] &= ~(UINT64_C(1) << lane);
  }
}

/* selected.c - which rows of a tile take which of the keys that were selected for them, in ascending order,
 * and a step of them at a time to the kernels. */
#include "core/engines/softmax/selected.h"

#include <string.h>

selected_keys attn_selected_carve(const attn_selector *x, int64_t rows, int64_t step, attn_carver *carver) {
  return (selected_keys){.picks = attn_picks_carve(x, rows, carver),
                         .next = attn_carve(carver, rows, 1, sizeof(int64_t)),
                         .begin = attn_carve(carver, rows, 1, sizeof(int64_t)),
                         .end = attn_carve(carver, rows, 1, sizeof(int64_t)),
                         .seen = attn_carve(carver, step + 1, 1, sizeof(uint64_t)),
                         .taken = attn_carve(carver, step / 64 + 1, 1, sizeof(uint64_t))};
}

/* The keys that all rows of a tile see: *begin ... *end - 1. */
static void whole_span(const selected_keys *s, int64_t rows, int64_t keys, int64_t *begin, int64_t *end) {
  *begin = 0;
  *end = keys;
  for (int64_t i = 0; i < rows; i++) {
    *begin = attn_max(*begin, s->begin[i]);
    *end = attn_min(*end, s->end[i]);
  }
}

/* The rows of a mask that see the key, which not all rows see. */
static uint64_t seeing(const selected_keys *s, int64_t rows, int64_t key, uint64_t mask) {
  for (uint64_t left = mask; left; left &= left - 1) {
    const int64_t at = __builtin_ctzll(left);
    if (key < s->begin[at % rows] || key >= s->end[at % rows]) mask ^= left & (0 - left);
  }
  return mask;
}

/* A bit for row i of a tile in each head that shares. */
static uint64_t row_bits(const softmax_task *t, int64_t i) {
  uint64_t bits = 0;
  for (int64_t at = i; at < softmax_rows(t); at += t->tile->row_count) bits |= UINT64_C(1) << at;
  return bits;
}

/* Which rows take the keys first ... end - 1, as bits in s->seen: where the keys of each row begin and end,
 * then their sums. Few: key by key, so that most keys are not looked at; s->seen is 0 before, and s->taken
 * names the keys. */
static void mark(const attn_selector *x, const softmax_task *t, int64_t first, int64_t end, bool few,
                 selected_keys *s) {
  if (few)
    memset(s->taken, 0, (size_t)((end - first) / 64 + 1) * sizeof *s->taken);
  else
    memset(s->seen, 0, (size_t)(end - first + 1) * sizeof *s->seen);
  for (int64_t i = 0; i < t->tile->row_count; i++) {
    const attn_run *runs = s->picks.runs + i * x->max_runs;
    const uint64_t bits = row_bits(t, i);
    for (; s->next[i] < s->picks.counts[i] && runs[s->next[i]].first < end; s->next[i]++) {
      const attn_run *run = &runs[s->next[i]];
      const int64_t from = attn_max(run->first, first) - first,
                    past = attn_min(run->first + run->count, end) - first;
      for (int64_t at = from; few && at < past; at++) {
        s->seen[at] |= bits;
        s->taken[at / 64] |= UINT64_C(1) << at % 64;
      }
      if (!few) {
        s->seen[from] ^= bits;
        s->seen[past] ^= bits;
      }
      if (run->first + run->count > end) break;
    }
  }
  for (int64_t key = first + 1; key < end && !few; key++) s->seen[key - first] ^= s->seen[key - first - 1];
}

/* The processor does not see the next of selected keys coming. */
static void prefetch_key(const softmax_task *t, int64_t key) {
  const attn_problem *p = t->call->context->problem;
  const attn_dtype k = attn_stored(p->k, p->dtype), v = attn_stored(p->v, p->dtype);
  attn_prefetch_row(attn_at(t->k, key * p->k.row, k), p->d_qk, k);
  attn_prefetch_row(attn_at(t->v, key * p->v.row, v), p->d_v, v);
}

/* Hands on a key for the rows of a mask, with those before it once a step is full. Returns how many wait. */
static int64_t take_key(const softmax_task *t, softmax_worker *w, int64_t key, uint64_t mask, int64_t count) {
  w->keys[count] = key;
  w->mask[count++] = mask;
  if (count < t->s->shape.blocks.key) return count;
  attn_softmax_take(t, w, w->tiles, count);
  return 0;
}

/* Where rows select for themselves. A step ends where its keys do. */
static void take_own(const attn_selector *x, const softmax_task *t, selected_keys *s, softmax_worker *w) {
  const int64_t step = t->s->shape.blocks.key, rows = t->tile->row_count;
  const bool few = x->max_keys && x->max_keys < t->keys / rows;
  int64_t whole_begin, whole_end;
  whole_span(s, rows, t->keys, &whole_begin, &whole_end);
  if (few) memset(s->seen, 0, (size_t)step * sizeof *s->seen);
  for (int64_t first = 0, end; first < t->keys; first = end) {
    int64_t count = 0;
    end = attn_min(first + step, t->keys);
    mark(x, t, first, end, few, s);
    for (int64_t at = 0; at < end - first; at++) {
      if (few) {
        const uint64_t left = s->taken[at / 64] >> at % 64;
        at = left ? at + __builtin_ctzll(left) : at | 63;
        if (!left) continue;
      }
      const int64_t key = first + at;
      uint64_t mask = s->seen[at];
      if (few) s->seen[at] = 0;
      if (key < whole_begin || key >= whole_end) mask = seeing(s, rows, key, mask);
      if (mask) count = take_key(t, w, key, mask, count);
    }
    if (count) attn_softmax_take(t, w, w->tiles, count);
  }
}

/* Where rows share a selection: its runs are walked, and no key between them is looked at. */
static void take_shared(const softmax_task *t, selected_keys *s, softmax_worker *w) {
  const int64_t rows = t->tile->row_count;
  const uint64_t all = ~UINT64_C(0) >> (64 - rows);
  int64_t whole_begin, whole_end, count = 0;
  whole_span(s, rows, t->keys, &whole_begin, &whole_end);
  for (int64_t r = 0; r < s->picks.counts[0]; r++) {
    const attn_run *run = &s->picks.runs[r];
    const int64_t end = attn_min(run->first + run->count, t->keys);
    for (int64_t key = run->first; key < end; key++) {
      const uint64_t mask = key < whole_begin || key >= whole_end ? seeing(s, rows, key, all) : all;
      if (!mask) continue;
      prefetch_key(t, key);
      count = take_key(t, w, key, mask, count);
    }
  }
  if (count) attn_softmax_take(t, w, w->tiles, count);
}

void attn_selected_take(const attn_selector *x, const softmax_task *t, selected_keys *s, softmax_worker *w) {
  if (t->picks->shared) {
    take_shared(t, s, w);
    return;
  }
  memset(s->next, 0, (size_t)t->tile->row_count * sizeof *s->next);
  take_own(x, t, s, w);
}

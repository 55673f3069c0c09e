/* drawn_small.c - the smallest problems: each length with each of the heads, batches, masks and paddings. A
 * covering array of pairs leaves most of these out, and faults that need three things at once with them. */
#include "experiments/conformance/drawn.h"

static const int64_t lengths[][2] = {{1, 1}, {2, 2}, {3, 3}, {2, 5}, {8, 8}},
                     heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {4, 4}};
enum { LENGTHS = 5, HEADS = 4, BATCHES = 2, WIDTH = 4 };

/* One of all, by its place among them. */
static problem problem_at(int64_t place, int64_t paddings) {
  problem p = problem_plain();
  int64_t *v = p.value;
  v[FIELD_LATER] = place / 3 % 2;
  v[FIELD_PADDING] = place % paddings;
  place /= paddings;
  v[FIELD_CAUSAL] = place % 2;
  v[FIELD_BATCH] = 1 + place / 2 % BATCHES;
  const int64_t *h = heads[place / 2 / BATCHES % HEADS], *n = lengths[place / 2 / BATCHES / HEADS];
  v[FIELD_HEADS] = h[0];
  v[FIELD_KV_HEADS] = h[1];
  v[FIELD_N_Q] = n[0];
  v[FIELD_N_KV] = n[1];
  v[FIELD_D] = v[FIELD_D_V] = WIDTH;
  return p;
}

static bool is_in(const drawn_scope *s, const problem *p) {
  const int64_t *v = p->value;
  return (s->caps & ATTN_CAP_CAUSAL || !v[FIELD_CAUSAL]) &&
         (s->caps & ATTN_CAP_CROSS || v[FIELD_N_Q] == v[FIELD_N_KV]) &&
         (s->groups || v[FIELD_HEADS] == v[FIELD_KV_HEADS]);
}

int64_t drawn_small(const drawn_scope *s, problem to[DRAWN_SMALL]) {
  const int64_t paddings = s->caps & ATTN_CAP_PADDING ? PADDINGS : 1,
                all = LENGTHS * HEADS * BATCHES * 2 * paddings;
  int64_t count = 0;
  for (int64_t i = 0; s->in_turn && i < all; i++) {
    to[count] = problem_at(i, paddings);
    count += is_in(s, &to[count]);
  }
  return count;
}

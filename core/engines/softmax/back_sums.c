/* back_sums.c - dK and dV of the slices of each kv head, added in order, slice 0 in the caller's tensors.
 * Sums begin when their keys are met: a slice of a narrow pattern neither clears nor adds up the others. */
#include "core/engines/softmax/backward.h"

#include <string.h>

enum { MET_KEYS = 64 }; /* whose sums begin at once */

/* The sums of a slice of a kv head: slice 0 has the caller's tensors, the others stand one behind the other
 * in `partial`. */
static void *sums_of(void *whole, char *partial, const attn_problem *p, int64_t slices, int64_t line,
                     int64_t slice, int64_t d) {
  const size_t bytes = attn_row_bytes(p->n_kv * d, p->dtype);
  if (!whole) return NULL;
  return slice ? partial + (size_t)(line * (slices - 1) + slice - 1) * bytes
               : (char *)whole + (size_t)line * bytes;
}

static int64_t met_blocks(const attn_problem *p) { return attn_ceil_div(p->n_kv, MET_KEYS); }

static bool *met_of(const softmax_sums *s, const attn_problem *p, int64_t line, int64_t slice) {
  return s->met + (line * s->slices + slice) * met_blocks(p);
}

static size_t partial_bytes(const attn_problem *p, int64_t slices, int64_t d) {
  return attn_size_times((size_t)(p->batch * p->kv_heads * (slices - 1)),
                         attn_size_times((size_t)p->n_kv, attn_row_bytes(d, p->dtype)));
}

softmax_sums attn_softmax_sums_carve(const attn_problem *p, int64_t slices, attn_carver *carver) {
  return (softmax_sums){.slices = slices,
                        .k = attn_carve(carver, 1, 1, partial_bytes(p, slices, p->d_qk)),
                        .v = attn_carve(carver, 1, 1, partial_bytes(p, slices, p->d_v)),
                        .met =
                            attn_carve(carver, p->batch * p->kv_heads * slices, met_blocks(p), sizeof(bool))};
}

void attn_softmax_sums_begin(const softmax_sums *s, const attn_problem *p, int64_t line, int64_t slice,
                             softmax_back *b) {
  b->dk = sums_of(b->of->dk, s->k, p, s->slices, line, slice, p->d_qk);
  b->dv = sums_of(b->of->dv, s->v, p, s->slices, line, slice, p->d_v);
  b->met = met_of(s, p, line, slice);
  memset(b->met, 0, (size_t)met_blocks(p) * sizeof *b->met);
}

/* The sums of keys first ... end - 1 begin. */
static void clear_sums(const softmax_back *b, const attn_problem *p, int64_t first, int64_t end) {
  if (b->dk)
    memset(attn_at(b->dk, first * p->d_qk, p->dtype), 0, attn_row_bytes((end - first) * p->d_qk, p->dtype));
  if (b->dv)
    memset(attn_at(b->dv, first * p->d_v, p->dtype), 0, attn_row_bytes((end - first) * p->d_v, p->dtype));
}

void attn_softmax_sums_meet(const softmax_back *b, const attn_problem *p, const int64_t *keys,
                            int64_t count) {
  for (int64_t j = 0; j < count; j++) {
    const int64_t block = keys[j] / MET_KEYS;
    if (b->met[block]) continue;
    b->met[block] = true;
    clear_sums(b, p, block * MET_KEYS, attn_min((block + 1) * MET_KEYS, p->n_kv));
  }
}

/* Those of a block of keys. */
static void add_slices(const softmax_sums *s, const attn_call *call, int64_t line, int64_t block, void *whole,
                       char *partial, int64_t d, double scale) {
  const attn_problem *p = call->context->problem;
  const attn_kernels *k = call->context->kernels;
  if (!whole) return;
  const int64_t first = block * MET_KEYS * d, count = attn_min(MET_KEYS * d, p->n_kv * d - first);
  void *to = attn_at(sums_of(whole, partial, p, s->slices, line, 0, d), first, p->dtype);
  const void *sum = NULL;
  for (int64_t i = 0; i < s->slices; i++) {
    if (!met_of(s, p, line, i)[block]) continue;
    const void *own = attn_at(sums_of(whole, partial, p, s->slices, line, i, d), first, p->dtype);
    if (sum) k->combine_rows(count, 1, sum, 1, own, to);
    sum = sum ? to : own;
  }
  if (!sum)
    memset(to, 0, attn_row_bytes(count, p->dtype));
  else if (sum != to || scale != 1)
    k->scale_row(count, scale, sum, to);
}

void attn_softmax_sums_end(const softmax_sums *s, const attn_call *call, const attn_gradients *g) {
  const attn_problem *p = call->context->problem;
  const int64_t blocks = met_blocks(p);
#pragma omp for schedule(static)
  for (int64_t at = 0; at < p->batch * p->kv_heads * blocks; at++) {
    add_slices(s, call, at / blocks, at % blocks, g->dk, s->k, p->d_qk, p->scale);
    add_slices(s, call, at / blocks, at % blocks, g->dv, s->v, p->d_v, 1);
  }
}

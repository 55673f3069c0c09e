/* bias_back.c - the gradients by what a problem adds to scores, from those dy of pairs. Heads come one after
 * the other, the queries of a head in slices that follow from the problem alone: no two threads meet at a
 * pair, and the sums over distances are those of the slices, in order; the bits are the same for any number
 * of threads. Of the softmax engine dy = p (dp - D), without the slope of a map. */
#include "core/engines/softmax/backward.h"

#include <string.h>

attn_status attn_biases_check(const attn_problem *p, const attn_gradients *g) {
  const attn_score *s = &p->score;
  const char *missing = g->drelative && !s->relative ? "relative"
                        : g->ddense && !s->dense.at  ? "dense"
                                                     : NULL;
  return missing ? attn_fail(ATTN_EINVAL, "backward: d%s, and the problem has no score.%s", missing, missing)
                 : ATTN_OK;
}

void attn_biases_clear(const attn_problem *p, const attn_gradients *g) {
  const attn_score *s = &p->score;
  const int64_t batch = s->dense.batch ? p->batch : 1, heads = s->dense.head ? p->heads : 1;
  if (g->drelative) memset(g->drelative, 0, (size_t)(s->relative_heads * s->span) * sizeof *g->drelative);
  if (g->ddense) memset(g->ddense, 0, (size_t)(batch * heads * p->n_q * p->n_kv) * sizeof *g->ddense);
}

attn_bias_sums attn_biases_carve(const attn_problem *p, int64_t heads, attn_carver *carver) {
  const attn_score *s = &p->score;
  const int64_t lines = s->relative_heads > 1 ? heads : 1;
  return (attn_bias_sums){
      .lines = lines,
      .relative = attn_carve(carver, s->relative ? ATTN_BIAS_SLICES * lines : 0, s->span, sizeof(double))};
}

void attn_biases_begin(const attn_bias_sums *s, const attn_problem *p) {
#pragma omp single
  if (p->score.relative)
    memset(s->relative, 0, (size_t)(ATTN_BIAS_SLICES * s->lines * p->score.span) * sizeof(double));
}

void attn_biases_add(const attn_bias_sums *s, const attn_problem *p, const attn_gradients *g, int64_t slice,
                     int64_t batch, int64_t first, int64_t head, int64_t i, int64_t key, double dy) {
  const attn_score *x = &p->score;
  if (g->drelative) {
    const int64_t line = slice * s->lines + (s->lines > 1 ? head - first : 0),
                  distance = attn_problem_position(p, i) - attn_key_position(p, key);
    s->relative[line * x->span + attn_min(attn_max(distance + x->zero, 0), x->span - 1)] += dy;
  }
  if (g->ddense) {
    const int64_t line =
        (x->dense.batch ? batch : 0) * (x->dense.head ? p->heads : 1) + (x->dense.head ? head : 0);
    g->ddense[(line * p->n_q + i) * p->n_kv + key] += dy;
  }
}

void attn_biases_end(const attn_bias_sums *s, const attn_problem *p, const attn_gradients *g, int64_t first,
                     int64_t heads) {
  const int64_t span = p->score.span, lines = p->score.relative_heads > 1 ? heads : 1, row = s->lines * span;
#pragma omp for schedule(static)
  for (int64_t at = 0; at < (g->drelative ? lines * span : 0); at++) {
    double *to = g->drelative + (p->score.relative_heads > 1 ? first * span : 0) + at;
    for (int64_t slice = 0; slice < ATTN_BIAS_SLICES; slice++) {
      *to += s->relative[slice * row + at];
      s->relative[slice * row + at] = 0;
    }
  }
}

void attn_softmax_back_biases(const softmax_task *t, const softmax_back *b, const attn_step *step,
                              const int64_t *keys, int64_t group, int64_t first, int64_t rows) {
  const attn_dtype dtype = t->call->context->problem->dtype;
  for (int64_t lane = first; lane < first + rows; lane++) {
    const int64_t at = group * ATTN_LANES + lane, head = t->head + at / t->tile->row_count,
                  i = t->tile->rows[at % t->tile->row_count];
    const double delta = attn_get(b->delta, at, dtype);
    for (int64_t j = 0; j < step->count; j++) {
      if (step->mask && !(step->mask[j] >> lane & 1)) continue;
      const double weight = attn_get(b->scores, j * ATTN_LANES + lane, dtype),
                   product = attn_get(b->products, j * ATTN_LANES + lane, dtype);
      attn_biases_add(b->biases, &t->problem, b->of, b->slice, t->batch, b->first_head, head, i, keys[j],
                      weight * (product - delta));
    }
  }
}

/* transform.c - see transform.h. */
#include "experiments/reference/transform.h"

#include <math.h>

static int64_t dense_place(const attn_problem *p, int64_t batch, int64_t head, int64_t i) {
  const attn_bias *b = &p->score.dense;
  return batch * b->batch + head * b->head + i * b->row;
}

static const double *relative_of(const attn_score *s, int64_t head) {
  return s->relative + (s->relative_heads > 1 ? head * s->span : 0);
}

transformed transform_score(const attn_problem *p, int64_t batch, int64_t head, int64_t i, int64_t j,
                            double t) {
  const attn_score *s = &p->score;
  transformed x = {.score = t};
  if (s->softcap > 0) {
    x.score = s->softcap * tanh(t / s->softcap);
    x.map = fabs(x.score);
  }
  if (s->leaky > 0 && t < 0) {
    x.score = s->leaky * t;
    x.units = fabs(x.score);
  }
  if (!s->relative && !s->dense.at) return x;
  if (s->relative) {
    int64_t at = attn_problem_position(p, i) - j + s->zero;
    if (at < 0) at = 0;
    if (at >= s->span) at = s->span - 1;
    x.score += relative_of(s, head)[at];
    x.bias = fabs(relative_of(s, head)[at]);
    x.units += 3 * x.bias;
  }
  if (s->dense.at) {
    const double b = attn_get(s->dense.at, dense_place(p, batch, head, i) + j, s->dense.dtype);
    x.score += b;
    x.bias += fabs(b);
    x.units += 5 * fabs(b);
  }
  x.units += 2 * fabs(x.score);
  return x;
}

void transform_weigh(transformed *x, double log_weight) {
  x->score += log_weight;
  x->bias += fabs(log_weight);
  x->units += 3 * fabs(log_weight) + x->bias + 2 * fabs(x->score);
}

bool transform_any(const attn_problem *p) {
  const attn_score *s = &p->score;
  return s->softcap > 0 || s->leaky > 0 || s->relative || s->dense.at || s->sink;
}

double transform_most(const attn_problem *p, int64_t batch, int64_t head, int64_t i) {
  const attn_score *s = &p->score;
  double relative = 0, dense = 0;
  for (int64_t at = 0; s->relative && at < s->span; at++)
    relative = fmax(relative, fabs(relative_of(s, head)[at]));
  for (int64_t j = 0; s->dense.at && j < p->n_kv; j++) {
    const double b = attn_get(s->dense.at, dense_place(p, batch, head, i) + j, s->dense.dtype);
    if (isfinite(b)) dense = fmax(dense, fabs(b));
  }
  return fmax(relative + dense, s->sink ? fabs(s->sink[head]) : 0);
}

double transform_reference_map(const attn_problem *p) { return p->score.softcap > 0 ? 0x1p-50 : 0; }

void transform_clear(attn_problem *p) {
  p->score = (attn_score){.softcap = 0};
  p->mask = (attn_mask){.kind = ATTN_MASK_NONE};
}

void transform_one_head(attn_problem *p, int64_t batch, int64_t head) {
  attn_score *s = &p->score;
  p->batch = p->heads = p->kv_heads = 1;
  if (s->relative) {
    s->relative = relative_of(s, head);
    s->relative_heads = 1;
  }
  if (s->dense.at) {
    s->dense.at = attn_at(s->dense.at, batch * s->dense.batch + head * s->dense.head, s->dense.dtype);
    s->dense.batch = s->dense.head = 0;
  }
  if (s->sink) s->sink += head;
}

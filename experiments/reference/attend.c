/* attend.c - exact rows. A block of keys is transposed, so that the scores of a row are a sum of contiguous
 * rows of it: a loop over keys that compilers vectorise without changing the order of any sum. */
#include "experiments/reference/attend.h"

#include "experiments/reference/transform.h"
#include "experiments/reference/visible.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 64, TOGETHER = 4 };

/* Doubles of a block of keys or values, with a row of q and of sums. */
static size_t block_room(const attn_problem *p) {
  return (size_t)(BLOCK * (p->d_qk > p->d_v ? p->d_qk : p->d_v) + BLOCK + p->d_qk);
}

size_t attend_scratch(const attn_problem *p) {
  const size_t runs = (size_t)visible_most_runs(NULL, p) * sizeof(attn_run),
               marks = (size_t)p->n_kv * sizeof(bool);
  return block_room(p) + (runs + marks) / sizeof(double) + 2;
}

/* kt[d][BLOCK] from keys first ... first + count - 1. */
static void transpose(const void *keys, int64_t stride, int64_t d, attn_dtype t, int64_t first, int64_t count,
                      double *kt) {
  for (int64_t j = 0; j < count; j++)
    for (int64_t l = 0; l < d; l++) kt[l * BLOCK + j] = attn_get(keys, (first + j) * stride + l, t);
}

/* score[j] = scale sum_l q_l kt[l][j], the sum in order of l. */
static void score_block(const double *q, const double *kt, int64_t d, double scale, int64_t count,
                        double *sum, double *score) {
  int64_t l = 0;
  memset(sum, 0, BLOCK * sizeof *sum);
  for (; l + TOGETHER <= d; l += TOGETHER) {
    const double *k = kt + l * BLOCK, a = q[l], b = q[l + 1], c = q[l + 2], e = q[l + 3];
    for (int64_t j = 0; j < BLOCK; j++)
      sum[j] = (((sum[j] + a * k[j]) + b * k[BLOCK + j]) + c * k[2 * BLOCK + j]) + e * k[3 * BLOCK + j];
  }
  for (; l < d; l++)
    for (int64_t j = 0; j < BLOCK; j++) sum[j] += q[l] * kt[l * BLOCK + j];
  for (int64_t j = 0; j < count; j++) score[j] = scale * sum[j];
}

static void scores(const attend_rows *x, const void *queries, const void *keys, double *scratch) {
  const attn_problem *p = x->problem;
  double *kt = scratch, *sum = kt + BLOCK * p->d_qk, *q = sum + BLOCK;
  memset(kt, 0, (size_t)(BLOCK * p->d_qk) * sizeof *kt);
  for (int64_t first = 0; first < x->exist; first += BLOCK) {
    bool loaded = false;
    for (int64_t r = 0; r < x->count; r++) {
      int64_t left = x->keys[x->at[r]] - first, count = left < BLOCK ? left : BLOCK;
      if (count <= 0) continue;
      if (!loaded) {
        int64_t there = x->exist - first < BLOCK ? x->exist - first : BLOCK;
        transpose(keys, p->k.row, p->d_qk, p->dtype, first, there, kt);
        loaded = true;
      }
      for (int64_t l = 0; l < p->d_qk; l++) q[l] = attn_get(queries, x->row[r] * p->q.row + l, p->dtype);
      score_block(q, kt, p->d_qk, p->scale, count, sum, x->p + x->at[r] * p->n_kv + first);
    }
  }
}

/* How many keys row i sees, and which. */
static int64_t mark(const attend_rows *x, int64_t i, double *scratch, const bool **inside) {
  attn_run *runs = (attn_run *)(void *)scratch;
  bool *marks = (bool *)(void *)(runs + visible_most_runs(NULL, x->problem));
  *inside = marks;
  return visible_mark(NULL, x->problem, x->batch, x->head, i, x->exist, runs, marks);
}

/* What the problem makes of the scores p[0 ... seen - 1] of row i, -Inf for a key that it masks. Returns how
 * many keys it leaves. */
static int64_t transform(const attend_rows *x, int64_t i, int64_t seen, double *scratch, double *p) {
  const bool *inside;
  const int64_t count = mark(x, i, scratch, &inside);
  for (int64_t j = 0; j < seen; j++)
    p[j] = inside[j] ? transform_score(x->problem, x->batch, x->head, i, j, p[j]).score : -(double)INFINITY;
  return count;
}

/* In place, over the row's sink (or NULL), too, which has all weight of a row without keys. */
static void softmax(int64_t seen, int64_t n, const double *sink, double *p, double *of_sink) {
  double top = -(double)INFINITY, sum = 0;
  *of_sink = sink != NULL;
  for (int64_t j = seen; j < n; j++) p[j] = 0;
  if (seen == 0) return;
  for (int64_t j = 0; j < seen; j++) top = p[j] > top ? p[j] : top;
  if (sink && *sink > top) top = *sink;
  for (int64_t j = 0; j < seen; j++) sum += p[j] = exp(p[j] - top);
  if (sink) sum += *of_sink = exp(*sink - top);
  for (int64_t j = 0; j < seen; j++) p[j] /= sum;
  if (sink) *of_sink /= sum;
}

/* o += sum_j p[j] v[j][], in order of j. */
static void add_block(const double *p, const double *v, int64_t count, int64_t d, double *o) {
  int64_t j = 0;
  for (; j + TOGETHER <= count; j += TOGETHER) {
    const double *x = v + j * d, a = p[j], b = p[j + 1], c = p[j + 2], e = p[j + 3];
    for (int64_t l = 0; l < d; l++)
      o[l] = (((o[l] + a * x[l]) + b * x[d + l]) + c * x[2 * d + l]) + e * x[3 * d + l];
  }
  for (; j < count; j++)
    for (int64_t l = 0; l < d; l++) o[l] += p[j] * v[j * d + l];
}

/* The same of a row from which a mask hides some of the keys, whose values are not all finite: 0 times those
 * is NaN. */
static void add_seen(const attend_rows *x, int64_t i, const double *p, int64_t first, int64_t count,
                     double *scratch, double *o) {
  const int64_t d = x->problem->d_v;
  const bool *inside;
  mark(x, i, scratch + block_room(x->problem), &inside);
  for (int64_t j = 0; j < count; j++)
    if (inside[first + j]) add_block(p + j, scratch + j * d, 1, d, o);
}

static void outputs(const attend_rows *x, const void *values, bool masked, double *block) {
  const attn_problem *p = x->problem;
  for (int64_t first = 0; first < x->exist; first += BLOCK) {
    int64_t there = x->exist - first < BLOCK ? x->exist - first : BLOCK;
    bool loaded = false, finite = true;
    for (int64_t r = 0; r < x->count; r++) {
      int64_t left = x->keys[x->at[r]] - first, count = left < BLOCK ? left : BLOCK;
      if (count <= 0) continue;
      for (int64_t j = 0; j < there && !loaded; j++)
        for (int64_t l = 0; l < p->d_v; l++) {
          block[j * p->d_v + l] = attn_get(values, (first + j) * p->v.row + l, p->dtype);
          finite = finite && isfinite(block[j * p->d_v + l]);
        }
      loaded = true;
      const double *weights = x->p + x->at[r] * p->n_kv + first;
      double *o = x->o + x->at[r] * p->d_v;
      if (finite || !masked)
        add_block(weights, block, count, p->d_v, o);
      else
        add_seen(x, x->row[r], weights, first, count, block, o);
    }
  }
}

void attend(const attend_rows *x, double *scratch) {
  const attn_problem *p = x->problem;
  int64_t kv_head = x->head / (p->heads / p->kv_heads);
  for (int64_t r = 0; r < x->count; r++) {
    x->keys[x->at[r]] = visible_keys(p, x->row[r], x->exist);
    memset(x->o + x->at[r] * p->d_v, 0, (size_t)p->d_v * sizeof *x->o);
  }
  scores(x, attn_rows(x->q, p->q, x->batch, x->head, p->dtype),
         attn_rows(x->k, p->k, x->batch, kv_head, p->dtype), scratch);
  const double *sink = p->score.sink ? p->score.sink + x->head : NULL;
  const bool masked = transform_any(p) || p->mask.kind != ATTN_MASK_NONE;
  for (int64_t r = 0; r < x->count; r++) {
    const int64_t at = x->at[r];
    double *row = x->p + at * p->n_kv;
    if (masked && transform(x, x->row[r], x->keys[at], scratch + block_room(p), row) == 0) x->keys[at] = 0;
    softmax(x->keys[at], p->n_kv, sink, row, &x->sink[at]);
  }
  outputs(x, attn_rows(x->v, p->v, x->batch, kv_head, p->dtype), masked, scratch);
}

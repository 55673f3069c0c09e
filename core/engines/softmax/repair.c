/* repair.c - an infinite value under a weight that is 0.
 *
 * The textbook row in fp64 has 0 * Inf = NaN where exp(s_j - m) is 0. A running maximum is not m yet: it
 * takes the value while its weight is positive, and rescaling an infinite sum never makes it NaN. So the
 * infinite outputs of a finished tile are examined again with the maximum of all keys. No finite sum is
 * infinite because of this, so nothing else changes. */
#include "core/engines/softmax/softmax.h"

#include <math.h>
#include <string.h>

void attn_softmax_clip_runs(const softmax_task *t, softmax_worker *w) {
  const attn_softmax *s = t->s;
  const attn_problem *p = &t->problem;
  for (int64_t r = 0; r < t->tile->row_count; r++) {
    attn_run *runs = w->runs + r * s->max_runs;
    int64_t count;
    if (t->picks) {
      const int64_t at = t->picks->shared ? 0 : r;
      memcpy(runs, t->picks->of->runs + at * s->max_runs, (size_t)t->picks->of->counts[at] * sizeof *runs);
      count = attn_picks_clip(p, t->tile->rows[r], runs, t->picks->of->counts[at]);
    } else {
      count = attn_pattern_row(s->dense ? NULL : &s->pattern, p, t->head, t->tile->rows[r], runs);
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
      attn_run run = runs[i];
      const bool positions = run.step > 1 && p->positions.key;
      if (!positions && run.first >= t->keys) continue;
      if (!positions && run.first + (run.count - 1) * run.step >= t->keys)
        run.count = (t->keys - run.first - 1) / run.step + 1;
      runs[kept++] = run;
    }
    w->run_count[r] = kept;
  }
}

static bool sees(const softmax_task *t, const softmax_worker *w, int64_t row, int64_t key) {
  const attn_run *run = w->runs + row * t->s->max_runs;
  for (int64_t r = 0; r < w->run_count[row]; r++, run++) {
    const int64_t after = (run->step > 1 ? attn_key_position(&t->problem, key) : key) - run->first;
    if (after >= 0 && after % run->step == 0 && after / run->step < run->count) return true;
  }
  return false;
}

static double score(const attn_problem *p, const void *q, const void *k, attn_dtype of_k) {
  const attn_dtype of_q = attn_stored(p->q, p->dtype);
  double sum = 0;
  for (int64_t l = 0; l < p->d_qk; l++) sum += attn_get(q, l, of_q) * attn_get(k, l, of_k);
  return sum * p->scale;
}

static void judge_key(const softmax_task *t, const softmax_worker *w, const attn_tile *tile, int64_t row0,
                      uint64_t infinite, int64_t key) {
  const attn_problem *p = &t->problem;
  for (int64_t r = 0; r < tile->rows; r++) {
    if (!(infinite >> r & 1)) continue;
    const int64_t of = (row0 + r) % t->tile->row_count;
    const softmax_rows_read x = attn_softmax_read(t, attn_softmax_way(t, of, key));
    const attn_dtype of_k = attn_stored(x.k_at, p->dtype), of_v = attn_stored(x.v_at, p->dtype);
    const void *k = attn_at(x.k, key * x.k_at.row, of_k), *v = attn_at(x.v, key * x.v_at.row, of_v);
    if (attn_all_finite(v, 0, 1, p->d_v, of_v) || !sees(t, w, of, key)) continue;
    const int64_t at = row0 + r, head = t->head + at / t->tile->row_count,
                  i = t->tile->rows[at % t->tile->row_count];
    if (attn_score_hides(p, t->batch, head, i, key)) continue;
    const double s = attn_score_of(p, t->batch, head, i, key, score(p, w->q[at], k, of_k));
    if (s * ATTN_LOG2E - attn_get(tile->max, r, p->dtype) >= ATTN_EXP_ZERO) continue;
    void *o = w->o[row0 + r];
    for (int64_t l = 0; l < p->d_v; l++)
      if (isinf(attn_get(v, l, of_v)) && isinf(attn_get(o, l, p->dtype)))
        attn_set(o, l, p->dtype, (double)NAN);
  }
}

void attn_softmax_repair(const softmax_task *t, softmax_worker *w, const attn_tile *tile, int64_t row0,
                         uint64_t infinite) {
  attn_softmax_clip_runs(t, w);
  for (int64_t key = 0; t->placed && key < t->keys; key++) judge_key(t, w, tile, row0, infinite, key);
  for (int64_t i = 0; i < (t->placed ? 0 : t->tile->segment_count); i++) {
    const softmax_segment *s = &t->tile->segments[i];
    for (int64_t j = 0; j < s->count && s->first + j * s->step < t->keys; j++)
      judge_key(t, w, tile, row0, infinite, s->first + j * s->step);
  }
}

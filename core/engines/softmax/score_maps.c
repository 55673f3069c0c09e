/* score_maps.c - attn_problem.score for the kernels of the softmax engine: maps and biases in units of log 2,
 * sinks as a first key of value 0.
 *
 * A bias of the distance is one table a head over position - key: the queries of a tile that stand side by
 * side read a slice of it for every key. Other biases are gathered for each step, and so are the log-weights
 * of selected keys. */
#include "core/engines/softmax/softmax.h"

#include <math.h>
#include <string.h>

attn_status attn_softmax_score(attn_builder *b, softmax_score *out) {
  const attn_problem *p = b->context.problem;
  const attn_score *s = &p->score;
  softmax_score x = {.map = {s->softcap * ATTN_LOG2E, s->leaky},
                     .mapped = s->softcap > 0 || s->leaky > 0,
                     .biased = s->relative || s->dense.at};
  if (s->relative) {
    /* Lanes behind the last query read on. */
    x.relative_row = p->n_q + p->n_kv - 1 + ATTN_LANES;
    x.relative = attn_builder_alloc(b, s->relative_heads * x.relative_row, attn_dtype_size(p->dtype));
    if (!x.relative) return ATTN_ENOMEM;
    for (int64_t h = 0; h < s->relative_heads; h++)
      for (int64_t i = 0; i < x.relative_row; i++) {
        const int64_t at = attn_min(attn_max(i - (p->n_q - 1) + s->zero, 0), s->span - 1);
        attn_set(x.relative, h * x.relative_row + i, p->dtype, s->relative[h * s->span + at] * ATTN_LOG2E);
      }
  }
  *out = x;
  return ATTN_OK;
}

/* The biases of the distance of a row and of the keys of a step where positions are the call's, of which the
 * table has not all. */
static void add_relative(const softmax_task *t, softmax_worker *w, int64_t row, int64_t lane, int64_t count) {
  const attn_problem *p = &t->problem;
  const attn_score *s = &p->score;
  const int64_t head = t->head + row / t->tile->row_count,
                position = attn_problem_position(p, t->tile->rows[row % t->tile->row_count]);
  const double *relative = s->relative + (s->relative_heads > 1 ? head : 0) * s->span;
  for (int64_t j = 0; j < count; j++) {
    const int64_t at =
        attn_min(attn_max(position - attn_key_position(p, w->keys[j]) + s->zero, 0), s->span - 1);
    void *bias = attn_at(w->biases, j * ATTN_LANES, p->dtype);
    attn_set(bias, lane, p->dtype, attn_get(bias, lane, p->dtype) + relative[at] * ATTN_LOG2E);
  }
}

/* Where the biases of a row stand in the table: that of key j at -j. */
static const void *relative_of(const softmax_task *t, int64_t at) {
  const attn_problem *p = t->call->context->problem;
  const softmax_score *s = &t->s->score;
  const int64_t head = t->head + at / t->tile->row_count, i = t->tile->rows[at % t->tile->row_count];
  const int64_t line = p->score.relative_heads > 1 ? head * s->relative_row : 0;
  return attn_at(s->relative, line + i + p->n_kv - 1, p->dtype);
}

/* Do the rows of one head stand side by side? */
static bool side_by_side(const softmax_tile *tile, int64_t row0, int64_t rows) {
  const int64_t first = row0 % tile->row_count;
  if (first + rows > tile->row_count) return false;
  for (int64_t r = 1; r < rows; r++)
    if (tile->rows[first + r] != tile->rows[first] + r) return false;
  return true;
}

void attn_softmax_bias(const softmax_task *t, softmax_worker *w, int64_t row0, int64_t count) {
  const attn_problem *p = t->call->context->problem;
  const attn_score *s = &p->score;
  const int64_t rows = attn_min(softmax_rows(t) - row0, t->s->shape.kernels->lanes);
  const bool placed = attn_call_placed(t->call);
  if (!s->dense.at && !placed && side_by_side(t->tile, row0, rows)) {
    const void *first = relative_of(t, row0);
    for (int64_t j = 0; j < count; j++) w->bias[j] = attn_at(first, -w->keys[j], p->dtype);
    return;
  }
  attn_bias_lanes lanes = {.rows = rows, .dtype = s->dense.dtype};
  for (int64_t r = 0; r < rows; r++) {
    const int64_t at = row0 + r, head = t->head + at / t->tile->row_count,
                  i = t->tile->rows[at % t->tile->row_count];
    if (s->relative && !placed) lanes.relative[r] = relative_of(t, at);
    if (s->dense.at)
      lanes.dense[r] = attn_at(
          s->dense.at, t->batch * s->dense.batch + head * s->dense.head + i * s->dense.row, s->dense.dtype);
  }
  t->call->context->kernels->bias_block(&lanes, count, w->keys, w->biases, w->mask);
  for (int64_t r = 0; s->relative && placed && r < rows; r++) add_relative(t, w, row0 + r, r, count);
  for (int64_t j = 0; j < count; j++) w->bias[j] = attn_at(w->biases, j * ATTN_LANES, p->dtype);
}

/* The biases of a key's lanes, which are written to: those of the problem, or 0. */
static void *own_biases(const softmax_task *t, softmax_worker *w, int64_t j) {
  const attn_dtype type = t->call->context->problem->dtype;
  const size_t bytes = ATTN_LANES * attn_dtype_size(type);
  void *own = attn_at(w->biases, j * ATTN_LANES, type);
  if (!t->s->score.biased)
    memset(own, 0, bytes);
  else if (w->bias[j] != own)
    memcpy(own, w->bias[j], bytes);
  w->bias[j] = own;
  return own;
}

/* The first run of a selection that does not end before a key. */
static int64_t run_at(const attn_picks *x, int64_t row, int64_t key) {
  const attn_run *runs = x->runs + row * x->max_runs;
  int64_t r = 0, end = x->counts[row];
  while (r < end) {
    const int64_t middle = r + (end - r) / 2;
    if (runs[middle].first + runs[middle].count <= key)
      r = middle + 1;
    else
      end = middle;
  }
  return r;
}

/* Of a selection that all rows share, where the problem has no biases: keys of one weight have one line of
 * lanes. */
static void weigh_alike(const softmax_task *t, softmax_worker *w, int64_t count) {
  const attn_dtype type = t->call->context->problem->dtype;
  const attn_picks *x = t->picks->of;
  int64_t r = run_at(x, 0, w->keys[0]);
  double last = (double)NAN;
  for (int64_t j = 0; j < count; j++) {
    while (x->runs[r].first + x->runs[r].count <= w->keys[j]) r++;
    const double bias = x->log_weights[r] * ATTN_LOG2E;
    void *line = attn_at(w->biases, j * ATTN_LANES, type);
    if (bias >= last && bias <= last) {
      w->bias[j] = w->bias[j - 1];
      continue;
    }
    t->call->context->kernels->fill_row(ATTN_LANES, bias, line);
    w->bias[j] = line;
    last = bias;
  }
}

void attn_softmax_weigh(const softmax_task *t, softmax_worker *w, int64_t row0, int64_t count) {
  const attn_dtype type = t->call->context->problem->dtype;
  const int64_t lanes = attn_min(softmax_rows(t) - row0, t->s->shape.kernels->lanes);
  const softmax_picks *picks = t->picks;
  if (picks->shared && !t->s->score.biased) {
    if (row0 == 0) weigh_alike(t, w, count); /* and for the rows after these */
    return;
  }
  for (int64_t j = 0; j < count; j++) own_biases(t, w, j);
  for (int64_t lane = 0; lane < (picks->shared ? 1 : lanes); lane++) {
    const int64_t row = picks->shared ? 0 : (row0 + lane) % t->tile->row_count;
    const attn_run *runs = picks->of->runs + row * picks->of->max_runs;
    const double *weights = picks->of->log_weights + row * picks->of->max_runs;
    int64_t r = run_at(picks->of, row, w->keys[0]);
    for (int64_t j = 0; j < count; j++) {
      if (!picks->shared && !(w->mask[j] >> lane & 1)) continue;
      while (runs[r].first + runs[r].count <= w->keys[j]) r++;
      const double bias = weights[r] * ATTN_LOG2E;
      void *to = attn_at(w->biases, j * ATTN_LANES, type);
      for (int64_t l = lane; l < (picks->shared ? lanes : lane + 1); l++)
        attn_set(to, l, type, attn_get(to, l, type) + bias);
    }
  }
}

void attn_softmax_sink(const softmax_task *t, attn_tile *tiles) {
  const attn_problem *p = t->call->context->problem;
  const int64_t lanes = t->s->shape.kernels->lanes;
  for (int64_t at = 0; p->score.sink && at < softmax_rows(t); at++) {
    const attn_tile *tile = &tiles[at / lanes];
    attn_set(tile->max, at % lanes, p->dtype, p->score.sink[t->head + at / t->tile->row_count] * ATTN_LOG2E);
    attn_set(tile->sum, at % lanes, p->dtype, 1);
  }
}

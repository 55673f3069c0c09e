/* recurrent_pairs_back.c - pairs of the keys of a chunk and of the rows that ask the state, and what decays
 * and angles have of them (recurrent_chunk_back.c has the formulas). Decays and angles of key t lie between
 * all j < t <= i. With f what the state holds and g the gradient by it, as f = k_j and g the sum of x_i,
 *   d ln a_l = g_l f_l, or their sum,   d angle_l = g_m f_l - g_l f_m, m = l + turns. */
#include "core/engines/recurrent/recurrent_back.h"

#include <float.h>
#include <string.h>

typedef recurrent_shape shape;
typedef recurrent_line line;
typedef recurrent_chunk_room room;
typedef recurrent_readers readers;
enum { STEP = ATTN_RECURRENT_STEP };

/* What decays have, or, before the difference, angles. */
typedef struct fall {
  void *rows; /* of positions */
  int64_t width;
  bool turned;
} fall;

static fall fall_of(const shape *s, const room *r, bool turned) {
  return turned ? (fall){r->bends, s->p->d_qk, true} : (fall){r->falls, recurrent_width(s), false};
}

/* Keys of the chunk that row i sees. */
static int64_t seen_by(const readers *q, const line *x, int64_t i) {
  return attn_min(q->from + i + !q->strict, x->count);
}

void attn_recurrent_score_readers(const shape *s, const room *r, const line *x, const readers *q) {
  const int64_t d = s->p->d_qk;
  recurrent_room at = r->own;
  for (int64_t i = 0; i < q->rows && x->count; i += STEP) {
    const int64_t rows = attn_min(STEP, q->rows - i), last = attn_min(q->from + i + rows, x->count);
    if (!s->rule->columns) at.scores = at.own = recurrent_row(s, q->pairs, i, s->chunk_row);
    attn_recurrent_scores(s, &at, x, !q->strict, (attn_matrix){recurrent_row(s, q->x, i, d), d, 1},
                          q->from + i, rows, last);
    for (int64_t l = i; l < i + rows; l++)
      memset(attn_at(q->pairs, l * s->chunk_row + seen_by(q, x, l), s->t), 0,
             (size_t)(x->count - seen_by(q, x, l)) * attn_dtype_size(s->t));
  }
}

/* Rows that are multiplied at once: a zero must not multiply what is not finite, or squares to no number.
 * Rows are padded with 0. */
static int64_t step_of(const shape *s, const void *x, int64_t row, int64_t rows) {
  return s->simd->dot_row(rows * row, x, x) <= DBL_MAX ? STEP : 1;
}

void attn_recurrent_give_keys(const shape *s, const line *x, const readers *q, const void *pairs,
                              const void *y, int64_t row, int64_t columns, void *out) {
  const int64_t step = step_of(s, y, row, q->rows);
  for (int64_t j = 0; j < x->count; j += step) {
    const int64_t first = attn_max(0, j + q->strict - q->from);
    if (first >= q->rows) return;
    attn_product(s->simd, attn_min(step, x->count - j), columns, q->rows - first,
                 (attn_matrix){attn_at(pairs, first * s->chunk_row + j, s->t), 1, s->chunk_row},
                 recurrent_row(s, y, first, row), row, true, recurrent_row(s, out, j, row), row);
  }
}

/* dx += pairs k */
static void give_readers(const shape *s, const room *r, const line *x, const readers *q) {
  const int64_t d = s->p->d_qk, step = step_of(s, r->keys, d, x->count);
  for (int64_t i = 0; i < q->rows; i += step) {
    const int64_t rows = attn_min(step, q->rows - i);
    attn_product(s->simd, rows, d, seen_by(q, x, i + rows - 1),
                 (attn_matrix){recurrent_row(s, r->products, i, s->chunk_row), s->chunk_row, 1}, r->keys, d,
                 true, recurrent_row(s, q->dx, i, d), d);
  }
}

/* x += y, of `count` elements. */
static void add(const shape *s, int64_t count, const void *y, void *x) {
  s->simd->combine_rows(count, 1, x, 1, y, x);
}

/* Decays that are numbers: r->products, R, becomes R L. */
static void pair_numbers(const shape *s, room *r, const line *x, const readers *q, bool falls) {
  const int64_t n = s->chunk_row;
  for (int64_t i = 0; i < q->rows; i++) {
    const int64_t seen = seen_by(q, x, i), at = attn_min(q->from + i, x->count - 1);
    void *row = recurrent_row(s, r->products, i, n), *pairs = recurrent_row(s, q->pairs, i, n);
    if (falls) s->simd->multiply_row(seen, pairs, row, pairs);
    s->simd->multiply_row(seen, row, recurrent_row(s, r->own.between, at, n), row);
    memset(attn_at(row, seen, s->t), 0, (size_t)(x->count - seen) * attn_dtype_size(s->t));
  }
  give_readers(s, r, x, q);
  attn_recurrent_give_keys(s, x, q, r->products, q->x, s->p->d_qk, s->p->d_qk, r->dk);
  if (!falls) return;
  memset(r->sum, 0, (size_t)n * attn_dtype_size(s->t));
  for (int64_t t = attn_max(x->count, q->from + q->rows) - 1; t >= 0; t--) {
    const int64_t i = t - q->from;
    if (i >= 0 && i < q->rows) add(s, seen_by(q, x, i), recurrent_row(s, q->pairs, i, n), r->sum);
    if (t >= x->count) continue;
    attn_set(r->falls, t, s->t, attn_get(r->falls, t, s->t) + s->simd->weigh_row(t, r->sum, NULL, 0));
  }
}

/* r->arrived <- of r->products what comes to keys, multiplied by decays back to each position, where falls
 * have its products with keys as they stand there. Rows of all of them. */
static void arrive_back(const shape *s, room *r, const line *x, const readers *q, attn_matrix decays,
                        attn_matrix keys, void *falls) {
  const int64_t d = s->p->d_qk, n = s->chunk_row, behind = attn_max(0, q->from + q->rows - x->count),
                first = attn_max(0, q->rows - behind);
  attn_product(s->simd, x->count, d, q->rows - first,
               (attn_matrix){recurrent_row(s, r->products, first, n), 1, n}, recurrent_row(s, q->x, first, d),
               d, false, r->arrived, d);
  for (int64_t t = x->count - 1; t >= 0; t--) {
    const int64_t i = t - q->from;
    const bool asked = i >= 0 && i < q->rows;
    s->simd->decay_back(d, t, r->arrived, recurrent_row(s, decays.at, t, decays.row),
                        asked ? recurrent_row(s, r->products, i, n) : NULL,
                        asked ? recurrent_row(s, q->x, i, d) : NULL, recurrent_row(s, keys.at, t, keys.row),
                        falls ? recurrent_row(s, falls, t, d) : NULL);
  }
}

/* Decays that are vectors, of r->products, R: keys are decayed on to each position. */
static void pair_columns(const shape *s, room *r, const line *x, const readers *q, bool falls) {
  const int64_t d = s->p->d_qk, n = s->chunk_row;
  for (int64_t i = 0; i < q->rows; i++) {
    const int64_t seen = seen_by(q, x, i), at = attn_min(q->from + i, x->count - 1);
    attn_product(s->simd, 1, d, seen, (attn_matrix){recurrent_row(s, r->products, i, n), n, 1},
                 recurrent_row(s, r->decayed, at * s->chunk, d), d, true, recurrent_row(s, q->dx, i, d), d);
    if (q->strict) attn_set(r->products, i * n + seen, s->t, 0);
  }
  arrive_back(s, r, x, q, (attn_matrix){r->own.decays, d, 1}, (attn_matrix){r->decayed, s->chunk * d, 1},
              falls ? r->falls : NULL);
  add(s, x->count * d, r->arrived, r->dk);
}

/* r->decayed: the keys, decayed on to each position. */
static void decay_keys(const shape *s, room *r, const line *x) {
  const int64_t d = s->p->d_qk;
  const size_t row = (size_t)d * attn_dtype_size(s->t);
  for (int64_t t = 0; t < x->count && s->rule->columns; t++) {
    for (int64_t j = 0; j < t; j++)
      s->simd->multiply_row(d, recurrent_row(s, r->own.decays, t, d),
                            recurrent_row(s, r->decayed, (t - 1) * s->chunk + j, d),
                            recurrent_row(s, r->decayed, t * s->chunk + j, d));
    memcpy(recurrent_row(s, r->decayed, t * s->chunk + t, d), recurrent_row(s, r->keys, t, d), row);
  }
}

/* -- decays and angles -- */

/* to <- x, its halves swapped: pairs of elements that are turned. */
static void swap_row(const shape *s, const void *x, void *to) {
  const size_t e = attn_dtype_size(s->t), half = (size_t)s->rule->turns * e;
  memcpy(to, (const char *)x + half, half);
  memcpy((char *)to + half, x, half);
  memset((char *)to + 2 * half, 0, (size_t)s->p->d_qk * e - 2 * half);
}

/* r->sum += what a decay has of f and g. */
static void add_along(const shape *s, room *r, const fall *to, const void *f, const void *g) {
  const int64_t d = s->p->d_qk;
  if (to->turned) swap_row(s, f, r->scratch);
  if (to->width == 1 && !to->turned)
    attn_set(r->scratch, 0, s->t, s->simd->dot_row(d, f, g));
  else
    s->simd->multiply_row(d, to->turned ? r->scratch : f, g, r->scratch);
  add(s, to->width, r->scratch, r->sum);
}

/* Of the state before the chunk, and of keys, with what comes behind it. */
static void begin_falls(const shape *s, room *r, const line *x, const fall *to, const void *g) {
  const int64_t d = s->p->d_qk, d_v = s->p->d_v, turns = s->rule->turns, width = to->width;
  const bool sums = width == 1 && !to->turned;
  double all = 0;
  for (int64_t l = 0; l < d; l++) {
    const int64_t f = !to->turned ? l : l < turns ? l + turns : l < 2 * turns ? l - turns : l;
    const double one =
        s->simd->dot_row(d_v, recurrent_row(s, g, l, s->v_row), recurrent_row(s, r->own.sums, f, s->v_row));
    all = sums ? all + one : one;
    attn_set(r->sum, sums ? 0 : l, s->t, r->own.whole[s->rule->columns ? l : 0] * all);
  }
  for (int64_t t = 0; t < x->count; t++) {
    memcpy(recurrent_row(s, to->rows, t, width), r->sum, (size_t)width * attn_dtype_size(s->t));
    add_along(s, r, to, recurrent_row(s, r->keys, t, d), recurrent_row(s, r->dk, t, d));
  }
}

/* Of readers from each position on with the state before the chunk. */
static void add_falls(const shape *s, room *r, const line *x, const readers *q, const fall *to) {
  const int64_t d = s->p->d_qk, width = to->width;
  memset(r->sum, 0, (size_t)width * attn_dtype_size(s->t));
  for (int64_t t = attn_max(x->count, q->from + q->rows) - 1; t >= 0; t--) {
    const int64_t i = t - q->from;
    if (i >= 0 && i < q->rows)
      add_along(s, r, to, recurrent_row(s, q->dx, i, d), recurrent_row(s, q->x, i, d));
    if (t < x->count) add(s, width, r->sum, recurrent_row(s, to->rows, t, width));
  }
}

void attn_recurrent_begin_pairs(const shape *s, room *r, const line *x, const recurrent_gradients *h) {
  const int64_t d = s->p->d_qk;
  decay_keys(s, r, x);
  for (int turned = 0; h->of->dextra && turned <= (s->rule->turns > 0); turned++) {
    const fall to = fall_of(s, r, turned);
    begin_falls(s, r, x, &to, h->state);
  }
  for (int64_t j = 0; j < x->count && s->rule->turns; j++)
    swap_row(s, recurrent_row(s, r->keys, j, d), recurrent_row(s, r->swapped, j, d));
  if (s->rule->turns) s->simd->fill_row(d, 1, r->ones);
}

void attn_recurrent_back_pairs(const shape *s, room *r, const line *x, const readers *q, bool falls) {
  const int64_t d_v = s->p->d_v;
  for (int turned = 0; falls && turned <= (s->rule->turns > 0); turned++) {
    const fall to = fall_of(s, r, turned);
    add_falls(s, r, x, q, &to);
  }
  for (int64_t i = 0; i < q->rows; i += STEP) {
    const int64_t rows = attn_min(STEP, q->rows - i), seen = attn_min(q->from + i + rows, x->count);
    attn_product(s->simd, rows, seen, d_v, (attn_matrix){recurrent_row(s, q->up, i, s->v_row), s->v_row, 1},
                 r->written_columns, s->chunk_row, false, recurrent_row(s, r->products, i, s->chunk_row),
                 s->chunk_row);
  }
  (s->rule->columns ? pair_columns : pair_numbers)(s, r, x, q, falls);
  if (falls && s->rule->turns)
    arrive_back(s, r, x, q, (attn_matrix){r->ones, 0, 1}, (attn_matrix){r->swapped, 0, 1}, r->bends);
}

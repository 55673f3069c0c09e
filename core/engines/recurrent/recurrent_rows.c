/* recurrent_rows.c - what a chunk of the recurrent engine reads and writes (recurrent_engine.c has the
 * formulas): its keys and queries as products take them, U, and the state behind it. */
#include "core/engines/recurrent/recurrent.h"

#include <string.h>

typedef recurrent_shape shape;
typedef recurrent_room room;
typedef recurrent_line line;
enum { STEP = ATTN_RECURRENT_STEP };

room attn_recurrent_carve(const shape *s, attn_carver *carver) {
  const size_t e = attn_dtype_size(s->t);
  const attn_recurrence *x = s->rule;
  const int64_t n = s->chunk, d = s->p->d_qk, width = x->columns ? d : 1, scores = x->columns ? n : STEP,
                written = x->delta || s->apart || (x->betas && !x->carries) ? n : 0,
                turned = x->turns ? n : 0;
  room r = {.own_sums = attn_carve(carver, d, s->v_row, e),
            .between = attn_carve(carver, x->columns ? 0 : n, s->chunk_row, e),
            .transposed = attn_carve(carver, d, s->chunk_row, e),
            .scores = attn_carve(carver, scores, s->chunk_row, e),
            .own = attn_carve(carver, x->columns || x->delta ? scores : 0, s->chunk_row, e),
            .queries = attn_carve(carver, n, d, e),
            .keys = attn_carve(carver, s->p->k.stored || x->key_scale ? n : turned, d, e),
            .values = attn_carve(carver, n, s->v_row, e),
            .scaled = attn_carve(carver, n, d, e),
            .reads = attn_carve(carver, x->delta ? n : 0, s->v_row, e),
            .written = attn_carve(carver, written, s->v_row, e),
            .outputs = attn_carve(carver, s->p->o.stored || x->normalised ? n : 0, s->d_v, e),
            .logs = attn_carve(carver, n + 1, width, sizeof(double)),
            .erased = attn_carve(carver, s->vectors ? n : 0, d, e),
            .betas = attn_carve(carver, n + 1, s->betas, sizeof(double)),
            .before = attn_carve(carver, n, 1, sizeof(double)),
            .after = attn_carve(carver, n, 1, sizeof(double)),
            .row = attn_carve(carver, n + 1, 1, sizeof(double)),
            .weighted = attn_carve(carver, x->carries ? n : 0, 1, sizeof(double)),
            .angles = attn_carve(carver, x->turns, 1, sizeof(double)),
            .cosines = attn_carve(carver, turned, 2 * x->turns, e),
            .sines = attn_carve(carver, turned, 2 * x->turns, e),
            .swapped = attn_carve(carver, x->turns, 2, e),
            .turned = attn_carve(carver, x->turns ? 1 : 0, s->v_row, e),
            .whole = attn_carve(carver, width, 1, sizeof(double)),
            .decays = attn_carve(carver, x->columns ? n + 1 : 0, d, e),
            .before_rows = attn_carve(carver, x->columns ? n : 0, d, e),
            .row_scratch = attn_carve(carver, attn_max(d, s->d_v), 1, sizeof(double)),
            .made = -1};
  if (!s->betas) r.betas = NULL;
  return r;
}

/* to [rows, d_qk] <- x, each row times what `scale` says of its square; NULL: 1. */
static void scale_rows(const shape *s, double (*scale)(const void *, int64_t, double), int64_t rows,
                       attn_matrix x, void *to) {
  const int64_t d = s->p->d_qk;
  for (int64_t j = 0; j < rows; j++) {
    const void *from = attn_at(x.at, j * x.row, s->t);
    const double by = scale ? scale(s->rule->state, d, attn_square_row(s->simd, d, from)) : 1;
    attn_scale_row(s->simd, d, by, from, attn_at(to, j * d, s->t));
  }
}

static attn_matrix load_keys(const shape *s, room *r, const line *x) {
  const attn_problem *p = s->p;
  const int64_t d = p->d_qk;
  attn_matrix k = attn_load_rows(s->simd, attn_stored(p->k, s->t),
                                 attn_row(x->call->k, p->k, x->batch, x->kv_head, x->first, s->t), p->k.row,
                                 x->count, d, r->keys);
  if (!s->rule->key_scale && !s->rule->turns) return k;
  scale_rows(s, s->rule->key_scale, x->count, k, r->keys);
  attn_recurrent_turn_rows(s, r, x, 0, x->count, true, r->keys);
  return (attn_matrix){r->keys, d, 1};
}

/* y <- numbers . x; y may be x. scratch: [d] */
static void multiply_by(const shape *s, int64_t d, const double *numbers, const void *x, void *scratch,
                        void *y) {
  attn_convert(numbers, ATTN_F64, d, s->t, scratch);
  attn_multiply_row(s->simd, d, scratch, x, y);
}

/* Keys as the state is asked with them; but a number b is a factor of what is written. */
static attn_matrix erase_keys(const shape *s, room *r, const line *x, attn_matrix k) {
  const int64_t d = s->p->d_qk;
  if (!s->vectors) return k;
  for (int64_t j = 0; j < x->count; j++)
    multiply_by(s, d, r->betas + j * s->betas, attn_at(k.at, j * k.row, s->t), r->row_scratch,
                attn_at(r->erased, j * d, s->t));
  return (attn_matrix){r->erased, d, 1};
}

static attn_matrix load_values(const shape *s, room *r, const line *x) {
  const attn_problem *p = s->p;
  const void *v = attn_row(x->call->v, p->v, x->batch, x->kv_head, x->first, s->t);
  const attn_dtype stored = attn_stored(p->v, s->t);
  /* Values are read where they are, if they end where vectors do. */
  if (!s->vectors && !s->rule->normalised && stored == s->t &&
      p->d_v * (int64_t)attn_dtype_size(s->t) % 64 == 0)
    return (attn_matrix){v, p->v.row, 1};
  for (int64_t j = 0; j < x->count; j++) {
    void *to = attn_at(r->values, j * s->v_row, s->t);
    attn_load_row(s->simd, stored, p->d_v, attn_row_behind(v, p->v, j, s->t), to);
    if (s->vectors) multiply_by(s, p->d_v, r->betas + j * s->betas + p->d_qk, to, r->row_scratch, to);
    if (s->rule->normalised) attn_set(to, p->d_v, s->t, 1);
  }
  return (attn_matrix){r->values, s->v_row, 1};
}

/* Row i of U, when those before it stand. */
static void write_row(const shape *s, room *r, attn_matrix v, int64_t i, const void *own, int64_t from) {
  const int64_t d = s->d_v;
  void *reads = attn_at(r->reads, i * s->v_row, s->t), *to = attn_at(r->written, i * s->v_row, s->t);
  const double b = s->rule->betas == 1 ? r->betas[i * s->betas] : 1;
  attn_product(s->simd, 1, d, i - from, (attn_matrix){own, s->chunk_row, 1},
               attn_at(r->written, from * s->v_row, s->t), s->v_row, true, reads, s->v_row);
  s->simd->combine_rows(d, b, attn_at(v.at, i * v.row, s->t), -b, reads, to);
}

static void write_differences(const shape *s, room *r, const line *x, attn_matrix k, attn_matrix v) {
  const int64_t d = s->p->d_qk, d_v = s->d_v;
  attn_recurrent_decay_rows(s, r, x, 0, x->count, k, r->scaled);
  if (x->count == 1) { /* in the order of memory, from which a token's state comes */
    memset(r->reads, 0, (size_t)s->d_v * attn_dtype_size(s->t));
    for (int64_t l = 0; l < d; l++)
      s->simd->combine_rows(d_v, 1, r->reads, attn_get(r->scaled, l, s->t),
                            attn_at(r->sums, l * r->sums_row, s->t), r->reads);
  } else {
    attn_product(s->simd, x->count, d_v, d, (attn_matrix){r->scaled, d, 1}, r->sums, r->sums_row, false,
                 r->reads, s->v_row);
  }
  for (int64_t from = 0; from < x->count; from += STEP) {
    const int64_t rows = attn_min(STEP, x->count - from);
    const void *own = attn_recurrent_scores(
        s, r, x, false, (attn_matrix){attn_at(k.at, from * k.row, s->t), k.row, 1}, from, rows, from + rows);
    attn_product(s->simd, rows, d_v, from, (attn_matrix){own, s->chunk_row, 1}, r->written, s->v_row, true,
                 attn_at(r->reads, from * s->v_row, s->t), s->v_row);
    for (int64_t l = 0; l < rows; l++)
      write_row(s, r, v, from + l, attn_at(own, l * s->chunk_row + from, s->t), from);
  }
}

static recurrent_chunk write_chunk(const shape *s, room *r, const line *x, attn_matrix k, attn_matrix read) {
  const attn_matrix v = load_values(s, r, x), u = {r->written, s->v_row, 1};
  const bool scaled = s->rule->betas == 1 || s->apart;
  recurrent_chunk c = {.k = k, .read = read, .v = s->rule->delta || scaled ? u : v};
  if (s->rule->delta)
    write_differences(s, r, x, read, v);
  else
    for (int64_t j = 0; scaled && j < x->count; j++)
      attn_scale_row(s->simd, s->d_v,
                     s->apart ? attn_recurrent_later_weight(s, r, x, j) : r->betas[j * s->betas],
                     attn_at(v.at, j * v.row, s->t), attn_at(r->written, j * s->v_row, s->t));
  return c;
}

void attn_recurrent_load_queries(const shape *s, room *r, const line *x, int64_t from, int64_t first,
                                 int64_t count) {
  const attn_problem *p = s->p;
  attn_matrix q = attn_load_rows(s->simd, attn_stored(p->q, s->t),
                                 attn_row(x->call->q, p->q, x->batch, x->head, first, s->t), p->q.row, count,
                                 p->d_qk, r->queries);
  if (s->rule->query_scale) {
    scale_rows(s, s->rule->query_scale, count, q, r->queries);
    q = (attn_matrix){r->queries, p->d_qk, 1};
  }
  s->simd->scale_rows(count, p->d_qk, q.at, q.row, &p->scale, 0, r->queries);
  attn_recurrent_turn_rows(s, r, x, from, count, true, r->queries);
}

/* Row l of S in the type that it is stored in, and back. */
static void round_row(const shape *s, room *r, int64_t l) {
  void *row = attn_at(r->sums, l * r->sums_row, s->t);
  attn_convert(row, s->t, s->d_v, s->rule->stored, r->row_scratch);
  attn_convert(r->row_scratch, s->rule->stored, s->d_v, s->t, row);
}

void attn_recurrent_add_keys(const shape *s, room *r, const line *x, const recurrent_chunk *c) {
  const attn_problem *p = s->p;
  const bool columns = s->rule->columns;
  attn_recurrent_arrive_rows(s, r, x, c->k, r->scaled);
  if (x->count == 1) {
    for (int64_t l = 0; l < p->d_qk; l++) {
      void *row = attn_at(r->sums, l * r->sums_row, s->t);
      s->simd->combine_rows(s->d_v, r->whole[columns ? l : 0], row, attn_get(r->scaled, l, s->t), c->v.at,
                            row);
    }
  } else {
    s->simd->scale_rows(p->d_qk, r->sums_row, r->sums, r->sums_row, r->whole, columns ? 1 : 0, r->sums);
    attn_product(s->simd, p->d_qk, s->d_v, x->count, (attn_matrix){r->scaled, 1, p->d_qk}, c->v.at, c->v.row,
                 true, r->sums, r->sums_row);
  }
  attn_recurrent_turn_state(s, r, x, false, r->sums, r->sums_row);
  for (int64_t l = 0; l < p->d_qk && s->rule->rounds && x->count == s->rule->chunk; l++) round_row(s, r, l);
}

recurrent_chunk attn_recurrent_take_chunk(const shape *s, room *r, line *x, int64_t next, bool queries) {
  const int64_t shift = attn_recurrent_asks_at(s, x, 0), from = attn_max(x->first, shift),
                asked = queries ? attn_max(0, attn_min(next, shift + s->p->n_q) - from) : 0;
  x->count = attn_max(0, attn_min(next, x->keys) - x->first);
  attn_recurrent_gates(s, r, x);
  const attn_matrix k = load_keys(s, r, x);
  if (asked) attn_recurrent_load_queries(s, r, x, from - x->first, from - shift, asked);
  const attn_matrix read = erase_keys(s, r, x, k);
  attn_recurrent_take_keys(s, r, x, k, read, from - x->first, asked);
  recurrent_chunk c = write_chunk(s, r, x, k, read);
  c.from = from - x->first;
  c.first = from - shift;
  c.queries = asked;
  return c;
}

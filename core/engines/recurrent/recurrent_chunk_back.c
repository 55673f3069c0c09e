/* recurrent_chunk_back.c - the gradients of a chunk of keys and of the queries behind them, by products
 * (recurrent_back.h). Rows x_i that ask the state are readers: queries, c q_i, and under the delta rule keys,
 * b_i . k_i, which do not see themselves. With L_ij = A_i / A_j, S before the chunk, G the gradient by the
 * state behind it, y_i that by what a reader is told (of keys -du_i, or -b_i du_i), and R_ij = y_i.u_j,
 *   dx_i = A_i . S y_i + sum_j R_ij L_ij . k_j,   dk_j = A_C / A_j . G u_j + sum_i R_ij L_ij . x_i,
 *   du_j = G^T (A_C / A_j . k_j) + sum_i P_ij y_i,   P_ij = x_i.(L_ij . k_j),   from the last key on,
 *   G <- A_C . G + sum_i (A_i . x_i) y_i^T.
 * The decay of key t lies between all j < t <= i: d ln a_t is the sum of x_i . dx_i by S of the rows from t
 * on, of k_j . dk_j by G of the keys before it, of both, A_C . G . S, and of pairs x_i . R_ij L_ij . k_j; so
 * is that of its angle, of rows turned back to the chunk's beginning. Nothing is divided by a decay, nor are
 * sums subtracted: what has all but decayed is as exact as the rest.
 *
 * Where the key before enters once more, u_j = (w_j + e_j+1) v_j is what later queries read, and a key's own
 * is a pair apart, of weight w_j: dw_j = v_j.du_j and of that pair, de_j+1 = v_j.du_j.
 *
 * A chunk ends where a document does, so that no zero multiplies what another document holds. */
#include "core/engines/recurrent/recurrent_back.h"

#include <string.h>

typedef recurrent_shape shape;
typedef recurrent_line line;
typedef recurrent_chunk_room room;
typedef recurrent_readers readers;
enum { SEGMENT = ATTN_RECURRENT_SEGMENT, STEP = ATTN_RECURRENT_STEP };

room attn_recurrent_chunk_carve(const shape *s, attn_carver *c) {
  const size_t e = attn_dtype_size(s->t);
  const int64_t n = s->chunk, d = s->p->d_qk, d_v = s->p->d_v, asked = s->rule->delta ? n : 0,
                columns = s->rule->columns ? n : 0,
                states = attn_ceil_div(attn_min(SEGMENT, attn_max(1, s->p->n_kv)), n);
  room r = {.states = attn_carve(c, states, recurrent_state_size(s), e),
            .keys = attn_carve(c, n, d, e),
            .erased = attn_carve(c, asked, d, e),
            .decayed = attn_carve(c, n * columns, d, e),
            .arrived = attn_carve(c, s->rule->turns ? n : columns, d, e),
            .swapped = attn_carve(c, s->rule->turns ? n : 0, d, e),
            .bends = attn_carve(c, s->rule->turns ? n : 0, d, e),
            .ones = attn_carve(c, 1, d, e),
            .dq = attn_carve(c, n, d, e),
            .de = attn_carve(c, asked, d, e),
            .dk = attn_carve(c, n, d, e),
            .du = attn_carve(c, n, s->v_row, e),
            .up = attn_carve(c, n, s->v_row, e),
            .taken = attn_carve(c, asked, s->v_row, e),
            .pairs = attn_carve(c, s->rule->columns ? 0 : n, s->chunk_row, e),
            .own_pairs = attn_carve(c, s->rule->columns ? 0 : asked, s->chunk_row, e),
            .products = attn_carve(c, n, s->chunk_row, e),
            .falls = attn_carve(c, n, recurrent_width(s), e),
            .sum = attn_carve(c, 1, attn_max(s->chunk_row, d), e),
            .scratch = attn_carve(c, 1, attn_max(d, d_v), e),
            .state_columns = attn_carve(c, d_v, s->d_row, e),
            .gradient_columns = attn_carve(c, d_v, s->d_row, e),
            .written_columns = attn_carve(c, d_v, s->chunk_row, e),
            .own = attn_recurrent_carve(s, c)};
  const int64_t kept = attn_min(SEGMENT, attn_max(1, s->p->n_kv)) + 1;
  r.own.kept_logs = attn_carve(c, kept, recurrent_width(s), sizeof(double));
  r.own.kept_betas = s->betas ? attn_carve(c, kept, s->betas, sizeof(double)) : NULL;
  r.own.sums = r.own.own_sums;
  r.own.sums_row = s->v_row;
  return r;
}

/* -- a chunk -- */

/* dx of readers, what they give keys and decays, and G. */
static void back_readers(const shape *s, room *r, const line *x, const readers *q,
                         const recurrent_gradients *h) {
  const int64_t d = s->p->d_qk, d_v = s->p->d_v;
  attn_product(s->simd, q->rows, d, d_v, (attn_matrix){q->up, s->v_row, 1}, r->state_columns, s->d_row, false,
               r->own.scaled, d);
  attn_recurrent_decay_rows(s, &r->own, x, q->from, q->rows, (attn_matrix){r->own.scaled, d, 1}, q->dx);
  if (x->count) attn_recurrent_back_pairs(s, r, x, q, h->of->dextra);
  attn_recurrent_decay_rows(s, &r->own, x, q->from, q->rows, (attn_matrix){q->x, d, 1}, r->own.scaled);
  attn_product(s->simd, d, d_v, q->rows, (attn_matrix){r->own.scaled, 1, d}, q->up, s->v_row, true, h->state,
               s->v_row);
}

/* What is taken out of key i, less its sign, has the gradient -du_i times b: from the last key on. */
static void substitute(const shape *s, room *r, const line *x, const readers *keys) {
  const int64_t n = s->chunk_row, row = s->v_row, d_v = s->p->d_v;
  for (int64_t end = x->count, from; end > 0; end = from) {
    from = (end - 1) / STEP * STEP;
    attn_product(s->simd, end - from, d_v, x->count - end,
                 (attn_matrix){attn_at(keys->pairs, end * n + from, s->t), 1, n},
                 recurrent_row(s, r->taken, end, row), row, true, recurrent_row(s, r->du, from, row), row);
    for (int64_t i = end - 1; i >= from; i--) {
      void *du = recurrent_row(s, r->du, i, row);
      attn_product(s->simd, 1, d_v, end - 1 - i,
                   (attn_matrix){attn_at(keys->pairs, (i + 1) * n + i, s->t), 1, n},
                   recurrent_row(s, r->taken, i + 1, row), row, true, du, row);
      attn_scale_row(s->simd, d_v, s->rule->betas == 1 ? -r->own.betas[i] : -1, du,
                     recurrent_row(s, r->taken, i, row));
    }
  }
}

/* r->du, and r->dk by what comes behind the chunk. */
static void back_written(const shape *s, room *r, const line *x, const recurrent_chunk *c, const readers *q,
                         const readers *keys, const void *g) {
  const int64_t d = s->p->d_qk, d_v = s->p->d_v;
  attn_recurrent_arrive_rows(s, &r->own, x, (attn_matrix){r->keys, d, 1}, r->own.scaled);
  attn_product(s->simd, x->count, d_v, d, (attn_matrix){r->own.scaled, d, 1}, g, s->v_row, false, r->du,
               s->v_row);
  attn_recurrent_give_keys(s, x, q, q->pairs, q->up, s->v_row, d_v, r->du);
  if (s->rule->delta) substitute(s, r, x, keys);
  attn_product(s->simd, x->count, d, d_v, c->v, r->gradient_columns, s->d_row, false, r->own.scaled, d);
  attn_recurrent_arrive_rows(s, &r->own, x, (attn_matrix){r->own.scaled, d, 1}, r->dk);
}

/* dx <- by x: of f x the gradient, f = by times what `scale` says of its square. */
static void scale_back(const shape *s, double (*scale)(const void *, int64_t, double),
                       double (*slope)(const void *, int64_t, double), double by, const void *x, void *dx) {
  const int64_t d = s->p->d_qk;
  const double square = scale ? attn_square_row(s->simd, d, x) : 0;
  if (scale)
    s->simd->combine_rows(d, by * scale(s->rule->state, d, square), dx,
                          2 * by * slope(s->rule->state, d, square) * s->simd->dot_row(d, dx, x), x, dx);
  else
    attn_scale_row(s->simd, d, by, dx, dx);
}

/* Row j of the chunk's keys gives its gradients, to row i of the segment. */
static void give_key(const shape *s, room *r, const line *x, const recurrent_gradients *h, int64_t j,
                     int64_t i) {
  const attn_problem *p = s->p;
  const int64_t d = p->d_qk, d_v = p->d_v, width = recurrent_width(s), turns = s->rule->turns;
  const double *b = s->betas ? r->own.betas + j * s->betas : NULL;
  double *db = h->betas + i * s->betas;
  void *dk = recurrent_row(s, h->dk, i, d), *dv = recurrent_row(s, h->dv, i, d_v), *row = r->scratch,
       *de = recurrent_row(s, r->de, j, d), *du = recurrent_row(s, r->du, j, s->v_row);
  if (s->betas) recurrent_load(s, x->call->v, p->v, x, x->kv_head, x->first + j, d_v, row);
  if (s->rule->betas == 1 || s->apart)
    *db += s->simd->dot_row(d_v, row, du) -
           (s->rule->delta ? s->simd->dot_row(d_v, recurrent_row(s, r->own.reads, j, s->v_row), du) : 0);
  if (s->apart && i + 1 < SEGMENT && x->first + j + 1 < x->keys)
    db[s->betas + 1] = s->simd->dot_row(d_v, row, du);
  s->simd->combine_rows(d_v,
                        s->apart              ? attn_recurrent_later_weight(s, &r->own, x, j)
                        : s->rule->betas == 1 ? *b
                                              : 1,
                        du, 1, dv, dv);
  for (int64_t l = 0; l < d_v && s->vectors; l++) {
    db[d + l] = attn_get(row, l, s->t) * attn_get(du, l, s->t);
    attn_set(dv, l, s->t, b[d + l] * attn_get(du, l, s->t));
  }
  for (int64_t l = 0; l < d && s->vectors && s->rule->delta; l++) {
    db[l] = attn_get(r->keys, j * d + l, s->t) * attn_get(de, l, s->t);
    attn_set(de, l, s->t, b[l] * attn_get(de, l, s->t));
  }
  memcpy(dk, recurrent_row(s, r->dk, j, d), (size_t)d * attn_dtype_size(s->t));
  if (s->rule->delta) s->simd->combine_rows(d, 1, dk, 1, de, dk);
  attn_recurrent_turn_rows(s, &r->own, x, j, 1, false, dk);
  if (s->rule->key_scale) {
    recurrent_load(s, x->call->k, p->k, x, x->kv_head, x->first + j, d, row);
    scale_back(s, s->rule->key_scale, s->rule->key_slope, 1, row, dk);
  }
  if (!h->of->dextra || attn_document_begins(p, x->first + j)) return;
  attn_convert(recurrent_row(s, r->falls, j, width), s->t, width, ATTN_F64, h->logs + i * width);
  for (int64_t l = 0; l < turns; l++)
    db[s->rule->betas + l] =
        attn_get(r->bends, j * d + l + turns, s->t) - attn_get(r->bends, j * d + l, s->t);
}

/* The chunk's queries with their upstream gradients: zeros of those that read no state. */
static readers load_readers(const shape *s, room *r, const line *x, const recurrent_gradients *h,
                            const recurrent_chunk *c) {
  const int64_t d = s->p->d_qk;
  const size_t e = attn_dtype_size(s->t);
  void *pairs = s->rule->columns ? recurrent_row(s, r->own.scores, c->from, s->chunk_row) : r->pairs;
  for (int64_t i = 0; i < c->queries; i++) {
    void *up = recurrent_row(s, r->up, i, s->v_row);
    if (attn_recurrent_reads(s, x, c->first + i)) {
      memcpy(up, attn_row(h->of->d_o, h->of->d_o_at, x->batch, x->head, c->first + i, s->t),
             (size_t)s->p->d_v * e);
      continue;
    }
    memset(up, 0, (size_t)s->p->d_v * e);
    memset(recurrent_row(s, r->own.queries, i, d), 0, (size_t)d * e);
  }
  return (readers){r->own.queries, r->up, pairs, r->dq, c->from, c->queries, s->rule->carries};
}

static void give_query(const shape *s, room *r, const line *x, const recurrent_gradients *h,
                       const recurrent_chunk *c, int64_t i) {
  const attn_problem *p = s->p;
  const int64_t d = p->d_qk, row = (x->batch * p->heads + x->head) * p->n_q + c->first + i;
  void *dq = recurrent_row(s, r->dq, i, d);
  if (!attn_recurrent_reads(s, x, c->first + i)) return;
  attn_recurrent_turn_rows(s, &r->own, x, c->from + i, 1, false, dq);
  if (s->rule->query_scale) recurrent_load(s, x->call->q, p->q, x, x->head, c->first + i, d, r->scratch);
  scale_back(s, s->rule->query_scale, s->rule->query_slope, p->scale, r->scratch, dq);
  memcpy(recurrent_row(s, h->of->dq, row, d), dq, (size_t)d * attn_dtype_size(s->t));
}

/* Queries and the keys at their own positions. */
static void pair_own(const shape *s, room *r, const line *x, const recurrent_gradients *h, const readers *q,
                     const recurrent_chunk *c, int64_t i) {
  const int64_t d = s->p->d_qk, d_v = s->p->d_v;
  for (int64_t l = 0; l < q->rows && q->from + l < x->count; l++) {
    if (!attn_recurrent_reads(s, x, c->first + l)) continue;
    const int64_t j = q->from + l;
    const void *k = recurrent_row(s, r->keys, j, d), *row = recurrent_row(s, q->x, l, d),
               *up = recurrent_row(s, q->up, l, s->v_row);
    void *dq = recurrent_row(s, q->dx, l, d), *dk = recurrent_row(s, r->dk, j, d),
         *dv = recurrent_row(s, h->dv, i + j, d_v);
    recurrent_load(s, x->call->v, s->p->v, x, x->kv_head, x->first + j, d_v, r->scratch);
    const double w = r->own.betas[j * s->betas], score = s->simd->dot_row(d, row, k),
                 by = s->simd->dot_row(d_v, up, r->scratch);
    s->simd->combine_rows(d, 1, dq, w * by, k, dq);
    s->simd->combine_rows(d, 1, dk, w * by, row, dk);
    s->simd->combine_rows(d_v, 1, dv, w * score, up, dv);
    h->betas[(i + j) * s->betas] += score * by;
  }
}

/* Keys x->first ... next - 1; S stands as they meet it. */
static void back_chunk(const shape *s, room *r, line *x, const recurrent_gradients *h, int64_t first,
                       int64_t next) {
  const int64_t d = s->p->d_qk, d_v = s->p->d_v;
  const recurrent_chunk c = attn_recurrent_take_chunk(s, &r->own, x, next, true);
  const readers queries = load_readers(s, r, x, h, &c), keys = {s->vectors ? r->erased : r->keys,
                                                                r->taken,
                                                                s->rule->columns ? r->own.own : r->own_pairs,
                                                                r->de,
                                                                0,
                                                                x->count,
                                                                true};
  for (int64_t j = 0; j < x->count; j++) {
    memcpy(recurrent_row(s, r->keys, j, d), attn_at(c.k.at, j * c.k.row, s->t),
           (size_t)d * attn_dtype_size(s->t));
    if (s->vectors && s->rule->delta)
      memcpy(recurrent_row(s, r->erased, j, d), attn_at(c.read.at, j * c.read.row, s->t),
             (size_t)d * attn_dtype_size(s->t));
  }
  if (x->count) attn_recurrent_turn_state(s, &r->own, x, true, h->state, s->v_row);
  s->simd->transpose(d, d_v, r->own.sums, s->v_row, r->state_columns, s->d_row);
  s->simd->transpose(d, d_v, h->state, s->v_row, r->gradient_columns, s->d_row);
  s->simd->transpose(x->count, d_v, c.v.at, c.v.row, r->written_columns, s->chunk_row);
  attn_recurrent_score_readers(s, r, x, &queries);
  if (s->rule->delta) attn_recurrent_score_readers(s, r, x, &keys);
  back_written(s, r, x, &c, &queries, &keys, h->state);
  attn_recurrent_begin_pairs(s, r, x, h);
  s->simd->scale_rows(d, s->v_row, h->state, s->v_row, r->own.whole, s->rule->columns, h->state);
  back_readers(s, r, x, &queries, h);
  if (s->rule->delta) back_readers(s, r, x, &keys, h);
  if (s->rule->carries) pair_own(s, r, x, h, &queries, &c, x->first - first);
  if (attn_document_begins(s->p, x->first)) memset(h->state, 0, recurrent_state_bytes(s));
  for (int64_t i = 0; i < c.queries && h->of->dq; i++) give_query(s, r, x, h, &c, i);
  for (int64_t j = 0; j < x->count; j++) give_key(s, r, x, h, j, x->first - first + j);
}

/* -- a segment -- */

/* Where the chunk begins that ends behind a key. */
static int64_t chunk_begin(const shape *s, int64_t last) {
  while (last % s->chunk && !attn_document_begins(s->p, last)) last--;
  return last;
}

void attn_recurrent_pass_chunks(const shape *s, room *r, line *x, int64_t first, int64_t end, bool keep) {
  for (int64_t next = first; next < end;) {
    x->first = next;
    next = attn_recurrent_chunk_end(s, x->first, end);
    if (attn_document_begins(s->p, x->first)) memset(r->own.sums, 0, recurrent_state_bytes(s));
    if (keep && x->first % s->chunk == 0)
      memcpy(recurrent_state(s, r->states, (x->first - first) / s->chunk), r->own.sums,
             recurrent_state_bytes(s));
    if (keep && next == end) return;
    const recurrent_chunk c = attn_recurrent_take_chunk(s, &r->own, x, next, false);
    if (x->count) attn_recurrent_add_keys(s, &r->own, x, &c);
  }
}

/* The gradient by e of the segment's first key, by which the one before enters S. */
static void give_previous(const shape *s, room *r, const line *x, const recurrent_gradients *h,
                          int64_t first) {
  const attn_problem *p = s->p;
  const int64_t d = p->d_qk, d_v = p->d_v;
  if (!s->rule->carries || !first || first >= x->keys || attn_document_begins(p, first)) return;
  recurrent_load(s, x->call->k, p->k, x, x->kv_head, first - 1, d, r->scratch);
  const double by =
      s->rule->key_scale ? s->rule->key_scale(s->rule->state, d, attn_square_row(s->simd, d, r->scratch)) : 1;
  attn_product(s->simd, 1, d_v, d, (attn_matrix){r->scratch, d, 1}, h->state, s->v_row, false, r->du,
               s->v_row);
  recurrent_load(s, x->call->v, p->v, x, x->kv_head, first - 1, d_v, r->scratch);
  h->betas[1] = by * s->simd->dot_row(d_v, r->scratch, r->du);
}

void attn_recurrent_back_chunks(const shape *s, room *r, line *x, const recurrent_gradients *h, int64_t first,
                                int64_t end) {
  attn_recurrent_keep_gates(s, &r->own, *x, first, end);
  attn_recurrent_pass_chunks(s, r, x, first, end, true);
  for (int64_t next = end; next > first; next = x->first) {
    x->first = chunk_begin(s, next - 1);
    if (attn_document_begins(s->p, x->first))
      memset(r->own.sums, 0, recurrent_state_bytes(s));
    else
      memcpy(r->own.sums, recurrent_state(s, r->states, (x->first - first) / s->chunk),
             recurrent_state_bytes(s));
    back_chunk(s, r, x, h, first, next);
  }
  give_previous(s, r, x, h, first);
  r->own.kept = 0;
}

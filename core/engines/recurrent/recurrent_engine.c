/* recurrent_engine.c - the recurrent engine: of each query head a state S [d_qk, d_v], from 0,
 *   S' = diag(a_t) R_t S_t-1,  u_t = w_t . v_t, or w_t . v_t - S'^T (b_t . k_t),
 *   S_t = S' + k_t u_t^T,      o_t = c S_t^T q_t, or c S_t-1^T q_t
 * (Sun et al. 2023, arXiv:2307.08621, equations 5 to 7; Yang et al. 2023, arXiv:2312.06635, section 3; of the
 * delta rule Yang et al. 2024, arXiv:2406.06484, section 3).
 *
 * Keys are taken in chunks. With A_i = a_first ... a_i the rows of a chunk are
 *   M_ij = (b_i . k_i) . (A_i / A_j . k_j), j < i,   P_ij = c q_i . (A_i / A_j . k_j), j <= i
 *   U = W . V, or with delta W . V - (A . B . K) S - M U, by forward substitution   (P, M: recurrent_chunk.c)
 *   O = c (A . Q) S + P U,   S <- A_C . S + (A_C / A . K)^T U,
 * with keys and queries turned back to the chunk's beginning, and S on to its end.
 *
 * Positions without a key (padding) change nothing. A (batch, head) is one thread's: no result depends on the
 * number of threads, and chunks begin at key 0: none on how many keys come later. */
#include "core/engines/recurrent/recurrent.h"

#include <math.h>
#include <omp.h>
#include <string.h>

typedef recurrent_shape shape;
typedef recurrent_room room;
typedef recurrent_line line;
enum { STEP = ATTN_RECURRENT_STEP };

shape attn_recurrent_shape(const attn_context *c, const attn_recurrence *rule) {
  const attn_problem *p = c->problem;
  const int64_t chunk = attn_min(rule->chunk, attn_max(1, p->n_kv));
  return (shape){.c = c,
                 .p = p,
                 .simd = c->kernels,
                 .rule = rule,
                 .t = p->dtype,
                 .chunk = chunk,
                 .chunk_row = attn_padded(chunk, p->dtype),
                 .v_row = attn_padded(p->d_v + rule->normalised, p->dtype),
                 .d_v = p->d_v + rule->normalised,
                 .betas = rule->betas + rule->turns,
                 .vectors = rule->betas > 1 && !rule->carries};
}

static size_t row_bytes(const shape *s) { return (size_t)s->d_v * attn_dtype_size(s->t); }

static room carve(const shape *s, attn_carver *carver) {
  const size_t e = attn_dtype_size(s->t);
  const attn_recurrence *x = s->rule;
  const int64_t n = s->chunk, d = s->p->d_qk, width = x->columns ? d : 1, scores = x->columns ? n : STEP,
                written = x->delta || (x->betas && !x->carries) ? n : 0, turned = x->turns ? n : 0;
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

/* The chunk's keys, and what is written at them, as products take them. */
typedef struct chunk_rows {
  attn_matrix k, v;
  bool finite; /* what is written */
} chunk_rows;

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
  attn_recurrent_turn_rows(s, r, x, 0, x->count, r->keys);
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
    memset(r->reads, 0, row_bytes(s));
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

/* U, and whether it is finite. */
static chunk_rows write_chunk(const shape *s, room *r, const line *x, attn_matrix k, attn_matrix read) {
  const attn_matrix v = load_values(s, r, x), u = {r->written, s->v_row, 1};
  const bool scaled = s->rule->betas == 1;
  chunk_rows c = {.k = k, .v = s->rule->delta || scaled ? u : v};
  if (s->rule->delta)
    write_differences(s, r, x, read, v);
  else
    for (int64_t j = 0; scaled && j < x->count; j++)
      attn_scale_row(s->simd, s->d_v, r->betas[j * s->betas], attn_at(v.at, j * v.row, s->t),
                     attn_at(r->written, j * s->v_row, s->t));
  c.finite = attn_all_finite(c.v.at, c.v.row, x->count, s->d_v, s->t);
  return c;
}

/* The queries of the call from number `first` on, at positions `from` ... of the chunk, times the scale. */
static void load_queries(const shape *s, room *r, const line *x, int64_t from, int64_t first, int64_t count) {
  const attn_problem *p = s->p;
  attn_matrix q = attn_load_rows(s->simd, attn_stored(p->q, s->t),
                                 attn_row(x->call->q, p->q, x->batch, x->head, first, s->t), p->q.row, count,
                                 p->d_qk, r->queries);
  if (s->rule->query_scale) {
    scale_rows(s, s->rule->query_scale, count, q, r->queries);
    q = (attn_matrix){r->queries, p->d_qk, 1};
  }
  s->simd->scale_rows(count, p->d_qk, q.at, q.row, &p->scale, 0, r->queries);
  attn_recurrent_turn_rows(s, r, x, from, count, r->queries);
}

/* Queries at positions `from` ... of the chunk, number `first` ... of the call, against S, and against the
 * chunk's keys that they see. */
static void read_queries(const shape *s, room *r, const line *x, int64_t from, int64_t first, int64_t count,
                         const chunk_rows *c) {
  const attn_problem *p = s->p;
  const bool apart = p->o.stored || s->rule->normalised;
  void *o = attn_row(x->call->o, p->o, x->batch, x->head, first, s->t), *to = apart ? r->outputs : o;
  /* A weight of zero must not multiply a NaN that its row does not see. */
  const int64_t step = c->finite ? STEP : 1, o_row = apart ? s->d_v : p->o.row;
  attn_recurrent_decay_rows(s, r, x, from, count, (attn_matrix){r->queries, p->d_qk, 1}, r->scaled);
  attn_product(s->simd, count, s->d_v, p->d_qk, (attn_matrix){r->scaled, p->d_qk, 1}, r->sums, r->sums_row,
               false, to, o_row);
  for (int64_t i = 0; i < count && x->count > 0; i += step) {
    const int64_t rows = attn_min(step, count - i), seen = attn_min(from + i + rows, x->count);
    const void *scores = attn_recurrent_scores(
        s, r, x, true, (attn_matrix){attn_at(r->queries, i * p->d_qk, s->t), p->d_qk, 1}, from + i, rows,
        seen);
    attn_product(s->simd, rows, s->d_v, seen, (attn_matrix){scores, s->chunk_row, 1}, c->v.at, c->v.row, true,
                 attn_at(to, i * o_row, s->t), o_row);
  }
  for (int64_t i = 0; apart && i < count; i++) {
    void *row = attn_at(to, i * o_row, s->t);
    const double sum = s->rule->normalised ? fabs(attn_get(row, p->d_v, s->t)) : 0;
    if (!(sum <= 1)) attn_scale_row(s->simd, p->d_v, 1 / sum, row, row);
    attn_store_row(s->simd, attn_stored(p->o, s->t), p->d_v, row, attn_row_behind(o, p->o, i, s->t));
  }
}

/* Row l of S in the type that it is stored in, and back. */
static void round_row(const shape *s, room *r, int64_t l) {
  void *row = attn_at(r->sums, l * r->sums_row, s->t);
  attn_convert(row, s->t, s->d_v, s->rule->stored, r->row_scratch);
  attn_convert(r->row_scratch, s->rule->stored, s->d_v, s->t, row);
}

/* S <- A_C . S + (A_C / A . K)^T U */
static void add_keys(const shape *s, room *r, const line *x, const chunk_rows *c) {
  const attn_problem *p = s->p;
  const bool columns = s->rule->columns;
  attn_matrix k = {r->transposed, s->chunk_row, 1};
  if (!columns) {
    s->simd->scale_rows(x->count, p->d_qk, c->k.at, c->k.row, r->after, 1, r->scaled);
    k = (attn_matrix){r->scaled, 1, p->d_qk};
  }
  if (x->count == 1) {
    for (int64_t l = 0; l < p->d_qk; l++) {
      void *row = attn_at(r->sums, l * r->sums_row, s->t);
      s->simd->combine_rows(s->d_v, r->whole[columns ? l : 0], row, attn_get(k.at, l * k.row, s->t), c->v.at,
                            row);
    }
  } else {
    s->simd->scale_rows(p->d_qk, r->sums_row, r->sums, r->sums_row, r->whole, columns ? 1 : 0, r->sums);
    attn_product(s->simd, p->d_qk, s->d_v, x->count, k, c->v.at, c->v.row, true, r->sums, r->sums_row);
  }
  attn_recurrent_turn_state(s, r, x);
  for (int64_t l = 0; l < p->d_qk && s->rule->rounds && x->count == s->rule->chunk; l++) round_row(s, r, l);
}

/* Row l of the head's state in the call's, and its bytes. */
static void *state_row(const shape *s, const line *x, const void *state, int64_t l) {
  const int64_t rows = (x->batch * s->p->heads + x->head) * s->p->d_qk + l;
  return attn_at(state, rows * s->p->d_v, s->t);
}
/* S as the call gives it; of a single key where it is wanted afterwards, if vectors end where rows do. */
static void take_state(const shape *s, room *r, const line *x) {
  const attn_problem *p = s->p;
  const void *given = x->call->state;
  const bool placed = x->call->state_after && p->n_kv == 1 && row_bytes(s) % 64 == 0;
  r->sums = placed ? state_row(s, x, x->call->state_after, 0) : r->own_sums;
  r->sums_row = placed ? p->d_v : s->v_row;
  if (!given) memset(r->sums, 0, (size_t)(p->d_qk * r->sums_row) * attn_dtype_size(s->t));
  for (int64_t l = 0; l < p->d_qk && given; l++) {
    void *to = attn_at(r->sums, l * r->sums_row, s->t);
    if (to != state_row(s, x, given, l)) memcpy(to, state_row(s, x, given, l), row_bytes(s));
  }
}

static void leave_state(const shape *s, const room *r, const line *x) {
  for (int64_t l = 0; l < s->p->d_qk && r->sums == r->own_sums; l++)
    memcpy(state_row(s, x, x->call->state_after, l), attn_at(r->sums, l * r->sums_row, s->t), row_bytes(s));
}

/* The key behind which query i reads the state. */
static int64_t asks_at(const shape *s, const line *x, int64_t i) {
  return attn_call_position(x->call, x->batch, i) - s->rule->before;
}

/* Query i reads the state as it stands. */
static void read_given(const shape *s, room *r, line *x, int64_t i) {
  x->count = 0;
  r->before[0] = 1;
  load_queries(s, r, x, 0, i, 1);
  read_queries(s, r, x, 0, i, 1, &(chunk_rows){.finite = true});
}

static void run_head(const shape *s, room *r, line *x) {
  const attn_problem *p = s->p;
  const bool keeps = x->call->state_after;
  const int64_t shift = asks_at(s, x, 0), asked = shift + p->n_q,
                end = keeps ? p->n_kv : attn_min(asked, p->n_kv);
  /* A token: the query reads the state that is kept. */
  const bool at_once = keeps && p->n_kv == 1 && !s->rule->turns && !s->rule->before && !s->rule->rounds;
  r->made = -1;
  take_state(s, r, x);
  if (x->call->state && shift < 0) read_given(s, r, x, -1 - shift);
  for (x->first = 0; x->first < end; x->first += s->chunk) {
    const int64_t next = attn_min(x->first + s->chunk, end), from = attn_max(x->first, shift);
    x->count = attn_max(0, attn_min(next, x->keys) - x->first);
    const int64_t queries = attn_max(0, attn_min(next, asked) - from);
    attn_recurrent_gates(s, r, x);
    const attn_matrix k = load_keys(s, r, x);
    if (queries) load_queries(s, r, x, from - x->first, from - shift, queries);
    const attn_matrix read = erase_keys(s, r, x, k);
    attn_recurrent_take_keys(s, r, x, k, read, from - x->first, queries);
    const chunk_rows c = write_chunk(s, r, x, k, read);
    if (x->count && at_once) add_keys(s, r, x, &c);
    if (queries && at_once)
      read_given(s, r, x, from - shift);
    else if (queries)
      read_queries(s, r, x, from - x->first, from - shift, queries, &c);
    if (x->count && !at_once && (keeps || next < end)) add_keys(s, r, x, &c);
  }
  if (keeps) leave_state(s, r, x);
}

static size_t room_bytes(const shape *s) {
  attn_carver one = attn_carver_count(s->c);
  carve(s, &one);
  return one.used;
}

static bool accepts(const attn_parts *p) { return attn_parts_kinds(p) == ATTN_PART_RECURRENCE; }

static attn_status work_size(const attn_context *c, const attn_parts *p, size_t *bytes) {
  const shape s = attn_recurrent_shape(c, &p->recurrence);
  *bytes = attn_size_times(room_bytes(&s), (size_t)c->threads);
  return ATTN_OK;
}

/* The state is the rule. */
static attn_status plan(attn_builder *b, const attn_parts *p, void **state) {
  const attn_recurrence *x = &p->recurrence;
  const int64_t betas = x->betas, d = b->context.problem->d_qk, both = d + b->context.problem->d_v;
  const char *name = b->context.variant->name;
  if (x->carries && (x->delta || x->columns || betas != 2))
    return attn_fail(ATTN_EINVAL,
                     "variant %s: recurrence.carries, expected without delta and columns, and with 2 betas",
                     name);
  if (betas > 1 && betas != both && !x->carries)
    return attn_fail(ATTN_EINVAL, "variant %s: recurrence.betas = %lld, expected 0, 1 or d_qk + d_v = %lld",
                     name, (long long)betas, (long long)both);
  if (x->normalised && betas > 1 && !x->carries)
    return attn_fail(ATTN_EINVAL,
                     "variant %s: recurrence.normalised, expected without betas that are vectors", name);
  if (x->turns && (x->turns > d / 2 || x->columns || (betas > 1 && !x->carries)))
    return attn_fail(
        ATTN_EINVAL,
        "variant %s: recurrence.turns = %lld, expected 0 ... d_qk / 2 = %lld, and 0 with decays or "
        "betas that are vectors",
        name, (long long)x->turns, (long long)(d / 2));
  *state = (void *)(uintptr_t)&p->recurrence;
  return ATTN_OK;
}

static void clear_row(const shape *s, const line *x, int64_t i) {
  memset(attn_row(x->call->o, s->p->o, x->batch, x->head, i, s->t), 0,
         (size_t)s->p->d_v * attn_dtype_size(attn_stored(s->p->o, s->t)));
}

line attn_recurrent_line(const shape *s, const attn_call *call, int64_t h) {
  const attn_problem *p = s->p;
  const int64_t batch = h / p->heads, head = h % p->heads;
  line x = {.call = call,
            .batch = batch,
            .head = head,
            .kv_head = head / (p->heads / p->kv_heads),
            .keys = attn_call_keys(call, batch),
            .beyond = p->n_kv};
  for (int64_t t = x.keys; p->mask.kind && t < x.beyond; t++)
    if (attn_document_begins(p, t)) x.beyond = t;
  return x;
}

bool attn_recurrent_reads(const shape *s, const line *x, int64_t i) {
  const int64_t at = attn_call_position(x->call, x->batch, i);
  return at - s->rule->before >= (x->call->state ? -1 : 0) && at < x->beyond &&
         !(s->rule->before && attn_document_begins(s->p, at));
}

static attn_status execute(const void *state, const attn_call *call) {
  const shape s = attn_recurrent_shape(call->context, state);
  const attn_problem *p = s.p;
  const attn_status status = attn_recurrent_check(&s, call);
  if (status) return status;
  const size_t bytes = room_bytes(&s);
#pragma omp parallel num_threads(s.c->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
    char *own = (char *)call->work + (size_t)omp_get_thread_num() * bytes;
    memset(own, 0, bytes); /* padding is multiplied, and anything but numbers may be slow */
    attn_carver carver = attn_carver_at(call, own);
    room r = carve(&s, &carver);
#pragma omp for schedule(dynamic, 1)
    for (int64_t h = 0; h < p->batch * p->heads; h++) {
      line x = attn_recurrent_line(&s, call, h);
      run_head(&s, &r, &x);
      for (int64_t i = 0; i < p->n_q; i++)
        if (!attn_recurrent_reads(&s, &x, i)) clear_row(&s, &x, i);
    }
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

const attn_engine attn_engine_recurrent = {"recurrent",
                                           accepts,
                                           {.work_size = work_size,
                                            .plan = plan,
                                            .execute = execute,
                                            .backward_size = attn_recurrent_backward_size,
                                            .backward = attn_recurrent_backward}};

attn_cost attn_recurrent_cost(const attn_context *c) {
  attn_parts parts;
  if (!c || attn_describe(NULL, c, &parts)) return (attn_cost){0};
  const attn_problem *p = c->problem;
  const shape s = attn_recurrent_shape(c, &parts.recurrence);
  const double heads = (double)(p->batch * p->heads), d = (double)p->d_qk, d_v = (double)s.d_v,
               state = d * d_v, n = (double)p->n_kv, q = (double)p->n_q,
               half = (double)(s.rule->columns ? s.chunk : s.chunk + STEP) / 2, row = half * (d + d_v);
  /* Each key enters the state but those of the last chunk; each query, and each key under the delta rule,
   * reads it, and half of its chunk; vectors decay that half. */
  return (attn_cost){
      .mul_add = heads * ((n - 1) * state + q * (state + row) +
                          n * ((s.rule->delta ? state + row : 0) + (s.rule->columns ? half * 2 * d : 0)) +
                          4 * (n + q) * (double)s.rule->turns),
      .exp = heads * n * ((s.rule->columns ? d : 3) + 2 * (double)s.rule->turns),
      .bytes = attn_problem_bytes(p)};
}

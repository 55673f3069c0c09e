/* recurrent_engine.c - the recurrent engine: o_t = c S_t^T q_t with S_t = a_t S_t-1 + k_t v_t^T, S_-1 = 0
 * (Sun et al. 2023, arXiv:2307.08621, equations 5 to 7; Yang et al. 2023, arXiv:2312.06635, section 3).
 *
 * Keys are taken in chunks. With L_ij = a_j+1 ... a_i the rows of a chunk are
 *   O = c (L . Q K^T) V + c diag(A_i) Q S,   S <- A_C S + (diag(A_C / A_j) K)^T V,   A_i = a_first ... a_i,
 * the lower triangle of L as products of what lies between: no sum of logarithms is subtracted from another,
 * and nothing is divided, so that a decay of e^-40 a step loses nothing and one of 0 forgets.
 *
 * Positions without a key (padding) decay nothing. A (batch, head) is one thread's: no result depends on the
 * number of threads, and chunks begin at key 0: none on how many keys come later. */
#include "core/internal.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* Queries that share the keys that they are multiplied with, a multiple of every register tile. */
enum { STEP = 24 };

typedef struct shape {
  const attn_context *c;
  const attn_problem *p;
  const attn_kernels *simd;
  const attn_recurrence *rule;
  attn_dtype t;
  int64_t chunk, chunk_row, v_row; /* rows of products are padded */
} shape;

static shape shape_of(const attn_context *c, const attn_recurrence *rule) {
  const attn_problem *p = c->problem;
  const int64_t chunk = attn_min(rule->chunk, attn_max(1, p->n_kv));
  return (shape){.c = c,
                 .p = p,
                 .simd = c->kernels,
                 .rule = rule,
                 .t = p->dtype,
                 .chunk = chunk,
                 .chunk_row = attn_padded(chunk, p->dtype),
                 .v_row = attn_padded(p->d_v, p->dtype)};
}

/* One thread's workspace. */
typedef struct room {
  void *sums;                    /* [d_qk] rows of d_v: S */
  void *between;                 /* [chunk] rows of chunk: c L */
  void *transposed;              /* [d_qk] rows of chunk: K^T */
  void *scores;                  /* [STEP] rows of chunk */
  void *queries, *keys, *values; /* [chunk] rows */
  void *scaled;                  /* [chunk] rows of d_qk */
  void *outputs;                 /* [chunk] rows of d_v, where the call's are of another type */
  double *logs, *before, *after; /* [chunk]: ln a_i, c A_i, A_C / A_j */
  double *row;                   /* [chunk] */
  double whole;                  /* A_C */
} room;

static room carve(const shape *s, attn_carver *carver) {
  const size_t e = attn_dtype_size(s->t);
  const int64_t n = s->chunk;
  return (room){.sums = attn_carve(carver, s->p->d_qk, s->v_row, e),
                .between = attn_carve(carver, n, s->chunk_row, e),
                .transposed = attn_carve(carver, s->p->d_qk, s->chunk_row, e),
                .scores = attn_carve(carver, STEP, s->chunk_row, e),
                .queries = attn_carve(carver, s->p->q.stored ? n : 0, s->p->d_qk, e),
                .keys = attn_carve(carver, s->p->k.stored ? n : 0, s->p->d_qk, e),
                .values = attn_carve(carver, n, s->v_row, e),
                .scaled = attn_carve(carver, n, s->p->d_qk, e),
                .outputs = attn_carve(carver, s->p->o.stored ? n : 0, s->p->d_v, e),
                .logs = attn_carve(carver, n, 1, sizeof(double)),
                .before = attn_carve(carver, n, 1, sizeof(double)),
                .after = attn_carve(carver, n, 1, sizeof(double)),
                .row = attn_carve(carver, n, 1, sizeof(double))};
}

/* One head's tensors, and where it stands. */
typedef struct line {
  const attn_call *call;
  int64_t batch, head, kv_head, keys;
  int64_t first, count; /* keys of the chunk that exist */
} line;

/* Products of the chunk's decays, from one to the next. *made: keys whose products stand; the same decays
 * have the same. */
static void multiply_decays(const shape *s, room *r, const line *x, int64_t *made) {
  double own = s->p->scale;
  s->rule->decays(s->rule->state, s->c, x->head, x->first, x->count, r->row);
  if (*made == x->count && memcmp(r->row, r->logs, (size_t)x->count * sizeof *r->row) == 0) return;
  *made = x->count;
  memcpy(r->logs, r->row, (size_t)x->count * sizeof *r->row);
  for (int64_t i = 0; i < s->chunk; i++) r->before[i] = own *= i < x->count ? exp(r->logs[i]) : 1;
  own = 1;
  for (int64_t j = x->count - 1; j >= 0; own *= exp(r->logs[j--])) r->after[j] = own;
  r->whole = own;
  for (int64_t i = 0; i < x->count; i++) {
    const double a = exp(r->logs[i]);
    r->row[i] = s->p->scale;
    for (int64_t j = 0; j < i; j++) r->row[j] *= a;
    attn_convert(r->row, ATTN_F64, i + 1, s->t, attn_at(r->between, i * s->chunk_row, s->t));
  }
}

/* The chunk's keys and values, as products take them. */
typedef struct chunk_rows {
  attn_matrix k, v;
  bool finite; /* the values */
} chunk_rows;

static chunk_rows load_chunk(const shape *s, room *r, const line *x) {
  const attn_problem *p = s->p;
  const void *k = attn_row(x->call->k, p->k, x->batch, x->kv_head, x->first, s->t),
             *v = attn_row(x->call->v, p->v, x->batch, x->kv_head, x->first, s->t);
  const attn_dtype stored = attn_stored(p->v, s->t);
  chunk_rows c = {
      .k = attn_load_rows(s->simd, attn_stored(p->k, s->t), k, p->k.row, x->count, p->d_qk, r->keys),
      .v = {v, p->v.row, 1},
      .finite = attn_all_finite(v, p->v.row, x->count, p->d_v, stored)};
  /* Values are read where they are, if they end where vectors do. */
  if (stored == s->t && p->d_v * (int64_t)attn_dtype_size(s->t) % 64 == 0) return c;
  for (int64_t j = 0; j < x->count; j++)
    attn_load_row(s->simd, stored, p->d_v, attn_row_behind(v, p->v, j, s->t),
                  attn_at(r->values, j * s->v_row, s->t));
  c.v = (attn_matrix){r->values, s->v_row, 1};
  return c;
}

/* Row l of a block of scores, of the query at position `behind` + l of the chunk: decayed, and 0 of the keys
 * that come later. */
static void decay_scores(const shape *s, room *r, const line *x, int64_t behind, int64_t rows, int64_t seen,
                         void *scores) {
  for (int64_t l = 0; l < rows; l++) {
    void *row = attn_at(scores, l * s->chunk_row, s->t);
    const int64_t last = attn_min(behind + l, x->count - 1);
    attn_multiply_row(s->simd, last + 1, row, attn_at(r->between, last * s->chunk_row, s->t), row);
    memset(attn_at(row, last + 1, s->t), 0, (size_t)(seen - last - 1) * attn_dtype_size(s->t));
  }
}

/* Queries at positions from ... from + count - 1 against S, and against the chunk's keys that they see. */
static void read_queries(const shape *s, room *r, const line *x, int64_t from, int64_t count,
                         const chunk_rows *c) {
  const attn_problem *p = s->p;
  const int64_t first = from - attn_call_position(x->call, x->batch, 0);
  const attn_matrix q = attn_load_rows(s->simd, attn_stored(p->q, s->t),
                                       attn_row(x->call->q, p->q, x->batch, x->head, first, s->t), p->q.row,
                                       count, p->d_qk, r->queries);
  void *o = attn_row(x->call->o, p->o, x->batch, x->head, first, s->t), *to = p->o.stored ? r->outputs : o;
  /* A weight of zero must not multiply a NaN that its row does not see. */
  const int64_t step = c->finite ? STEP : 1, o_row = p->o.stored ? p->d_v : p->o.row;
  s->simd->scale_rows(count, p->d_qk, q.at, q.row, r->before + (from - x->first), 1, r->scaled);
  attn_product(s->simd, count, p->d_v, p->d_qk, (attn_matrix){r->scaled, p->d_qk, 1}, r->sums, s->v_row,
               false, to, o_row);
  for (int64_t i = 0; i < count && x->count > 0; i += step) {
    const int64_t rows = attn_min(step, count - i), behind = from - x->first + i,
                  seen = attn_min(behind + rows, x->count);
    attn_product(s->simd, rows, seen, p->d_qk, (attn_matrix){attn_at(q.at, i * q.row, s->t), q.row, 1},
                 r->transposed, s->chunk_row, false, r->scores, s->chunk_row);
    decay_scores(s, r, x, behind, rows, seen, r->scores);
    attn_product(s->simd, rows, p->d_v, seen, (attn_matrix){r->scores, s->chunk_row, 1}, c->v.at, c->v.row,
                 true, attn_at(to, i * o_row, s->t), o_row);
  }
  for (int64_t i = 0; p->o.stored && i < count; i++)
    attn_store_row(s->simd, p->o.stored, p->d_v, attn_at(to, i * o_row, s->t),
                   attn_row_behind(o, p->o, i, s->t));
}

/* S <- A_C S + (diag(A_C / A_j) K)^T V */
static void add_keys(const shape *s, room *r, const line *x, const chunk_rows *c) {
  const attn_problem *p = s->p;
  attn_scale_row(s->simd, p->d_qk * s->v_row, r->whole, r->sums, r->sums);
  s->simd->scale_rows(x->count, p->d_qk, c->k.at, c->k.row, r->after, 1, r->scaled);
  attn_product(s->simd, p->d_qk, p->d_v, x->count, (attn_matrix){r->scaled, 1, p->d_qk}, c->v.at, c->v.row,
               true, r->sums, s->v_row);
}

/* Row l of the head's state in the call's, and its bytes. */
static void *state_row(const shape *s, const line *x, const void *state, int64_t l) {
  const int64_t rows = (x->batch * s->p->heads + x->head) * s->p->d_qk + l;
  return attn_at(state, rows * s->p->d_v, s->t);
}
static size_t row_bytes(const shape *s) { return (size_t)s->p->d_v * attn_dtype_size(s->t); }

static void run_head(const shape *s, room *r, line *x) {
  const attn_problem *p = s->p;
  const bool keeps = x->call->state_after;
  const int64_t shift = attn_call_position(x->call, x->batch, 0), asked = shift + p->n_q,
                end = keeps ? p->n_kv : attn_min(asked, p->n_kv);
  int64_t made = -1;
  memset(r->sums, 0, (size_t)(p->d_qk * s->v_row) * attn_dtype_size(s->t));
  for (int64_t l = 0; l < p->d_qk && x->call->state; l++)
    memcpy(attn_at(r->sums, l * s->v_row, s->t), state_row(s, x, x->call->state, l), row_bytes(s));
  for (x->first = 0; x->first < end; x->first += s->chunk) {
    const int64_t next = attn_min(x->first + s->chunk, end), from = attn_max(x->first, shift);
    x->count = attn_max(0, attn_min(next, x->keys) - x->first);
    const chunk_rows c = load_chunk(s, r, x);
    multiply_decays(s, r, x, &made);
    if (from < attn_min(next, asked)) {
      s->simd->transpose(x->count, p->d_qk, c.k.at, c.k.row, r->transposed, s->chunk_row);
      read_queries(s, r, x, from, attn_min(next, asked) - from, &c);
    }
    if (x->count && (keeps || next < end)) add_keys(s, r, x, &c);
  }
  for (int64_t l = 0; l < p->d_qk && keeps; l++)
    memcpy(state_row(s, x, x->call->state_after, l), attn_at(r->sums, l * s->v_row, s->t), row_bytes(s));
}

static size_t room_bytes(const shape *s) {
  attn_carver one = attn_carver_count(s->c);
  carve(s, &one);
  return one.used;
}

static bool accepts(const attn_parts *p) { return attn_parts_kinds(p) == ATTN_PART_RECURRENCE; }

static attn_status work_size(const attn_context *c, const attn_parts *p, size_t *bytes) {
  const shape s = shape_of(c, &p->recurrence);
  *bytes = attn_size_times(room_bytes(&s), (size_t)c->threads);
  return ATTN_OK;
}

/* The state is the rule. */
static attn_status plan(attn_builder *b, const attn_parts *p, void **state) {
  (void)b;
  *state = (void *)(uintptr_t)&p->recurrence;
  return ATTN_OK;
}

/* Queries that precede every key. */
static void clear_early_rows(const shape *s, const line *x) {
  const int64_t early = attn_min(s->p->n_q, attn_max(0, -attn_call_position(x->call, x->batch, 0)));
  for (int64_t i = 0; i < early; i++)
    memset(attn_row(x->call->o, s->p->o, x->batch, x->head, i, s->t), 0,
           (size_t)s->p->d_v * attn_dtype_size(attn_stored(s->p->o, s->t)));
}

static attn_status execute(const void *state, const attn_call *call) {
  const shape s = shape_of(call->context, state);
  const attn_problem *p = s.p;
  if (call->k_position.at)
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: k_position is not supported: a state cannot lose keys",
                     call->context->variant->name);
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
      const int64_t batch = h / p->heads, head = h % p->heads;
      line x = {.call = call,
                .batch = batch,
                .head = head,
                .kv_head = head / (p->heads / p->kv_heads),
                .keys = attn_call_keys(call, batch)};
      clear_early_rows(&s, &x);
      run_head(&s, &r, &x);
    }
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

const attn_engine attn_engine_recurrent = {"recurrent", accepts, {work_size, plan, execute, NULL}};

attn_cost attn_recurrent_cost(const attn_context *c) {
  attn_parts parts;
  if (!c || attn_describe(NULL, c, &parts)) return (attn_cost){0};
  const attn_problem *p = c->problem;
  const shape s = shape_of(c, &parts.recurrence);
  const double heads = (double)(p->batch * p->heads), width = (double)(p->d_qk + p->d_v),
               state = (double)p->d_qk * (double)p->d_v, n = (double)p->n_kv, q = (double)p->n_q;
  /* Each key enters the state but those of the last chunk, each query reads it, and half of its chunk. */
  return (attn_cost){.mul_add =
                         heads * ((n - 1) * state + q * (state + (double)(s.chunk + STEP) / 2 * width)),
                     .exp = heads * 3 * n,
                     .bytes = attn_problem_bytes(p)};
}

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
                 .d_row = attn_padded(p->d_qk, p->dtype),
                 .v_row = attn_padded(p->d_v + rule->normalised, p->dtype),
                 .d_v = p->d_v + rule->normalised,
                 .betas = rule->betas + rule->turns,
                 .vectors = rule->betas > 1 && !rule->carries};
}

static size_t row_bytes(const shape *s) { return (size_t)s->d_v * attn_dtype_size(s->t); }

/* Queries at positions `from` ... of the chunk, number `first` ... of the call, against S, and against the
 * chunk's keys that they see. */
static void read_queries(const shape *s, room *r, const line *x, int64_t from, int64_t first, int64_t count,
                         const recurrent_chunk *c) {
  const attn_problem *p = s->p;
  const bool apart = p->o.stored || s->rule->normalised;
  void *o = attn_row(x->call->o, p->o, x->batch, x->head, first, s->t), *to = apart ? r->outputs : o;
  /* A weight of zero must not multiply a NaN that its row does not see. */
  const int64_t step = attn_all_finite(c->v.at, c->v.row, x->count, s->d_v, s->t) ? STEP : 1,
                o_row = apart ? s->d_v : p->o.row;
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

/* Query i reads the state as it stands. */
static void read_given(const shape *s, room *r, line *x, int64_t i) {
  x->count = 0;
  r->before[0] = 1;
  attn_recurrent_load_queries(s, r, x, 0, i, 1);
  read_queries(s, r, x, 0, i, 1, &(recurrent_chunk){0});
}

static void run_head(const shape *s, room *r, line *x) {
  const attn_problem *p = s->p;
  const bool keeps = x->call->state_after;
  const int64_t shift = attn_recurrent_asks_at(s, x, 0),
                end = keeps ? p->n_kv : attn_min(shift + p->n_q, p->n_kv);
  /* A token: the query reads the state that is kept. */
  const bool at_once = keeps && p->n_kv == 1 && !s->rule->turns && !s->rule->before && !s->rule->rounds;
  r->made = -1;
  take_state(s, r, x);
  if (x->call->state && shift < 0) read_given(s, r, x, -1 - shift);
  for (int64_t next = 0; next < end;) {
    x->first = next;
    next = attn_recurrent_chunk_end(s, x->first, end);
    if (attn_document_begins(p, x->first))
      memset(r->sums, 0, (size_t)(p->d_qk * r->sums_row) * attn_dtype_size(s->t));
    const recurrent_chunk c = attn_recurrent_take_chunk(s, r, x, next, true);
    if (x->count && at_once) attn_recurrent_add_keys(s, r, x, &c);
    if (c.queries && at_once)
      read_given(s, r, x, c.first);
    else if (c.queries)
      read_queries(s, r, x, c.from, c.first, c.queries, &c);
    if (x->count && !at_once && (keeps || next < end)) attn_recurrent_add_keys(s, r, x, &c);
  }
  if (keeps) leave_state(s, r, x);
}

static size_t room_bytes(const shape *s) {
  attn_carver one = attn_carver_count(s->c);
  attn_recurrent_carve(s, &one);
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

int64_t attn_recurrent_asks_at(const shape *s, const line *x, int64_t i) {
  return attn_call_position(x->call, x->batch, i) - s->rule->before;
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
    room r = attn_recurrent_carve(&s, &carver);
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

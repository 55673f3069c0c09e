/* recurrent_backward.c - the gradients of the recurrent engine (attn_gradients.h), from the last key to the
 * first by chunks (recurrent_chunk_back.c). States are kept at every segment's first key; from it those at
 * every chunk's are made again. What is kept is d_v / SEGMENT times as large as the query heads' keys, and
 * besides a segment's gradients, however long the sequence is.
 *
 * Query heads take a segment at the same time; then what belongs to a kv head or to a tensor of gates is
 * added in the order of query heads: no result depends on the number of threads. */
#include "core/engines/recurrent/recurrent_back.h"

#include <omp.h>
#include <string.h>

typedef recurrent_shape shape;
typedef recurrent_line line;
typedef recurrent_chunk_room room;
enum { SEGMENT = ATTN_RECURRENT_SEGMENT };

/* Chunks are those that the backward pass is fastest with; segments end where they do. */
static shape back_shape(const attn_context *c, const attn_recurrence *rule) {
  shape s = attn_recurrent_shape(c, rule);
  s.chunk = attn_min(rule->columns ? 16 : 64, attn_max(1, s.p->n_kv));
  s.chunk_row = attn_padded(s.chunk, s.t);
  s.apart = rule->carries;
  return s;
}

/* What query heads hand on from segment to segment. */
typedef struct back_sums {
  int64_t segments, lines, logs, betas; /* numbers of a key: of ln a; of b, w and what is behind them */
  void *edges;                          /* [lines, segments] states */
  void *states;                         /* [lines] G */
  void *k, *v;                          /* [lines, SEGMENT] rows */
  double *of_logs, *of_betas;           /* [lines, SEGMENT] rows */
} back_sums;

static back_sums carve_sums(const shape *s, attn_carver *c) {
  const attn_problem *p = s->p;
  const int64_t segments = attn_ceil_div(p->n_kv, SEGMENT), lines = p->batch * p->heads,
                logs = s->rule->columns ? p->d_qk : 1;
  const size_t e = attn_dtype_size(s->t);
  return (back_sums){.segments = segments,
                     .lines = lines,
                     .logs = logs,
                     .betas = s->betas,
                     .edges = attn_carve(c, lines * segments, recurrent_state_size(s), e),
                     .states = attn_carve(c, lines, recurrent_state_size(s), e),
                     .k = attn_carve(c, lines * SEGMENT, p->d_qk, e),
                     .v = attn_carve(c, lines * SEGMENT, p->d_v, e),
                     .of_logs = attn_carve(c, lines * SEGMENT, logs, sizeof(double)),
                     .of_betas = attn_carve(c, lines * SEGMENT, s->betas, sizeof(double))};
}

/* -- a query head -- */

static recurrent_gradients begin_segment(const shape *s, const back_sums *sums, const attn_gradients *g,
                                         int64_t h) {
  const size_t e = attn_dtype_size(s->t);
  const recurrent_gradients head = {.of = g,
                                    .state = recurrent_state(s, sums->states, h),
                                    .dk = recurrent_row(s, sums->k, h * SEGMENT, s->p->d_qk),
                                    .dv = recurrent_row(s, sums->v, h * SEGMENT, s->p->d_v),
                                    .logs = sums->of_logs + h * SEGMENT * sums->logs,
                                    .betas = sums->of_betas + h * SEGMENT * sums->betas};
  memset(head.dk, 0, (size_t)(SEGMENT * s->p->d_qk) * e);
  memset(head.dv, 0, (size_t)(SEGMENT * s->p->d_v) * e);
  memset(head.logs, 0, (size_t)(SEGMENT * sums->logs) * sizeof *head.logs);
  memset(head.betas, 0, (size_t)(SEGMENT * sums->betas) * sizeof *head.betas);
  return head;
}

/* Positions of a segment that keys or queries have. */
static int64_t positions_of(const shape *s, const line *x, int64_t segment) {
  const int64_t asked = attn_recurrent_asks_at(s, x, 0) + s->p->n_q;
  return attn_max(0, attn_min(attn_min(asked, s->p->n_kv) - segment * SEGMENT, SEGMENT));
}

static void keep_states(const shape *s, room *r, const back_sums *sums, line *x, int64_t h) {
  memset(r->own.sums, 0, recurrent_state_bytes(s));
  for (int64_t segment = 0; positions_of(s, x, segment); segment++) {
    const int64_t first = segment * SEGMENT;
    memcpy(recurrent_state(s, sums->edges, h * sums->segments + segment), r->own.sums,
           recurrent_state_bytes(s));
    if (positions_of(s, x, segment + 1)) attn_recurrent_pass_chunks(s, r, x, first, first + SEGMENT, false);
  }
}

static void back_segment(const shape *s, room *r, const back_sums *sums, const attn_gradients *g, line *x,
                         int64_t h, int64_t segment) {
  const int64_t first = segment * SEGMENT, count = positions_of(s, x, segment);
  const recurrent_gradients head = begin_segment(s, sums, g, h);
  memcpy(r->own.sums, recurrent_state(s, sums->edges, h * sums->segments + segment),
         recurrent_state_bytes(s));
  if (count) attn_recurrent_back_chunks(s, r, x, &head, first, first + count);
}

/* -- all of them -- */

/* Row `row` of a gradient by keys or values: the sum of row i of the segment, of the heads that share it. */
static void add_heads(const shape *s, void *rows, int64_t row, int64_t i, int64_t d, void *to) {
  const int64_t group = s->p->heads / s->p->kv_heads, from = row / s->p->n_kv * group * SEGMENT + i;
  void *sum = recurrent_row(s, rows, from, d);
  for (int64_t h = 1; to && h < group; h++)
    s->simd->combine_rows(d, 1, sum, 1, recurrent_row(s, rows, from + h * SEGMENT, d), sum);
  if (to) memcpy(recurrent_row(s, to, row, d), sum, (size_t)d * attn_dtype_size(s->t));
}

/* What key i of a segment has of all query heads of the kv heads from ... end - 1. */
static void add_key(const shape *s, const attn_call *call, const back_sums *sums, const attn_gradients *g,
                    int64_t segment, int64_t i, int64_t from, int64_t end) {
  const attn_problem *p = s->p;
  const attn_recurrence *rule = s->rule;
  const int64_t key = segment * SEGMENT + i, group = p->heads / p->kv_heads;
  for (int64_t kv = from; kv < end; kv++) {
    add_heads(s, sums->k, kv * p->n_kv + key, i, p->d_qk, g->dk);
    add_heads(s, sums->v, kv * p->n_kv + key, i, p->d_v, g->dv);
  }
  for (int64_t h = from * group; h < end * group && g->dextra && rule->gates_back; h++)
    rule->gates_back(rule->state, call, h / p->heads, h % p->heads, key,
                     sums->of_logs + (h * SEGMENT + i) * sums->logs,
                     sums->of_betas + (h * SEGMENT + i) * sums->betas, g->dextra);
}

/* Is a kv head with its query heads one thread's, from the last segment to the first: are there enough of
 * them, and gates that belong to it alone? Sums have the same order either way. */
static bool are_apart(const shape *s, const attn_call *call, const attn_gradients *g) {
  const attn_problem *p = s->p;
  bool apart = p->batch * p->kv_heads >= s->c->threads;
  for (int64_t x = 0; g->dextra && x < call->extras; x++)
    apart &= !g->dextra[x] || (call->extra[x].batch == p->batch && call->extra[x].heads >= p->kv_heads);
  return apart;
}

/* The threads of a team come here together. */
static void run_apart(const shape *s, room *r, const attn_call *call, const back_sums *sums,
                      const attn_gradients *g) {
  const int64_t group = s->p->heads / s->p->kv_heads, kv_lines = sums->lines / group;
#pragma omp for schedule(dynamic, 1)
  for (int64_t kv = 0; kv < kv_lines; kv++) {
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
      line x = attn_recurrent_line(s, call, h);
      keep_states(s, r, sums, &x, h);
    }
    for (int64_t segment = sums->segments - 1; segment >= 0; segment--) {
      for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        line x = attn_recurrent_line(s, call, h);
        back_segment(s, r, sums, g, &x, h, segment);
      }
      for (int64_t i = 0; i < attn_min(SEGMENT, s->p->n_kv - segment * SEGMENT); i++)
        add_key(s, call, sums, g, segment, i, kv, kv + 1);
    }
  }
}

static void run_together(const shape *s, room *r, const attn_call *call, const back_sums *sums,
                         const attn_gradients *g) {
  const int64_t group = s->p->heads / s->p->kv_heads;
#pragma omp for schedule(dynamic, 1)
  for (int64_t h = 0; h < sums->lines; h++) {
    line x = attn_recurrent_line(s, call, h);
    keep_states(s, r, sums, &x, h);
  }
  for (int64_t segment = sums->segments - 1; segment >= 0; segment--) {
#pragma omp for schedule(dynamic, 1)
    for (int64_t h = 0; h < sums->lines; h++) {
      line x = attn_recurrent_line(s, call, h);
      back_segment(s, r, sums, g, &x, h, segment);
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < attn_min(SEGMENT, s->p->n_kv - segment * SEGMENT); i++)
      add_key(s, call, sums, g, segment, i, 0, sums->lines / group);
  }
}

attn_status attn_recurrent_backward_size(const void *state, const attn_context *c, const attn_parts *parts,
                                         size_t *bytes) {
  const attn_recurrence *rule = &parts->recurrence;
  const char *name = c->variant->name;
  const shape s = back_shape(c, rule);
  attn_carver one = attn_carver_count(c), sums = attn_carver_count(c);
  (void)state;
  if (rule->rounds)
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: no gradient where the state is rounded: it is no slope",
                     name);
  if (rule->normalised)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant %s: no gradient where rows are divided by the sum of their weights", name);
  if ((rule->key_scale && !rule->key_slope) || (rule->query_scale && !rule->query_slope))
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant %s: no gradient without the slope of what keys and queries "
                     "are multiplied by (recurrence.key_slope, query_slope)",
                     name);
  attn_recurrent_chunk_carve(&s, &one);
  carve_sums(&s, &sums);
  *bytes = attn_size_sum(attn_size_times(one.used, (size_t)c->threads), sums.used);
  return ATTN_OK;
}

attn_status attn_recurrent_backward(const void *state, const attn_call *call, const attn_gradients *g) {
  const shape s = back_shape(call->context, state);
  const attn_problem *p = s.p;
  attn_carver carver = attn_carver_at(call, call->work), one = attn_carver_count(s.c);
  if (call->state || call->state_after)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant %s: no gradient of a part of a sequence (state, state_after)",
                     s.c->variant->name);
  const attn_status status = attn_recurrent_check(&s, call);
  if (status) return status;
  const back_sums sums = carve_sums(&s, &carver);
  attn_recurrent_chunk_carve(&s, &one);
  memset(sums.states, 0, (size_t)sums.lines * recurrent_state_bytes(&s));
  if (g->dq) memset(g->dq, 0, attn_row_bytes(p->batch * p->heads * p->n_q * p->d_qk, s.t));
  if (g->dsink) memset(g->dsink, 0, (size_t)p->heads * sizeof *g->dsink);
#pragma omp parallel num_threads(s.c->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
    char *own = (char *)call->work + carver.used + (size_t)omp_get_thread_num() * one.used;
    memset(own, 0, one.used); /* padding is multiplied, and anything but numbers may be slow */
    attn_carver here = attn_carver_at(call, own);
    room r = attn_recurrent_chunk_carve(&s, &here);
    (are_apart(&s, call, g) ? run_apart : run_together)(&s, &r, call, &sums, g);
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

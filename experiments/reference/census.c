/* census.c - see census.h. Keys are taken in slabs, packed once for all heads that share them; a task is a
 * block of rows of one head, which goes through the slab in steps:
 *   S = (scale Q) K^T, m' = max(m, S), W = e^(S - m'), O = e^(m - m') O + W V, l = e^(m - m') l + W 1
 * with O in the output itself and m = sink, l = 1 at first where the row has one. */
#include "experiments/reference/census.h"

#include "experiments/reference/transform.h"
#include "experiments/reference/visible.h"
#include "experiments/reference/weigh.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 192, STEP = 256, STEPS = 16, SLAB = STEPS * STEP, ALIGNMENT = 64 };

/* What the threads share: one key head of one batch entry at a time. */
typedef struct census {
  const attn_problem *p;
  const attn_kernels *kernels;
  weigh *weigh;
  const void *q, *k, *v;
  double *o;
  bool masked; /* scores are not just scaled, or keys are hidden besides causality */
  int64_t batch, kv_head, group, exist;
  int64_t slab, end; /* its first key, and the one behind its last */
  char *packed;      /* [STEPS] keys and values */
  size_t k_bytes, v_bytes;
  bool infinite[STEPS]; /* a value of the step is Inf or NaN, and packed as 0 */
  weigh_row *state;     /* [group, n_q] */
  bool *sees;           /* [group, n_q]: any key so far? */
} census;

/* A thread's room. */
typedef struct room {
  double *q, *s, *wide; /* [ROWS, d_qk], [ROWS, s_row], [STEP, max(d_qk, d_v)] */
  int64_t s_row;
  bool *inside, *marks; /* [ROWS, SLAB], [n_kv]; NULL where nothing is masked */
  attn_run *runs;
  void *scratch;
} room;

/* Rows first ... first + count - 1 of a head. */
typedef struct block {
  int64_t head, first, count;
  int64_t keys[ROWS]; /* that exist and that causality leaves */
  weigh_row *state;
  bool *sees;
  double *o;
} block;

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
static char *step_keys(const census *c, int64_t s) {
  return c->packed + (size_t)s * (c->k_bytes + c->v_bytes);
}
static char *step_values(const census *c, int64_t s) { return step_keys(c, s) + c->k_bytes; }
static int64_t step_count(const census *c, int64_t s) { return at_most(STEP, c->end - c->slab - s * STEP); }

/* -- packing -- */

static void widen(const void *from, int64_t stride, int64_t rows, int64_t d, attn_dtype t, double factor,
                  double *out) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t l = 0; l < d; l++) out[i * d + l] = factor * attn_get(from, i * stride + l, t);
}

static void step_pack(census *c, int64_t s, double *wide) {
  const attn_problem *p = c->p;
  const int64_t first = c->slab + s * STEP, count = step_count(c, s);
  const void *keys =
                 attn_at(attn_rows(c->k, p->k, c->batch, c->kv_head, p->dtype), first * p->k.row, p->dtype),
             *values =
                 attn_at(attn_rows(c->v, p->v, c->batch, c->kv_head, p->dtype), first * p->v.row, p->dtype);
  widen(keys, p->k.row, count, p->d_qk, p->dtype, 1, wide);
  attn_gemm_pack(c->kernels, p->d_qk, count, (attn_matrix){wide, 1, p->d_qk}, step_keys(c, s));
  widen(values, p->v.row, count, p->d_v, p->dtype, 1, wide);
  c->infinite[s] = false;
  for (int64_t i = 0; i < count * p->d_v; i++) {
    if (isfinite(wide[i])) continue;
    wide[i] = 0;
    c->infinite[s] = true;
  }
  attn_gemm_pack(c->kernels, count, p->d_v, (attn_matrix){wide, p->d_v, 1}, step_values(c, s));
}

/* -- a block of rows -- */

static void block_begin(const census *c, int64_t task, block *b) {
  const attn_problem *p = c->p;
  const int64_t blocks = (p->n_q - 1) / ROWS + 1, member = task / blocks;
  b->first = (blocks - 1 - task % blocks) * ROWS; /* causal rows with the most keys first */
  b->count = at_most(ROWS, p->n_q - b->first);
  b->head = c->kv_head * c->group + member;
  b->state = c->state + member * p->n_q + b->first;
  b->sees = c->sees + member * p->n_q + b->first;
  b->o = c->o + ((c->batch * p->heads + b->head) * p->n_q + b->first) * p->d_v;
  for (int64_t r = 0; r < b->count; r++) b->keys[r] = visible_keys(p, b->first + r, c->exist);
  if (c->slab) return;
  const double sink = p->score.sink ? p->score.sink[b->head] : -(double)INFINITY;
  memset(b->o, 0, (size_t)(b->count * p->d_v) * sizeof *b->o);
  for (int64_t r = 0; r < b->count; r++) {
    b->state[r] = (weigh_row){sink, sink > -(double)INFINITY ? 1 : 0};
    b->sees[r] = !c->masked && b->keys[r] > 0;
  }
}

static void block_load(const census *c, const block *b, room *x) {
  const attn_problem *p = c->p;
  const void *q = attn_rows(c->q, p->q, c->batch, b->head, p->dtype);
  widen(attn_at(q, b->first * p->q.row, p->dtype), p->q.row, b->count, p->d_qk, p->dtype, p->scale, x->q);
  for (int64_t r = 0; r < b->count && c->masked; r++) {
    if (visible_mark(NULL, p, c->batch, b->head, b->first + r, c->exist, x->runs, x->marks))
      b->sees[r] = true;
    memcpy(x->inside + r * SLAB, x->marks + c->slab, (size_t)(c->end - c->slab) * sizeof *x->inside);
  }
}

/* What the problem makes of `count` scores of row r, from key `first` of the slab on. */
static void transform(const census *c, const block *b, int64_t r, int64_t first, int64_t count,
                      const room *x) {
  double *s = x->s + r * x->s_row;
  const bool *inside = x->inside + r * SLAB + first;
  for (int64_t j = 0; j < count; j++)
    s[j] = inside[j] ? transform_score(c->p, c->batch, b->head, b->first + r, c->slab + first + j, s[j]).score
                     : -(double)INFINITY;
}

/* Adds the values of a step that are Inf or NaN to the rows that see their keys. */
static void add_infinite(const census *c, const block *b, int64_t first, int64_t count, const room *x) {
  const attn_problem *p = c->p;
  const void *values = attn_rows(c->v, p->v, c->batch, c->kv_head, p->dtype);
  for (int64_t j = 0; j < count; j++)
    for (int64_t l = 0; l < p->d_v; l++) {
      const double v = attn_get(values, (first + j) * p->v.row + l, p->dtype);
      for (int64_t r = 0; r < b->count && !isfinite(v); r++)
        if (first + j < b->keys[r] && (!c->masked || x->inside[r * SLAB + first - c->slab + j]))
          b->o[r * p->d_v + l] += x->s[r * x->s_row + j] * v;
    }
}

/* The step's keys up to the last that a row may see. */
static void block_step(const census *c, const block *b, int64_t s, int64_t count, room *x) {
  const attn_problem *p = c->p;
  const int64_t first = c->slab + s * STEP, whole = step_count(c, s);
  const attn_packed keys = {step_keys(c, s), p->d_qk, whole}, values = {step_values(c, s), whole, p->d_v};
  attn_gemm_packed(c->kernels, b->count, count, p->d_qk, (attn_matrix){x->q, p->d_qk, 1}, keys, false, x->s,
                   x->s_row, x->scratch);
  for (int64_t r = 0; r < b->count; r++) {
    double *row = x->s + r * x->s_row, *o = b->o + r * p->d_v;
    const int64_t own = b->keys[r] - first < 0 ? 0 : at_most(count, b->keys[r] - first);
    if (c->masked) transform(c, b, r, s * STEP, own, x);
    const double factor = own ? c->weigh(own, row, &b->state[r]) : 1;
    memset(row + own, 0, (size_t)(count - own) * sizeof *row);
    for (int64_t l = 0; l < p->d_v && factor != 1; l++) o[l] *= factor;
  }
  attn_gemm_packed(c->kernels, b->count, p->d_v, count, (attn_matrix){x->s, x->s_row, 1}, values, true, b->o,
                   p->d_v, x->scratch);
  if (c->infinite[s]) add_infinite(c, b, first, count, x);
}

/* The textbook divides by e^(s - s) where all scores are -Inf, which is no number. */
static void block_end(const census *c, const block *b) {
  for (int64_t r = 0; r < b->count; r++) {
    const weigh_row *state = &b->state[r];
    double *o = b->o + r * c->p->d_v;
    const double divisor = state->max > -(double)INFINITY ? state->sum : (double)NAN;
    for (int64_t l = 0; l < c->p->d_v; l++) o[l] = b->sees[r] ? o[l] / divisor : 0;
  }
}

static void task_run(const census *c, int64_t task, room *x) {
  block b;
  int64_t most = 0;
  block_begin(c, task, &b);
  for (int64_t r = 0; r < b.count; r++) most = b.keys[r] > most ? b.keys[r] : most;
  if (most > c->slab) block_load(c, &b, x);
  for (int64_t first = c->slab; first < at_most(most, c->end); first += STEP)
    block_step(c, &b, (first - c->slab) / STEP, at_most(at_most(most, c->end) - first, STEP), x);
  if (c->end == c->exist) block_end(c, &b);
}

/* -- memory -- */

static size_t rounded(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static void room_free(room *x) {
  free(x->q);
  free(x->s);
  free(x->wide);
  free(x->inside);
  free(x->marks);
  free(x->runs);
  free(x->scratch);
}

static bool room_make(const census *c, room *out) {
  const attn_problem *p = c->p;
  const size_t row = sizeof(double);
  const int64_t widest = p->d_qk > p->d_v ? p->d_qk : p->d_v, s_row = attn_padded(STEP, ATTN_F64);
  room x = {.q = aligned_alloc(ALIGNMENT, rounded((size_t)(ROWS * p->d_qk) * row)),
            .s = aligned_alloc(ALIGNMENT, rounded((size_t)(ROWS * s_row) * row)),
            .wide = aligned_alloc(ALIGNMENT, rounded((size_t)(STEP * widest) * row)),
            .s_row = s_row,
            .scratch = aligned_alloc(ALIGNMENT, rounded(attn_gemm_scratch(c->kernels) + 1))};
  if (c->masked) {
    x.inside = malloc((size_t)ROWS * SLAB * sizeof *x.inside);
    x.marks = malloc((size_t)p->n_kv * sizeof *x.marks);
    x.runs = malloc((size_t)visible_most_runs(NULL, p) * sizeof *x.runs);
  }
  *out = x;
  return x.q && x.s && x.wide && x.scratch && (!c->masked || (x.inside && x.marks && x.runs));
}

/* -- all of it -- */

static void slab_take(census *c, room *x) {
  const int64_t steps = (c->end - c->slab + STEP - 1) / STEP, tasks = c->group * ((c->p->n_q - 1) / ROWS + 1);
#pragma omp for schedule(dynamic, 1)
  for (int64_t s = 0; s < steps; s++) step_pack(c, s, x->wide);
#pragma omp for schedule(dynamic, 1)
  for (int64_t t = 0; t < tasks; t++) task_run(c, t, x);
}

/* Every thread goes through all heads and slabs; they share the work of each. */
static void heads_take(census *c, const int64_t *kv_len, room *x) {
  for (int64_t line = 0; line < c->p->batch * c->p->kv_heads; line++) {
    const int64_t batch = line / c->p->kv_heads, exist = kv_len ? kv_len[batch] : c->p->n_kv;
    for (int64_t slab = 0; slab < exist; slab += SLAB) {
#pragma omp single
      {
        c->batch = batch;
        c->kv_head = line % c->p->kv_heads;
        c->exist = exist;
        c->slab = slab;
        c->end = at_most(exist, slab + SLAB);
      }
      slab_take(c, x);
    }
  }
}

attn_status census_compute(const attn_problem *p, const void *q, const void *k, const void *v,
                           const int64_t *kv_len, double *o) {
  attn_plan *plan = NULL;
  attn_problem small = attn_problem_make(1, 1, 1, 1);
  small.dtype = ATTN_F64;
  attn_status status = attn_plan_create(&plan, &small, "full", NULL);
  if (status) return status;
  census c = {.p = p,
              .kernels = attn_plan_context(plan)->kernels,
              .weigh = weigh_of(attn_plan_isa(plan)),
              .q = q,
              .k = k,
              .v = v,
              .o = o,
              .masked = transform_any(p) || p->mask.kind != ATTN_MASK_NONE,
              .group = p->heads / p->kv_heads};
  const int64_t step = at_most(STEP, p->n_kv), steps = at_most(STEPS, (p->n_kv - 1) / STEP + 1);
  c.k_bytes = rounded(attn_gemm_packed_bytes(c.kernels, p->d_qk, step));
  c.v_bytes = rounded(attn_gemm_packed_bytes(c.kernels, step, p->d_v));
  c.packed = aligned_alloc(ALIGNMENT, (size_t)steps * (c.k_bytes + c.v_bytes));
  c.state = malloc((size_t)(c.group * p->n_q) * sizeof *c.state);
  c.sees = malloc((size_t)(c.group * p->n_q) * sizeof *c.sees);
  bool failed = !c.packed || !c.state || !c.sees;
  memset(o, 0, (size_t)(p->batch * p->heads * p->n_q * p->d_v) * sizeof *o);
#pragma omp parallel if (!failed)
  {
    room x;
    if (!room_make(&c, &x)) {
#pragma omp atomic write
      failed = true;
    }
#pragma omp barrier
    if (!failed) heads_take(&c, kv_len, &x);
    room_free(&x);
  }
  if (failed) status = attn_fail(ATTN_ENOMEM, "no memory for exact attention on blocks of %d keys", SLAB);
  free(c.packed);
  free(c.state);
  free(c.sees);
  attn_plan_destroy(plan);
  return status;
}

attn_status census_take(const attn_problem *problem, const void *q, const void *k, const void *v,
                        const int64_t *kv_len, exact_rows *rows) {
  attn_problem p = *problem;
  size_t bytes = 0;
  attn_status status = attn_problem_resolve(&p);
  if (!status)
    status = attn_size_product("exact outputs", (int64_t[]){p.batch, p.heads, p.n_q, p.d_v, sizeof(double)},
                               5, &bytes);
  double *o = status ? NULL : malloc(bytes + 1);
  if (!status && !o) status = attn_fail(ATTN_ENOMEM, "no memory for exact outputs, %zu bytes", bytes);
  if (!status) status = census_compute(&p, q, k, v, kv_len, o);
  if (!status) status = census_check(&p, q, k, v, kv_len, rows, o);
  if (status) {
    free(o);
    return status;
  }
  free(rows->all);
  rows->all = o;
  return ATTN_OK;
}

/* -- what it takes -- */

double census_seconds(const attn_problem *p) {
  const attn_score *s = &p->score;
  double pairs = 0, pair = (double)(p->d_qk + p->d_v) + 24; /* an exponential and what is around it */
  if (transform_any(p) || p->mask.kind != ATTN_MASK_NONE) pair += 32;
  if (s->relative || s->dense.at) pair += 32;
  if (s->softcap > 0) pair += 192;
  for (int64_t i = 0; i < p->n_q; i++) pairs += (double)visible_keys(p, i, p->n_kv);
  return (double)(p->batch * p->heads) * pairs * pair * 0x1p-34;
}

bool census_affordable(const attn_problem *p, double memory) {
  const double bytes = (double)(p->batch * p->heads * p->n_q) * (double)p->d_v * sizeof(double);
  return census_seconds(p) <= 10 && bytes <= memory / 8;
}

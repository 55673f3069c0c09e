/* meter_plan.c - executions of a plan as a meter. The output is verified before the time counts. */
#include "experiments/bench/benchmark.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/checks/check.h"
#include "experiments/runner/recheck.h"
#include "experiments/support/entropy.h"

enum { SAMPLE = 4 };

typedef struct state {
  attn_plan *plan;
  int64_t k, v, o; /* where K and V begin in bench.in, elements of the output */
  void *codes[2];  /* of K and V, where the problem stores them otherwise; or NULL */
  bench_gates gates;
  void *carried; /* of a step: the state that is read, and written */
  recheck check;
  int64_t executions;
  bool mirror; /* at the next measurement; they alternate from a random one on */
} state;

static const void *input_at(const bench_meter *m, int64_t i) {
  return attn_at(m->owner->in, i, m->owner->options.dtype);
}

static const void *keys_of(const bench_meter *m) {
  const state *s = m->state;
  return s->codes[0] ? s->codes[0] : input_at(m, s->k);
}

static const void *values_of(const bench_meter *m) {
  const state *s = m->state;
  return s->codes[1] ? s->codes[1] : input_at(m, s->v);
}

static attn_status execute(bench_meter *m) {
  state *s = m->state;
  const bench *b = m->owner;
  s->executions++;
  return attn_plan_run(s->plan, &(attn_tensors){.q = b->in,
                                                .k = keys_of(m),
                                                .v = values_of(m),
                                                .o = b->out,
                                                .work = b->scratch,
                                                .extra = s->gates.of,
                                                .extras = s->gates.count,
                                                .state = s->carried,
                                                .state_after = s->carried});
}

/* What mirrored inputs must give: the first output of a fresh plan. */
static attn_status learn_mirrored(bench_meter *m) {
  state *s = m->state;
  attn_plan *const timed = s->plan;
  const attn_options options = {.threads = m->threads, .isa = m->isa};
  attn_status status =
      attn_plan_create_spec(&s->plan, attn_plan_problem(timed), attn_plan_parsed_spec(timed), &options);
  if (status) return status;
  recheck_mirror(&s->check);
  recheck_poison(&s->check);
  status = execute(m);
  if (!status) status = recheck_learn(&s->check);
  recheck_mirror(&s->check);
  attn_plan_destroy(s->plan);
  s->plan = timed;
  return status;
}

/* Once the output was verified, every measurement must end with it, or with that of mirrored inputs. */
static attn_status measure(bench_meter *m, double span, double *seconds) {
  state *s = m->state;
  attn_status status = ATTN_OK;
  if (!s->check.known[false]) return bench_repeat(m, execute, span, seconds);
  if (!s->check.known[true]) status = learn_mirrored(m);
  if (status) return status;
  if (s->mirror) recheck_mirror(&s->check);
  s->mirror = !s->mirror;
  recheck_poison(&s->check);
  status = bench_repeat(m, execute, span, seconds);
  if (!status) status = recheck_output(&s->check, s->executions);
  if (s->check.mirrored) recheck_mirror(&s->check);
  if (!status) return ATTN_OK;
  char why[300];
  snprintf(why, sizeof why, "%s", attn_last_error());
  return attn_fail(status, "%s (n = %lld, d = %lld): %s", m->name, (long long)m->n, (long long)m->d, why);
}

/* What is in the output is right. */
static attn_status learn_verified(bench_meter *m) {
  state *s = m->state;
  const bench *b = m->owner;
  const attn_problem *p = attn_plan_problem(s->plan);
  const size_t size = attn_dtype_size(p->dtype);
  s->check =
      (recheck){.q = b->in,
                .k = attn_at(b->in, s->k, p->dtype), /* codes stay as they are, Q alone changes */
                .v = attn_at(b->in, s->v, p->dtype),
                .o = b->out,
                .q_bytes = (size_t)s->k * size,
                .k_bytes = s->codes[0] ? 0 : (size_t)(s->v - s->k) * size,
                .v_bytes = s->codes[1] ? 0 : (size_t)(p->batch * p->kv_heads * p->n_kv * p->d_v) * size,
                .o_bytes = (size_t)s->o * size,
                .dtype = p->dtype,
                .d_v = p->d_v};
  recheck_begin(&s->check);
  s->mirror = entropy_below(2) != 0;
  return recheck_learn(&s->check);
}

/* The time of a wrong output is worthless: the bounds on rounding must hold. */
static attn_status check_rounding(const bench_meter *m, const evidence *e) {
  for (const check *const *c = checks_all; *c; c++) {
    if (strncmp((*c)->name, "FP-", 3) != 0) continue;
    result_bound bound = {0};
    check_evaluate(*c, e, &bound);
    if (bound.verdict == VERDICT_VIOLATED || bound.verdict == VERDICT_ERROR)
      return attn_fail(ATTN_ENUMERIC, "%s (n = %lld, d = %lld): the output is wrong by %s: %g, at most %g",
                       m->name, (long long)m->n, (long long)m->d, (*c)->name, bound.measured, bound.value);
  }
  return ATTN_OK;
}

/* Exact attention for the middle row and the last row of the first and of the last head. */
typedef struct sample {
  exact_rows exact;
  sample_row rows[SAMPLE];
  int64_t keys[SAMPLE];
  double sink[SAMPLE]; /* none: zeros */
} sample;

static attn_status sample_make(const evidence *e, sample *x) {
  const attn_problem *p = e->problem;
  exact_rows *exact = &x->exact;
  *exact = (exact_rows){.rows = x->rows, .keys = x->keys, .sink = x->sink};
  const int64_t heads[] = {0, p->heads - 1}, places[] = {p->n_q / 2, p->n_q - 1};
  for (int h = 0; h < 2; h++)
    for (int i = 0; i < 2; i++)
      if ((h == 0 || heads[1] > heads[0]) && (i == 0 || places[1] > places[0]))
        x->rows[exact->count++] = (sample_row){h ? p->batch - 1 : 0, heads[h], places[i]};
  exact->judged = exact->count;
  exact->p = calloc((size_t)(exact->count * p->n_kv), sizeof *exact->p);
  exact->o = calloc((size_t)(exact->count * p->d_v), sizeof *exact->o);
  double *scratch = calloc((size_t)p->n_kv, sizeof *scratch);
  bool made = exact->p && exact->o && scratch;
  for (int64_t r = 0; made && r < exact->count; r++) {
    x->keys[r] = attn_reference_row(p, NULL, e->q, e->k, e->v, NULL, x->rows[r].batch, x->rows[r].head,
                                    x->rows[r].i, exact->p + r * p->n_kv, exact->o + r * p->d_v, scratch);
    made = x->keys[r] >= 0;
  }
  free(scratch);
  return made ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory to verify an output");
}

static void encode(const bench_meter *m, int64_t from, int64_t d, attn_dtype to, char *codes) {
  const attn_problem *p = attn_plan_problem(((const state *)m->state)->plan);
  const size_t bytes = attn_row_bytes(d, to);
  for (int64_t row = 0; codes && row < p->batch * p->kv_heads * p->n_kv; row++)
    attn_convert(input_at(m, from + row * d), p->dtype, d, to, codes + (size_t)row * bytes);
}

static void clear(bench_meter *m) {
  const state *s = m->state;
  const attn_problem *p = attn_plan_problem(s->plan);
  encode(m, s->k, p->d_qk, p->k.stored, s->codes[0]);
  encode(m, s->v, p->d_v, p->v.stored, s->codes[1]);
  for (int64_t i = 0; i < s->o; i++) attn_set(m->owner->out, i, m->owner->options.dtype, (double)NAN);
}

/* The output is that of this plan on these keys and values. */
static attn_status verify_as(bench_meter *m, const attn_plan *plan, const void *k, const void *v) {
  attn_view view;
  sample rows = {.exact = {.count = 0}};
  attn_status status = attn_plan_inspect(plan, &view);
  evidence e = {.plan = plan,
                .problem = attn_plan_problem(plan),
                .view = &view,
                .q = m->owner->in,
                .k = k,
                .v = v,
                .o = m->owner->out,
                .exact = &rows.exact,
                .cache = block_cache_create()};
  if (!status && !e.cache) status = attn_fail(ATTN_ENOMEM, "no memory to verify %s", m->name);
  if (!status) status = sample_make(&e, &rows);
  if (!status) status = check_rounding(m, &e);
  if (!status) status = learn_verified(m);
  free(rows.exact.p);
  free(rows.exact.o);
  block_cache_free(e.cache);
  return status;
}

/* The numbers that codes stand for, or the elements themselves where there are none. */
static void *decode(const attn_problem *p, int64_t d, const void *x, attn_dtype stored) {
  const int64_t rows = p->batch * p->kv_heads * p->n_kv;
  const attn_dtype from = stored ? stored : p->dtype;
  char *out = malloc((size_t)(rows * d) * attn_dtype_size(p->dtype));
  for (int64_t row = 0; out && row < rows; row++)
    attn_convert((const char *)x + (size_t)row * attn_row_bytes(d, from), from, d, p->dtype,
                 attn_at(out, row * d, p->dtype));
  return out;
}

/* Codes are verified as exact attention to the numbers that they stand for, in steps of as many keys. */
static attn_status verify_decoded(bench_meter *m) {
  const state *s = m->state;
  const attn_problem *p = attn_plan_problem(s->plan);
  attn_problem plain = *p;
  attn_view view = {0};
  attn_plan *plan = NULL;
  plain.k = plain.v = (attn_stride){0};
  void *k = decode(p, p->d_qk, keys_of(m), p->k.stored), *v = decode(p, p->d_v, values_of(m), p->v.stored);
  attn_status status = attn_plan_inspect(s->plan, &view);
  if (!status && !(k && v)) status = attn_fail(ATTN_ENOMEM, "no memory to verify %s", m->name);
  const attn_options options = {.threads = m->threads, .isa = m->isa, .blocks.key = view.rounding.block};
  if (!status) status = attn_plan_create_spec(&plan, &plain, attn_plan_parsed_spec(s->plan), &options);
  if (!status) status = verify_as(m, plan, k, v);
  attn_plan_destroy(plan);
  free(k);
  free(v);
  return status;
}

static attn_status verify(bench_meter *m) {
  const state *s = m->state;
  return s->codes[0] || s->codes[1] ? verify_decoded(m) : verify_as(m, s->plan, keys_of(m), values_of(m));
}

static void release(void *state_) {
  state *s = state_;
  attn_plan_destroy(s->plan);
  for (int i = 0; i < 2; i++) free(s->codes[i]);
  free(s->carried);
  bench_gates_free(&s->gates);
  free(s);
}

/* Room for the codes of K and V, where they are stored as such. */
static bool codes_make(const attn_problem *p, state *s) {
  const size_t rows = (size_t)(p->batch * p->kv_heads * p->n_kv);
  if (p->k.stored) s->codes[0] = malloc(rows * attn_row_bytes(p->d_qk, p->k.stored));
  if (p->v.stored) s->codes[1] = malloc(rows * attn_row_bytes(p->d_v, p->v.stored));
  return (s->codes[0] || !p->k.stored) && (s->codes[1] || !p->v.stored);
}

bench_meter *bench_plan(bench *b, const char *spec, const attn_problem *problem, const char *isa,
                        int threads) {
  if (b->status) return NULL;
  const attn_options options = {.threads = threads ? threads : b->options.threads,
                                .isa = isa ? isa : b->options.isa};
  attn_plan *plan = NULL;
  const attn_status status = attn_plan_create(&plan, problem, spec, &options);
  if (status) {
    if (status == ATTN_ENOMEM) b->status = status;
    return NULL;
  }
  state *s = calloc(1, sizeof *s);
  bench_meter *m = s ? bench_meter_add(b, attn_plan_spec(plan)) : NULL;
  if (!m) {
    if (!s) b->status = attn_fail(ATTN_ENOMEM, "out of memory to measure %s", spec);
    free(s);
    attn_plan_destroy(plan);
    return NULL;
  }
  const attn_problem *p = attn_plan_problem(plan);
  const int64_t q = p->batch * p->heads * p->n_q * p->d_qk, k = p->batch * p->kv_heads * p->n_kv * p->d_qk,
                v = p->batch * p->kv_heads * p->n_kv * p->d_v;
  *s = (state){.plan = plan, .k = q, .v = q + k, .o = p->batch * p->heads * p->n_q * p->d_v};
  m->release = release;
  m->state = s;
  if (!codes_make(p, s) || !bench_gates_make(plan, &s->gates)) {
    b->status = attn_fail(ATTN_ENOMEM, "out of memory for codes and gates of %s", spec);
    return NULL;
  }
  bench_need(b, (size_t)(q + k + v), (size_t)s->o, attn_plan_work_size(plan));
  m->isa = attn_plan_isa(plan);
  m->threads = options.threads;
  m->n = p->n_kv;
  m->d = p->d_qk;
  m->flops = 2 * attn_plan_cost(plan).mul_add;
  m->blocks = attn_plan_context(plan)->blocks;
  m->bytes = (double)(p->batch * p->kv_heads * p->n_kv) *
             (double)(attn_row_bytes(p->d_qk, attn_stored(p->k, p->dtype)) +
                      attn_row_bytes(p->d_v, attn_stored(p->v, p->dtype)));
  m->tokens = (double)(p->batch * p->n_q);
  m->memory = (double)(attn_plan_bytes(plan) + attn_plan_work_size(plan));
  m->measure = measure;
  m->clear = clear;
  m->verify = verify;
  return m;
}

bench_meter *bench_step(bench *b, const char *spec, const attn_problem *problem) {
  bench_meter *m = bench_plan(b, spec, problem, NULL, 0);
  if (!m) return NULL;
  state *s = m->state;
  const size_t bytes = attn_plan_state_size(s->plan);
  attn_rng r;
  attn_rng_init(&r, 1, 2, 0);
  if (!(s->carried = malloc(bytes + 1))) {
    b->status = attn_fail(ATTN_ENOMEM, "out of memory for a state of %s", spec);
    return NULL;
  }
  attn_rng_normals(&r, (int64_t)(bytes / attn_dtype_size(problem->dtype)), problem->dtype, s->carried, 0, 1);
  m->bytes = 2 * (double)bytes;
  m->clear = NULL; /* each execution gives another output */
  m->verify = NULL;
  return m;
}

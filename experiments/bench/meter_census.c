/* meter_census.c - exact attention in fp64 on all rows, by which errors are measured, as a meter. */
#include "experiments/bench/benchmark.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "experiments/reference/census.h"

/* Q, K and V one after another in bench.in; o in bench.scratch. */
typedef struct state {
  attn_problem problem;
  int64_t elements; /* of each of the four */
} state;

static const void *tensor(const bench_meter *m, int64_t index) {
  const state *s = m->state;
  return attn_at(m->owner->in, index * s->elements, s->problem.dtype);
}

static attn_status execute(bench_meter *m) {
  const state *s = m->state;
  return census_compute(&s->problem, tensor(m, 0), tensor(m, 1), tensor(m, 2), NULL, m->owner->scratch);
}

static attn_status measure(bench_meter *m, double span, double *seconds) {
  omp_set_num_threads(m->threads);
  return bench_repeat(m, execute, span, seconds);
}

static void clear(bench_meter *m) {
  double *o = m->owner->scratch;
  for (int64_t i = 0; i < ((const state *)m->state)->elements; i++) o[i] = (double)NAN;
}

static attn_status verify(bench_meter *m) {
  const state *s = m->state;
  const void *q = tensor(m, 0), *k = tensor(m, 1), *v = tensor(m, 2);
  exact_rows *rows = NULL;
  attn_status status = exact_rows_draw(&s->problem, q, k, v, NULL, m->owner->options.seed, 4, &rows);
  if (!status) status = census_check(&s->problem, q, k, v, NULL, rows, m->owner->scratch);
  exact_rows_free(rows);
  return status;
}

bench_meter *bench_census(bench *b, const attn_problem *problem) {
  state *s = calloc(1, sizeof *s);
  bench_meter *m = s ? bench_meter_add(b, "exact attention in fp64") : NULL;
  if (!m) {
    if (!s && !b->status) b->status = attn_fail(ATTN_ENOMEM, "out of memory for exact attention in fp64");
    free(s);
    return NULL;
  }
  *s =
      (state){.problem = *problem, .elements = problem->batch * problem->heads * problem->n_q * problem->d_v};
  s->problem.dtype = b->options.dtype;
  m->state = s;
  m->release = free;
  m->measure = measure;
  m->clear = clear;
  m->verify = verify;
  m->n = problem->n_q;
  m->d = problem->d_v;
  m->flops = 4 * (double)s->elements * (double)problem->n_kv;
  b->status = attn_problem_resolve(&s->problem);
  if (b->status) return NULL;
  bench_need(b, 3 * (size_t)s->elements, 0, (size_t)s->elements * sizeof(double));
  return m;
}

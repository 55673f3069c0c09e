/* meter_transform.c - the transforms that fast projections are compared with, along the columns of
 * matrices: FFTW's DCT-II (Frigo and Johnson 2005), planned by measuring, and the Walsh-Hadamard
 * butterflies alone. */
#include "experiments/bench/benchmark.h"

#include <fftw3.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"

/* Matrices of n rows and d columns in bench.in, transformed in or into bench.scratch. */
typedef struct transform {
  int64_t n, d, count;
  fftwf_plan plan;
  attn_plan *holder; /* a plan of any variant: it holds the kernels */
} transform;

static void release_transform(void *state) {
  transform *t = state;
  if (t->plan) fftwf_destroy_plan(t->plan);
  attn_plan_destroy(t->holder);
  free(t);
}

static attn_status execute_dct(bench_meter *m) {
  const transform *t = m->state;
  const size_t size = (size_t)(t->n * t->d);
#pragma omp parallel for num_threads(m->threads)
  for (int64_t i = 0; i < t->count; i++)
    fftwf_execute_r2r(t->plan, m->owner->in + (size_t)i * size,
                      (float *)m->owner->scratch + (size_t)i * size);
  return ATTN_OK;
}

/* The butterflies work in place. The copy, which keeps the numbers from growing, is part of every use. */
static attn_status execute_wht(bench_meter *m) {
  const transform *t = m->state;
  const size_t size = (size_t)(t->n * t->d);
#pragma omp parallel for num_threads(m->threads)
  for (int64_t i = 0; i < t->count; i++) {
    float *x = (float *)m->owner->scratch + (size_t)i * size;
    memcpy(x, m->owner->in + (size_t)i * size, size * sizeof *x);
    attn_wht(attn_plan_context(t->holder)->kernels, t->n, t->d, x);
  }
  return ATTN_OK;
}

static attn_status measure_dct(bench_meter *m, double span, double *seconds) {
  return bench_repeat(m, execute_dct, span, seconds);
}

static attn_status measure_wht(bench_meter *m, double span, double *seconds) {
  return bench_repeat(m, execute_wht, span, seconds);
}

static bench_meter *add_transform(bench *b, const char *name, int64_t n, int64_t d, int64_t count) {
  const size_t floats = (size_t)(n * d * count);
  transform *t = calloc(1, sizeof *t);
  bench_meter *m = t ? bench_meter_add(b, name) : NULL;
  if (!m) {
    if (!t && !b->status) b->status = attn_fail(ATTN_ENOMEM, "out of memory for %s", name);
    free(t);
    return NULL;
  }
  *t = (transform){.n = n, .d = d, .count = count};
  m->n = n;
  m->d = d;
  m->bytes = (double)(floats * sizeof(float));
  m->state = t;
  m->release = release_transform;
  bench_need(b, floats, 0, floats * sizeof(float));
  return m;
}

bench_meter *bench_dct(bench *b, int64_t n, int64_t d, int64_t count) {
  bench_meter *m = add_transform(b, "FFTW: DCT-II of the columns", n, d, count);
  if (!m) return NULL;
  transform *t = m->state;
  const int length = (int)n, columns = (int)d;
  float *x = fftwf_malloc((size_t)(n * d) * sizeof *x), *y = fftwf_malloc((size_t)(n * d) * sizeof *y);
  if (x && y)
    t->plan = fftwf_plan_many_r2r(1, &length, columns, x, NULL, columns, 1, y, NULL, columns, 1,
                                  &(fftwf_r2r_kind){FFTW_REDFT10}, FFTW_MEASURE | FFTW_UNALIGNED);
  fftwf_free(x);
  fftwf_free(y);
  if (!t->plan) {
    b->status = attn_fail(ATTN_ENOMEM, "FFTW made no plan for length %lld", (long long)n);
    return NULL;
  }
  m->measure = measure_dct;
  return m;
}

bench_meter *bench_wht(bench *b, int64_t n, int64_t d, int64_t count) {
  bench_meter *m = add_transform(b, "Walsh-Hadamard transform of the columns", n, d, count);
  if (!m) return NULL;
  transform *t = m->state;
  const attn_problem problem = attn_problem_make(1, 1, 1, 1);
  b->status = attn_plan_create(&t->holder, &problem, "full", &(attn_options){.threads = 1, .isa = m->isa});
  if (b->status) return NULL;
  m->measure = measure_wht;
  return m;
}

/* meter_transform.c - the transforms that fast projections are compared with, along the columns of
 * matrices: FFTW's DCT-II (Frigo and Johnson 2005), planned by measuring, and the Walsh-Hadamard
 * butterflies alone; and the transforms of convolutions, to the spectrum and back, planned as toeplitz
 * does. */
#include "experiments/bench/benchmark.h"

#include <fftw3.h>
#include <omp.h>
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
    fftwf_execute_r2r(t->plan, (float *)m->owner->in + (size_t)i * size,
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
    memcpy(x, (const float *)m->owner->in + (size_t)i * size, size * sizeof *x);
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

/* `count` sequences of n numbers; each thread has one in bench.scratch, behind it the spectrum. */
typedef struct convolutions {
  int64_t n, count;
  fftw_plan forward, backward;
} convolutions;

static size_t convolution_doubles(int64_t n) { return (size_t)(2 * n + 32) / 8 * 8; }

static void release_convolutions(void *state) {
  convolutions *c = state;
  if (c->forward) fftw_destroy_plan(c->forward);
  if (c->backward) fftw_destroy_plan(c->backward);
  free(c);
}

static attn_status execute_convolutions(bench_meter *m) {
  const convolutions *c = m->state;
#pragma omp parallel for num_threads(m->threads)
  for (int64_t i = 0; i < c->count; i++) {
    double *x = (double *)m->owner->scratch + convolution_doubles(c->n) * (size_t)omp_get_thread_num();
    fftw_complex *spectrum = (fftw_complex *)(void *)(x + c->n / 8 * 8 + 8);
    memset(x, 0, (size_t)c->n * sizeof *x); /* transforms back leave anything */
    fftw_execute_dft_r2c(c->forward, x, spectrum);
    fftw_execute_dft_c2r(c->backward, spectrum, x);
  }
  return ATTN_OK;
}

static attn_status measure_convolutions(bench_meter *m, double span, double *seconds) {
  return bench_repeat(m, execute_convolutions, span, seconds);
}

bench_meter *bench_convolutions(bench *b, int64_t n, int64_t count) {
  convolutions *c = calloc(1, sizeof *c);
  double *x = fftw_malloc(2 * convolution_doubles(n) * sizeof *x);
  bench_meter *m = c && x ? bench_meter_add(b, "FFTW: to the spectrum and back") : NULL;
  if (!m) {
    if (!(c && x) && !b->status) b->status = attn_fail(ATTN_ENOMEM, "out of memory for FFTW's transforms");
    fftw_free(x);
    free(c);
    return NULL;
  }
  fftw_complex *spectrum = (fftw_complex *)(void *)(x + convolution_doubles(n));
  *c = (convolutions){.n = n,
                      .count = count,
                      .forward = fftw_plan_dft_r2c_1d((int)n, x, spectrum, FFTW_ESTIMATE),
                      .backward = fftw_plan_dft_c2r_1d((int)n, spectrum, x, FFTW_ESTIMATE)};
  fftw_free(x);
  m->n = n;
  m->state = c;
  m->release = release_convolutions;
  m->measure = measure_convolutions;
  bench_need(b, 0, 0, (size_t)m->threads * convolution_doubles(n) * sizeof *x);
  if (c->forward && c->backward) return m;
  b->status = attn_fail(ATTN_ENOMEM, "FFTW made no plan for length %lld", (long long)n);
  return NULL;
}

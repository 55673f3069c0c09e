/* meter_gemm.c - the two products of full attention, S = Q K^T and O = P V, by the gemm of the engines and
 * by OpenBLAS. OpenBLAS is loaded at run time and never linked. S and P have n x n elements for one head. */
#include "experiments/bench/benchmark.h"

#include <dlfcn.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"

enum { ROWS = 96 /* of a task, as in variants/full.c */, ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

typedef void cblas_sgemm(int order, int a_form, int b_form, int m, int n, int k, float alpha, const float *a,
                         int a_row, const float *b, int b_row, float beta, float *c, int c_row);

typedef struct products {
  int64_t n, d;
  attn_plan *plan; /* a plan of any variant: it holds the kernels */
  void *library;
  cblas_sgemm *sgemm;
  void (*set_threads)(int);
} products;

static void release(void *state) {
  products *s = state;
  attn_plan_destroy(s->plan);
  if (s->library) dlclose(s->library);
  free(s);
}

/* Floats up to the next cache line. */
static int64_t padded(int64_t floats) { return (floats + 15) / 16 * 16; }

/* Q, K, V one after another in bench.in; S in bench.scratch, then K and V packed and the scratch memory of
 * the threads. */
static attn_status execute_own(bench_meter *m) {
  const products *s = m->state;
  const attn_kernels *kernels = attn_plan_context(s->plan)->kernels;
  const int64_t n = s->n, d = s->d;
  const float *q = m->owner->in, *k = q + n * d, *v = k + n * d;
  float *p = m->owner->scratch, *o = m->owner->out;
  char *room = (char *)(p + padded(n * n));
  void *k_room = room, *v_room = room += attn_gemm_packed_bytes(kernels, d, n);
  attn_packed k_packed, v_packed;
  room += attn_gemm_packed_bytes(kernels, n, d);
#pragma omp parallel sections num_threads(m->threads)
  {
#pragma omp section
    k_packed = attn_gemm_pack(kernels, d, n, (attn_matrix){k, 1, d}, k_room);
#pragma omp section
    v_packed = attn_gemm_pack(kernels, n, d, (attn_matrix){v, d, 1}, v_room);
  }
#pragma omp parallel for num_threads(m->threads) schedule(dynamic, 1)
  for (int64_t i = 0; i < n; i += ROWS) {
    const int64_t rows = n - i < ROWS ? n - i : ROWS;
    void *mine = room + (size_t)omp_get_thread_num() * attn_gemm_scratch(kernels);
    attn_gemm_packed(kernels, rows, n, d, (attn_matrix){q + i * d, d, 1}, k_packed, false, p + i * n, n,
                     mine);
    attn_gemm_packed(kernels, rows, d, n, (attn_matrix){p + i * n, n, 1}, v_packed, false, o + i * d, d,
                     mine);
  }
  return ATTN_OK;
}

/* Each thread multiplies its share of the rows. The threads of OpenBLAS itself wait by spinning, which is
 * very slow on a machine with other work. */
static attn_status execute_openblas(bench_meter *m) {
  const products *s = m->state;
  const int64_t n = s->n, d = s->d, share = (n + m->threads - 1) / m->threads;
  const float *q = m->owner->in, *k = q + n * d, *v = k + n * d;
  float *p = m->owner->scratch, *o = m->owner->out;
  s->set_threads(1);
#pragma omp parallel for num_threads(m->threads) schedule(static, 1)
  for (int64_t i = 0; i < n; i += share) {
    const int rows = (int)(n - i < share ? n - i : share), wide = (int)n, narrow = (int)d;
    s->sgemm(ROW_MAJOR, PLAIN, TRANSPOSED, rows, wide, narrow, 1, q + i * d, narrow, k, narrow, 0, p + i * n,
             wide);
    s->sgemm(ROW_MAJOR, PLAIN, PLAIN, rows, narrow, wide, 1, p + i * n, wide, v, narrow, 0, o + i * d,
             narrow);
  }
  return ATTN_OK;
}

static attn_status measure_own(bench_meter *m, double span, double *seconds) {
  return bench_repeat(m, execute_own, span, seconds);
}

static attn_status measure_openblas(bench_meter *m, double span, double *seconds) {
  return bench_repeat(m, execute_openblas, span, seconds);
}

static bench_meter *add(bench *b, const char *name, int64_t n, int64_t d) {
  products *s = calloc(1, sizeof *s);
  bench_meter *m = s ? bench_meter_add(b, name) : NULL;
  if (!m) {
    if (!s && !b->status) b->status = attn_fail(ATTN_ENOMEM, "out of memory for %s", name);
    free(s);
    return NULL;
  }
  *s = (products){.n = n, .d = d};
  m->n = n;
  m->d = d;
  m->flops = 4 * (double)n * (double)n * (double)d;
  m->state = s;
  m->release = release;
  return m;
}

bench_meter *bench_gemm(bench *b, int64_t n, int64_t d) {
  bench_meter *m = add(b, "gemm", n, d);
  if (!m) return NULL;
  products *s = m->state;
  const attn_problem problem = attn_problem_make(1, 1, 1, 1);
  b->status = attn_plan_create(&s->plan, &problem, "full", &(attn_options){.threads = 1, .isa = m->isa});
  if (b->status) return NULL;
  m->measure = measure_own;
  const attn_kernels *kernels = attn_plan_context(s->plan)->kernels;
  bench_need(b, (size_t)(3 * n * d), (size_t)(n * d),
             (size_t)padded(n * n) * sizeof(float) + attn_gemm_packed_bytes(kernels, d, n) +
                 attn_gemm_packed_bytes(kernels, n, d) + (size_t)m->threads * attn_gemm_scratch(kernels));
  return m;
}

/* OpenBLAS runs its oldest kernels on a processor newer than itself, unless it is told what the processor can
 * do. */
static void choose_openblas_kernels(void) {
  const char *isa = attn_isa_list()[0];
  if (strncmp(isa, "avx512", 6) == 0 || strcmp(isa, "amx") == 0) setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
  if (strcmp(isa, "avx2") == 0) setenv("OPENBLAS_CORETYPE", "Haswell", 0);
}

bench_meter *bench_openblas(bench *b, int64_t n, int64_t d) {
  choose_openblas_kernels();
  void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    attn_fail(ATTN_ENOTFOUND, "OpenBLAS (libopenblas.so.0) is not installed");
    return NULL;
  }
  bench_meter *m = add(b, "OpenBLAS: sgemm", n, d);
  if (!m) {
    dlclose(library);
    return NULL;
  }
  products *s = m->state;
  s->library = library;
  /* POSIX: an address from dlsym may be one of a function. */
  *(void **)&s->sgemm = dlsym(library, "cblas_sgemm");
  *(void **)&s->set_threads = dlsym(library, "openblas_set_num_threads");
  if (!s->sgemm || !s->set_threads) {
    attn_fail(ATTN_EFOREIGN, "libopenblas.so.0 has no cblas_sgemm or openblas_set_num_threads");
    return NULL;
  }
  m->measure = measure_openblas;
  bench_need(b, (size_t)(3 * n * d), (size_t)(n * d), (size_t)(n * n) * sizeof(float));
  return m;
}

/* peak.c - the limits of the machine, measured with the SIMD vocabulary of the kernels. */
#include "core/internal.h"

#include <omp.h>

enum { PURPOSE = 0x9ea4, CHUNK = 4096 };

attn_status attn_peak(const attn_options *options, attn_peak_kind kind, double seconds, double *out) {
  const attn_dtype dtype = kind == ATTN_PEAK_F64 ? ATTN_F64 : ATTN_F32;
  const attn_kernels *k;
  int threads;
  if (!out) return attn_null("peak", "result");
  attn_status status = attn_options_resolve(options, dtype, &k, &threads);
  if (!status) status = attn_threads_enter(threads);
  if (status) return status;
  attn_peak_loop loop = kind == ATTN_PEAK_BF16 ? k->products->peak : k->peak;
  int64_t chunk = kind == ATTN_PEAK_BF16 ? CHUNK / 64 : CHUNK;
  _Alignas(64) char factors[PEAK_BYTES];
  attn_rng rng;
  attn_rng_init(&rng, 0, PURPOSE, 0);
  for (int64_t i = 0; i < PEAK_BYTES / (int64_t)attn_dtype_size(dtype); i++)
    attn_set(factors, i, dtype, attn_rng_uniform(&rng) * (attn_rng_bits(&rng) & 1 ? 1 : -1));
  /* All threads run at the same time: one after another, each would have the whole power budget. */
  double start = 0, elapsed = 0;
  int64_t steps = 0;
#pragma omp parallel num_threads(threads) reduction(+ : steps) reduction(max : elapsed)
  {
#pragma omp barrier
#pragma omp single
    start = omp_get_wtime();
    do {
      loop.run(chunk, factors);
      steps += chunk;
    } while ((elapsed = omp_get_wtime() - start) < seconds);
  }
  *out = (double)steps * loop.flops / elapsed;
  return ATTN_OK;
}

attn_status attn_read_bandwidth(const attn_options *options, const void *buffer, size_t bytes, double seconds,
                                double *out) {
  const attn_kernels *k;
  int threads;
  if (!buffer) return attn_null("read bandwidth", "buffer");
  if (!out) return attn_null("read bandwidth", "result");
  attn_status status = attn_options_resolve(options, ATTN_F32, &k, &threads);
  if (!status) status = attn_threads_enter(threads);
  if (status) return status;
  size_t part = bytes / (size_t)threads / CHUNK * CHUNK;
  if (!part)
    return attn_fail(ATTN_EINVAL, "read bandwidth: %zu bytes, expected at least %d for each of %d threads",
                     bytes, CHUNK, threads);
  int64_t passes = 0;
  double start = omp_get_wtime(), elapsed;
  do {
#pragma omp parallel num_threads(threads)
    k->read((int64_t)(part / sizeof(float)), (const char *)buffer + (size_t)omp_get_thread_num() * part);
    passes++;
  } while ((elapsed = omp_get_wtime() - start) < seconds);
  *out = (double)passes * (double)part * threads / elapsed;
  return ATTN_OK;
}

/* windows.c - windows of a text (windows.h). */
#include "experiments/quality/windows.h"

#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"

static int by_value(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

attn_status quality_windows_of_text(const int64_t *text, int64_t length, const quality_windows *shape,
                                    int64_t bos, uint64_t seed, quality_windows *out) {
  const int64_t n = shape->n, taken = bos < 0 ? n : n - 1, left = length - shape->count * taken;
  size_t bytes;
  if (shape->scored < 0 || shape->scored > n - 2)
    return attn_fail(ATTN_EINVAL,
                     "nothing is scored: windows of %lld positions, of which the first %lld are skipped",
                     (long long)n, (long long)shape->scored);
  if (left < 0)
    return attn_fail(ATTN_EINVAL, "%lld tokens, fewer than the %lld of %lld windows of %lld",
                     (long long)length, (long long)(shape->count * taken), (long long)shape->count,
                     (long long)n);
  attn_status status = attn_size_product("windows", (int64_t[]){shape->count, n, 8}, 3, &bytes);
  if (status) return status;
  int64_t *tokens = malloc(bytes), *gaps = malloc((size_t)shape->count * sizeof *gaps);
  if (!tokens || !gaps) {
    free(tokens);
    free(gaps);
    return attn_fail(ATTN_ENOMEM, "no memory for %lld windows", (long long)shape->count);
  }
  /* What is left of the text falls between the windows: sorted uniform numbers are its parts' sums. */
  attn_rng rng;
  attn_rng_init(&rng, seed, 0, 0);
  for (int64_t w = 0; w < shape->count; w++) gaps[w] = attn_rng_below(&rng, left + 1);
  qsort(gaps, (size_t)shape->count, sizeof *gaps, by_value);
  for (int64_t w = 0; w < shape->count; w++) {
    if (bos >= 0) tokens[w * n] = bos;
    memcpy(tokens + w * n + (n - taken), text + w * taken + gaps[w], (size_t)taken * sizeof *tokens);
  }
  free(gaps);
  *out = (quality_windows){tokens, shape->count, n, shape->scored};
  return ATTN_OK;
}

void quality_windows_free(quality_windows *w) {
  free(w->tokens);
  *w = (quality_windows){0};
}

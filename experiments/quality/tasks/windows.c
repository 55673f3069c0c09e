/* windows.c - windows of a text (windows.h). */
#include "experiments/quality/tasks/windows.h"

#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"

static int by_value(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

attn_status quality_windows_make(int64_t count, int64_t n, quality_windows *out) {
  size_t bytes;
  if (count < 1 || n < 2)
    return attn_fail(ATTN_EINVAL,
                     "%lld windows of %lld positions: expected at least one window of two positions",
                     (long long)count, (long long)n);
  attn_status status = attn_size_product("windows", (int64_t[]){count, n, 8}, 3, &bytes);
  if (status) return status;
  *out = (quality_windows){
      .tokens = malloc(bytes), .first = calloc((size_t)count, sizeof *out->first), .count = count, .n = n};
  if (out->tokens && out->first) return ATTN_OK;
  quality_windows_free(out);
  return attn_fail(ATTN_ENOMEM, "no memory for %lld windows", (long long)count);
}

void quality_windows_free(quality_windows *w) {
  free(w->tokens);
  free(w->first);
  *w = (quality_windows){0};
}

int64_t quality_windows_prompt(const quality_windows *w) {
  int64_t prompt = w->question ? w->question : w->n;
  for (int64_t i = 0; i < w->count; i++) prompt = w->first[i] < prompt ? w->first[i] : prompt;
  return prompt;
}

attn_status quality_windows_fill(quality_windows *w, const int64_t *text, int64_t length, int64_t bos,
                                 int64_t skip, uint64_t seed) {
  const int64_t n = w->n, taken = bos < 0 ? n : n - 1, left = length - w->count * taken;
  if (skip > n - 2)
    return attn_fail(ATTN_EINVAL,
                     "nothing is scored: windows of %lld positions, of which the first %lld are skipped",
                     (long long)n, (long long)skip);
  if (left < 0)
    return attn_fail(ATTN_EINVAL, "%lld tokens, fewer than the %lld of %lld windows of %lld",
                     (long long)length, (long long)(w->count * taken), (long long)w->count, (long long)n);
  int64_t *gaps = malloc((size_t)w->count * sizeof *gaps);
  if (!gaps) return attn_fail(ATTN_ENOMEM, "no memory for %lld windows", (long long)w->count);
  /* What is left of the text falls between the windows: sorted uniform numbers are its parts' sums. */
  attn_rng rng;
  attn_rng_init(&rng, seed, 0, 0);
  for (int64_t i = 0; i < w->count; i++) gaps[i] = attn_rng_below(&rng, left + 1);
  qsort(gaps, (size_t)w->count, sizeof *gaps, by_value);
  for (int64_t i = 0; i < w->count; i++) {
    if (bos >= 0) w->tokens[i * n] = bos;
    memcpy(w->tokens + i * n + (n - taken), text + i * taken + gaps[i], (size_t)taken * sizeof *text);
    w->first[i] = skip;
  }
  free(gaps);
  return ATTN_OK;
}

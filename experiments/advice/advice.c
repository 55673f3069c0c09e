/* advice.c - searches the variants, times what was found in turns with exact attention, and names the
 * cheapest. */
#include "experiments/advice/advice.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "experiments/advice/survey.h"
#include "experiments/instruments/machine.h"

#define DOUBT 2 /* a single sample may be off by this factor */

/* -- the choice -- */

/* 0: within the error; 1: that is exact attention in disguise; 2: not within. */
static int group_of(const advice_setting *s) { return s->within ? advice_reads_all(s) : 2; }

/* Those within the error first, by time; then the closest first. */
static int compare(const void *a, const void *b) {
  const advice_setting *x = a, *y = b;
  if (group_of(x) != group_of(y)) return group_of(x) - group_of(y);
  const double left = x->within ? x->time : x->error, right = y->within ? y->time : y->error;
  return (left > right || (isnan(left) && !isnan(right))) - (left < right || (isnan(right) && !isnan(left)));
}

static int compare_errors(const void *a, const void *b) {
  const double x = ((const advice_setting *)a)->error, y = ((const advice_setting *)b)->error;
  return (x > y || (isnan(x) && !isnan(y))) - (x < y || (isnan(y) && !isnan(x)));
}

/* Of caches the one of least error, however fast others are; else the fastest whose interval lies below exact
 * attention's and which leaves keys out, if it reads any. */
static void choose(const advice_request *r, advice *a) {
  if (a->count)
    qsort(a->settings, (size_t)a->count, sizeof *a->settings, r->kv_bytes ? compare_errors : compare);
  a->best = r->kv_bytes && a->count && !isnan(a->settings[0].error) ? 0 : -1;
  if (r->kv_bytes) return;
  for (int64_t i = a->count - 1; i >= 0; i--) {
    const advice_setting *s = &a->settings[i];
    const double slow = isnan(s->time_hi) ? DOUBT * s->time : s->time_hi;
    const double exact = isnan(a->exact.time_lo) ? a->exact.time / DOUBT : a->exact.time_lo;
    if (group_of(s) == 0 && slow < exact) a->best = i;
  }
}

static attn_status parse_all(const advice_request *r, attn_spec **specs, size_t count) {
  attn_status status = ATTN_OK;
  for (size_t i = 0; i < count && !status; i++) status = attn_spec_parse(&specs[i], advice_spec_text(r, i));
  return status;
}

attn_status advice_make(const advice_request *r, advice *out) {
  advice a = {.best = -1, .load = machine_load(), .cores = omp_get_num_procs()};
  const size_t count = r->count ? (size_t)r->count : attn_variant_count();
  attn_spec **specs = calloc(count, sizeof *specs);
  double limit = 0;
  a.threads = r->threads ? r->threads : omp_get_max_threads();
  attn_status status = specs ? parse_all(r, specs, count) : attn_fail(ATTN_ENOMEM, "no memory for specs");
  if (!status) status = survey_search(r, specs, count, &a, &limit);
  if (!status && !r->kv_bytes) status = survey_time(r, limit, &a);
  for (size_t i = 0; specs && i < count; i++) attn_spec_destroy(specs[i]);
  free(specs);
  if (status) {
    advice_free(&a);
    return status;
  }
  choose(r, &a);
  *out = a;
  return ATTN_OK;
}

void advice_free(advice *a) {
  for (int64_t i = 0; i < a->count; i++) advice_setting_free(&a->settings[i]);
  for (int64_t i = 0; i < a->unsupported_count; i++) free(a->unsupported[i]);
  free(a->settings);
  free(a->unsupported);
  advice_setting_free(&a->exact);
  *a = (advice){.best = -1};
}

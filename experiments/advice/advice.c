/* advice.c - searches the variants, times what was found in turns with exact attention, and names the cheapest. */
#include "experiments/advice/advice.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/advice/search.h"
#include "experiments/analysis/doubts.h"
#include "experiments/instruments/machine.h"
#include "experiments/instruments/timing.h"

enum { ROUNDS = 3 }; /* turns of a setting at least, unless one execution exceeds a quarter of the limit */
enum {
  TIMING_SHARE = 2
};              /* what timing takes at the end, in searches of a variant: a guess for the progress */
#define DOUBT 2 /* a single sample may be off by this factor */

/* -- times -- */

typedef struct timed {
  const attempts *x;
  const attn_spec *spec;
  attn_plan *plan;
  void *work;
} timed;

static void end(void *context) {
  timed *t = context;
  attn_plan_destroy(t->plan);
  free(t->work);
  t->plan = NULL;
  t->work = NULL;
}

static attn_status begin(void *context) {
  timed *t = context;
  attn_status status = attn_plan_create_spec(&t->plan, &t->x->problem, t->spec, &t->x->options);
  if (status) return status;
  const size_t bytes = attn_plan_work_size(t->plan);
  if (bytes && !(t->work = malloc(bytes)))
    return attn_fail(ATTN_ENOMEM, "no memory for %zu bytes of work", bytes);
  return ATTN_OK;
}

static attn_status execute(void *context) {
  const timed *t = context;
  const data_qkv *in = t->x->request->input;
  return attn_plan_execute(t->plan, in->q, in->k, in->v, NULL, t->x->o, t->work);
}

static attn_status take_times(const timing_subject *t, uint64_t seed, advice_setting *s) {
  timing_summary found;
  result_row row;
  attn_status status = t->status;
  if (!status) status = timing_summarise(t->samples, t->count, seed, &found);
  if (status) return status;
  result_row_init(&row);
  row.time_median = s->time = found.median;
  row.time_ci_lo = s->time_lo = found.ci_lo;
  row.time_ci_hi = s->time_hi = found.ci_hi;
  row.n_samples = t->count;
  row.iters_per_sample = t->iterations;
  row.n_outliers = found.outliers;
  row.samples = t->samples;
  s->doubts = doubts_of(&row);
  row.samples = NULL;
  result_row_free(&row);
  return ATTN_OK;
}

/* A setting that is not within the error keeps the time of its first execution. */
static attn_status time_all(const attempts *x, advice *a) {
  int64_t count = 0;
  advice_setting **which = calloc((size_t)a->count + 1, sizeof(advice_setting *));
  timing_subject *subjects = calloc((size_t)a->count + 1, sizeof *subjects);
  timed *contexts = calloc((size_t)a->count + 1, sizeof *contexts);
  timing_options options = timing_defaults();
  options.rounds = ROUNDS;
  options.max_time = fmax(options.max_time, x->request->limit / 4);
  attn_status status =
      which && subjects && contexts ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory to time settings");
  if (status) goto out;
  x->request->progress(x->request->to, x->done, "timing what was found, in turns with exact attention");
  which[count++] = &a->exact;
  for (int64_t i = 0; i < a->count; i++)
    if (a->settings[i].within) which[count++] = &a->settings[i];
  for (int64_t i = 0; i < count; i++) {
    contexts[i] = (timed){.x = x, .spec = which[i]->parsed};
    subjects[i] = (timing_subject){
        .begin = begin, .execute = execute, .end = end, .context = &contexts[i], .first = which[i]->time};
  }
  status = timing_rounds(subjects, count, &options, (uint64_t)x->request->seed);
  for (int64_t i = 0; i < count && !status; i++) {
    status = take_times(&subjects[i], (uint64_t)x->request->seed, which[i]);
  }
out:
  for (int64_t i = 0; subjects && i < count; i++) timing_subject_free(&subjects[i]);
  free(which);
  free(subjects);
  free(contexts);
  return status;
}

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

/* The fastest whose interval lies below exact attention's and which leaves keys out, if it reads any. */
static void choose(advice *a) {
  qsort(a->settings, (size_t)a->count, sizeof *a->settings, compare);
  a->best = -1;
  for (int64_t i = a->count - 1; i >= 0; i--) {
    const advice_setting *s = &a->settings[i];
    const double slow = isnan(s->time_hi) ? DOUBT * s->time : s->time_hi;
    const double exact = isnan(a->exact.time_lo) ? a->exact.time / DOUBT : a->exact.time_lo;
    if (group_of(s) == 0 && slow < exact) a->best = i;
  }
}

/* -- all variants -- */

/* What is wrong with an expression names a place in it, and not the expression. */
static attn_status add_note(advice *a, const char *spec) {
  const bool place = strpbrk(spec, "+-*(");
  char **lines = realloc(a->unsupported, (size_t)(a->unsupported_count + 1) * sizeof *lines);
  if (lines) a->unsupported = lines;
  char *line = lines ? text_format("%s%s%s", place ? spec : "", place ? ": " : "", attn_last_error()) : NULL;
  if (!line) return attn_fail(ATTN_ENOMEM, "no memory for a line");
  a->unsupported[a->unsupported_count++] = line;
  return ATTN_OK;
}

/* Another spec may have led to the same setting. */
static bool is_known(const advice *a, const char *spec) {
  bool known = strcmp(a->exact.spec, spec) == 0;
  for (int64_t i = 0; i < a->count; i++) known = known || strcmp(a->settings[i].spec, spec) == 0;
  return known;
}

static void free_setting(advice_setting *s) {
  free(s->spec);
  attn_spec_destroy(s->parsed);
}

static attn_status add(const attempts *x, const char *spec, advice *a) {
  const bool named = x->request->count > 0;
  advice_setting *settings = realloc(a->settings, (size_t)(a->count + 1) * sizeof *settings);
  if (!settings) return attn_fail(ATTN_ENOMEM, "no memory for a setting");
  a->settings = settings;
  advice_setting *s = &settings[a->count];
  const attn_status status = search_setting(x, spec, s);
  if (status == ATTN_EUNSUPPORTED || status == ATTN_ENOMEM || (status == ATTN_EINVAL && !named))
    return add_note(a, spec);
  if (status) return status;
  if (is_known(a, s->spec))
    free_setting(s);
  else
    a->count++;
  return ATTN_OK;
}

attn_status advice_make(const advice_request *r, advice *out) {
  attempts x;
  advice a = {.best = -1, .load = machine_load(), .cores = omp_get_num_procs()};
  a.threads = r->threads ? r->threads : omp_get_max_threads();
  attn_status status = attempts_open(r, &x, &a.exact, &a.mean_v);
  if (status) return status;
  const size_t count = r->count ? (size_t)r->count : attn_variant_count();
  for (size_t i = 0; i < count && !status; i++) {
    x.done = (double)i / (double)(count + TIMING_SHARE);
    status = add(&x, r->count ? r->specs[i] : attn_variant_at(i)->name, &a);
  }
  x.done = (double)count / (double)(count + TIMING_SHARE);
  if (!status) status = time_all(&x, &a);
  attempts_close(&x);
  if (status) {
    advice_free(&a);
    return status;
  }
  choose(&a);
  *out = a;
  return ATTN_OK;
}

void advice_free(advice *a) {
  for (int64_t i = 0; i < a->count; i++) free_setting(&a->settings[i]);
  for (int64_t i = 0; i < a->unsupported_count; i++) free(a->unsupported[i]);
  free(a->settings);
  free(a->unsupported);
  free_setting(&a->exact);
  *a = (advice){.best = -1};
}

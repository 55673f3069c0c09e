/* train_study.c - which models are trained, and training them (train_study.h). */
#include "experiments/training/train_study.h"

#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "experiments/training/train_file.h"

attn_status train_study_add(train_study *s, const char *text) {
  attn_spec *spec = NULL;
  attn_status status = ATTN_OK;
  if (!s->spec_count && strcmp(text, TRAIN_EXACT) != 0) status = train_study_add(s, TRAIN_EXACT);
  if (!status) status = attn_spec_parse(&spec, text);
  for (int64_t i = 0; !status && i < s->spec_count; i++)
    if (attn_spec_equal(spec, s->specs[i]))
      status = attn_fail(ATTN_EINVAL, "variant '%s': %s", text,
                         i ? "named twice" : "the others are compared with it, it is trained in any case");
  if (!status && s->spec_count == TRAIN_SPECS)
    status = attn_fail(ATTN_EINVAL, "variant '%s': at most %d", text, TRAIN_SPECS - 1);
  if (status)
    attn_spec_destroy(spec);
  else
    s->specs[s->spec_count++] = spec;
  return status;
}

static attn_status check_specs(train_study *s) {
  attn_status status = ATTN_OK;
  for (int64_t t = 0; t < s->task_count; t++)
    for (int64_t v = 0; !status && v < s->spec_count; v++) {
      const small_shape shape = train_shape(s->tasks[t], &s->settings);
      free(s->later[v]);
      status = small_attention_check(&shape, s->specs[v], &s->later[v]);
      if (!status) continue;
      char *reason = text_format("%s", attn_last_error());
      attn_fail(status, "'%s' cannot be trained on %s: %s", s->specs[v]->text, s->tasks[t]->name,
                text_or_none(reason));
      free(reason);
    }
  return status;
}

attn_status train_study_open(train_study *s) {
  attn_status status = check_specs(s);
  s->rows = status ? NULL : calloc((size_t)(s->task_count * s->spec_count * s->seeds), sizeof *s->rows);
  if (!status && !s->rows) status = attn_fail(ATTN_ENOMEM, "no memory for %ld seeds", (long)s->seeds);
  if (!status && s->path) status = train_file_read(s);
  return status;
}

void train_study_free(train_study *s) {
  for (int64_t i = 0; i < s->spec_count; i++) {
    attn_spec_destroy(s->specs[i]);
    free(s->later[i]);
  }
  free(s->rows);
  free(s->head);
  *s = (train_study){.path = NULL};
}

/* The spec with the draws of a seed, unless it names others. */
static attn_status seeded(const attn_spec *spec, int64_t seed, attn_spec **out) {
  const char *name = spec->variant->seed;
  if (name && !attn_spec_names(spec, name)) return attn_spec_with_seed(spec, name, seed, out);
  *out = attn_spec_share(spec);
  return ATTN_OK;
}

/* One model, and what its weights answer; exact: the weights of exact attention, NULL where these are
 * they. */
static attn_status train_one(const train_study *s, int64_t task, int64_t spec, int64_t seed,
                             const double *exact, double *weights, train_row *row) {
  const train_task *t = s->tasks[task];
  attn_spec *own = NULL;
  train_row made = {.done = true};
  attn_status status = seeded(s->specs[spec], seed, &own);
  if (!status) status = train_run(t, &s->settings, own, (uint64_t)seed, weights, made.curve);
  if (!status) status = train_test(t, &s->settings, own, (uint64_t)seed, weights, &made.trained);
  made.swapped = made.trained;
  if (!status && exact) status = train_test(t, &s->settings, own, (uint64_t)seed, exact, &made.swapped);
  attn_spec_destroy(own);
  if (!status) *row = made;
  return status;
}

/* All variants of a seed: exact attention first, whose weights the others are tested with, too. */
static attn_status train_seed(train_study *s, int64_t task, int64_t seed) {
  const small_shape shape = train_shape(s->tasks[task], &s->settings);
  const int64_t count = small_weights_count(&shape);
  bool done = true;
  for (int64_t v = 0; v < s->spec_count; v++) done = done && train_study_row(s, task, v, seed)->done;
  if (done) return ATTN_OK;
  region memory = {NULL, false};
  double *exact = region_take(&memory, count, sizeof *exact),
         *weights = region_take(&memory, count, sizeof *weights);
  attn_status status = region_status(&memory, "for the weights of a model");
  for (int64_t v = 0; !status && v < s->spec_count; v++) {
    train_row *row = train_study_row(s, task, v, seed), made;
    if (v && row->done) continue;
    status = train_one(s, task, v, seed, v ? exact : NULL, v ? weights : exact, &made);
    if (status) break;
#pragma omp critical(train_rows)
    {
      *row = made;
      if (s->path) status = train_file_write(s);
    }
  }
  region_free(&memory);
  return status;
}

attn_status train_study_run(train_study *s, int64_t task) {
  attn_status failed = ATTN_OK;
  char *reason = NULL;
#pragma omp parallel for schedule(dynamic)
  for (int64_t seed = 0; seed < s->seeds; seed++) {
    const attn_status status = train_seed(s, task, seed);
    if (!status) continue;
#pragma omp critical(train_failed)
    if (!failed) {
      failed = status;
      reason = text_format("%s", attn_last_error());
    }
  }
  if (failed) attn_fail(failed, "%s", text_or_none(reason));
  free(reason);
  return failed;
}

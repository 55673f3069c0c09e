/* job.c - a job as a line of JSON, and back. */
#include "experiments/runner/job.h"

#include <stdlib.h>
#include <string.h>

#include "data/support/json_text.h"
#include "experiments/evidence/null.h"

enum { INT, REAL };

static const struct {
  const char *name;
  int type;
  size_t offset;
} settings[] = {
#define SETTING(section, name, type, member, min, max, help) {#name, type, offsetof(job, member)},
#include "experiments/grid/settings.def"
};

enum { SETTINGS = sizeof settings / sizeof *settings };

json_t *job_to_json(const job *j) {
  json_t *object = json_object(), *runs = json_array();
  bool ok = object;
  for (axis_id a = 0; a < AXES; a++) json_put(object, axes[a].name, json_integer(j->block.axis[a]), &ok);
  for (size_t i = 0; i < SETTINGS; i++) {
    const void *at = (const char *)j + settings[i].offset;
    json_put(object, settings[i].name,
             settings[i].type == REAL ? json_real(*(const double *)at) : json_integer(*(const int64_t *)at),
             &ok);
  }
  for (size_t i = 0; i < j->block.count; i++) {
    const grid_run *run = &j->block.runs[i];
    json_add(runs,
             json_pack("{sssssssIsb}", "key", run->key, "variant", run->variant, "spec", grid_run_text(run),
                       "seed", (json_int_t)run->seed, "map", run->map),
             &ok);
  }
  for (text_axis_id t = 0; t < TEXT_AXES; t++)
    json_put(object, text_axes[t].name, json_string(j->block.text[t]), &ok);
  json_put(object, "runs", runs, &ok);
  if (j->settled) json_put(object, "settled", json_incref(j->settled), &ok);
  if (!ok) attn_fail(ATTN_ENOMEM, "no memory for a worker's job");
  return json_whole(object, ok);
}

static attn_status read_text(const json_t *object, const char *name, char **text) {
  const char *value = json_string_value(json_object_get(object, name));
  if (!value) return attn_fail(ATTN_EINVAL, "worker's job: expected a text '%s'", name);
  *text = strdup(value);
  return *text ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a worker's job");
}

static attn_status read_real(const json_t *object, const char *name, void *out) {
  const json_t *value = json_object_get(object, name);
  *(double *)out = json_number_value(value);
  return json_is_number(value) ? ATTN_OK
                               : attn_fail(ATTN_EINVAL, "worker's job: expected a number '%s'", name);
}

static attn_status read_integer(const json_t *object, const char *name, void *out) {
  const json_t *value = json_object_get(object, name);
  *(int64_t *)out = json_integer_value(value);
  return json_is_integer(value) ? ATTN_OK
                                : attn_fail(ATTN_EINVAL, "worker's job: expected an integer '%s'", name);
}

static attn_status read_runs(const json_t *runs, grid_block *block) {
  attn_status status = ATTN_OK;
  block->runs = calloc(json_array_size(runs) + 1, sizeof *block->runs);
  if (!block->runs) return attn_fail(ATTN_ENOMEM, "no memory for a worker's job");
  for (size_t i = 0; !status && i < json_array_size(runs); i++) {
    const json_t *run = json_array_get(runs, i);
    const char *text = json_string_value(json_object_get(run, "spec"));
    grid_run *out = &block->runs[block->count++];
    out->seed = json_integer_value(json_object_get(run, "seed"));
    out->map = json_is_true(json_object_get(run, "map"));
    status = read_text(run, "key", &out->key);
    if (!status) status = read_text(run, "variant", &out->variant);
    if (!status && !text) status = attn_fail(ATTN_EINVAL, "worker's job: expected a text 'spec'");
    if (!status && !null_find(out->variant)) status = attn_spec_parse(&out->spec, text);
  }
  return status;
}

attn_status job_from_json(const json_t *object, job *result) {
  job j = {0};
  attn_status status = ATTN_OK;
  for (axis_id a = 0; !status && a < AXES; a++) {
    status = read_integer(object, axes[a].name, &j.block.axis[a]);
    if (!status && (j.block.axis[a] < axes[a].min || j.block.axis[a] > axes[a].max))
      status = attn_fail(ATTN_EINVAL, "worker's job: %s is out of its range", axes[a].name);
  }
  for (size_t i = 0; !status && i < SETTINGS; i++) {
    void *at = (char *)&j + settings[i].offset;
    status = (settings[i].type == REAL ? read_real : read_integer)(object, settings[i].name, at);
  }
  for (text_axis_id t = 0; !status && t < TEXT_AXES; t++)
    status = read_text(object, text_axes[t].name, &j.block.text[t]);
  if (!status) status = read_runs(json_object_get(object, "runs"), &j.block);
  j.settled = json_incref(json_object_get(object, "settled"));
  if (!status)
    *result = j;
  else
    grid_block_free(&j.block);
  return status;
}

/* evaluation_page.c - an evaluation as the JSON that its page draws from.
 *
 * {"title", "columns": {name: what it is},
 *  "lines": [{"label", "variant", "method"}]: the specs, in the order of the runs. method: label without the
 *    parameter that buys accuracy
 *  "runs": [{"line", and a line of the journal (evaluation_rows.h); "model" with digests where one name is
 *  that of several models}]}
 * Numbers as in results/row_json.h. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/quality/evaluation_page.h"

#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "data/support/file.h"
#include "data/support/json_text.h"
#include "experiments/report/page.h"
#include "experiments/support/label.h"

static bool same_model(const quality_record *a, const quality_record *b) {
  return strcmp(a->model_sha256, b->model_sha256) == 0 && strcmp(a->config_sha256, b->config_sha256) == 0;
}

/* A model whose files changed has one name before and after. */
static json_t *model_name(const quality_set *set, const quality_record *r) {
  size_t i = 0;
  while (i < set->count && (strcmp(set->records[i].model, r->model) != 0 || same_model(&set->records[i], r)))
    i++;
  char *name = i == set->count ? text_format("%s", r->model)
                               : text_format("%s (weights %.8s, config %.8s)", r->model, r->model_sha256,
                                             r->config_sha256);
  json_t *out = name ? result_json_text(name) : NULL;
  free(name);
  return out;
}

static json_t *run(const quality_set *set, const quality_record *r, size_t line, bool *ok) {
  json_t *out = quality_record_json(r);
  json_put(out, "line", json_integer((json_int_t)line), ok);
  json_put(out, "model", model_name(set, r), ok);
  return out;
}

static json_t *line(const quality_record *r, bool *ok) {
  json_t *out = json_object();
  char *label = NULL, *method = NULL;
  *ok &= !label_of_text(r->spec, &label) && !label_method(label, r->variant, &method);
  json_put(out, "label", result_json_text(label), ok);
  json_put(out, "variant", result_json_text(r->variant), ok);
  json_put(out, "method", result_json_text(method), ok);
  free(label);
  free(method);
  return out;
}

static size_t first_with_spec(const quality_set *set, size_t run) {
  size_t first = 0;
  while (strcmp(set->records[first].spec, set->records[run].spec) != 0) first++;
  return first;
}

static json_t *evaluation_json(const quality_set *set, const char *title) {
  bool ok = true;
  json_t *out = json_object(), *columns = json_object(), *lines = json_array(), *runs = json_array();
  size_t *line_of = calloc(set->count + 1, sizeof *line_of);
  for (const result_column *c = quality_columns; c->name; c++)
    json_put(columns, c->name, json_string(c->long_name), &ok);
  for (size_t i = 0; line_of && i < set->count; i++) {
    const size_t first = first_with_spec(set, i);
    line_of[i] = first < i ? line_of[first] : json_array_size(lines);
    if (first == i && json_array_append_new(lines, line(&set->records[i], &ok))) ok = false;
    if (json_array_append_new(runs, run(set, &set->records[i], line_of[i], &ok))) ok = false;
  }
  ok = ok && line_of;
  free(line_of);
  json_put(out, "title", result_json_text(title), &ok);
  json_put(out, "columns", columns, &ok);
  json_put(out, "lines", lines, &ok);
  json_put(out, "runs", runs, &ok);
  if (ok) return out;
  json_decref(out);
  attn_fail(ATTN_ENOMEM, "out of memory for the page of an evaluation");
  return NULL;
}

static void put_evaluation(json_stream *data, const void *json) {
  json_stream_value(data, json_incref((json_t *)json));
}

attn_status quality_write_page(const char *path, const quality_set *set, const char *title) {
  json_t *data = evaluation_json(set, title);
  if (!data) return ATTN_ENOMEM;
  const attn_status status = report_write_page(path, REPORT_MODEL, put_evaluation, data, title);
  json_decref(data);
  return status;
}

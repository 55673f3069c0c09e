/* changes_json.c - the JSON of attnlab compare, and where its files come from.
 *
 * {"a", "b": {"file", "uuid", "runs", "drift": [least, most]},
 *  "provenance": changes_provenance,
 *  "limit", "level": of a regression,
 *  "pairs", "only_a", "only_b", "other_isa", "other_threads", "other_data": counts,
 *  "timed", "undecided", "slower", "faster", "errors", "verdicts", "statuses", "violated", "failed": counts
 *  of pairs, "mean": {"ratio": interval, "p_slower", "slower"},
 *  "runs": [{"label", "dataset", "score", "mask", each axis, "key_a", "key_b", "time_a", "time_b", "ratio":
 *    interval, "p_slower", "time": "", "slower", "faster" or "untimed", "error_a", "error_b",
 *    "error_changed", "verdict_a", "verdict_b", "model_verdict_a", "model_verdict_b", "status_a", "status_b",
 *    "violated": [bound]}],
 *  "alone_a", "alone_b": [key]}
 * An interval is [ratio, lo, hi]; runs are in the order of the table. */
#include "experiments/report/changes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "data/support/json_text.h"
#include "experiments/report/page_parts.h"
#include "experiments/support/names.h"

/* ---- provenance ---------------------------------------------------------------------------------------- */

/* What tells of times and errors; not what names the session itself. */
static const char *const told[] = {"git_commit",   "git_dirty",    "build",   "compiler", "cflags",
                                   "cpu_model",    "cpu_flags",    "n_cores", "governor", "boost",
                                   "smt",          "aslr",         "kernel",  "hostname", "env_omp",
                                   "lib_versions", "config_sha256"};

static char *value_text(const json_t *session, const char *name) {
  const json_t *value = json_object_get(session, name);
  if (json_is_string(value)) return strdup(json_string_value(value));
  if (json_is_number(value)) return text_format("%.15g", json_number_value(value)); /* 2 cores, not 2.0 */
  return value && !json_is_null(value) ? json_print(value, JSON_ENCODE_ANY | JSON_COMPACT) : strdup("");
}

/* The different values of a member over the sessions of a set; to be freed. */
static char *values_of(const result_set *set, const char *name) {
  names found = {0};
  char *out = NULL;
  bool ok = true;
  for (size_t i = 0; ok && i < json_array_size(set->sessions); i++) {
    char *text = value_text(json_array_get(set->sessions, i), name);
    const char *kept = text ? names_keep(text) : NULL;
    ok = kept && !names_add(&found, kept);
    free(text);
  }
  if (ok) out = strdup("");
  for (size_t i = 0; out && i < found.count; i++) {
    char *longer = text_format("%s%s%s", out, i ? " | " : "", found.items[i]);
    free(out);
    out = longer;
  }
  names_free(&found);
  return out;
}

json_t *changes_provenance(const changes *c) {
  bool ok = true;
  json_t *out = json_object(), *differ = json_array(), *same = json_array();
  for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
    char *a = values_of(c->a.set, told[i]), *b = values_of(c->b.set, told[i]);
    if (!a || !b) {
      ok = false;
    } else if (strcmp(a, b) == 0) {
      if (*a) json_add(same, json_string(told[i]), &ok);
    } else {
      json_t *one = json_array();
      json_add(one, json_string(told[i]), &ok);
      json_add(one, result_json_text(a), &ok);
      json_add(one, result_json_text(b), &ok);
      json_add(differ, one, &ok);
    }
    free(a);
    free(b);
  }
  json_put(out, "differ", differ, &ok);
  json_put(out, "same", same, &ok);
  return json_whole(out, ok);
}

changes_drift changes_drift_of(const result_set *set) {
  changes_drift d = {(double)NAN, (double)NAN};
  for (size_t i = 0; i < set->count; i++) {
    if (!(set->rows[i].time_median > 0)) continue;
    d.least = fmin(d.least, set->rows[i].drift_ratio);
    d.most = fmax(d.most, set->rows[i].drift_ratio);
  }
  return d;
}

/* ---- the object ---------------------------------------------------------------------------------------- */

static json_t *file_json(const changes_file *f, bool *ok) {
  const changes_drift drift = changes_drift_of(f->set);
  json_t *out = json_object(), *range = json_array();
  json_add(range, result_json_number(drift.least), ok);
  json_add(range, result_json_number(drift.most), ok);
  json_put(out, "file", result_json_text(f->path), ok);
  json_put(out, "uuid", result_json_text(f->set->uuid), ok);
  json_put(out, "runs", json_integer((json_int_t)f->set->count), ok);
  json_put(out, "drift", range, ok);
  return out;
}

static json_t *bounds_json(const run_change *r, bool *ok) {
  char *list = change_bounds(r), *rest = NULL;
  json_t *out = json_array();
  if (!list) *ok = false;
  for (char *name = list ? strtok_r(list, " ", &rest) : NULL; name; name = strtok_r(NULL, " ", &rest))
    json_add(out, result_json_text(name), ok);
  free(list);
  return out;
}

static json_t *run_json(const run_change *r, bool *ok) {
  char text[AXIS_TEXT];
  json_t *out = json_object();
  json_put(out, "label", result_json_text(r->b->label), ok);
  for (text_axis_id t = 0; t < TEXT_AXES; t++)
    if (text_axes[t].section) json_put(out, text_axes[t].name, result_json_text(r->b->text[t]), ok);
  for (axis_id a = 0; a < AXES; a++)
    json_put(out, axes[a].name,
             axes[a].choices ? json_string(axis_print(a, r->b->axis[a], text)) : json_integer(r->b->axis[a]),
             ok);
  json_put(out, "key_a", result_json_text(r->a->key), ok);
  json_put(out, "key_b", result_json_text(r->b->key), ok);
  json_put(out, "time_a", result_json_number(r->a->time_median), ok);
  json_put(out, "time_b", result_json_number(r->b->time_median), ok);
  json_put(out, "ratio", report_interval(&r->ratio, ok), ok);
  json_put(out, "p_slower", result_json_number(r->p_slower), ok);
  json_put(out, "time", json_string(change_words[r->time]), ok);
  json_put(out, "error_a", result_json_number(r->a->err_rel_fro), ok);
  json_put(out, "error_b", result_json_number(r->b->err_rel_fro), ok);
  json_put(out, "error_changed", json_boolean(r->error), ok);
  json_put(out, "verdict_a", json_string(check_verdict_names[r->a->verdict]), ok);
  json_put(out, "verdict_b", json_string(check_verdict_names[r->b->verdict]), ok);
  json_put(out, "model_verdict_a", json_string(check_verdict_names[r->a->model_verdict]), ok);
  json_put(out, "model_verdict_b", json_string(check_verdict_names[r->b->model_verdict]), ok);
  json_put(out, "status_a", json_string(run_status_names[r->a->status]), ok);
  json_put(out, "status_b", json_string(run_status_names[r->b->status]), ok);
  json_put(out, "violated", bounds_json(r, ok), ok);
  return out;
}

static json_t *keys_json(const result_row *const *rows, size_t count, bool *ok) {
  json_t *out = json_array();
  for (size_t i = 0; i < count; i++) json_add(out, result_json_text(rows[i]->key), ok);
  return out;
}

attn_status changes_print_json(FILE *file, const changes *c) {
  const struct {
    const char *name;
    size_t count;
  } counts[] = {
      {"pairs", c->pairs->count},
      {"only_a", c->pairs->only_a_count},
      {"only_b", c->pairs->only_b_count},
      {"other_isa", c->pairs->other_isa},
      {"other_threads", c->pairs->other_threads},
      {"other_data", c->pairs->other_data},
      {"timed", c->change->timed},
      {"undecided", c->change->undecided},
      {"slower", c->change->slower},
      {"faster", c->change->faster},
      {"errors", c->change->errors},
      {"verdicts", c->change->verdicts},
      {"statuses", c->change->statuses},
      {"violated", c->change->violated},
      {"failed", c->change->failed},
  };
  bool ok = true;
  json_t *out = json_object(), *mean = json_object(), *runs = json_array();
  json_put(out, "a", file_json(&c->a, &ok), &ok);
  json_put(out, "b", file_json(&c->b, &ok), &ok);
  json_put(out, "provenance", changes_provenance(c), &ok);
  json_put(out, "limit", json_real(c->limit), &ok);
  json_put(out, "level", json_real(CHANGE_LEVEL), &ok);
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    json_put(out, counts[i].name, json_integer((json_int_t)counts[i].count), &ok);
  json_put(mean, "ratio", report_interval(&c->change->mean, &ok), &ok);
  json_put(mean, "p_slower", result_json_number(c->change->p_mean), &ok);
  json_put(mean, "slower", json_boolean(c->change->mean_slower), &ok);
  json_put(out, "mean", mean, &ok);
  for (size_t i = 0; i < c->change->count; i++) json_add(runs, run_json(&c->change->runs[i], &ok), &ok);
  json_put(out, "runs", runs, &ok);
  json_put(out, "alone_a", keys_json(c->pairs->only_a, c->pairs->only_a_count, &ok), &ok);
  json_put(out, "alone_b", keys_json(c->pairs->only_b, c->pairs->only_b_count, &ok), &ok);
  const attn_status status = ok ? json_write(file, out, JSON_INDENT(2) | JSON_ENSURE_ASCII)
                                : attn_fail(ATTN_ENOMEM, "out of memory for the comparison");
  json_decref(out);
  return status;
}

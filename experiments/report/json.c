/* json.c - a model as the JSON that the page draws from.
 *
 * {"title", "totals": explain_json but failures, "warnings": [text], "sessions": [object],
 *  "estimates": estimates_json, "doubts": [[name, text]],
 *  "lines": [{"label", "source": file (of several), "variant" (of an expression its method), "method",
 *    "exact", "oracle", "params": {name: value}}],
 *  "limits": {"error", "time", "memory": texts of those that are given}, "menus": [[member of a group,
 *  label]], "groups": [{"dataset": short, "spec": of it, "rest", the name of each axis with a menu,
 *    "lines": [{"line", "drawn", "exact": line that it is compared with, "time": fit, "memory": fit,
 *    "crossing": {"kind", "n": interval}, "cells": [{"n", "first" (its place among the runs), "runs", "ok",
 *      "status", "message", "error", "time", "memory", "speedup": intervals, "keys", "left_out", "regret",
 *      "ceiling": numbers, "front": [in time, in memory, in keys], "offered", "no_better" (than which
 *      baseline, or null), "doubts", "profile": text}]}]}],
 *  "maps": as maps.c says, "times": other_times_json,
 *  "runs": runs_put}
 * An interval is [mid, lo, hi], a fit [exponent, lo, hi, points]; numbers as in results/row_json.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "data/support/json_text.h"
#include "experiments/analysis/doubts.h"
#include "experiments/analysis/estimates.h"
#include "experiments/analysis/maps.h"
#include "experiments/mathematics/statistics.h"
#include "experiments/report/explain_violations.h"
#include "experiments/report/page.h"
#include "experiments/report/page_parts.h"
#include "experiments/support/base64.h"

json_t *report_interval(const fit_interval *x, bool *ok) {
  json_t *out = json_array();
  json_add(out, result_json_number(x->mid), ok);
  json_add(out, result_json_number(x->lo), ok);
  json_add(out, result_json_number(x->hi), ok);
  return out;
}

static json_t *fit(const fit_power *f, bool *ok) {
  json_t *out = report_interval(&f->exponent, ok);
  json_add(out, json_integer((json_int_t)f->points), ok);
  return out;
}

/* ---- groups -------------------------------------------------------------------------------------------- */

/* Medians over seeds, as the upper halves of 32-bit floating-point numbers, in base64: a third of their size
 * as text, and quick to read. Empty if no run has a profile. */
static json_t *profile(const results_model *m, const model_cell *c, bool *ok) {
  double *values = calloc(c->count, sizeof *values);
  unsigned char halves[2 * RESULT_PROFILE_BINS] = {0};
  bool any = false;
  if (!values) *ok = false;
  for (int bin = 0; values && bin < RESULT_PROFILE_BINS; bin++) {
    for (size_t i = 0; i < c->count; i++) values[i] = m->rows[c->first + i]->profile_l2[bin];
    const double median = median_of(values, c->count);
    const float rounded = (float)median;
    uint32_t bits;
    any = any || !isnan(median);
    memcpy(&bits, &rounded, sizeof bits);
    if (isfinite(rounded)) bits += 0x8000;
    halves[2 * bin] = (unsigned char)(bits >> 16);
    halves[2 * bin + 1] = (unsigned char)(bits >> 24);
  }
  free(values);
  char *text = base64_encode(halves, any ? sizeof halves : 0);
  json_t *out = json_string(text);
  free(text);
  return out;
}

static json_t *cell(const results_model *m, const model_cell *c, bool *ok) {
  json_t *out = json_object(), *front = json_array();
  json_add(front, json_boolean(c->front_time), ok);
  json_add(front, json_boolean(c->front_memory), ok);
  json_add(front, json_boolean(c->front_keys), ok);
  json_put(out, "n", json_integer(c->n), ok);
  json_put(out, "first", json_integer((json_int_t)c->first), ok);
  json_put(out, "runs", json_integer((json_int_t)c->count), ok);
  json_put(out, "ok", json_integer((json_int_t)c->ok), ok);
  json_put(out, "status", json_string(run_status_names[c->status]), ok);
  json_put(out, "message", result_json_text(c->ok ? "" : m->rows[c->first]->message), ok);
  json_put(out, "error", report_interval(&c->error, ok), ok);
  json_put(out, "time", report_interval(&c->time, ok), ok);
  json_put(out, "memory", report_interval(&c->memory, ok), ok);
  json_put(out, "speedup", report_interval(&c->speedup, ok), ok);
  json_put(out, "keys", result_json_number(c->keys), ok);
  json_put(out, "left_out", result_json_number(c->left_out), ok);
  json_put(out, "regret", result_json_number(c->regret), ok);
  json_put(out, "ceiling", result_json_number(c->ceiling), ok);
  json_put(out, "front", front, ok);
  json_put(out, "offered", json_boolean(c->offered), ok);
  json_put(out, "no_better", c->no_better ? json_string(c->no_better) : json_null(), ok);
  json_put(out, "doubts", json_integer(c->doubts), ok);
  json_put(out, "profile", profile(m, c, ok), ok);
  return out;
}

static json_t *line(const results_model *m, const model_group *g, const model_line *l, bool *ok) {
  json_t *out = json_object(), *crossing = json_object(), *cells = json_array();
  json_put(crossing, "kind", json_string(fit_crossing_names[l->crossing.kind]), ok);
  json_put(crossing, "n", report_interval(&l->crossing.n, ok), ok);
  for (size_t c = 0; c < l->count; c++) json_add(cells, cell(m, &l->cells[c], ok), ok);
  json_put(out, "line", json_integer((json_int_t)l->setting), ok);
  json_put(out, "drawn", json_boolean(m->settings[l->setting].drawn), ok);
  json_put(out, "exact",
           l->exact < g->count ? json_integer((json_int_t)g->lines[l->exact].setting) : json_null(), ok);
  json_put(out, "time", fit(&l->time, ok), ok);
  json_put(out, "memory", fit(&l->memory, ok), ok);
  json_put(out, "crossing", crossing, ok);
  json_put(out, "cells", cells, ok);
  return out;
}

/* The value of an axis with a menu: a number, the name of a choice, or yes and no as in a title. */
static json_t *axis_value(const result_row *row, axis_id a) {
  char text[AXIS_TEXT];
  if (!axes[a].choices) return json_integer(row->axis[a]);
  if (!axes[a].yes_no) return json_string(axis_print(a, row->axis[a], text));
  return json_sprintf("%s%s", row->axis[a] ? "" : "not ", axes[a].title);
}

/* The menus by which a reader of the page chooses a group: names of members of a group, and their labels. */
static json_t *menus(bool *ok) {
  json_t *out = json_array();
  json_add(out, json_pack("[s,s]", "dataset", "Data"), ok);
  for (axis_id a = 0; a < AXES; a++)
    if (axes[a].menu) json_add(out, json_pack("[s,s]", axes[a].name, axes[a].menu), ok);
  json_add(out, json_pack("[s,s]", "rest", "Otherwise"), ok);
  return out;
}

static json_t *group(const results_model *m, const model_group *g, const dataset_names *datasets, bool *ok) {
  json_t *out = json_object(), *lines = json_array();
  const result_row *first = m->rows[g->lines[0].cells[0].first];
  result_row shared = *first;
  if (first->source && !m->machine) shared.threads = 0;
  char *title = setting_title(&shared, true);
  char *rest =
      title ? text_format("%s%s%s", title, shared.threads ? ", " : "", shared.threads ? first->isa : "")
            : NULL;
  json_put(out, "dataset", result_json_text(dataset_names_of(datasets, first->dataset)), ok);
  json_put(out, "spec", result_json_text(first->dataset), ok);
  for (axis_id a = 0; a < AXES; a++)
    if (axes[a].menu) json_put(out, axes[a].name, axis_value(first, a), ok);
  json_put(out, "rest", rest ? result_json_text(rest) : NULL, ok);
  free(rest);
  free(title);
  for (size_t l = 0; l < g->count; l++) json_add(lines, line(m, g, &g->lines[l], ok), ok);
  json_put(out, "lines", lines, ok);
  return out;
}

/* By the names of the page's fields, in their units: per cent, milliseconds, MiB. */
static json_t *limits_json(const report_limits *limits, bool *ok) {
  json_t *out = json_object();
  const struct {
    const char *name;
    double value;
  } all[] = {{"error", limits ? 100 * limits->error : (double)NAN},
             {"time", limits ? 1e3 * limits->time : (double)NAN},
             {"memory", limits ? limits->memory / 0x1p20 : (double)NAN}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (!isnan(all[i].value)) json_put(out, all[i].name, json_sprintf("%.10g", all[i].value), ok);
  return out;
}

json_t *report_json(const results_model *m, const char *title, const report_limits *limits) {
  dataset_names datasets = {0};
  const bool named = !dataset_names_make(m, &datasets);
  bool ok = named;
  json_t *out = json_object(), *lines = json_array(), *groups = json_array(), *doubts = json_array();
  json_t *totals = explain_json(m->set);
  json_object_del(totals, "failures"); /* the run table has columns of it */
  for (size_t s = 0; s < m->settings_count; s++) {
    json_t *one = json_object();
    const char *source = m->settings[s].row->source;
    json_put(one, "label", result_json_text(m->labels[s]), &ok);
    if (source) json_put(one, "source", result_json_text(source), &ok);
    json_put(one, "variant",
             result_json_text(m->settings[s].expression ? m->methods[s] : m->settings[s].row->variant), &ok);
    json_put(one, "method", result_json_text(m->methods[s]), &ok);
    json_put(one, "exact", json_boolean(m->settings[s].exact), &ok);
    json_put(one, "params", json_incref(m->settings[s].params), &ok);
    json_put(one, "oracle", json_boolean(m->settings[s].oracle), &ok);
    json_add(lines, one, &ok);
  }
  for (const doubt *d = doubt_list; d->name; d++) {
    json_t *one = json_array();
    json_add(one, json_string(d->name), &ok);
    json_add(one, json_string(d->text), &ok);
    json_add(doubts, one, &ok);
  }
  for (size_t g = 0; g < m->groups_count && named; g++)
    json_add(groups, group(m, &m->groups[g], &datasets, &ok), &ok);
  json_put(out, "title", result_json_text(title), &ok);
  json_put(out, "totals", totals, &ok);
  json_put(out, "warnings", doubts_of_sessions(m->set), &ok);
  json_put(out, "estimates", estimates_json(m), &ok);
  json_put(out, "sessions", json_incref(m->set->sessions), &ok);
  json_put(out, "limits", limits_json(limits, &ok), &ok);
  json_put(out, "menus", menus(&ok), &ok);
  json_put(out, "doubts", doubts, &ok);
  json_put(out, "lines", lines, &ok);
  json_put(out, "groups", groups, &ok);
  json_put(out, "maps", maps_json(m), &ok);
  json_put(out, "times", other_times_json(limits ? &limits->times : &(other_times){0}, m), &ok);
  dataset_names_free(&datasets);
  if (!ok) attn_fail(ATTN_ENOMEM, "out of memory for the report");
  return json_whole(out, ok);
}

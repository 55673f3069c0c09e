/* runs_json.c - the runs of a page: parts.h says what it holds. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/json_text.h"
#include "experiments/analysis/doubts.h"
#include "experiments/checks/check.h"
#include "experiments/report/parts.h"
#include "experiments/report/repeat.h"

/* ---- columns ------------------------------------------------------------------------------------------- */

/* Columns of the table of runs. */
static const char *const tabled[] = {"n",           "seed",        "time_median", "time_ci_lo", "time_ci_hi",
                                     "drift_ratio", "n_samples",   "n_outliers",  "gflops",     "peak_alloc",
                                     "err_rel_fro", "err_max_abs", "rows_sampled"};

/* And what the panel of a run has besides. */
static const char *const detailed[] = {"err_rel_fro_lo",
                                       "err_rel_fro_hi",
                                       "err_rel_fro_cert_hi",
                                       "err_rel_l2_mean",
                                       "err_rel_l2_max",
                                       "err_cos_min",
                                       "err_max_tail",
                                       "err_kl_mean",
                                       "err_row_l1_max",
                                       "rows_degenerate",
                                       "keys_mean",
                                       "keys_max",
                                       "kept_mass_mean",
                                       "regret_mean",
                                       "drawn_share",
                                       "select_share",
                                       "budget_used",
                                       "need_10pct",
                                       "work_bytes",
                                       "peak_rss",
                                       "run_time",
                                       "load"};

static json_t *run_value(const result_row *row, const result_column *c) {
  switch (c->type) {
  case COLUMN_TEXT:
    return result_json_text(result_column_text(row, c));
  case COLUMN_F64:
    return result_json_number(result_column_f64(row, c));
  case COLUMN_I64:
  case COLUMN_I32:
  case COLUMN_FLAG:
  case COLUMN_BOOL:
    break;
  }
  return json_integer(result_column_int(row, c));
}

static const result_column *column_named(const char *name) {
  const result_column *c = result_columns;
  while (strcmp(c->name, name) != 0) c++;
  return c;
}

static void put_columns(const results_model *m, const char *const *wanted, size_t count, json_t *out,
                        json_t *described, bool *ok) {
  for (size_t s = 0; s < count; s++) {
    const result_column *c = column_named(wanted[s]);
    json_t *values = json_array();
    for (size_t i = 0; i < m->set->count; i++) json_add(values, run_value(m->rows[i], c), ok);
    json_put(out, c->name, values, ok);
    json_add(described, json_pack("[s,s,s]", c->name, c->units ? c->units : "", c->long_name), ok);
  }
}

/* ---- bounds -------------------------------------------------------------------------------------------- */

/* A list of JSON values that texts name, and the place of each. */
typedef struct list {
  json_t *items, *places;
} list;

/* The place of a text; a new one adds `item`, which is always released. */
static json_t *place_of(list *l, const char *text, json_t *item, bool *ok) {
  json_t *key = result_json_text(text),
         *place = key ? json_object_get(l->places, json_string_value(key)) : NULL;
  if (place) {
    json_decref(item);
    json_incref(place);
  } else {
    place = json_integer((json_int_t)json_array_size(l->items));
    json_add(l->items, item, ok);
    json_put(l->places, key ? json_string_value(key) : "", json_incref(place), ok);
    *ok = *ok && key;
  }
  json_decref(key);
  return place;
}

static json_t *check_json(const result_bound *b) {
  const check *c = check_find(b->name);
  return json_pack("[o,s,s]", result_json_text(b->name), check_kind_names[b->kind], c ? c->statement : "");
}

static json_t *bound_json(const result_bound *b, list *checks, list *messages, bool *ok) {
  json_t *out = json_array();
  json_add(out, place_of(checks, b->name, check_json(b), ok), ok);
  json_add(out, json_integer(b->verdict), ok);
  json_add(out, result_json_number(b->value), ok);
  json_add(out, result_json_number(b->measured), ok);
  json_add(out, result_json_number(b->margin), ok);
  json_add(out, result_json_number(b->p_value), ok);
  json_add(
      out,
      place_of(messages, b->message ? b->message : "", result_json_text(b->message ? b->message : ""), ok),
      ok);
  return out;
}

/* The cells of a row from the first to the last, exclusive. */
static json_t *cells_json(const result_row *row, int first, int last, list *checks, list *messages,
                          bool *ok) {
  json_t *out = json_array();
  for (int b = first; b < last; b++)
    json_add(out, bound_json(result_row_cell(row, b), checks, messages, ok), ok);
  return out;
}

/* Properties are those of a setting: the page has them once, and each run says which are its own. */
static void put_bounds(const results_model *m, json_t *out, bool *ok) {
  list checks = {json_array(), json_object()}, messages = {json_array(), json_object()};
  list properties = {json_array(), json_object()};
  json_t *all = json_array(), *of = json_array(), *verdicts = json_array();
  for (size_t i = 0; i < m->set->count; i++) {
    const result_row *row = m->rows[i];
    char name[32];
    snprintf(name, sizeof name, "%p", (const void *)row->properties);
    const bool known = json_object_get(properties.places, name);
    json_t *shared = known
                         ? json_null()
                         : cells_json(row, row->bounds_count, result_row_cells(row), &checks, &messages, ok);
    json_add(all, cells_json(row, 0, row->bounds_count, &checks, &messages, ok), ok);
    json_add(of, place_of(&properties, name, shared, ok), ok);
  }
  for (int v = 0; v < VERDICTS; v++) json_add(verdicts, json_string(check_verdict_names[v]), ok);
  json_put(out, "bounds", all, ok);
  json_put(out, "property", of, ok);
  json_put(out, "properties", properties.items, ok);
  json_put(out, "checks", checks.items, ok);
  json_put(out, "messages", messages.items, ok);
  json_put(out, "verdicts", verdicts, ok);
  json_decref(checks.places);
  json_decref(messages.places);
  json_decref(properties.places);
}

/* ---- commands ------------------------------------------------------------------------------------------ */

/* Not within a character of UTF-8. */
static bool may_cut(const char *at) { return ((unsigned char)*at & 0xC0) != 0x80; }

/* How long all texts but the empty ones begin alike, and how long they end so behind that. */
static void find_ends(char *const *texts, size_t count, size_t *head, size_t *tail) {
  const char *first = NULL;
  *head = *tail = 0;
  for (size_t i = 0; i < count; i++) {
    if (!*texts[i]) continue;
    if (!first) {
      first = texts[i];
      *head = strlen(first);
    }
    size_t same = 0;
    while (same < *head && texts[i][same] == first[same]) same++;
    *head = same;
  }
  while (first && *head > 0 && !may_cut(first + *head)) (*head)--;
  if (!first) return;
  const size_t whole = strlen(first);
  *tail = whole - *head;
  for (size_t i = 0; i < count; i++) {
    const size_t length = strlen(texts[i]);
    size_t same = 0;
    while (length && same < *tail && same < length - *head &&
           texts[i][length - 1 - same] == first[whole - 1 - same])
      same++;
    if (length) *tail = same;
  }
  while (*tail > 0 && !may_cut(first + whole - *tail)) (*tail)--;
}

static json_t *part(const char *text, size_t length) {
  char *copy = strndup(text, length);
  json_t *out = copy ? result_json_text(copy) : NULL;
  free(copy);
  return out;
}

static void put_group(char *const *texts, size_t count, json_t *ends, json_t *middle, bool *ok) {
  size_t head, tail, first = 0;
  find_ends(texts, count, &head, &tail);
  while (first < count && !*texts[first]) first++;
  json_t *both = json_array();
  const char *any = first < count ? texts[first] : "";
  json_add(both, part(any, head), ok);
  json_add(both, result_json_text(any + strlen(any) - tail), ok);
  json_add(ends, both, ok);
  for (size_t i = 0; i < count; i++)
    json_add(middle, *texts[i] ? part(texts[i] + head, strlen(texts[i]) - head - tail) : json_null(), ok);
}

/* Commands of a page differ in lengths and variants alone, and a page may have twenty thousand. */
static json_t *commands(const results_model *m, char *(*make)(const result_row *), bool *ok) {
  json_t *out = json_object(), *ends = json_array(), *middle = json_array();
  char **texts = calloc(m->set->count + 1, sizeof *texts);
  bool whole = texts;
  for (size_t i = 0; i < m->set->count && whole; i++) whole = (texts[i] = make(m->rows[i]));
  for (size_t g = 0, first = 0; g < m->groups_count && whole; g++) {
    size_t count = 0;
    for (size_t l = 0; l < m->groups[g].count; l++)
      for (size_t c = 0; c < m->groups[g].lines[l].count; c++) count += m->groups[g].lines[l].cells[c].count;
    put_group(texts + first, count, ends, middle, ok);
    first += count;
  }
  for (size_t i = 0; i < m->set->count && texts; i++) free(texts[i]);
  free(texts);
  *ok = *ok && whole;
  json_put(out, "ends", ends, ok);
  json_put(out, "middle", middle, ok);
  return out;
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

json_t *runs_json(const results_model *m, bool *ok) {
  json_t *out = json_object(), *groups = json_array(), *lines = json_array(), *doubts = json_array();
  json_t *statuses = json_array(), *verdicts = json_array(), *models = json_array(), *messages = json_array();
  json_t *described = json_array();
  for (size_t g = 0; g < m->groups_count; g++)
    for (size_t l = 0; l < m->groups[g].count; l++)
      for (size_t c = 0; c < m->groups[g].lines[l].count; c++)
        for (size_t i = 0; i < m->groups[g].lines[l].cells[c].count; i++)
          json_add(groups, json_integer((json_int_t)g), ok);
  for (size_t i = 0; i < m->set->count; i++) {
    const result_row *row = m->rows[i];
    json_add(lines, json_integer((json_int_t)m->setting_of[i]), ok);
    json_add(doubts, json_integer(doubts_of(row)), ok);
    json_add(statuses, json_string(run_status_names[row->status]), ok);
    json_add(verdicts, json_string(check_verdict_names[row->verdict]), ok);
    json_add(models, json_string(check_verdict_names[row->model_verdict]), ok);
    json_add(messages, result_json_text(row->message), ok);
  }
  json_put(out, "group", groups, ok);
  json_put(out, "line", lines, ok);
  put_columns(m, tabled, sizeof tabled / sizeof *tabled, out, described, ok);
  put_columns(m, detailed, sizeof detailed / sizeof *detailed, out, described, ok);
  json_put(out, "columns", described, ok);
  json_put(out, "doubts", doubts, ok);
  json_put(out, "status", statuses, ok);
  json_put(out, "verdict", verdicts, ok);
  json_put(out, "model_verdict", models, ok);
  json_put(out, "message", messages, ok);
  put_bounds(m, out, ok);
  json_put(out, "apply", commands(m, repeat_apply, ok), ok);
  json_put(out, "run", commands(m, repeat_run, ok), ok);
  return out;
}

/* runs_json.c - the runs of a page: page_parts.h says what it holds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/json_text.h"
#include "experiments/analysis/doubts.h"
#include "experiments/checks/check.h"
#include "experiments/report/page_parts.h"
#include "experiments/report/repeat_command.h"

static void put_member(json_stream *out, const char *name, json_t *value) {
  json_stream_name(out, name);
  json_stream_value(out, value);
}

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

static void put_columns(const results_model *m, const char *const *wanted, size_t count, json_stream *out,
                        json_t *described) {
  for (size_t s = 0; s < count; s++) {
    const result_column *c = result_column_named(wanted[s]);
    json_t *values = json_array();
    for (size_t i = 0; i < m->set->count; i++) json_add(values, run_value(m->rows[i], c), &out->ok);
    put_member(out, c->name, values);
    json_add(described, json_pack("[s,s,s]", c->name, c->units ? c->units : "", c->long_name), &out->ok);
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
static void put_bounds(const results_model *m, json_stream *out) {
  list checks = {json_array(), json_object()}, messages = {json_array(), json_object()};
  list properties = {json_array(), json_object()};
  json_t *of = json_array(), *verdicts = json_array();
  bool *ok = &out->ok;
  json_stream_name(out, "bounds");
  json_stream_open(out, '[');
  for (size_t i = 0; i < m->set->count; i++) {
    const result_row *row = m->rows[i];
    char name[32];
    snprintf(name, sizeof name, "%p", (const void *)row->properties);
    const bool known = json_object_get(properties.places, name);
    json_t *shared = known
                         ? json_null()
                         : cells_json(row, row->bounds_count, result_row_cells(row), &checks, &messages, ok);
    json_stream_value(out, cells_json(row, 0, row->bounds_count, &checks, &messages, ok));
    json_add(of, place_of(&properties, name, shared, ok), ok);
  }
  json_stream_close(out, ']');
  for (int v = 0; v < VERDICTS; v++) json_add(verdicts, json_string(check_verdict_names[v]), ok);
  put_member(out, "property", of);
  put_member(out, "properties", properties.items);
  put_member(out, "checks", checks.items);
  put_member(out, "messages", messages.items);
  put_member(out, "verdicts", verdicts);
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

/* The middles of a group's texts; how all begin and end. */
static void put_group(char *const *texts, size_t count, json_t *ends, json_stream *middle) {
  size_t head, tail, first = 0;
  find_ends(texts, count, &head, &tail);
  while (first < count && !*texts[first]) first++;
  json_t *both = json_array();
  const char *any = first < count ? texts[first] : "";
  json_add(both, part(any, head), &middle->ok);
  json_add(both, result_json_text(any + strlen(any) - tail), &middle->ok);
  json_add(ends, both, &middle->ok);
  for (size_t i = 0; i < count; i++)
    json_stream_value(middle,
                      *texts[i] ? part(texts[i] + head, strlen(texts[i]) - head - tail) : json_null());
}

static size_t runs_of(const model_group *g) {
  size_t count = 0;
  for (size_t l = 0; l < g->count; l++)
    for (size_t c = 0; c < g->lines[l].count; c++) count += g->lines[l].cells[c].count;
  return count;
}

/* Commands of a group differ in lengths and variants alone. */
static void put_commands(const results_model *m, char *(*make)(const result_row *), const char *name,
                         json_stream *out) {
  json_t *ends = json_array();
  json_stream_name(out, name);
  json_stream_open(out, '{');
  json_stream_name(out, "middle");
  json_stream_open(out, '[');
  for (size_t g = 0, first = 0, count; g < m->groups_count; g++, first += count) {
    count = runs_of(&m->groups[g]);
    char **texts = calloc(count + 1, sizeof *texts);
    bool whole = texts;
    for (size_t i = 0; i < count && whole; i++) whole = (texts[i] = make(m->rows[first + i]));
    if (whole) put_group(texts, count, ends, out);
    for (size_t i = 0; i < count && texts; i++) free(texts[i]);
    free(texts);
    out->ok = out->ok && whole;
  }
  json_stream_close(out, ']');
  put_member(out, "ends", ends);
  json_stream_close(out, '}');
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

static json_t *line_of(const results_model *m, size_t run) {
  return json_integer((json_int_t)m->setting_of[run]);
}
static json_t *doubts_of_run(const results_model *m, size_t run) {
  return json_integer(doubts_of(m->rows[run]));
}
static json_t *status_of(const results_model *m, size_t run) {
  return json_string(run_status_names[m->rows[run]->status]);
}
static json_t *verdict_of(const results_model *m, size_t run) {
  return json_string(check_verdict_names[m->rows[run]->verdict]);
}
static json_t *model_verdict_of(const results_model *m, size_t run) {
  return json_string(check_verdict_names[m->rows[run]->model_verdict]);
}
static json_t *message_of(const results_model *m, size_t run) {
  return result_json_text(m->rows[run]->message);
}

/* Member by member: together they would take more memory than the rows. */
void runs_put(json_stream *out, const results_model *m) {
  static const struct {
    const char *name;
    json_t *(*of)(const results_model *, size_t run);
  } members[] = {{"line", line_of},       {"doubts", doubts_of_run},           {"status", status_of},
                 {"verdict", verdict_of}, {"model_verdict", model_verdict_of}, {"message", message_of}};
  json_t *groups = json_array(), *described = json_array();
  for (size_t g = 0; g < m->groups_count; g++)
    for (size_t i = 0; i < runs_of(&m->groups[g]); i++)
      json_add(groups, json_integer((json_int_t)g), &out->ok);
  json_stream_open(out, '{');
  put_member(out, "group", groups);
  for (size_t k = 0; k < sizeof members / sizeof *members; k++) {
    json_t *values = json_array();
    for (size_t i = 0; i < m->set->count; i++) json_add(values, members[k].of(m, i), &out->ok);
    put_member(out, members[k].name, values);
  }
  put_columns(m, tabled, sizeof tabled / sizeof *tabled, out, described);
  put_columns(m, detailed, sizeof detailed / sizeof *detailed, out, described);
  put_member(out, "columns", described);
  put_bounds(m, out);
  put_commands(m, repeat_apply, "apply", out);
  put_commands(m, repeat_run, "run", out);
  json_stream_close(out, '}');
}

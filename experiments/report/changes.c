/* changes.c - the comparison of two results files as text: where they come from, then times, errors and
 * verdicts, what is worst first. */
#include "experiments/report/changes.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attn_tools.h"
#include "data/support/file.h"
#include "experiments/support/escape.h"
#include "experiments/support/table.h"

enum { VALUE_WIDTH = 40, LINE_WIDTH = 80 };

static const char *plural(size_t count) { return count == 1 ? "" : "s"; }

/* ---- where from ---------------------------------------------------------------------------------------- */

/* When the first session began. */
static void print_date(FILE *out, const result_set *set) {
  double start = (double)NAN, seconds;
  char text[32];
  struct tm utc;
  for (size_t i = 0; i < json_array_size(set->sessions); i++) {
    const json_t *value = json_object_get(json_array_get(set->sessions, i), "start_time");
    if (value && result_json_read_number(value, &seconds)) start = fmin(start, seconds);
  }
  const time_t when = fabs(start) < 1e12 ? (time_t)start : 0;
  if (when && gmtime_r(&when, &utc) && strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc))
    fprintf(out, " of %s", text);
}

static void print_file(FILE *out, char letter, const changes_file *f) {
  const changes_drift d = changes_drift_of(f->set);
  fprintf(out, "%c: ", letter);
  escape_put(out, f->path);
  fprintf(out, ", %zu run%s", f->set->count, plural(f->set->count));
  print_date(out, f->set);
  if (!isnan(d.least))
    fprintf(out, "; while they were timed the machine's speed drifted by x%.3g to x%.3g", d.least, d.most);
  fputs(".\n", out);
}

static bool has_word(const char *list, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = list; (at = strstr(at, word)); at++)
    if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return true;
  return false;
}

/* A value, or of a list of words those that the other value has not. */
static char *shown_value(const char *name, const char *own, const char *other) {
  if (strcmp(name, "cpu_flags") != 0) return strdup(own);
  char *list = strdup(own), *rest = NULL, *out = strdup("");
  for (char *word = list ? strtok_r(list, " ", &rest) : NULL; word && out;
       word = strtok_r(NULL, " ", &rest)) {
    if (has_word(other, word)) continue;
    char *longer = text_format("%s%s%s", out, *out ? " " : "", word);
    free(out);
    out = longer;
  }
  if (!list) {
    free(out);
    out = NULL;
  }
  free(list);
  return out;
}

static attn_status print_provenance(FILE *out, const changes *c) {
  json_t *all = changes_provenance(c), *one;
  if (!all) return attn_fail(ATTN_ENOMEM, "out of memory for the comparison");
  attn_status status = ATTN_OK;
  size_t i;
  text_table t = {.columns = 3, .left = 3};
  table_add(&t, "differs");
  table_add(&t, "A");
  table_add(&t, "B");
  json_array_foreach(json_object_get(all, "differ"), i, one) {
    const char *name = json_string_value(json_array_get(one, 0)),
               *a = json_string_value(json_array_get(one, 1)), *b = json_string_value(json_array_get(one, 2));
    char *of_a = shown_value(name, a, b), *of_b = shown_value(name, b, a);
    table_add(&t, "%s", name);
    table_add(&t, "%.*s", VALUE_WIDTH, of_a ? of_a : "");
    table_add(&t, "%.*s", VALUE_WIDTH, of_b ? of_b : "");
    t.failed = t.failed || !of_a || !of_b;
    free(of_a);
    free(of_b);
  }
  if (t.count > t.columns) status = table_print(out, &t, TABLE_TEXT);
  table_free(&t);
  size_t width = 0;
  json_array_foreach(json_object_get(all, "same"), i, one) {
    const char *name = json_string_value(one), *separator = i == 0               ? "Alike: "
                                                            : width > LINE_WIDTH ? ",\n  "
                                                                                 : ", ";
    width = (i == 0 || width > LINE_WIDTH ? 0 : width) + strlen(separator) + strlen(name);
    fprintf(out, "%s%s", separator, name);
  }
  fputs(i ? ".\n\n" : "\n", out);
  json_decref(all);
  return status;
}

static void print_pairs(FILE *out, const result_pairs *p) {
  fprintf(out, "%zu run%s in both; %zu of A and %zu of B without a counterpart.", p->count, plural(p->count),
          p->only_a_count, p->only_b_count);
  const struct {
    size_t count;
    const char *what;
  } other[] = {{p->other_isa, "another instruction set"},
               {p->other_threads, "another number of threads"},
               {p->other_data, "other data or files (SHA-256), so that their errors do not compare"}};
  for (size_t i = 0; i < sizeof other / sizeof *other; i++)
    if (other[i].count) fprintf(out, " %zu with %s.", other[i].count, other[i].what);
  fputs("\n\n", out);
}

/* ---- names of runs ------------------------------------------------------------------------------------- */

/* In what the runs differ beside their labels. */
typedef struct varying {
  bool axis[AXES], text[TEXT_AXES];
} varying;

static varying varying_of(const results_change *c) {
  varying v = {.axis = {false}};
  v.axis[AXIS_n] = true;
  for (size_t i = 1; i < c->count; i++) {
    const result_row *first = c->runs[0].b, *row = c->runs[i].b;
    for (axis_id a = 0; a < AXES; a++) {
      const bool follows =
          axes[a].same_as < AXES && axis_default(a, row->axis) && axis_default(a, first->axis);
      if (axes[a].section && !follows && row->axis[a] != first->axis[a]) v.axis[a] = true;
    }
    for (text_axis_id t = 0; t < TEXT_AXES; t++)
      if (text_axes[t].section && strcmp(result_text(row, t), result_text(first, t)) != 0) v.text[t] = true;
  }
  return v;
}

/* "longformer:window=256 n=1024 seed=1", to be freed. */
static char *run_text(const result_row *row, const varying *v) {
  char *text = NULL, value[AXIS_TEXT];
  size_t size;
  FILE *out = open_memstream(&text, &size);
  if (!out) return NULL;
  fputs(text_or_none(row->label), out);
  for (axis_id a = 0; a < AXES; a++)
    if (v->axis[a]) fprintf(out, " %s=%s", axes[a].name, axis_print(a, row->axis[a], value));
  for (text_axis_id t = 0; t < TEXT_AXES; t++)
    if (v->text[t] && text_axis_in_grid(t) && *result_text(row, t))
      fprintf(out, " %s=%s", text_axes[t].name, row->text[t]);
  if (v->text[TEXT_AXIS_dataset]) fprintf(out, " %s", row->dataset);
  attn_stream_text(out, &text);
  return text;
}

static void add_run(text_table *t, const run_change *r, const varying *v) {
  char *text = run_text(r->b, v);
  table_add(t, "%s", text ? text : "");
  t->failed = t->failed || !text;
  free(text);
}

/* A table of some of the runs, cut unless all are asked for. */
static attn_status finish(FILE *out, text_table *t, bool all, size_t count) {
  const attn_status status = table_print(out, t, TABLE_TEXT);
  table_free(t);
  if (!all && count > CHANGES_SHOWN) fprintf(out, "... and %zu more: --all\n", count - CHANGES_SHOWN);
  putc('\n', out);
  return status;
}

/* ---- what changed -------------------------------------------------------------------------------------- */

static void put_mean(FILE *out, const changes *c) {
  const results_change *x = c->change;
  fprintf(out, "Time, B over A: geometric mean x%.3g", x->mean.mid);
  if (!isnan(x->mean.lo)) fprintf(out, " [%.3g, %.3g]", x->mean.lo, x->mean.hi);
  fprintf(out, " of %zu run%s%s.\n", x->timed, plural(x->timed),
          x->mean_slower ? ", which is certainly more than the limit" : "");
  fprintf(out,
          "Significantly more than %.3g %% slower (at %.0f %%, over all runs together): %zu; as much faster: "
          "%zu.",
          100 * (c->limit - 1), 100 * (1 - CHANGE_LEVEL), x->slower, x->faster);
  if (x->undecided) fprintf(out, " With a single sample, which decides nothing: %zu.", x->undecided);
  fputs("\n", out);
}

static attn_status print_times(FILE *out, const changes *c, const varying *v, bool all) {
  char a[SHORT_TEXT], b[SHORT_TEXT];
  if (c->change->timed == 0) {
    fputs("No run was timed in both.\n\n", out);
    return ATTN_OK;
  }
  put_mean(out, c);
  text_table t = {.columns = 6, .last_left = true};
  static const char *const header[] = {"B / A", "95 %", "A", "B", "", "run"};
  for (size_t i = 0; i < t.columns; i++) table_add(&t, "%s", header[i]);
  for (size_t i = 0; i < c->change->timed && (all || i < CHANGES_SHOWN); i++) {
    const run_change *r = &c->change->runs[i];
    table_add(&t, "x%.3g", r->ratio.mid);
    if (isnan(r->ratio.lo))
      table_add(&t, "");
    else
      table_add(&t, "[%.3g, %.3g]", r->ratio.lo, r->ratio.hi);
    table_add(&t, "%s", short_time(r->a->time_median, a));
    table_add(&t, "%s", short_time(r->b->time_median, b));
    table_add(&t, "%s", change_words[r->time]);
    add_run(&t, r, v);
  }
  return finish(out, &t, all, c->change->timed);
}

static attn_status print_errors(FILE *out, const changes *c, const varying *v, bool all) {
  char a[SHORT_TEXT], b[SHORT_TEXT];
  size_t count = 0;
  text_table t = {.columns = 3, .last_left = true};
  if (!c->change->errors) {
    fputs("No error changed by more than a hundredth and by more than rounding.\n\n", out);
    return ATTN_OK;
  }
  fprintf(out, "Errors that changed by more than a hundredth and by more than rounding: %zu.\n",
          c->change->errors);
  table_add(&t, "A");
  table_add(&t, "B");
  table_add(&t, "run");
  for (size_t i = 0; i < c->change->count; i++) {
    const run_change *r = &c->change->runs[i];
    if (!r->error || (!all && count >= CHANGES_SHOWN)) continue;
    count++;
    table_add(&t, "%s", short_number(r->a->err_rel_fro, a));
    table_add(&t, "%s", short_number(r->b->err_rel_fro, b));
    add_run(&t, r, v);
  }
  return finish(out, &t, all, c->change->errors);
}

/* A run's status, where it ended well its verdict, and that of a model where it is not the same in both. */
static void add_word(text_table *t, const result_row *row, bool model) {
  if (row->status != RUN_OK)
    table_add(t, "%s", run_status_names[row->status]);
  else if (model)
    table_add(t, "%s, model %s", check_verdict_names[row->verdict], check_verdict_names[row->model_verdict]);
  else
    table_add(t, "%s", check_verdict_names[row->verdict]);
}

static bool has_other_word(const run_change *r) { return r->verdict || r->model_verdict || r->status; }

/* Those that became violated or failed come first. */
static attn_status print_words(FILE *out, const changes *c, const varying *v, bool all) {
  size_t total = 0, count = 0;
  for (size_t i = 0; i < c->change->count; i++) total += has_other_word(&c->change->runs[i]);
  if (total == 0) {
    fputs("No verdict and no status changed.\n", out);
    return ATTN_OK;
  }
  fprintf(out, "Verdicts or states that changed: %zu; became violated: %zu; failed: %zu.\n", total,
          c->change->violated, c->change->failed);
  text_table t = {.columns = 4, .left = 4};
  static const char *const header[] = {"A", "B", "violated", "run"};
  for (size_t i = 0; i < t.columns; i++) table_add(&t, "%s", header[i]);
  for (int worse = 1; worse >= 0; worse--)
    for (size_t i = 0; i < c->change->count; i++) {
      const run_change *r = &c->change->runs[i];
      if (!has_other_word(r) || (r->violated || r->failed) != (worse == 1)) continue;
      if (!all && count++ >= CHANGES_SHOWN) continue;
      char *bounds = change_bounds(r);
      add_word(&t, r->a, r->model_verdict);
      add_word(&t, r->b, r->model_verdict);
      table_add(&t, "%s", bounds ? bounds : "");
      t.failed = t.failed || !bounds;
      free(bounds);
      add_run(&t, r, v);
    }
  return finish(out, &t, all, total);
}

static void list_alone(FILE *out, char letter, const result_row *const *rows, size_t count) {
  if (count) fprintf(out, "Only in %c:\n", letter);
  for (size_t i = 0; i < count; i++) {
    fputs("  ", out);
    escape_put(out, rows[i]->key);
    putc('\n', out);
  }
}

attn_status changes_print(FILE *out, const changes *c, bool all) {
  const varying v = varying_of(c->change);
  print_file(out, 'A', &c->a);
  print_file(out, 'B', &c->b);
  attn_status status = print_provenance(out, c);
  if (!status) print_pairs(out, c->pairs);
  if (!status) status = print_times(out, c, &v, all);
  if (!status) status = print_errors(out, c, &v, all);
  if (!status) status = print_words(out, c, &v, all);
  if (!status && all) list_alone(out, 'A', c->pairs->only_a, c->pairs->only_a_count);
  if (!status && all) list_alone(out, 'B', c->pairs->only_b, c->pairs->only_b_count);
  if (!status && (fflush(out) || ferror(out)))
    status = attn_fail(ATTN_EFOREIGN, "cannot write the comparison: %s", strerror(errno));
  return status;
}

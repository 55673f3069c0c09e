/* explain_violations.c - violated bounds as paragraphs and as JSON. */
#include "experiments/report/explain_violations.h"

#include <math.h>
#include <stdlib.h>

#include "data/support/json_text.h"
#include "experiments/checks/check.h"
#include "experiments/report/repeat_command.h"
#include "experiments/support/escape.h"
#include "experiments/support/names.h"

/* A bound whose hypotheses are not met has no value. */
static bool warns(const result_bound *b) {
  return b->kind == KIND_MODEL && b->verdict == VERDICT_UNCERTIFIABLE && !isnan(b->value);
}

bool explain_wanted(const result_bound *b) {
  return b->verdict == VERDICT_VIOLATED || b->verdict == VERDICT_ERROR || warns(b);
}

static const char *headline(const result_bound *b) {
  return b->verdict == VERDICT_VIOLATED ? "VIOLATED" : b->verdict == VERDICT_ERROR ? "ERROR" : "WARNING";
}

static void put_files(FILE *file, const char *what, const char *sha256) {
  fprintf(file, "  Files of %s: SHA-256 ", what);
  escape_put(file, sha256);
  putc('\n', file);
}

/* The files that the run was made from, by content. */
static void print_files(FILE *file, const result_row *row) {
  const struct {
    const char *what, *sha256;
  } files[] = {{"the dataset", row->dataset_sha256},
               {"the variant's parameters and the score", row->files_sha256},
               {"the plug-in", row->plugin_sha256}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (files[i].sha256 && *files[i].sha256) put_files(file, files[i].what, files[i].sha256);
}

static void print_meaning(FILE *file, const result_bound *b) {
  static const char *const meanings[] = {
      [KIND_HARD] = "It is proven, so the code, the descriptors of the variant, or this check is wrong.",
      [KIND_PROB] =
          "If it held, a value so far out would occur with probability p. With its repetition, the other "
          "seeds\n  and Holm's correction over the sweep's probabilistic bounds, at level 1e-5, it is "
          "rejected.",
      [KIND_MODEL] = "It rests on a model or a claim, which is not proven and fails here: no violation.",
      [KIND_REPORT] = "It is for information.",
      [KIND_PROPERTY] =
          "Every variant must keep it, or declare with a reason that it cannot (attn_exemption).",
  };
  if (b->verdict == VERDICT_ERROR)
    fputs("  The check could not be evaluated.\n", file);
  else
    fprintf(file, "  %s\n", meanings[b->kind]);
}

static void put_line(FILE *file, const char *label, const char *text, const char *end) {
  fputs(label, file);
  escape_put(file, text);
  fprintf(file, "%s\n", end);
}

attn_status explain_print(FILE *file, const result_row *row, const result_bound *b, table_format format) {
  const check *c = check_find(b->name);
  char *rerun = repeat_run(row);
  if (!rerun) return attn_fail(ATTN_ENOMEM, "no memory to explain a violation");
  fprintf(file, "%s%s ", format == TABLE_MARKDOWN ? "- " : "", headline(b));
  escape_put(file, b->name);
  fprintf(file, ": measured %.6g, bound %.6g, margin %.6g", b->measured, b->value, b->margin);
  if (b->kind == KIND_PROB) fprintf(file, ", p = %.3g", b->p_value);
  if (b->kind == KIND_PROB && b->p_repeat > 0) fprintf(file, ", repeated p = %.3g", b->p_repeat);
  put_line(file, ": ", row->key, "");
  if (*b->message) put_line(file, "  Here: ", b->message, ".");
  if (c) fprintf(file, "  The bound: %s.\n", c->statement);
  print_meaning(file, b);
  if (c && c->cause) fprintf(file, "  The usual cause: %s.\n", c->cause);
  if (c) fprintf(file, "  Its formula, assumptions and source: attnlab describe %s\n", b->name);
  print_files(file, row);
  put_line(file, "  This run alone: ", rerun, "");
  free(rerun);
  return ATTN_OK;
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static bool put(json_t *object, const char *name, json_t *value) {
  return json_object_set_new(object, name, value) == 0;
}

static json_t *cell_json(const result_row *row, const result_bound *b) {
  const check *c = check_find(b->name);
  json_t *object = json_object();
  char *rerun = repeat_run(row);
  bool complete = object && rerun && put(object, "check", result_json_text(b->name)) &&
                  put(object, "statement", c ? json_string(c->statement) : json_null()) &&
                  put(object, "key", result_json_text(row->key)) &&
                  put(object, "rerun", result_json_text(rerun));
  for (const result_column *column = result_bound_columns; complete && column->name; column++)
    complete = put(object, column->name, result_column_json(b, column));
  free(rerun);
  if (complete) return object;
  json_decref(object);
  return NULL;
}

/* The count of each name of a list. Names with a count of zero are left out. */
static json_t *counts_json(const char *const *list, const size_t *counts) {
  json_t *object = json_object();
  for (size_t i = 0; object && list[i]; i++)
    if (counts[i] > 0 && !put(object, list[i], json_integer((json_int_t)counts[i]))) {
      json_decref(object);
      object = NULL;
    }
  return object;
}

static json_t *failure_json(const result_row *row) {
  json_t *object = json_object();
  if (object && put(object, "key", result_json_text(row->key)) &&
      put(object, "status", json_string(run_status_names[row->status])) &&
      put(object, "message", result_json_text(row->message)))
    return object;
  json_decref(object);
  return NULL;
}

static json_t *unchecked_json(const result_set *set) {
  names variants = {0};
  json_t *out = json_array();
  bool complete = out && !summary_unchecked(set, &variants);
  for (size_t i = 0; complete && i < variants.count; i++)
    complete = json_array_append_new(out, result_json_text(variants.items[i])) == 0;
  names_free(&variants);
  if (complete) return out;
  json_decref(out);
  return NULL;
}

json_t *explain_json(const result_set *set) {
  size_t statuses[RUN_SKIPPED + 2] = {0}, verdicts[VERDICTS + 1] = {0};
  result_verdicts found = {.cells = NULL};
  json_t *out = json_object(), *violations = json_array(), *errors = json_array(), *warnings = json_array(),
         *failures = json_array();
  bool complete = out && violations && errors && warnings && failures && !results_verdicts(set, &found);
  for (size_t i = 0; i < set->count && complete; i++) {
    const result_row *row = &set->rows[i];
    statuses[row->status]++;
    if (row->status != RUN_OK) complete = json_array_append_new(failures, failure_json(row)) == 0;
  }
  for (size_t i = 0; i < found.count && complete; i++) {
    const result_bound *cell = found.cells[i].bound;
    verdicts[cell->verdict]++;
    json_t *list = cell->verdict == VERDICT_VIOLATED ? violations
                   : cell->verdict == VERDICT_ERROR  ? errors
                                                     : warnings;
    if (explain_wanted(cell))
      complete = json_array_append_new(list, cell_json(found.cells[i].row, cell)) == 0;
  }
  complete = complete && put(out, "runs", json_integer((json_int_t)set->count)) &&
             put(out, "statuses", counts_json(run_status_names, statuses)) &&
             put(out, "verdicts", counts_json(check_verdict_names, verdicts)) &&
             put(out, "bounds", json_integer((json_int_t)found.bounds)) &&
             put(out, "properties", json_integer((json_int_t)found.properties)) &&
             put(out, "settings", json_integer((json_int_t)found.settings)) &&
             json_object_set(out, "violations", violations) == 0 &&
             json_object_set(out, "errors", errors) == 0 && json_object_set(out, "warnings", warnings) == 0 &&
             json_object_set(out, "failures", failures) == 0 && put(out, "unchecked", unchecked_json(set));
  json_decref(violations);
  json_decref(errors);
  json_decref(warnings);
  json_decref(failures);
  free(found.cells);
  if (complete) return out;
  json_decref(out);
  attn_fail(ATTN_ENOMEM, "no memory for the JSON form of the verdicts");
  return NULL;
}

attn_status explain_print_json(FILE *file, const json_t *json) {
  char *text = json_print(json, JSON_INDENT(2) | JSON_ENSURE_ASCII);
  if (!text) return ATTN_ENOMEM;
  const bool written = fprintf(file, "%s\n", text) > 0;
  free(text);
  return written ? ATTN_OK : attn_fail(ATTN_EFOREIGN, "cannot write the verdicts");
}

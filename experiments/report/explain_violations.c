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

static json_t *cell_json(const result_row *row, const result_bound *b) {
  const check *c = check_find(b->name);
  json_t *object = json_object();
  char *rerun = repeat_run(row);
  bool ok = rerun;
  json_put(object, "check", result_json_text(b->name), &ok);
  json_put(object, "statement", c ? json_string(c->statement) : json_null(), &ok);
  json_put(object, "key", result_json_text(row->key), &ok);
  json_put(object, "rerun", result_json_text(rerun), &ok);
  for (const result_column *column = result_bound_columns; column->name; column++)
    json_put(object, column->name, result_column_json(b, column), &ok);
  free(rerun);
  return json_whole(object, ok);
}

/* The count of each name of a list. Names with a count of zero are left out. */
static json_t *counts_json(const char *const *list, const size_t *counts) {
  json_t *object = json_object();
  bool ok = object;
  for (size_t i = 0; list[i]; i++)
    if (counts[i] > 0) json_put(object, list[i], json_integer((json_int_t)counts[i]), &ok);
  return json_whole(object, ok);
}

static json_t *failure_json(const result_row *row) {
  json_t *object = json_object();
  bool ok = object;
  json_put(object, "key", result_json_text(row->key), &ok);
  json_put(object, "status", json_string(run_status_names[row->status]), &ok);
  json_put(object, "message", result_json_text(row->message), &ok);
  return json_whole(object, ok);
}

static json_t *unchecked_json(const result_set *set) {
  names variants = {0};
  json_t *out = json_array();
  bool ok = out && !summary_unchecked(set, &variants);
  for (size_t i = 0; ok && i < variants.count; i++) json_add(out, result_json_text(variants.items[i]), &ok);
  names_free(&variants);
  return json_whole(out, ok);
}

json_t *explain_json(const result_set *set) {
  size_t statuses[RUN_SKIPPED + 2] = {0}, verdicts[VERDICTS + 1] = {0};
  result_verdicts found = {.cells = NULL};
  json_t *out = json_object(), *violations = json_array(), *errors = json_array(), *warnings = json_array(),
         *failures = json_array();
  bool ok = !results_verdicts(set, &found);
  for (size_t i = 0; i < set->count && ok; i++) {
    const result_row *row = &set->rows[i];
    statuses[row->status]++;
    if (row->status != RUN_OK) json_add(failures, failure_json(row), &ok);
  }
  for (size_t i = 0; i < found.count && ok; i++) {
    const result_bound *cell = found.cells[i].bound;
    verdicts[cell->verdict]++;
    json_t *list = cell->verdict == VERDICT_VIOLATED ? violations
                   : cell->verdict == VERDICT_ERROR  ? errors
                                                     : warnings;
    if (explain_wanted(cell)) json_add(list, cell_json(found.cells[i].row, cell), &ok);
  }
  json_put(out, "runs", json_integer((json_int_t)set->count), &ok);
  json_put(out, "statuses", counts_json(run_status_names, statuses), &ok);
  json_put(out, "verdicts", counts_json(check_verdict_names, verdicts), &ok);
  json_put(out, "bounds", json_integer((json_int_t)found.bounds), &ok);
  json_put(out, "properties", json_integer((json_int_t)found.properties), &ok);
  json_put(out, "settings", json_integer((json_int_t)found.settings), &ok);
  json_put(out, "violations", violations, &ok);
  json_put(out, "errors", errors, &ok);
  json_put(out, "warnings", warnings, &ok);
  json_put(out, "failures", failures, &ok);
  json_put(out, "unchecked", unchecked_json(set), &ok);
  free(found.cells);
  if (!ok) attn_fail(ATTN_ENOMEM, "no memory for the JSON form of the verdicts");
  return json_whole(out, ok);
}

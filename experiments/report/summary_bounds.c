/* summary_bounds.c - why runs are missing, how often each bound holds for each variant, and what is
 * violated. */
#include "experiments/report/summary_bounds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/mathematics/statistics.h"
#include "experiments/report/explain_violations.h"
#include "experiments/support/escape.h"
#include "experiments/support/names.h"
#include "experiments/support/table.h"

enum { STATUSES = RUN_SKIPPED + 1 };

static const char legend[] =
    "\nMeasured: the median. Margin: measured over bound; a hard bound holds below 1.\n"
    "Probabilistic bounds are judged together, seeds combined, by Holm's correction at level 1e-5.\n\n";

size_t summary_violations(const result_set *set) {
  size_t count = 0;
  for (size_t i = 0; i < set->count; i++) count += set->rows[i].verdict == VERDICT_VIOLATED;
  return count;
}

static bool has_failed(const result_row *row) {
  return row->status != RUN_OK && row->status != RUN_UNSUPPORTED && row->status != RUN_SKIPPED;
}

size_t summary_failures(const result_set *set) {
  size_t count = 0;
  for (size_t i = 0; i < set->count; i++)
    count += has_failed(&set->rows[i]) || set->rows[i].verdict == VERDICT_ERROR ||
             set->rows[i].model_verdict == VERDICT_ERROR;
  return count;
}

attn_status summary_unchecked(const result_set *set, struct names *variants) {
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < set->count; i++)
    if (set->rows[i].verdict == VERDICT_UNCHECKED) status = names_add(variants, set->rows[i].variant);
  return status;
}

/* ---- runs that are not ok ------------------------------------------------------------------------------ */

/* One line for each variant, status and reason. Reasons that differ only in numbers are the same. */
static bool same_reason(const result_row *a, const result_row *b) {
  if (a->status != b->status || strcmp(a->variant, b->variant) != 0) return false;
  const char *x = a->message, *y = b->message;
  while (*x && *y) {
    const size_t p = strspn(x, "0123456789."), q = strspn(y, "0123456789.");
    if (p > 0 && q > 0) {
      x += p;
      y += q;
    } else if (*x++ != *y++) {
      return false;
    }
  }
  return *x == *y;
}

static void print_missing(FILE *file, const result_set *set, table_format format) {
  bool any = false;
  for (size_t i = 0; i < set->count; i++) {
    const result_row *row = &set->rows[i];
    size_t count = 0;
    bool first = row->status != RUN_OK;
    for (size_t j = 0; first && j < set->count; j++) {
      if (!same_reason(row, &set->rows[j])) continue;
      if (j < i) first = false;
      count++;
    }
    if (!first) continue;
    any = true;
    fprintf(file, "%s%s: ", format == TABLE_MARKDOWN ? "- " : "", run_status_names[row->status]);
    escape_put(file, row->variant);
    fprintf(file, " (%zu run%s): ", count, count == 1 ? "" : "s");
    escape_put(file, row->message);
    putc('\n', file);
  }
  if (any) putc('\n', file);
}

/* ---- verdicts ------------------------------------------------------------------------------------------ */

/* All cells of one bound and one variant. */
typedef struct tally {
  size_t verdicts[VERDICTS], total;
  check_kind kind;
  double margin, p, measured; /* the largest, the least, the median; NaN if there is none */
} tally;

static int by_bound(const void *a, const void *b) {
  const result_cell *x = a, *y = b;
  const int order = strcmp(x->bound->name, y->bound->name);
  return order ? order : strcmp(x->row->variant, y->row->variant);
}

/* The cells from first on that are of its bound and variant; measured: room for a number of each. */
static tally count_cells(const result_cell *first, const result_cell *end, double *measured) {
  tally t = {.margin = (double)NAN, .p = (double)NAN};
  size_t used = 0;
  for (const result_cell *c = first; c < end && by_bound(first, c) == 0; c++) {
    const result_bound *cell = c->bound;
    t.total++;
    t.kind = cell->kind;
    t.verdicts[cell->verdict]++;
    if (cell->verdict == VERDICT_UNCERTIFIABLE || cell->verdict == VERDICT_ERROR) continue;
    t.margin = fmax(t.margin, cell->margin);
    if (cell->kind == KIND_PROB) t.p = fmin(t.p, cell->p_value);
    measured[used++] = cell->measured;
  }
  t.measured = median_of(measured, used);
  return t;
}

static void add_count(text_table *s, size_t count) {
  if (count)
    table_add(s, "%zu", count);
  else
    table_add(s, ".");
}

static void add_tally(text_table *s, const char *bound, const char *variant, const tally *t) {
  static const check_verdict shown[] = {VERDICT_PASS,          VERDICT_CONSISTENT, VERDICT_VIOLATED,
                                        VERDICT_UNCERTIFIABLE, VERDICT_ERROR,      VERDICT_UNCHECKED,
                                        VERDICT_NOT_APPLICABLE};
  char text[SHORT_TEXT];
  table_add(s, "%s", bound);
  table_add(s, "%s", check_kind_names[t->kind]);
  table_add(s, "%s", variant);
  for (size_t v = 0; v < VERDICTS; v++) add_count(s, t->verdicts[shown[v]]);
  table_add(s, "%s", short_number(t->measured, text));
  if (t->kind == KIND_REPORT || isnan(t->margin))
    table_add(s, "");
  else
    table_add(s, "%.3g", t->margin); /* enough digits to tell just inside from just outside */
  table_add(s, "%s", t->kind == KIND_PROB ? short_number(t->p, text) : "");
}

static attn_status print_verdicts(FILE *file, const result_verdicts *v, table_format format) {
  static const char *const header[] = {"check",    "kind",          "variant", "pass",      "consistent",
                                       "violated", "uncertifiable", "error",   "unchecked", "n/a",
                                       "measured", "worst margin",  "least p"};
  if (v->count == 0) return ATTN_OK;
  double *measured = calloc(v->count, sizeof *measured);
  result_cell *cells = calloc(v->count, sizeof *cells);
  attn_status status = measured && cells ? ATTN_OK : attn_fail(ATTN_ENOMEM, "out of memory for the summary");
  text_table s = {.columns = sizeof header / sizeof *header, .left = 3};
  for (size_t i = 0; i < s.columns; i++) table_add(&s, "%s", header[i]);
  if (!status) {
    memcpy(cells, v->cells, v->count * sizeof *cells);
    qsort(cells, v->count, sizeof *cells, by_bound);
    for (size_t i = 0; i < v->count;) {
      const tally t = count_cells(&cells[i], cells + v->count, measured);
      add_tally(&s, cells[i].bound->name, cells[i].row->variant, &t);
      i += t.total;
    }
    status = table_print(file, &s, format);
    fputs(legend, file);
  }
  table_free(&s);
  free(measured);
  free(cells);
  return status;
}

/* ---- violations ---------------------------------------------------------------------------------------- */

static attn_status print_violations(FILE *file, const result_verdicts *v, table_format format) {
  attn_status status = ATTN_OK;
  for (size_t i = 0; i < v->count && !status; i++) {
    if (!explain_wanted(v->cells[i].bound)) continue;
    status = explain_print(file, v->cells[i].row, v->cells[i].bound, format);
    putc('\n', file);
  }
  return status;
}

static void print_totals(FILE *file, const result_set *set, const result_verdicts *found, bool table) {
  size_t statuses[STATUSES] = {0}, verdicts[VERDICTS] = {0};
  for (size_t i = 0; i < set->count; i++) statuses[set->rows[i].status]++;
  for (size_t i = 0; i < found->count; i++) verdicts[found->cells[i].bound->verdict]++;
  fprintf(file, "%zu runs%s", set->count, set->count ? ":" : "");
  for (int s = 0, printed = 0; s < STATUSES; s++)
    if (statuses[s]) fprintf(file, "%s %zu %s", printed++ ? "," : "", statuses[s], run_status_names[s]);
  fprintf(file, ". %zu verdicts", found->count);
  if (found->properties)
    fprintf(file, " (%zu bounds of runs, %zu properties of %zu settings)", found->bounds, found->properties,
            found->settings);
  for (int v = 0, printed = 0; v < VERDICTS; v++)
    if (verdicts[v] || v == VERDICT_VIOLATED)
      fprintf(file, "%s %zu %s", printed++ ? "," : ":", verdicts[v],
              v == VERDICT_NOT_APPLICABLE ? "not applicable" : check_verdict_names[v]);
  fputs(table || !found->count ? ".\n" : ".\n`attnlab check --bounds' counts them by bound and variant.\n",
        file);
}

static attn_status print_builds(FILE *file, const result_set *set) {
  names builds = {0};
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < set->count; i++) {
    const json_t *about = json_array_get(set->sessions, (size_t)set->rows[i].session);
    const char *build = json_string_value(json_object_get(about, "build"));
    if (build) status = names_add(&builds, build);
  }
  if (builds.count > 1)
    fprintf(file, "These runs come from %zu builds of the program: their times may not compare.\n",
            builds.count);
  names_free(&builds);
  return status;
}

/* What a check missed of a variant; NULL: none applied. */
static const result_bound *missed(const result_set *set, const char *variant) {
  for (size_t i = 0; i < set->count; i++)
    for (int b = 0; b < set->rows[i].bounds_count && strcmp(set->rows[i].variant, variant) == 0; b++) {
      const result_bound *cell = &set->rows[i].bounds[b];
      if (cell->verdict == VERDICT_UNCHECKED && cell->kind != KIND_PROPERTY) return cell;
    }
  return NULL;
}

static attn_status print_unchecked(FILE *file, const result_set *set) {
  names variants = {0};
  attn_status status = summary_unchecked(set, &variants);
  for (size_t i = 0; !status && i < variants.count; i++) {
    const result_bound *cell = missed(set, variants.items[i]);
    fputs("WARNING ", file);
    escape_put(file, variants.items[i]);
    fputs(": unchecked: ", file);
    if (cell) {
      fprintf(file, "%s: it ", cell->name);
      escape_put(file, cell->message);
    } else {
      fputs("no check of its kind of variant applied", file);
    }
    fputs(", so its correctness is untested.\n  It describes too little of itself "
          "(core/attn_variant.h: attn_view; `attnlab test ",
          file);
    escape_put(file, variants.items[i]);
    fputs("').\n", file);
  }
  names_free(&variants);
  return status;
}

/* What a report warns of, once for each setting: a descriptor that is generous. */
static attn_status print_warnings(FILE *file, const result_verdicts *v) {
  names told = {0};
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < v->count; i++) {
    const result_bound *cell = v->cells[i].bound;
    const char *label = v->cells[i].row->label;
    const size_t before = told.count;
    if (cell->kind != KIND_REPORT || cell->verdict != VERDICT_UNCERTIFIABLE) continue;
    status = names_add(&told, label);
    if (status || told.count == before) continue;
    fputs("NOTE ", file);
    escape_put(file, label);
    fprintf(file, ": %s: ", cell->name);
    escape_put(file, cell->message);
    putc('\n', file);
  }
  names_free(&told);
  return status;
}

attn_status summary_bounds(FILE *file, const result_set *set, bool table, table_format format) {
  result_verdicts found;
  attn_status status = results_verdicts(set, &found);
  if (status) return status;
  print_missing(file, set, format);
  if (table) status = print_verdicts(file, &found, format);
  if (!status) status = print_violations(file, &found, format);
  if (!status) {
    print_totals(file, set, &found, table);
    status = print_unchecked(file, set);
    if (!status) status = print_warnings(file, &found);
  }
  if (!status) status = print_builds(file, set);
  free(found.cells);
  return status;
}

/* write_csv.c - a set of rows as comma-separated values (RFC 4180, '\n'): for spreadsheets, gnuplot and
 * pandas. Texts are escaped. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/support/escape.h"
#include "experiments/results/param.h"

/* Spreadsheets compute what begins like a formula; an apostrophe before it is their mark of a text. */
static attn_status put_text(FILE *file, const char *text) {
  char *harmless = escape_text(text);
  if (!harmless) return attn_fail(ATTN_ENOMEM, "out of memory for a line of CSV");
  const bool quoted = strpbrk(harmless, ",\"");
  if (quoted) putc('"', file);
  if (*harmless && strchr("=+-@", *harmless)) putc('\'', file);
  for (const char *c = harmless; *c; c++) {
    if (*c == '"') putc('"', file);
    putc(*c, file);
  }
  if (quoted) putc('"', file);
  free(harmless);
  return ATTN_OK;
}

static void put_number(FILE *file, double x) {
  if (!isnan(x)) fprintf(file, "%.17g", x);
}

static attn_status put_column(FILE *file, const void *record, const result_column *c) {
  switch (c->type) {
  case COLUMN_TEXT:
    return put_text(file, result_column_text(record, c));
  case COLUMN_F64:
    put_number(file, result_column_f64(record, c));
    return ATTN_OK;
  case COLUMN_FLAG:
    fputs(c->flags[result_column_int(record, c)], file);
    return ATTN_OK;
  case COLUMN_I64:
  case COLUMN_I32:
  case COLUMN_BOOL:
    break;
  }
  fprintf(file, "%lld", (long long)result_column_int(record, c));
  return ATTN_OK;
}

static attn_status put_parameter(FILE *file, const result_row *row, const char *name) {
  attn_status status = ATTN_OK;
  for (int i = 0; i < row->p_count; i++) {
    if (strcmp(row->p[i].name, name) != 0) continue;
    if (row->p[i].text)
      status = put_text(file, row->p[i].text);
    else
      put_number(file, row->p[i].value);
  }
  return status;
}

static attn_status put_bound(FILE *file, const result_row *row, const char *name) {
  const result_bound *found = NULL;
  attn_status status = ATTN_OK;
  for (int i = 0; i < result_row_cells(row); i++)
    if (strcmp(result_row_cell(row, i)->name, name) == 0) found = result_row_cell(row, i);
  for (const result_column *c = result_bound_columns; c->name; c++) {
    if (!c->measure) continue;
    putc(',', file);
    if (found && !status) status = put_column(file, found, c);
  }
  return status;
}

static attn_status put_end(FILE *file) {
  return fflush(file) || ferror(file) ? attn_fail(ATTN_EFOREIGN, "cannot write CSV: %s", strerror(errno))
                                      : ATTN_OK;
}

static attn_status put_header(FILE *file, const names *parameters, const names *bounds) {
  attn_status status = ATTN_OK;
  for (const result_column *c = result_columns; c->name; c++)
    fprintf(file, c == result_columns ? "%s" : ",%s", c->name);
  for (size_t i = 0; !status && i < parameters->count; i++) {
    fputs(",p_", file);
    status = put_text(file, parameters->items[i]);
  }
  for (size_t i = 0; i < bounds->count; i++)
    for (const result_column *c = result_bound_columns; !status && c->name; c++) {
      if (!c->measure) continue;
      putc(',', file);
      status = put_text(file, bounds->items[i]);
      fprintf(file, "_%s", c->name);
    }
  putc('\n', file);
  return status;
}

static attn_status put_row(FILE *file, const result_row *row, const names *parameters, const names *bounds) {
  attn_status status = ATTN_OK;
  for (const result_column *c = result_columns; !status && c->name; c++) {
    if (c != result_columns) putc(',', file);
    status = put_column(file, row, c);
  }
  for (size_t p = 0; !status && p < parameters->count; p++) {
    putc(',', file);
    status = put_parameter(file, row, parameters->items[p]);
  }
  for (size_t b = 0; !status && b < bounds->count; b++) status = put_bound(file, row, bounds->items[b]);
  putc('\n', file);
  return status;
}

static attn_status collect(const result_set *set, names *parameters, names *bounds) {
  attn_status status = results_param_names(set, parameters);
  for (size_t i = 0; !status && i < set->count; i++)
    for (int b = 0; !status && b < result_row_cells(&set->rows[i]); b++)
      status = names_add(bounds, result_row_cell(&set->rows[i], b)->name);
  return status;
}

attn_status results_export_csv(FILE *file, const result_set *set) {
  names parameters = {0}, bounds = {0};
  attn_status status;
  status = collect(set, &parameters, &bounds);
  if (!status) status = put_header(file, &parameters, &bounds);
  for (size_t i = 0; !status && i < set->count; i++)
    status = put_row(file, &set->rows[i], &parameters, &bounds);
  if (!status) status = put_end(file);
  names_free(&parameters);
  names_free(&bounds);
  return status;
}

/* ---- what the columns are ------------------------------------------------------------------------------ */

/* The names that a flag or a choice may have, with blanks between them. */
static attn_status put_about(FILE *file, const char *type, const char *units, const char *about,
                             const char *const *names_of) {
  fprintf(file, ",%s,%s,", type, units ? units : "");
  attn_status status = put_text(file, about);
  putc(',', file);
  for (size_t i = 0; !status && names_of && names_of[i]; i++) fprintf(file, i ? " %s" : "%s", names_of[i]);
  putc('\n', file);
  return status;
}

static attn_status put_column_about(FILE *file, const result_column *c) {
  static const char *const no_yes[] = {"0=no", "1=yes", NULL};
  const bool text = c->type == COLUMN_TEXT || c->type == COLUMN_FLAG, truth = c->type == COLUMN_BOOL;
  return put_about(file, text ? "text" : "number", text ? "" : c->units, c->long_name,
                   truth  ? no_yes
                   : text ? c->flags
                          : NULL);
}

attn_status results_export_columns(FILE *file, const result_set *set) {
  names parameters = {0}, bounds = {0};
  attn_status status = collect(set, &parameters, &bounds);
  fputs("column,type,units,long_name,meaning\n", file);
  for (const result_column *c = result_columns; !status && c->name; c++) {
    fputs(c->name, file);
    status = put_column_about(file, c);
  }
  for (size_t p = 0; !status && p < parameters.count; p++) {
    const bool text = results_param_is_text(set, parameters.items[p]);
    char *about = results_param_about(set, parameters.items[p]);
    fputs("p_", file);
    status = about ? put_text(file, parameters.items[p]) : ATTN_ENOMEM;
    if (!status) status = put_about(file, text ? "text" : "number", text ? "" : "1", about, NULL);
    free(about);
  }
  for (size_t b = 0; b < bounds.count; b++)
    for (const result_column *c = result_bound_columns; !status && c->name; c++) {
      if (!c->measure) continue;
      status = put_text(file, bounds.items[b]);
      fprintf(file, "_%s", c->name);
      if (!status) status = put_column_about(file, c);
    }
  if (!status) status = put_end(file);
  names_free(&parameters);
  names_free(&bounds);
  return status;
}

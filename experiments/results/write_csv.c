/* write_csv.c - a set of rows as comma-separated values (RFC 4180, '\n'): for spreadsheets, gnuplot and
 * pandas. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <math.h>
#include <string.h>

#include "experiments/support/names.h"
#include "experiments/results/set.h"

static void put_text(FILE *file, const char *text) {
  if (!strpbrk(text, ",\"\r\n")) {
    fputs(text, file);
    return;
  }
  putc('"', file);
  for (; *text; text++) {
    if (*text == '"') putc('"', file);
    putc(*text, file);
  }
  putc('"', file);
}

static void put_number(FILE *file, double x) {
  if (!isnan(x)) fprintf(file, "%.17g", x);
}

static void put_column(FILE *file, const void *record, const result_column *c) {
  switch (c->type) {
  case COLUMN_TEXT:
    put_text(file, result_column_text(record, c));
    return;
  case COLUMN_F64:
    put_number(file, result_column_f64(record, c));
    return;
  case COLUMN_FLAG:
    fputs(c->flags[result_column_int(record, c)], file);
    return;
  case COLUMN_I64:
  case COLUMN_I32:
  case COLUMN_BOOL:
    break;
  }
  fprintf(file, "%lld", (long long)result_column_int(record, c));
}

static void put_parameter(FILE *file, const result_row *row, const char *name) {
  for (int i = 0; i < row->p_count; i++)
    if (strcmp(row->p[i].name, name) == 0) put_number(file, row->p[i].value);
}

static void put_bound(FILE *file, const result_row *row, const char *name) {
  const result_bound *found = NULL;
  for (int i = 0; i < row->bounds_count; i++)
    if (strcmp(row->bounds[i].name, name) == 0) found = &row->bounds[i];
  for (const result_column *c = result_bound_columns; c->name; c++) {
    if (!c->measure) continue;
    putc(',', file);
    if (found) put_column(file, found, c);
  }
}

static void put_header(FILE *file, const names *parameters, const names *bounds) {
  for (const result_column *c = result_columns; c->name; c++)
    fprintf(file, c == result_columns ? "%s" : ",%s", c->name);
  for (size_t i = 0; i < parameters->count; i++) fprintf(file, ",p_%s", parameters->items[i]);
  for (size_t i = 0; i < bounds->count; i++)
    for (const result_column *c = result_bound_columns; c->name; c++)
      if (c->measure) fprintf(file, ",%s_%s", bounds->items[i], c->name);
  putc('\n', file);
}

attn_status results_export_csv(FILE *file, const result_set *set) {
  names parameters = {0}, bounds = {0};
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < set->count; i++) {
    for (int p = 0; !status && p < set->rows[i].p_count; p++)
      status = names_add(&parameters, set->rows[i].p[p].name);
    for (int b = 0; !status && b < set->rows[i].bounds_count; b++)
      status = names_add(&bounds, set->rows[i].bounds[b].name);
  }
  if (status) goto out;
  put_header(file, &parameters, &bounds);
  for (size_t i = 0; i < set->count; i++) {
    const result_row *row = &set->rows[i];
    for (const result_column *c = result_columns; c->name; c++) {
      if (c != result_columns) putc(',', file);
      put_column(file, row, c);
    }
    for (size_t p = 0; p < parameters.count; p++) {
      putc(',', file);
      put_parameter(file, row, parameters.items[p]);
    }
    for (size_t b = 0; b < bounds.count; b++) put_bound(file, row, bounds.items[b]);
    putc('\n', file);
  }
  if (fflush(file) || ferror(file))
    status = attn_fail(ATTN_EFOREIGN, "cannot write CSV: %s", strerror(errno));
out:
  names_free(&parameters);
  names_free(&bounds);
  return status;
}

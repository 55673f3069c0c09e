/* theory_file.c - reports of statements as HDF5, a row a figure, and as a page with a plot a statement. */
#include "experiments/theory/theory.h"

#include <stdlib.h>

#include "data/formats/hdf5_input.h"
#include "experiments/report/page.h"
#include "experiments/results/hdf5/flat_file.h"

/* A figure with what it is of. */
typedef struct theory_row {
  theory t;
  theory_figure f;
  const char *what, *interval, *relation, *verdict, *curve;
  int holds;
} theory_row;

static theory_row row_of(const theory *t, const theory_figure *f) {
  return (theory_row){*t,
                      *f,
                      f->figure.what,
                      f->figure.interval,
                      theory_relations[f->relation],
                      theory_figure_verdict(f),
                      f->curve ? f->curve : "",
                      theory_figure_holds(f)};
}

#define COLUMN(column, type_, field, units_, text) \
  { .name = column, .type = type_, .offset = offsetof(theory_row, field), .units = units_, .long_name = text }
#define TEXT(name, field, text) COLUMN(name, COLUMN_TEXT, field, NULL, text)
#define NUMBER(name, field, text) COLUMN(name, COLUMN_F64, field, "1", text)

static const result_column columns[] = {
    TEXT("theory", t.name, "statement, by its name"),
    TEXT("statement", t.statement, "what is promised"),
    TEXT("assumption", t.assumption, "what the promise needs"),
    TEXT("otherwise", t.otherwise, "the input on which it fails"),
    TEXT("source", t.source, "where it is from"),
    TEXT("x_axis", t.x, "of the statement's plot"),
    TEXT("y_axis", t.y, "of the statement's plot"),
    TEXT("what", what, "what was measured"),
    NUMBER("value", f.figure.value, "measured"),
    NUMBER("low", f.figure.low, "lower end of the interval"),
    NUMBER("high", f.figure.high, "upper end of the interval"),
    NUMBER("level", f.figure.level, "level of the interval; NaN: nothing in the value is random"),
    TEXT("interval", interval, "kind of interval"),
    TEXT("relation", relation, "of the value to the promised one; empty: nothing is promised"),
    NUMBER("promised", f.figure.said, "promised value or bound"),
    NUMBER("tolerance", f.tolerance, "for rounding"),
    TEXT("verdict", verdict, "how the promise came out; empty: nothing is promised"),
    COLUMN("holds", COLUMN_BOOL, holds, NULL, "is the figure as promised, or is nothing promised?"),
    TEXT("curve", curve, "curve that the figure is a point of; empty: none"),
    NUMBER("x", f.x, "where on the curve"),
    {.name = NULL},
};

#define TITLE "The mathematics of attention, measured"

static bool is_theory(const char *path, const file_map *content) {
  return hdf5_input_is(path, content, "title", TITLE);
}

const output_kind kind_theory = {"a file of attnlab theory", is_theory};

attn_status theory_write(const char *file, const char *page, const theory *const *t, const theory_report *r,
                         int count) {
  const size_t most = (size_t)count * THEORY_FIGURES;
  theory_row *rows = calloc(most, sizeof *rows);
  const void **places = calloc(most, sizeof *places);
  flat_file table = {.title = TITLE, .dimension = "figure", .columns = columns, .rows = places};
  attn_status status =
      rows && places ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for %d statements", count);
  for (int i = 0; i < count && !status; i++)
    for (int k = 0; k < r[i].count; k++) {
      rows[table.count] = row_of(t[i], &r[i].figures[k]);
      places[table.count] = &rows[table.count];
      table.count++;
    }
  if (!status && file) status = flat_file_write(file, &kind_theory, &table);
  if (!status && page) status = report_write_page(page, REPORT_THEORY, flat_file_put, &table, TITLE);
  free(rows);
  free(places);
  return status;
}

/* theory_file.c - reports of statements as HDF5, a row a figure, and as a page with a plot a statement. */
#include "experiments/theory/theory.h"

#include <stdlib.h>

#include "data/formats/hdf5_input.h"
#include "experiments/report/page.h"
#include "experiments/results/hdf5/flat_file.h"
#include "experiments/results/row_json.h"

/* A figure with what it is of. */
typedef struct theory_row {
  theory_figure f;
  const char *name, *statement, *assumption, *otherwise, *source, *what, *interval, *relation, *verdict,
      *curve;
} theory_row;

#define COLUMN(column, type_, field, units_, text) \
  { .name = column, .type = type_, .offset = offsetof(theory_row, field), .units = units_, .long_name = text }
#define TEXT(name, text) COLUMN(#name, COLUMN_TEXT, name, NULL, text)
#define NUMBER(name, field, text) COLUMN(name, COLUMN_F64, field, "1", text)

static const result_column columns[] = {
    COLUMN("theory", COLUMN_TEXT, name, NULL, "statement, by its name"),
    TEXT(statement, "what is promised"),
    TEXT(assumption, "what the promise needs"),
    TEXT(otherwise, "the input on which it fails"),
    TEXT(source, "where it is from"),
    TEXT(what, "what was measured"),
    NUMBER("value", f.figure.value, "measured"),
    NUMBER("low", f.figure.low, "lower end of the interval"),
    NUMBER("high", f.figure.high, "upper end of the interval"),
    NUMBER("level", f.figure.level, "level of the interval; NaN: nothing in the value is random"),
    TEXT(interval, "kind of interval"),
    TEXT(relation, "of the value to the promised one; empty: nothing is promised"),
    NUMBER("promised", f.figure.said, "promised value or bound"),
    NUMBER("tolerance", f.tolerance, "for rounding"),
    TEXT(verdict, "how the promise came out; empty: nothing is promised"),
    TEXT(curve, "curve that the figure is a point of; empty: none"),
    NUMBER("x", f.x, "where on the curve"),
    {.name = NULL},
};

static theory_row row_of(const theory *t, const theory_figure *f) {
  return (theory_row){*f,
                      t->name,
                      t->statement,
                      t->assumption,
                      t->otherwise,
                      t->source,
                      f->figure.what,
                      f->figure.interval,
                      theory_relations[f->relation],
                      theory_figure_verdict(f),
                      f->curve ? f->curve : ""};
}

#define TITLE "The mathematics of attention, measured"

static bool is_theory(const char *path, const file_map *content) {
  return hdf5_input_is(path, content, "title", TITLE);
}

const output_kind kind_theory = {"a file of attnlab theory", is_theory};

attn_status theory_write(const char *path, const theory *const *t, const theory_report *r, int count) {
  size_t total = 0;
  theory_row *rows = calloc((size_t)count * THEORY_FIGURES, sizeof *rows);
  const void **places = calloc((size_t)count * THEORY_FIGURES, sizeof *places);
  attn_status status =
      rows && places ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for %d statements", count);
  for (int i = 0; i < count && !status; i++)
    for (int k = 0; k < r[i].count; k++, total++) {
      rows[total] = row_of(t[i], &r[i].figures[k]);
      places[total] = &rows[total];
    }
  if (!status)
    status = flat_file_write(path, &kind_theory, &(flat_file){TITLE, "figure", columns, places, total});
  free(rows);
  free(places);
  return status;
}

typedef struct reports {
  const theory *const *t;
  const theory_report *r;
  int count;
} reports;

static void put(json_stream *out, const char *name, json_t *value) {
  json_stream_name(out, name);
  json_stream_value(out, value);
}

/* {"title", "lines": [] (of runs, which look.js asks for), "statements": [{texts of a theory, "x", "y",
 *  "linear_x", "linear_y", "holds", "figures": [{the columns of a row}]}]} */
static void put_reports(json_stream *out, const void *context) {
  const reports *all = context;
  json_stream_open(out, '{');
  put(out, "title", json_string(TITLE));
  put(out, "lines", json_array());
  json_stream_name(out, "statements");
  json_stream_open(out, '[');
  for (int i = 0; i < all->count; i++) {
    const theory *t = all->t[i];
    json_stream_open(out, '{');
    put(out, "name", json_string(t->name));
    put(out, "statement", json_string(t->statement));
    put(out, "assumption", json_string(t->assumption));
    put(out, "otherwise", json_string(t->otherwise));
    put(out, "source", json_string(t->source));
    put(out, "x", json_string(t->x));
    put(out, "y", json_string(t->y));
    put(out, "linear_x", json_boolean(t->linear_x));
    put(out, "linear_y", json_boolean(t->linear_y));
    put(out, "holds", json_boolean(theory_holds(&all->r[i])));
    json_stream_name(out, "figures");
    json_stream_open(out, '[');
    for (int k = 0; k < all->r[i].count; k++) {
      const theory_row row = row_of(t, &all->r[i].figures[k]);
      json_stream_open(out, '{');
      for (const result_column *c = columns + 5; c->name; c++) put(out, c->name, result_column_json(&row, c));
      json_stream_close(out, '}');
    }
    json_stream_close(out, ']');
    json_stream_close(out, '}');
  }
  json_stream_close(out, ']');
  json_stream_close(out, '}');
}

attn_status theory_write_page(const char *path, const theory *const *t, const theory_report *r, int count) {
  return report_write_page(path, REPORT_THEORY, put_reports, &(reports){t, r, count}, TITLE);
}

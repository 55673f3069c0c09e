/* summary.c - what a sweep found, for people: tables of error and time, then the bounds (summary_bounds.c).
 */
#define _POSIX_C_SOURCE 200809L
#include "summary.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "setting.h"
#include "sheet.h"
#include "summary_bounds.h"

enum { PAGE_WIDTH = 130, CELL_WIDTH = 17, GROWTH_WIDTH = 8, LABEL_MAX = 48 };

static const char legend[] =
    "Each cell: relative Frobenius error against exact attention in fp64, and median time of one execution.\n"
    "Both are medians over seeds. *: nothing as accurate is faster; !: a bound is violated;\n"
    "growth: of the time between the two largest n.\n\n";

/* Runs that share a table: everything but variant, parameters, seed and n is the same. */
typedef struct group {
  const result_row **rows;
  size_t count;
  setting *lines; /* distinct, in order */
  size_t lines_count;
  int64_t *sizes; /* the n that occur, ascending */
  size_t sizes_count;
} group;

static int by_group(const void *a, const void *b) {
  const result_row *x = *(const result_row *const *)a, *y = *(const result_row *const *)b;
  const int order = setting_group_compare(x, y);
  return order ? order : strcmp(x->key, y->key);
}

/* ---- one cell: a setting at one n, over seeds -------------------------------------------------------------
 */

typedef struct cell {
  double error, time;
  run_status status;              /* of the first run, where none is ok */
  bool any, ok, violated, judged; /* judged: a bound was checked, so it is no null baseline */
  bool front;                     /* no other line is as accurate and faster */
} cell;

static attn_status fill_cell(const group *g, const setting *line, int64_t n, cell *out) {
  double *errors = calloc(2 * g->count, sizeof *errors), *times = errors ? errors + g->count : NULL;
  size_t used = 0;
  cell c = {.error = (double)NAN, .time = (double)NAN};
  if (!errors) return attn_fail(ATTN_ENOMEM, "out of memory for the summary");
  for (size_t i = 0; i < g->count; i++) {
    const result_row *row = g->rows[i];
    setting other;
    if (row->n != n || strcmp(row->variant, line->row->variant) != 0) continue;
    if (setting_make(row, &other)) {
      free(errors);
      return ATTN_ENOMEM;
    }
    const bool same = setting_compare(line, &other) == 0;
    setting_free(&other);
    if (!same) continue;
    if (!c.any) c.status = row->status;
    c.any = true;
    c.violated = c.violated || row->verdict == VERDICT_VIOLATED;
    if (row->status != RUN_OK) continue;
    c.ok = true;
    c.judged = c.judged || row->verdict != VERDICT_NOT_APPLICABLE;
    errors[used] = row->err_rel_fro;
    times[used++] = row->time_median;
  }
  c.error = median_of(errors, used);
  c.time = median_of(times, used);
  free(errors);
  *out = c;
  return ATTN_OK;
}

/* Errors that are rounding do not rank exact variants. */
static double front_error(const setting *line, const cell *c) { return setting_exact(line) ? 0 : c->error; }

static void mark_front(const group *g, cell *cells, size_t column) {
  const size_t lines = g->lines_count, columns = g->sizes_count;
  for (size_t i = 0; i < lines; i++) {
    cell *c = &cells[i * columns + column];
    c->front = c->judged && !isnan(c->error) && !isnan(c->time);
    for (size_t j = 0; c->front && j < lines; j++) {
      const cell *other = &cells[j * columns + column];
      if (other->judged && front_error(&g->lines[j], other) <= front_error(&g->lines[i], c) &&
          other->time < c->time)
        c->front = false;
    }
  }
}

static void add_cell(sheet *s, const cell *c) {
  char error[SHORT_TEXT], time[SHORT_TEXT];
  const char mark = c->violated ? '!' : c->front ? '*' : ' ';
  if (!c->any)
    sheet_add(s, "");
  else if (!c->ok)
    sheet_add(s, "%s ", run_status_names[c->status]);
  else
    sheet_add(s, "%s %7s%c", short_number(c->error, error), short_time(c->time, time), mark);
}

/* The exponent of time in n, from the two largest n that were timed. */
static void add_growth(sheet *s, const group *g, const cell *line) {
  size_t last[2], found = 0;
  for (size_t i = g->sizes_count; i-- > 0 && found < 2;)
    if (line[i].ok && line[i].time > 0) last[found++] = i;
  if (found < 2)
    sheet_add(s, "");
  else
    sheet_add(s, "n^%.1f",
              log(line[last[0]].time / line[last[1]].time) /
                  log((double)g->sizes[last[0]] / (double)g->sizes[last[1]]));
}

/* ---- one group --------------------------------------------------------------------------------------------
 */

static void print_title(FILE *file, const group *g, summary_format format) {
  const result_row *r = g->rows[0];
  fprintf(file, format == SUMMARY_MARKDOWN ? "### %s, %s\n\n" : "%s, %s: ", r->dataset,
          r->causal ? "causal" : "not causal");
  if (r->batch > 1) fprintf(file, "batch %lld, ", (long long)r->batch);
  fprintf(file, "%lld heads x %lld", (long long)r->heads, (long long)r->d);
  if (r->kv_heads != r->heads) fprintf(file, ", %lld KV heads", (long long)r->kv_heads);
  if (r->d_v != r->d) fprintf(file, ", values of width %lld", (long long)r->d_v);
  if (r->n_kv != r->n) fprintf(file, ", %lld keys", (long long)r->n_kv);
  fprintf(file, ", %s, %s, %lld thread%s%s\n%s", r->dtype, r->isa, (long long)r->threads,
          r->threads == 1 ? "" : "s", r->cache == CACHE_COLD ? ", cold cache" : "",
          format == SUMMARY_MARKDOWN ? "\n" : "");
}

static attn_status print_columns(FILE *file, const group *g, char *const *labels, const cell *cells,
                                 size_t first, size_t last, summary_format format) {
  const bool growth = last == g->sizes_count && g->sizes_count > 1;
  sheet s = {.columns = 1 + last - first + growth, .left = 1};
  sheet_add(&s, "error, time");
  for (size_t c = first; c < last; c++)
    sheet_add(&s, c == first ? "n = %lld " : "%lld ", (long long)g->sizes[c]);
  if (growth) sheet_add(&s, "growth");
  for (size_t i = 0; i < g->lines_count; i++) {
    sheet_add(&s, "%.*s", LABEL_MAX, labels[i]);
    for (size_t c = first; c < last; c++) add_cell(&s, &cells[i * g->sizes_count + c]);
    if (growth) add_growth(&s, g, &cells[i * g->sizes_count]);
  }
  attn_status status = sheet_print(file, &s, format);
  sheet_free(&s);
  putc('\n', file);
  return status;
}

static attn_status print_group(FILE *file, const group *g, summary_format format) {
  attn_status status = ATTN_OK;
  cell *cells = calloc(g->lines_count * g->sizes_count, sizeof *cells);
  char **labels = calloc(g->lines_count, sizeof *labels);
  if (!cells || !labels) {
    status = attn_fail(ATTN_ENOMEM, "out of memory for the summary");
    goto out;
  }
  size_t width = 0;
  for (size_t i = 0; i < g->lines_count; i++) {
    if ((status = setting_label(&g->lines[i], g->lines, g->lines_count, &labels[i]))) goto out;
    if (strlen(labels[i]) > width) width = strlen(labels[i]);
    for (size_t c = 0; c < g->sizes_count; c++)
      if ((status = fill_cell(g, &g->lines[i], g->sizes[c], &cells[i * g->sizes_count + c]))) goto out;
  }
  for (size_t c = 0; c < g->sizes_count; c++) mark_front(g, cells, c);
  print_title(file, g, format);
  if (width > LABEL_MAX) width = LABEL_MAX;
  const size_t step =
      format == SUMMARY_MARKDOWN ? g->sizes_count : (PAGE_WIDTH - GROWTH_WIDTH - width) / CELL_WIDTH;
  for (size_t first = 0; !status && first < g->sizes_count; first += step) {
    const size_t last = first + step < g->sizes_count ? first + step : g->sizes_count;
    status = print_columns(file, g, labels, cells, first, last, format);
  }
out:
  for (size_t i = 0; labels && i < g->lines_count; i++) free(labels[i]);
  free(labels);
  free(cells);
  return status;
}

static int by_setting(const void *a, const void *b) { return setting_compare(a, b); }

static int by_size(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Finds the lines and columns of a group of rows. */
static attn_status fill_group(group *g) {
  size_t made = 0;
  g->lines = calloc(g->count, sizeof *g->lines);
  g->sizes = calloc(g->count, sizeof *g->sizes);
  if (!g->lines || !g->sizes) return attn_fail(ATTN_ENOMEM, "out of memory for the summary");
  for (; made < g->count; made++) {
    attn_status status = setting_make(g->rows[made], &g->lines[made]);
    if (status) return status;
    g->lines_count = made + 1;
    g->sizes[made] = g->rows[made]->n;
  }
  qsort(g->lines, g->count, sizeof *g->lines, by_setting);
  qsort(g->sizes, g->count, sizeof *g->sizes, by_size);
  size_t lines = 0, sizes = 0;
  for (size_t i = 0; i < g->count; i++) {
    if (i == 0 || g->sizes[i] != g->sizes[sizes - 1]) g->sizes[sizes++] = g->sizes[i];
    if (i == 0 || setting_compare(&g->lines[i], &g->lines[lines - 1]) != 0)
      g->lines[lines++] = g->lines[i];
    else
      setting_free(&g->lines[i]);
  }
  g->lines_count = lines;
  g->sizes_count = sizes;
  return ATTN_OK;
}

static void free_group(group *g) {
  for (size_t i = 0; g->lines && i < g->lines_count; i++) setting_free(&g->lines[i]);
  free(g->lines);
  free(g->sizes);
}

attn_status summary_print(FILE *file, const result_set *set, summary_format format) {
  attn_status status = ATTN_OK;
  const result_row **rows = calloc(set->count + 1, sizeof *rows);
  if (!rows) return attn_fail(ATTN_ENOMEM, "out of memory for the summary");
  for (size_t i = 0; i < set->count; i++) rows[i] = &set->rows[i];
  qsort(rows, set->count, sizeof *rows, by_group);
  for (size_t first = 0, last; !status && first < set->count; first = last) {
    for (last = first + 1; last < set->count && setting_group_compare(rows[first], rows[last]) == 0;) last++;
    group g = {.rows = rows + first, .count = last - first};
    status = fill_group(&g);
    if (!status) status = print_group(file, &g, format);
    free_group(&g);
  }
  if (!status && set->count > 0) fputs(legend, file);
  if (!status) status = summary_bounds(file, set, format);
  if (!status && (fflush(file) || ferror(file)))
    status = attn_fail(ATTN_EFOREIGN, "cannot write the summary: %s", strerror(errno));
  free(rows);
  return status;
}

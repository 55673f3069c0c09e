/* summary.c - the results of a sweep as text: tables of error, time and memory, then the bounds
 * (summary_bounds.c). */
#include "experiments/report/summary.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/analysis/doubts.h"
#include "experiments/analysis/model.h"
#include "experiments/report/summary_bounds.h"
#include "experiments/support/escape.h"
#include "experiments/support/table.h"

enum { PAGE_WIDTH = 150, CELL_WIDTH = 17, TAIL_WIDTH = 38 };
#define GROWTH_WIDEST 0.5 /* an exponent with a wider interval does not tell n from n log n or n sqrt(n) */

static const char legend[] =
    "Each cell: relative Frobenius error against exact attention in fp64, and median time of one execution;\n"
    "both are medians over seeds.\n"
    "  *         on the front: every faster setting has a larger error\n"
    "  !         a bound is violated\n"
    "  ?         no check applied, so the variant takes no part in the comparison\n"
    "  ^         no better than zeros, or than the mean of V\n"
    "  (oracle)  as many other keys keep no more of exact attention\n"
    "  memory    of plan and work at the largest n\n"
    "  process   all that the largest run of that n had resident, tensors and checks included\n"
    "  growth    exponent in n of the time, or of the memory, over all n, with its 95 % interval where the\n"
    "            digits do not say it; -: the interval is unknown or wider than 0.5\n\n";

/* ---- cells --------------------------------------------------------------------------------------------- */

static void add_cell(text_table *s, const model_line *line, int64_t n) {
  char error[SHORT_TEXT], time[SHORT_TEXT];
  const model_cell *c = model_cell_at(line, n);
  if (!c)
    table_add(s, "");
  else if (!c->ok)
    table_add(s, "%s ", run_status_names[c->status]);
  else
    table_add(s, "%s %7s%c", short_number(c->error.mid, error), short_time(c->time.mid, time),
              c->violated     ? '!'
              : c->unchecked  ? '?'
              : c->no_better  ? '^'
              : c->front_time ? '*'
                              : ' ');
}

/* An exponent that rounds to zero is printed without a sign. */
static double rounded(double x) { return fabs(x) < 0.05 ? 0 : x; }

static void add_growth(text_table *s, const fit_power *fit) {
  const fit_interval *x = &fit->exponent;
  if (isnan(x->mid))
    table_add(s, "");
  else if (!(x->hi - x->lo <= GROWTH_WIDEST))
    table_add(s, "-");
  else if (x->hi - x->lo <= 0.1)
    table_add(s, "n^%.1f", rounded(x->mid));
  else
    table_add(s, "n^%.1f [%.1f, %.1f]", rounded(x->mid), rounded(x->lo), rounded(x->hi));
}

/* The columns after the lengths: growth of time, memory at the largest length, its growth. */
static void add_tail(text_table *s, const fit_power *time, double memory, const fit_power *growth) {
  char text[SHORT_TEXT];
  const fit_power none = {{(double)NAN, (double)NAN, (double)NAN}, 0};
  add_growth(s, time ? time : &none);
  table_add(s, "%s", isnan(memory) ? "" : short_bytes(memory, text));
  add_growth(s, growth);
}

static double last_memory(const model_line *line) {
  for (size_t c = line->count; c-- > 0;)
    if (line->cells[c].ok) return line->cells[c].memory.mid;
  return (double)NAN;
}

/* ---- one group ----------------------------------------------------------------------------------------- */

static attn_status print_title(FILE *file, const result_row *row, table_format format) {
  char *title = setting_title(row, false);
  if (!title) return attn_fail(ATTN_ENOMEM, "out of memory for a title");
  const bool markdown = format == TABLE_MARKDOWN;
  fputs(markdown ? "### " : "", file);
  escape_put(file, row->dataset);
  fputs(": ", file);
  escape_put(file, title);
  fputs(", ", file);
  escape_put(file, row->isa);
  fputs(markdown ? "\n\n" : "\n", file);
  free(title);
  return ATTN_OK;
}

static const char *oracle_mark(const results_model *m, const model_line *line) {
  return m->settings[line->setting].oracle ? " (oracle)" : "";
}

/* The lengths from `first` to `last` - 1. The columns about all lengths follow the last length. */
static attn_status print_columns(FILE *file, const results_model *m, const model_group *g, size_t first,
                                 size_t last, table_format format) {
  const bool tail = last == g->lengths_count;
  char text[SHORT_TEXT];
  text_table s = {.columns = 1 + last - first + (tail ? 3 : 0), .left = 1};
  table_add(&s, "error, time");
  for (size_t c = first; c < last; c++)
    table_add(&s, c == first ? "n = %lld " : "%lld ", (long long)g->lengths[c].n);
  if (tail) {
    table_add(&s, "growth");
    table_add(&s, "memory");
    table_add(&s, "growth");
  }
  for (size_t i = 0; i < g->count; i++) {
    const model_line *line = &g->lines[i];
    table_add(&s, "%s%s", m->labels[line->setting], oracle_mark(m, line));
    for (size_t c = first; c < last; c++) add_cell(&s, line, g->lengths[c].n);
    if (tail) add_tail(&s, &line->time, last_memory(line), &line->memory);
  }
  table_add(&s, "process");
  for (size_t c = first; c < last; c++) table_add(&s, "%s ", short_bytes(g->lengths[c].process, text));
  if (tail) add_tail(&s, NULL, (double)NAN, &g->process);
  attn_status status = table_print(file, &s, format);
  table_free(&s);
  putc('\n', file);
  return status;
}

static attn_status print_group(FILE *file, const results_model *m, const model_group *g,
                               table_format format) {
  size_t width = 0;
  for (size_t i = 0; i < g->count; i++) {
    const size_t length = strlen(m->labels[g->lines[i].setting]) + strlen(oracle_mark(m, &g->lines[i]));
    if (length > width) width = length;
  }
  attn_status status = print_title(file, m->rows[g->lines[0].cells[0].first], format);
  const size_t count = g->lengths_count, room = PAGE_WIDTH - TAIL_WIDTH;
  const size_t step = format == TABLE_MARKDOWN         ? count
                      : width + 2 * CELL_WIDTH <= room ? (room - width) / CELL_WIDTH
                                                       : 2;
  for (size_t first = 0; !status && first < count; first += step)
    status = print_columns(file, m, g, first, first + step < count ? first + step : count, format);
  return status;
}

/* How many runs have times that the report marks as doubtful, and why. */
static void print_doubts(FILE *file, const result_set *set) {
  enum { MOST = 32 };
  size_t timed = 0, doubtful = 0, counts[MOST] = {0};
  for (size_t i = 0; i < set->count; i++) {
    const unsigned doubts = doubts_of(&set->rows[i]);
    bool any = false;
    for (int d = 0; d < MOST && doubt_list[d].name; d++)
      if (doubts >> d & 1 && strncmp(doubt_list[d].text, "time:", 5) == 0) counts[d]++, any = true;
    timed += set->rows[i].time_median > 0;
    doubtful += any;
  }
  if (!doubtful) return;
  fprintf(file, "Doubtful times: of %zu of %zu runs", doubtful, timed);
  for (int d = 0, said = 0; d < MOST && doubt_list[d].name; d++)
    if (counts[d]) fprintf(file, "%s%s %zu", said++ ? ", " : ": ", doubt_list[d].name, counts[d]);
  fputs("; `attnlab report' marks them and says why.\n\n", file);
}

attn_status summary_print(FILE *file, const result_set *set, summary_parts parts, table_format format) {
  results_model model;
  attn_status status = model_make(set, &model);
  if (status) return status;
  for (size_t g = 0; parts & SUMMARY_RUNS && !status && g < model.groups_count; g++)
    status = print_group(file, &model, &model.groups[g], format);
  if (!status && parts & SUMMARY_RUNS && set->count > 0) fputs(legend, file), print_doubts(file, set);
  if (!status) status = summary_bounds(file, set, parts & SUMMARY_BOUNDS, format);
  if (!status && (fflush(file) || ferror(file)))
    status = attn_fail(ATTN_EFOREIGN, "cannot write the summary: %s", strerror(errno));
  model_free(&model);
  return status;
}

/* reasons.c - the messages of runs that were not measured, each once. */
#include "experiments/runner/reasons.h"

#include <string.h>

#include "experiments/evidence/null.h"
#include "experiments/support/escape.h"

enum { LINES_MAX = 20 };

/* Runs that ended like this one. */
typedef struct reason {
  const result_row *first;
  size_t runs;
} reason;

static bool is_idle(const result_row *row) {
  return row->status == RUN_UNSUPPORTED || row->status == RUN_SKIPPED;
}

static bool same(const result_row *a, const result_row *b) {
  return a->status == b->status && strcmp(a->message ? a->message : "", b->message ? b->message : "") == 0;
}

reasons_counts reasons_count(const result_set *set) {
  reasons_counts c = {.runs = set->count};
  size_t variants = 0;
  for (size_t i = 0; i < set->count; i++) {
    const result_row *row = &set->rows[i];
    c.unsupported += row->status == RUN_UNSUPPORTED;
    c.skipped += row->status == RUN_SKIPPED;
    if (null_find(row->variant)) continue;
    variants++;
    c.measured += row->status == RUN_OK;
    c.idle += is_idle(row);
  }
  if (c.idle < variants) c.idle = 0;
  return c;
}

/* Adds the rows that are idle, or those that failed, as far as there is room for their reasons. */
static size_t collect(const result_set *set, bool idle, reason *reasons, size_t count, size_t most) {
  for (size_t i = 0; i < set->count; i++) {
    const result_row *row = &set->rows[i];
    size_t at = 0;
    if (row->status == RUN_OK || is_idle(row) != idle) continue;
    while (at < count && !same(reasons[at].first, row)) at++;
    if (at == count && count < most) reasons[count++] = (reason){.first = row};
    if (at < count) reasons[at].runs++;
  }
  return count;
}

void reasons_print(FILE *out, const char *program, const result_set *set, size_t most) {
  reason reasons[LINES_MAX];
  if (most > LINES_MAX) most = LINES_MAX;
  const size_t failed = collect(set, false, reasons, 0, most),
               count = collect(set, true, reasons, failed, most);
  for (size_t i = 0; i < count; i++) {
    const result_row *row = reasons[i].first;
    fprintf(out, "%s: %zu runs %s: ", program, reasons[i].runs, run_status_names[row->status]);
    escape_put(out, row->message ? row->message : "");
    fputc('\n', out);
  }
}

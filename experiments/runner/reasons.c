/* reasons.c - the messages of runs that were not measured, each once. */
#include "experiments/runner/reasons.h"

#include <string.h>

#include "experiments/evidence/null.h"
#include "experiments/support/escape.h"

enum { LINES_MAX = 20 };

static bool same(const result_row *a, const result_row *b) {
  return a->status == b->status && strcmp(a->message ? a->message : "", b->message ? b->message : "") == 0;
}

static bool is_first(const result_set *set, size_t i) {
  for (size_t j = 0; j < i; j++)
    if (!null_find(set->rows[j].variant) && same(&set->rows[j], &set->rows[i])) return false;
  return true;
}

size_t reasons_print(FILE *out, const char *program, const result_set *set) {
  size_t runs = 0, lines = 0;
  for (size_t i = 0; i < set->count; i++) {
    const result_row *row = &set->rows[i];
    if (null_find(row->variant)) continue;
    if (row->status != RUN_UNSUPPORTED && row->status != RUN_SKIPPED) return 0;
    runs++;
  }
  for (size_t i = 0; i < set->count && lines < LINES_MAX; i++) {
    const result_row *row = &set->rows[i];
    size_t count = 0;
    if (null_find(row->variant) || !is_first(set, i)) continue;
    for (size_t j = i; j < set->count; j++)
      count += !null_find(set->rows[j].variant) && same(row, &set->rows[j]);
    fprintf(out, "%s: %zu runs %s: ", program, count, run_status_names[row->status]);
    escape_put(out, row->message ? row->message : "");
    fputc('\n', out);
    lines++;
  }
  return runs;
}

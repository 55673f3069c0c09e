/* holm.c - Holm's step-down correction (Holm, Scand. J. Statist. 6, 1979) over the PROB cells of a set of
 * runs.
 *
 * With p_(1) <= ... <= p_(m): reject in this order while p_(i) <= alpha / (m - i + 1). The probability of any
 * false rejection is at most alpha, under any dependence. */
#include "experiments/results/set.h"

#include "experiments/results/bound.h"

#include <math.h>
#include <stdlib.h>

/* A violation is reported only if a repetition with fresh seeds rejects at the same level, so the larger
 * p-value decides: under the hypothesis it is at most x with probability at most x, too. */
static double cell_p(const result_bound *b) { return fmax(b->p_value, b->p_repeat); }

static bool takes_part(const result_bound *b) {
  return b->kind == KIND_PROB && b->verdict == VERDICT_CONSISTENT;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The largest p-value that is rejected; -1 if none is. */
static double threshold(double *p, size_t count, double alpha) {
  double level = -1;
  qsort(p, count, sizeof *p, by_value);
  for (size_t i = 0; i < count && p[i] <= alpha / (double)(count - i); i++) level = p[i];
  return level;
}

attn_status results_holm(result_row *rows, size_t count, double alpha) {
  size_t cells = 0, filled = 0;
  for (size_t i = 0; i < count; i++)
    for (int b = 0; b < rows[i].bounds_count; b++) cells += takes_part(&rows[i].bounds[b]);
  if (cells == 0) return ATTN_OK;
  double *p = calloc(cells, sizeof *p);
  if (!p) return attn_fail(ATTN_ENOMEM, "out of memory for %zu p-values", cells);
  for (size_t i = 0; i < count; i++)
    for (int b = 0; b < rows[i].bounds_count; b++)
      if (takes_part(&rows[i].bounds[b]) && !isnan(cell_p(&rows[i].bounds[b])))
        p[filled++] = cell_p(&rows[i].bounds[b]);
  double level = threshold(p, filled, alpha);
  free(p);
  for (size_t i = 0; i < count; i++) {
    bool changed = false;
    for (int b = 0; b < rows[i].bounds_count; b++) {
      result_bound *cell = &rows[i].bounds[b];
      if (!takes_part(cell) || cell_p(cell) > level) continue;
      cell->verdict = isnan(cell_p(cell)) ? VERDICT_ERROR : VERDICT_VIOLATED;
      changed = true;
    }
    if (changed) rows[i].verdict = bounds_worst(rows[i].bounds, rows[i].bounds_count);
  }
  return ATTN_OK;
}

/* holm.c - what the probabilistic bounds of a set of runs say together.
 *
 * A cell (one check, one run) has p; where p < RESULTS_REPEAT = t, the run was repeated with fresh seeds,
 * which gave p'. The cell then counts with t F((p / t) p'), F(x) = x (1 - ln x), and with p else. Under the
 * hypothesis this is at most x with probability at most x: for x < t and given p', it is so where p is below
 * a threshold that depends on p' alone, so that uniform p and p' are the worst case; then p / t is uniform
 * among the p < t, and the product of two uniform variables is at most x with probability F(x).
 *
 * Cells of one check, variant and parameters, the seed apart, are a group. Those of one seed share draws, and
 * m of them count with m times the least. Seeds are independent, and S of them count with twice the smaller
 *   of Fisher's P(chi^2_2S >= -2 sum ln p)     more seeds that each say little say more,
 *   S times the least                       and one that says all is not talked down by the others
 * (once, for one seed). Holm's step-down correction (Holm, Scand. J. Statist. 6, 1979) over the m groups
 * rejects p_(1) <= ... <= p_(m) in this order while p_(i) <= alpha / (m - i + 1): the probability of any
 * false rejection is at most alpha, under any dependence of the groups. */
#include "experiments/results/set.h"

#include "experiments/results/bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* NaN if the cell has no p-value. */
static double cell_p(const result_bound *b) {
  if (!(b->p_repeat > 0) || !(b->p_value < RESULTS_REPEAT)) return b->p_value;
  double product = b->p_value / RESULTS_REPEAT * fmin(1, b->p_repeat);
  return product > 0 ? RESULTS_REPEAT * product * (1 - log(product)) : 0;
}

/* Those that were violated already do, so that the same set gives the same verdicts again. */
static bool takes_part(const result_bound *b) {
  return b->kind == KIND_PROB && (b->verdict == VERDICT_CONSISTENT || b->verdict == VERDICT_VIOLATED);
}

typedef struct entry {
  const char *check, *variant, *params;
  int64_t seed;
  result_row *row;
  result_bound *cell;
  double p;
} entry;

static const char *text_of(const char *text) { return text ? text : ""; }

static int compare_groups(const entry *a, const entry *b) {
  int order = strcmp(a->check, b->check);
  if (!order) order = strcmp(a->variant, b->variant);
  return order ? order : strcmp(a->params, b->params);
}

static int compare_entries(const void *x, const void *y) {
  const entry *a = x, *b = y;
  int order = compare_groups(a, b);
  return order ? order : (a->seed > b->seed) - (a->seed < b->seed);
}

/* Entries from first on, of one group. */
typedef struct group {
  entry *first;
  size_t count;
  double p, least; /* of the group, and of its cells */
} group;

static int compare_p(const void *x, const void *y) {
  const group *a = x, *b = y;
  return (a->p > b->p) - (a->p < b->p);
}

/* P(chi^2_2S >= 2 x) = e^-x sum over i < S of x^i / i!. */
static double fisher(double x, size_t seeds) {
  double sum = 0, term = -x;
  if (!(x < (double)INFINITY)) return 0;
  for (size_t i = 0; i < seeds; i++) {
    sum += exp(term);
    term += log(x / (double)(i + 1));
  }
  return fmin(1, sum);
}

static void group_judge(group *g) {
  double surprise = 0, best = 1;
  size_t seeds = 0;
  g->least = 1;
  for (size_t i = 0; i < g->count;) {
    double least = 1;
    size_t begin = i;
    for (; i < g->count && g->first[i].seed == g->first[begin].seed; i++) least = fmin(least, g->first[i].p);
    double p = fmin(1, (double)(i - begin) * least);
    g->least = fmin(g->least, least);
    best = fmin(best, p);
    surprise -= log(p);
    seeds++;
  }
  g->p = seeds > 1 ? 2 * fmin(fisher(surprise, seeds), (double)seeds * best) : best;
}

/* Fills entries, whose p-values are numbers, and gives cells without one the verdict error. */
static size_t entries_collect(result_row *rows, size_t count, entry *out) {
  size_t filled = 0;
  for (size_t i = 0; i < count; i++) {
    bool changed = false;
    for (int b = 0; b < rows[i].bounds_count; b++) {
      result_bound *cell = &rows[i].bounds[b];
      if (!takes_part(cell)) continue;
      double p = cell_p(cell);
      if (isnan(p)) {
        cell->verdict = VERDICT_ERROR;
        changed = true;
        continue;
      }
      out[filled++] =
          (entry){cell->name, text_of(rows[i].variant), text_of(rows[i].params), rows[i].seed, &rows[i],
                  cell,       fmin(1, fmax(0, p))};
    }
    if (changed) result_row_judge(&rows[i]);
  }
  return filled;
}

/* What a rejected group rests on: the cells that were surprising, or the least of all. */
static void group_reject(const group *g) {
  for (size_t i = 0; i < g->count; i++) {
    entry *e = &g->first[i];
    if (e->p > g->least && !(e->p < RESULTS_REPEAT)) continue;
    e->cell->verdict = VERDICT_VIOLATED;
    result_row_judge(e->row);
  }
}

attn_status results_holm(result_row *rows, size_t count, double alpha) {
  size_t cells = 0, used = 0;
  for (size_t i = 0; i < count; i++)
    for (int b = 0; b < rows[i].bounds_count; b++) cells += takes_part(&rows[i].bounds[b]);
  if (cells == 0) return ATTN_OK;
  entry *entries = calloc(cells, sizeof *entries);
  group *groups = calloc(cells, sizeof *groups);
  attn_status status =
      entries && groups ? ATTN_OK : attn_fail(ATTN_ENOMEM, "out of memory for %zu p-values", cells);
  if (!status) {
    size_t filled = entries_collect(rows, count, entries);
    qsort(entries, filled, sizeof *entries, compare_entries);
    for (size_t i = 0; i < filled; i++) {
      if (i == 0 || compare_groups(&entries[i - 1], &entries[i])) groups[used++].first = &entries[i];
      groups[used - 1].count++;
    }
    for (size_t g = 0; g < used; g++) group_judge(&groups[g]);
    qsort(groups, used, sizeof *groups, compare_p);
    for (size_t g = 0; g < used && groups[g].p <= alpha / (double)(used - g); g++) group_reject(&groups[g]);
  }
  free(entries);
  free(groups);
  return status;
}

/* results_compare.h - whether two rows are the same, bit for bit; all NaN are alike. */
#ifndef TESTS_SUPPORT_RESULTS_COMPARE_H
#define TESTS_SUPPORT_RESULTS_COMPARE_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/results/row.h"

static inline bool same_number(double a, double b) {
  return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

static inline bool same_bound(const result_bound *a, const result_bound *b) {
  return strcmp(a->name, b->name) == 0 && strcmp(a->message, b->message) == 0 && a->kind == b->kind &&
         a->verdict == b->verdict && same_number(a->value, b->value) &&
         same_number(a->measured, b->measured) && same_number(a->margin, b->margin) &&
         same_number(a->p_value, b->p_value) && same_number(a->p_repeat, b->p_repeat);
}

static inline const result_bound *bound_named(const result_row *row, const char *name) {
  for (int i = 0; i < row->bounds_count; i++)
    if (strcmp(row->bounds[i].name, name) == 0) return &row->bounds[i];
  return NULL;
}

static inline double param_named(const result_row *row, const char *name) {
  for (int i = 0; i < row->p_count; i++)
    if (strcmp(row->p[i].name, name) == 0) return row->p[i].value;
  return (double)NAN;
}

/* The name of something that differs, or "". Bounds and parameters may come in any order. */
static inline const char *rows_difference(const result_row *a, const result_row *b) {
  for (const result_column *c = result_columns; c->name; c++) {
    if (c->type == COLUMN_TEXT && strcmp(result_column_text(a, c), result_column_text(b, c)) != 0)
      return c->name;
    if (c->type == COLUMN_F64 && !same_number(result_column_f64(a, c), result_column_f64(b, c)))
      return c->name;
    if (c->type != COLUMN_TEXT && c->type != COLUMN_F64 && result_column_int(a, c) != result_column_int(b, c))
      return c->name;
  }
  if (a->p_count != b->p_count) return "number of parameters";
  for (int i = 0; i < a->p_count; i++)
    if (!same_number(a->p[i].value, param_named(b, a->p[i].name))) return a->p[i].name;
  if (!a->samples != !b->samples || !a->rounds != !b->rounds) return "presence of samples";
  for (int64_t i = 0; a->samples && i < a->n_samples; i++)
    if (!same_number(a->samples[i], b->samples[i]) || a->rounds[i] != b->rounds[i]) return "samples";
  for (int i = 0; i < RESULT_PROFILE_BINS; i++)
    if (!same_number(a->profile_l2[i], b->profile_l2[i]) ||
        !same_number(a->profile_max[i], b->profile_max[i]))
      return "profile";
  if (!a->map != !b->map || (a->map && memcmp(a->map, b->map, 2 * result_map_size(a) * sizeof *a->map) != 0))
    return "map";
  if (a->bounds_count != b->bounds_count) return "number of bounds";
  for (int i = 0; i < a->bounds_count; i++) {
    const result_bound *other = bound_named(b, a->bounds[i].name);
    if (!other || !same_bound(&a->bounds[i], other)) return a->bounds[i].name;
  }
  return "";
}

#endif

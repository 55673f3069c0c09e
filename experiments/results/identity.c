/* identity.c - rows that still stand, and rows that contradict each other (identity.h). */
#include "experiments/results/identity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_other(const char *made, const char *now) { return *now && strcmp(made, now) != 0; }

bool identity_stands(const identity *made, const identity *now, bool keep_stale) {
  if (is_other(made->dataset, now->dataset) || is_other(made->files, now->files)) return false;
  return keep_stale || (!is_other(made->plugin, now->plugin) && !is_other(made->build, now->build));
}

/* -- agreement -- */

static bool is_number(const result_column *c) { return c->measure && !c->varies && c->type != COLUMN_TEXT; }

static double number_of(const void *record, const result_column *c) {
  return c->type == COLUMN_F64 ? result_column_f64(record, c) : (double)result_column_int(record, c);
}

/* The first column by which the records differ; NULL: none. */
static const result_column *difference(const result_column *columns, const void *a, const void *b) {
  for (const result_column *c = columns; c->name; c++) {
    if (!is_number(c)) continue;
    const double x = number_of(a, c), y = number_of(b, c);
    if (!(x == y) && !(isnan(x) && isnan(y))) return c;
  }
  return NULL;
}

static void print(const result_column *c, const void *record, char *out, size_t size) {
  if (c->flags)
    snprintf(out, size, "%s", c->flags[result_column_int(record, c)]);
  else
    snprintf(out, size, "%.17g", number_of(record, c));
}

/* What may be why. */
static const char *reason(const identity *a, const identity *b) {
  return strcmp(a->dataset, b->dataset) != 0 ? ", from another dataset"
         : strcmp(a->files, b->files) != 0   ? ", from other files"
         : strcmp(a->plugin, b->plugin) != 0 ? ", by another plug-in"
         : strcmp(a->build, b->build) != 0   ? ", by another build of the program"
                                             : "";
}

static attn_status disagree(const char *key, const identity_row *a, const identity_row *b, const char *of,
                            const result_column *c, const void *x, const void *y) {
  char texts[2][32];
  print(c, x, texts[0], sizeof texts[0]);
  print(c, y, texts[1], sizeof texts[1]);
  return attn_fail(ATTN_EINVAL, "%.80s and %.80s disagree: %s%s is %s and %s%s, in %s", a->file, b->file, of,
                   c->name, texts[0], texts[1], reason(&a->made, &b->made), key);
}

static const result_bound *same_bound(const identity_row *row, const result_bound *like) {
  for (int i = 0; i < row->bounds_count; i++)
    if (strcmp(row->bounds[i].name, like->name) == 0) return &row->bounds[i];
  return NULL;
}

static bool is_held(const result_bound *b) {
  return b && b->kind != KIND_PROPERTY && b->verdict != VERDICT_NOT_APPLICABLE;
}

attn_status identity_agree(const result_column *columns, const char *key, const identity_row *a,
                           const identity_row *b) {
  const result_column *c = difference(columns, a->record, b->record);
  if (c) return disagree(key, a, b, "", c, a->record, b->record);
  for (int i = 0; i < a->bounds_count; i++) {
    char of[80];
    const result_bound *x = &a->bounds[i], *y = is_held(x) ? same_bound(b, x) : NULL;
    if (!is_held(y) || !(c = difference(result_bound_columns, x, y))) continue;
    snprintf(of, sizeof of, "%.60s's ", x->name);
    return disagree(key, a, b, of, c, x, y);
  }
  return ATTN_OK;
}

/* setting_properties.c - what is verified once and referred to by rows: the cells of a setting's properties,
 * of which a process keeps one copy, and the verdicts of a set without repetition. */
#include "experiments/results/set.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_tools.h"
#include "data/support/file.h"
#include "experiments/support/digest.h"

static attn_status no_memory(void) {
  return attn_fail(ATTN_ENOMEM, "out of memory for the properties of a run");
}

char *result_row_setting(const result_row *row) {
  char *out = NULL;
  size_t size;
  FILE *file = open_memstream(&out, &size);
  if (!file) return NULL;
  fprintf(file, "%s %s", row->isa ? row->isa : "", row->label ? row->label : "");
  for (axis_id a = 0; a < AXES; a++)
    if (a == AXIS_d || a == AXIS_d_v || a == AXIS_dtype || a == AXIS_causal)
      fprintf(file, " %s=%lld", axes[a].name, (long long)row->axis[a]);
  attn_stream_text(file, &out);
  return out;
}

/* The one copy of cells, found by the setting and a digest of the cells: their texts are from names_keep, so
 * that equal cells are equal bytes. NULL: no memory. */
static const result_properties *keep(const char *setting, const result_bound *cells, int count) {
  static json_t *kept; /* name -> address */
  const size_t bytes = (size_t)count * sizeof *cells;
  char *name = text_format("%016" PRIx64 " %s", digest_of(cells, bytes), setting);
  if (!name || (!kept && !(kept = json_object()))) {
    free(name);
    return NULL;
  }
  result_properties *p =
      (result_properties *)(uintptr_t)json_integer_value(json_object_get(kept, name)); /* NULL is 0 */
  const bool known = p && p->count == count && memcmp(p->cells, cells, bytes) == 0;
  if (!known && (p = malloc(sizeof *p + bytes))) {
    p->count = count;
    memcpy(p->cells, cells, bytes);
    if (json_object_set_new_nocheck(kept, name, json_integer((json_int_t)(uintptr_t)p))) {
      free(p);
      p = NULL;
    }
  }
  free(name);
  return p;
}

attn_status result_row_refer(result_row *row) {
  int own = 0, count = 0;
  for (int b = 0; b < row->bounds_count; b++) count += row->bounds[b].kind == KIND_PROPERTY;
  if (!count) return ATTN_OK;
  result_bound *cells = calloc((size_t)count, sizeof *cells);
  char *setting = result_row_setting(row);
  attn_status status = cells && setting ? ATTN_OK : no_memory();
  if (!status) {
    count = 0;
    for (int b = 0; b < row->bounds_count; b++)
      if (row->bounds[b].kind == KIND_PROPERTY) cells[count++] = row->bounds[b];
    row->properties = keep(setting, cells, count);
    if (!row->properties) status = no_memory();
  }
  for (int b = 0; !status && b < row->bounds_count; b++)
    if (row->bounds[b].kind != KIND_PROPERTY) row->bounds[own++] = row->bounds[b];
  if (!status) row->bounds_count = own;
  result_bound *fitting = status ? NULL : realloc(row->bounds, (size_t)(own + 1) * sizeof *fitting);
  if (fitting) row->bounds = fitting;
  free(cells);
  free(setting);
  return status;
}

int result_row_cells(const result_row *row) {
  return row->bounds_count + (row->properties ? row->properties->count : 0);
}

const result_bound *result_row_cell(const result_row *row, int i) {
  return i < row->bounds_count ? &row->bounds[i] : &row->properties->cells[i - row->bounds_count];
}

static int by_address(const void *a, const void *b) {
  const result_row *const *x = a, *const *y = b;
  const uintptr_t p = (uintptr_t)(*x)->properties, q = (uintptr_t)(*y)->properties;
  return p != q ? (p > q) - (p < q) : (*x > *y) - (*x < *y);
}

/* Of the rows that refer to the same properties, first says which is the first; counts what they refer to. */
static void mark_first(const result_set *set, const result_row **order, bool *first, result_verdicts *v) {
  size_t referring = 0;
  for (size_t i = 0; i < set->count; i++)
    if (set->rows[i].properties) order[referring++] = &set->rows[i];
  qsort(order, referring, sizeof *order, by_address);
  for (size_t i = 0; i < referring; i++) {
    if (i > 0 && order[i]->properties == order[i - 1]->properties) continue;
    first[order[i] - set->rows] = true;
    v->settings++;
    v->properties += (size_t)order[i]->properties->count;
  }
}

attn_status results_verdicts(const result_set *set, result_verdicts *out) {
  result_verdicts v = {.cells = NULL};
  const result_row **order = calloc(set->count + 1, sizeof *order);
  bool *first = calloc(set->count + 1, sizeof *first);
  if (order && first) {
    for (size_t i = 0; i < set->count; i++) v.bounds += (size_t)set->rows[i].bounds_count;
    mark_first(set, order, first, &v);
    v.cells = calloc(v.bounds + v.properties + 1, sizeof *v.cells);
  }
  for (size_t i = 0; v.cells && i < set->count; i++) {
    const result_row *row = &set->rows[i];
    const int count = first[i] ? result_row_cells(row) : row->bounds_count;
    for (int b = 0; b < count; b++) v.cells[v.count++] = (result_cell){row, result_row_cell(row, b)};
  }
  free((void *)order);
  free(first);
  if (!v.cells) return no_memory();
  *out = v;
  return ATTN_OK;
}

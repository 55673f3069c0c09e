/* write_groups.c - /samples, /profile, /maps and /bounds of the results file. */
#include "experiments/results/hdf5/groups.h"

#include <math.h>
#include <stdlib.h>

#include "experiments/results/bound.h"
#include "experiments/support/names.h"

void h5_table_close(h5_table *t) {
  if (t->own.scale >= 0) H5Dclose(t->own.scale);
  if (t->group >= 0) H5Gclose(t->group);
  free(t->cells);
}

attn_status h5_table_open(hid_t root, const char *name, const h5_dim *run, const h5_variable *coordinate,
                          size_t columns, h5_table *t) {
  size_t cells;
  const int64_t factors[] = {(int64_t)run->length, (int64_t)columns, 8};
  *t = (h5_table){.group = -1, .run = run, .rows = (size_t)run->length, .columns = columns};
  t->own = (h5_dim){.scale = -1, .length = columns};
  attn_status status = attn_size_product(name, factors, 3, &cells);
  if (status) return status;
  if (!(t->cells = malloc(cells))) return attn_fail(ATTN_ENOMEM, "out of memory for %s", name);
  t->group = h5_group_create(root, name);
  return t->group >= 0 && h5_dimension_write(t->group, coordinate, &t->own) ? ATTN_OK : ATTN_EFOREIGN;
}

attn_status h5_table_write(const h5_table *t, h5_variable variable) {
  variable.dims[0] = t->run;
  variable.dims[1] = &t->own;
  variable.data = t->cells;
  return h5_variable_write(t->group, &variable) ? ATTN_OK : ATTN_EFOREIGN;
}

/* ---- /samples ------------------------------------------------------------------------------------------ */

static size_t samples_of(const result_row *row) {
  return (row->samples || row->rounds) && row->n_samples > 0 ? (size_t)row->n_samples : 0;
}

attn_status results_write_samples(hid_t root, const h5_dim *run, const result_set *set) {
  size_t columns = 0;
  for (size_t i = 0; i < set->count; i++)
    if (samples_of(&set->rows[i]) > columns) columns = samples_of(&set->rows[i]);
  if (columns == 0) return ATTN_OK;
  h5_table t = {.group = -1, .own.scale = -1};
  int32_t *rep = calloc(columns, sizeof *rep);
  if (!rep) return attn_fail(ATTN_ENOMEM, "out of memory for /samples");
  for (size_t r = 0; r < columns; r++) rep[r] = (int32_t)r;
  const h5_variable axis = {"rep", H5_I32, {0}, rep, "1", "number of the sample", NULL, false, NULL};
  attn_status status = h5_table_open(root, "samples", run, &axis, columns, &t);
  if (status) goto out;
  int32_t *rounds = t.cells;
  for (size_t i = 0; i < set->count; i++)
    for (size_t r = 0; r < columns; r++)
      rounds[i * columns + r] =
          set->rows[i].rounds && r < samples_of(&set->rows[i]) ? set->rows[i].rounds[r] : -1;
  status = h5_table_write(
      &t, (h5_variable){.name = "round",
                        .type = H5_I32,
                        .units = "1",
                        .long_name = "round that the sample was taken in, -1 where there is none"});
  if (status) goto out;
  double *wall = t.cells;
  for (size_t i = 0; i < set->count; i++)
    for (size_t r = 0; r < columns; r++)
      wall[i * columns + r] =
          set->rows[i].samples && r < samples_of(&set->rows[i]) ? set->rows[i].samples[r] : (double)NAN;
  status = h5_table_write(&t, (h5_variable){.name = "time_wall",
                                            .type = H5_F64,
                                            .units = "s",
                                            .long_name = "wall time of one execution in the sample"});
out:
  h5_table_close(&t);
  free(rep);
  return status;
}

/* ---- /profile ------------------------------------------------------------------------------------------ */

attn_status results_write_profile(hid_t root, const h5_dim *run, const result_set *set) {
  bool any = false;
  for (size_t i = 0; i < set->count; i++)
    for (int b = 0; b < RESULT_PROFILE_BINS; b++)
      any = any || !isnan(set->rows[i].profile_l2[b]) || !isnan(set->rows[i].profile_max[b]);
  if (!any) return ATTN_OK;
  h5_table t = {.group = -1, .own.scale = -1};
  double centres[RESULT_PROFILE_BINS];
  for (int b = 0; b < RESULT_PROFILE_BINS; b++) centres[b] = (b + 0.5) / RESULT_PROFILE_BINS;
  const h5_variable axis = {"position", H5_F64, {0},
                            centres,    "1",    "centre of the bin of queries as a fraction of n",
                            NULL,       false,  NULL};
  attn_status status = h5_table_open(root, "profile", run, &axis, RESULT_PROFILE_BINS, &t);
  double *cells = t.cells;
  for (size_t i = 0; !status && i < set->count; i++)
    for (size_t b = 0; b < RESULT_PROFILE_BINS; b++)
      cells[i * RESULT_PROFILE_BINS + b] = set->rows[i].profile_l2[b];
  if (!status)
    status = h5_table_write(&t, (h5_variable){.name = "err_rel_l2",
                                              .type = H5_F64,
                                              .units = "1",
                                              .long_name = "mean relative l2 error of the rows in the bin"});
  for (size_t i = 0; !status && i < set->count; i++)
    for (size_t b = 0; b < RESULT_PROFILE_BINS; b++)
      cells[i * RESULT_PROFILE_BINS + b] = set->rows[i].profile_max[b];
  if (!status)
    status = h5_table_write(&t, (h5_variable){.name = "err_max",
                                              .type = H5_F64,
                                              .units = "1",
                                              .long_name = "largest absolute error in the bin"});
  h5_table_close(&t);
  return status;
}

/* ---- /maps --------------------------------------------------------------------------------------------- */

/* 0, 1, ... as a dimension of the group. */
static bool map_axis(hid_t group, const char *name, const char *about, size_t length, int64_t *numbers,
                     h5_dim *out) {
  for (size_t i = 0; i < length; i++) numbers[i] = (int64_t)i;
  *out = (h5_dim){.scale = -1, .length = length};
  return h5_dimension_write(
      group, &(h5_variable){.name = name, .type = H5_I64, .data = numbers, .units = "1", .long_name = about},
      out);
}

/* The exact or the approximate maps; those of shorter sequences have NaN beyond their cells. */
static bool map_cells(hid_t group, const result_set *set, bool approx, const h5_dim *dims, float *cells) {
  const size_t rows = (size_t)dims[1].length, columns = (size_t)dims[2].length;
  float *next = cells;
  for (size_t i = 0; i < set->count; i++) {
    const result_row *row = &set->rows[i];
    if (!row->map) continue;
    const size_t own_rows = (size_t)result_map_cells(row->n),
                 own_columns = (size_t)result_map_cells(row->n_kv);
    const float *from = row->map + (approx ? result_map_size(row) : 0);
    for (size_t r = 0; r < rows; r++)
      for (size_t c = 0; c < columns; c++)
        *next++ = r < own_rows && c < own_columns ? from[r * own_columns + c] : NAN;
  }
  return h5_variable_write(
      group,
      &(h5_variable){.name = approx ? "attn_approx" : "attn_exact",
                     .type = H5_F32,
                     .dims = {&dims[0], &dims[1], &dims[2]},
                     .data = cells,
                     .units = "1",
                     .long_name =
                         approx ? "the same of the weights that the variant implies"
                                : "weights of exact attention, head 0 of batch 0: mean over the queries of "
                                  "a cell of the sum over its keys"});
}

attn_status results_write_maps(hid_t root, const result_set *set) {
  size_t count = 0, rows = 0, columns = 0, bytes;
  for (size_t i = 0; i < set->count; i++) {
    if (!set->rows[i].map) continue;
    count++;
    if ((size_t)result_map_cells(set->rows[i].n) > rows) rows = (size_t)result_map_cells(set->rows[i].n);
    if ((size_t)result_map_cells(set->rows[i].n_kv) > columns)
      columns = (size_t)result_map_cells(set->rows[i].n_kv);
  }
  if (count == 0) return ATTN_OK;
  attn_status status = attn_size_product(
      "/maps", (const int64_t[]){(int64_t)count, (int64_t)rows, (int64_t)columns, 4}, 4, &bytes);
  if (status) return status;
  h5_dim dims[3] = {{.scale = -1}, {.scale = -1}, {.scale = -1}};
  hid_t group = -1;
  int64_t *numbers = calloc(count + RESULT_MAP_CELLS, sizeof *numbers);
  float *cells = malloc(bytes);
  if (!numbers || !cells) {
    status = attn_fail(ATTN_ENOMEM, "out of memory for /maps");
    goto out;
  }
  status = ATTN_EFOREIGN;
  if ((group = h5_group_create(root, "maps")) < 0 ||
      !map_axis(group, "map", "number of the map", count, numbers, &dims[0]) ||
      !map_axis(group, "row", "cell of queries: query i is in cell floor(i min(n, 128) / n)", rows, numbers,
                &dims[1]) ||
      !map_axis(group, "col", "cell of keys, likewise", columns, numbers, &dims[2]))
    goto out;
  for (size_t i = 0, m = 0; i < set->count; i++)
    if (set->rows[i].map) numbers[m++] = (int64_t)i;
  if (h5_variable_write(group, &(h5_variable){.name = "map_run",
                                              .type = H5_I64,
                                              .dims = {&dims[0]},
                                              .data = numbers,
                                              .units = "1",
                                              .long_name = "number of the run that the map is of"}) &&
      map_cells(group, set, false, dims, cells) && map_cells(group, set, true, dims, cells))
    status = ATTN_OK;
out:
  for (int i = 0; i < 3; i++)
    if (dims[i].scale >= 0) H5Dclose(dims[i].scale);
  if (group >= 0) H5Gclose(group);
  free(numbers);
  free(cells);
  return status;
}

/* ---- /bounds ------------------------------------------------------------------------------------------- */

/* The bound of each run and name; where it was not checked, a cell that says no more than its kind. */
static void place_cells(const row_layout *l, const result_set *set, const names *found,
                        result_bound *unchecked, const void **cells) {
  for (size_t b = 0; b < found->count; b++) {
    bound_begin(&unchecked[b], found->items[b], KIND_HARD);
    unchecked[b].p_repeat = (double)NAN;
  }
  for (size_t i = 0; i < set->count * found->count; i++) cells[i] = &unchecked[i % found->count];
  for (size_t i = 0; i < set->count; i++)
    for (int b = 0; b < l->cells((char *)set->items + i * l->kind->size); b++) {
      const result_bound *bound = l->cell((char *)set->items + i * l->kind->size, b);
      const size_t column = names_find(found, bound->name);
      cells[i * found->count + column] = bound;
      unchecked[column].kind = bound->kind;
    }
}

attn_status results_write_bounds(hid_t root, const row_layout *l, const h5_dim *run, const result_set *set) {
  names found = {0};
  h5_dim own = {.scale = -1};
  hid_t group = -1;
  const void **cells = NULL;
  result_bound *unchecked = NULL;
  attn_status status = ATTN_OK;
  for (size_t i = 0; i < set->count; i++)
    for (int b = 0; b < l->cells((char *)set->items + i * l->kind->size); b++)
      if ((status = names_add(&found, l->cell((char *)set->items + i * l->kind->size, b)->name))) goto out;
  if (found.count == 0) goto out;
  const size_t count = set->count * found.count;
  cells = calloc(count, sizeof *cells);
  unchecked = calloc(found.count, sizeof *unchecked);
  if (!cells || !unchecked) {
    status = attn_fail(ATTN_ENOMEM, "out of memory for /bounds");
    goto out;
  }
  place_cells(l, set, &found, unchecked, cells);
  own.length = found.count;
  group = h5_group_create(root, l->bounds);
  bool good =
      group >= 0 &&
      h5_dimension_write(
          group,
          &(h5_variable){.name = l->bound, .type = H5_TEXT, .data = found.items, .long_name = l->about_bound},
          &own);
  for (const result_column *c = result_bound_columns; good && c->name; c++)
    good = h5_column_write(group, c, cells, count, (const h5_dim *[]){run, &own}, NULL);
  if (!good) status = ATTN_EFOREIGN;
out:
  if (own.scale >= 0) H5Dclose(own.scale);
  if (group >= 0) H5Gclose(group);
  free(cells);
  free(unchecked);
  names_free(&found);
  return status;
}

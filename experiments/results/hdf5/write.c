/* write.c - the results file of a sweep (layout.h): the columns of result_columns, variant_id, label_id,
 * dataset_id and p_<name>, and beyond what every file has
 * - /samples: wall times of every run along rep;
 * - /profile: errors by position;
 * - /maps: attention maps of the runs that have one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/hdf5_input.h"
#include "experiments/results/bound.h"
#include "experiments/results/hdf5/groups.h"
#include "experiments/results/set.h"
#include "experiments/support/names.h"

#define COORDINATES "variant n d seed"

/* ---- columns ------------------------------------------------------------------------------------------- */

static bool write_columns(hid_t root, const h5_dim *run, const void *const *rows, const result_column *first,
                          const result_column *last) {
  bool good = true;
  for (const result_column *c = first; good && c->name && c <= last; c++)
    good = h5_column_write(root, c, rows, (size_t)run->length, (const h5_dim *[]){run, NULL}, COORDINATES);
  return good;
}

enum { MEANINGS = 10000, MEANINGS_SIZE = 50000 }; /* an attribute holds 64 KiB */

static bool are_meanings(const names *texts) {
  size_t size = 0;
  bool good = texts->count > 0 && texts->count <= MEANINGS;
  for (size_t i = 0; good && i < texts->count; i++) {
    size += strlen(texts->items[i]) + 1;
    good = *texts->items[i] != '\0';
  }
  return good && size <= MEANINGS_SIZE;
}

/* A column that numbers the texts of another in strcmp order, for readers that cannot read texts. */
static attn_status write_id(hid_t root, const h5_dim *run, const result_set *set, const char *of,
                            h5_variable id, bool meanings) {
  const result_column *c = result_column_named(of);
  names texts = {0};
  attn_status status = ATTN_OK;
  int32_t *numbers = calloc(set->count + 1, sizeof *numbers);
  if (!numbers) status = attn_fail(ATTN_ENOMEM, "out of memory for %zu rows", set->count);
  for (size_t i = 0; !status && i < set->count; i++)
    status = names_add(&texts, result_column_text(&set->rows[i], c));
  for (size_t i = 0; !status && i < set->count; i++)
    numbers[i] = (int32_t)names_find(&texts, result_column_text(&set->rows[i], c));
  id.type = H5_I32;
  id.dims[0] = run;
  id.data = numbers;
  id.units = "1";
  id.flags = meanings && are_meanings(&texts) ? texts.items : NULL;
  if (!status && !h5_variable_write(root, &id)) status = ATTN_EFOREIGN;
  names_free(&texts);
  free(numbers);
  return status;
}

static attn_status write_ids(hid_t root, const h5_dim *run, const result_set *set) {
  attn_status status =
      write_id(root, run, set, "variant",
               (h5_variable){.name = "variant_id", .long_name = "attention variant as a number"}, true);
  if (!status)
    status = write_id(
        root, run, set, "label",
        (h5_variable){.name = "label_id", .long_name = "label as a number, in alphabetical order"}, true);
  /* Files have long names. */
  if (!status)
    status = write_id(
        root, run, set, "dataset",
        (h5_variable){.name = "dataset_id", .long_name = "dataset as a number, in alphabetical order"},
        false);
  return status;
}

static attn_status write_all_columns(hid_t root, const h5_dim *run, const void *const *rows,
                                     const result_set *set) {
  const result_column *variant = result_column_named("variant"), *params = result_column_named("params");
  attn_status status = ATTN_EFOREIGN;
  if (!write_columns(root, run, rows, result_columns, variant)) return status;
  if ((status = write_ids(root, run, set))) return status;
  if (!write_columns(root, run, rows, variant + 1, params)) return ATTN_EFOREIGN;
  if ((status = results_write_parameters(root, run, set))) return status;
  return write_columns(root, run, rows, params + 1, result_column_named("model_verdict")) ? ATTN_OK
                                                                                          : ATTN_EFOREIGN;
}

static attn_status write_groups(hid_t root, const h5_dim *run, const result_set *set) {
  attn_status status = results_write_samples(root, run, set);
  if (!status) status = results_write_profile(root, run, set);
  return status ? status : results_write_maps(root, set);
}

/* ---- the layout ---------------------------------------------------------------------------------------- */

static bool is_results(const char *path, const file_map *content) {
  return hdf5_input_is(path, content, "schema", RESULT_SCHEMA);
}

const output_kind kind_results = {"an attnlab results file", is_results};

static attn_status init(void *row) {
  result_row_init(row);
  return ATTN_OK;
}
static int cells(const void *row) { return result_row_cells(row); }
static const result_bound *cell(const void *row, int i) { return result_row_cell(row, i); }

static attn_status take(void *row, const result_bound *found, int count) {
  attn_status status = ATTN_OK;
  for (int b = 0; !status && b < count; b++)
    if (!bound_is_empty(&found[b])) status = result_row_add_bound(row, &found[b]);
  return status ? status : result_row_refer(row);
}

static attn_status read_columns(const h5_source *root, result_set *set) {
  for (const result_column *c = result_columns; c->name; c++)
    for (size_t i = 0; c->axis && !h5_has(root, c->name) && i < set->count; i++)
      result_row_recover(&set->rows[i], c);
  return results_read_parameters(root, set);
}

static attn_status read_groups(const h5_source *root, result_set *set) {
  attn_status status = results_read_samples(root, set);
  if (!status) status = results_read_profile(root, set);
  return status ? status : results_read_maps(root, set);
}

static attn_status complete(const h5_source *root, result_set *set) {
  const bool label = h5_has(root, "label"), model_verdict = h5_has(root, "model_verdict");
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < set->count; i++)
    status = result_row_complete(&set->rows[i], label, model_verdict);
  return status;
}

const row_layout layout_of_sweep = {.kind = &rows_of_sweep,
                                    .file = &kind_results,
                                    .schema = RESULT_SCHEMA,
                                    .title = "Errors, times and bounds of efficient attention",
                                    .version = RESULT_SCHEMA_VERSION,
                                    .bounds = "bounds",
                                    .bound = "bound",
                                    .about_bound = "name of the bound",
                                    .init = init,
                                    .cells = cells,
                                    .cell = cell,
                                    .take = take,
                                    .write_columns = write_all_columns,
                                    .write_groups = write_groups,
                                    .read_columns = read_columns,
                                    .read_groups = read_groups,
                                    .complete = complete};

attn_status results_write(const char *path, const result_set *set) {
  return layout_write(path, &(layout_part){&layout_of_sweep, set}, 1);
}

attn_status results_read(const char *path, result_set *out) {
  return layout_read(path, &layout_of_sweep, out);
}

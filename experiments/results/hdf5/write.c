/* write.c - a set of rows as the results file, built in memory and put in place whole.
 *
 * - the root: the columns of result_columns, variant_id, label_id, dataset_id and p_<name>, along the unlimited
 *   dimension run;
 * - /samples: wall times of every run along rep;
 * - /profile: errors by position;
 * - /maps: attention maps of the runs that have one;
 * - /bounds: a cell for each run and bound;
 * - /provenance: what each session of the program ran as;
 * - /columns: a line for each of these variables, with what it means. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/results/set.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/formats/hdf5_input.h"
#include "experiments/support/names.h"
#include "experiments/results/hdf5/groups.h"

#define COORDINATES "variant n d seed"

/* ---- columns ------------------------------------------------------------------------------------------- */

static bool write_columns(hid_t root, const h5_dim *run, const void *const *rows, const result_column *first,
                          const result_column *last) {
  bool good = true;
  for (const result_column *c = first; good && c->name && c <= last; c++)
    good = h5_column_write(root, c, rows, (size_t)run->length, (const h5_dim *[]){run, NULL}, COORDINATES);
  return good;
}

static const result_column *column_named(const char *name) {
  const result_column *c = result_columns;
  while (strcmp(c->name, name) != 0) c++;
  return c;
}

enum { MEANINGS = 10000, MEANINGS_SIZE = 50000 }; /* an attribute holds 64 KiB */

/* Meanings are words with blanks between them. */
static bool are_meanings(const names *texts) {
  size_t size = 0;
  bool good = texts->count > 0 && texts->count <= MEANINGS;
  for (size_t i = 0; good && i < texts->count; i++) {
    size += strlen(texts->items[i]) + 1;
    good = *texts->items[i] && !strchr(texts->items[i], ' ');
  }
  return good && size <= MEANINGS_SIZE;
}

/* A column that numbers the texts of another in strcmp order, for readers that cannot read texts. */
static attn_status write_id(hid_t root, const h5_dim *run, const result_set *set, const char *of,
                            h5_variable id, bool meanings) {
  const result_column *c = column_named(of);
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

static attn_status write_runs(hid_t root, h5_dim *run, const result_set *set) {
  const result_column *variant = column_named("variant"), *params = column_named("params");
  attn_status status = ATTN_OK;
  int64_t *numbers = calloc(set->count + 1, sizeof *numbers);
  const void **rows = calloc(set->count + 1, sizeof *rows);
  if (!numbers || !rows) {
    status = attn_fail(ATTN_ENOMEM, "out of memory for %zu rows", set->count);
    goto out;
  }
  for (size_t i = 0; i < set->count; i++) {
    rows[i] = &set->rows[i];
    numbers[i] = (int64_t)i;
  }
  status = ATTN_EFOREIGN;
  const h5_variable axis = {"run", H5_I64, {0}, numbers, "1", "number of the run", NULL, false, NULL};
  if (!h5_dimension_write(root, &axis, run) || !write_columns(root, run, rows, result_columns, variant))
    goto out;
  if ((status = write_ids(root, run, set))) goto out;
  status = ATTN_EFOREIGN;
  if (!write_columns(root, run, rows, variant + 1, params)) goto out;
  if ((status = results_write_parameters(root, run, set))) goto out;
  if (!write_columns(root, run, rows, params + 1, column_named("model_verdict"))) status = ATTN_EFOREIGN;
out:
  free(numbers);
  free(rows);
  return status;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

/* One line per session, as netCDF tools write history: "time: command". */
static char *history(const json_t *sessions) {
  char *text = calloc(1, 1);
  size_t i;
  json_t *about;
  json_array_foreach(sessions, i, about) {
    double start = 0;
    char when[32] = "unknown time";
    struct tm utc;
    const json_t *argv = json_object_get(about, "argv");
    bool known = result_json_read_number(json_object_get(about, "start_time"), &start) && fabs(start) < 1e12;
    time_t seconds = known ? (time_t)start : 0;
    if (known && gmtime_r(&seconds, &utc)) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    char *more = text ? text_format("%s%s%s: %s", text, i ? "\n" : "", when,
                                    json_is_string(argv) ? json_string_value(argv) : "attnlab")
                      : NULL;
    free(text);
    text = more;
  }
  return text;
}

static attn_status write_groups(hid_t root, const result_set *set) {
  h5_dim run = {.scale = -1, .length = set->count, .unlimited = true};
  attn_status status = ATTN_EFOREIGN;
  char *past = history(set->sessions);
  if (!past) return attn_fail(ATTN_ENOMEM, "out of memory for the history of %zu sessions", set->count);
  if (!h5_attribute_text(root, "Conventions", "CF-1.10") ||
      !h5_attribute_text(root, "title", "Errors, times and bounds of efficient attention") ||
      !h5_attribute_text(root, "schema", RESULT_SCHEMA) ||
      !h5_attribute_int(root, "schema_version", RESULT_SCHEMA_VERSION) ||
      !h5_attribute_text(root, "history", past) || !h5_attribute_text(root, "source", "attnlab") ||
      !h5_attribute_text(root, "comment", "/columns describes every variable of the file") ||
      !h5_attribute_text(root, "uuid", set->uuid))
    goto out;
  if ((status = write_runs(root, &run, set)) || (status = results_write_samples(root, &run, set)) ||
      (status = results_write_profile(root, &run, set)) || (status = results_write_maps(root, set)) ||
      (status = results_write_bounds(root, &run, set)))
    goto out;
  if (!(status = results_write_provenance(root, set))) status = results_write_columns(root);
out:
  if (run.scale >= 0) H5Dclose(run.scale);
  free(past);
  return status;
}

/* The bytes of a file that holds the set. */
static attn_status make_image(const result_set *set, void **image, size_t *size) {
  hid_t file = h5_file_create();
  if (file < 0) return ATTN_EFOREIGN;
  attn_status status = write_groups(file, set);
  if (!status) return h5_file_image(file, image, size);
  H5Fclose(file);
  return status;
}

static bool is_results(const char *path, const file_map *content) {
  return hdf5_input_is(path, content, "schema", RESULT_SCHEMA);
}

const output_kind kind_results = {"an attnlab results file", is_results};

attn_status results_write(const char *path, const result_set *set) {
  H5E_auto2_t print;
  void *print_data, *image = NULL;
  size_t size = 0;
  char problem[256];
  H5Eget_auto2(H5E_DEFAULT, &print, &print_data);
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  attn_status status = make_image(set, &image, &size);
  H5Eset_auto2(H5E_DEFAULT, print, print_data);
  if (status) {
    snprintf(problem, sizeof problem, "%s", attn_last_error());
    return attn_fail(status, "%s: %s", path, problem);
  }
  output_clean(path);
  status = hdf5_output(path, &kind_results, image, size);
  free(image);
  return status;
}

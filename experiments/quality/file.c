/* file.c - the file of evaluations (file.h). Series are padded with NaN to the longest of the runs. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/quality/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/hdf5_input.h"
#include "experiments/results/hdf5/groups.h"

#define COORDINATES "variant n"

/* -- writing -- */

/* The series from first on that share a group. Returns how many. */
static int group_size(int first) {
  int count = 1;
  while (first + count < QUALITY_SERIES &&
         strcmp(quality_series_list[first + count].group, quality_series_list[first].group) == 0)
    count++;
  return count;
}

static bool write_group(hid_t root, const h5_dim *run, const quality_set *set, const quality_series *first,
                        int count) {
  size_t columns = 0;
  for (size_t i = 0; i < set->count; i++)
    if ((size_t)quality_series_length(&set->records[i], first) > columns)
      columns = (size_t)quality_series_length(&set->records[i], first);
  h5_dim own = {.scale = -1, .length = columns};
  double *cells = malloc((set->count * columns + columns + 1) * sizeof *cells), *axis = cells;
  const hid_t group = columns > 0 && cells ? h5_group_create(root, first->group) : -1;
  bool good = group >= 0 || (cells && columns == 0);
  for (size_t c = 0; group >= 0 && c < columns; c++)
    axis[c] = first->by == BY_BIN ? (double)(c + 1) / QUALITY_BINS : (double)c;
  if (group >= 0)
    good = h5_dimension_write(
        group,
        &(h5_variable){
            .name = first->dimension, .type = H5_F64, .data = axis, .units = "1", .long_name = first->about},
        &own);
  for (int s = 0; group >= 0 && good && s < count; s++) {
    for (size_t i = 0; i < set->count; i++)
      for (size_t c = 0; c < columns; c++)
        cells[i * columns + c] = (int64_t)c < quality_series_length(&set->records[i], &first[s])
                                     ? quality_series_values(&set->records[i], &first[s])[c]
                                     : (double)NAN;
    good = h5_variable_write(group, &(h5_variable){.name = first[s].name,
                                                   .type = H5_F64,
                                                   .dims = {run, &own},
                                                   .data = cells,
                                                   .units = "1",
                                                   .long_name = first[s].long_name});
  }
  if (own.scale >= 0) H5Dclose(own.scale);
  if (group >= 0) H5Gclose(group);
  free(cells);
  return good;
}

static bool write_columns(hid_t root, h5_dim *run, const quality_set *set) {
  const void **rows = calloc(set->count + 1, sizeof *rows);
  int64_t *numbers = calloc(set->count + 1, sizeof *numbers);
  for (size_t i = 0; rows && numbers && i < set->count; i++) {
    rows[i] = &set->records[i];
    numbers[i] = (int64_t)i;
  }
  bool good =
      rows && numbers &&
      h5_dimension_write(
          root,
          &(h5_variable){
              .name = "run", .type = H5_I64, .data = numbers, .units = "1", .long_name = "number of the run"},
          run);
  for (const result_column *c = quality_columns; good && c->name; c++)
    good = h5_column_write(root, c, rows, set->count, (const h5_dim *[]){run, NULL}, COORDINATES);
  free(rows);
  free(numbers);
  return good;
}

/* Cells of /checks, of all runs. */
static bool write_checks(hid_t root, const h5_dim *run, const quality_set *set) {
  const void **cells = calloc(set->count * QUALITY_CHECKS + 1, sizeof *cells);
  const char *names[QUALITY_CHECKS];
  h5_dim own = {.scale = -1, .length = QUALITY_CHECKS};
  const hid_t group = cells ? h5_group_create(root, "checks") : -1;
  for (int c = 0; c < QUALITY_CHECKS; c++) names[c] = quality_checks[c].name;
  bool good =
      group >= 0 &&
      h5_dimension_write(
          group,
          &(h5_variable){.name = "check", .type = H5_TEXT, .data = names, .long_name = "name of the check"},
          &own);
  for (size_t i = 0; cells && i < set->count * QUALITY_CHECKS; i++)
    cells[i] = &set->records[i / QUALITY_CHECKS].checks[i % QUALITY_CHECKS];
  for (const result_column *c = result_bound_columns; good && c->name; c++)
    good = h5_column_write(group, c, cells, set->count * QUALITY_CHECKS, (const h5_dim *[]){run, &own}, NULL);
  if (own.scale >= 0) H5Dclose(own.scale);
  if (group >= 0) H5Gclose(group);
  free(cells);
  return good;
}

static bool write_all(hid_t root, const quality_set *set) {
  h5_dim run = {.scale = -1, .length = set->count, .unlimited = true};
  bool good = h5_attribute_text(root, "Conventions", "CF-1.10") &&
              h5_attribute_text(root, "title", "A model measured with its attention approximated") &&
              h5_attribute_text(root, "schema", QUALITY_SCHEMA) &&
              h5_attribute_int(root, "schema_version", QUALITY_SCHEMA_VERSION) &&
              h5_attribute_text(root, "source", "attnlab") && write_columns(root, &run, set);
  for (int s = 0; good && s < QUALITY_SERIES; s += group_size(s))
    good = write_group(root, &run, set, &quality_series_list[s], group_size(s));
  if (good) good = write_checks(root, &run, set) && !results_write_provenance(root, set);
  if (run.scale >= 0) H5Dclose(run.scale);
  return good;
}

static bool is_evaluation(const char *path, const file_map *content) {
  return hdf5_input_is(path, content, "schema", QUALITY_SCHEMA);
}

const output_kind kind_evaluation = {"an attnlab evaluation", is_evaluation};

attn_status quality_write(const char *path, const quality_set *set) {
  void *image = NULL;
  size_t size = 0;
  const hdf5_quiet before = hdf5_quiet_begin();
  const hid_t file = h5_file_create();
  attn_status status = ATTN_EFOREIGN;
  if (file >= 0 && write_all(file, set))
    status = h5_file_image(file, &image, &size);
  else if (file >= 0)
    H5Fclose(file);
  hdf5_quiet_end(before);
  if (!status) {
    output_clean(path);
    status = hdf5_output(path, &kind_evaluation, image, size);
  }
  free(image);
  return status;
}

/* -- reading -- */

static attn_status read_group(const h5_source *root, quality_set *set, const quality_series *first,
                              int count) {
  h5_source in = {.path = root->path, .name = first->group};
  size_t lengths[2] = {set->count, 0};
  attn_status status = ATTN_OK;
  if (!h5_has(root, first->group)) return ATTN_OK;
  if ((in.group = H5Gopen2(root->group, first->group, H5P_DEFAULT)) < 0)
    return attn_fail(ATTN_EINVAL, "%s: /%s is not a group", root->path, first->group);
  for (int s = 0; !status && s < count; s++) {
    double *cells = NULL;
    status = h5_lengths(&in, first[s].name, 2, lengths);
    if (!status && lengths[0] != set->count)
      status = attn_fail(ATTN_EINVAL, "%s: /%s/%s: %zu runs, %zu were expected", root->path, first->group,
                         first[s].name, lengths[0], set->count);
    if (!status) status = h5_read_f64(&in, first[s].name, 2, lengths, &cells);
    for (size_t i = 0; !status && i < set->count; i++) {
      quality_record *r = &set->records[i];
      if (first->by == BY_LAYER) r->layer_count = (int64_t)lengths[1];
      const size_t need = first->by == BY_WINDOW ? (size_t)r->windows
                          : first->by == BY_BIN  ? QUALITY_BINS
                                                 : lengths[1];
      double *own = need <= lengths[1] ? malloc((need + 1) * sizeof *own) : NULL;
      if (!own) {
        status = attn_fail(ATTN_EINVAL, "%s: /%s/%s: %zu values, %zu were expected", root->path, first->group,
                           first[s].name, lengths[1], need);
        break;
      }
      memcpy(own, cells + i * lengths[1], need * sizeof *own);
      memcpy((char *)r + first[s].offset, &own, sizeof own);
    }
    free(cells);
  }
  H5Gclose(in.group);
  return status;
}

/* Cells of checks that this program knows; files of older programs have none. */
static attn_status read_checks(const h5_source *root, quality_set *set) {
  h5_source in = {.path = root->path, .name = "checks"};
  size_t lengths[2] = {set->count, 0};
  result_bound *cells = NULL;
  char **names = NULL;
  if (!h5_has(root, in.name)) return ATTN_OK;
  if ((in.group = H5Gopen2(root->group, in.name, H5P_DEFAULT)) < 0)
    return attn_fail(ATTN_EINVAL, "%s: /checks is not a group", root->path);
  attn_status status = h5_lengths(&in, "check", 1, &lengths[1]);
  if (!status) status = h5_read_texts(&in, "check", 1, &lengths[1], &names);
  size_t bytes = 0;
  if (!status)
    status = attn_size_product(
        "/checks", (int64_t[]){(int64_t)lengths[0], (int64_t)lengths[1], (int64_t)sizeof *cells}, 3, &bytes);
  if (!status && !(cells = malloc(bytes + 1)))
    status = attn_fail(ATTN_ENOMEM, "%s: no memory for /checks", root->path);
  for (size_t i = 0; !status && i < lengths[0] * lengths[1]; i++) bound_begin(&cells[i], "", KIND_HARD);
  for (const result_column *c = result_bound_columns; !status && c->name; c++)
    status = h5_column_read(&in, c, 2, lengths, cells, sizeof *cells);
  for (size_t i = 0; !status && i < lengths[0] * lengths[1]; i++) cells[i].name = names[i % lengths[1]];
  for (size_t i = 0; !status && i < set->count; i++)
    quality_record_take_checks(&set->records[i], cells + i * lengths[1], (int)lengths[1]);
  h5_texts_free(names, names ? lengths[1] : 0);
  free(cells);
  H5Gclose(in.group);
  return status;
}

static attn_status read_runs(const h5_source *s, quality_set *set) {
  char schema[sizeof QUALITY_SCHEMA + 1];
  int64_t version;
  size_t count;
  hsize_t bytes = 0;
  if (h5_read_attribute_text(s, "schema", schema, sizeof schema) || strcmp(schema, QUALITY_SCHEMA) != 0)
    return attn_fail(ATTN_EINVAL, "%s: not an attnlab evaluation (it has no attribute schema=\"%s\")",
                     s->path, QUALITY_SCHEMA);
  attn_status status = h5_read_attribute_int(s, "schema_version", &version);
  if (!status && version > QUALITY_SCHEMA_VERSION)
    status = attn_fail(ATTN_EINVAL,
                       "%s: an evaluation of schema version %lld; this program reads up to version %d",
                       s->path, (long long)version, QUALITY_SCHEMA_VERSION);
  if (!status) status = h5_lengths(s, "run", 1, &count);
  if (status) return status;
  H5Fget_filesize(s->group, &bytes); /* a run has texts of 16 bytes and more */
  if (count > bytes / 16) return attn_fail(ATTN_EINVAL, "%s: /run: %zu runs are too many", s->path, count);
  set->kind = &rows_of_evaluation;
  if (!(set->records = calloc(count + 1, sizeof *set->records)))
    return attn_fail(ATTN_ENOMEM, "%s: no memory for %zu runs", s->path, count);
  for (; !status && set->count < count; set->count++) status = quality_record_init(&set->records[set->count]);
  for (const result_column *c = quality_columns; !status && c->name; c++)
    status = h5_column_read(s, c, 1, &count, set->records, sizeof *set->records);
  for (int g = 0; !status && g < QUALITY_SERIES; g += group_size(g))
    status = read_group(s, set, &quality_series_list[g], group_size(g));
  if (!status) status = read_checks(s, set);
  return status ? status : results_read_provenance(s, set);
}

static attn_status read_set(const char *path, quality_set *out) {
  quality_set set = {0};
  hid_t file;
  attn_status status = hdf5_input_open(path, &file);
  if (status) return status;
  const hdf5_quiet before = hdf5_quiet_begin();
  status = read_runs(&(h5_source){.group = file, .path = path, .name = "/"}, &set);
  H5Fclose(file);
  hdf5_quiet_end(before);
  if (status)
    result_set_free(&set);
  else
    *out = set;
  return status;
}

static attn_status try_set(const char *path, void *unused) {
  quality_set set;
  (void)unused;
  const attn_status status = read_set(path, &set);
  if (!status) result_set_free(&set);
  return status;
}

attn_status quality_read(const char *path, quality_set *out) {
  const attn_status status = hdf5_input_try(path, try_set, NULL);
  return status ? status : read_set(path, out);
}

/* layout.c - results files of any kind of row, built in memory and put in place whole, and read back
 * (layout.h). */
#include "experiments/results/hdf5/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/formats/hdf5_input.h"
#include "data/support/file.h"
#include "experiments/results/hdf5/groups.h"

static void *row_at(const result_set *set, size_t i) { return (char *)set->items + i * set->kind->size; }

/* ---- writing ------------------------------------------------------------------------------------------- */

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

static attn_status write_attributes(hid_t root, const row_layout *l, const result_set *set) {
  char *past = history(set->sessions);
  if (!past) return attn_fail(ATTN_ENOMEM, "out of memory for the history of the sessions");
  const bool good =
      h5_attribute_text(root, "Conventions", "CF-1.10") && h5_attribute_text(root, "title", l->title) &&
      h5_attribute_text(root, "schema", l->schema) && h5_attribute_int(root, "schema_version", l->version) &&
      h5_attribute_text(root, "history", past) && h5_attribute_text(root, "source", "attnlab") &&
      h5_attribute_text(root, "comment", "/columns describes every variable of the file") &&
      h5_attribute_text(root, "uuid", set->uuid);
  free(past);
  return good ? ATTN_OK : ATTN_EFOREIGN;
}

/* The dimension run and what lies along it alone. */
static attn_status write_runs(hid_t root, const row_layout *l, h5_dim *run, const result_set *set) {
  int64_t *numbers = calloc(set->count + 1, sizeof *numbers);
  const void **rows = calloc(set->count + 1, sizeof *rows);
  attn_status status =
      numbers && rows ? ATTN_OK : attn_fail(ATTN_ENOMEM, "out of memory for %zu rows", set->count);
  for (size_t i = 0; !status && i < set->count; i++) {
    rows[i] = row_at(set, i);
    numbers[i] = (int64_t)i;
  }
  const h5_variable axis = {"run", H5_I64, {0}, numbers, "1", "number of the run", NULL, false, NULL};
  if (!status && !h5_dimension_write(root, &axis, run)) status = ATTN_EFOREIGN;
  if (!status) status = l->write_columns(root, run, rows, set);
  free(numbers);
  free(rows);
  return status;
}

static attn_status write_rows(hid_t root, const row_layout *l, const result_set *set) {
  h5_dim run = {.scale = -1, .length = set->count, .unlimited = true};
  attn_status status = write_attributes(root, l, set);
  if (!status) status = write_runs(root, l, &run, set);
  if (!status) status = l->write_groups(root, &run, set);
  if (!status) status = results_write_bounds(root, l, &run, set);
  if (!status) status = results_write_provenance(root, set);
  if (!status) status = results_write_columns(root);
  if (run.scale >= 0) H5Dclose(run.scale);
  return status;
}

/* The bytes of a file that holds the sets. */
static attn_status make_image(const layout_part *parts, size_t count, void **image, size_t *size) {
  const hid_t file = h5_file_create();
  if (file < 0) return ATTN_EFOREIGN;
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < count; i++) {
    result_set set = *parts[i].set;
    const hid_t group = i ? h5_group_create(file, parts[i].layout->group) : file;
    set.kind = parts[i].layout->kind;
    if (i && !h5_attribute_text(file, parts[i].layout->group, parts[i].layout->schema))
      status = ATTN_EFOREIGN;
    if (!status) status = group >= 0 ? write_rows(group, parts[i].layout, &set) : ATTN_EFOREIGN;
    if (i && group >= 0) H5Gclose(group);
  }
  if (!status) return h5_file_image(file, image, size);
  H5Fclose(file);
  return status;
}

attn_status layout_write(const char *path, const layout_part *parts, size_t count) {
  void *image = NULL;
  size_t size = 0;
  char problem[256];
  const hdf5_quiet before = hdf5_quiet_begin();
  attn_status status = make_image(parts, count, &image, &size);
  hdf5_quiet_end(before);
  if (status) {
    snprintf(problem, sizeof problem, "%s", attn_last_error());
    return attn_fail(status, "%s: %s", path, problem);
  }
  output_clean(path);
  status = hdf5_output(path, parts->layout->file, image, size);
  free(image);
  return status;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static bool has_schema(const h5_source *s, const row_layout *l) {
  char schema[64];
  return H5Aexists(s->group, "schema") > 0 && !h5_read_attribute_text(s, "schema", schema, sizeof schema) &&
         strcmp(schema, l->schema) == 0;
}

/* Makes room for the rows that the file says it has. */
static attn_status make_rows(const h5_source *s, const row_layout *l, result_set *set) {
  size_t lengths[2], bytes;
  attn_status status = h5_lengths(s, "run", 1, lengths);
  if (status) return status;
  /* The key of a run is a text, for which the file has 16 bytes and more. */
  hsize_t file = 0;
  const hid_t owner = H5Iget_file_id(s->group);
  if (owner >= 0) {
    H5Fget_filesize(owner, &file);
    H5Fclose(owner);
  }
  const int64_t factors[] = {(int64_t)lengths[0], (int64_t)l->kind->size};
  if (lengths[0] > file / 16 || attn_size_product("runs", factors, 2, &bytes))
    return attn_fail(ATTN_EINVAL, "%s: /run: %zu runs are too many", s->path, lengths[0]);
  set->items = calloc(1, bytes + 1);
  if (!set->items) return attn_fail(ATTN_ENOMEM, "%s: out of memory for %zu runs", s->path, lengths[0]);
  for (; !status && set->count < lengths[0]; set->count++) status = l->init(row_at(set, set->count));
  return status;
}

static attn_status read_columns(const h5_source *s, const row_layout *l, result_set *set) {
  attn_status status = ATTN_OK;
  for (const result_column *c = l->kind->columns; !status && c->name; c++)
    status = h5_column_read(s, c, 1, &set->count, set->items, l->kind->size);
  if (!status && !h5_has(s, "key")) status = attn_fail(ATTN_EINVAL, "%s: /key is missing", s->path);
  return status || !l->read_columns ? status : l->read_columns(s, set);
}

static attn_status read_rows(const h5_source *s, const row_layout *l, result_set *set) {
  int64_t version;
  attn_status status = h5_read_attribute_int(s, "schema_version", &version);
  if (!status && version > l->version)
    status = attn_fail(ATTN_EINVAL, "%s: %s of schema version %lld; this program reads up to version %d",
                       s->path, l->file->name, (long long)version, l->version);
  /* Evaluations had no uuid at first. */
  if (!status && (!l->group || H5Aexists(s->group, "uuid") > 0))
    status = h5_read_attribute_text(s, "uuid", set->uuid, sizeof set->uuid);
  if (!status) status = make_rows(s, l, set);
  if (!status) status = read_columns(s, l, set);
  if (!status) status = l->read_groups(s, set);
  if (!status) status = results_read_bounds(s, l, set);
  if (!status) status = results_read_provenance(s, set);
  return status || !l->complete ? status : l->complete(s, set);
}

/* The rows of the root, or of the group. */
static attn_status read_file(const char *path, hid_t file, const row_layout *l, result_set *set) {
  h5_source s = {.group = file, .path = path, .name = "/"};
  hid_t group = -1;
  attn_status status = ATTN_OK;
  if (!has_schema(&s, l) && l->group && h5_has(&s, l->group) &&
      (group = H5Gopen2(file, l->group, H5P_DEFAULT)) >= 0)
    s.group = group;
  if (!has_schema(&s, l))
    status = attn_fail(ATTN_EINVAL, "%s: not %s (it has no attribute schema=\"%s\")", path, l->file->name,
                       l->schema);
  if (!status) status = read_rows(&s, l, set);
  if (group >= 0) H5Gclose(group);
  return status;
}

static attn_status read_set(const char *path, const row_layout *l, result_set *out) {
  result_set set;
  hid_t file;
  attn_status status = hdf5_input_open(path, &file);
  if (status) return status;
  result_set_init(&set);
  set.kind = l->kind;
  const hdf5_quiet before = hdf5_quiet_begin();
  status = read_file(path, file, l, &set);
  H5Fclose(file);
  hdf5_quiet_end(before);
  if (status)
    result_set_free(&set);
  else
    *out = set;
  return status;
}

static attn_status try_set(const char *path, void *layout) {
  result_set set;
  const attn_status status = read_set(path, layout, &set);
  if (!status) result_set_free(&set);
  return status;
}

attn_status layout_read(const char *path, const row_layout *l, result_set *out) {
  const attn_status status = hdf5_input_try(path, try_set, (void *)l);
  return status ? status : read_set(path, l, out);
}

/* read.c - a results file back into a set of rows. Layout: write.c. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/results/set.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/hdf5_input.h"
#include "experiments/results/hdf5/source.h"
#include "experiments/results/hdf5/groups.h"

static attn_status read_root(const h5_source *s, result_set *set) {
  attn_status status = ATTN_OK;
  for (const result_column *c = result_columns; !status && c->name; c++) {
    status = h5_column_read(s, c, 1, &set->count, set->rows, sizeof *set->rows);
    for (size_t i = 0; c->axis && !h5_has(s, c->name) && i < set->count; i++)
      result_row_recover(&set->rows[i], c);
  }
  if (!status && !h5_has(s, "key")) status = attn_fail(ATTN_EINVAL, "%s: /key is missing", s->path);
  return status ? status : results_read_parameters(s, set);
}

/* Makes room for the rows that the file says it has. */
static attn_status make_rows(const h5_source *s, result_set *set) {
  size_t lengths[2], bytes;
  attn_status status = h5_lengths(s, "run", 1, lengths);
  if (status) return status;
  /* The key of a run is a text, for which the file has 16 bytes and more. */
  hsize_t file = 0;
  H5Fget_filesize(s->group, &file);
  const int64_t factors[] = {(int64_t)lengths[0], (int64_t)sizeof *set->rows};
  if (lengths[0] > file / 16 || attn_size_product("runs", factors, 2, &bytes))
    return attn_fail(ATTN_EINVAL, "%s: /run: %zu runs are too many", s->path, lengths[0]);
  set->rows = calloc(1, bytes + 1);
  if (!set->rows) return attn_fail(ATTN_ENOMEM, "%s: out of memory for %zu runs", s->path, lengths[0]);
  set->count = lengths[0];
  for (size_t i = 0; i < set->count; i++) result_row_init(&set->rows[i]);
  return ATTN_OK;
}

static attn_status check_schema(const h5_source *s) {
  char schema[sizeof RESULT_SCHEMA + 1];
  int64_t version;
  if (h5_read_attribute_text(s, "schema", schema, sizeof schema) || strcmp(schema, RESULT_SCHEMA) != 0)
    return attn_fail(ATTN_EINVAL, "%s: not an attnlab results file (it has no attribute schema=\"%s\")",
                     s->path, RESULT_SCHEMA);
  attn_status status = h5_read_attribute_int(s, "schema_version", &version);
  if (!status && version > RESULT_SCHEMA_VERSION)
    status = attn_fail(ATTN_EINVAL, "%s: results of schema version %lld; this program reads up to version %d",
                       s->path, (long long)version, RESULT_SCHEMA_VERSION);
  return status;
}

static attn_status read_file(const char *path, hid_t file, result_set *set) {
  const h5_source root = {.group = file, .path = path, .name = "/"};
  attn_status status = check_schema(&root);
  if (!status) status = h5_read_attribute_text(&root, "uuid", set->uuid, sizeof set->uuid);
  if (!status) status = make_rows(&root, set);
  if (!status) status = read_root(&root, set);
  if (!status) status = results_read_samples(&root, set);
  if (!status) status = results_read_profile(&root, set);
  if (!status) status = results_read_maps(&root, set);
  if (!status) status = results_read_bounds(&root, set);
  if (!status) status = results_read_provenance(&root, set);
  const bool label = h5_has(&root, "label"), model_verdict = h5_has(&root, "model_verdict");
  for (size_t i = 0; !status && i < set->count; i++)
    status = result_row_complete(&set->rows[i], label, model_verdict);
  return status;
}

static attn_status read_set(const char *path, result_set *out) {
  result_set set;
  hid_t file;
  attn_status status = hdf5_input_open(path, &file);
  if (status) return status;
  result_set_init(&set);
  const hdf5_quiet before = hdf5_quiet_begin();
  status = read_file(path, file, &set);
  H5Fclose(file);
  hdf5_quiet_end(before);
  if (status)
    result_set_free(&set);
  else
    *out = set;
  return status;
}

static attn_status try_set(const char *path, void *unused) {
  result_set set;
  (void)unused;
  const attn_status status = read_set(path, &set);
  if (!status) result_set_free(&set);
  return status;
}

attn_status results_read(const char *path, result_set *out) {
  const attn_status status = hdf5_input_try(path, try_set, NULL);
  return status ? status : read_set(path, out);
}

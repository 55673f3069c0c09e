/* read_hdf5.c - a results file back into a set of rows. Layout: write_hdf5.c. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/results/write_hdf5.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/results/hdf5_source.h"
#include "experiments/results/read_hdf5.h"

static attn_status check_flags(const h5_source *s, const char *name, const char *const *flags,
                               const int32_t *x, size_t count) {
  int32_t limit = 0;
  while (flags ? flags[limit] != NULL : limit < 2) limit++;
  for (size_t i = 0; i < count; i++)
    if (x[i] < 0 || x[i] >= limit)
      return attn_fail(ATTN_EINVAL, "%s: %s%s: %d in run %zu is none of its flags", s->path, s->name, name,
                       (int)x[i], i);
  return ATTN_OK;
}

attn_status results_read_flags(const h5_source *s, const char *name, const char *const *flags, int rank,
                               const size_t *lengths, int32_t **out) {
  int32_t *data;
  attn_status status = h5_read_i32(s, name, rank, lengths, &data);
  if (status) return status;
  status = check_flags(s, name, flags, data, rank == 2 ? lengths[0] * lengths[1] : lengths[0]);
  if (status)
    free(data);
  else
    *out = data;
  return status;
}

static attn_status read_texts(const h5_source *s, const result_column *c, result_set *set) {
  char **texts = NULL;
  attn_status status = h5_read_texts(s, c->name, 1, &set->count, &texts);
  for (size_t i = 0; !status && i < set->count; i++) {
    int64_t x;
    if (!c->axis) {
      *(char **)(void *)((char *)&set->rows[i] + c->offset) = texts[i];
      texts[i] = NULL;
    } else if (result_column_flag(c, texts[i], &x)) {
      result_column_set_int(&set->rows[i], c, x);
    } else {
      status = attn_fail(ATTN_EINVAL, "%s: %s%s: '%s' in run %zu is none of its names", s->path, s->name,
                         c->name, texts[i], i);
    }
  }
  h5_texts_free(texts, set->count);
  return status;
}

static attn_status read_column(const h5_source *s, const result_column *c, result_set *set) {
  attn_status status = ATTN_OK;
  double *numbers = NULL;
  int64_t *integers = NULL;
  int32_t *flags = NULL;
  const bool present = h5_has(s, c->name) || strcmp(c->name, "key") == 0;
  for (size_t i = 0; !present && c->axis && i < set->count; i++) result_row_recover(&set->rows[i], c);
  if (!present) return ATTN_OK;
  switch (c->type) {
  case COLUMN_TEXT:
    return read_texts(s, c, set);
  case COLUMN_F64:
    status = h5_read_f64(s, c->name, 1, &set->count, &numbers);
    for (size_t i = 0; !status && i < set->count; i++)
      *(double *)(void *)((char *)&set->rows[i] + c->offset) = numbers[i];
    break;
  case COLUMN_I64:
  case COLUMN_I32:
    status = h5_read_i64(s, c->name, 1, &set->count, &integers);
    for (size_t i = 0; !status && i < set->count; i++) result_column_set_int(&set->rows[i], c, integers[i]);
    break;
  case COLUMN_FLAG:
  case COLUMN_BOOL:
    status = results_read_flags(s, c->name, c->flags, 1, &set->count, &flags);
    for (size_t i = 0; !status && i < set->count; i++) result_column_set_int(&set->rows[i], c, flags[i]);
    break;
  }
  free(numbers);
  free(integers);
  free(flags);
  return status;
}

static attn_status read_parameter(const h5_source *s, const char *column, result_set *set) {
  double *values = NULL;
  attn_status status = h5_read_f64(s, column, 1, &set->count, &values);
  for (size_t i = 0; !status && i < set->count; i++) {
    result_row *row = &set->rows[i];
    if (isnan(values[i])) continue;
    if (row->p_count == RESULT_PARAMS_MAX || strlen(column + 2) >= sizeof row->p->name) {
      status =
          attn_fail(ATTN_EINVAL, "%s: %s: more or longer parameters than a run can have", s->path, column);
      break;
    }
    strcpy(row->p[row->p_count].name, column + 2);
    row->p[row->p_count++].value = values[i];
  }
  free(values);
  return status;
}

static attn_status read_root(const h5_source *s, result_set *set) {
  char **members = NULL;
  size_t count = 0;
  attn_status status = ATTN_OK;
  for (const result_column *c = result_columns; !status && c->name; c++) status = read_column(s, c, set);
  if (!status) status = h5_members(s, &members, &count);
  for (size_t i = 0; !status && i < count; i++)
    if (strncmp(members[i], "p_", 2) == 0) status = read_parameter(s, members[i], set);
  h5_texts_free(members, count);
  return status;
}

/* Makes room for the rows that the file says it has. */
static attn_status make_rows(const h5_source *s, result_set *set) {
  size_t lengths[2], bytes;
  attn_status status = h5_lengths(s, "run", 1, lengths);
  if (status) return status;
  const int64_t factors[] = {(int64_t)lengths[0], (int64_t)sizeof *set->rows};
  if (attn_size_product("runs", factors, 2, &bytes))
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
  const h5_source root = {file, path, "/"};
  attn_status status = check_schema(&root);
  if (!status) status = h5_read_attribute_text(&root, "uuid", set->uuid, sizeof set->uuid);
  if (!status) status = make_rows(&root, set);
  if (!status) status = read_root(&root, set);
  if (!status) status = results_read_samples(&root, set);
  if (!status) status = results_read_profile(&root, set);
  if (!status) status = results_read_maps(&root, set);
  if (!status) status = results_read_bounds(&root, set);
  if (!status) status = results_read_provenance(&root, set);
  return status;
}

attn_status results_read(const char *path, result_set *out) {
  H5E_auto2_t print;
  void *print_data;
  result_set set;
  if (access(path, R_OK)) return attn_fail(ATTN_EFOREIGN, "%s: open: %s", path, strerror(errno));
  result_set_init(&set);
  H5Eget_auto2(H5E_DEFAULT, &print, &print_data);
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  attn_status status =
      file < 0 ? attn_fail(ATTN_EINVAL, "%s: not an attnlab results file (HDF5 cannot open it)", path)
               : read_file(path, file, &set);
  if (file >= 0) H5Fclose(file);
  H5Eset_auto2(H5E_DEFAULT, print, print_data);
  if (status)
    result_set_free(&set);
  else
    *out = set;
  return status;
}

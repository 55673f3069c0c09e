/* evaluation_file.c - the file of evaluations (evaluation_file.h): how its rows lie in it. Series are padded
 * with NaN to the longest of the runs. */
#include "experiments/quality/evaluation_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/hdf5_input.h"
#include "experiments/results/hdf5/groups.h"

/* -- columns -- */

static attn_status init(void *row) { return quality_record_init(row); }
static int cells(const void *row) { return ((const quality_record *)row)->check_count; }
static const result_bound *cell(const void *row, int i) { return &((const quality_record *)row)->checks[i]; }

static attn_status take(void *row, const result_bound *found, int count) {
  return quality_record_take_checks(row, found, count);
}

static attn_status write_columns(hid_t root, const h5_dim *run, const void *const *rows,
                                 const quality_set *set) {
  bool good = true;
  for (const result_column *c = quality_columns; good && c->name; c++)
    good = h5_column_write(root, c, rows, set->count, (const h5_dim *[]){run, NULL}, "variant n");
  return good ? ATTN_OK : ATTN_EFOREIGN;
}

/* -- series -- */

/* The series from first on that share a group. Returns how many. */
static int group_size(int first) {
  int count = 1;
  while (first + count < QUALITY_SERIES &&
         strcmp(quality_series_list[first + count].group, quality_series_list[first].group) == 0)
    count++;
  return count;
}

static attn_status write_series(const h5_table *t, const quality_set *set, const quality_series *s) {
  double *values = t->cells;
  for (size_t i = 0; i < set->count; i++)
    for (size_t c = 0; c < t->columns; c++)
      values[i * t->columns + c] = (int64_t)c < quality_series_length(&set->records[i], s)
                                       ? quality_series_values(&set->records[i], s)[c]
                                       : (double)NAN;
  return h5_table_write(
      t, (h5_variable){.name = s->name, .type = H5_F64, .units = "1", .long_name = s->long_name});
}

static attn_status write_group(hid_t root, const h5_dim *run, const quality_set *set,
                               const quality_series *first, int count) {
  size_t columns = 0;
  for (size_t i = 0; i < set->count; i++)
    if ((size_t)quality_series_length(&set->records[i], first) > columns)
      columns = (size_t)quality_series_length(&set->records[i], first);
  if (columns == 0) return ATTN_OK;
  h5_table t = {.group = -1, .own.scale = -1};
  double *axis = malloc(columns * sizeof *axis);
  if (!axis) return attn_fail(ATTN_ENOMEM, "no memory for /%s", first->group);
  for (size_t c = 0; c < columns; c++)
    axis[c] = first->by == BY_BIN ? (double)(c + 1) / QUALITY_BINS : (double)c;
  const h5_variable coordinate = {
      .name = first->dimension, .type = H5_F64, .data = axis, .units = "1", .long_name = first->about};
  attn_status status = h5_table_open(root, first->group, run, &coordinate, columns, &t);
  for (int s = 0; !status && s < count; s++) status = write_series(&t, set, &first[s]);
  h5_table_close(&t);
  free(axis);
  return status;
}

static attn_status write_groups(hid_t root, const h5_dim *run, const quality_set *set) {
  attn_status status = ATTN_OK;
  for (int s = 0; !status && s < QUALITY_SERIES; s += group_size(s))
    status = write_group(root, run, set, &quality_series_list[s], group_size(s));
  return status;
}

static attn_status read_group(const h5_source *root, quality_set *set, const quality_series *first,
                              int count) {
  h5_source in;
  size_t lengths[2] = {set->count, 0};
  attn_status status = results_open_group(root, first->group, first->group, &in);
  if (status || in.group < 0) return status;
  for (int s = 0; !status && s < count; s++) {
    double *cells = NULL;
    status = h5_lengths(&in, first[s].name, 2, lengths);
    if (!status && lengths[0] != set->count)
      status = attn_fail(ATTN_EINVAL, "%s: %s/%s: %zu runs; expected %zu", root->path, first->group,
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
        status = attn_fail(ATTN_EINVAL, "%s: %s/%s: %zu values; expected %zu", root->path, first->group,
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

static attn_status read_groups(const h5_source *root, quality_set *set) {
  attn_status status = ATTN_OK;
  for (int g = 0; !status && g < QUALITY_SERIES; g += group_size(g))
    status = read_group(root, set, &quality_series_list[g], group_size(g));
  return status;
}

/* -- the file -- */

static bool is_evaluation(const char *path, const file_map *content) {
  return hdf5_input_is(path, content, "schema", QUALITY_SCHEMA);
}

static bool file_says(const char *path, const char *attribute) {
  file_map content;
  if (file_map_open(path, &content)) return false;
  const bool says = hdf5_input_is(path, &content, attribute, QUALITY_SCHEMA);
  file_map_close(&content);
  return says;
}

bool quality_file_is(const char *path) { return file_says(path, "schema"); }

bool quality_file_has(const char *path) {
  return quality_file_is(path) || file_says(path, layout_of_evaluation.group);
}

const output_kind kind_evaluation = {"an attnlab evaluation", is_evaluation};

const row_layout layout_of_evaluation = {.kind = &rows_of_evaluation,
                                         .file = &kind_evaluation,
                                         .schema = QUALITY_SCHEMA,
                                         .title = "A model measured with its attention approximated",
                                         .version = QUALITY_SCHEMA_VERSION,
                                         .group = "evaluation",
                                         .bounds = "checks",
                                         .bound = "check",
                                         .about_bound = "name of the check",
                                         .init = init,
                                         .cells = cells,
                                         .cell = cell,
                                         .take = take,
                                         .write_columns = write_columns,
                                         .write_groups = write_groups,
                                         .read_groups = read_groups};

attn_status quality_write(const char *path, const quality_set *set) {
  return layout_write(path, &(layout_part){&layout_of_evaluation, set}, 1);
}

attn_status quality_read(const char *path, quality_set *out) {
  return layout_read(path, &layout_of_evaluation, out);
}

/* layout.c - what other readers find in a results file: scales, types, attributes, and its description of
 * itself; and in its rows as CSV. */
#include <hdf5_hl.h>

#include "tests/support/results_fixture.h"

/* Every axis of every dataset has a scale; no enums, no fixed-length strings; _FillValue on float64 only;
 * what is long is deflated. */
static herr_t check_dataset(hid_t root, const char *name, const H5O_info_t *info, void *count) {
  if (info->type != H5O_TYPE_DATASET) return 0;
  hid_t id = H5Dopen2(root, name, H5P_DEFAULT), type = H5Dget_type(id), space = H5Dget_space(id),
        create = H5Dget_create_plist(id);
  const H5T_class_t class = H5Tget_class(type);
  const int rank = H5Sget_simple_extent_ndims(space);
  hsize_t limit[3], chunk[3];
  unsigned order = 0;
  ++*(int *)count;
  cr_assert(class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_STRING, "%s", name);
  if (class == H5T_STRING) {
    cr_assert(H5Tis_variable_str(type) > 0, "%s", name);
    cr_assert_eq(H5Pget_nfilters(create), 0, "%s", name);
    cr_assert_eq(H5Tget_cset(type), H5T_CSET_UTF8, "%s", name);
  } else if (strcmp(name, "samples/rep") != 0) {
    cr_assert(H5Aexists(id, "units") > 0, "%s", name);
  }
  cr_assert(H5Aexists(id, "long_name") > 0 || strcmp(name, "provenance/weather") == 0, "%s", name);
  cr_assert_eq(H5Aexists(id, "_FillValue") > 0, class == H5T_FLOAT && H5Tget_size(type) == 8, "%s", name);
  double fill = 0;
  if (class == H5T_FLOAT && H5Tget_size(type) == 8)
    cr_assert(H5LTget_attribute_double(root, name, "_FillValue", &fill) >= 0 && isnan(fill), "%s", name);
  cr_assert(rank >= 1 && rank <= 3, "%s", name);
  for (unsigned axis = 0; axis < (unsigned)rank; axis++)
    cr_assert(H5DSis_scale(id) > 0 || H5DSget_num_scales(id, axis) == 1, "%s axis %u", name, axis);
  H5Sget_simple_extent_dims(space, NULL, limit);
  if (limit[0] == H5S_UNLIMITED) {
    cr_assert_eq(H5Pget_chunk(create, 2, chunk), rank, "%s", name);
    cr_assert_eq(chunk[0], 1024, "%s", name);
    if (class != H5T_STRING) cr_assert_eq(H5Pget_nfilters(create), 2, "%s", name);
  }
  if (rank == 3) {
    cr_assert_eq(H5Pget_chunk(create, 3, chunk), 3, "%s", name);
    cr_assert(chunk[0] == 1 && chunk[1] == 128 && chunk[2] == 128, "%s", name);
    cr_assert_eq(H5Pget_nfilters(create), 2, "%s", name);
  }
  H5Pget_attr_creation_order(create, &order);
  cr_assert_eq(order, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED, "%s", name);
  cr_assert_eq(info->mtime, 0, "%s", name);
  H5Pclose(create), H5Sclose(space), H5Tclose(type), H5Dclose(id);
  return 0;
}

Test(results_layout, netcdf_readers_find_what_they_need) {
  const char *path = fixture_results("layout", 0, 60);
  int count = 0, version = 0;
  char text[64] = "";
  unsigned order = 0;
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), root = H5Gopen2(file, "/", H5P_DEFAULT),
        create = H5Gget_create_plist(root);
  cr_assert(file >= 0);
  cr_assert(H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, check_dataset, &count, H5O_INFO_ALL) >= 0);
  cr_assert_gt(count, 100);
  H5Pget_link_creation_order(create, &order);
  cr_assert_eq(order, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
  cr_assert(H5LTget_attribute_string(file, "/", "schema", text) >= 0);
  cr_assert_str_eq(text, "attnlab-results");
  cr_assert(H5LTget_attribute_int(file, "/", "schema_version", &version) >= 0 && version == 2);
  cr_assert(H5LTget_attribute_string(file, "status", "flag_meanings", text) >= 0);
  cr_assert_str_eq(text, "ok failed timeout oom crashed unsupported skipped");
  double median[60], window[60];
  cr_assert(H5LTread_dataset_double(file, "time_median", median) >= 0);
  cr_assert(H5LTread_dataset_double(file, "p_window", window) >= 0);
  cr_assert(median[5] == 6 / 3e3 && isnan(median[6]) && window[2] == 256 && isnan(window[1]));
  H5Pclose(create), H5Gclose(root), H5Fclose(file);
}

/* The texts of a variable, by number; at most 400. */
typedef struct texts {
  char *items[400];
  hsize_t count;
} texts;

static void read_texts(hid_t file, const char *name, texts *out) {
  hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, H5T_VARIABLE);
  H5Tset_cset(type, H5T_CSET_UTF8);
  cr_assert(H5LTget_dataset_info(file, name, &out->count, NULL, NULL) >= 0 && out->count <= 400, "%s", name);
  cr_assert(H5LTread_dataset(file, name, type, out->items) >= 0, "%s", name);
  H5Tclose(type);
}

static herr_t count_variable(hid_t root, const char *name, const H5O_info_t *info, void *count) {
  (void)root;
  *(hsize_t *)count += info->type == H5O_TYPE_DATASET && strncmp(name, "columns/", 8) != 0;
  return 0;
}

/* Every variable has its line in /columns, and nothing else has one. */
Test(results_layout, the_file_describes_its_columns) {
  static texts columns, types, units, about, meanings;
  hsize_t variables = 0, described = 0;
  hid_t file = H5Fopen(fixture_results("described", 0, 60), H5F_ACC_RDONLY, H5P_DEFAULT);
  cr_assert(H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, count_variable, &variables, H5O_INFO_ALL) >= 0);
  read_texts(file, "columns/column", &columns);
  read_texts(file, "columns/type", &types);
  read_texts(file, "columns/units", &units);
  read_texts(file, "columns/long_name", &about);
  read_texts(file, "columns/meaning", &meanings);
  cr_assert_eq(columns.count, variables);
  for (hsize_t i = 0; i < columns.count; i++) {
    const char *name = columns.items[i];
    const struct {
      const char *name, *type, *units, *meaning;
    } known[] = {
        {"key", "text", "", ""},
        {"causal", "int8", "1", "0 no, 1 yes"},
        {"status", "int8", "1", "0 ok, 1 failed, 2 timeout, 3 oom, 4 crashed, 5 unsupported, 6 skipped"},
        {"time_median", "float64", "s", ""},
        {"p_window", "float64", "1", ""},
        {"p_projection", "text", "", ""},
        {"samples/time_wall", "float64", "s", ""},
        {"maps/attn_exact", "float32", "1", ""},
        {"bounds/kind", "int8", "1", "0 hard, 1 prob, 2 model, 3 report, 4 property"},
    };
    cr_expect(H5LTpath_valid(file, name, 1) > 0, "%s", name);
    cr_expect(*about.items[i] || strcmp(name, "provenance/weather") == 0, "%s", name);
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
      if (strcmp(known[k].name, name) != 0) continue;
      cr_expect_str_eq(types.items[i], known[k].type, "%s", name);
      cr_expect_str_eq(units.items[i], known[k].units, "%s", name);
      cr_expect_str_eq(meanings.items[i], known[k].meaning, "%s", name);
      described++;
    }
    if (strcmp(name, "p_projection") == 0)
      cr_expect(strstr(about.items[i], "of linformer: ") &&
                    strstr(about.items[i], "(gaussian, rademacher, srht, "),
                "%s", about.items[i]);
  }
  cr_expect_eq(described, 9);
  H5Fclose(file);
}

/* More labels than an attribute has room for are numbered without names; and the file is written. */
Test(results_layout, more_labels_than_an_attribute_holds) {
  enum { COUNT = 20000 };
  static int32_t ids[COUNT];
  const char *path = fixture_path("labels.h5");
  for (int many = 0; many < 2; many++) {
    result_set set = {.rows = calloc(COUNT, sizeof(result_row)), .sessions = json_array()};
    for (set.count = 0; set.count < (many ? COUNT : 100); set.count++) {
      result_row *row = &set.rows[set.count];
      result_row_init(row);
      row->key = strdup(text_of("run %08zu", set.count));
      row->label = names_keep(text_of("longformer:window=%08zu", set.count));
      row->variant = "longformer";
      row->dataset = "gaussian";
    }
    cr_assert_eq(results_write(path, &set), ATTN_OK, "%s", attn_last_error());
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    cr_assert(H5LTread_dataset_int(file, "label_id", ids) >= 0);
    for (size_t i = 0; i < set.count; i++) cr_assert_eq(ids[i], (int32_t)i);
    cr_expect_eq(H5Aexists_by_name(file, "label_id", "flag_meanings", H5P_DEFAULT) > 0, !many);
    H5Fclose(file), result_set_free(&set);
  }
}

/* A name that is a number of one variant and a text of another is a column of texts. */
Test(results_layout, parameters_are_numbers_or_texts) {
  static texts projection, at;
  hid_t file = H5Fopen(fixture_results("parameters", 0, 6), H5F_ACC_RDONLY, H5P_DEFAULT);
  read_texts(file, "p_projection", &projection);
  read_texts(file, "p_global_at", &at);
  cr_expect_str_eq(projection.items[1], "");
  cr_expect_str_eq(projection.items[3], "2.5");
  cr_expect_str_eq(projection.items[4], "srht");
  cr_expect_str_eq(at.items[2], "16");
  H5Fclose(file);
}

/* ---- CSV ----------------------------------------------------------------------------------------------- */

/* The fields of a line (RFC 4180), in place; *at moves to the next one. */
static size_t csv_line(char **at, char **fields) {
  for (size_t count = 0;; ++*at) {
    const bool quoted = **at == '"';
    char *out = fields[count++] = *at += quoted;
    while (quoted ? **at != '"' || *++*at == '"' : **at != ',' && **at != '\n') *out++ = *(*at)++;
    const char end = **at;
    *out = '\0';
    if (end == '\n') return ++*at, count;
    cr_assert_eq(end, ',');
  }
}

static bool number_is(double x, const char *field) {
  return isnan(x) ? !*field : same_number(x, atof(field));
}

static bool column_is(const void *record, const result_column *c, const char *field) {
  if (c->type == COLUMN_F64) return number_is(result_column_f64(record, c), field);
  if (c->type == COLUMN_TEXT) return strcmp(result_column_text(record, c), field) == 0;
  if (c->type == COLUMN_FLAG) return strcmp(c->flags[result_column_int(record, c)], field) == 0;
  return *field && result_column_int(record, c) == atoll(field);
}

/* Whether a row has this under the name of a column, of a parameter or of a number of a bound. */
static bool has_field(const result_row *row, const char *name, const char *field) {
  for (const result_column *c = result_columns; c->name; c++)
    if (strcmp(c->name, name) == 0) return column_is(row, c, field);
  for (int p = 0; p < row->p_count; p++)
    if (strncmp(name, "p_", 2) == 0 && strcmp(row->p[p].name, name + 2) == 0)
      return row->p[p].text ? strcmp(row->p[p].text, field) == 0 : number_is(row->p[p].value, field);
  for (int b = 0; b < result_row_cells(row); b++)
    for (const result_column *c = result_bound_columns; c->name; c++) {
      const size_t length = strlen(result_row_cell(row, b)->name);
      if (strncmp(name, result_row_cell(row, b)->name, length) == 0 &&
          strcmp(name + length + 1, c->name) == 0)
        return column_is(result_row_cell(row, b), c, field);
    }
  return !*field;
}

static char *csv_of(attn_status (*export)(FILE *, const result_set *), const result_set *set) {
  FILE *full = fopen("/dev/full", "w");
  cr_assert_eq(export(full, set), ATTN_EFOREIGN);
  fclose(full);
  return fixture_printed(export, set);
}

/* Each once, what is missing as an empty field; and --columns has a line for each, in their order. */
Test(results_layout, csv_has_every_number_and_text) {
  enum { ROWS = 8 };
  char *titles[400], *fields[400];
  result_set set = kept_set(fixture_set(ROWS));
  char *text = csv_of(results_export_csv, &set), *about = csv_of(results_export_columns, &set), *at = text,
       *line = about;
  const size_t count = csv_line(&at, titles);
  for (size_t i = 0; i < ROWS; i++) {
    cr_assert_eq(csv_line(&at, fields), count);
    for (size_t f = 0; f < count; f++)
      cr_expect(has_field(&set.rows[i], titles[f], fields[f]), "%s: %s", titles[f], fields[f]);
  }
  cr_expect_eq(csv_line(&line, fields), 5);
  for (size_t f = 0; f < count; f++) {
    cr_assert_eq(csv_line(&line, fields), 5);
    cr_expect_str_eq(fields[0], titles[f]);
    cr_expect(*fields[3] && (!strcmp(fields[1], "text") || !strcmp(fields[1], "number")), "%s", titles[f]);
    for (size_t g = 0; g < f; g++) cr_expect_str_neq(titles[g], titles[f]);
  }
  cr_expect(!*at && !*line && count > 120, "%zu columns", count);
}

/* layout.c - what other readers find in a results file: scales, types, attributes, and its description of
 * itself. */
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
  H5Pclose(create);
  H5Sclose(space);
  H5Tclose(type);
  H5Dclose(id);
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
  cr_assert(H5LTget_attribute_int(file, "/", "schema_version", &version) >= 0);
  cr_assert_eq(version, 2);
  cr_assert(H5LTget_attribute_string(file, "status", "flag_meanings", text) >= 0);
  cr_assert_str_eq(text, "ok failed timeout oom crashed unsupported skipped");
  double median[60], window[60];
  cr_assert(H5LTread_dataset_double(file, "time_median", median) >= 0);
  cr_assert(H5LTread_dataset_double(file, "p_window", window) >= 0);
  cr_assert_eq(median[5], 6 / 3e3);
  cr_assert(isnan(median[6]));
  cr_assert_eq(window[2], 256);
  cr_assert(isnan(window[1]));
  H5Pclose(create);
  H5Gclose(root);
  H5Fclose(file);
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
      row->key = fixture_text("run %08lld", (int64_t)set.count);
      row->label = fixture_kept("longformer:window=%08lld", (int64_t)set.count);
      row->variant = "longformer";
      row->dataset = "gaussian";
    }
    cr_assert_eq(results_write(path, &set), ATTN_OK, "%s", attn_last_error());
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    cr_assert(H5LTread_dataset_int(file, "label_id", ids) >= 0);
    for (size_t i = 0; i < set.count; i++) cr_assert_eq(ids[i], (int32_t)i);
    cr_expect_eq(H5Aexists_by_name(file, "label_id", "flag_meanings", H5P_DEFAULT) > 0, !many);
    H5Fclose(file);
    result_set_free(&set);
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

/* maps.c - /maps of the results file: maps of several lengths come back, and changed ones are refused by
 * name. */

#include <hdf5_hl.h>

#include "tests/support/results_fixture.h"

/* Maps of short and of long sequences share their dimensions: the short have NaN beyond their cells. */
Test(results_maps, maps_of_several_lengths_come_back) {
  static const int64_t lengths[] = {1, 40, 128, 200};
  const char *path = fixture_path("maps.h5");
  result_set set = kept_set(fixture_set(4));
  for (size_t i = 0; i < 4; i++) {
    free(set.rows[i].map);
    set.rows[i].n = set.rows[i].n_kv = lengths[i];
    set.rows[i].map = fixture_map(&set.rows[i], 3);
  }
  cr_assert_eq(results_write(path, &set), ATTN_OK, "%s", attn_last_error());
  result_set back = read_results(path);
  for (size_t i = 0; i < 4; i++) cr_expect_str_eq(rows_difference(&set.rows[i], &back.rows[i]), "", "%zu", i);
  float cells[4][128][128];
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  cr_assert(H5LTread_dataset_float(file, "maps/attn_exact", &cells[0][0][0]) >= 0);
  H5Fclose(file);
  cr_expect(!isnan(cells[1][39][39]) && isnan(cells[1][40][39]) && isnan(cells[1][39][40]));
}

/* A good file of three runs and maps with one thing changed by hand. */
static attn_status read_changed(void (*change)(hid_t file)) {
  const char *path = fixture_path("change.h5");
  result_set set = kept_set(fixture_set(3)), back;
  cr_assert_eq(results_write(path, &set), ATTN_OK, "%s", attn_last_error());
  hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  change(file);
  H5Fclose(file);
  const attn_status status = results_read(path, &back);
  if (!status) result_set_free(&back);
  return status;
}

static void write_integers(hid_t file, const char *name, const int *integers) {
  hid_t id = H5Dopen2(file, name, H5P_DEFAULT);
  H5Dwrite(id, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, integers);
  H5Dclose(id);
}
static void map_of_nobody(hid_t file) { write_integers(file, "maps/map_run", (int[]){0, 1, 3}); }
static void two_maps_of_one(hid_t file) { write_integers(file, "maps/map_run", (int[]){0, 1, 1}); }
static void map_too_small(hid_t file) { write_integers(file, "n", (int[]){512, 0, 512}); }
static void unknown_weight(hid_t file) {
  hid_t id = H5Dopen2(file, "maps/attn_approx", H5P_DEFAULT), space = H5Dget_space(id),
        one = H5Screate(H5S_SCALAR);
  H5Sselect_elements(space, H5S_SELECT_SET, 1, (hsize_t[]){2, 127, 127});
  H5Dwrite(id, H5T_NATIVE_FLOAT, one, space, H5P_DEFAULT, &(float){NAN});
  H5Sclose(one), H5Sclose(space), H5Dclose(id);
}
static void flat_map(hid_t file) {
  H5Ldelete(file, "maps/attn_exact", H5P_DEFAULT);
  H5LTmake_dataset_int(file, "maps/attn_exact", 1, (hsize_t[]){3}, (int[]){1, 2, 3});
}
static void no_maps(hid_t file) { H5Ldelete(file, "maps", H5P_DEFAULT); }

Test(results_maps, changed_maps_are_refused_by_name) {
  void (*const changes[])(hid_t) = {map_of_nobody, two_maps_of_one, unknown_weight, map_too_small, flat_map};
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    cr_assert_eq(read_changed(changes[i]), ATTN_EINVAL, "case %zu", i);
    cr_assert(strstr(attn_last_error(), "/maps/"), "%s", attn_last_error());
  }
  /* An older file has none. */
  cr_assert_eq(read_changed(no_maps), ATTN_OK);
}

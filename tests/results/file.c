/* file.c - the results file: what libhdf5 finds in it, reading it back, merging in any order, a full disk,
 * files of other kinds. */

#include <hdf5_hl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/support/results_fixture.h"

static result_set load_good(const char *const *paths, size_t count) {
  result_set set;
  cr_assert_eq(results_load(paths, count, &set), ATTN_OK, "%s", attn_last_error());
  return set;
}

/* The results file NAME.h5 of rows first, first + 1, ... in the journal NAME.jsonl. */
static const char *file_of_rows(const char *name, int64_t first, int64_t count) {
  char source[64], file[64];
  snprintf(source, sizeof source, "%s.jsonl", name);
  snprintf(file, sizeof file, "%s.h5", name);
  const char *from = fixture_path(source), *to = fixture_path(file);
  unlink(from);
  unlink(to);
  cr_assert_eq(fixture_journal(from, first, 1, count, 1e9), ATTN_OK);
  cr_assert_eq(results_merge(to, &from, 1), ATTN_OK, "%s", attn_last_error());
  return to;
}

static result_set read_good(const char *path) {
  result_set set;
  cr_assert_eq(results_read(path, &set), ATTN_OK, "%s", attn_last_error());
  return set;
}

static void expect_same_bytes(const char *a, const char *b) {
  char *first, *second;
  const size_t size = fixture_read(a, &first);
  cr_assert_eq(fixture_read(b, &second), size);
  cr_assert_eq(memcmp(first, second, size), 0);
  free(first);
  free(second);
}

static void round_trip(int64_t rows) {
  const char *source = fixture_path("trip.jsonl"), *file = fixture_path("trip.h5"),
             *copy = fixture_path("copy.h5");
  unlink(source);
  cr_assert_eq(fixture_journal(source, 0, 1, rows, 1e9), ATTN_OK);
  result_set set = load_good(&source, 1);
  cr_assert_eq(results_write(file, &set), ATTN_OK, "%s", attn_last_error());
  result_set back = read_good(file);
  cr_assert_eq(back.count, (size_t)rows);
  cr_assert_str_eq(back.uuid, set.uuid);
  for (int64_t i = 0; i < rows; i++) {
    const char *what = rows_difference(&set.rows[i], &back.rows[i]);
    cr_assert_str_eq(what, "", "row %lld: %s", (long long)i, what);
  }
  /* What was read writes the same file again. */
  cr_assert_eq(results_write(copy, &back), ATTN_OK);
  expect_same_bytes(file, copy);
  result_set_free(&set);
  result_set_free(&back);
}

Test(results_file, no_row_comes_back) { round_trip(0); }
Test(results_file, one_row_comes_back) { round_trip(1); }
Test(results_file, sixty_rows_come_back) { round_trip(60); }
Test(results_file, rows_beyond_a_chunk_come_back) { round_trip(1100); }

/* The session of a results file, made from a journal with this provenance and one row. */
static json_t *session_through_file(json_t *provenance) {
  const char *source = fixture_path("session.jsonl"), *file = fixture_path("session.h5");
  journal *j = NULL;
  result_row row = fixture_row(0);
  cr_assert_eq(journal_open(source, "b", provenance, &j), ATTN_OK);
  cr_assert_eq(journal_append(j, &row), ATTN_OK);
  journal_close(j);
  cr_assert_eq(results_merge(file, &source, 1), ATTN_OK, "%s", attn_last_error());
  result_set back = read_good(file);
  json_t *session = json_incref(json_array_get(back.sessions, 0));
  result_set_free(&back);
  result_row_free(&row);
  json_decref(provenance);
  return session;
}

/* An attribute holds less than 64 KiB; the dataset keeps the whole. */
/* Each row of a dataset of its own: their numbers go beyond 16 bits. */
Test(results_file, more_datasets_than_16_bits_number) {
  enum { COUNT = 70000 };
  const char *path = fixture_path("datasets.h5");
  result_set set = {.rows = calloc(COUNT, sizeof(result_row)), .count = COUNT, .sessions = json_array()};
  int64_t *ids = calloc(COUNT, sizeof *ids);
  for (int64_t i = 0; i < COUNT; i++) {
    result_row_init(&set.rows[i]);
    set.rows[i].key = fixture_text("run %08lld", (long long)i);
    set.rows[i].dataset = fixture_text("made:number=%08lld", (long long)i);
    set.rows[i].variant = strdup("full");
  }
  cr_assert_eq(results_write(path, &set), ATTN_OK, "%s", attn_last_error());
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  cr_assert_geq(H5LTread_dataset(file, "dataset_id", H5T_NATIVE_INT64, ids), 0);
  H5Fclose(file);
  for (int64_t i = 0; i < COUNT; i++) cr_assert_eq(ids[i], i);
  free(ids);
  result_set_free(&set);
}

Test(results_file, a_command_line_longer_than_an_attribute_is_kept) {
  char *argv = calloc(100001, 1);
  memset(argv, 'x', 100000);
  json_t *session = session_through_file(json_pack("{s:s}", "argv", argv));
  cr_assert_str_eq(json_string_value(json_object_get(session, "argv")), argv);
  json_decref(session);
  free(argv);
}

Test(results_file, a_dirty_tree_may_be_a_number) {
  json_t *session = session_through_file(json_pack("{s:i}", "git_dirty", 1));
  cr_assert(json_is_true(json_object_get(session, "git_dirty")));
  json_decref(session);
}

Test(results_file, provenance_comes_back) {
  result_set back = read_good(file_of_rows("about", 0, 2));
  const json_t *about = json_array_get(back.sessions, 0);
  cr_assert_str_eq(json_string_value(json_object_get(about, "git_commit")), "0123abc");
  cr_assert(json_is_true(json_object_get(about, "git_dirty")));
  cr_assert_eq(json_number_value(json_object_get(about, "start_time")), 1e9);
  cr_assert_eq(json_number_value(json_object_get(about, "end_time")), 1.7e9 + 1.5);
  /* The load at the end is the last run's; that at the start was not recorded, as in older journals. */
  cr_assert_eq(json_number_value(json_object_get(about, "load_end")), 2 / 3e3);
  cr_assert(json_is_null(json_object_get(about, "load_start")));
  cr_assert_str_eq(json_string_value(json_object_get(about, "build")), "build one");
  cr_assert_str_eq(json_string_value(json_object_get(about, "weather")), "fine");
  cr_assert_str_eq(json_string_value(json_object_get(about, "config_text")), "schema: 1\n");
  result_set_free(&back);
}

/* With whatever Python readers are installed: the script says which, and passes over the others. */
Test(results_file, python_readers_open_it) {
  static const int64_t rows[] = {0, 1, 60};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *path = file_of_rows("python", 0, rows[i]);
    char command[512];
    snprintf(command, sizeof command,
             "for p in python3 /usr/bin/python3; do ! command -v $p >/dev/null || $p "
             "'%s/tests/results/read_results.py' '%s' %lld >&2 || exit 1; done",
             TEST_SOURCE_DIR, path, (long long)rows[i]);
    cr_assert_eq(system(command), 0, "%lld rows", (long long)rows[i]);
  }
}

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

Test(results_file, netcdf_readers_find_what_they_need) {
  const char *path = file_of_rows("layout", 0, 60);
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
Test(results_file, the_file_describes_its_columns) {
  static texts names, types, units, about, meanings;
  hsize_t variables = 0, described = 0;
  hid_t file = H5Fopen(file_of_rows("described", 0, 60), H5F_ACC_RDONLY, H5P_DEFAULT);
  cr_assert(H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, count_variable, &variables, H5O_INFO_ALL) >= 0);
  read_texts(file, "columns/column", &names);
  read_texts(file, "columns/type", &types);
  read_texts(file, "columns/units", &units);
  read_texts(file, "columns/long_name", &about);
  read_texts(file, "columns/meaning", &meanings);
  cr_assert_eq(names.count, variables);
  for (hsize_t i = 0; i < names.count; i++) {
    const char *name = names.items[i];
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
Test(results_file, more_labels_than_an_attribute_holds) {
  enum { COUNT = 20000 };
  static int32_t ids[COUNT];
  const char *path = fixture_path("labels.h5");
  for (int many = 0; many < 2; many++) {
    result_set set = {.rows = calloc(COUNT, sizeof(result_row)), .sessions = json_array()};
    for (set.count = 0; set.count < (many ? COUNT : 100); set.count++) {
      result_row *row = &set.rows[set.count];
      result_row_init(row);
      row->key = fixture_text("run %08lld", (int64_t)set.count);
      row->label = fixture_text("longformer:window=%08lld", (int64_t)set.count);
      row->variant = strdup("longformer");
      row->dataset = strdup("gaussian");
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
Test(results_file, parameters_are_numbers_or_texts) {
  static texts projection, at;
  hid_t file = H5Fopen(file_of_rows("parameters", 0, 6), H5F_ACC_RDONLY, H5P_DEFAULT);
  read_texts(file, "p_projection", &projection);
  read_texts(file, "p_global_at", &at);
  cr_expect_str_eq(projection.items[1], "");
  cr_expect_str_eq(projection.items[3], "2.5");
  cr_expect_str_eq(projection.items[4], "srht");
  cr_expect_str_eq(at.items[2], "16");
  H5Fclose(file);
}

Test(results_file, the_same_journals_give_the_same_bytes_in_any_order) {
  const char *even = fixture_path("even.jsonl"), *odd = fixture_path("odd.jsonl");
  const char *a = fixture_path("a.h5"), *b = fixture_path("b.h5");
  cr_assert_eq(fixture_journal(even, 0, 2, 20, 2e9), ATTN_OK);
  cr_assert_eq(fixture_journal(odd, 1, 2, 20, 1e9), ATTN_OK);
  const char *const forth[] = {even, odd}, *const back[] = {odd, even, odd};
  cr_assert_eq(results_merge(a, forth, 2), ATTN_OK);
  cr_assert_eq(results_merge(b, back, 3), ATTN_OK);
  expect_same_bytes(a, b);
  result_set set = load_good(forth, 2);
  cr_assert_eq(set.count, 40);
  /* The odd rows' session started earlier, so it has number 0. */
  for (size_t i = 0; i < 40; i++) cr_assert_eq(set.rows[i].session, i % 2 ? 0 : 1);
  result_set other = load_good(&even, 1);
  cr_assert_str_neq(set.uuid, other.uuid);
  result_set_free(&set);
  result_set_free(&other);
}

static int write_to_full_disk(const char *path, const result_set *set) {
  const struct rlimit limit = {20000, RLIM_INFINITY};
  signal(SIGXFSZ, SIG_IGN);
  if (setrlimit(RLIMIT_FSIZE, &limit)) return 1;
  return results_write(path, set) == ATTN_EFOREIGN ? 0 : 2;
}

Test(results_file, a_full_disk_keeps_the_old_file_and_leaves_nothing_beside_it) {
  const char *path = file_of_rows("full", 0, 3), *source = fixture_path("full.jsonl");
  char *before, *after, command[256];
  const size_t size = fixture_read(path, &before);
  cr_assert_eq(fixture_journal(source, 3, 1, 30, 1e9), ATTN_OK);
  result_set set = load_good(&source, 1);
  const pid_t child = fork();
  if (child == 0) _exit(write_to_full_disk(path, &set));
  int code;
  cr_assert_eq(waitpid(child, &code, 0), child);
  cr_assert(WIFEXITED(code) && WEXITSTATUS(code) == 0, "step %d", code);
  cr_assert_eq(fixture_read(path, &after), size);
  cr_assert_eq(memcmp(before, after, size), 0);
  snprintf(command, sizeof command, "ls '%s'.tmp.* >/dev/null 2>&1", path);
  cr_assert_neq(system(command), 0);
  free(before);
  free(after);
  result_set_free(&set);
}

Test(results_file, temporary_files_of_the_dead_go_and_others_stay) {
  const char *path = fixture_path("clean.h5");
  char dead[200], living[200], other[200];
  pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, NULL, 0);
  snprintf(dead, sizeof dead, "%s.tmp.%ld.0", path, (long)child);
  snprintf(living, sizeof living, "%s.tmp.%ld.0", path, (long)getpid());
  snprintf(other, sizeof other, "%s.tmp.%ld.0.bak", path, (long)child);
  fclose(fopen(dead, "w"));
  fclose(fopen(living, "w"));
  fclose(fopen(other, "w"));
  output_clean(path);
  cr_assert_neq(access(dead, F_OK), 0);
  cr_assert_eq(access(living, F_OK), 0);
  cr_assert_eq(access(other, F_OK), 0);
}

/* A good file with one thing changed by hand. */
static attn_status read_changed(void (*change)(hid_t file)) {
  const char *path = file_of_rows("change", 0, 3);
  result_set set;
  hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  change(file);
  H5Fclose(file);
  const attn_status status = results_read(path, &set);
  if (!status) result_set_free(&set);
  cr_assert(!status || strstr(attn_last_error(), path), "%s", attn_last_error());
  return status;
}

static void newer(hid_t file) { H5LTset_attribute_int(file, "/", "schema_version", (int[]){3}, 1); }
static void alien(hid_t file) { H5LTset_attribute_string(file, "/", "schema", "weather"); }
static void nameless(hid_t file) { H5Adelete(file, "schema"); }
static void bad_flag(hid_t file) {
  hid_t id = H5Dopen2(file, "status", H5P_DEFAULT);
  H5Dwrite(id, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, (int[]){0, 99, 0});
  H5Dclose(id);
}
static void longer(hid_t file) {
  hid_t id = H5Dopen2(file, "time_min", H5P_DEFAULT);
  H5Dset_extent(id, (hsize_t[]){7});
  H5Dclose(id);
}
static void huge(hid_t file) {
  hid_t id = H5Dopen2(file, "run", H5P_DEFAULT);
  H5Dset_extent(id, (hsize_t[]){(hsize_t)1 << 60});
  H5Dclose(id);
}
static void no_key(hid_t file) { H5Ldelete(file, "key", H5P_DEFAULT); }
static void key_of_numbers(hid_t file) {
  H5Ldelete(file, "key", H5P_DEFAULT);
  H5LTmake_dataset_int(file, "key", 1, (hsize_t[]){3}, (int[]){1, 2, 3});
}
static void no_time(hid_t file) { H5Ldelete(file, "time_min", H5P_DEFAULT); }

Test(results_file, changed_files_are_refused_by_name) {
  cr_assert_eq(read_changed(newer), ATTN_EINVAL);
  cr_assert(strstr(attn_last_error(), "version 2"));
  cr_assert_eq(read_changed(alien), ATTN_EINVAL);
  cr_assert(strstr(attn_last_error(), "not an attnlab results file"));
  cr_assert_eq(read_changed(nameless), ATTN_EINVAL);
  cr_assert_eq(read_changed(bad_flag), ATTN_EINVAL);
  cr_assert(strstr(attn_last_error(), "status"));
  cr_assert_eq(read_changed(longer), ATTN_EINVAL);
  cr_assert(strstr(attn_last_error(), "time_min"));
  cr_assert_neq(read_changed(huge), ATTN_OK);
  cr_assert_neq(read_changed(no_key), ATTN_OK);
  cr_assert_eq(read_changed(key_of_numbers), ATTN_EINVAL);
  cr_assert(strstr(attn_last_error(), "key"));
  /* An older file may lack a column that a later one has. */
  cr_assert_eq(read_changed(no_time), ATTN_OK);
}

Test(results_file, other_files_are_refused_by_name) {
  const char *text = fixture_path("notes.txt"), *missing = fixture_path("missing.h5"),
             *h5 = fixture_path("other.h5");
  result_set set;
  FILE *file = fopen(text, "w");
  fputs("notes", file);
  fclose(file);
  cr_assert_eq(results_read(text, &set), ATTN_EINVAL);
  cr_assert(strstr(attn_last_error(), text));
  cr_assert_eq(results_read(missing, &set), ATTN_EFOREIGN, "%s", attn_last_error());
  H5Fclose(H5Fcreate(h5, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  cr_assert_eq(results_read(h5, &set), ATTN_EINVAL);
  cr_assert(strstr(attn_last_error(), "not an attnlab results file"));
  result_set_init(&set);
  cr_assert_eq(results_write("/proc/no/such.h5", &set), ATTN_EFOREIGN);
}

/* Truncated anywhere, a file is refused or read, without a crash. */
Test(results_file, truncated_files_do_no_harm) {
  const char *path = file_of_rows("cut", 0, 2);
  char *bytes;
  result_set set;
  const size_t size = fixture_read(path, &bytes) - 80; /* without the digest at its end */
  for (size_t cut = 1; cut < size; cut += size / 23) {
    FILE *file = fopen(path, "wb");
    fwrite(bytes, 1, cut, file);
    fclose(file);
    cr_assert_neq(results_read(path, &set), ATTN_OK);
  }
  free(bytes);
}

Test(results_file, csv_quotes_and_leaves_missing_numbers_empty) {
  const char *source = fixture_path("csv.jsonl"), *path = fixture_path("out.csv");
  char *text;
  cr_assert_eq(fixture_journal(source, 4, 1, 3, 1e9), ATTN_OK);
  result_set set = load_good(&source, 1);
  FILE *file = fopen(path, "w");
  cr_assert_eq(results_export_csv(file, &set), ATTN_OK);
  fclose(file);
  fixture_read(path, &text);
  size_t lines = 0, header = 0;
  for (const char *c = text; *c; c++) {
    lines += *c == '\n';
    header += lines == 0 && *c == ',';
  }
  cr_assert_eq(lines, 4);
  cr_assert(strncmp(text, "key,variant,label,params,dataset,", 33) == 0);
  cr_assert(strstr(text, ",p_features,p_k,p_projection,p_projection_file,FAV-5_verdict,FAV-5_value,"));
  cr_assert(strstr(
      text, ",linformer,\"linformer:k=128,projection=srht\",\"{\"\"k\"\":128,\"\"projection\"\":\"\"srht"));
  cr_assert(strstr(text, ",,128,srht,,"));
  cr_assert(strstr(text, ",unsupported,\"the projection mixes the future, \"\"causal\"\" is refused\","));
  /* The row without results: every line has as many fields as the header. */
  const char *last = strstr(text, "\nrun 00000006") + 1;
  size_t commas = 0;
  bool quoted = false;
  for (; *last != '\n'; last++) {
    if (*last == '"') quoted = !quoted;
    commas += *last == ',' && !quoted;
  }
  cr_assert_eq(commas, header);
  cr_assert(strstr(text, "nan") == NULL);
  free(text);
  file = fopen("/dev/full", "w");
  cr_assert_eq(results_export_csv(file, &set), ATTN_EFOREIGN);
  fclose(file);
  result_set_free(&set);
}

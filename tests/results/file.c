/* file.c - the results file: reading it back, merging in any order, a full disk, files of other kinds. */

#include <hdf5_hl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/support/results_fixture.h"

/* What HDF5 has open: files and what is in them, shapes, types and lists of properties, of which each kind
 * counts its numbers up. */
static size_t handles(void) {
  const hid_t next[] = {H5Screate(H5S_SCALAR), H5Tcopy(H5T_C_S1), H5Pcreate(H5P_FILE_ACCESS)};
  size_t count = (size_t)H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL);
  for (int i = 0; i < 3; i++) {
    for (hid_t id = next[i] >> 56 << 56; id < next[i]; id++) count += H5Iis_valid(id) > 0;
    H5Idec_ref(next[i]);
  }
  return count;
}

static void round_trip(int64_t rows) {
  const char *source = fixture_path("trip.jsonl"), *file = fixture_path("trip.h5"),
             *copy = fixture_path("copy.h5");
  unlink(source);
  cr_assert_eq(fixture_journal(source, 0, 1, rows, 1e9), ATTN_OK);
  result_set set = load_results(source);
  cr_assert_eq(results_write(file, &set), ATTN_OK, "%s", attn_last_error());
  result_set back = read_results(file);
  const size_t open = handles();
  cr_assert_eq(back.count, (size_t)rows);
  cr_assert_str_eq(back.uuid, set.uuid);
  for (int64_t i = 0; i < rows; i++) {
    const char *what = rows_difference(&set.rows[i], &back.rows[i]);
    cr_assert_str_eq(what, "", "row %lld: %s", (long long)i, what);
  }
  /* What was read writes the same file again. */
  cr_assert_eq(results_write(copy, &back), ATTN_OK);
  expect_same_bytes(file, copy);
  set = read_results(copy);
  cr_assert_eq(handles(), open, "HDF5 has %d more open", (int)(handles() - open));
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
  cr_assert_eq(journal_open(source, &rows_of_sweep, "b", provenance, &j), ATTN_OK);
  cr_assert_eq(journal_append(j, &row), ATTN_OK);
  journal_close(j);
  cr_assert_eq(results_merge(file, &source, 1, NULL), ATTN_OK, "%s", attn_last_error());
  result_set back = read_results(file);
  json_t *session = json_incref(json_array_get(back.sessions, 0));
  result_row_free(&row), json_decref(provenance);
  return session;
}

/* Each row of a dataset of its own: their numbers go beyond 16 bits. */
Test(results_file, more_datasets_than_16_bits_number) {
  enum { COUNT = 70000 };
  const char *path = fixture_path("datasets.h5");
  result_set set = {.rows = calloc(COUNT, sizeof(result_row)), .count = COUNT, .sessions = json_array()};
  int64_t *ids = calloc(COUNT, sizeof *ids);
  for (int64_t i = 0; i < COUNT; i++) {
    result_row_init(&set.rows[i]);
    set.rows[i].key = strdup(text_of("run %08d", (int)i));
    set.rows[i].dataset = names_keep(text_of("made:number=%08d", (int)i));
    set.rows[i].variant = "full";
  }
  cr_assert_eq(results_write(path, &set), ATTN_OK, "%s", attn_last_error());
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  cr_assert_geq(H5LTread_dataset(file, "dataset_id", H5T_NATIVE_INT64, ids), 0);
  H5Fclose(file);
  for (int64_t i = 0; i < COUNT; i++) cr_assert_eq(ids[i], i);
  free(ids), result_set_free(&set);
}

/* An attribute holds less than 64 KiB; the dataset keeps the whole. A dirty tree may be a number. */
Test(results_file, a_command_line_longer_than_an_attribute_is_kept) {
  char *argv = calloc(100001, 1);
  memset(argv, 'x', 100000);
  json_t *session = session_through_file(json_pack("{s:s, s:i}", "argv", argv, "git_dirty", 1));
  cr_assert_str_eq(json_string_value(json_object_get(session, "argv")), argv);
  cr_assert(json_is_true(json_object_get(session, "git_dirty")));
  json_decref(session), free(argv);
}

Test(results_file, provenance_comes_back) {
  result_set back = read_results(fixture_results("about", 0, 2));
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
}

/* With whatever Python readers are installed: the script says which, and passes over the others. */
Test(results_file, python_readers_open_it) {
  static const int64_t rows[] = {0, 1, 60};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *path = fixture_results("python", 0, rows[i]);
    const char *command = text_of("for p in python3 /usr/bin/python3; do ! command -v $p >/dev/null || $p "
                                  "'%s/tests/results/read_results.py' '%s' %lld >&2 || exit 1; done",
                                  TEST_SOURCE_DIR, path, (long long)rows[i]);
    cr_assert_eq(system(command), 0, "%lld rows", (long long)rows[i]);
  }
}

Test(results_file, the_same_journals_give_the_same_bytes_in_any_order) {
  const char *even = fixture_path("even.jsonl"), *odd = fixture_path("odd.jsonl");
  const char *a = fixture_path("a.h5"), *b = fixture_path("b.h5");
  cr_assert_eq(fixture_journal(even, 0, 2, 20, 2e9), ATTN_OK);
  cr_assert_eq(fixture_journal(odd, 1, 2, 20, 1e9), ATTN_OK);
  const char *const forth[] = {even, odd}, *const back[] = {odd, even, odd};
  cr_assert(results_merge(a, forth, 2, NULL) == ATTN_OK && results_merge(b, back, 3, NULL) == ATTN_OK);
  expect_same_bytes(a, b);
  result_set set, other = load_results(even);
  cr_assert_eq(results_load(forth, 2, &set), ATTN_OK, "%s", attn_last_error());
  cr_assert_eq(set.count, 40);
  /* The odd rows' session started earlier, so it has number 0. */
  for (size_t i = 0; i < 40; i++) cr_assert_eq(set.rows[i].session, i % 2 ? 0 : 1);
  cr_assert_str_neq(set.uuid, other.uuid);
  result_set_free(&set);
}

static int write_to_full_disk(const char *path, const result_set *set) {
  const struct rlimit limit = {20000, RLIM_INFINITY};
  signal(SIGXFSZ, SIG_IGN);
  if (setrlimit(RLIMIT_FSIZE, &limit)) return 1;
  return results_write(path, set) == ATTN_EFOREIGN ? 0 : 2;
}

Test(results_file, a_full_disk_keeps_the_old_file_and_leaves_nothing_beside_it) {
  const char *path = fixture_results("full", 0, 3), *source = fixture_path("full.jsonl");
  cr_assert(system(text_of("cp '%s' '%s.old'", path, path)) == 0 &&
            fixture_journal(source, 3, 1, 30, 1e9) == ATTN_OK);
  result_set set = load_results(source);
  const pid_t child = fork();
  if (child == 0) _exit(write_to_full_disk(path, &set));
  int code;
  cr_assert_eq(waitpid(child, &code, 0), child);
  cr_assert(WIFEXITED(code) && WEXITSTATUS(code) == 0, "step %d", code);
  cr_assert_eq(system(text_of("cmp '%s' '%s.old' && ! ls '%s'.tmp.* >/dev/null 2>&1", path, path, path)), 0);
}

/* A good file with one thing changed by hand: EINVAL, and what else is said; NULL: it can be read. */
static void expect_changed(void (*change)(hid_t file), const char *told) {
  static char *good;
  static size_t size;
  const char *path = fixture_path("change.h5");
  result_set set;
  if (!good) size = fixture_read(fixture_results("good", 0, 3), &good);
  fixture_write(path, good, size);
  hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  change(file);
  H5Fclose(file);
  const size_t open = handles();
  cr_assert_eq(results_read(path, &set), told ? ATTN_EINVAL : ATTN_OK, "%s", attn_last_error());
  if (told)
    cr_assert(strstr(attn_last_error(), path) && strstr(attn_last_error(), told), "%s", attn_last_error());
  if (!told) result_set_free(&set);
  cr_assert_eq(handles(), open, "HDF5 has %d more open", (int)(handles() - open));
}

static void newer(hid_t file) { H5LTset_attribute_int(file, "/", "schema_version", (int[]){3}, 1); }
static void alien(hid_t file) { H5LTset_attribute_string(file, "/", "schema", "weather"); }
static void several(hid_t file) { H5LTset_attribute_int(file, "/", "schema_version", (int[]){2, 2}, 2); }
static void huge(hid_t file) {
  hid_t id = H5Dopen2(file, "run", H5P_DEFAULT);
  H5Dset_extent(id, (hsize_t[]){(hsize_t)1 << 60});
  H5Dclose(id);
}

Test(results_file, changed_files_are_refused_by_name) {
  expect_changed(newer, "version 2");
  expect_changed(alien, "not an attnlab results file");
  expect_changed(several, "schema_version: the attribute has another type");
  expect_changed(huge, "exceed this machine's memory");
}

static const result_column *column;
static double wrong;

static void set_last(hid_t file) {
  double x[3];
  hid_t id = H5Dopen2(file, column->name, H5P_DEFAULT);
  H5Dread(id, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x);
  x[2] = wrong;
  H5Dwrite(id, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x);
  H5Dclose(id);
}
static void of_another_length(hid_t file) {
  hid_t id = H5Dopen2(file, column->name, H5P_DEFAULT);
  H5Dset_extent(id, (hsize_t[]){column->axis ? 2 : 4});
  H5Dclose(id);
}
static void lacking(hid_t file) { H5Ldelete(file, column->name, H5P_DEFAULT); }
static void of_another_type(hid_t file) {
  const char *other = column->type == COLUMN_TEXT ? "n" : "isa";
  lacking(file);
  H5Lcreate_hard(file, other, file, column->name, H5P_DEFAULT, H5P_DEFAULT);
}

/* One of each sort. An older file may lack a column that a later one has; but its runs have keys, and their
 * maps lengths. */
Test(results_file, changed_columns_are_refused_by_name) {
  for (column = result_columns; column->name; column++) {
    if (column != result_columns && column->type == column[-1].type && column->axis == column[-1].axis)
      continue;
    const bool ranged = column->least < column->most, map = column->axis && column->name[0] == 'n';
    double most = column->most;
    if (column->type == COLUMN_FLAG)
      for (most = 0; column->flags[(int)most + 1];) most++;
    if (column->type == COLUMN_BOOL) most = 1;
    expect_changed(of_another_length, column->name);
    expect_changed(of_another_type, column->name);
    expect_changed(lacking, column == result_columns ? "key" : map ? "maps" : NULL);
    if (column->type == COLUMN_TEXT || !(ranged || column->flags || most > 0)) continue;
    wrong = -1;
    expect_changed(set_last, column->name);
    wrong = most + fmax(1, most / 0x1p40);
    if (isfinite(most)) expect_changed(set_last, column->name);
  }
}

Test(results_file, other_files_are_refused_by_name) {
  const char *text = fixture_path("notes.txt"), *missing = fixture_path("missing.h5"),
             *h5 = fixture_path("other.h5");
  result_set set;
  fixture_write(text, "notes", 5);
  cr_assert(results_read(text, &set) == ATTN_EINVAL && strstr(attn_last_error(), text));
  cr_assert_eq(results_read(missing, &set), ATTN_EFOREIGN, "%s", attn_last_error());
  H5Fclose(H5Fcreate(h5, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  cr_assert_eq(results_read(h5, &set), ATTN_EINVAL);
  cr_assert(strstr(attn_last_error(), "not an attnlab results file"));
  result_set_init(&set);
  cr_assert_eq(results_write("/proc/no/such.h5", &set), ATTN_EFOREIGN);
}

/* Truncated anywhere, a file is refused or read, without a crash. */
Test(results_file, truncated_files_do_no_harm) {
  const char *path = fixture_results("cut", 0, 2);
  char *bytes;
  result_set set;
  const size_t size = fixture_read(path, &bytes) - 80; /* without the digest at its end */
  for (size_t cut = 1; cut < size; cut += size / 23) {
    fixture_write(path, bytes, cut);
    cr_assert_neq(results_read(path, &set), ATTN_OK);
  }
  free(bytes);
}

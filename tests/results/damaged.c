/* damaged.c - HDF5 files that crash the library, exhaust memory, or take their data from elsewhere: each ends
 * in one message, in this process too. */
#define _XOPEN_SOURCE 700
#include <hdf5.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "data/data.h"
#include "data/formats/hdf5_input.h"
#include "tests/support/results_fixture.h"

TestSuite(results_damaged, .timeout = 300);

static char *good;
static size_t good_size;

/* A results file that is always the same: that of an earlier version, which carries no digest. */
static void load_good(void) {
  char command[400];
  snprintf(command, sizeof command, "gunzip -c %s/tests/fixtures/before.h5.gz >%s", TEST_SOURCE_DIR,
           fixture_path("good.h5"));
  cr_assert_eq(system(command), 0);
  good_size = fixture_read(fixture_path("good.h5"), &good);
}

static uint64_t state;
static size_t draw(size_t below) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (size_t)(state >> 33) % below;
}

/* Seeds of which HDF5 1.10.8 dies are first. */
Test(results_damaged, files_that_crash_the_library_are_refused) {
  static const uint64_t seeds[] = {146, 169, 543, 635, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const char *path = fixture_path("bad.h5");
  size_t crashes = 0;
  load_good();
  for (size_t s = 0; s < sizeof seeds / sizeof *seeds; s++) {
    char *bytes = malloc(good_size);
    memcpy(bytes, good, good_size);
    state = seeds[s];
    for (size_t i = 1 + draw(8); i > 0; i--) bytes[draw(good_size)] = (char)draw(256);
    fixture_write(path, bytes, good_size);
    free(bytes);
    result_set set;
    const attn_status status = results_read(path, &set);
    if (!status) result_set_free(&set);
    cr_expect(!status || strstr(attn_last_error(), path), "seed %zu: %s", s, attn_last_error());
    crashes += status && strstr(attn_last_error(), "the HDF5 library crashes on it");
  }
  cr_log_info("%zu crashes\n", crashes);
}

/* A file of three datasets q, k, v, made by `make`. */
static void expect_refused(void (*make)(hid_t file, const char *name), const char *says) {
  const char *path = fixture_path("made.h5");
  static const char *const tensors[] = {"q", "k", "v"};
  data_qkv x;
  const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  for (int i = 0; i < 3; i++) make(file, tensors[i]);
  H5Fclose(file);
  cr_assert_eq(data_qkv_read_hdf5(&(data_reading){.in = path}, &x), ATTN_EINVAL, "%s", says);
  cr_expect(strstr(attn_last_error(), says), "'%s' is not in %s", says, attn_last_error());
  cr_expect(strstr(attn_last_error(), path), "%s", attn_last_error());
}

static void make_dataset(hid_t file, const char *name, hid_t plist, hsize_t n) {
  const hid_t space = H5Screate_simple(2, (hsize_t[]){n, 8}, NULL);
  const hid_t id = H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  cr_assert(id >= 0);
  H5Dclose(id), H5Sclose(space);
  if (plist != H5P_DEFAULT) H5Pclose(plist);
}

static hid_t chunked(hsize_t rows) {
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(plist, 2, (hsize_t[]){rows, 8});
  return plist;
}

static void bomb(hid_t file, const char *name) {
  const hid_t plist = chunked(1 << 20);
  H5Pset_deflate(plist, 9);
  make_dataset(file, name, plist, (hsize_t)1 << 26); /* 2 GiB, of which nothing is stored */
}
static void partly_written(hid_t file, const char *name) {
  const float row[8] = {0};
  const hid_t plist = chunked(1), space = H5Screate_simple(2, (hsize_t[]){1, 8}, NULL);
  H5Pset_deflate(plist, 9);
  make_dataset(file, name, plist, 64);
  const hid_t id = H5Dopen2(file, name, H5P_DEFAULT), all = H5Dget_space(id);
  H5Sselect_hyperslab(all, H5S_SELECT_SET, (hsize_t[]){1, 0}, NULL, (hsize_t[]){1, 8}, NULL);
  cr_assert(H5Dwrite(id, H5T_NATIVE_FLOAT, space, all, H5P_DEFAULT, row) >= 0);
  H5Dclose(id), H5Sclose(space), H5Sclose(all);
}
static void beyond_memory(hid_t file, const char *name) {
  make_dataset(file, name, chunked(1 << 20), (hsize_t)1 << 50);
}
static void other_filter(hid_t file, const char *name) {
  const hid_t plist = chunked(64);
  H5Pset_scaleoffset(plist, H5Z_SO_FLOAT_DSCALE, 2);
  make_dataset(file, name, plist, 64);
}
static void unknown_filter(hid_t file, const char *name) {
  const hid_t plist = chunked(64);
  H5Pset_filter(plist, 32015, H5Z_FLAG_OPTIONAL, 0, NULL); /* a plug-in's */
  make_dataset(file, name, plist, 64);
}
static void external_data(hid_t file, const char *name) {
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_external(plist, "/etc/passwd", 0, 64 * 8 * 4);
  make_dataset(file, name, plist, 64);
}
static void external_link(hid_t file, const char *name) {
  H5Lcreate_external("/tmp/other.h5", "q", file, name, H5P_DEFAULT, H5P_DEFAULT);
}
static void virtual_data(hid_t file, const char *name) {
  const hid_t plist = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(2, (hsize_t[]){64, 8}, NULL);
  H5Pset_virtual(plist, space, "/tmp/other.h5", "q", space);
  make_dataset(file, name, plist, 64);
  H5Sclose(space);
}

Test(results_damaged, data_elsewhere_filters_and_bombs_are_refused) {
  expect_refused(bomb, "decompression bomb");
  expect_refused(partly_written, "data missing or stored externally");
  expect_refused(beyond_memory, "exceed this machine's memory");
  expect_refused(other_filter, "only deflate, shuffle and fletcher32");
  expect_refused(unknown_filter, "filter 32015");
  expect_refused(external_data, "data missing or stored externally");
  expect_refused(external_link, "a link to another file");
  expect_refused(virtual_data, "data missing or stored externally");
}

static attn_status overflow(const char *path, void *context) {
  volatile int *nowhere = NULL;
  (void)path, (void)context;
  *nowhere = 1;
  return ATTN_OK;
}
static attn_status hunger(const char *path, void *context) {
  (void)context;
  for (int i = 0; i < 1 << 20; i++) {
    char *volatile bytes = malloc((size_t)1 << 28); /* else no compiler needs it */
    if (!bytes) return attn_fail(ATTN_ENOMEM, "%s: out of memory", path);
    bytes[0] = 1;
  }
  return ATTN_OK;
}
static attn_status agreeable(const char *path, void *context) {
  (void)path;
  ++*(int *)context;
  return ATTN_OK;
}

Test(results_damaged, what_is_tried_cannot_end_this_process) {
  const char *path = fixture_path("any.h5");
  int calls = 0;
  fixture_write(path, "anything", 8);
  cr_expect_eq(hdf5_input_try(path, overflow, NULL), ATTN_EINVAL);
  cr_expect(strstr(attn_last_error(), "crashes"), "%s", attn_last_error());
  cr_expect_eq(hdf5_input_try(path, hunger, NULL), ATTN_ENOMEM);
  cr_expect_eq(hdf5_input_try(path, agreeable, &calls), ATTN_OK);
  cr_expect_eq(calls, 0, "it ran in this process");
}

Test(results_damaged, what_carries_its_digest_is_not_tried) {
  const char *path = fixture_results("own", 0, 3);
  file_map map;
  char *bytes;
  cr_assert_eq(file_map_open(path, &map), ATTN_OK);
  cr_expect(hdf5_carries_digest(&map));
  file_map_close(&map);
  const size_t size = fixture_read(path, &bytes);
  bytes[size / 2] ^= 1;
  fixture_write(path, bytes, size);
  cr_assert_eq(file_map_open(path, &map), ATTN_OK);
  cr_expect(!hdf5_carries_digest(&map));
  file_map_close(&map);
  free(bytes);
}

/* A file that says it has many runs costs no memory before it is refused. */
Test(results_damaged, absurd_counts_are_refused) {
  const char *path = fixture_results("many", 0, 3);
  result_set set;
  struct rusage before, after;
  const hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), run = H5Dopen2(file, "run", H5P_DEFAULT);
  H5Dset_extent(run, (hsize_t[]){4000000});
  H5Dclose(run), H5Fclose(file);
  getrusage(RUSAGE_CHILDREN, &before);
  cr_expect_eq(results_read(path, &set), ATTN_EINVAL);
  cr_expect(strstr(attn_last_error(), "4000000 runs are too many"), "%s", attn_last_error());
  getrusage(RUSAGE_CHILDREN, &after);
  cr_expect(after.ru_maxrss < 500000, "%ld KiB", after.ru_maxrss);
}

/* graphs.c - graphs from files: every format gives the same graph, and what does not fit is refused by its
 * place. */
#include "tests/support/data_fixture.h"

#include <hdf5.h>

#include "attn_variant.h"
#include "data/formats/hdf5_write.h"

TestSuite(data_graphs, .init = fixture_begin, .fini = fixture_end);

#define INTEGERS(shape, ...)                                             \
  fixture_npy("edges.npy", "<i8", shape, (const int64_t[]){__VA_ARGS__}, \
              sizeof((const int64_t[]){__VA_ARGS__}))
#define BYTES(descr, shape, ...)                                        \
  fixture_npy("mask.npy", descr, shape, (const uint8_t[]){__VA_ARGS__}, \
              sizeof((const uint8_t[]){__VA_ARGS__}))

static size_t width = 8;
/* A safetensors file of integers of that width. */
static const char *write_tensors(const char *name, const int64_t *indptr, size_t starts,
                                 const int64_t *indices, size_t edges, const char *more) {
  char file[2048];
  const size_t a = width * starts, b = a + width * edges;
  const int length = snprintf(file + 8, 1024,
                              "{\"indptr\":{\"dtype\":\"I%zu\",\"shape\":[%zu],\"data_offsets\":[0,%zu]},"
                              "\"%s\":{\"dtype\":\"I%zu\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}}",
                              8 * width, starts, a, more, 8 * width, edges, a, b);
  memset(file, 0, 8);
  file[0] = (char)(length & 255);
  file[1] = (char)(length >> 8);
  for (size_t i = 0; i < starts; i++) memcpy(file + 8 + length + i * width, indptr + i, width);
  for (size_t i = 0; i < edges; i++) memcpy(file + 8 + length + a + i * width, indices + i, width);
  fixture_write(fixture_path(name), file, 8 + (size_t)length + b);
  return fixture_path(name);
}

/* The graph as text: "0:1-3,5 1: ..." */
static void print(const attn_graph *g, char text[256]) {
  size_t used = 0;
  text[0] = '\0';
  for (int64_t r = 0; r < g->heads * g->rows; r++) {
    used += (size_t)snprintf(text + used, 256 - used, r ? " %d:" : "%d:", (int)r);
    for (int64_t i = g->starts[r]; i < g->starts[r + 1]; i++)
      used += (size_t)snprintf(text + used, 256 - used, i > g->starts[r] ? ",%d-%d" : "%d-%d",
                               (int)g->spans[i].first, (int)g->spans[i].end);
  }
}

static void expect_graph(const char *path, attn_graph_request want, const char *wanted) {
  attn_graph g = {0};
  char text[256];
  assert_ok(data_graph_read(path, &want, &g));
  print(&g, text);
  cr_assert_str_eq(text, wanted);
  attn_graph_free(&g);
}

static void expect_refused(const char *path, attn_graph_request want, const char *says) {
  attn_graph g = {.heads = 77};
  assert_refused(data_graph_read(path, &want, &g), ATTN_EINVAL, says);
  cr_assert_not_null(strstr(attn_last_error(), path));
  cr_assert(g.heads == 77 && !g.starts && !g.spans);
}

static const attn_graph_request three = {.heads = 2, .rows = 3, .columns = 4};
static const attn_graph_request square = {.heads = 1, .rows = 3, .columns = 3};
#define OF_THREE "0:1-3 1: 2:0-1,3-4"

Test(data_graphs, every_format_gives_the_same_graph) {
  static const int64_t indptr[] = {0, 2, 2, 4}, indices[] = {1, 2, 0, 3}, shuffled[] = {2, 1, 3, 0};
  expect_graph(BYTES("|u1", "3, 4", 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1), three, OF_THREE);
  expect_graph(INTEGERS("3, 4", 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1), three, OF_THREE);
  expect_graph(BYTES("|b1", "1, 3, 4", 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1), three, OF_THREE);
  attn_graph_request tall = three;
  tall.columns = 3;
  tall.rows = 4;
  expect_graph(INTEGERS("4, 2", 3, 1, 0, 2, 0, 1, 3, 0), tall, "0:1-3 1: 2: 3:0-2");
  expect_graph(write_tensors("a.safetensors", indptr, 4, indices, 4, "indices"), three, OF_THREE);
  expect_graph(write_tensors("a.safetensors", indptr, 4, shuffled, 4, "indices"), three, OF_THREE);
  attn_graph g = {0};
  assert_ok(data_graph_read(fixture_path("a.safetensors"), &three, &g));
  assert_ok(data_graph_write(fixture_path("a.h5"), &g));
  attn_graph_free(&g);
  expect_graph(fixture_path("a.h5"), three, OF_THREE);
  assert_ok(data_graph_read(fixture_path("a.h5"), &three, &g));
  assert_ok(data_graph_write(fixture_path("a.h5"), &g)); /* its own kind is replaced */
  attn_graph_free(&g);
}

Test(data_graphs, heads_have_graphs_of_their_own) {
  static const int64_t indptr[] = {0, 1, 1, 1, 1, 2, 3}, indices[] = {3, 0, 1};
  expect_graph(
      BYTES("|u1", "2, 3, 4", 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0), three,
      "0:3-4 1: 2: 3: 4:0-1 5:1-2");
  expect_graph(write_tensors("h.safetensors", indptr, 7, indices, 3, "indices"), three,
               "0:3-4 1: 2: 3: 4:0-1 5:1-2");
  attn_graph_request two = square;
  two.heads = 2;
  expect_graph(INTEGERS("3, 3", 1, 2, 2, 0, 0, 1, 1, 2, 1), two, "0:1-2 1: 2: 3: 4: 5:1-3");
  static const char *const wanted[] = {"0:1-2 1: 2: 3: 4: 5:0-2", "0:1-2 1:0-1 2: 3:2-3 4:2-3 5:0-2",
                                       "0:0-2 1:1-2 2:2-3 3:0-1 4:1-2 5:0-3"};
  static const int64_t starts[] = {0, 1, 1, 1, 1, 1, 3}, columns[] = {1, 0, 1};
  for (int i = 0; i < 3; i++) {
    two.symmetric = i == 1;
    two.self = i == 2;
    expect_graph(INTEGERS("3, 3", 0, 0, 1, 1, 2, 0, 1, 2, 1), two, wanted[i]);
    expect_graph(BYTES("|u1", "2, 3, 3", 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0), two,
                 wanted[i]);
    expect_graph(write_tensors("s.safetensors", starts, 7, columns, 3, "indices"), two, wanted[i]);
  }
}

Test(data_graphs, parents_symmetry_and_self) {
  expect_graph(INTEGERS("3", -1, 0, 1), square, "0: 1:0-1 2:1-2");
  attn_graph_request both = square, own = square;
  both.symmetric = true;
  own.self = true;
  expect_graph(INTEGERS("3", -1, 0, 1), both, "0:1-2 1:0-1,2-3 2:1-2");
  expect_graph(INTEGERS("3, 2", 0, 2, 2, 0, 1, 1), both, "0:2-3 1:1-2 2:0-1");
  expect_graph(INTEGERS("2, 2", 0, 2, 1, 1), own, "0:0-1,2-3 1:1-2 2:2-3");
  expect_graph(BYTES("|u1", "3, 3", 0, 1, 0, 0, 0, 0, 1, 0, 0), both, "0:1-3 1:0-1 2:0-1");
  expect_graph(BYTES("|u1", "3, 3", 0, 1, 0, 0, 0, 0, 1, 0, 0), own, "0:0-2 1:1-2 2:0-1,2-3");
}

/* A file that is square is one of positions: of fewer queries it gives all rows. */
Test(data_graphs, positions_of_more_keys_than_queries) {
  attn_graph_request last = square;
  last.rows = 1;
  expect_graph(BYTES("|u1", "3, 3", 0, 1, 0, 0, 0, 0, 1, 0, 0), last, "0:1-2 1: 2:0-1");
  expect_graph(BYTES("|u1", "1, 3", 0, 1, 0), last, "0:1-2");
  expect_graph(INTEGERS("1, 2", 2, 1), last, "0: 1: 2:1-2");
}

Test(data_graphs, hostile_masks_and_lists) {
  expect_refused(BYTES("|u1", "4, 3", 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1), three,
                 "a mask [4,3], expected [3,4]");
  expect_refused(BYTES("|u1", "3, 1, 4", 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1), three, "[3,1,4]");
  expect_refused(BYTES("|u1", "12", 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1), three, "[12]");
  expect_refused(BYTES("|u1", "3, 4", 0, 1, 1, 0, 0, 0, 7, 0, 1, 0, 0, 1), three, "row 1, column 2 is 7");
  expect_refused(INTEGERS("2, 2", 0, 1, 1, 3), square, "edge 1 is (head 0, row 1, column 3)");
  expect_refused(INTEGERS("2, 2", 0, 1, -1, 0), square, "edge 1");
  expect_refused(INTEGERS("2, 2", 0, 1, 3, 0), square, "edge 1");
  expect_refused(INTEGERS("1, 3", 1, 0, 0), square, "edge 0 is (head 1");
  expect_refused(INTEGERS("3, 2", 0, 1, 2, 2, 0, 1), square, "row 0 of head 0 names column 1 twice");
  expect_refused(INTEGERS("3", -1, 0, -2), square, "edge 2");
  expect_refused(INTEGERS("2", -1, 0), square, "columns of rows");
  expect_refused(INTEGERS("2, 1", 0, 1), square, "[.,2] or [.,3]");
  expect_refused(INTEGERS("1, 4", 0, 1, 1, 0), square, "a mask [1,4], expected [3,3]");
  expect_refused(INTEGERS("1, 4", 0, 1, -1, 0), (attn_graph_request){.heads = 1, .rows = 1, .columns = 4},
                 "row 0, column 2 is -1, expected 0 or 1");
  expect_refused(fixture_npy("f.npy", "<f4", "1", (const float[]){1}, 4), square, "'<f4'");
  attn_graph_request both = {.heads = 1, .rows = 3, .columns = 4, .symmetric = true};
  expect_refused(BYTES("|u1", "3, 4", 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1), both, "as many rows as columns");
}

static void refused_rows(const int64_t *indptr, size_t starts, const int64_t *indices, size_t edges,
                         const char *says) {
  expect_refused(write_tensors("r.safetensors", indptr, starts, indices, edges, "indices"), square, says);
}

Test(data_graphs, hostile_rows) {
  static const int64_t good[] = {0, 1, 1, 2}, begins[] = {1, 1, 1, 2}, falls[] = {0, 2, 1, 2},
                       ends[] = {0, 1, 1, 3}, negative[] = {0, -1, 1, 2}, few[] = {0, 1, 2}, in[] = {1, 2},
                       far[] = {1, 3}, below[] = {-1, 2}, whole[] = {0, 2, 2, 2}, twice[] = {2, 2};
  refused_rows(begins, 4, in, 2, "indptr[0] = 1, expected 0");
  refused_rows(falls, 4, in, 2, "indptr[2] = 1 is below its predecessor 2");
  refused_rows(negative, 4, in, 2, "indptr[1] = -1");
  refused_rows(ends, 4, in, 2, "indptr[3] = 3, expected the number of indices, 2");
  refused_rows(few, 3, in, 2, "indptr has 3 elements, expected 4");
  refused_rows(good, 4, far, 2, "indices[1] = 3 (row 2), expected 0 ... 2");
  refused_rows(good, 4, below, 2, "indices[0] = -1 (row 0)");
  refused_rows(whole, 4, twice, 2, "row 0 of head 0 names column 2 twice");
  expect_refused(write_tensors("r.safetensors", good, 4, in, 2, "keys"), square, "no tensor indices");
  const char *weighted = write_tensors("w.safetensors", good, 4, in, 2, "weights");
  attn_graph g;
  assert_refused(data_graph_read(weighted, &square, &g), ATTN_EUNSUPPORTED, "weights");
  width = 4;
  expect_graph(write_tensors("r.safetensors", good, 4, in, 2, "indices"), square, "0:1-2 1: 2:2-3");
  refused_rows(good, 4, below, 2, "indices[0] = -1 (row 0)");
  width = 2;
  refused_rows(good, 4, in, 2, "tensor indptr is I16; expected I32 or I64");
  fixture_write(fixture_path("x.h5"), "\x89HDF\r\n\x1a\nnothing else", 20);
  expect_refused(fixture_path("x.h5"), square, "HDF5");
}

/* indptr of `rank` axes, or a group where it is 0, and the dataset `more` of two numbers of the type. */
static const char *write_hdf5(hid_t type, int rank, const char *more) {
  static const int64_t indptr[] = {0, 1, 1, 2}, in[] = {1, 2};
  const hid_t file = H5Fcreate(fixture_path("r.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  if (!rank) H5Gclose(H5Gcreate2(file, "indptr", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  if (rank)
    hdf5_write_dataset(file, "indptr", rank, (hsize_t[]){rank > 1 ? 2 : 4, 2}, type, H5T_NATIVE_INT64,
                       indptr);
  hdf5_write_dataset(file, more, 1, (hsize_t[]){2}, type, H5T_NATIVE_INT64, in);
  H5Fclose(file);
  return fixture_path("r.h5");
}

Test(data_graphs, rows_in_hdf5_files) {
  attn_graph g;
  expect_graph(write_hdf5(H5T_STD_I32BE, 1, "indices"), square, "0:1-2 1: 2:2-3");
  expect_refused(write_hdf5(H5T_IEEE_F64LE, 1, "indices"), square, "indptr: elements are not integers");
  expect_refused(write_hdf5(H5T_STD_I64LE, 2, "indices"), square, "indptr has 2 axes and 4 elements");
  expect_refused(write_hdf5(H5T_STD_I64LE, 0, "indices"), square, "no dataset indptr");
  expect_refused(write_hdf5(H5T_STD_I64LE, 1, "keys"), square, "no dataset indices");
  assert_refused(data_graph_read(write_hdf5(H5T_STD_I64LE, 1, "weights"), &square, &g), ATTN_EUNSUPPORTED,
                 "weights");
}

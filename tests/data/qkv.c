/* qkv.c - Q, K and V from HDF5, safetensors and npy files: what fits is read, what does not is named with its
 * shapes. */
#include "tests/support/data_fixture.h"

#include <hdf5.h>

#include "attn_variant.h"
#include "data/formats/qkv.h"

TestSuite(data_qkv, .init = fixture_begin, .fini = fixture_end);

typedef struct shapes {
  int rank;
  hsize_t q[4], k[4], v[4];
} shapes;

static hsize_t count_of(int rank, const hsize_t *shape) {
  hsize_t count = 1;
  for (int i = 0; i < rank; i++) count *= shape[i];
  return count;
}

static double factor = 1; /* of all elements */
/* Element i of tensor t. */
static double value_of(int t, hsize_t i) { return factor * ((t + 1) * 1000 + (double)i / 8); }

static void write_dataset(hid_t file, const char *name, hid_t type, int rank, const hsize_t *shape, int t) {
  hsize_t count = count_of(rank, shape);
  double *x = kept_memory(malloc(count * sizeof *x));
  for (hsize_t i = 0; i < count; i++) x[i] = value_of(t, i);
  hid_t space = H5Screate_simple(rank, shape, NULL);
  hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  cr_assert(dataset >= 0 && H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
  H5Dclose(dataset);
  H5Sclose(space);
}

static const char *write_hdf5(const shapes *s, hid_t type) {
  const char *path = fixture_path("x.h5");
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  write_dataset(file, "q", type, s->rank, s->q, 0);
  write_dataset(file, "k", type, s->rank, s->k, 1);
  write_dataset(file, "v", type, s->rank, s->v, 2);
  H5Fclose(file);
  return path;
}

static void write_tensor(int t, int rank, const hsize_t *shape, attn_dtype dtype) {
  static const char *const names[] = {"q.npy", "k.npy", "v.npy"};
  int64_t signed_shape[4];
  for (int i = 0; i < rank; i++) signed_shape[i] = (int64_t)shape[i];
  const data_array a = array_make(dtype, rank, signed_shape);
  for (int64_t i = 0; i < data_array_count(&a); i++) attn_set(a.at, i, dtype, value_of(t, (hsize_t)i));
  assert_ok(data_npy_write(fixture_path(names[t]), &a));
}

/* The tensors as npy files with the same elements. */
static void write_npy(const shapes *s, attn_dtype dtype) {
  write_tensor(0, s->rank, s->q, dtype);
  write_tensor(1, s->rank, s->k, dtype);
  write_tensor(2, s->rank, s->v, dtype);
}

static data_reading of_npy(void) {
  return (data_reading){.q = fixture_path("q.npy"), .k = fixture_path("k.npy"), .v = fixture_path("v.npy")};
}

static attn_status read_npy(int64_t limit, data_qkv *out) {
  data_reading from = of_npy();
  from.limit = limit;
  return data_qkv_read(&from, out);
}

static attn_status read_in(const char *path, int64_t limit, data_qkv *out) {
  return data_qkv_read(&(data_reading){.in = path, .limit = limit}, out);
}

/* Row i of head h of tensor t holds the elements of the file, which has n rows. */
static void check_rows(const void *x, const data_qkv *m, int t, int64_t heads, int64_t kept, int64_t n,
                       int64_t d) {
  for (int64_t line = 0; line < m->batch * heads; line++)
    for (int64_t i = 0; i < kept; i++) {
      const int64_t row =
          m->layout == DATA_BHND ? line * n + i : (line / heads * n + i) * heads + line % heads;
      for (int64_t c = 0; c < d; c++)
        cr_assert_float_eq(attn_get(x, (line * kept + i) * d + c, m->dtype),
                           value_of(t, (hsize_t)(row * d + c)), 0);
    }
}

Test(data_qkv, every_rank_layout_and_dtype_reads_the_same_from_hdf5_and_npy) {
  static const shapes all[2][3] = {{{2, {6, 4}, {5, 4}, {5, 3}},
                                    {3, {4, 6, 4}, {2, 5, 4}, {2, 5, 3}},
                                    {4, {2, 4, 6, 4}, {2, 2, 5, 4}, {2, 2, 5, 3}}},
                                   {{2, {6, 4}, {5, 4}, {5, 3}},
                                    {3, {6, 4, 4}, {5, 2, 4}, {5, 2, 3}},
                                    {4, {2, 6, 4, 4}, {2, 5, 2, 4}, {2, 5, 2, 3}}}};
  for (int which = 0; which < 24; which++)
    for (int64_t limit = 0; limit <= 4; limit += 2) {
      const int npy = which % 2, wide = which / 2 % 2, turned = which / 4 % 2, c = which / 8;
      const shapes *s = &all[turned][c];
      data_qkv m = {0};
      data_reading from = {.in = npy ? NULL : write_hdf5(s, wide ? H5T_IEEE_F64LE : H5T_IEEE_F32BE)};
      if (npy) write_npy(s, wide ? ATTN_F64 : ATTN_F32), from = of_npy();
      from.limit = limit;
      from.layout = turned ? DATA_BNHD : DATA_BHND;
      assert_ok(data_qkv_read(&from, &m));
      int64_t batch = c == 2 ? 2 : 1, heads = c > 0 ? 4 : 1, kv = c > 0 ? 2 : 1;
      cr_assert(m.batch == batch && m.heads == heads && m.kv_heads == kv && m.d_qk == 4 && m.d_v == 3);
      cr_assert(m.rank == s->rank && m.dtype == (wide ? ATTN_F64 : ATTN_F32) && m.description);
      cr_assert(m.n_q == (limit ? limit : 6) && m.n_kv == (limit ? limit : 5));
      check_rows(m.q, &m, 0, heads, m.n_q, 6, 4);
      check_rows(m.k, &m, 1, kv, m.n_kv, 5, 4);
      check_rows(m.v, &m, 2, kv, m.n_kv, 5, 3);
      attn_problem p = data_qkv_problem(&m);
      assert_ok(attn_problem_resolve(&p));
      cr_assert(p.n_q == m.n_q && p.n_kv == m.n_kv && p.d_v == 3 && p.kv_heads == kv && p.dtype == m.dtype);
      data_qkv_free(&m);
      cr_assert_null(m.q);
    }
}

/* The names of its tensors are no path to be read for a dataset's digest. */
Test(data_qkv, a_dataset_names_its_tensors) {
  static const shapes s = {3, {6, 4, 3}, {6, 2, 3}, {6, 2, 3}};
  const char *path = write_hdf5(&s, H5T_IEEE_F32LE);
  const data_request r = {1, 4, 2, 6, 6, 3, 3, ATTN_F32, 0};
  char hex[65], plain[65], *canonical = NULL;
  data_qkv m = {0};
  assert_ok(data_source_digest(text_of("hdf5:file=%s", path), plain));
  const char *spec = text_of("hdf5:file=%s,names=v+k+v,layout=bnhd", path);
  assert_ok(data_source_digest(spec, hex));
  cr_assert_str_eq(hex, plain);
  assert_refused(data_source_make(spec, &r, &m, NULL), ATTN_EUNSUPPORTED, "heads=2");
  spec = text_of("hdf5:file=%s,names=q+k+k,layout=bnhd", path);
  assert_ok(data_source_make(spec, &r, &m, &canonical));
  cr_assert_str_eq(canonical, spec);
  cr_assert_float_eq(((float *)m.v)[0], (float)value_of(1, 0), 0);
  free(canonical);
  data_qkv_free(&m);
  static const char *const bad[] = {"+k+v", "q++v", "q+k+", "q+k", "q+k+v+w"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_refused(data_qkv_read(&(data_reading){.in = path, .names = bad[i]}, &m), ATTN_EINVAL,
                   "expected three names");
}

/* Fewer queries than keys are the last of those positions, where each has both. */
Test(data_qkv, a_dataset_is_cut_to_the_positions_asked_for) {
  static const struct {
    hsize_t queries;
    int64_t n_q, n_kv, first;
  } cases[] = {{7, 3, 5, 2}, {7, 5, 3, 0}, {9, 3, 5, 0}};
  for (int c = 0; c < 3; c++) {
    const data_request r = {1, 1, 1, cases[c].n_q, cases[c].n_kv, 4, 4, ATTN_F32, 0};
    const char *path = write_hdf5(&(shapes){2, {cases[c].queries, 4}, {7, 4}, {7, 4}}, H5T_IEEE_F32LE);
    const data_qkv m = source_make(text_of("hdf5:file=%s", path), &r);
    cr_expect_eq(attn_get(m.q, 0, ATTN_F32), value_of(0, (hsize_t)cases[c].first * 4), "case %d", c);
  }
}

Test(data_qkv, shapes_that_do_not_match_are_named) {
  static const struct {
    shapes s;
    int64_t limit;
    attn_status status;
    char says[96];
  } cases[] = {
      {{3, {4, 6, 4}, {3, 6, 4}, {3, 6, 4}}, 0, ATTN_EINVAL, "heads of k do not divide those of q; they"},
      {{3, {4, 6, 4}, {3, 6, 4}, {3, 6, 4}}, 0, ATTN_EINVAL, "; they would fit in layout bnhd"},
      {{3, {4, 6, 4}, {2, 6, 4}, {4, 6, 4}}, 0, ATTN_EINVAL, "k and v differ in heads"},
      {{3, {4, 6, 4}, {4, 6, 4}, {4, 5, 4}}, 0, ATTN_EINVAL, "[4,5,4]: "},
      {{3, {4, 6, 4}, {4, 6, 4}, {4, 5, 4}}, 0, ATTN_EINVAL, "k and v differ in positions"},
      {{3, {4, 6, 4}, {4, 6, 5}, {4, 6, 4}}, 0, ATTN_EINVAL, "q and k differ in width"},
      {{4, {2, 4, 6, 4}, {1, 4, 6, 4}, {1, 4, 6, 4}}, 0, ATTN_EINVAL, "batches differ"},
      {{4, {2, 4, 6, 4}, {2, 4, 6, 4}, {1, 4, 6, 4}}, 0, ATTN_EINVAL, "batches differ"},
      {{3, {4, 6, 4}, {4, 8, 4}, {4, 8, 4}}, 7, ATTN_EUNSUPPORTED, "first 7 positions: fewer"},
      {{3, {4, 12, 4}, {4, 6, 4}, {4, 6, 4}}, 7, ATTN_EUNSUPPORTED, "first 7 positions: fewer"},
      {{1, {6}, {6}, {6}}, 0, ATTN_EINVAL, "axes"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    data_qkv m = {.rank = 77};
    const char *path = write_hdf5(&cases[i].s, H5T_IEEE_F32LE);
    assert_refused(read_in(path, cases[i].limit, &m), cases[i].status, cases[i].says);
    cr_assert_not_null(strstr(attn_last_error(), "x.h5"));
    write_npy(&cases[i].s, ATTN_F32);
    assert_refused(read_npy(cases[i].limit, &m), cases[i].status, cases[i].says);
    cr_assert_not_null(strstr(attn_last_error(), "q.npy"));
    cr_assert(m.rank == 77 && !m.q && !(cases[i].limit && strstr(attn_last_error(), "layout")));
  }
}

Test(data_qkv, files_that_differ_in_axes_or_dtype_are_refused) {
  static const shapes flat = {2, {6, 4}, {6, 4}, {6, 4}};
  static const hsize_t shape[] = {1, 6, 4};
  data_qkv m = {0};
  for (int t = 0; t < 3; t++) {
    write_npy(&flat, ATTN_F32);
    write_tensor(t, 3, shape, ATTN_F32);
    assert_refused(read_npy(0, &m), ATTN_EINVAL, "the numbers of axes differ");
    write_tensor(t, 2, shape + 1, ATTN_F64);
    assert_refused(read_npy(0, &m), ATTN_EINVAL, "some are f32, some are f64");
  }
  write_npy(&flat, ATTN_F32);
  assert_ok(data_qkv_read(&(data_reading){.q = fixture_path("q.npy"), .k = fixture_path("k.npy")}, &m));
  cr_assert(!m.v && m.d_v == 0 && m.n_kv == 6);
  assert_ok(data_qkv_convert(&m, ATTN_F64));
  assert_ok(data_qkv_check_finite(&m));
  data_qkv_free(&m);
}

typedef enum {
  NO_Q,
  Q_IS_A_GROUP,
  Q_IS_INTEGER,
  Q_IS_EMPTY,
  Q_IS_ENDLESS,
  Q_IS_ELSEWHERE,
  Q_IS_UNWRITTEN,
  Q_DANGLES,
  SPOILS
} spoil;

static const char *write_spoilt(spoil how) {
  const char *path = fixture_path("bad.h5");
  hsize_t shape[] = {6, 4}, empty[] = {0, 4}, endless[] = {(hsize_t)1 << 32, (hsize_t)1 << 32},
          most[] = {H5S_UNLIMITED, 4};
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT),
        plist = H5Pcreate(H5P_DATASET_CREATE);
  hsize_t *of = how == Q_IS_EMPTY ? empty : how == Q_IS_ENDLESS ? endless : shape;
  hid_t space = H5Screate_simple(2, of, how == Q_IS_EMPTY ? most : NULL), q = -1;
  write_dataset(file, "k", H5T_IEEE_F32LE, 2, shape, 1);
  write_dataset(file, "v", H5T_IEEE_F32LE, 2, shape, 2);
  if (how == Q_IS_A_GROUP) H5Gclose(H5Gcreate2(file, "q", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  if (how == Q_IS_INTEGER) write_dataset(file, "q", H5T_STD_I32LE, 2, shape, 0);
  if (how == Q_DANGLES) H5Lcreate_soft("/nowhere", file, "q", H5P_DEFAULT, H5P_DEFAULT);
  if (how == Q_IS_ELSEWHERE) H5Pset_external(plist, "/etc/passwd", 0, 96);
  if (of != shape) H5Pset_chunk(plist, 2, shape);
  if (of != shape || how == Q_IS_ELSEWHERE || how == Q_IS_UNWRITTEN)
    q = H5Dcreate2(file, "q", H5T_IEEE_F32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  if (q >= 0) H5Dclose(q);
  H5Sclose(space);
  H5Pclose(plist);
  H5Fclose(file);
  return path;
}

Test(data_qkv, an_hdf5_file_without_usable_q_k_v_is_refused) {
  static const char says[SPOILS][64] = {
      "no dataset q; expected three", "no dataset q", "floats",   "length 0",
      "sizes of the shape overflow",  "external",     "external", "no dataset q"};
  for (int how = 0; how < SPOILS; how++) {
    data_qkv m = {0};
    assert_refused(read_in(write_spoilt((spoil)how), 0, &m), ATTN_EINVAL, says[how]);
    cr_assert_not_null(strstr(attn_last_error(), "bad.h5"));
    cr_assert_null(m.q);
  }
}

Test(data_qkv, a_damaged_hdf5_file_is_refused_quietly) {
  data_qkv m = {0};
  size_t size;
  unsigned char *file =
      kept_memory(fixture_bytes(write_hdf5(&(shapes){2, {6, 4}, {6, 4}, {6, 4}}, H5T_IEEE_F32LE), &size));
  for (size_t cut = 8; cut < size; cut += 97) {
    fixture_write(fixture_path("cut.h5"), file, cut);
    assert_refused(read_in(fixture_path("cut.h5"), 0, &m), ATTN_EINVAL, "cut.h5");
  }
  fixture_write(fixture_path("text"), "neither of them", 15);
  assert_refused(read_in(fixture_path("text"), 0, &m), ATTN_EINVAL,
                 "neither an HDF5 nor a safetensors nor an .npz file");
  assert_refused(read_in(fixture_path("absent.h5"), 0, &m), ATTN_EFOREIGN, "absent.h5");
}

Test(data_qkv, safetensors_hold_q_k_v_too) {
  static const char header[] = "{\"q\":{\"dtype\":\"BF16\",\"shape\":[1,2,2],\"data_offsets\":[0,8]},"
                               "\"k\":{\"dtype\":\"F32\",\"shape\":[1,2,2],\"data_offsets\":[8,24]},"
                               "\"v\":{\"dtype\":\"F16\",\"shape\":[1,2,1],\"data_offsets\":[24,28]}}";
  unsigned char file[8 + sizeof header - 1 + 28] = {sizeof header - 1};
  static const unsigned char q[8] = {0x80, 0x3f, 0x00, 0x40,
                                     0x40, 0x40, 0x80, 0x40}; /* 1 2 3 4 in bfloat16 */
  static const float k[4] = {5, 6, 7, 8};
  static const unsigned char v[4] = {0x80, 0x48, 0x00, 0xb8}; /* 9 and -0.5 in binary16 */
  memcpy(file + 8, header, sizeof header - 1);
  memcpy(file + sizeof file - 28, q, 8);
  memcpy(file + sizeof file - 20, k, 16);
  memcpy(file + sizeof file - 4, v, 4);
  fixture_write(fixture_path("x.safetensors"), file, sizeof file);
  data_qkv m = {0};
  assert_ok(read_in(fixture_path("x.safetensors"), 0, &m));
  cr_assert(m.heads == 1 && m.n_q == 2 && m.d_v == 1 && m.rank == 3 && m.dtype == ATTN_F32);
  for (int i = 0; i < 4; i++) cr_assert_float_eq(((float *)m.q)[i], (float)(i + 1), 0);
  cr_assert_arr_eq(m.k, k, sizeof k);
  cr_assert(!(((float *)m.v)[0] < 9 || ((float *)m.v)[0] > 9) && ((float *)m.v)[1] < -0.49f);
  data_qkv_free(&m);
  memcpy(strstr((char *)file + 8, "\"v\""), "\"w\"", 3);
  fixture_write(fixture_path("x.safetensors"), file, sizeof file);
  assert_refused(read_in(fixture_path("x.safetensors"), 0, &m), ATTN_EINVAL,
                 "no tensor v; expected q, k and v (--names)");
}

/* The bits of bfloat16, as numbers with a sign or without. */
Test(data_qkv, integers_of_two_bytes_may_be_bfloat16) {
  static const shapes s = {3, {4, 6, 4}, {2, 5, 4}, {2, 5, 3}};
  for (int sign = 0; sign < 2; sign++) {
    data_qkv m = {0};
    factor = sign ? -10 : 20;
    const char *path = write_hdf5(&s, sign ? H5T_STD_I16BE : H5T_STD_U16LE);
    assert_refused(read_in(path, 0, &m), ATTN_EINVAL, "nor said to be bfloat16");
    assert_ok(data_qkv_read(&(data_reading){.in = path, .bf16 = true}, &m));
    for (hsize_t i = 0; i < 30; i++) {
      const uint32_t bits = (uint32_t)(uint16_t)(int)value_of(2, i) << 16;
      cr_assert_eq(memcmp((float *)m.v + i, &bits, 4), 0, "%d", (int)i);
    }
    data_qkv_free(&m);
  }
}

Test(data_qkv, conversion_rounds_to_nearest_and_back_is_exact) {
  data_qkv m = {0};
  write_npy(&(shapes){2, {6, 4}, {6, 4}, {6, 4}}, ATTN_F64);
  assert_ok(read_npy(0, &m));
  ((double *)m.q)[0] = 1 + 0x1p-24; /* a tie: to even */
  ((double *)m.q)[1] = 1 + 0x1p-24 + 0x1p-50;
  assert_ok(data_qkv_convert(&m, ATTN_F32));
  cr_assert_eq(m.dtype, ATTN_F32);
  cr_assert_float_eq(((float *)m.q)[0], 1.0f, 0);
  cr_assert_float_eq(((float *)m.q)[1], 1.0f + 0x1p-23f, 0);
  assert_ok(data_qkv_convert(&m, ATTN_F64));
  cr_assert_float_eq(((double *)m.v)[23], value_of(2, 23), 0);
  ((double *)m.v)[23] = (double)NAN;
  assert_refused(data_qkv_check_finite(&m), ATTN_EINVAL, "v[0,0,5,3] is nan");
  ((double *)m.k)[4] = -(double)INFINITY;
  assert_refused(data_qkv_check_finite(&m), ATTN_EINVAL, "k[0,0,1,0] is -inf");
  data_qkv_free(&m);
}

/* -- tensors besides -- */

static void write_array(const char *name, int rank, const int64_t *shape) {
  const data_array a = array_make(ATTN_F32, rank, shape);
  for (int64_t i = 0; i < data_array_count(&a); i++) ((float *)a.at)[i] = (float)value_of(3, (hsize_t)i);
  assert_ok(data_npy_write(fixture_path(name), &a));
}

static attn_status read_with(const char *name, const char *file, data_qkv *x) {
  data_reading from = of_npy();
  from.extra[attn_extra_find(name)] = fixture_path(file);
  return data_qkv_read(&from, x);
}

/* Those of an index, by their names. */
Test(data_qkv, index_tensors_have_their_own_axes) {
  static const struct {
    int which, rank, good;
    int64_t shape[4], expected[4];
  } cases[] = {{0, 3, 1, {3, 7, 7}, {1, 3, 5, 7}},
               {0, 4, 1, {1, 3, 5, 2}, {1, 3, 5, 2}},
               {1, 2, 1, {9, 6}, {1, 1, 7, 6}},
               {1, 3, 1, {1, 7, 8}, {1, 1, 7, 8}},
               {2, 2, 1, {3, 5}, {1, 3, 5, 1}},
               {2, 3, 1, {1, 3, 6}, {1, 3, 5, 1}},
               {0, 2, 0, {5, 2}, {0}},
               {0, 3, 0, {3, 4, 7}, {0}},
               {1, 2, 0, {6, 7}, {0}},
               {1, 4, 0, {1, 2, 7, 6}, {0}},
               {2, 2, 0, {3, 4}, {0}},
               {2, 4, 0, {1, 3, 5, 2}, {0}}};
  static const char *const names[] = {"index_q", "index_k", "index_w"};
  const shapes s = {3, {2, 5, 4}, {2, 7, 4}, {2, 7, 4}};
  write_npy(&s, ATTN_F32);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    attn_extra extra[ATTN_EXTRA_KINDS];
    data_qkv x;
    write_array("index.npy", cases[c].rank, cases[c].shape);
    const attn_status status = read_with(names[cases[c].which], "index.npy", &x);
    cr_expect_eq(status, cases[c].good ? ATTN_OK : ATTN_EINVAL, "%zu", c);
    if (status) continue;
    const int64_t *e = cases[c].expected;
    cr_assert_eq(data_qkv_extras(&x, extra), 1);
    cr_expect(extra->batch == e[0] && extra->heads == e[1] && extra->n == e[2] && extra->columns == e[3],
              "%zu", c);
    data_qkv_free(&x);
  }
}

/* From a dataset beside q, k and v. */
static attn_status read_beside(const shapes *s, const char *name, int rank, const int64_t *shape,
                               data_qkv *x) {
  const hsize_t sizes[] = {(hsize_t)shape[0], (hsize_t)shape[1], (hsize_t)shape[2], (hsize_t)shape[3]};
  const char *path = write_hdf5(s, H5T_IEEE_F32LE);
  hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  write_dataset(file, name, H5T_IEEE_F32BE, rank, sizes, 3);
  H5Fclose(file);
  return read_in(path, 0, x);
}

/* Axes are found by their lengths, and positions that are not kept are cut from every line. */
Test(data_qkv, extra_tensors_follow_the_keys) {
  static const struct {
    int rank, columns;
    int64_t shape[4], heads;
  } good[] = {{2, 1, {2, 9}, 2},    {2, 1, {1, 7}, 1},       {3, 4, {2, 7, 4}, 2},
              {3, 1, {1, 2, 9}, 2}, {4, 4, {2, 2, 8, 4}, 2}, {4, 1, {1, 1, 7, 1}, 1}};
  static const int64_t bad[][4] = {{2, 5}, {3, 9}, {2, 9, 3}, {2, 4, 3}, {3, 9, 9}};
  const shapes s = {4, {2, 2, 7, 4}, {2, 2, 7, 4}, {2, 2, 7, 4}};
  write_npy(&s, ATTN_F32);
  data_qkv x;
  attn_extra extra[ATTN_EXTRA_KINDS];
  for (size_t trial = 0; trial < 2 * (sizeof good / sizeof *good); trial++) {
    const size_t c = trial / 2;
    write_array("decay.npy", good[c].rank, good[c].shape);
    assert_ok(trial % 2 ? read_beside(&s, "decay", good[c].rank, good[c].shape, &x)
                        : read_with("decay", "decay.npy", &x));
    cr_assert_eq(data_qkv_extras(&x, extra), 1);
    cr_expect_str_eq(extra->name, "decay");
    cr_expect(extra->batch == (good[c].rank == 4 ? good[c].shape[0] : 1) && extra->heads == good[c].heads &&
              extra->n == 7 && extra->columns == good[c].columns);
    const int64_t rows = good[c].shape[good[c].rank - (good[c].rank == 2 || good[c].columns == 1 ? 1 : 2)],
                  last = good[c].rank == 4 ? good[c].shape[2] : rows;
    for (int64_t h = 0; h < extra->batch * extra->heads; h++)
      for (int64_t i = 0; i < 7 * extra->columns; i++)
        cr_expect_float_eq((double)((const float *)extra->at)[h * 7 * extra->columns + i],
                           value_of(3, (hsize_t)(h * last * extra->columns + i)), 0);
    data_qkv_free(&x);
  }
  for (size_t c = 0; c < sizeof bad / sizeof *bad; c++) {
    write_array("decay.npy", bad[c][2] ? 3 : 2, bad[c]);
    cr_expect_eq(read_with("decay", "decay.npy", &x), ATTN_EINVAL, "%zu", c);
    cr_expect_eq(read_beside(&s, "decay", bad[c][2] ? 3 : 2, bad[c], &x), ATTN_EINVAL, "%zu", c);
  }
  /* The last queries of a square file have the rows that are theirs. */
  assert_ok(read_beside(&s, "index_q", 4, (int64_t[]){1, 2, 7, 4}, &x));
  data_qkv_free(&x);
  const data_request last = {2, 2, 2, 3, 7, 4, 4, ATTN_F32, 0};
  assert_ok(data_source_make(text_of("hdf5:file=%s", fixture_path("x.h5")), &last, &x, NULL));
  const float *row = data_qkv_extras(&x, extra) == 1 ? extra->at : NULL;
  cr_expect(row && extra->n == 3 && row[0] == (float)value_of(3, 16) && row[12] == (float)value_of(3, 44));
  data_qkv_free(&x);
  write_npy(&(shapes){3, {2, 3, 4}, {2, 3, 4}, {2, 3, 4}}, ATTN_F32);
  write_array("decay.npy", 3, (int64_t[]){2, 4, 4});
  cr_expect_eq(read_with("decay", "decay.npy", &x), ATTN_EINVAL, "either axis may be of positions");
}

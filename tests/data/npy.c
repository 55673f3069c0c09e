/* npy.c - .npy files: what is written reads back, what NumPy may write is read, everything else is refused by
 * name. */
#include "tests/support/data_fixture.h"

#include <stdint.h>
#include <sys/stat.h>

#include "attn_variant.h"
#include "data/formats/npy.h"

TestSuite(data_npy, .init = fixture_begin, .fini = fixture_end);

/* A file with the given version, dictionary and bytes of elements; the header of version 3 is a long one, and
 * that of 258, which is 2, says that it has 2^24 bytes more. */
static const char *make_npy(int major, const char *dictionary, size_t elements) {
  const char *path = fixture_path("x.npy");
  unsigned char file[1 << 17] = "\x93NUMPY";
  const size_t length = strlen(dictionary) + (major == 3 ? 1 << 16 : 0), start = major == 1 ? 10 : 12;
  file[6] = (unsigned char)major;
  for (size_t i = 8; i < start; i++) file[i] = (unsigned char)(length >> (8 * (i - 8)));
  if (major == 258) file[11] = 1;
  memset(file + start, '\t', length);
  memcpy(file + start + length - strlen(dictionary), dictionary, strlen(dictionary));
  cr_assert(start + length + elements <= sizeof file);
  for (size_t i = 0; i < elements / 4; i++) {
    float value = (float)i;
    memcpy(file + start + length + 4 * i, &value, 4);
  }
  fixture_write(path, file, start + length + elements);
  return path;
}

Test(data_npy, round_trip_in_both_dtypes_and_every_rank) {
  static const int64_t shape[] = {2, 3, 5, 7};
  for (int wide = 0; wide < 2; wide++)
    for (int rank = 1; rank <= 4; rank++) {
      data_array a = array_make(wide ? ATTN_F64 : ATTN_F32, rank, shape);
      size_t bytes = (size_t)data_array_count(&a) * attn_dtype_size(a.dtype);
      for (size_t i = 0; i < bytes; i++) ((unsigned char *)a.at)[i] = (unsigned char)(i * 37 + 11);
      assert_ok(data_npy_write(fixture_path("a.npy"), &a));
      const data_array b = array_read(fixture_path("a.npy"));
      cr_assert_eq(b.dtype, a.dtype);
      cr_assert_eq(b.rank, rank);
      cr_assert_arr_eq(b.shape, shape, (size_t)rank * sizeof *shape);
      cr_assert_arr_eq(b.at, a.at, bytes);
      size_t size;
      unsigned char *file = kept_memory(fixture_bytes(fixture_path("a.npy"), &size));
      cr_assert_eq((size - bytes) % 64, 0, "elements start at %zu", size - bytes);
      cr_assert_eq(file[size - bytes - 1], '\n');
    }
  cr_assert_eq(fixture_entries(), 1);
}

Test(data_npy, reads_every_version_and_spelling_of_the_header) {
  static const struct {
    int major;
    char dictionary[96];
  } cases[] = {{1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"},
               {2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }      \n"},
               {3, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"},
               {1, "{\"shape\":(2,3),\"descr\":\"<f4\",\"fortran_order\":False}"},
               {1, "  { 'shape' : ( 2 , 3 , ) , 'fortran_order' : False , 'descr' : '<f4' }  "}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const data_array a = array_read(make_npy(cases[i].major, cases[i].dictionary, 24));
    cr_assert(a.rank == 2 && a.shape[0] == 2 && a.shape[1] == 3);
    for (int j = 0; j < 6; j++) cr_assert_float_eq(((float *)a.at)[j], (float)j, 0);
  }
}

/* Elements 0, 1, 2 ... of a (2, 3, 2) array as a type has them, in C or Fortran order. */
static const char *make_typed(const char *descr, bool fortran) {
  static const unsigned char halves[12][2] = {{0x00, 0x00}, {0x3c, 0x00}, {0x40, 0x00}, {0x42, 0x00},
                                              {0x44, 0x00}, {0x45, 0x00}, {0x46, 0x00}, {0x47, 0x00},
                                              {0x48, 0x00}, {0x48, 0x80}, {0x49, 0x00}, {0x49, 0x80}};
  const int element = descr[2] - '0';
  const bool bf16 = strchr("Vui", descr[1]) && element == 2;
  unsigned char file[512] = "\x93NUMPY\x01";
  const char *text = text_of("{'descr': '%s', 'fortran_order': %s, 'shape': (2, 3, 2), }", descr,
                             fortran ? "True" : "False");
  file[8] = 118;
  memcpy(file + 10, text_of("%-117s\n", text), 118);
  for (int place = 0; place < 12; place++) {
    const int i = place % 2, j = place / 2 % 3, k = place / 6, value = fortran ? i * 6 + j * 2 + k : place;
    const float narrow = (float)value;
    const double wide = value;
    unsigned char bytes[8];
    uint32_t bits;
    memcpy(&bits, &narrow, 4);
    if (element == 8) memcpy(bytes, &wide, 8);
    if (element == 4) memcpy(bytes, &narrow, 4);
    if (element == 2 && bf16) bytes[0] = (unsigned char)(bits >> 16), bytes[1] = (unsigned char)(bits >> 24);
    if (element == 2 && !bf16) bytes[0] = halves[value][1], bytes[1] = halves[value][0];
    for (int b = 0; b < element; b++)
      file[128 + place * element + b] = bytes[*descr == '>' ? element - 1 - b : b];
  }
  fixture_write(fixture_path("t.npy"), file, 128 + 12 * (size_t)element);
  return fixture_path("t.npy");
}

Test(data_npy, every_type_order_of_bytes_and_order_of_axes_is_the_same_numbers) {
  static const char *const descr[] = {"<f2", ">f2", "<f4", ">f4", "=f4", "<f8",
                                      ">f8", "|V2", "<V2", "<u2", ">u2", "<i2"};
  for (size_t t = 0; t < sizeof descr / sizeof *descr; t++)
    for (int fortran = 0; fortran < 2; fortran++) {
      data_array a = {0};
      const bool bf16 = descr[t][1] != 'f';
      const char *path = make_typed(descr[t], fortran);
      if (bf16) assert_refused(data_npy_read(path, &a), ATTN_EINVAL, "bf16");
      assert_ok(npy_read(path, bf16, &a));
      cr_assert(a.rank == 3 && a.shape[0] == 2 && a.shape[1] == 3 && a.shape[2] == 2);
      cr_assert_eq(a.dtype, descr[t][2] == '8' ? ATTN_F64 : ATTN_F32);
      for (int i = 0; i < 12; i++)
        cr_assert_float_eq(attn_get(a.at, i, a.dtype), i, 0, "%s, %d: element %d", descr[t], fortran, i);
      data_array_free(&a);
      if (!bf16) assert_refused(npy_read(path, true, &a), ATTN_EINVAL, "bf16 is read from");
    }
}

Test(data_npy, refuses_what_it_cannot_read) {
  static const struct {
    int major;
    char dictionary[96];
    size_t elements;
    char says[64];
  } cases[] = {
      {1, "{'descr': '<V2', 'fortran_order': False, 'shape': (4, 3), }", 24, "dtype bf16"},
      {1, "{'descr': '<f3', 'fortran_order': False, 'shape': (2, 3), }", 24, "'<f3'"},
      {1, "{'descr': '?f4', 'fortran_order': False, 'shape': (2, 3), }", 24, "'?f4'"},
      {1, "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }", 24,
       "elements are '<i4'; expected 'f2', 'f4' or 'f8'"},
      {1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }", 24, "descr"},
      {1, "{'descr': '<f4<f4<f4<f4<f4.', 'fortran_order': False, 'shape': (6,), }", 24, "a simple type"},
      {1, "{'descr': '<f\x1f', 'fortran_order': False, 'shape': (6,), }", 24, "a simple type"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 23, "truncated"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 0, "truncated"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 28, "after the end"},
      {1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }", 24, "truncated"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }", 24,
       "the sizes of the shape overflow"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 24, "overflow"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }", 24, "2^63"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", 24, "shape"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }", 0, "empty"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 4, "scalar"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 6), }", 24, "more than 4 axes"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': 6, }", 24, "tuple"},
      {1, "{'descr': '<f4', 'fortran_order': 0, 'shape': (6,), }", 24, "fortran_order"},
      {1, "{'descr': '<f4', 'shape': (6,), }", 24, "lacks"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'shape': (6,)}", 24, "twice"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'more': (6,)}", 24, "more"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)} + 1", 24, "after the dictionary"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)", 24, "malformed"},
      {1, "", 24, "dictionary"},
      {258, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 24, "npy header of 16777"},
      {4, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 24, "version 4"},
      {0, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 24, "version 0"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    data_array a = {.rank = 77};
    const char *path = make_npy(cases[i].major, cases[i].dictionary, cases[i].elements);
    assert_refused(data_npy_read(path, &a), ATTN_EINVAL, cases[i].says);
    cr_assert_not_null(strstr(attn_last_error(), "x.npy"));
    cr_assert(a.rank == 77 && !a.at, "case %zu touched its result", i);
  }
}

static attn_status read_array(const char *path) {
  data_array a = {0};
  const attn_status status = data_npy_read(path, &a);
  data_array_free(&a);
  return status;
}

Test(data_npy, every_prefix_is_refused_and_no_flipped_byte_is_fatal) {
  size_t size;
  const float zeros[12] = {0};
  unsigned char *file =
      kept_memory(fixture_bytes(fixture_npy("a.npy", "<f4", "3, 4", zeros, sizeof zeros), &size));
  fixture_damage("b.npy", file, size, 8 * 128, 3, read_array);
}

Test(data_npy, system_failures_are_foreign) {
  data_array a = {0};
  assert_refused(data_npy_read(fixture_path("absent.npy"), &a), ATTN_EFOREIGN, "absent.npy");
  assert_refused(data_npy_read(fixture_directory, &a), ATTN_EINVAL, "regular");
  a = array_make(ATTN_F32, 1, (int64_t[]){3});
  memset(a.at, 0, 12);
  assert_refused(data_npy_write(fixture_path("absent/x.npy"), &a), ATTN_EFOREIGN, "absent/x.npy");
  assert_ok(data_npy_write("/dev/null", &a)); /* a device is written to in place */
  cr_assert_eq(fixture_entries(), 0);
}

Test(data_npy, a_file_is_replaced_whole_and_a_link_stays_a_link) {
  const data_array a = array_make(ATTN_F32, 1, (int64_t[]){1});
  struct stat about;
  *(float *)a.at = 3;
  assert_ok(data_npy_write(fixture_path("real.npy"), &a));
  *(float *)a.at = 5;
  cr_assert_eq(chmod(fixture_path("real.npy"), 0640), 0);
  cr_assert_eq(symlink("real.npy", fixture_path("link.npy")), 0);
  assert_ok(data_npy_write(fixture_path("link.npy"), &a));
  cr_assert_eq(lstat(fixture_path("link.npy"), &about), 0);
  cr_assert(S_ISLNK(about.st_mode));
  cr_assert_float_eq(*(float *)array_read(fixture_path("real.npy")).at, 5, 0);
  cr_assert_eq(stat(fixture_path("real.npy"), &about), 0);
  cr_assert_eq(about.st_mode & 0777, 0640);
  cr_assert_eq(fixture_entries(), 2);
}

Test(data_npy, token_ids_are_integers_of_any_shape) {
  static const int64_t ids[6] = {7, -1, INT64_C(1) << 40, 3, 4, 5};
  static const int32_t narrow[6] = {7, -1, INT32_MIN, INT32_MAX, 4, 5};
  int64_t *read = NULL, count = 0;
  data_array a = {0}, shape = {0};
  assert_ok(data_npy_read_ids(fixture_npy("i.npy", "<i8", "3", ids, 24), &read, &count, &shape));
  cr_assert(count == 3 && shape.rank == 1 && shape.shape[0] == 3);
  cr_assert_arr_eq(read, ids, 24);
  free(read);
  assert_refused(data_npy_read(fixture_path("i.npy"), &a), ATTN_EINVAL, "<i8");
  assert_ok(data_npy_read_ids(fixture_npy("i.npy", "<i8", "1, 3, 2", ids, 48), &read, &count, &shape));
  cr_assert(count == 6 && shape.rank == 3 && shape.shape[1] == 3 && shape.shape[2] == 2);
  cr_assert_arr_eq(read, ids, 48);
  free(read);
  assert_ok(data_npy_read_ids(fixture_npy("i.npy", "<i4", "2, 3", narrow, 24), &read, &count, &shape));
  cr_assert(count == 6 && shape.rank == 2);
  for (int i = 0; i < 6; i++) cr_assert_eq(read[i], narrow[i]);
  free(read);
  read = NULL;
  assert_refused(data_npy_read_ids(fixture_npy("i.npy", "<f4", "6", narrow, 24), &read, &count, &shape),
                 ATTN_EINVAL, "<f4");
  assert_refused(data_npy_read_ids(fixture_npy("i.npy", "<i4", "7", narrow, 24), &read, &count, &shape),
                 ATTN_EINVAL, "truncated");
  assert_refused(data_npy_read_ids(fixture_npy("i.npy", "<i4", "0", narrow, 0), &read, &count, &shape),
                 ATTN_EINVAL, "empty");
  cr_assert_null(read);
}

Test(data_npy, a_pattern_is_a_matrix_of_bytes) {
  static const uint8_t mask[6] = {1, 0, 0, 1, 1, 0};
  size_t size;
  assert_ok(data_npy_write_u8(fixture_path("m.npy"), 2, (int64_t[]){2, 3}, mask));
  unsigned char *file = kept_memory(fixture_bytes(fixture_path("m.npy"), &size));
  cr_assert_not_null(
      strstr((char *)file + 10, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }"));
  cr_assert_arr_eq(file + size - 6, mask, 6);
}

Test(data_npy, the_first_element_that_is_not_finite_is_named) {
  const data_array a = array_make(ATTN_F32, 3, (int64_t[]){2, 3, 4});
  float *x = a.at;
  for (int i = 0; i < 24; i++) x[i] = 1;
  assert_ok(data_check_finite(&a, "q"));
  x[23] = INFINITY;
  assert_refused(data_check_finite(&a, "q"), ATTN_EINVAL, "q[1,2,3] is inf");
  x[6] = NAN;
  assert_refused(data_check_finite(&a, "q"), ATTN_EINVAL,
                 "q[0,1,2] is nan, the first of 2 that are not finite");
  x[6] = -NAN; /* printf has a sign for it */
  x[23] = 1;
  assert_refused(data_check_finite(&a, "q"), ATTN_EINVAL, "q[0,1,2] is nan; every element must be finite");
}

Test(data_npy, impossible_arrays_are_refused) {
  data_array a = {0};
  assert_refused(data_array_make(ATTN_F64, 2, (int64_t[]){INT64_MAX, 2}, &a), ATTN_EINVAL, "");
  assert_refused(data_array_make(ATTN_F64, 2, (int64_t[]){3, 0}, &a), ATTN_EINVAL, "axis 1");
  assert_refused(data_array_make(ATTN_F64, 5, (int64_t[]){1, 1, 1, 1, 1}, &a), ATTN_EINVAL, "5");
  cr_assert_null(a.at);
}

/* safetensors.c - safetensors: every value of the 16-bit types, hostile headers, and models in shards. */
#include "tests/support/data_fixture.h"

#include "data/formats/safetensors.h"
#include "data/weights/weights.h"

TestSuite(data_safetensors, .init = fixture_begin, .fini = fixture_end);

/* A file of this header and `data` bytes of elements (0, 1, 2 ...), whose length field says `claimed`. */
static const char *make_file(const char *name, const char *header, size_t data, uint64_t claimed) {
  static unsigned char file[1 << 16];
  const char *path = fixture_path(name);
  size_t length = strlen(header);
  cr_assert(8 + length + data <= sizeof file);
  for (int i = 0; i < 8; i++) file[i] = (unsigned char)(claimed >> (8 * i));
  memcpy(file + 8, header, length);
  for (size_t i = 0; i < data; i++) file[8 + length + i] = (unsigned char)i;
  fixture_write(path, file, 8 + length + data);
  return path;
}

static const char *make(const char *header, size_t data) {
  return make_file("x.safetensors", header, data, strlen(header));
}

#define TENSOR(name, dtype, shape, begin, end) \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end "]}"

Test(data_safetensors, tensors_are_found_with_their_shapes_and_values) {
  safetensors *s = NULL;
  float x[6];
  /* Out of order in the header, one empty, one of a type that is only carried along. */
  const char *header =
      "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR("b", "F64", "2", "16", "32") "," TENSOR(
          "a", "F32", "2,1,2", "0",
          "16") "," TENSOR("i", "I64", "", "32", "40") "," TENSOR("none", "F16", "3,0", "32", "32") "}    ";
  assert_ok(safetensors_open(make(header, 40), &s));
  cr_assert_eq(safetensors_count(s), 4);
  const tensor *a = safetensors_find(s, "a"), *i = safetensors_find(s, "i");
  cr_assert(a && i && safetensors_find(s, "none") && !safetensors_find(s, "__metadata__"));
  cr_assert(a->rank == 3 && a->shape[0] == 2 && a->shape[1] == 1 && a->shape[2] == 2 && a->count == 4);
  assert_ok(tensor_to_f32(a, 1, 2, x));
  float wanted;
  memcpy(&wanted, (unsigned char[]){4, 5, 6, 7}, 4);
  cr_assert(memcmp(x, &wanted, 4) == 0);
  assert_refused(tensor_to_f32(i, 0, 1, x), ATTN_EUNSUPPORTED, "tensor i is I64");
  safetensors_close(s);
}

Test(data_safetensors, half_precision_is_widened_exactly) {
  /* The definitions, by ldexp: (-1)^s (m/1024 + [e>0]) 2^(max(e,1)-15), and bfloat16 = the upper half of an
   * f32. */
  tensor half = {.name = "h", .file = "f", .format = &tensor_f16},
         brain = {.name = "b", .file = "f", .format = &tensor_bf16};
  for (unsigned bits = 0; bits < 65536; bits++) {
    unsigned char at[2] = {(unsigned char)(bits & 255), (unsigned char)(bits >> 8)};
    float x, y;
    half.at = brain.at = at;
    assert_ok(tensor_to_f32(&half, 0, 1, &x));
    assert_ok(tensor_to_f32(&brain, 0, 1, &y));
    int e = bits >> 10 & 31, m = bits & 1023, be = bits >> 7 & 255, bm = bits & 127;
    double sign = bits >> 15 ? -1 : 1;
    double h = e == 31 ? (m ? (double)NAN : (double)INFINITY) : ldexp(m + (e ? 1024 : 0), (e ? e : 1) - 25);
    double b =
        be == 255 ? (bm ? (double)NAN : (double)INFINITY) : ldexp(bm + (be ? 128 : 0), (be ? be : 1) - 134);
    cr_assert(isnan(h) ? isnan(x) : (double)x == sign * h && !signbit(x) == !(bits >> 15), "f16 %04x", bits);
    cr_assert(isnan(b) ? isnan(y) : (double)y == sign * b && !signbit(y) == !(bits >> 15), "bf16 %04x", bits);
  }
}

Test(data_safetensors, hostile_headers_are_refused) {
  static const struct {
    char header[200];
    size_t data;
    char says[64];
  } cases[] = {
      {"{" TENSOR("a", "F32", "2", "0", "12") "}", 8,
       "tensor a: offsets [0, 12] are outside the 8 bytes of data"},
      {"{" TENSOR("a", "F32", "2", "-8", "0") "}", 8, "outside"},
      {"{" TENSOR("a", "F32", "2", "8", "0") "}", 8, "outside"},
      {"{" TENSOR("a", "F32", "2", "0", "9223372036854775807") "}", 8, "outside"},
      {"{" TENSOR("a", "F32", "2", "0", "99999999999999999999") "}", 8, "not JSON"},
      {"{" TENSOR("a", "F32", "2", "0.0", "8") "}", 8, "data_offsets"},
      {"{" TENSOR("a", "F32", "2", "0,8", "8") "}", 8, "data_offsets is not [begin, end]"},
      {"{" TENSOR("a", "F32", "3", "0", "8") "}", 8, "need 12"},
      {"{" TENSOR("a", "F16", "3", "0", "8") "}", 8, "need 6"},
      {"{" TENSOR("a", "F32", "4611686018427387904,4", "0", "8") "}", 8, "overflow"},
      {"{" TENSOR("a", "F32", "2305843009213693954", "0", "8") "}", 8, "overflow"},
      {"{" TENSOR("a", "F32", "-2", "0", "8") "}", 8, "natural"},
      {"{" TENSOR("a", "F32", "1,1,1,1,1,1,1,1,2", "0", "8") "}", 8, "shape"},
      {"{" TENSOR("a", "F31", "2", "0", "8") "}", 8, "F31"},
      {"{" TENSOR("a", "F32", "2", "0", "8") "," TENSOR("b", "F32", "2", "4", "12") "}", 12,
       "tensor b overlaps another one"},
      {"{" TENSOR("a", "F32", "2", "0", "8") "," TENSOR("b", "F32", "2", "0", "8") "}", 8, "overlaps"},
      {"{" TENSOR("a", "F32", "1", "0", "4") "," TENSOR("b", "F32", "1", "8", "12") "}", 12, "no tensor"},
      {"{" TENSOR("a", "F32", "1", "4", "8") "}", 8, "no tensor"},
      {"{" TENSOR("a", "F32", "1", "0", "4") "}", 8, "no tensor"},
      {"{" TENSOR("a", "F32", "1", "0", "4") "," TENSOR("a", "F32", "1", "4", "8") "}", 8, "duplicate"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets"},
      {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype"},
      {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "unknown key x"},
      {"{\"a\":[]}", 4, "object"},
      {"[]", 0, "object"},
      {"{\"a\":", 4, "not JSON"},
      {"", 4, "not JSON"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    safetensors *s = NULL;
    assert_refused(safetensors_open(make(cases[i].header, cases[i].data), &s), ATTN_EINVAL, cases[i].says);
    cr_assert_not_null(strstr(attn_last_error(), "x.safetensors"));
    cr_assert_null(s);
  }
}

Test(data_safetensors, a_header_longer_than_the_file_is_refused) {
  static const uint64_t lengths[] = {100, 1000000, UINT64_C(1) << 40, UINT64_MAX, UINT64_MAX - 7, INT64_MAX};
  const char *header = "{" TENSOR("a", "F32", "1", "0", "4") "}";
  safetensors *s = NULL;
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
    assert_refused(safetensors_open(make_file("x.safetensors", header, 4, lengths[i]), &s), ATTN_EINVAL,
                   "header of");
  cr_assert_eq(truncate(make_file("x.safetensors", "", 0, 100000001), 100000009), 0); /* a hole */
  assert_refused(safetensors_open(fixture_path("x.safetensors"), &s), ATTN_EINVAL, "at most 100000000");
  assert_refused(safetensors_open(make_file("x.safetensors", "", 0, 0), &s), ATTN_EINVAL, "not JSON");
  fixture_write(fixture_path("short"), "1234567", 7);
  assert_refused(safetensors_open(fixture_path("short"), &s), ATTN_EINVAL, "too short");
  fixture_write(fixture_path("empty"), "", 0);
  assert_refused(safetensors_open(fixture_path("empty"), &s), ATTN_EINVAL, "empty");
  assert_refused(safetensors_open(fixture_path("absent"), &s), ATTN_EFOREIGN, "absent");
}

static attn_status read_small(const char *path) {
  safetensors *s = NULL;
  float x[2];
  const attn_status status = safetensors_open(path, &s);
  for (size_t t = 0; !status && t < safetensors_count(s); t++) {
    const tensor *one = safetensors_at(s, t);
    if (one->format->widen && one->count <= 2) assert_ok(tensor_to_f32(one, 0, one->count, x));
  }
  safetensors_close(s);
  return status;
}

Test(data_safetensors, every_prefix_is_refused_and_no_flipped_byte_is_fatal) {
  size_t size;
  make("{" TENSOR("a", "F32", "2", "0", "8") "," TENSOR("b", "BF16", "1,2", "8", "12") "}", 12);
  unsigned char *file = kept_memory(fixture_bytes(fixture_path("x.safetensors"), &size));
  fixture_damage("y", file, size, 8 * (size - 12), 1, read_small);
}

/* Two shards with a, b and c, and this index. */
static attn_status open_sharded(const char *index, weights **w) {
  const char *one = "{" TENSOR("a", "F32", "1", "0", "4") "," TENSOR("b", "F32", "1", "4", "8") "}";
  const char *two = "{" TENSOR("c", "F32", "1", "0", "4") "}";
  make_file("s1", one, 8, strlen(one));
  make_file("s2", two, 4, strlen(two));
  fixture_write(fixture_path("model.safetensors.index.json"), index, strlen(index));
  return weights_open(fixture_directory, w);
}

Test(data_safetensors, shards_are_one_set_of_tensors) {
  weights *w = NULL;
  assert_ok(open_sharded(
      "{\"metadata\":{\"total_size\":12},\"weight_map\":{\"c\":\"s2\",\"a\":\"s1\",\"b\":\"s1\"}}", &w));
  cr_assert_eq(weights_count(w), 3);
  cr_assert(weights_find(w, "a") && weights_find(w, "b") && weights_find(w, "c") && !weights_find(w, "d"));
  cr_assert(weights_at(w, 2) == weights_find(w, "c") && !weights_at(w, 3));
  /* The hash is that of the shards one after another. */
  char hex[65], wanted[65];
  size_t n1, n2;
  unsigned char *one = kept_memory(fixture_bytes(fixture_path("s1"), &n1)),
                *two = kept_memory(fixture_bytes(fixture_path("s2"), &n2));
  unsigned char *both = kept_memory(malloc(n1 + n2));
  memcpy(both, one, n1);
  memcpy(both + n1, two, n2);
  data_sha256(both, n1 + n2, wanted);
  weights_sha256(w, hex);
  cr_assert_str_eq(hex, wanted);
  weights_close(w);
}

Test(data_safetensors, an_index_that_lies_is_refused) {
  static const struct {
    char index[120];
    attn_status status;
    char says[40];
  } cases[] = {
      {"{\"weight_map\":{\"a\":\"s1\",\"c\":\"s2\"}}", ATTN_EINVAL, "tensor b is in s1"},
      {"{\"weight_map\":{\"a\":\"s1\",\"b\":\"s2\",\"c\":\"s2\"}}", ATTN_EINVAL, "tensor b is in s1"},
      {"{\"weight_map\":{\"a\":\"s1\",\"b\":\"s1\",\"c\":\"s2\",\"d\":\"s2\"}}", ATTN_EINVAL,
       "tensor d is not in s2"},
      {"{\"weight_map\":{\"a\":\"s1\",\"b\":\"s1\",\"c\":\"s3\"}}", ATTN_EFOREIGN, "s3"},
      {"{\"weight_map\":{\"a\":\"../s1\",\"b\":\"s1\",\"c\":\"s2\"}}", ATTN_EINVAL, "tensor a"},
      {"{\"weight_map\":{\"a\":\".s1\",\"b\":\"s1\",\"c\":\"s2\"}}", ATTN_EINVAL, "tensor a"},
      {"{\"weight_map\":{\"a\":\"s1\",\"b\":\"s1\",\"c\":2}}", ATTN_EINVAL, "tensor c"},
      {"{\"weight_map\":{}}", ATTN_EINVAL, "weight_map"},
      {"{\"weight_map\":[]}", ATTN_EINVAL, "weight_map"},
      {"[]", ATTN_EINVAL, "weight_map"},
      {"{\"weight_map\":{\"a\":\"s1\",\"a\":\"s1\"}}", ATTN_EINVAL, "duplicate"},
      {"{", ATTN_EINVAL, "not JSON"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    weights *w = NULL;
    assert_refused(open_sharded(cases[i].index, &w), cases[i].status, cases[i].says);
    cr_assert_null(w);
  }
  cr_assert_eq(unlink(fixture_path("model.safetensors.index.json")), 0);
  weights *w = NULL;
  assert_refused(weights_open(fixture_directory, &w), ATTN_ENOTFOUND, "neither");
}

/* gguf.c - GGUF files: values of every type, tensors where the file says, and hostile ones refused. */
#include "tests/support/data_fixture.h"
#include "tests/data/gguf_files.h"

#include "data/formats/gguf.h"

TestSuite(data_gguf, .init = fixture_begin, .fini = fixture_end);

Test(data_gguf, values_of_every_type_are_found_by_their_keys) {
  static const struct {
    uint32_t type;
    size_t bytes;
    uint64_t bits;
    setting_kind kind;
    int64_t integer;
    double real;
  } cases[] = {{IS_U8, 1, 0xfe, SETTING_INTEGER, 254, 254},
               {IS_I8, 1, 0xfe, SETTING_INTEGER, -2, -2},
               {IS_U16, 2, 0xfffe, SETTING_INTEGER, 65534, 65534},
               {IS_I16, 2, 0xfffe, SETTING_INTEGER, -2, -2},
               {IS_U32, 4, 0xfffffffe, SETTING_INTEGER, 4294967294, 4294967294.0},
               {IS_I32, 4, 0xfffffffe, SETTING_INTEGER, -2, -2},
               {IS_F32, 4, 0xc0200000, SETTING_REAL, 0, -2.5},
               {IS_BOOL, 1, 0, SETTING_FLAG, 0, 0},
               {IS_BOOL, 1, 1, SETTING_FLAG, 1, 1},
               {IS_U64, 8, INT64_MAX, SETTING_INTEGER, INT64_MAX, 0x1p63},
               {IS_U64, 8, UINT64_MAX, SETTING_OTHER, 0, 0},
               {IS_I64, 8, UINT64_MAX, SETTING_INTEGER, -1, -1},
               {IS_F64, 8, 0xc004000000000000, SETTING_REAL, 0, -2.5}};
  enum { COUNT = sizeof cases / sizeof *cases };
  gguf *g = NULL;
  gguf_file *f = gguf_file_new();
  for (int i = COUNT - 1; i >= 0; i--) { /* not in their order */
    gguf_key_number(f, text_of("one.%d", i), cases[i].type, cases[i].bits, cases[i].bytes);
    gguf_key_list(f, text_of("list.%d", i), cases[i].type, 3);
    for (int j = 0; j < 3; j++) gguf_put_number(&f->key, cases[i].bits, cases[i].bytes);
  }
  gguf_key_text(f, "text", "");
  gguf_key_text(f, "words", "two\nwords");
  gguf_key_list(f, "texts", IS_TEXT, 3);
  gguf_put_text(&f->key, "one");
  gguf_put_text(&f->key, "");
  gguf_put_text(&f->key, "three");
  gguf_key_list(f, "empty", IS_F32, 0);
  gguf_key_list(f, "lists", IS_LIST, 2); /* of lists, which are passed over */
  for (int j = 0; j < 2; j++) {
    gguf_put_number(&f->key, IS_TEXT, 4);
    gguf_put_number(&f->key, 1, 8);
    gguf_put_text(&f->key, "inner");
  }
  gguf_key_u32(f, "zlast", 7);
  assert_ok(gguf_open(gguf_file_write(f, "x.gguf"), &g));
  for (int i = 0; i < COUNT; i++) {
    const char *name = text_of("one.%d", i);
    gguf_list list = gguf_get_list(g, text_of("list.%d", i));
    cr_assert_eq(list.count, 3);
    for (int j = 0; j < 4; j++) {
      setting s = j == 3 ? gguf_get(g, name) : gguf_next(&list);
      cr_assert(s.kind == cases[i].kind && s.integer == cases[i].integer, "case %d", i);
      cr_assert_float_eq(s.real, cases[i].real, 0, "case %d: %g", i, s.real);
    }
    cr_assert_eq(list.count, 0);
    cr_assert_eq(gguf_get_list(g, name).count, 0);
  }
  setting s = gguf_get(g, "words");
  cr_assert(s.kind == SETTING_TEXT && s.bytes == 9 && memcmp(s.text, "two\nwords", 9) == 0);
  cr_assert(gguf_get(g, "text").kind == SETTING_TEXT && gguf_get(g, "text").bytes == 0);
  static const char *const texts[] = {"one", "", "three"};
  gguf_list list = gguf_get_list(g, "texts");
  for (int i = 0; i < 3; i++) {
    s = gguf_next(&list);
    cr_assert(s.kind == SETTING_TEXT && s.bytes == strlen(texts[i]) &&
              memcmp(s.text, texts[i], s.bytes) == 0);
  }
  cr_assert(list.count == 0 && gguf_get_list(g, "empty").count == 0 && gguf_get_list(g, "lists").count == 0);
  cr_assert(gguf_get(g, "texts").kind == SETTING_OTHER && gguf_get(g, "lists").kind == SETTING_OTHER);
  cr_assert(gguf_get(g, "zlast").integer == 7 && gguf_get(g, "absent").kind == SETTING_ABSENT);
  gguf_close(g);
}

/* Two tensors and some keys, one of them the alignment. */
static gguf_file *small_file(uint32_t version, size_t alignment) {
  gguf_file *f = gguf_file_new();
  f->version = version;
  f->alignment = alignment;
  gguf_key_u32(f, "general.alignment", alignment);
  gguf_key_text(f, "text", "some");
  gguf_key_number(f, "flag", IS_BOOL, 1, 1);
  gguf_key_list(f, "list", IS_U16, 2);
  gguf_put_number(&f->key, 0x00020001, 4);
  gguf_tensor(f, "second", 2, 3, AS_F32);
  for (int i = 0; i < 6; i++) gguf_put(&f->data, &(float){(float)i}, 4);
  gguf_tensor(f, "first", 0, 32, AS_Q8_0);
  double codes[32];
  for (int i = 0; i < 32; i++) codes[i] = (double)(i - 16) / 64;
  gguf_put_q8_0(&f->data, codes);
  return f;
}

Test(data_gguf, tensors_lie_where_the_file_says) {
  static const size_t alignments[] = {1, 8, 32, 4096};
  for (size_t i = 0; i < 8; i++) {
    gguf *g = NULL;
    float x[32];
    assert_ok(gguf_open(gguf_file_write(small_file(2 + i % 2, alignments[i / 2]), "x.gguf"), &g));
    cr_assert(gguf_count(g) == 2 && !gguf_at(g, 2) && !gguf_find(g, "third"));
    const tensor *a = gguf_find(g, "second"), *b = gguf_at(g, 0);
    cr_assert(a && b == gguf_find(g, "first"));
    /* The file names the fastest axis first. */
    cr_assert(a->rank == 2 && a->shape[0] == 2 && a->shape[1] == 3 && a->count == 6 && a->bytes == 24);
    cr_assert(b->rank == 1 && b->shape[0] == 32 && b->count == 32 && b->bytes == 34);
    assert_ok(tensor_to_f32(a, 2, 3, x));
    for (int j = 0; j < 3; j++) cr_assert_float_eq(x[j], (float)(2 + j), 0);
    assert_ok(tensor_to_f32(b, 0, 32, x));
    for (int j = 0; j < 32; j++) cr_assert_float_eq(x[j], (float)(j - 16) / 64, 0);
    char hex[65], wanted[65];
    size_t size;
    sha256 h;
    sha256_begin(&h);
    gguf_hash(g, &h);
    sha256_end(&h, hex);
    void *bytes = fixture_bytes(fixture_path("x.gguf"), &size);
    data_sha256(bytes, size, wanted);
    cr_assert_str_eq(hex, wanted);
    free(bytes);
    gguf_close(g);
  }
}

/* The small file with `bytes` bytes changed at a distance from a text in it, or from its beginning. */
static attn_status open_changed(const char *text, int distance, uint64_t value, size_t bytes, gguf **g) {
  size_t size;
  gguf_file *f = small_file(3, 32);
  unsigned char *at = gguf_file_bytes(f, &size), *place = at;
  free(f);
  if (text) {
    while ((size_t)(place - at) + strlen(text) <= size && memcmp(place, text, strlen(text)) != 0) place++;
    cr_assert((size_t)(place - at) + strlen(text) <= size, "%s is not there", text);
  }
  place += distance;
  cr_assert(place >= at && (size_t)(place - at) + bytes <= size);
  for (size_t i = 0; i < bytes; i++) place[i] = (unsigned char)(value >> 8 * i);
  fixture_write(fixture_path("x.gguf"), at, size);
  free(at);
  return gguf_open(fixture_path("x.gguf"), g);
}

Test(data_gguf, hostile_fields_are_refused_with_their_place) {
  /* Distances from the end of a name: its value's type follows; after that of a tensor its rank, its lengths,
   * its format and its offset. */
  enum { SECOND = 6, FIRST = 5, ALIGNMENT = 17, LENGTHS = 4, FORMAT = 20, OFFSET = 24 };
  static const struct {
    const char *text;
    int distance;
    uint64_t value;
    size_t bytes;
    attn_status status;
    char says[64];
  } cases[] = {
      {NULL, 0, 'g', 1, ATTN_EINVAL, "not a GGUF file: it does not begin with GGUF"},
      {NULL, 4, 1, 4, ATTN_EUNSUPPORTED, "version 1"},
      {NULL, 4, 4, 4, ATTN_EUNSUPPORTED, "version 4"},
      {NULL, 4, 0x03000000, 4, ATTN_EUNSUPPORTED, "big-endian"},
      {NULL, 8, 100, 8, ATTN_EINVAL, "100 tensors"},
      {NULL, 8, UINT64_MAX, 8, ATTN_EINVAL, "18446744073709551615 tensors"},
      {NULL, 8, 3, 8, ATTN_EINVAL, "of tensor 2"},
      {NULL, 16, UINT64_MAX, 8, ATTN_EINVAL, "18446744073709551615 keys"},
      {NULL, 16, 5, 8, ATTN_EINVAL, "of tensor 0"},
      {"text", -8, 0, 8, ATTN_EINVAL, "the name of key 1 is not 1 to 65535 printable"},
      {"text", -8, UINT64_MAX, 8, ATTN_EINVAL, "the name of key 1 ends beyond"},
      {"text", 0, '\n', 1, ATTN_EINVAL, "the name of key 1 is not"},
      {"text", 0, 0x67616c66, 4, ATTN_EINVAL, "key flag is given twice"},
      {"text", 4, 13, 4, ATTN_EINVAL, "the value of key 1 has a type"},
      {"text", 8, UINT64_MAX, 8, ATTN_EINVAL, "byte 81: the value of key 1 ends beyond the file"},
      {"text", 8, INT64_MAX, 8, ATTN_EINVAL, "the value of key 1 ends beyond"},
      {"flag", 8, 2, 1, ATTN_EINVAL, "the value of key 2 is neither true nor false"},
      {"list", 8, 13, 4, ATTN_EINVAL, "the value of key 3 has a type"},
      {"list", 8, IS_TEXT, 4, ATTN_EINVAL, "the value of key 3 ends beyond"},
      {"list", 12, UINT64_C(1) << 63, 8, ATTN_EINVAL, "the value of key 3 ends beyond"},
      {"general.alignment", ALIGNMENT + 4, 0, 4, ATTN_EINVAL, "general.alignment is not a power of two"},
      {"general.alignment", ALIGNMENT + 4, 24, 4, ATTN_EINVAL, "general.alignment is not a power of two"},
      {"general.alignment", ALIGNMENT + 4, UINT32_C(1) << 31, 4, ATTN_EINVAL, "general.alignment=2147483648"},
      {"general.alignment", ALIGNMENT, IS_F32, 4, ATTN_EINVAL, "general.alignment"},
      {"second", -8, UINT64_MAX, 8, ATTN_EINVAL, "the name of tensor 0 ends beyond"},
      {"second", 0, 0x7f, 1, ATTN_EINVAL, "the name of tensor 0 is not"},
      {"second", 0, 0x20, 1, ATTN_EINVAL, "the name of tensor 0 is not"},
      {"second", SECOND, 0, 4, ATTN_EINVAL, "the shape of tensor 0 has not 1 to 4 axes"},
      {"second", SECOND, 5, 4, ATTN_EINVAL, "the shape of tensor 0 has not 1 to 4 axes"},
      {"second", SECOND + LENGTHS, 0, 8, ATTN_EINVAL, "the shape of tensor 0 has an axis without"},
      {"second", SECOND + LENGTHS, UINT64_C(1) << 63, 8, ATTN_EINVAL, "an axis without a length"},
      {"second", SECOND + LENGTHS, INT64_MAX, 8, ATTN_EINVAL,
       "tensor second: the sizes of the shape overflow"},
      {"second", SECOND + LENGTHS, INT64_MAX / 16 + 1, 8, ATTN_EINVAL, "overflow"},
      {"second", SECOND + LENGTHS, INT64_MAX / 16, 8, ATTN_EINVAL, "outside"},
      {"second", SECOND + LENGTHS, 1000, 8, ATTN_EINVAL,
       "tensor second: 8000 bytes from offset 0 on are outside"},
      {"second", SECOND + FORMAT, 40, 4, ATTN_EUNSUPPORTED, "tensor second: unknown format 40"},
      {"second", SECOND + FORMAT, 4, 4, ATTN_EUNSUPPORTED, "unknown format 4"},
      {"second", SECOND + FORMAT, 21, 4, ATTN_EUNSUPPORTED, "tensor second is IQ3_S, which is not read"},
      {"second", SECOND + FORMAT, 24, 4, ATTN_EUNSUPPORTED, "tensor second is I8"},
      {"second", SECOND + FORMAT, AS_Q8_0, 4, ATTN_EINVAL, "rows of 3 are not whole blocks of 32"},
      {"second", SECOND + OFFSET, 16, 8, ATTN_EINVAL, "offset 16 is not a multiple of general.alignment=32"},
      {"second", SECOND + OFFSET, 64, 8, ATTN_EINVAL, "tensor second: 24 bytes from offset 64"},
      {"second", SECOND + OFFSET, UINT64_MAX - 31, 8, ATTN_EINVAL, "outside"},
      {"first", FIRST + LENGTHS, 64, 8, ATTN_EINVAL, "tensor first: 68 bytes"}};
  gguf *g = NULL;
  assert_ok(open_changed(NULL, 0, 'G', 1, &g));
  gguf_close(g);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    g = NULL;
    assert_refused(open_changed(cases[i].text, cases[i].distance, cases[i].value, cases[i].bytes, &g),
                   cases[i].status, cases[i].says);
    cr_assert_not_null(strstr(attn_last_error(), "x.gguf"), "%s", attn_last_error());
    cr_assert_null(g);
  }
}

Test(data_gguf, what_must_be_single_or_shallow_is) {
  gguf *g = NULL;
  gguf_file *f = small_file(3, 32);
  gguf_tensor(f, "first", 0, 1, AS_F32);
  gguf_put(&f->data, &(float){1}, 4);
  assert_refused(gguf_open(gguf_file_write(f, "x.gguf"), &g), ATTN_EINVAL, "tensor first is stored twice");
  static const char *const says[] = {"", "is not 1 to 65535 printable", "too many lists"};
  for (int over = 0; over < 3; over++) { /* nothing, the name, or the lists in lists, of which four may be */
    char name[65537];
    f = gguf_file_new();
    memset(name, 'n', sizeof name);
    name[65535 + (over == 1)] = '\0';
    gguf_key_list(f, name, IS_LIST, 1);
    for (int i = over == 2 ? 5 : 4; i > 1; i--) {
      gguf_put_number(&f->key, i > 2 ? IS_LIST : IS_U8, 4);
      gguf_put_number(&f->key, 1, 8);
    }
    gguf_put_number(&f->key, 1, 1);
    const attn_status status = gguf_open(gguf_file_write(f, "x.gguf"), &g);
    if (over) assert_refused(status, ATTN_EINVAL, says[over]);
    gguf_close(g);
    g = NULL;
    cr_assert_eq(status != ATTN_OK, over > 0, "%s", attn_last_error());
  }
  f = gguf_file_new();
  gguf_key_u32(f, "general.alignment", 1 << 30);
  gguf_tensor(f, "far", 0, 1, AS_F32);
  gguf_put(&f->data, &(float){1}, 4);
  assert_refused(gguf_open(gguf_file_write(f, "x.gguf"), &g), ATTN_EINVAL, "outside the 0 bytes");
  assert_refused(gguf_open(fixture_path("absent"), &g), ATTN_EFOREIGN, "absent");
  fixture_write(fixture_path("empty"), "", 0);
  assert_refused(gguf_open(fixture_path("empty"), &g), ATTN_EINVAL, "empty");
  cr_assert_null(g);
  fixture_write(fixture_path("least"),
                "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0k\0\0\0\0\5", 38);
  assert_ok(gguf_open(fixture_path("least"), &g));
  cr_assert_eq(gguf_get(g, "k").integer, 5);
  gguf_close(g);
  assert_ok(gguf_open(gguf_file_write(gguf_file_new(), "none.gguf"), &g));
  cr_assert(gguf_count(g) == 0 && gguf_get(g, "general.alignment").kind == SETTING_ABSENT);
  gguf_close(g);
}

/* All that a file offers. */
static attn_status read_all(const char *path) {
  float x[256];
  gguf *g = NULL;
  const attn_status status = gguf_open(path, &g);
  for (size_t i = 0; !status && i < gguf_count(g); i++) {
    const tensor *t = gguf_at(g, i);
    for (int64_t first = 0; first < t->count; first += t->format->block)
      assert_ok(tensor_to_f32(t, first, t->format->block, x));
  }
  gguf_list list = status ? (gguf_list){.count = 0} : gguf_get_list(g, "list");
  while (list.count) {
    setting s = gguf_next(&list);
    volatile char last = s.kind == SETTING_TEXT && s.bytes ? s.text[s.bytes - 1] : 0;
    (void)last;
  }
  gguf_close(g);
  return status;
}

Test(data_gguf, every_prefix_is_refused_and_no_flipped_bit_is_fatal) {
  size_t size;
  gguf_file *f = small_file(3, 32);
  unsigned char *file = gguf_file_bytes(f, &size);
  free(f);
  cr_assert(fixture_damage("y", file, size, 8 * size, 1, read_all) > 8 * 58, "elements may be any bits");
  free(file);
}

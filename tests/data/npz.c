/* npz.c - .npz archives: members stored and deflated read as the arrays that they are, and what is damaged,
 * declares too much or is no archive of arrays is refused by the name of file and member. */
#include "tests/support/data_fixture.h"

#include <zlib.h>

TestSuite(data_npz, .init = fixture_begin, .fini = fixture_end);

enum { ELEMENTS = 600, NPY = 128 + 4 * ELEMENTS, ROOM = 16384 };

typedef struct archive {
  unsigned char at[ROOM];
  size_t used, list_used, count;
  bool wide; /* the record at the end, too */
  unsigned char list[ROOM];
} archive;

static void put(unsigned char *at, size_t *used, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) at[(*used)++] = (unsigned char)(i < 8 ? value >> 8 * i : 0);
}

/* What may be wrong with a member. */
typedef struct fault {
  uint32_t crc, size, packed; /* differences */
  int method;                 /* instead, if not 0 */
  bool wide;                  /* sizes in the field of 64 bits */
} fault;

static void add(archive *a, const char *name, const unsigned char *content, size_t bytes, bool deflated,
                fault f) {
  unsigned char packed[ROOM];
  uLongf size = sizeof packed;
  const size_t place = a->used, length = strlen(name);
  const unsigned char *from = content;
  size_t stored = bytes;
  if (deflated) {
    cr_assert_eq(compress2(packed, &size, content, (uLong)bytes, 9), Z_OK);
    from = packed + 2; /* without the frame of zlib */
    stored = (size_t)size - 6;
  }
  const uint64_t crc = (uint32_t)crc32(0, content, (uInt)bytes) + f.crc;
  const int method = f.method ? f.method : deflated ? 8 : 0;
  put(a->at, &a->used, 0x04034b50, 4);
  put(a->at, &a->used, 0, 22);
  put(a->at, &a->used, length, 2);
  put(a->at, &a->used, 5, 2);
  memcpy(a->at + a->used, name, length);
  a->used += length;
  put(a->at, &a->used, 0, 5);
  memcpy(a->at + a->used, from, stored);
  a->used += stored;
  put(a->list, &a->list_used, 0x02014b50, 4);
  put(a->list, &a->list_used, 0, 6);
  put(a->list, &a->list_used, (uint64_t)method, 2);
  put(a->list, &a->list_used, 0, 4);
  put(a->list, &a->list_used, crc, 4);
  put(a->list, &a->list_used, f.wide ? 0xffffffff : stored + f.packed, 4);
  put(a->list, &a->list_used, f.wide ? 0xffffffff : bytes + f.size, 4);
  put(a->list, &a->list_used, length, 2);
  put(a->list, &a->list_used, f.wide ? 34 : 6, 2);
  put(a->list, &a->list_used, 3, 10); /* a comment */
  put(a->list, &a->list_used, f.wide ? 0xffffffff : place, 4);
  memcpy(a->list + a->list_used, name, length);
  a->list_used += length;
  put(a->list, &a->list_used, 0x20007, 6); /* a field that means nothing here */
  if (f.wide) {
    put(a->list, &a->list_used, 0x180001, 4);
    put(a->list, &a->list_used, bytes + f.size, 8);
    put(a->list, &a->list_used, stored, 8);
    put(a->list, &a->list_used, place, 8);
  }
  put(a->list, &a->list_used, 0x4b50, 3);
  a->wide = a->wide || f.wide;
  a->count++;
}

static size_t finish(archive *a, const char *name) {
  const size_t list = a->used, place = list + a->list_used;
  memcpy(a->at + a->used, a->list, a->list_used);
  a->used += a->list_used;
  if (a->wide) {
    put(a->at, &a->used, 0x06064b50, 24);
    for (int i = 0; i < 2; i++) put(a->at, &a->used, a->count, 8);
    put(a->at, &a->used, a->list_used, 8);
    put(a->at, &a->used, list, 8);
    put(a->at, &a->used, 0x07064b50, 8);
    put(a->at, &a->used, place, 12);
  }
  put(a->at, &a->used, 0x06054b50, 8);
  for (int i = 0; i < 2; i++) put(a->at, &a->used, a->wide ? 0xffff : a->count, 2);
  put(a->at, &a->used, a->wide ? 0xffffffff : a->list_used, 4);
  put(a->at, &a->used, a->wide ? 0xffffffff : list, 4);
  put(a->at, &a->used, 24, 2);
  put(a->at, &a->used, 0x06054b50, 24); /* a comment, which looks as the record does */
  fixture_write(fixture_path(name), a->at, a->used);
  return a->used;
}

/* ELEMENTS floats, as [20,30]. */
static void make(unsigned char npy[NPY], int first) {
  float value[ELEMENTS];
  size_t size;
  for (int i = 0; i < ELEMENTS; i++) value[i] = (float)((first + i) % 7);
  unsigned char *file =
      kept_memory(fixture_bytes(fixture_npy("m.npy", "<f4", "20, 30", value, sizeof value), &size));
  memcpy(npy, file, NPY);
}

static void check(const char *name, int first) {
  data_array a = {0};
  assert_ok(data_npy_read(fixture_path(name), &a));
  cr_assert(a.rank == 2 && a.shape[0] == 20 && a.shape[1] == 30 && a.dtype == ATTN_F32);
  for (int i = 0; i < ELEMENTS; i++) cr_assert_float_eq(((float *)a.at)[i], (float)((first + i) % 7), 0);
  data_array_free(&a);
}

Test(data_npz, members_are_arrays) {
  static const char *const names[] = {"query.npy", "key.npy", "value.npy"};
  archive a = {.used = 0};
  unsigned char npy[NPY];
  for (int t = 0; t < 3; t++) {
    make(npy, t);
    add(&a, names[t], npy, NPY, t != 1, (fault){.wide = t == 2});
  }
  finish(&a, "x.npz");
  check("x.npz:query", 0);
  check("x.npz:key", 1);
  check("x.npz:value", 2);
  data_qkv m = {0};
  assert_ok(data_qkv_read(&(data_reading){.in = fixture_path("x.npz"), .names = "query+key+value"}, &m));
  cr_assert(m.n_q == 20 && m.d_qk == 30 && m.rank == 2);
  cr_assert_float_eq(((float *)m.v)[1], 3, 0);
  data_qkv_free(&m);
  assert_refused(data_qkv_read(&(data_reading){.in = fixture_path("x.npz")}, &m), ATTN_EINVAL,
                 "x.npz: no member q.npy; it has query.npy, key.npy, value.npy");
  assert_refused(data_qkv_read(&(data_reading){.in = fixture_path("x.npz"), .names = "a,b"}, &m), ATTN_EINVAL,
                 "three names");
  archive twice = {.used = 0};
  for (int t = 0; t < 2; t++) add(&twice, "query.npy", npy, NPY, false, (fault){.wide = false});
  finish(&twice, "twice.npz");
  data_array one = {0};
  assert_refused(data_npy_read(fixture_path("twice.npz:query"), &one), ATTN_EINVAL, "query.npy twice");
  assert_refused(data_npy_read(fixture_path("x.npz"), &one), ATTN_EINVAL, "x.npz:NAME");
  /* As datasets of experiments. */
  char *canonical = NULL, hex[65];
  const char *spec = text_of("npy:q=%s,k=%s,v=%s,layout=bhnd", fixture_path("x.npz:query"),
                             fixture_path("x.npz:key"), fixture_path("x.npz:value"));
  const data_request r = {1, 1, 1, 20, 20, 30, 30, ATTN_F32, 0};
  assert_ok(data_source_make(spec, &r, &m, &canonical));
  *strrchr(spec, ',') = '\0'; /* a preset is not part of the canonical text */
  cr_assert_str_eq(canonical, spec);
  assert_ok(data_source_digest(spec, hex));
  cr_assert_eq(strlen(hex), 64);
  free(canonical);
  data_qkv_free(&m);
}

Test(data_npz, what_is_wrong_is_named) {
  static const struct {
    fault f;
    bool deflated;
    const char *says;
  } cases[] = {{{.crc = 1}, true, "x.npz:q.npy: damaged: its checksum differs"},
               {{.crc = 1}, false, "x.npz:q.npy: damaged: its checksum differs"},
               {{.size = 4}, true, "damaged: it does not inflate"},
               {{.packed = (uint32_t)-20}, true, "damaged: it does not inflate"},
               {{.size = 4}, false, "are stored"},
               {{.size = (uint32_t)-4}, true, "checksum differs"},
               {{.size = 1 << 30}, true, "more than deflate or this machine's memory can hold"},
               {{.method = 12}, true, "x.npz:q.npy: encrypted, or compressed by another method"},
               {{.method = 8}, false, "damaged: it does not inflate"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    archive a = {.used = 0};
    unsigned char npy[NPY];
    data_array read = {.rank = 77};
    make(npy, 0);
    add(&a, "q.npy", npy, NPY, cases[i].deflated, cases[i].f);
    finish(&a, "x.npz");
    assert_refused(data_npy_read(fixture_path("x.npz:q"), &read), ATTN_EINVAL, cases[i].says);
    cr_assert(read.rank == 77 && !read.at);
  }
}

/* What deflates well is not inflated unless the shape needs it. */
Test(data_npz, a_member_is_as_large_as_its_shape) {
  enum { MORE = 1 << 22 };
  unsigned char *content = kept_memory(calloc(NPY + MORE, 1));
  for (int more = 0; more < 2; more++) {
    archive a = {.used = 0};
    data_array read = {.rank = 77};
    make(content, 0);
    add(&a, "q.npy", content, NPY + (more ? MORE : 4), true, (fault){0});
    finish(&a, "x.npz");
    assert_refused(data_npy_read(fixture_path("x.npz:q"), &read), ATTN_EINVAL,
                   more ? "x.npz:q: 4196832 bytes declared of an array of 600 elements"
                        : "x.npz:q: 4 bytes after the end of the array");
    cr_assert(read.rank == 77 && !read.at);
  }
}

static attn_status read_member(const char *path) {
  data_array read = {0};
  const attn_status status = data_npy_read(text_of("%s:q", path), &read);
  data_array_free(&read);
  return status;
}

Test(data_npz, no_flipped_byte_is_fatal_and_every_prefix_is_refused) {
  archive a = {.used = 0};
  unsigned char npy[NPY];
  make(npy, 0);
  add(&a, "q.npy", npy, NPY, true, (fault){.wide = true});
  const size_t size = finish(&a, "x.npz");
  fixture_damage("x.npz", a.at, size, 8 * size, 3, read_member);
}

/* An archive with a pickle in it, and a pickle, as torch.save makes them. */
Test(data_npz, pickles_are_refused_with_the_line_that_converts_them) {
  data_qkv m = {0};
  data_array one = {0};
  for (int i = 0; i < 8; i++) { /* protocols 2 to 5 */
    archive a = {.used = 0};
    char pickle[] = "\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.";
    pickle[1] = (char)(2 + i / 2);
    add(&a, i > 1 ? "x/data.pkl" : "data.pkl", (unsigned char *)pickle, 3, false, (fault){.method = 0});
    finish(&a, "x.pt");
    fixture_write(fixture_path("y.pt"), pickle, 15);
    const char *path = fixture_path(i % 2 ? "y.pt" : "x.pt");
    assert_refused(data_qkv_read(&(data_reading){.in = path}, &m), ATTN_EUNSUPPORTED,
                   "numpy.savez(\"x.npz\"");
    assert_refused(data_npy_read(path, &one), ATTN_EUNSUPPORTED, "numpy.save(\"x.npy\", torch.load(\"");
  }
}

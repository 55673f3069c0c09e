/* zip.c - zip archives, with the 64-bit sizes of version 4.5: the list of members at the end of the file
 * (PKWARE's APPNOTE.TXT 6.3, sections 4.3.12 to 4.3.16), and one member, inflated by zlib. Every field is
 * checked before it is used. */
#define ZLIB_CONST /* zlib's input is not written to */
#include "data/support/zip.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { END = 22, LOCATOR = 20, END64 = 56, ENTRY = 46, LOCAL = 30, COMMENT_MAX = 65535, LISTED = 200 };
enum { RATIO_MAX = 1032 }; /* deflate expands one byte to at most this many */

static uint64_t load(const uint8_t *at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
  return value;
}

static bool is_mark(const uint8_t *at, int kind) {
  return at[0] == 'P' && at[1] == 'K' && at[2] == kind && at[3] == kind + 1;
}

bool zip_is(const file_map *map) { return file_begins(map, "PK\x03\x04") || file_begins(map, "PK\x05\x06"); }

static attn_status damaged(const char *path) {
  return attn_fail(ATTN_EINVAL, "%s: damaged: its list of members is not a zip archive's", path);
}

/* The record at the end, which a comment may follow. */
static const uint8_t *find_end(const file_map *map) {
  for (size_t back = END; back <= map->bytes && back <= END + COMMENT_MAX; back++) {
    const uint8_t *at = map->at + map->bytes - back;
    if (is_mark(at, 5) && load(at + 20, 2) == back - END) return at;
  }
  return NULL;
}

attn_status zip_open(const char *path, const file_map *map, zip *out) {
  const uint8_t *end = find_end(map);
  if (!end) return damaged(path);
  uint64_t count = load(end + 10, 2), bytes = load(end + 12, 4), first = load(end + 16, 4);
  const uint64_t place = (uint64_t)(end - map->at);
  if ((count == 0xffff || bytes == 0xffffffff || first == 0xffffffff) && place >= LOCATOR &&
      is_mark(end - LOCATOR, 6)) {
    const uint64_t at = load(end - LOCATOR + 8, 8);
    if (at > place || place - at < END64 || memcmp(map->at + at, "PK\6\6", 4) != 0) return damaged(path);
    count = load(map->at + at + 32, 8);
    bytes = load(map->at + at + 40, 8);
    first = load(map->at + at + 48, 8);
  }
  if (first > place || bytes > place - first) return damaged(path);
  *out =
      (zip){.path = path, .map = map, .at = map->at + first, .end = map->at + first + bytes, .left = count};
  return ATTN_OK;
}

/* Takes the 64-bit sizes of the field of extra data that has them, in place of those that did not fit. */
static bool widen(const uint8_t *extra, size_t length, uint64_t *sizes[3]) {
  while (length >= 4) {
    const size_t size = (size_t)load(extra + 2, 2);
    if (size > length - 4) return false;
    if (load(extra, 2) == 1) {
      size_t used = 0;
      for (int i = 0; i < 3; i++) {
        if (*sizes[i] != 0xffffffff) continue;
        if (used + 8 > size) return false;
        *sizes[i] = load(extra + 4 + used, 8);
        used += 8;
      }
      return true;
    }
    extra += 4 + size;
    length -= 4 + size;
  }
  return true;
}

attn_status zip_next(zip *z, zip_member *out, bool *more) {
  *more = z->left > 0;
  if (!*more) return ATTN_OK;
  const uint8_t *at = z->at;
  const size_t room = (size_t)(z->end - at);
  if (room < ENTRY || !is_mark(at, 1)) return damaged(z->path);
  const size_t name = (size_t)load(at + 28, 2), extra = (size_t)load(at + 30, 2),
               comment = (size_t)load(at + 32, 2);
  if (name + extra + comment > room - ENTRY) return damaged(z->path);
  uint64_t bytes = load(at + 24, 4), packed = load(at + 20, 4), first = load(at + 42, 4);
  if (!widen(at + ENTRY + name, extra, (uint64_t *[]){&bytes, &packed, &first})) return damaged(z->path);
  const uint64_t size = z->map->bytes;
  if (first > size || size - first < LOCAL || !is_mark(z->map->at + first, 3)) return damaged(z->path);
  const uint8_t *local = z->map->at + first;
  const uint64_t start = first + LOCAL + load(local + 26, 2) + load(local + 28, 2);
  const uint64_t method = load(at + 10, 2);
  if (start > size || packed > size - start || bytes > PTRDIFF_MAX) return damaged(z->path);
  if ((load(at + 8, 2) & 1) || (method != 0 && method != 8))
    return attn_fail(ATTN_EINVAL, "%s:%.*s: encrypted, or compressed by another method than deflate", z->path,
                     (int)name, (const char *)at + ENTRY);
  *out = (zip_member){.name = (const char *)at + ENTRY,
                      .length = name,
                      .at = z->map->at + start,
                      .packed = (size_t)packed,
                      .bytes = (size_t)bytes,
                      .crc = (uint32_t)load(at + 16, 4),
                      .deflated = method == 8};
  z->at = at + ENTRY + name + extra + comment;
  z->left--;
  return ATTN_OK;
}

attn_status zip_find(zip z, const char *name, zip_member *out) {
  char there[LISTED] = "";
  size_t used = 0;
  zip_member m = {0};
  bool more = true, found = false;
  while (true) {
    const attn_status status = zip_next(&z, &m, &more);
    if (status) return status;
    if (!more) break;
    if (m.length == strlen(name) && memcmp(m.name, name, m.length) == 0) {
      if (found) return attn_fail(ATTN_EINVAL, "%s: member %s twice", z.path, name);
      *out = m;
      found = true;
    }
    const int added = snprintf(there + used, sizeof there - used, used ? ", %.*s" : "%.*s",
                               m.length > LISTED ? LISTED : (int)m.length, m.name);
    used = used + (size_t)added < sizeof there ? used + (size_t)added : sizeof there - 1;
  }
  if (found) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s: no member %s; it has %s", z.path, name, *there ? there : "none");
}

attn_status zip_check(const zip *z, const zip_member *m) {
  const uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  if (!m->deflated && m->bytes != m->packed)
    return attn_fail(ATTN_EINVAL, "%s:%.*s: %zu bytes are stored, %zu declared", z->path, (int)m->length,
                     m->name, m->packed, m->bytes);
  if (m->bytes > memory || (m->deflated && m->bytes / RATIO_MAX > m->packed))
    return attn_fail(
        ATTN_EINVAL,
        "%s:%.*s: %zu bytes declared of %zu, more than deflate or this machine's memory can hold", z->path,
        (int)m->length, m->name, m->bytes, m->packed);
  return ATTN_OK;
}

static attn_status inflate_first(const zip *z, const zip_member *m, uint8_t *to, size_t bytes) {
  z_stream s = {.next_in = m->at, .next_out = to};
  size_t in = m->packed, out = bytes;
  if (inflateInit2(&s, -MAX_WBITS) != Z_OK)
    return attn_fail(ATTN_ENOMEM, "%s: no memory to inflate", z->path);
  int code = Z_OK;
  while (code == Z_OK && (out > 0 || s.avail_out > 0)) {
    const size_t chunk = (size_t)1 << 30; /* zlib counts in 32 bits */
    if (s.avail_in == 0) {
      s.avail_in = (uInt)(in < chunk ? in : chunk);
      in -= s.avail_in;
    }
    if (s.avail_out == 0) {
      s.avail_out = (uInt)(out < chunk ? out : chunk);
      out -= s.avail_out;
    }
    code = inflate(&s, Z_NO_FLUSH);
  }
  const bool whole = out == 0 && s.avail_out == 0;
  inflateEnd(&s);
  if (whole && (code == Z_OK || code == Z_STREAM_END)) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s:%.*s: damaged: it does not inflate to the %zu bytes declared", z->path,
                   (int)m->length, m->name, m->bytes);
}

attn_status zip_read(const zip *z, const zip_member *m, void *to, size_t bytes) {
  if (m->deflated) return inflate_first(z, m, to, bytes);
  memcpy(to, m->at, bytes);
  return ATTN_OK;
}

attn_status zip_verify(const zip *z, const zip_member *m, const uint8_t *content) {
  if (crc32_z(crc32_z(0, NULL, 0), content, m->bytes) == m->crc) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s:%.*s: damaged: its checksum differs", z->path, (int)m->length, m->name);
}

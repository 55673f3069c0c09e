/* hdf5_input.c - opening HDF5 files after a look at what they would have the library do. */
#define _DEFAULT_SOURCE /* madvise */
#include "data/formats/hdf5_input.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/data.h"
#include "data/support/sha256.h"

/* Deflate makes at most 1032 bytes of one. */
enum { RATIO_MAX = 1000, TRAILER = 80 };
#define FREE_BYTES ((uint64_t)1 << 30)

hdf5_quiet hdf5_quiet_begin(void) {
  hdf5_quiet q = {0};
  H5Eget_auto2(H5E_DEFAULT, &q.print, &q.data);
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  return q;
}

void hdf5_quiet_end(hdf5_quiet q) { H5Eset_auto2(H5E_DEFAULT, q.print, q.data); }

/* ---- the walk ------------------------------------------------------------------------------------------ */

typedef struct walk {
  const char *path;
  uint64_t declared, memory, limit; /* bytes: of all datasets, of the machine, for all datasets */
  attn_status status;
} walk;

static bool is_known(H5Z_filter_t filter) {
  return filter == H5Z_FILTER_DEFLATE || filter == H5Z_FILTER_SHUFFLE || filter == H5Z_FILTER_FLETCHER32;
}

/* What reading the dataset would take from outside the file. */
static attn_status check_storage(const walk *w, const char *name, hid_t dataset) {
  const hid_t plist = H5Dget_create_plist(dataset);
  attn_status status = ATTN_OK;
  if (plist < 0) return attn_fail(ATTN_EINVAL, "%s: dataset %s: damaged", w->path, name);
  if (H5Pget_layout(plist) == H5D_VIRTUAL || H5Pget_external_count(plist) != 0)
    status = attn_fail(ATTN_EINVAL, "%s: dataset %s: data missing or stored externally", w->path, name);
  const int filters = H5Pget_nfilters(plist);
  for (int i = 0; !status && i < filters; i++) {
    unsigned flags, config;
    size_t values = 0;
    const H5Z_filter_t filter = H5Pget_filter2(plist, (unsigned)i, &flags, &values, NULL, 0, NULL, &config);
    if (!is_known(filter))
      status =
          attn_fail(ATTN_EINVAL, "%s: dataset %s: filter %d; only deflate, shuffle and fletcher32 are read",
                    w->path, name, (int)filter);
  }
  H5Pclose(plist);
  return status;
}

static attn_status check_size(walk *w, const char *name, hid_t dataset) {
  const hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
  const hssize_t count = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
  const uint64_t size = type < 0 ? 0 : H5Tget_size(type);
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  if (count < 0 || size == 0) return attn_fail(ATTN_EINVAL, "%s: dataset %s: damaged", w->path, name);
  if ((uint64_t)count > w->memory / size)
    return attn_fail(ATTN_EINVAL, "%s: dataset %s: %lld elements of %llu bytes exceed this machine's memory",
                     w->path, name, (long long)count, (unsigned long long)size);
  w->declared += (uint64_t)count * size;
  if (w->declared > w->limit)
    return attn_fail(ATTN_EINVAL,
                     "%s: its datasets up to %s declare %llu bytes, more than 1 GiB and %d times the file's "
                     "size: refused as a decompression bomb",
                     w->path, name, (unsigned long long)w->declared, RATIO_MAX);
  return ATTN_OK;
}

static herr_t visit(hid_t group, const char *name, const H5L_info_t *about, void *context) {
  walk *w = context;
  /* A soft link stays within the file: what it names is visited by a hard one. */
  if (about->type == H5L_TYPE_SOFT) return 0;
  if (about->type != H5L_TYPE_HARD) {
    w->status =
        attn_fail(ATTN_EINVAL, "%s: %s: a link to another file, which is not followed", w->path, name);
    return 1;
  }
  const hid_t object = H5Oopen(group, name, H5P_DEFAULT);
  if (object < 0) {
    w->status = attn_fail(ATTN_EINVAL, "%s: %s: damaged", w->path, name);
    return 1;
  }
  if (H5Iget_type(object) == H5I_DATASET) {
    w->status = check_storage(w, name, object);
    if (!w->status) w->status = check_size(w, name, object);
  }
  H5Oclose(object);
  return w->status ? 1 : 0;
}

attn_status hdf5_input_open(const char *path, hid_t *out) {
  size_t bytes;
  int fd;
  attn_status status = file_open(path, &fd, &bytes);
  if (status) return status;
  close(fd);
  const hdf5_quiet before = hdf5_quiet_begin();
  H5PLset_loading_state(0);
  const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  const uint64_t ratio = (uint64_t)bytes * RATIO_MAX;
  walk w = {.path = path,
            .memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
            .limit = ratio > FREE_BYTES ? ratio : FREE_BYTES};
  if (file < 0)
    status = attn_fail(ATTN_EINVAL, "%s: not an HDF5 file, or a damaged one", path);
  else if (H5Lvisit(file, H5_INDEX_NAME, H5_ITER_NATIVE, visit, &w) < 0)
    status = attn_fail(ATTN_EINVAL, "%s: damaged: its content cannot be listed", path);
  else
    status = w.status;
  hdf5_quiet_end(before);
  if (status && file >= 0) H5Fclose(file);
  if (!status) *out = file;
  return status;
}

/* ---- attributes ---------------------------------------------------------------------------------------- */

typedef struct question {
  const char *attribute, *text;
} question;

hid_t hdf5_open_scalar(hid_t file, const char *name) {
  if (H5Aexists(file, name) <= 0) return -1;
  hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
  hid_t space = attribute < 0 ? -1 : H5Aget_space(attribute);
  bool one = space >= 0 && H5Sget_simple_extent_npoints(space) == 1;
  if (space >= 0) H5Sclose(space);
  if (one || attribute < 0) return attribute;
  H5Aclose(attribute);
  return -1;
}

bool hdf5_has_text(hid_t file, const char *attribute, const char *text) {
  char found[256] = "";
  hid_t id = hdf5_open_scalar(file, attribute), type = id < 0 ? -1 : H5Aget_type(id);
  const bool fits = type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 &&
                    H5Tget_size(type) < sizeof found;
  const bool same = fits && H5Aread(id, type, found) >= 0 && strcmp(found, text) == 0;
  if (type >= 0) H5Tclose(type);
  if (id >= 0) H5Aclose(id);
  return same;
}

static attn_status answer(const char *path, void *context) {
  const question *q = context;
  const hdf5_quiet before = hdf5_quiet_begin();
  const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  const bool yes = file >= 0 && H5Aexists(file, q->attribute) > 0 &&
                   (!q->text || hdf5_has_text(file, q->attribute, q->text));
  if (file >= 0) H5Fclose(file);
  hdf5_quiet_end(before);
  return yes ? ATTN_OK : attn_fail(ATTN_EINVAL, "%s: has no attribute %s of the kind", path, q->attribute);
}

bool hdf5_input_is(const char *path, const file_map *content, const char *attribute, const char *text) {
  question q = {attribute, text};
  /* Not hdf5_input_try: a digest of the whole file takes longer than the child. */
  return file_begins(content, "\x89HDF\r\n\x1a\n") && !hdf5_try_in_child(path, answer, &q);
}

/* ---- digests ------------------------------------------------------------------------------------------- */

/* mapped: the pages of a file, which are dropped once they are read: a file of any size takes no memory. */
static void trailer_of(const void *image, size_t bytes, bool mapped, char trailer[TRAILER + 1]) {
  const size_t piece = (size_t)16 << 20;
  char hex[65], *from = (char *)(uintptr_t)image;
  sha256 digest;
  sha256_begin(&digest);
  for (size_t done = 0, size = 0; done < bytes; done += size) {
    size = bytes - done < piece ? bytes - done : piece;
    sha256_add(&digest, from + done, size);
    if (mapped) madvise(from + done, size, MADV_DONTNEED);
  }
  sha256_end(&digest, hex);
  snprintf(trailer, TRAILER + 1, "attnlab-sha256:%s\n", hex);
}

bool hdf5_carries_digest(const file_map *content) {
  char trailer[TRAILER + 1];
  if (content->bytes <= TRAILER || content->at[content->bytes - TRAILER] != 'a') return false;
  const size_t image = content->bytes - TRAILER;
  trailer_of(content->at, image, true, trailer);
  return memcmp(content->at + image, trailer, TRAILER) == 0;
}

attn_status hdf5_output(const char *path, const output_kind *kind, const void *image, size_t bytes) {
  char trailer[TRAILER + 1];
  trailer_of(image, bytes, false, trailer);
  return output_write(path, kind, (const file_part[]){{image, bytes}, {trailer, TRAILER}}, 2);
}

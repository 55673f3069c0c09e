/* file.c - reading whole files by mapping, and texts (POSIX). */
#include "data/support/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

attn_status file_open(const char *path, int *out, size_t *bytes) {
  struct stat about;
  attn_status status = ATTN_OK;
  /* A FIFO without a writer would block. */
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return attn_fail(ATTN_EFOREIGN, "%s: cannot open: %s", path, strerror(errno));
  if (fstat(fd, &about) != 0)
    status = attn_fail(ATTN_EFOREIGN, "%s: cannot stat: %s", path, strerror(errno));
  else if (!S_ISREG(about.st_mode))
    status = attn_fail(ATTN_EINVAL, "%s: not a regular file", path);
  if (status) {
    close(fd);
    return status;
  }
  *out = fd;
  *bytes = (size_t)about.st_size;
  return ATTN_OK;
}

bool file_is_regular(const char *path) {
  struct stat about;
  return stat(path, &about) == 0 && S_ISREG(about.st_mode);
}

attn_status file_map_open(const char *path, file_map *out) {
  size_t bytes = 0;
  int fd = -1;
  attn_status status = file_open(path, &fd, &bytes);
  if (status) return status;
  void *at = bytes ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
  if (!bytes)
    status = attn_fail(ATTN_EINVAL, "%s: the file is empty", path);
  else if (at == MAP_FAILED)
    status = attn_fail(ATTN_EFOREIGN, "%s: cannot map: %s", path, strerror(errno));
  else
    *out = (file_map){.at = at, .bytes = bytes};
  close(fd);
  return status;
}

void file_map_close(file_map *map) {
  /* POSIX munmap takes a pointer to data that may be written; these pages never are. */
  if (map->at) munmap((void *)(uintptr_t)map->at, map->bytes);
  *map = (file_map){0};
}

bool file_begins(const file_map *map, const char *text) {
  const size_t length = strlen(text);
  return map->bytes >= length && memcmp(map->at, text, length) == 0;
}

const char *file_describe(const file_map *map) {
  static const struct {
    const char *start, *name;
  } kinds[] = {{"{\"schema\":\"attnlab-journal\"", "the journal of a sweep"},
               {"{\"schema\": \"attnlab-journal\"", "the journal of a sweep"},
               {"\x89HDF\r\n\x1a\n", "another HDF5 file"},
               {"\x93NUMPY", "an .npy file"},
               {"\x7f"
                "ELF",
                "a program or a shared object"},
               {"<!DOCTYPE html>", "another HTML page"},
               {"schema:", "a configuration"}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (file_begins(map, kinds[i].start)) return kinds[i].name;
  return "another file";
}

char *text_format(const char *format, ...) {
  va_list list;
  va_start(list, format);
  int length = vsnprintf(NULL, 0, format, list);
  va_end(list);
  char *text = length < 0 ? NULL : malloc((size_t)length + 1);
  if (!text) {
    attn_fail(ATTN_ENOMEM, "no memory for a line of text");
    return NULL;
  }
  va_start(list, format);
  vsnprintf(text, (size_t)length + 1, format, list);
  va_end(list);
  return text;
}

char *file_join(const char *directory, const char *name) {
  size_t length = strlen(directory);
  return text_format(length > 0 && directory[length - 1] == '/' ? "%s%s" : "%s/%s", directory, name);
}

bool file_write_all(int fd, const void *at, size_t bytes) {
  const char *next = at;
  while (bytes > 0) {
    ssize_t done = write(fd, next, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return false;
    next += done;
    bytes -= (size_t)done;
  }
  return true;
}

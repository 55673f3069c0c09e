/* file.c - whole files: read by mapping, written to a temporary file, synced and renamed (POSIX). */
#define _XOPEN_SOURCE 700 /* realpath */
#include "data/support/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

attn_status file_map_open(const char *path, file_map *out) {
  attn_status status = ATTN_OK;
  struct stat about;
  void *at = NULL;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return attn_fail(ATTN_EFOREIGN, "%s: cannot open: %s", path, strerror(errno));
  if (fstat(fd, &about) != 0) {
    status = attn_fail(ATTN_EFOREIGN, "%s: cannot stat: %s", path, strerror(errno));
    goto out;
  }
  if (!S_ISREG(about.st_mode)) {
    status = attn_fail(ATTN_EINVAL, "%s: not a regular file", path);
    goto out;
  }
  if (about.st_size == 0) {
    status = attn_fail(ATTN_EINVAL, "%s: the file is empty", path);
    goto out;
  }
  at = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (at == MAP_FAILED) {
    status = attn_fail(ATTN_EFOREIGN, "%s: cannot map: %s", path, strerror(errno));
    goto out;
  }
  *out = (file_map){.at = at, .bytes = (size_t)about.st_size};
out:
  close(fd);
  return status;
}

void file_map_close(file_map *map) {
  /* POSIX munmap takes a pointer to data that may be written; these pages never are. */
  if (map->at) munmap((void *)(uintptr_t)map->at, map->bytes);
  *map = (file_map){0};
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

/* A rename is durable once its directory is synced. Some file systems cannot sync a directory, so a
 * failure is no error. */
static void sync_directory(char *path) {
  int fd = open(dirname(path), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

/* Creates a new file beside `target`; its name goes to *name. */
static int open_temporary(const char *target, char **name) {
  for (int attempt = 0; attempt < 1000; attempt++) {
    char *candidate = text_format("%s.tmp.%ld.%d", target, (long)getpid(), attempt);
    if (!candidate) return -1;
    int fd = open(candidate, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) {
      *name = candidate;
      return fd;
    }
    free(candidate);
    if (errno != EEXIST) return -1;
  }
  return -1;
}

attn_status file_write(const char *path, const file_part *parts, size_t count) {
  char *target = NULL, *temporary = NULL;
  struct stat about;
  bool exists = stat(path, &about) == 0;
  if (exists && !S_ISREG(about.st_mode))
    return attn_fail(ATTN_EINVAL, "%s: not a regular file, so it cannot be replaced", path);
  bool good = false;
  /* If the path is a symbolic link, the file that it points to is replaced. */
  target = exists ? realpath(path, NULL) : text_format("%s", path);
  if (!target) goto out;
  int fd = open_temporary(target, &temporary);
  if (fd < 0) goto out;
  good = !exists || fchmod(fd, about.st_mode & 07777) == 0;
  for (size_t i = 0; good && i < count; i++) good = file_write_all(fd, parts[i].at, parts[i].bytes);
  good = good && fsync(fd) == 0;
  good = close(fd) == 0 && good;
  good = good && rename(temporary, target) == 0;
  if (good) sync_directory(target);
out:
  if (!good) {
    int reason = errno;
    if (temporary) unlink(temporary);
    attn_fail(ATTN_EFOREIGN, "%s: cannot write: %s", path, strerror(reason));
  }
  free(temporary);
  free(target);
  return good ? ATTN_OK : ATTN_EFOREIGN;
}

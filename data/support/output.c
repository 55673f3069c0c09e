/* output.c - writing whole files: a new name in the target's directory, synced and renamed (POSIX). */
#define _XOPEN_SOURCE 700 /* realpath */
#include "data/support/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINKS_MAX = 40, ATTEMPTS_MAX = 100 };

static attn_status failed(const char *path, const char *what) {
  return attn_fail(ATTN_EFOREIGN, "%s: %s: %s", path, what, strerror(errno));
}

/* ---- where the bytes go -------------------------------------------------------------------------------- */

/* The path that a symbolic link names, which may not exist. */
static attn_status follow(const char *link, char **out) {
  char name[4096];
  const ssize_t length = readlink(link, name, sizeof name - 1);
  if (length < 0) return failed(link, "cannot read the link");
  name[length] = '\0';
  char *copy = text_format("%s", link);
  char *made = !copy ? NULL : *name == '/' ? text_format("%s", name) : file_join(dirname(copy), name);
  free(copy);
  if (!made) return ATTN_ENOMEM;
  *out = made;
  return ATTN_OK;
}

/* The path after its last component's links. */
static attn_status resolve(const char *path, char **out) {
  struct stat about;
  char *at = text_format("%s", path);
  attn_status status = at ? ATTN_OK : ATTN_ENOMEM;
  for (int links = 0; !status && lstat(at, &about) == 0 && S_ISLNK(about.st_mode); links++) {
    char *next = NULL;
    status =
        links == LINKS_MAX ? attn_fail(ATTN_EINVAL, "%s: too many symbolic links", path) : follow(at, &next);
    if (status) break;
    free(at);
    at = next;
  }
  if (status)
    free(at);
  else
    *out = at;
  return status;
}

/* The directory that a path lies in, where links end. */
static bool stat_directory(const char *path, struct stat *about) {
  char *copy = text_format("%s", path);
  const bool found = copy && stat(dirname(copy), about) == 0;
  free(copy);
  return found;
}

static const char *last_part(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

attn_status output_same(const char *a, const char *b, bool *same) {
  char *x = NULL, *y = NULL;
  struct stat of_x, of_y;
  attn_status status = resolve(a, &x);
  if (!status) status = resolve(b, &y);
  *same = !status && strcmp(last_part(x), last_part(y)) == 0 && stat_directory(x, &of_x) &&
          stat_directory(y, &of_y) && of_x.st_dev == of_y.st_dev && of_x.st_ino == of_y.st_ino;
  free(x);
  free(y);
  return status;
}

typedef struct target {
  char *path;        /* to rename to */
  bool exists, flow; /* flow: written to in place */
  struct stat about; /* if it exists */
} target;

static attn_status refuse_other(const char *path, const output_kind *kind) {
  file_map content;
  attn_status status = file_map_open(path, &content);
  if (status) return status;
  if (!kind->is(path, &content))
    status = attn_fail(ATTN_EINVAL,
                       "%s: this is %s, not %s, and is not replaced: choose another name, or remove it", path,
                       file_describe(&content), kind->name);
  file_map_close(&content);
  return status;
}

/* On success t->path is the caller's. */
static attn_status find_target(const char *path, const output_kind *kind, target *t) {
  struct stat found;
  *t = (target){0};
  t->exists = stat(path, &t->about) == 0;
  if (!t->exists && errno != ENOENT) return failed(path, "cannot write");
  t->flow = t->exists && (S_ISFIFO(t->about.st_mode) || S_ISCHR(t->about.st_mode));
  if (t->exists && !t->flow && !S_ISREG(t->about.st_mode))
    return attn_fail(ATTN_EINVAL, "%s: not a regular file, so it cannot be replaced", path);
  if (t->flow) {
    t->path = text_format("%s", path);
    return t->path ? ATTN_OK : ATTN_ENOMEM;
  }
  attn_status status = resolve(path, &t->path);
  if (!status && !stat_directory(t->path, &found)) {
    status = failed(path, "cannot write");
    free(t->path);
  }
  if (status || !t->exists) return status;
  /* /dev/stdout may be a file that has lost its name. */
  if (lstat(t->path, &found) || found.st_dev != t->about.st_dev || found.st_ino != t->about.st_ino)
    status = attn_fail(ATTN_EINVAL, "%s: the file has no name under which it could be replaced", path);
  if (!status && t->about.st_size > 0) status = refuse_other(path, kind);
  if (!status) return ATTN_OK;
  free(t->path);
  return status;
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static bool write_parts(int fd, const file_part *parts, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (!file_write_all(fd, parts[i].at, parts[i].bytes)) return false;
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

/* Nobody can know the name of a temporary file before it is there. */
static uint64_t random_name(void) {
  uint64_t bits = 0;
  const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  const bool good = fd >= 0 && read(fd, &bits, sizeof bits) == (ssize_t)sizeof bits;
  if (fd >= 0) close(fd);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return good ? bits : (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec;
}

/* Creates a new file beside the target; its name goes to *name. */
static int open_temporary(const char *path, char **name) {
  for (int attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    char *candidate = text_format("%s.tmp.%ld.%016" PRIx64, path, (long)getpid(), random_name());
    if (!candidate) {
      errno = ENOMEM;
      return -1;
    }
    int fd = open(candidate, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd >= 0) {
      *name = candidate;
      return fd;
    }
    const int reason = errno;
    free(candidate);
    errno = reason;
    if (errno != EEXIST) return -1;
  }
  return -1;
}

/* The owner first: changing it may clear bits of the mode, and only root may give a file away. */
static bool hand_down(int fd, const struct stat *about) {
  const bool given = fchown(fd, about->st_uid, about->st_gid) == 0;
  return fchmod(fd, about->st_mode & (given ? 07777 : 0777)) == 0;
}

static bool replace(target *t, const file_part *parts, size_t count) {
  char *temporary = NULL;
  const int fd = open_temporary(t->path, &temporary);
  if (fd < 0) return false;
  bool good = (!t->exists || hand_down(fd, &t->about)) && write_parts(fd, parts, count) && fsync(fd) == 0;
  good = close(fd) == 0 && good;
  good = good && rename(temporary, t->path) == 0;
  if (good) {
    sync_directory(t->path);
  } else {
    const int reason = errno;
    unlink(temporary);
    errno = reason;
  }
  free(temporary);
  return good;
}

/* A FIFO that nobody reads fails to open instead of waiting. */
static bool pour(const char *path, const file_part *parts, size_t count) {
  const int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return false;
  const int flags = fcntl(fd, F_GETFL);
  bool good = flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0 && write_parts(fd, parts, count);
  return close(fd) == 0 && good;
}

attn_status output_write(const char *path, const output_kind *kind, const file_part *parts, size_t count) {
  target t;
  attn_status status = find_target(path, kind, &t);
  if (status) return status;
  if (!(t.flow ? pour(t.path, parts, count) : replace(&t, parts, count)))
    status = failed(path, "cannot write");
  free(t.path);
  return status;
}

attn_status output_check(const char *path, const output_kind *kind, const char *const *inputs, size_t count) {
  target t;
  struct stat there, input;
  const bool regular = stat(path, &there) == 0 && S_ISREG(there.st_mode);
  for (size_t i = 0; regular && i < count; i++)
    if (inputs[i] && stat(inputs[i], &input) == 0 && input.st_dev == there.st_dev &&
        input.st_ino == there.st_ino)
      return attn_fail(ATTN_EINVAL, "%s: the output would replace the input %s", path, inputs[i]);
  const attn_status status = find_target(path, kind, &t);
  if (!status) free(t.path);
  return status;
}

attn_status output_check_params(const char *path, const output_kind *kind, const attn_param *table,
                                const void *params) {
  attn_status status = ATTN_OK;
  for (const attn_param *p = table; !status && p && p->name; p++) {
    const void *at = (const char *)params + p->offset;
    if (p->type == ATTN_TEXT) status = output_check(path, kind, at, 1);
  }
  return status;
}

/* ---- temporary files that were left -------------------------------------------------------------------- */

/* Whether `name` is a temporary file for `base` of a process that is gone. */
static bool abandoned(const char *name, const char *base) {
  const size_t length = strlen(base);
  long pid;
  int end = 0;
  if (strncmp(name, base, length) != 0) return false;
  if (sscanf(name + length, ".tmp.%ld.%*16[0-9a-f]%n", &pid, &end) != 1 || !end || name[length + (size_t)end])
    return false;
  return pid > 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

void output_clean(const char *path) {
  char *place = NULL;
  if (resolve(path, &place)) return;
  char *copy = text_format("%s", place);
  const char *directory = copy ? dirname(copy) : NULL, *slash = strrchr(place, '/');
  DIR *list = directory ? opendir(directory) : NULL;
  for (struct dirent *entry; list && (entry = readdir(list));) {
    if (!abandoned(entry->d_name, slash ? slash + 1 : place)) continue;
    char *stale = file_join(directory, entry->d_name);
    if (stale) unlink(stale);
    free(stale);
  }
  if (list) closedir(list);
  free(copy);
  free(place);
}

/* data_fixture.h - a directory for files, whole files as bytes, and what a refusal must look like. */
#ifndef TESTS_SUPPORT_DATA_FIXTURE_H
#define TESTS_SUPPORT_DATA_FIXTURE_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data.h"

static char fixture_dir[64];

static inline void fixture_begin(void) {
  snprintf(fixture_dir, sizeof fixture_dir, "/tmp/attnlab-data-XXXXXX");
  cr_assert_not_null(mkdtemp(fixture_dir));
}

static inline void fixture_remove(const char *dir) {
  DIR *d = opendir(dir);
  for (struct dirent *e; d && (e = readdir(d));) {
    char path[1024];
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
    snprintf(path, sizeof path, "%.500s/%.255s", dir, e->d_name);
    if (unlink(path) != 0) fixture_remove(path);
  }
  if (d) closedir(d);
  rmdir(dir);
}

static inline void fixture_end(void) { fixture_remove(fixture_dir); }

/* Entries of the directory: nothing half-written may stay. */
static inline int fixture_entries(void) {
  int count = 0;
  DIR *d = opendir(fixture_dir);
  while (d && readdir(d)) count++;
  if (d) closedir(d);
  return count - 2;
}

/* Paths live until the eighth call after. */
static inline const char *fixture_path(const char *name) {
  static char paths[8][256];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof *paths, "%s/%s", fixture_dir, name);
  return path;
}

static inline void fixture_write(const char *path, const void *at, size_t bytes) {
  FILE *f = fopen(path, "wb");
  cr_assert_not_null(f, "%s", path);
  cr_assert_eq(fwrite(at, 1, bytes, f), bytes);
  cr_assert_eq(fclose(f), 0);
}

static inline unsigned char *fixture_read(const char *path, size_t *bytes) {
  FILE *f = fopen(path, "rb");
  cr_assert_not_null(f, "%s", path);
  fseek(f, 0, SEEK_END);
  *bytes = (size_t)ftell(f);
  rewind(f);
  unsigned char *at = malloc(*bytes + 1);
  cr_assert_eq(fread(at, 1, *bytes, f), *bytes);
  at[*bytes] = 0;
  fclose(f);
  return at;
}

/* A refusal has the status, and a line that names `what`. */
#define assert_refused(call, wanted, what)                                                                  \
  do {                                                                                                      \
    attn_status refusal = (call);                                                                           \
    cr_assert_eq(refusal, wanted, "%s: %s, %s", #call, attn_status_name(refusal), attn_last_error());       \
    cr_assert_not_null(strstr(attn_last_error(), what), "'%s' does not say '%s'", attn_last_error(), what); \
    cr_assert_null(strchr(attn_last_error(), '\n'));                                                        \
  } while (0)

#define assert_ok(call) cr_assert_eq(call, ATTN_OK, "%s: %s", #call, attn_last_error())

#endif

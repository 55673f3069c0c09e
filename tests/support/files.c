/* files.c - a step that fails prints the system's reason and aborts. */
#define _XOPEN_SOURCE 700
#include "tests/support/files.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/basics/kept.h"
#include "tests/support/basics/text.h"

char fixture_directory[64];

static void require(int ok, const char *what) {
  if (ok) return;
  perror(what);
  abort();
}

static int remove_entry(const char *path, const struct stat *about, int type, struct FTW *place) {
  (void)about, (void)type, (void)place;
  return remove(path);
}

void fixture_end(void) {
  if (*fixture_directory) nftw(fixture_directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
  *fixture_directory = '\0';
}

void fixture_begin(void) {
  snprintf(fixture_directory, sizeof fixture_directory, "/tmp/attnlab-test-XXXXXX");
  require(mkdtemp(fixture_directory) && atexit(fixture_end) == 0, fixture_directory);
}

int fixture_entries(void) {
  DIR *dir = opendir(fixture_directory);
  int count = -2; /* . and .. */
  require(dir != NULL, fixture_directory);
  while (readdir(dir)) count++;
  closedir(dir);
  return count;
}

const char *fixture_path(const char *name) {
  static char paths[8][256]; /* no memory is asked for, which tests may refuse */
  static int next;
  char *path = paths[next++ % 8];
  if (!*fixture_directory) fixture_begin();
  snprintf(path, sizeof *paths, "%s/%s", fixture_directory, name);
  return path;
}

void fixture_write(const char *path, const void *at, size_t bytes) {
  FILE *file = fopen(path, "wb");
  require(file && fwrite(at, 1, bytes, file) == bytes && fclose(file) == 0, path);
}

const char *fixture_npy(const char *name, const char *descr, const char *shape, const void *at,
                        size_t bytes) {
  const char *path = fixture_path(name);
  const char *header = text_of("{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }", descr, shape);
  FILE *file = fopen(path, "wb");
  require(file && fprintf(file, "\x93NUMPY%c%c%c%c%-117s\n", 1, 0, 118, 0, header) == 128 &&
              fwrite(at, 1, bytes, file) == bytes && fclose(file) == 0,
          path);
  return path;
}

void *fixture_bytes(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  require(file && fseek(file, 0, SEEK_END) == 0, path);
  *size = (size_t)ftell(file);
  rewind(file);
  char *bytes = malloc(*size + 1);
  require(bytes && fread(bytes, 1, *size, file) == *size, path);
  bytes[*size] = '\0';
  fclose(file);
  return bytes;
}

static void release_bytes(void *kept) { free(*(void **)kept); }

char *fixture_text(const char *path) {
  size_t size;
  char *text = fixture_bytes(path, &size);
  keep_copy(&text, sizeof text, release_bytes);
  return text;
}

size_t fixture_lines(const char *path) {
  FILE *file = fopen(path, "rb");
  size_t lines = 0;
  for (int c; file && (c = getc(file)) != EOF;) lines += c == '\n';
  if (file) fclose(file);
  return lines;
}

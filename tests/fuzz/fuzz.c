/* fuzz.c - the checks, texts and files that the targets share. */
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MARK = 0x5a };
static const char forgotten[] = "no message yet";

void fuzz_stop(const char *condition, const char *file, int line) {
  fprintf(stderr, "%s:%d: required: %s\nlast message: %s\n", file, line, condition, attn_last_error());
  abort();
}

void fuzz_prepare(void *result, size_t size) {
  attn_fail(ATTN_OK, "%s", forgotten);
  if (size) memset(result, MARK, size);
}

bool fuzz_succeeded(attn_status status, const void *result, size_t size) {
  if (!status) return true;
  const char *message = attn_last_error(), *marks = result;
  REQUIRE(*message && strcmp(message, forgotten) != 0);
  for (const char *c = message; *c; c++) REQUIRE((unsigned char)*c >= ' ' && *c != 127);
  for (size_t i = 0; i < size; i++) REQUIRE(marks[i] == MARK);
  return false;
}

char *fuzz_text(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  REQUIRE(text);
  if (size) memcpy(text, data, size);
  text[size] = '\0';
  return text;
}

static char directory[256], path[512];

static void clean_up(void) {
  unlink(path);
  rmdir(directory);
}

const char *fuzz_directory(void) {
  const char *where = getenv("TMPDIR");
  if (*directory) return directory;
  snprintf(directory, sizeof directory, "%s/attn_fuzz.XXXXXX", where ? where : "/tmp");
  REQUIRE(mkdtemp(directory));
  atexit(clean_up);
  return directory;
}

const char *fuzz_file(const char *name, const uint8_t *data, size_t size) {
  static int file = -1;
  if (file < 0) {
    snprintf(path, sizeof path, "%s/%s", fuzz_directory(), name);
    file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    REQUIRE(file >= 0);
  }
  REQUIRE(pwrite(file, data, size, 0) == (ssize_t)size && ftruncate(file, (off_t)size) == 0);
  return path;
}

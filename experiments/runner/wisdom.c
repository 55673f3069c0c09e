/* wisdom.c - see wisdom.h. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/support/file.h"
#include "experiments/instruments/machine.h"
#include "experiments/runner/wisdom.h"

enum { CPU_TEXT = 200, FILE_MOST = 1 << 20 };

static const char *nonempty(const char *text) { return text && *text ? text : NULL; }

char *cache_path(const char *variable, const char *name) {
  const char *given = getenv(variable), *home = nonempty(getenv("HOME")),
             *cache = nonempty(getenv("XDG_CACHE_HOME"));
  if (given) return *given ? text_format("%s", given) : NULL;
  if (cache) return text_format("%s/attnlab/%s", cache, name);
  return home ? text_format("%s/.cache/attnlab/%s", home, name) : NULL;
}

char *wisdom_path(void) { return cache_path("ATTNLAB_WISDOM", "wisdom"); }

/* The processor and the caches that sizes depend on, as printable ASCII. */
static void describe_cpu(char text[CPU_TEXT]) {
  char name[CPU_TEXT - 64];
  machine_processor(name, sizeof name);
  for (char *c = name; *c; c++)
    if (*c < ' ' || *c > '~') *c = '?';
  snprintf(text, CPU_TEXT, "%s, L1d %lld KiB, L2 %lld KiB", name, (long long)attn_cache_size(1).bytes >> 10,
           (long long)attn_cache_size(2).bytes >> 10);
}

static attn_status read_text(const char *path, char **text) {
  file_map map;
  attn_status status = file_map_open(path, &map);
  if (status != ATTN_OK) return status;
  char *copy = map.bytes <= FILE_MOST ? malloc(map.bytes + 1) : NULL;
  if (copy) {
    memcpy(copy, map.at, map.bytes);
    copy[map.bytes] = '\0';
    /* The text ends at a NUL; anything else that is not printable gets a message with its line. */
    for (size_t i = 0; i < map.bytes; i++)
      if (!copy[i]) copy[i] = '\1';
    *text = copy;
  } else {
    status = map.bytes <= FILE_MOST
                 ? attn_fail(ATTN_ENOMEM, "%s: no memory to read it", path)
                 : attn_fail(ATTN_EINVAL, "%s: %zu bytes are too many for wisdom", path, map.bytes);
  }
  file_map_close(&map);
  return status;
}

attn_status wisdom_load(void) {
  char cpu[CPU_TEXT], message[400], *text = NULL, *path = wisdom_path();
  struct stat about;
  if (!path || (stat(path, &about) != 0 && (errno == ENOENT || errno == ENOTDIR))) {
    free(path);
    return ATTN_OK;
  }
  attn_status status = read_text(path, &text);
  if (status == ATTN_OK) {
    describe_cpu(cpu);
    status = attn_wisdom_import(text, cpu);
    snprintf(message, sizeof message, "%s", attn_last_error());
    if (status != ATTN_OK) attn_fail(status, "%s: %s", path, message);
  }
  free(text);
  free(path);
  return status;
}

attn_status cache_directories(const char *path) {
  char *prefix = text_format("%s", path);
  if (!prefix) return ATTN_ENOMEM;
  for (char *slash = strchr(prefix + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    mkdir(prefix, 0777);
    *slash = '/';
  }
  free(prefix);
  return ATTN_OK;
}

attn_status wisdom_save(const char *path, bool directories, const char *lines) {
  char cpu[CPU_TEXT];
  describe_cpu(cpu);
  char *text = text_format("attnlab wisdom 1\ncpu %s\n%s", cpu, lines);
  attn_status status = text ? attn_wisdom_import(text, cpu) : ATTN_ENOMEM;
  if (status == ATTN_OK && directories) status = cache_directories(path);
  if (status == ATTN_OK) status = file_write(path, &(file_part){text, strlen(text)}, 1);
  free(text);
  return status;
}

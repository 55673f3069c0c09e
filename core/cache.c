/* cache.c - the sizes of a core's caches: from the C library, else from Linux in /sys, else those of most
 * processors. A size that no processor has is ignored. */
#define _POSIX_C_SOURCE 200809L
#include "core/internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LEVELS = 3, INDEXES = 8, TEXT = 32 };

static const struct {
  int64_t least, most, assumed;
} levels[LEVELS] = {{INT64_C(1) << 12, INT64_C(1) << 22, INT64_C(1) << 15},
                    {INT64_C(1) << 15, INT64_C(1) << 30, INT64_C(1) << 19},
                    {INT64_C(1) << 18, INT64_C(1) << 36, INT64_C(1) << 23}};

/* The line in directory/index<index>/<name>; "" if there is none. */
static void read_line(const char *directory, int index, const char *name, char text[TEXT]) {
  char path[512];
  int length = snprintf(path, sizeof path, "%s/index%d/%s", directory, index, name);
  int fd = length < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  ssize_t count = fd < 0 ? 0 : read(fd, text, TEXT - 1);
  if (fd >= 0) close(fd);
  text[count > 0 ? count : 0] = '\0';
  text[strcspn(text, "\n")] = '\0';
}

/* "32K"; 0 for what is no such number. */
static int64_t parse_size(const char *text) {
  int64_t value = 0;
  size_t digits = strspn(text, "0123456789");
  if (digits == 0 || digits > 9) return 0;
  for (size_t i = 0; i < digits; i++) value = 10 * value + (text[i] - '0');
  const char *unit = text + digits;
  if (!strcmp(unit, "K")) return value << 10;
  if (!strcmp(unit, "M")) return value << 20;
  return *unit ? 0 : value;
}

static int64_t system_size(int level, const char *directory) {
  char text[TEXT];
  for (int i = 0; i < INDEXES; i++) {
    read_line(directory, i, "level", text);
    if (parse_size(text) != level) continue;
    read_line(directory, i, "type", text);
    if (!strcmp(text, "Instruction")) continue;
    read_line(directory, i, "size", text);
    return parse_size(text);
  }
  return 0;
}

attn_cache attn_cache_decide(int level, int64_t reported, const char *directory) {
  int64_t least = levels[level - 1].least, most = levels[level - 1].most;
  if (reported >= least && reported <= most) return (attn_cache){reported, "sysconf"};
  int64_t bytes = system_size(level, directory);
  if (bytes >= least && bytes <= most) return (attn_cache){bytes, "/sys"};
  return (attn_cache){levels[level - 1].assumed, "assumed"};
}

attn_cache attn_cache_size(int level) {
  if (level < 1 || level > LEVELS) return (attn_cache){0, "none"};
#ifdef _SC_LEVEL1_DCACHE_SIZE
  static const int names[LEVELS] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
  int64_t reported = sysconf(names[level - 1]);
#else
  int64_t reported = 0;
#endif
  return attn_cache_decide(level, reported, "/sys/devices/system/cpu/cpu0/cache");
}

/* guard.c - blocks of memory between forbidden pages, by mmap and mprotect. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "experiments/instruments/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KNOWN = 0xa5 };

static size_t page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

attn_status guard_open(guard *g, size_t bytes, size_t alignment) {
  const size_t p = page();
  if (bytes > SIZE_MAX / 2) return attn_fail(ATTN_ENOMEM, "no memory for %zu bytes", bytes);
  const size_t room = (bytes + alignment - 1) / alignment * alignment, pages = (room + p - 1) / p * p;
  unsigned char *map = mmap(NULL, pages + 2 * p, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return attn_fail(ATTN_ENOMEM, "no memory for %zu bytes", bytes);
  const guard made = {map + p + pages - room, bytes, map + p, map + p + pages};
  if (mprotect(made.first, pages, PROT_READ | PROT_WRITE) != 0) {
    munmap(map, pages + 2 * p);
    return attn_fail(ATTN_ENOMEM, "no memory for %zu bytes: %s", bytes, strerror(errno));
  }
  guard_reset(&made);
  *g = made;
  return ATTN_OK;
}

void guard_close(guard *g) {
  if (g->at) munmap(g->first - page(), (size_t)(g->end - g->first) + 2 * page());
  *g = (guard){0};
}

static bool known(const unsigned char *from, const unsigned char *to) {
  while (from < to)
    if (*from++ != KNOWN) return false;
  return true;
}

guard_state guard_check(const guard *g) {
  return !known(g->first, g->at)            ? GUARD_BEFORE
         : !known(g->at + g->bytes, g->end) ? GUARD_BEHIND
                                            : GUARD_INTACT;
}

void guard_reset(const guard *g) {
  memset(g->first, KNOWN, (size_t)(g->at - g->first));
  memset(g->at + g->bytes, KNOWN, (size_t)(g->end - g->at) - g->bytes);
}

static attn_status protect(const guard *g, int protection) {
  if (mprotect(g->first, (size_t)(g->end - g->first), protection) == 0) return ATTN_OK;
  return attn_fail(ATTN_EFOREIGN, "mprotect: %s", strerror(errno));
}

attn_status guard_freeze(const guard *g) { return protect(g, PROT_READ); }

attn_status guard_thaw(const guard *g) { return protect(g, PROT_READ | PROT_WRITE); }

attn_status guard_adopt(guard *g, void **memory, size_t bytes, size_t alignment) {
  guard made = {0};
  attn_status status = guard_open(&made, bytes, alignment);
  if (status) return status;
  memcpy(made.at, *memory, bytes);
  status = guard_freeze(&made);
  if (status) {
    guard_close(&made);
    return status;
  }
  free(*memory);
  *memory = NULL;
  *g = made;
  return ATTN_OK;
}

/* -- watching -- */

static struct {
  guard blocks[GUARD_WATCHED];
  int count;
  size_t page;
  struct sigaction before;
  atomic_int touched; /* 1 + the block */
  ptrdiff_t byte;
} watched;

/* Opens the page, so that the access is repeated and succeeds. What no block's page caused is somebody
 * else's: with the old action back in place it happens again. */
static void note_touch(int number, siginfo_t *info, void *context) {
  const uintptr_t at = (uintptr_t)info->si_addr;
  (void)context;
  for (int b = 0; b < watched.count; b++) {
    const guard *g = &watched.blocks[b];
    const uintptr_t first = (uintptr_t)g->first, end = (uintptr_t)g->end;
    const bool behind = at >= end && at < end + watched.page,
               ahead = at < first && at >= first - watched.page;
    int none = 0;
    if (!behind && !ahead) continue;
    if (mprotect(behind ? g->end : g->first - watched.page, watched.page, PROT_READ | PROT_WRITE) != 0) break;
    if (atomic_compare_exchange_strong(&watched.touched, &none, b + 1))
      watched.byte = (ptrdiff_t)(at - (uintptr_t)g->at);
    return;
  }
  sigaction(number, &watched.before, NULL);
}

attn_status guard_watch(const guard *const *blocks, int count) {
  struct sigaction action = {.sa_sigaction = note_touch, .sa_flags = SA_SIGINFO};
  if (count > GUARD_WATCHED) return attn_fail(ATTN_EINVAL, "%d blocks to watch", count);
  for (int b = 0; b < count; b++) watched.blocks[b] = *blocks[b];
  watched.count = count;
  watched.page = page();
  atomic_store(&watched.touched, 0);
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGSEGV, &action, &watched.before) == 0) return ATTN_OK;
  return attn_fail(ATTN_EFOREIGN, "sigaction: %s", strerror(errno));
}

guard_touch guard_unwatch(void) {
  sigaction(SIGSEGV, &watched.before, NULL);
  return (guard_touch){atomic_load(&watched.touched) - 1, watched.byte};
}

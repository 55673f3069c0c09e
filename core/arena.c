/* arena.c - the memory of a plan: chunks from the injected allocator, released together. */
#define _DEFAULT_SOURCE /* madvise */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64, CHUNK = 64 * 1024, HUGE_PAGE = 2 * 1024 * 1024 };

struct arena_chunk {
  struct arena_chunk *next;
  size_t bytes, used;
};

struct arena_handle {
  struct arena_handle *next;
  void *handle;
  void (*release)(void *handle);
};

static void *libc_alloc(void *context, size_t bytes) {
  (void)context;
  void *p = NULL;
  bool huge = bytes >= HUGE_PAGE;
  if (posix_memalign(&p, huge ? HUGE_PAGE : ALIGNMENT, bytes)) return NULL;
#ifdef MADV_HUGEPAGE
  /* Projections of hundreds of megabytes are read from end to end; on small pages address translation takes a
   * quarter of that time. The system may ignore this advice without harm. */
  if (huge) madvise(p, bytes, MADV_HUGEPAGE);
#endif
  return p;
}
static void libc_release(void *context, void *p, size_t bytes) {
  (void)context, (void)bytes;
  free(p);
}
const attn_allocator attn_allocator_libc = {libc_alloc, libc_release, NULL};

static size_t header_bytes(void) {
  return (sizeof(struct arena_chunk) + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

void *attn_arena_alloc(attn_arena *a, int64_t count, size_t size) {
  size_t want;
  int64_t factors[] = {count, (int64_t)size};
  if (attn_size_product("plan memory", factors, 2, &want)) return NULL;
  want = (want + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
  struct arena_chunk *c = a->chunks;
  if (!c || c->bytes - c->used < want) {
    size_t bytes = header_bytes() + (want > CHUNK ? want : CHUNK);
    c = a->allocator.alloc(a->allocator.context, bytes);
    if (!c) {
      attn_fail(ATTN_ENOMEM, "plan: the allocator refused %zu bytes", bytes);
      return NULL;
    }
    *c = (struct arena_chunk){a->chunks, bytes, header_bytes()};
    a->chunks = c;
    a->bytes += bytes;
  }
  void *piece = (char *)c + c->used;
  c->used += want;
  return piece;
}

void attn_arena_free(attn_arena *a) {
  for (const struct arena_handle *h = a->handles; h; h = h->next) h->release(h->handle);
  a->handles = NULL;
  for (struct arena_chunk *c = a->chunks, *next; c; c = next) {
    next = c->next;
    a->allocator.release(a->allocator.context, c, c->bytes);
  }
  a->chunks = NULL;
}

const attn_context *attn_builder_context(const attn_builder *b) { return b ? &b->context : NULL; }

static void *builder_alloc(attn_arena *a, int64_t count, size_t size) {
  if (a) return attn_arena_alloc(a, count, size);
  attn_null("plan memory", "builder");
  return NULL;
}

void *attn_builder_alloc(attn_builder *b, int64_t count, size_t size) {
  return builder_alloc(b ? b->arena : NULL, count, size);
}

void *attn_builder_scratch(attn_builder *b, int64_t count, size_t size) {
  return builder_alloc(b ? b->scratch : NULL, count, size);
}

attn_status attn_builder_keep(attn_builder *b, const void *value, size_t size, const void **kept) {
  if (!value) return attn_null("plan memory", "value");
  if (!kept) return attn_null("plan memory", "kept");
  void *copy = b ? attn_builder_alloc(b, 1, size) : NULL;
  if (b && !copy) return ATTN_ENOMEM;
  *kept = copy ? memcpy(copy, value, size) : NULL;
  return ATTN_OK;
}

attn_status attn_arena_own(attn_arena *a, void *handle, void (*release)(void *handle)) {
  struct arena_handle *entry = attn_arena_alloc(a, 1, sizeof *entry);
  if (!entry) {
    release(handle);
    return ATTN_ENOMEM;
  }
  *entry = (struct arena_handle){a->handles, handle, release};
  a->handles = entry;
  return ATTN_OK;
}

attn_status attn_builder_own(attn_builder *b, void *handle, void (*release)(void *handle)) {
  if (!b) return attn_null("handle", "builder");
  if (!release) return attn_null("handle", "release");
  return attn_arena_own(b->arena, handle, release);
}

/* fence.c - a block is a slot of whole pages, the last of them forbidden; the mapping begins
 * with another forbidden page. */
#define _DEFAULT_SOURCE
#include "tests/support/fence.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static size_t round_up(size_t bytes) { return (bytes + page() - 1) / page() * page(); }

/* Bytes from the first element of a batch entry's block to the end of its last. */
static size_t extent(const fence *f, int64_t batch) {
  return f->rows[batch] ? (size_t)((f->rows[batch] - 1) * f->stride.row + f->columns) * f->size : 0;
}

static unsigned char *block(const fence *f, int64_t batch, int64_t head) {
  return f->at + (batch * f->stride.batch + head * f->stride.head) * (int64_t)f->size;
}

/* The pages that a block lies on. */
static size_t pages_of(const fence *f, int64_t batch, int64_t head, unsigned char **first) {
  size_t offset = (size_t)(block(f, batch, head) - f->map), from = offset / page() * page();
  *first = f->map + from;
  return round_up(offset + extent(f, batch)) - from;
}

static void protect(const fence *f, int access) {
  for (int64_t b = 0; b < f->batch; b++)
    for (int64_t h = 0; h < f->heads; h++) {
      unsigned char *first;
      size_t bytes = pages_of(f, b, h, &first);
      if (extent(f, b) && mprotect(first, bytes, access) != 0) abort();
    }
}

/* Sets the strides, maps, and opens the pages that hold rows. */
static void build(fence *f, placing where, unsigned char fill) {
  size_t most = 0, shift = where.shift * f->size;
  f->stride.row = f->columns + where.gap;
  for (int64_t b = 0; b < f->batch; b++) most = extent(f, b) > most ? extent(f, b) : most;
  size_t slot = round_up(most + shift) + page(), blocks = (size_t)(f->batch * f->heads);
  f->mapped = page() + blocks * slot;
  f->map = mmap(NULL, f->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (f->map == MAP_FAILED || f->batch > 2) abort();
  f->at = f->map + (where.at_end ? slot - extent(f, 0) - shift : page() + shift);
  f->stride.head = (int64_t)(slot / f->size);
  f->stride.batch = f->stride.head * f->heads;
  if (where.at_end && f->batch == 2)
    f->stride.batch += ((int64_t)extent(f, 0) - (int64_t)extent(f, 1)) / (int64_t)f->size;
  protect(f, PROT_READ | PROT_WRITE);
  for (int64_t b = 0; b < f->batch; b++)
    for (int64_t h = 0; h < f->heads; h++) {
      unsigned char *first;
      size_t bytes = pages_of(f, b, h, &first);
      if (extent(f, b)) memset(first, fill, bytes);
    }
}

fence fence_make(const attn_problem *p, tensor which, const int64_t *rows, placing where,
                 unsigned char fill) {
  bool keys = which == TENSOR_K || which == TENSOR_V, values = which == TENSOR_V || which == TENSOR_O;
  fence f = {.batch = p->batch,
             .heads = keys ? p->kv_heads : p->heads,
             .columns = values ? p->d_v : p->d_qk,
             .size = attn_dtype_size(p->dtype)};
  memcpy(f.rows, rows, (size_t)p->batch * sizeof *rows);
  build(&f, where, fill);
  return f;
}

fence fence_block(size_t bytes, placing where, unsigned char fill) {
  fence f = {.batch = 1, .heads = 1, .columns = (int64_t)bytes, .rows = {bytes > 0}, .size = 1};
  build(&f, where, fill);
  return f;
}

static void *row_at(const fence *f, int64_t b, int64_t h, int64_t i) {
  return block(f, b, h) + i * f->stride.row * (int64_t)f->size;
}

void fence_load(const fence *f, const inputs *in, tensor which) {
  for (int64_t b = 0; b < f->batch; b++)
    for (int64_t h = 0; h < f->heads; h++)
      for (int64_t i = 0; i < f->rows[b]; i++)
        for (int64_t l = 0; l < f->columns; l++)
          attn_set(row_at(f, b, h, i), l, in->problem.dtype, inputs_get(in, which, b, h, i, l));
  protect(f, PROT_READ);
}

void *fence_gather(const fence *f) {
  size_t bytes = (size_t)f->columns * f->size, rows = (size_t)(f->batch * f->heads * f->rows[0]);
  unsigned char *out = malloc(rows * bytes), *to = out;
  if (!out) abort();
  for (int64_t b = 0; b < f->batch; b++)
    for (int64_t h = 0; h < f->heads; h++)
      for (int64_t i = 0; i < f->rows[b]; i++, to += bytes) memcpy(to, row_at(f, b, h, i), bytes);
  return out;
}

static bool all_are(const unsigned char *from, const unsigned char *to, unsigned char fill) {
  while (from < to)
    if (*from++ != fill) return false;
  return true;
}

bool fence_intact(const fence *f, unsigned char fill) {
  for (int64_t b = 0; b < f->batch; b++)
    for (int64_t h = 0; h < f->heads; h++) {
      unsigned char *first, *done;
      size_t bytes = pages_of(f, b, h, &first);
      done = first;
      if (!extent(f, b)) continue;
      for (int64_t i = 0; i < f->rows[b]; i++) {
        unsigned char *row = row_at(f, b, h, i);
        if (!all_are(done, row, fill)) return false;
        done = row + (size_t)f->columns * f->size;
      }
      if (!all_are(done, first + bytes, fill)) return false;
    }
  return true;
}

void fence_free(fence *f) { munmap(f->map, f->mapped); }

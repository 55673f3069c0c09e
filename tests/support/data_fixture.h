/* data_fixture.h - what the tests of data/ share, and the check of a refusal. */
#ifndef TESTS_SUPPORT_DATA_FIXTURE_H
#define TESTS_SUPPORT_DATA_FIXTURE_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data.h"
#include "tests/support/basics/kept.h"
#include "tests/support/basics/rng.h"
#include "tests/support/basics/text.h"
#include "tests/support/files.h"

/* A refusal has the status, and a line that names `what`. */
#define assert_refused(call, wanted, what)                                                                  \
  do {                                                                                                      \
    attn_status refusal = (call);                                                                           \
    cr_assert_eq(refusal, wanted, "%s: %s, %s", #call, attn_status_name(refusal), attn_last_error());       \
    cr_assert_not_null(strstr(attn_last_error(), what), "'%s' does not say '%s'", attn_last_error(), what); \
    cr_assert_null(strchr(attn_last_error(), '\n'));                                                        \
  } while (0)

#define assert_ok(call) cr_assert_eq(call, ATTN_OK, "%s: %s", #call, attn_last_error())

static inline void release_array(void *of) { data_array_free(of); }

/* A new array, and that of an .npy file; kept. */
static inline data_array array_make(attn_dtype dtype, int rank, const int64_t *shape) {
  data_array a = {0};
  assert_ok(data_array_make(dtype, rank, shape, &a));
  keep_copy(&a, sizeof a, release_array);
  return a;
}
static inline data_array array_read(const char *path) {
  data_array a = {0};
  assert_ok(data_npy_read(path, &a));
  keep_copy(&a, sizeof a, release_array);
  return a;
}

/* Every prefix of a file is EINVAL, and with one of its first bits flipped, each step-th, it is read or
 * refused. Returns how often it was read. */
static inline size_t fixture_damage(const char *name, unsigned char *file, size_t size, size_t bits,
                                    size_t step, attn_status (*read)(const char *path)) {
  size_t done = 0;
  for (size_t cut = 0; cut < size; cut++) {
    fixture_write(fixture_path(name), file, cut);
    cr_assert_eq(read(fixture_path(name)), ATTN_EINVAL, "prefix of %zu bytes", cut);
  }
  for (size_t i = 0; i < bits; i += step) {
    file[i / 8] = (unsigned char)(file[i / 8] ^ 1 << i % 8);
    fixture_write(fixture_path(name), file, size);
    done += !read(fixture_path(name));
    file[i / 8] = (unsigned char)(file[i / 8] ^ 1 << i % 8);
  }
  return done;
}

/* ---- synthetic datasets: a request of one batch entry, its tensors, their rows ---- */

static inline data_request source_request(int64_t heads, int64_t kv_heads, int64_t n, int64_t d) {
  return (data_request){1, heads, kv_heads, n, n, d, d, ATTN_F32, 7};
}

static inline void free_qkv(void *tensors) {
  data_qkv_free(tensors);
  free(tensors);
}

/* For tensors that go with the process: of a copy, to be read alone, since what converts them frees them. */
static inline data_qkv *kept_qkv(void) { return keep_object(calloc(1, sizeof(data_qkv)), free_qkv); }

static inline data_qkv source_make(const char *spec, const data_request *r) {
  data_qkv *m = kept_qkv();
  assert_ok(data_source_make(spec, r, m, NULL));
  return *m;
}

static inline const float *source_row(const void *x, int64_t n, int64_t d, int64_t head, int64_t i) {
  return (const float *)x + (head * n + i) * d;
}

static inline double source_dot(const float *a, const float *b, int64_t d) {
  double sum = 0;
  for (int64_t i = 0; i < d; i++) sum += (double)a[i] * (double)b[i];
  return sum;
}

#endif

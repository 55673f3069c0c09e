/* test_core_guard.c - nothing is read or written beyond the tensors: each lies against a page that may not be
 * touched, once at its end and once at its beginning; keys that do not exist have no memory at all. A breach
 * is SIGSEGV. */
#define _DEFAULT_SOURCE
#include "cases.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct fenced {
  unsigned char *map, *at;
  size_t mapped;
} fenced;

/* bytes between two forbidden pages, touching the one behind (or the one before). */
static fenced fence(size_t bytes, bool at_end) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page;
  fenced f = {.mapped = inner + 2 * page};
  void *map = mmap(NULL, f.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(map, MAP_FAILED);
  f.map = map;
  if (inner) cr_assert_eq(mprotect(f.map + page, inner, PROT_READ | PROT_WRITE), 0);
  f.at = f.map + page + (at_end ? inner - bytes : 0);
  return f;
}

/* One batch entry; keys behind `keys` have no memory. The result is compared with a run on ordinary memory.
 */
static void run_fenced(const char *spec, const char *isa, const attn_problem *problem, int64_t keys,
                       bool at_end) {
  inputs in = inputs_make(problem, true, 9, 1);
  in.kv_len[0] = keys;
  attn_options options = {.isa = isa};
  attn_plan *plan = plan_or_note(problem, spec, &options);
  if (!plan) return;
  size_t size = attn_dtype_size(problem->dtype), o_bytes = tensor_bytes(&in.problem, TENSOR_O);
  fenced q = fence(tensor_bytes(&in.problem, TENSOR_Q), at_end);
  fenced k = fence((size_t)(keys * problem->d_qk) * size, at_end);
  fenced v = fence((size_t)(keys * problem->d_v) * size, at_end);
  fenced o = fence(o_bytes, at_end), work = fence(attn_plan_work_size(plan), at_end);
  memcpy(q.at, in.q, tensor_bytes(&in.problem, TENSOR_Q));
  memcpy(k.at, in.k, (size_t)(keys * problem->d_qk) * size);
  memcpy(v.at, in.v, (size_t)(keys * problem->d_v) * size);
  EXPECT_STATUS(attn_plan_execute(plan, q.at, k.at, v.at, in.kv_len, o.at, work.at), ATTN_OK);
  void *plain = run_plain(plan, &in);
  expect_same(problem, plain, o.at, "between forbidden pages");
  free(plain);
  attn_plan_destroy(plan);
  inputs_free(&in);
  fenced all[] = {q, k, v, o, work};
  for (size_t t = 0; t < sizeof all / sizeof *all; t++) munmap(all[t].map, all[t].mapped);
}

static void every_variant(case_shape shape, attn_dtype dtype) {
  attn_problem problem = shape_problem(shape, dtype);
  for (size_t v = 0; v < attn_variant_count(); v++) {
    spec_list specs = specs_for(attn_variant_at(v), &problem, 64);
    for (int s = 0; s < specs.count; s++)
      for (const char *const *isa = isas_under_test(); *isa; isa++) {
        note_context("%s %s", specs.text[s], *isa);
        run_fenced(specs.text[s], *isa, &problem, shape.n_kv, s % 2);
        run_fenced(specs.text[s], *isa, &problem, shape.n_kv * 2 / 3, s % 2 == 0);
      }
    spec_list_free(&specs);
  }
}

Test(core_guard, odd_sizes) {
  every_variant((case_shape){1, 1, 1, 37, 37, 13, 11, false, false}, ATTN_F32);
  every_variant((case_shape){1, 1, 1, 37, 37, 13, 11, true, false}, ATTN_F64);
  cr_assert(failures_noted() == 0);
}

Test(core_guard, tiny_sizes) {
  every_variant((case_shape){1, 1, 1, 1, 3, 1, 1, false, false}, ATTN_F32);
  every_variant((case_shape){1, 1, 1, 3, 2, 2, 3, true, false}, ATTN_F32);
  cr_assert(failures_noted() == 0);
}

Test(core_guard, whole_tiles) {
  every_variant((case_shape){1, 1, 1, 64, 192, 16, 32, false, false}, ATTN_F32);
  cr_assert(failures_noted() == 0);
}

/* The pages themselves work: a read behind the end kills a process. */
Test(core_guard, a_breach_is_seen) {
  fenced f = fence(100, true);
  pid_t child = fork();
  cr_assert(child >= 0);
  if (child == 0) {
    close(STDERR_FILENO); /* a sanitizer would report what is meant to happen */
    volatile unsigned char *behind = f.at + 100;
    (void)*behind;
    _exit(EXIT_SUCCESS);
  }
  int status = 0;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_SUCCESS);
}

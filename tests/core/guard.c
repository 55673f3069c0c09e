/* guard.c - nothing is read or written beyond the tensors: the rows of every head lie against pages that may
 * not be touched (fence.h), keys that do not exist have no memory, inputs cannot be written, and what lies
 * between rows and beside the work memory stays as it was. Every row is where an aligned vector is not. */
#include "tests/support/core.h"
#include "tests/support/fence.h"

#include <criterion/parameterized.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_A_NUMBER = 0xFF, CANARY = 0xC5, VARIANTS_MAX = 128 };

static const placing placings[] = {
    {.at_end = true}, {.at_end = false}, {.at_end = true, .gap = 3}, {.at_end = false, .shift = 1, .gap = 5}};
enum { PLACINGS = sizeof placings / sizeof *placings };

/* Prints what was running, and lets the fault occur again. */
static struct sigaction at_fault;
static void on_fault(int signal) {
  note_failure("touched memory that it has no business with");
  sigaction(signal, &at_fault, NULL);
}
static void watch_faults(void) {
  struct sigaction action = {.sa_handler = on_fault};
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &at_fault);
}

/* The result between forbidden pages is that of ordinary memory. in: with the problem that the plan is for,
 * in ordinary memory. */
static void run_fenced(const char *spec, const attn_options *options, const inputs *in, placing where) {
  attn_problem p = in->problem;
  int64_t queries[MAX_BATCH], keys[MAX_BATCH];
  for (int64_t b = 0; b < p.batch; b++) {
    queries[b] = p.n_q;
    keys[b] = inputs_keys(in, b);
  }
  fence tensors[] = {fence_make(&p, TENSOR_Q, queries, where, NOT_A_NUMBER),
                     fence_make(&p, TENSOR_K, keys, where, NOT_A_NUMBER),
                     fence_make(&p, TENSOR_V, keys, where, NOT_A_NUMBER),
                     fence_make(&p, TENSOR_O, queries, where, CANARY)};
  for (tensor t = TENSOR_Q; t <= TENSOR_V; t++) fence_load(&tensors[t], in, t);
  p.q = tensors[TENSOR_Q].stride;
  p.k = tensors[TENSOR_K].stride;
  p.v = tensors[TENSOR_V].stride;
  p.o = tensors[TENSOR_O].stride;
  attn_plan *plan = plan_or_note(&p, spec, options);
  if (plan) {
    fence work = fence_block(attn_plan_work_size(plan), where, CANARY);
    EXPECT_STATUS(attn_plan_execute(plan, tensors[TENSOR_Q].at, tensors[TENSOR_K].at, tensors[TENSOR_V].at,
                                    in->padded ? in->kv_len : NULL, tensors[TENSOR_O].at, work.at),
                  ATTN_OK);
    EXPECT(fence_intact(&tensors[TENSOR_O], CANARY) && fence_intact(&work, CANARY));
    expect_same_outputs(&in->problem, run_spec(spec, options, in), fence_gather(&tensors[TENSOR_O]),
                        "between forbidden pages");
    fence_free(&work);
  }
  attn_plan_destroy(plan);
  for (tensor t = TENSOR_Q; t <= TENSOR_O; t++) fence_free(&tensors[t]);
}

/* -- every setting, at a few sizes -- */

static void every_setting(case_shape shape, attn_dtype dtype) {
  attn_problem problem = shape_problem(shape, dtype);
  watch_faults();
  for (size_t v = 0; v < attn_variant_count(); v++) {
    spec_list specs = specs_for(attn_variant_at(v), &problem, 64);
    inputs in = inputs_make(&problem, attn_variant_at(v)->caps & ATTN_CAP_PADDING, 9, 1);
    for (int s = 0; s < specs.count; s++)
      for (const char *const *isa = isas_under_test(); *isa; isa++) {
        note_context("%s %s", specs.text[s], *isa);
        attn_options options = {.isa = *isa, .threads = 1 + s % 2};
        in.padded = s % 2;
        run_fenced(specs.text[s], &options, &in, placings[s % PLACINGS]);
        run_fenced(specs.text[s], &options, &in, placings[(s + 1) % PLACINGS]);
      }
    spec_list_free(&specs);
  }
}

Test(core_guard, every_setting) {
  every_setting((case_shape){1, 1, 1, 37, 37, 13, 11, false, true}, ATTN_F32);
  every_setting((case_shape){2, 2, 1, 37, 37, 13, 11, true, true}, ATTN_F64);
  every_setting((case_shape){1, 1, 1, 1, 3, 1, 1, false, true}, ATTN_F32);
  every_setting((case_shape){1, 1, 1, 3, 2, 2, 3, true, true}, ATTN_F32);
  every_setting((case_shape){1, 4, 2, 64, 192, 16, 32, false, true}, ATTN_F32);
}

/* -- every size round every tile, one setting each; a length meets a third of the widths, and over the
 * instruction sets all -- */

static const int64_t lengths[] = {1,  2,  3,  5,  7,  8,  9,  15,  16,  17,  31,
                                  33, 63, 64, 65, 95, 96, 97, 127, 129, 255, 257};
static const int64_t widths[] = {1, 3, 8, 15, 17, 40, 64, 65, 80, 96, 100, 128};
enum { LENGTHS = sizeof lengths / sizeof *lengths, WIDTHS = sizeof widths / sizeof *widths, SHARE = 3 };

static int64_t pick(uint64_t *random, int64_t bound) {
  return (int64_t)(uniform_draw(random) * (double)bound);
}

/* A problem of that length and width with everything else drawn from what the variant supports. */
static case_shape draw_shape(const attn_variant *variant, int64_t n, int64_t d, uint64_t *random) {
  static const int64_t heads[][2] = {{1, 1}, {2, 1}, {2, 2}, {3, 1}};
  int64_t other_n = lengths[pick(random, LENGTHS)], other_d = widths[pick(random, WIDTHS)];
  const int64_t *h = heads[pick(random, 4)];
  bool cross = (variant->caps & ATTN_CAP_CROSS) && pick(random, 2), long_keys = pick(random, 2);
  return (case_shape){.batch = 1 + pick(random, 4) / 3,
                      .heads = h[0],
                      .kv_heads = h[1],
                      .n_q = cross && long_keys ? other_n : n,
                      .n_kv = cross && !long_keys ? other_n : n,
                      .d_qk = d,
                      .d_v = pick(random, 2) ? d : other_d,
                      .causal =
                          (variant->caps & ATTN_CAP_CAUSAL) && (pick(random, 2) || causal_only(variant)),
                      .padded = (variant->caps & ATTN_CAP_PADDING) && pick(random, 2)};
}

/* Does a setting take fp64 tensors? */
static bool takes_f64(const spec_list *specs, case_shape shape) {
  const attn_problem problem = shape_problem(shape, ATTN_F64);
  bool any = false;
  for (int s = 0; s < specs->count; s++)
    any = any || !attn_estimate(&problem, specs->text[s], NULL, NULL, NULL);
  return any;
}

/* Runs the first setting from a drawn one on that the problem admits. */
static bool run_drawn(const spec_list *specs, const char *isa, case_shape shape, uint64_t *random) {
  attn_dtype dtype = pick(random, 3) || !takes_f64(specs, shape) ? ATTN_F32 : ATTN_F64;
  attn_problem problem = shape_problem(shape, dtype);
  attn_options options = {.isa = isa, .threads = 1 + (int)pick(random, 2)};
  placing where = placings[pick(random, PLACINGS)];
  int start = (int)pick(random, specs->count);
  for (int s = 0; s < specs->count; s++) {
    const char *spec = specs->text[(start + s) % specs->count];
    if (attn_estimate(&problem, spec, &options, NULL, NULL)) continue;
    note_context("%s %s %s %s %s", spec, isa, shape_text(shape), dtype == ATTN_F64 ? "f64" : "f32",
                 where.at_end ? "at the end" : "at the beginning");
    inputs in = inputs_make(&problem, shape.padded, 9, 1);
    run_fenced(spec, &options, &in, where);
    inputs_free(&in);
    return true;
  }
  return false;
}

ParameterizedTestParameters(core_guard, sizes_round_tiles) {
  static int indices[VARIANTS_MAX];
  size_t count = attn_variant_count() < VARIANTS_MAX ? attn_variant_count() : VARIANTS_MAX;
  for (size_t k = 0; k < count; k++) indices[k] = (int)k;
  return cr_make_param_array(int, indices, count);
}

ParameterizedTest(int *index, core_guard, sizes_round_tiles) {
  const attn_variant *variant = attn_variant_at((size_t)*index);
  attn_problem middling =
      shape_problem((case_shape){1, 1, 1, 97, 97, 17, 17, causal_only(variant), false}, ATTN_F32);
  spec_list specs = specs_for(variant, &middling, 64);
  int ran = 0;
  watch_faults();
  const char *const *isas = isas_under_test();
  for (int i = 0; isas[i]; i++) {
    uint64_t random = 1;
    for (int n = 0; n < LENGTHS; n++)
      for (int d = (n + i) % SHARE; d < WIDTHS; d += SHARE)
        ran += run_drawn(&specs, isas[i], draw_shape(variant, lengths[n], widths[d], &random), &random);
  }
  EXPECT(ran >= LENGTHS * WIDTHS / SHARE * 3 / 4);
  spec_list_free(&specs);
}

/* The pages themselves work: an access beyond either end kills a process. */
static bool survives(size_t offset) {
  fence f = fence_block(4096, (placing){.at_end = true}, 0);
  pid_t child = fork();
  cr_assert(child >= 0);
  if (child == 0) {
    close(STDERR_FILENO); /* a sanitizer would report what is meant to happen */
    (void)*(volatile unsigned char *)(f.at + offset);
    _exit(EXIT_SUCCESS);
  }
  int status = 0;
  cr_assert_eq(waitpid(child, &status, 0), child);
  fence_free(&f);
  return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
}

Test(core_guard, a_breach_is_seen) {
  cr_assert(survives(0) && survives(4095));
  cr_assert(!survives(4096) && !survives((size_t)-1));
}

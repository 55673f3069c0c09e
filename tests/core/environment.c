/* environment.c - the floating-point environment is the caller's: whatever rounding direction and treatment
 * of subnormals it and the OpenMP threads of the program run with, results are those of the default
 * environment, bitwise, and every thread finds its own settings again. */

#include "tests/support/core.h"
#include <fenv.h>
#include <omp.h>

enum { THREADS = 3 };

/* The control register of a thread without its exception flags. */
#if defined(__x86_64__)
#define CONTROL(env) ((env).__mxcsr)
enum { FLUSH = 0x8040 }; /* FTZ and DAZ */
static unsigned settings(const fenv_t *env) { return CONTROL(*env) & ~0x3fu; }
#elif defined(__aarch64__)
#define CONTROL(env) ((env).__fpcr)
enum { FLUSH = 1 << 24 }; /* FZ */
static unsigned settings(const fenv_t *env) { return CONTROL(*env); }
#endif

typedef struct mode {
  const char *name;
  int rounding;
  unsigned flush;
} mode;

static const mode modes[] = {{"subnormals flushed", FE_TONEAREST, FLUSH},
                             {"rounding upward", FE_UPWARD, 0},
                             {"rounding to zero, subnormals flushed", FE_TOWARDZERO, FLUSH}};

static void set_mode(const mode *m) {
  fenv_t env;
  fesetround(m->rounding);
  fegetenv(&env);
  CONTROL(env) = (CONTROL(env) & ~(unsigned)FLUSH) | m->flush;
  fesetenv(&env);
}

/* The threads that OpenMP keeps are those that the library's parallel regions will get. Some runtimes give
 * them the settings of the thread that forks, and that one its own again after the region. */
static void set_mode_everywhere(const mode *m) {
  set_mode(m);
#pragma omp parallel num_threads(THREADS)
  set_mode(m);
}

static void expect_mode_everywhere(const mode *m) {
  unsigned found[THREADS] = {0}, expected;
  fenv_t env;
#pragma omp parallel num_threads(THREADS)
  {
    fenv_t mine;
    fegetenv(&mine);
    found[omp_get_thread_num()] = settings(&mine);
  }
  set_mode(m);
  fegetenv(&env);
  expected = settings(&env);
  for (int t = 0; t < THREADS; t++)
    if (found[t] != expected) note_failure("thread %d: settings %#x, before %#x", t, found[t], expected);
}

static void *run_in(const mode *m, const char *spec, const attn_options *options, const inputs *in) {
  set_mode_everywhere(m);
  void *o = run_spec(spec, options, in);
  expect_mode_everywhere(m);
  set_mode_everywhere(&(mode){"default", FE_TONEAREST, 0});
  return o;
}

/* Values that are subnormal, or whose products with weights are. */
static void make_tiny(inputs *in) {
  const attn_problem *p = &in->problem;
  double unit = p->dtype == ATTN_F64 ? 0x1p-1024 : 0x1p-128;
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->kv_heads; h++)
      for (int64_t j = 0; j < p->n_kv; j++)
        for (int64_t l = 0; l < p->d_v; l++)
          inputs_set(in, TENSOR_V, b, h, j, l, unit * inputs_get(in, TENSOR_V, b, h, j, l));
}

/* Every setting in one of the modes, over the instruction sets and inputs in all. */
static void every_setting(const attn_variant *variant, case_shape shape, attn_dtype dtype, bool tiny) {
  attn_problem problem = shape_problem(shape, dtype);
  inputs in = inputs_make(&problem, false, 17, 1);
  if (tiny) make_tiny(&in);
  spec_list specs = specs_for(variant, &problem, 64);
  const char *const *isas = isas_under_test();
  for (int s = 0; s < specs.count; s++)
    for (int i = 0; isas[i]; i++) {
      const mode *m = &modes[(s + i + shape.causal + 2 * tiny) % (int)(sizeof modes / sizeof *modes)];
      attn_options options = {.isa = isas[i], .threads = THREADS};
      void *plain = run_spec(specs.text[s], &options, &in), *o = run_in(m, specs.text[s], &options, &in);
      note_context("%s %s %s%s%s, %s", specs.text[s], isas[i], dtype == ATTN_F64 ? "f64" : "f32",
                   shape.causal ? " causal" : "", tiny ? " tiny values" : "", m->name);
      expect_same_outputs(&problem, plain, o, "another floating-point environment");
    }
  spec_list_free(&specs);
}

static void every_variant(attn_dtype dtype) {
  for (size_t v = 0; v < attn_variant_count(); v++)
    for (int tiny = 0; tiny < 2; tiny++) {
      every_setting(attn_variant_at(v), (case_shape){1, 4, 2, 37, 37, 8, 5, false, false}, dtype, tiny);
      every_setting(attn_variant_at(v), (case_shape){1, 3, 3, 70, 70, 8, 5, true, false}, dtype, tiny);
    }
}

Test(core_environment, f32) { every_variant(ATTN_F32); }
Test(core_environment, f64) { every_variant(ATTN_F64); }

/* The settings take effect in every thread: halving the least normal number is lost. */
Test(core_environment, settings_work) {
  volatile float least = 0x1p-126f;
  set_mode_everywhere(&modes[0]);
  int lost = 0;
#pragma omp parallel num_threads(THREADS) reduction(+ : lost)
  lost += !(least / 2 > 0);
  cr_assert(lost == THREADS);
  set_mode_everywhere(&(mode){"default", FE_TONEAREST, 0});
  cr_assert(least / 2 > 0);
}

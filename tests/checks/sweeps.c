/* sweeps.c - the correct variants through many seeded sweeps, every check that they name, Holm's correction:
 * none is violated. Hard checks must never fail; a sweep's PROB checks may together reject with probability
 * 1e-3, before the repetition with fresh seeds, which is not made here: over 200 sweeps that is 0.2. The
 * seeds are fixed, so a pass stays a pass. */
#include "tests/support/checks_case.h"
#include "experiments/results/set.h"

#include <omp.h>
#include <stdio.h>

enum { SWEEPS = 200 };

/* Settings; each sweep adds the seed to those that draw. */
static const struct {
  const char *spec;
  bool draws, masks; /* has a parameter seed; can be causal */
} settings[] = {
    {"full", false, true},
    {"tiled:block_k=16", false, true},
    {"longformer:window=8,global=2", false, true},
    {"bigbird:block=4,random=2,global=1", true, true},
    {"performer:features=32", true, true},
    {"performer:features=32,kernel=hyperbolic,eps=1e-4", true, true},
    {"performer:features=32,kernel=trig,orthogonal=no", true, true},
    {"performer:features=32,kernel=relu", true, true},
    {"linformer:k=12", true, false},
    {"linformer:k=12,projection=dct,share=none", true, false},
    {"linformer:k=12,projection=srht", true, false},
    {"linformer:k=12,projection=pool", false, false},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

/* One cell of a sweep: problems differ in type, mask, heads and padding from seed to seed. */
static void run_setting(int setting, int seed, result_row *row) {
  char spec[128];
  attn_problem p = attn_problem_make(1, 2, 40 + seed % 9, 8);
  p.dtype = seed % 2 ? ATTN_F64 : ATTN_F32;
  p.causal = settings[setting].masks && seed / 2 % 2;
  p.kv_heads = 1 + seed / 4 % 2;
  snprintf(spec, sizeof spec, settings[setting].draws ? "%s%cseed=%d" : "%s", settings[setting].spec,
           strchr(settings[setting].spec, ':') ? ',' : ':', seed);
  run_case *c = case_make(p, 0.25 * (1 + seed % 5), 1000 + 10 * (uint64_t)seed);
  c->kv_len[0] = p.n_kv - 3;
  case_run(c, spec, seed % 3 ? NULL : c->kv_len);
  c->e.seed = (uint64_t)seed;
  result_row_init(row);
  cr_assert_eq(checks_run(&c->e, row), ATTN_OK);
  case_free(c);
}

Test(checks_sweeps, correct_variants_violate_nothing) {
  int cells = 0, violated = 0;
  case_threads = 1;
  omp_set_num_threads(1); /* the problems are tiny */
  for (int seed = 0; seed < SWEEPS; seed++) {
    result_row rows[SETTINGS];
    for (int s = 0; s < SETTINGS; s++) run_setting(s, seed, &rows[s]);
    cr_assert_eq(results_holm(rows, SETTINGS, 1e-3), ATTN_OK);
    for (int s = 0; s < SETTINGS; s++)
      for (int b = 0; b < rows[s].bounds_count; b++, cells++) {
        const result_bound *bound = &rows[s].bounds[b];
        violated += bound->verdict == VERDICT_VIOLATED;
        cr_expect(bound->verdict != VERDICT_VIOLATED && bound->verdict != VERDICT_ERROR,
                  "sweep %d, %s, %s: %s, measured %g, bound %g, p %g %s", seed, settings[s].spec, bound->name,
                  check_verdict_names[bound->verdict], bound->measured, bound->value, bound->p_value,
                  bound->message);
      }
    for (int s = 0; s < SETTINGS; s++) result_row_free(&rows[s]);
  }
  cr_assert(violated == 0 && cells > SWEEPS * SETTINGS * 5, "%d of %d cells violated", violated, cells);
}

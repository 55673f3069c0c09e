/* sweeps.c - the correct variants through many seeded sweeps, every check that they name, Holm's correction:
 * none is violated. Hard checks must never fail; a sweep's PROB checks may together reject with probability
 * 1e-3, before the repetition with fresh seeds, which is not made here: over 200 sweeps that is 0.2. The
 * seeds are fixed, so a pass stays a pass. All went through 200 sweeps; 32 are kept, 16 of selections. */
#include "tests/support/checks_case.h"
#include "experiments/results/set.h"

#include <omp.h>
#include <stdio.h>

enum { SWEEPS = 32, SELECTION_SWEEPS = 16, SETTINGS_MOST = 48 };

/* Settings; each sweep adds the seed to those that draw. */
typedef struct setting {
  const char *spec;
  bool draws, masks; /* has a parameter seed; can be causal */
} setting;

static const setting fixed[] = {
    {"full", false, true},
    {"tiled:block_k=16", false, true},
    {"longformer:window=8,global=2", false, true},
    {"bigbird:block=4,random=2,global=1", true, true},
    {"performer:features=32", true, true},
    {"performer:features=32,kernel=hyperbolic,eps=1e-4", true, true},
    {"performer:features=32,kernel=trig,orthogonal=no", true, true},
    {"performer:features=32,kernel=relu", true, true},
    {"performer:features=32,kernel=optimal,z=8", true, true},
    {"linear", false, true},
    {"linear:feature=taylor", false, true},
    {"linear:feature=dpfp,eps=1e-3", false, true},
    {"linear:feature=cos", false, true},
    {"latent:rank=5", false, true},
    {"latent:rank=9,path=naive", false, true},
    {"svd:r=8", false, true},
    {"svd:r=4,of=scores", false, true},
    {"nystrom:landmarks=7", false, false},
    {"nystrom:landmarks=7,middle=pinv,by=sample", true, false},
    {"nystrom:landmarks=7,middle=agents", false, false},
    {"linformer:k=12", true, false},
    {"linformer:k=12,projection=dct,share=none", true, false},
    {"linformer:k=12,projection=srht", true, false},
    {"linformer:k=12,projection=pool", false, false},
    {NULL, false, false},
};

/* masks: causal alone where the variant takes nothing else. */
static const setting selections[] = {
    {"topk:k=5", false, true},
    {"topk:k=6,sink=2,window=3", false, true},
    {"topk:k=5,share=group", false, true},
    {"topk:p=0.7", false, true},
    {"topk:k=6,by=sparq,r=3", false, true},
    {"topk:k=6,by=loki,r=3,share=group", false, true},
    {"topk:k=6,by=random", true, true},
    {"pages:page=4,budget=12", false, true},
    {"pages:page=5,budget=15,score=ball,first=1", false, true},
    {"pages:page=4,budget=16,score=mean,share=group", false, true},
    {"pages:page=3,budget=9,score=max,last=2", false, true},
    {"pages:page=4,budget=12,score=mass,share=tile", false, true},
    {"lsh:rounds=2,buckets=8", true, true},
    {"lsh:rounds=1,buckets=4,window=3", true, true},
    {"lsh_tail:k=3,l=10", true, true},
    {"lsh_tail:k=2,l=4,hits=1,centre=no,window=3", true, true},
    {"magicpig:sink=1,window=3,k=3,l=10", true, true},
    {"vattention:sink=1,window=3,heavy=4,base=6,eps=0.2", true, true},
    {"sample:count=9", true, true},
    {"sample:count=9,replacement=yes", true, true},
    {"sample:guarantee=clt,base=6,eps=0.3", true, true},
    {"sample:guarantee=bernstein,base=6,eps=0.9", true, true},
    {"bigbird:block=4,random=2,tail=uniform", true, true},
    {"bigbird:block=3,random=4,window=1,global=0,tail=uniform", true, true},
    {"hyper:exact_below=0,block=8,sample=6", true, false},
    {"hyper:exact_below=0,block=7,sample=9,sampling=values", true, false},
    {"scatterbrain:window=4,features=16", true, true},
    {"streaming:sink=2,window=7", false, true},
    {"sparse_transformer:stride=6", false, true},
    {"graph:kind=documents,size=11", false, true},
    {"graph:kind=prefix,size=9", false, true},
    {"graph:kind=block_causal,size=5", false, true},
    {"tiled:skip=0.3,block_q=2,block_k=4", false, true},
    {"tiled:skip=0.05,block_q=4,block_k=8,order=diagonal", false, true},
    {NULL, false, false},
};

static bool causal_alone(const char *spec) {
  return strncmp(spec, "streaming", 9) == 0 || strncmp(spec, "sparse", 6) == 0 ||
         strncmp(spec, "magicpig", 8) == 0 || strncmp(spec, "vattention", 10) == 0;
}

/* One cell of a sweep: problems differ in type, mask, heads and padding from seed to seed. */
static void run_setting(const setting *x, int seed, result_row *row) {
  char spec[128];
  attn_problem p = attn_problem_make(1, 2, 40 + seed % 9, 8);
  p.dtype = seed % 2 ? ATTN_F64 : ATTN_F32;
  p.causal = (x->masks && seed / 2 % 2) || causal_alone(x->spec);
  p.kv_heads = 1 + seed / 4 % 2;
  snprintf(spec, sizeof spec, x->draws ? "%s%cseed=%d" : "%s", x->spec, strchr(x->spec, ':') ? ',' : ':',
           seed);
  run_case *c = case_make(p, 0.25 * (1 + seed % 5), 1000 + 10 * (uint64_t)seed);
  c->kv_len[0] = p.n_kv - 3;
  case_run(c, spec, seed % 3 ? NULL : c->kv_len);
  c->e.seed = (uint64_t)seed;
  result_row_init(row);
  cr_assert_eq(checks_run(&c->e, row), ATTN_OK);
  case_free(c);
}

static void run_sweeps(const setting *settings, int sweeps) {
  int cells = 0, violated = 0, count = 0;
  case_threads = 1;
  omp_set_num_threads(1); /* the problems are tiny */
  while (settings[count].spec) count++;
  for (int seed = 0; seed < sweeps; seed++) {
    result_row rows[SETTINGS_MOST];
    for (int s = 0; s < count; s++) run_setting(&settings[s], seed, &rows[s]);
    cr_assert_eq(results_holm(rows, (size_t)count, 1e-3), ATTN_OK);
    for (int s = 0; s < count; s++)
      for (int b = 0; b < rows[s].bounds_count; b++, cells++) {
        const result_bound *bound = &rows[s].bounds[b];
        violated += bound->verdict == VERDICT_VIOLATED;
        cr_expect(bound->verdict != VERDICT_VIOLATED && bound->verdict != VERDICT_ERROR,
                  "sweep %d, %s, %s: %s, measured %g, bound %g, p %g %s", seed, settings[s].spec, bound->name,
                  check_verdict_names[bound->verdict], bound->measured, bound->value, bound->p_value,
                  bound->message);
      }
    for (int s = 0; s < count; s++) result_row_free(&rows[s]);
  }
  cr_assert(violated == 0 && cells > sweeps * count * 5, "%d of %d cells violated", violated, cells);
}

Test(checks_sweeps, correct_variants_violate_nothing) { run_sweeps(fixed, SWEEPS); }
Test(checks_sweeps, correct_selections_violate_nothing) { run_sweeps(selections, SELECTION_SWEEPS); }

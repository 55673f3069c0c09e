/* sweeps.c - the correct variants through seeded sweeps, every check that they name, Holm's correction, over
 * inputs that nobody planned for: lengths and widths down to 1, grouped heads, batches, cross attention,
 * padding, both types, and values that are ordinary, constant, huge, subnormal, repeated or of one sign. No
 * check may be violated or end in an error; where its hypotheses do not hold it is uncertifiable. Hard checks
 * must never fail; the PROB checks of a sweep may together reject with probability RESULTS_ALPHA, before the
 * repetition with fresh seeds, which is not made here. The seeds are fixed, so a pass stays a pass. */
#include "tests/support/checks_case.h"
#include "experiments/results/set.h"
#include "experiments/support/names.h"

#include <float.h>
#include <omp.h>
#include <stdio.h>

static const char specs[] =
    "full;tiled;tiled:block_k=16;tiled:skip=0.3,block_q=2,block_k=4;"
    "tiled:skip=0.05,block_q=4,block_k=8,order=diagonal;longformer:window=8,global=2;longformer:window=2;"
    "streaming:sink=2,window=7;sparse_transformer:stride=6;graph:kind=documents,size=11;"
    "graph:kind=prefix,size=9;graph:kind=block_causal,size=5;bigbird:block=4,random=2,global=1;"
    "bigbird:block=16,random=3,global=0;bigbird:block=6,random=2,tail=uniform;"
    "bigbird:block=3,random=4,window=1,global=0,tail=uniform;performer:features=33;"
    "performer:features=16,share_heads=no;performer:features=16,kernel=hyperbolic,eps=1e-4;"
    "performer:features=32,kernel=trig,orthogonal=no;performer:features=32,kernel=relu;"
    "performer:features=32,kernel=optimal,z=8;performer:features=32,norm=sqrt_d;linear;"
    "linear:feature=taylor;linear:feature=dpfp,eps=1e-3;linear:feature=cos;latent:rank=5;"
    "latent:rank=9,path=naive;latent:rank=5,shared=2,prompt=7;svd:r=8;svd:r=4,of=scores;"
    "nystrom:landmarks=7;nystrom:landmarks=7,middle=pinv,by=sample;nystrom:landmarks=7,middle=agents;"
    "cluster:clusters=5,topk=0;cluster:clusters=4,topk=3;coreset:keys=9;coreset:keys=5,temperature=1.5;"
    "skyformer:landmarks=9;linformer:k=12;linformer:k=7,projection=dct,share=none;"
    "linformer:k=12,projection=srht;linformer:k=12,projection=rademacher,share_heads=no;"
    "linformer:k=12,projection=pool;topk:k=5;topk:k=6,sink=2,window=3;topk:k=5,share=group;topk:p=0.7;"
    "topk:k=6,by=sparq,r=1,share=group;topk:k=6,by=loki,r=2;topk:k=6,by=random;topk:k=6,by=index;"
    "pages:page=4,budget=12,score=index,index_heads=3,index_width=5;pages:page=4,budget=12;"
    "pages:page=5,budget=15,score=ball,first=1;pages:page=4,budget=16,score=mean,share=group;"
    "pages:page=3,budget=9,score=max,last=2;pages:page=3,budget=9,score=mass,share=tile;"
    "pages:page=3,budget=12,score=weight,block=2,overlap=3,first=1;vslash:vertical=4,slash=3,last=7,sink=2;"
    "vslash:vertical=3,slash=0,last=100,sink=0,window=3;lsh:rounds=2,buckets=8;"
    "lsh:rounds=1,buckets=4,window=3;lsh_tail:k=3,l=10;lsh_tail:k=2,l=4,hits=1,centre=no,window=3;"
    "magicpig:sink=1,window=3,k=3,l=10;vattention:sink=1,window=3,heavy=4,base=6,eps=0.2;sample:count=9;"
    "sample:count=9,replacement=yes;sample:guarantee=clt,base=6,eps=0.3;"
    "sample:guarantee=bernstein,base=6,eps=0.9;hyper:exact_below=0,block=8,sample=6;"
    "hyper:exact_below=0,block=7,sample=9,sampling=values;scatterbrain:window=4,features=16;"
    "scatterbrain_lsh:rounds=2,buckets=4,features=16;longnet:segments=4+9+21,dilations=1+2+5;"
    "longnet:segments=5+12,dilations=2+3;evict:score=lagkv,budget=9,recent=2;"
    "evict:score=h2o,budget=9,recent=2,every=3;evict:score=expected,budget=8,recent=2,prompt=11;"
    "evict:score=snapkv,budget=6,recent=2,prompt=12,shared=0.6;evict:score=tova,budget=8,recent=2,admit=0.1;"
    "evict:score=keydiff,budget=9,recent=2,chunk=2 | store:k=q8_0,v=int4;streaming_cache:sink=2,window=5;"
    "turbo:bits=3;qjl:bits=2;rotated:k=q4_0,v=int3;kivi:bits=2,group=4,residual=8;sage:group=8;"
    "pooled:block=8,overlap=3,window=5;pooled:block=200,window=1;"
    "pooled:block=4,overlap=5,window=0,whole=yes;pooled:block=2,overlap=2,window=5,top=3;"
    "nsa:block=2,overlap=2,page=4,budget=16,window=5;toeplitz:block=8;"
    "toeplitz:feature=relu,slope=0.3,block=8;normaliser:kind=sigmoid,bias=1;normaliser:kind=relu,by=one;"
    "normaliser:kind=sparsemax;normaliser:kind=entmax15;columns;differential;forget;recurrent:chunk=5;"
    "recurrent:chunk=9,normaliser=rows;recurrent:rule=gla,chunk=7;recurrent:rule=kda;"
    "recurrent:rule=gated_delta2,chunk=9;recurrent:rule=mamba3,chunk=9;"
    "recurrent:rule=kda,read=before,chunk=9;recurrent:rule=delta,chunk=40;"
    "recurrent:rule=gated_delta,chunk=1,state=bf16;recurrent:decay=constant,gamma=0.1,chunk=16";
enum { SPECS = 114 };

/* Ways to write the elements of Q, K and V. x is N(0, 1). */
typedef enum {
  PLAIN,
  ZERO,
  ONES,
  CONSTANT_K,
  TINY,
  SUBNORMAL,
  SMALL_V,
  HUGE,
  HUGE_V,
  LARGEST_V,
  PEAKED,
  FLAT,
  REPEATED,
  ONE_SIGN,
  ONE_HOT,
  OUTLIER,
  ALTERNATING,
  SORTED,
  SPARSE,
  OFFSET_K,
  KINDS
} input_kind;

/* Two for each kind of input, of which each has half of the settings. 200 were run, all settings in each. */
enum { SWEEPS = 2 * KINDS };

static double element(input_kind kind, char tensor, int64_t row, int64_t l, int64_t d, double x,
                      attn_dtype t) {
  const double least = t == ATTN_F64 ? DBL_MIN : (double)FLT_MIN,
               most = t == ATTN_F64 ? DBL_MAX : (double)FLT_MAX;
  const bool value = tensor == 'v';
  switch (kind) {
  case ZERO:
    return 0;
  case ONES:
    return 1;
  case CONSTANT_K:
    return tensor == 'k' ? 0.5 : x;
  case TINY:
    return x * 1e-30;
  case SUBNORMAL:
    return x * least / 1000;
  case SMALL_V:
    return value ? x * least / 10 : x;
  case HUGE:
    return value ? x : x * 1e15;
  case HUGE_V:
    return value ? x * 1e30 : x;
  case LARGEST_V:
    return value ? (x > 0 ? most : -most) / 4 : x;
  case PEAKED:
    return value ? x : 6 * x;
  case FLAT:
    return value ? x : x * 1e-3;
  case REPEATED:
    return value ? x : sin((double)(row % 3 + l));
  case ONE_SIGN:
    return fabs(x);
  case ONE_HOT:
    return value ? x : l == row % d ? 5 : 0;
  case OUTLIER:
    return l == 0 ? 30 * x : x;
  case ALTERNATING:
    return row % 2 ? 1.5 : -1.5;
  case SORTED:
    return value ? (double)row : x + 0.01 * (double)row;
  case SPARSE:
    return x > 1 ? x : 0;
  case OFFSET_K:
    return tensor == 'k' ? x + 50 : x;
  default:
    return x;
  }
}

static void fill(const run_case *c, void *at, char tensor, input_kind kind, int64_t rows, int64_t d,
                 attn_rng *rng) {
  for (int64_t i = 0; i < rows * d; i++)
    case_set(c, at, i, element(kind, tensor, i / d, i % d, d, attn_rng_normal(rng), c->problem.dtype));
}

static int64_t drawn(attn_rng *rng, int64_t least, int64_t most) {
  return least + attn_rng_below(rng, most - least + 1);
}

/* A problem of the sweep; lengths are short more often than not. */
static attn_problem draw_problem(attn_rng *rng) {
  const int64_t n = attn_rng_below(rng, 8) ? drawn(rng, 1, 90) : drawn(rng, 91, 509),
                groups = drawn(rng, 1, 2);
  attn_problem p =
      case_problem(drawn(rng, 1, 2), groups * drawn(rng, 1, 2), groups, n, drawn(rng, 1, 33),
                   drawn(rng, 1, 33), attn_rng_below(rng, 2) > 0, (attn_dtype)attn_rng_below(rng, 2));
  if (attn_rng_below(rng, 4) == 0) p.n_kv = drawn(rng, 1, 130);
  return p;
}

static void run_sweep(int sweep, int *cells) {
  result_row rows[SPECS];
  char list[sizeof specs];
  int count = 0, s = 0;
  attn_rng rng = rng_of(20, (uint64_t)sweep, 0);
  const attn_problem p = draw_problem(&rng);
  const input_kind kind = (input_kind)(sweep / 2);
  const bool padded = attn_rng_below(&rng, 3) == 0;
  strcpy(list, specs);
  for (const char *of = strtok(list, ";"); of; of = strtok(NULL, ";")) {
    char spec[128];
    if (s++ % 2 != sweep % 2) continue;
    run_case *c = case_make(p, 1, 1);
    attn_plan *plan;
    attn_view view;
    fill(c, c->q, 'q', kind, p.batch * p.heads * p.n_q, p.d_qk, &rng);
    fill(c, c->k, 'k', kind, p.batch * p.kv_heads * p.n_kv, p.d_qk, &rng);
    fill(c, c->v, 'v', kind, p.batch * p.kv_heads * p.n_kv, p.d_v, &rng);
    for (int64_t b = 0; b < p.batch; b++) c->kv_len[b] = drawn(&rng, p.n_kv / 2, p.n_kv);
    snprintf(spec, sizeof spec, "%s", of);
    attn_status status = attn_plan_create(&plan, &c->problem, spec, NULL);
    if (!status && !attn_plan_inspect(plan, &view) && view.seed)
      snprintf(spec + strlen(spec), sizeof spec - strlen(spec), "%cseed=%d", strchr(spec, ':') ? ',' : ':',
               sweep);
    attn_plan_destroy(status ? NULL : plan);
    if (!status) {
      case_run(c, spec, padded ? c->kv_len : NULL);
      c->e.seed = (uint64_t)sweep;
      rows[count] = row_empty();
      cr_assert_eq(checks_run(&c->e, &rows[count]), ATTN_OK, "%s", attn_last_error());
      rows[count++].variant = names_keep(spec);
    }
    case_free(c);
  }
  cr_assert_eq(s, SPECS);
  cr_assert_eq(results_holm(rows, (size_t)count, RESULTS_ALPHA), ATTN_OK);
  for (int r = 0; r < count; r++)
    for (int b = 0; b < rows[r].bounds_count; b++, ++*cells) {
      const result_bound *bound = &rows[r].bounds[b];
      expect_in_range(bound, rows[r].variant);
      cr_expect(
          bound->verdict != VERDICT_VIOLATED && bound->verdict != VERDICT_ERROR,
          "sweep %d, %s, kind %d, n %d, keys %d, d %d, d_v %d, %s%s%s: %s %s, measured %g, bound %g, p %g %s",
          sweep, rows[r].variant, (int)kind, (int)p.n_q, (int)p.n_kv, (int)p.d_qk, (int)p.d_v,
          p.dtype == ATTN_F64 ? "f64" : "f32", p.causal ? ", causal" : "", padded ? ", padded" : "",
          bound->name, check_verdict_names[bound->verdict], bound->measured, bound->value, bound->p_value,
          bound->message);
    }
  for (int r = 0; r < count; r++) result_row_free(&rows[r]);
}

Test(checks_sweeps, correct_variants_violate_nothing) {
  int cells = 0;
  case_threads = 1;
  omp_set_num_threads(1); /* the problems are tiny */
  for (int sweep = 0; sweep < SWEEPS; sweep++) run_sweep(sweep, &cells);
  cr_expect_gt(cells, SWEEPS * SPECS / 2 * 4);
}

/* ends.c - queries, keys and values at either end of the range of fp32 and of fp64: no bound calls a right
 * variant violated, whatever overflows, underflows or is NaN there. */
#include "tests/support/checks_case.h"

static char specs[] =
    "full;tiled:path=split;tiled:skip=0.01;topk:k=5;topk:p=0.9;topk:k=5,by=loki,r=2;"
    "pages:page=4,budget=8;pages:page=4,budget=8,score=weight,block=2,overlap=2;"
    "vslash:vertical=3,slash=3,last=4,sink=2;lsh:rounds=2,buckets=4;lsh_tail:k=2,l=5;"
    "magicpig:sink=2,window=3,k=2,l=5;sample:count=5;hyper:exact_below=0,block=4,sample=4;"
    "longformer:window=4,global=2;bigbird:block=4,random=1,tail=uniform;linformer:projection=gaussian,k=8;"
    "linformer:projection=dct,k=8,share_heads=no;linformer:projection=pool,k=8;"
    "performer:features=12,kernel=relu;linear;linear:feature=exp;"
    "linear:feature=cos;linear:feature=taylor,degree=1;linear:feature=taylor;linear:feature=hedgehog;"
    "linear:feature=relu,eps=1;linear:feature=relu2,normalise=no;linear:feature=dpfp,normalise=no;"
    "linear:feature=identity,normalise=no;toeplitz:block=8;scatterbrain:window=4,features=16;"
    "pooled:block=4,overlap=4,window=3,top=2;nsa:block=4,overlap=4,page=4,budget=8,window=3;normaliser;"
    "normaliser:kind=relu,power=2;normaliser:kind=entmax15;recurrent:chunk=8;recurrent:rule=delta;"
    "recurrent:rule=ssd,chunk=8;recurrent:rule=gla;recurrent:rule=gated_delta2;recurrent:rule=mamba3,chunk=8;"
    "recurrent:normaliser=rows;sage:group=4;latent:rank=2;kivi:group=4,residual=4;store:k=fp8,v=int4;"
    "rotated;turbo;qjl;svd:r=2;nystrom:landmarks=4;cluster:clusters=4,topk=3;coreset:keys=4;skyformer:"
    "landmarks=4;"
    "columns;forget;streaming_cache:sink=2,window=5";

static void judge(const char *spec, const attn_problem *p, double q, double k, double v) {
  run_case *c = case_make(*p, q, 100);
  case_normals(c, c->k, case_count_k(&c->problem), k, 102);
  case_normals(c, c->v, case_count_v(&c->problem), v, 103);
  case_run(c, spec, NULL);
  for (const check *const *x = checks_all; *x; x++) {
    if ((*x)->kind != KIND_HARD) continue;
    const result_bound b = case_check(&c->e, (*x)->name);
    cr_expect(b.verdict != VERDICT_VIOLATED && b.verdict != VERDICT_ERROR,
              "%s, %s causal %d, queries %g, keys %g, values %g: %s is %s, %g of %g %s", spec,
              p->dtype == ATTN_F64 ? "fp64" : "fp32", (int)p->causal, q, k, v, b.name,
              check_verdict_names[b.verdict], b.measured, b.value, b.message);
  }
  case_free(c);
}

/* Each size of queries with each of keys, and each of values with each of both. */
Test(checks_ends, nothing_is_violated_at_the_ends_of_the_range) {
  enum { CASES = 16 };
  static const double sizes[2][4] = {{0, 1e-30, 1e17, 3e37}, {0, 1e-200, 1e140, 1e300}},
                      values[2][3] = {{1e-15, 1, 1e25}, {1e-150, 1, 1e200}};
  int turn = 0;
  for (const char *spec = strtok(specs, ";"); spec; spec = strtok(NULL, ";"), turn++)
    for (int at = 0; at < 2 * CASES; at++) {
      const int wide = at / CASES, query = at % 4, key = at / 4 % 4;
      attn_problem p = case_problem(1, 2, 1, 20, 4, 3, (query + key + turn) % 2, wide ? ATTN_F64 : ATTN_F32);
      attn_plan *plan = NULL;
      if (attn_plan_create(&plan, &p, spec, NULL)) p.causal = !p.causal;
      attn_plan_destroy(plan);
      plan = NULL;
      const attn_status status = attn_plan_create(&plan, &p, spec, NULL);
      cr_assert(!status || (wide && status == ATTN_EUNSUPPORTED), "%s: %s", spec, attn_last_error());
      if (!status) /* codes are of fp32 alone */
        judge(spec, &p, sizes[wide][query], sizes[wide][key], values[wide][(query + key + turn) % 3]);
      attn_plan_destroy(plan);
    }
}

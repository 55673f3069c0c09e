/* universal.c - the properties of every variant (experiments/properties/): those of the library keep them
 * all, and say with a reason what they are exempt from. */
#include "tests/support/checks_case.h"
#include "experiments/properties/property.h"

/* As a sweep would have them, and small ones, in which patterns and draws show more. */
static char specs[] =
    "full;tiled;tiled:block_q=32,block_k=64;tiled:precision=bf16;tiled:path=split;topk;"
    "topk:k=5,sink=2,window=4;topk:p=0.9;topk:k=9,by=sparq,r=5;topk:k=9,by=loki,r=5;topk:k=9,by=index;"
    "pages:budget=64;pages:page=8,budget=40,share=tile,score=mean;"
    "pages:page=8,budget=40,score=weight,block=4,overlap=4;vslash:vertical=20,slash=16,last=24,sink=4;"
    "lsh:rounds=2,buckets=8;lsh_tail:k=3,l=10;lsh_tail:k=3,l=10,hits=1,centre=no,window=3;"
    "magicpig:sink=2,window=9,k=3,l=10;vattention:sink=2,window=9,heavy=8,base=16,eps=0.2;sample:count=20;"
    "sample:count=20,replacement=yes;sample:guarantee=clt,base=16,eps=0.3;"
    "sample:guarantee=bernstein,base=16,eps=0.9,max_share=0.5;hyper:exact_below=0,block=32,sample=24;"
    "hyper:exact_below=60,block=20,sample=40,bits=3,sampling=values;"
    "hyper:exact_below=0,block=24,sample=30,exclude=no;scatterbrain:window=32,features=64;"
    "topk:k=9 + performer:features=64;scatterbrain_lsh:rounds=2,buckets=8,features=64;longnet;"
    "longnet:segments=20+96,dilations=1+4;longformer:window=128,global=4;"
    "longformer:window=6,dilation=3,global_at=3+50;bigbird:block=64,window=3,global=1,random=3;"
    "bigbird:block=8,random=2,global=0;bigbird:block=16,random=2,tail=uniform;"
    "linformer:projection=gaussian,k=64;linformer:projection=rademacher,k=256,share=none;"
    "linformer:projection=srht,k=32;linformer:projection=dct,k=33,share_heads=no;"
    "linformer:projection=pool,k=24;performer:features=64;performer:features=256,kernel=hyperbolic,eps=1e-4;"
    "performer:features=48,kernel=trig,orthogonal=no,share_heads=no;"
    "performer:features=32,kernel=relu,eps=1e-3;linear;linear:feature=cos,M=4096;linear:feature=taylor;"
    "linear:feature=identity,normalise=no;linear:feature=hedgehog;pooled:block=16,window=20;"
    "pooled:block=4,overlap=4,window=9;pooled:block=4,overlap=6,window=0,whole=yes;"
    "pooled:block=4,overlap=4,window=9,top=5;nsa:block=4,overlap=4,page=8,budget=40,window=9;"
    "toeplitz:block=64;toeplitz:feature=cos,M=4096,slope=0.01,block=128;normaliser;columns;"
    "columns:of=second;forget;normaliser:kind=relu,power=2;normaliser:kind=sparsemax;"
    "normaliser:kind=entmax15;recurrent;recurrent:rule=ssd,chunk=20;recurrent:rule=gla;"
    "recurrent:rule=gated_delta,chunk=20;recurrent:rule=gated_delta2;recurrent:rule=mamba3,chunk=20;"
    "recurrent:rule=ssd,read=before;recurrent:decay=constant,gamma=0.9,chunk=20;recurrent:normaliser=rows;"
    "streaming_cache:sink=3,window=13,dims=24;sage:group=48;latent:rank=20;latent:rank=100,path=naive;"
    "latent:rank=12,shared=5,prompt=40;svd:r=8;nystrom:landmarks=20;nystrom:landmarks=64,middle=pinv;"
    "nystrom:landmarks=33,middle=agents,by=sample;svd:r=8,of=scores;cluster:clusters=40,topk=0;"
    "cluster:clusters=20,topk=17;coreset:keys=20;skyformer:landmarks=20";

static void judge(const char *spec, bool causal, attn_dtype dtype, const char *isa) {
  attn_problem p = case_problem(1, 1, 1, 512, 32, 32, causal, dtype);
  const attn_options options = {.isa = isa};
  attn_plan *plan = NULL;
  attn_view view;
  attn_status status = attn_plan_create(&plan, &p, spec, &options);
  if (status == ATTN_EUNSUPPORTED) return;
  cr_assert_eq(status, ATTN_OK, "%s: %s", spec, attn_last_error());
  cr_assert_eq(attn_plan_inspect(plan, &view), ATTN_OK);
  evidence e = {
      .plan = plan, .problem = attn_plan_problem(plan), .view = &view, .cache = block_cache_create()};
  /* Where no descriptor names keys, checks that need them are uncertifiable, and report it. */
  const bool unnamed = view.low_rank || view.residual || view.latent;
  /* A sum describes no keys; its terms do, and SUM-1 holds it against them. */
  const bool of_terms = attn_plan_parsed_spec(plan)->expression && !view.pattern && !view.selector;
  result_row row = row_empty();
  cr_assert_eq(properties_run(&e, &row), ATTN_OK);
  cr_expect(row.bounds_count >= 8);
  for (int b = 0; b < row.bounds_count; b++) {
    const result_bound *cell = &row.bounds[b];
    cr_expect_eq(cell->kind, KIND_PROPERTY, "%s", cell->name);
    expect_in_range(cell, spec);
    const bool excused = cell->verdict == VERDICT_NOT_APPLICABLE ||
                         (unnamed && cell->verdict == VERDICT_UNCERTIFIABLE) ||
                         (of_terms && cell->verdict == VERDICT_UNCHECKED);
    cr_expect(cell->verdict == VERDICT_PASS || (excused && *cell->message),
              "%s%s %s %s, %s: %s, measured %g of %g: %s", spec, causal ? ", causal" : "",
              dtype == ATTN_F64 ? "f64" : "f32", isa, cell->name, check_verdict_names[cell->verdict],
              cell->measured, cell->value, cell->message);
  }
  cr_expect_eq(bounds_worst(row.bounds, row.bounds_count), VERDICT_UNCHECKED, "properties are no bounds");
  result_row_free(&row);
  block_cache_free(e.cache);
  attn_plan_destroy(plan);
}

/* Under the best instruction set a variant has one of the two types and one of the two masks, by turns; under
 * each of the others a quarter of the variants have. core_properties has all of them under each. */
Test(checks_universal, the_variants_of_the_library_keep_every_property) {
  const char *const *isas = attn_isa_list();
  gsl_set_error_handler_off();
  size_t s = 0;
  for (const char *spec = strtok(specs, ";"); spec; spec = strtok(NULL, ";"), s++)
    for (size_t i = 0; isas[i]; i++)
      for (size_t k = 0; k < 4; k++)
        if (k == (s + i) % 4 && (i == 0 || (s / 4 + i) % 4 == 0))
          judge(spec, k & 1, k & 2 ? ATTN_F64 : ATTN_F32, isas[i]);
}

/* query_positions.c - where the queries of a call stand (q_position): batch entries of different lengths are
 * each a default execution of that entry alone. What no query may see is NaN: padding, later keys. */
#include "tests/support/call_positions.h"

/* A batch entry by itself: its keys are the sequence, its queries the last. */
static void run_alone(const inputs *in, const char *spec, const attn_options *options, int64_t b,
                      int64_t keys, output *x) {
  const attn_problem *p = &in->problem;
  attn_problem own = *p;
  own.batch = 1;
  own.n_kv = keys;
  own.o = (attn_stride){0};
  attn_plan *plan = plan_or_note(&own, spec, options);
  *x = output_make(&own, plan && gives_lse(plan));
  if (plan)
    EXPECT_STATUS(run(plan,
                      &(attn_tensors){.q = attn_rows(in->q, p->q, b, 0, p->dtype),
                                      .k = attn_rows(in->k, p->k, b, 0, p->dtype),
                                      .v = attn_rows(in->v, p->v, b, 0, p->dtype)},
                      x),
                  ATTN_OK);
  attn_plan_destroy(plan);
}

/* lengths: keys up to the last query of each entry; later ones are NaN, and padding if so. */
static void check_lengths(const char *spec, const attn_problem *p, const int64_t *lengths, bool padded) {
  inputs in = inputs_make(p, false, 7, 1);
  int64_t position[BATCH];
  for (int64_t b = 0; b < BATCH; b++) {
    position[b] = lengths[b] - p->n_q;
    for (int64_t h = 0; h < KV_HEADS; h++)
      for (int64_t j = lengths[b]; j < N_KV; j++) {
        inputs_set_row(&in, TENSOR_K, b, h, j, (double)NAN);
        inputs_set_row(&in, TENSOR_V, b, h, j, (double)NAN);
      }
  }
  for (const char *const *isa = isas_under_test(); *isa && (isa == isas_under_test() || p->n_q == 3); isa++) {
    const attn_options options = {.isa = *isa, .threads = 2};
    note_context("%s %s n_q %d %s%s", spec, *isa, (int)p->n_q, p->dtype == ATTN_F64 ? "f64" : "f32",
                 padded ? " padded" : "");
    attn_plan *plan = plan_or_note(&in.problem, spec, &options);
    if (!plan) break;
    output all = output_make(&in.problem, gives_lse(plan)), again = output_make(&in.problem, all.lse);
    const attn_tensors x = {
        .q = in.q, .k = in.k, .v = in.v, .kv_len = padded ? lengths : NULL, .q_position = position};
    EXPECT_STATUS(run(plan, &x, &all), ATTN_OK);
    for (int64_t b = 0; b < BATCH; b++) {
      output one;
      run_alone(&in, spec, &options, b, lengths[b], &one);
      expect_entry(&in.problem, &all, &one, b);
    }
    attn_plan_destroy(plan);
    plan = plan_or_note(&in.problem, spec, &(attn_options){.isa = *isa, .threads = 5});
    EXPECT_STATUS(run(plan, &x, &again), ATTN_OK);
    expect_same(&in.problem, all.o, again.o, "2 and 5 threads");
    attn_plan_destroy(plan);
  }
}

static char causal_specs[] =
    "full;tiled;tiled:block_k=7;tiled:block_q=2,block_k=16;"
    "tiled:skip=1e-30,order=diagonal,block_k=8;tiled:skip=1e-30,order=sink_first,block_k=8;"
    "streaming:sink=2,window=9;longformer:window=12,global=3;"
    "longformer:window=12,dilation=3,global=2;sparse_transformer:stride=7;"
    "sparse_transformer:mode=fixed,stride=8,summary=2;"
    "bigbird:block=4,window=3,random=2,global=1;graph:kind=documents,size=20;"
    "topk:k=6,sink=1,window=2;topk:k=6,share=group;topk:k=9,by=random,seed=3;topk:p=0.7;"
    "pages:page=4,budget=16;pages:page=4,budget=16,score=mass,share=group;"
    "lsh:rounds=2,buckets=4,window=3;lsh_tail:k=2,l=6,hits=1,window=3,centre=no;"
    "sample:count=8;sample:guarantee=bernstein,base=16,replacement=yes;"
    "streaming:sink=2,window=5 + topk:k=4;longformer:window=6,dilation=3 + sample:count=6;"
    "0.5*tiled + 0.5*streaming:sink=1,window=7;linear;linear:feature=cos,M=91;"
    "performer:features=16,seed=2;streaming:sink=2,window=5 + performer:features=24;"
    "topk:k=5 + linear;vattention";

static bool takes_scores(const char *spec) { return !strstr(spec, "linear") && !strstr(spec, "performer"); }

Test(core_query_positions, entries_of_different_lengths) {
  static const int64_t lengths[BATCH] = {23, N_KV, 50};
  for (const char *spec = strtok(causal_specs, ";"); spec; spec = strtok(NULL, ";"))
    for (size_t n = 0; n < sizeof queries / sizeof *queries; n++) {
      attn_problem p = problem_of(queries[n], n % 2 ? ATTN_F32 : ATTN_F64, true);
      check_lengths(spec, &p, lengths, true);
      if (takes_scores(spec)) p.score = alibi();
      check_lengths(spec, &p, lengths, false); /* the keys exist, but are later */
    }
}

/* Masks and biases of the distance follow positions; without causality the padding ends the keys. */
Test(core_query_positions, masks) {
  static const int64_t documents[] = {0, 1, 30, 31, 64, N_KV}, lengths[BATCH] = {40, N_KV, 64};
  static const char *const specs[] = {"full", "tiled:block_k=8", "longformer:window=200", "topk:k=200"};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int kind = ATTN_MASK_NONE; kind <= ATTN_MASK_BLOCK_CAUSAL; kind++)
      for (int causal = 0; causal < 2; causal++) {
        attn_problem p = problem_of(5, causal ? ATTN_F32 : ATTN_F64, causal);
        p.mask = (attn_mask){.kind = (attn_mask_kind)kind, .size = 13};
        p.score = alibi();
        check_lengths(specs[s], &p, lengths, true);
      }
  /* Documents are as long as the sequence: held against the reference, which is of positions too. */
  for (int64_t first = 0; first < N_KV - 4; first += 9) {
    attn_problem p = problem_of(5, ATTN_F64, false);
    p.mask = (attn_mask){.kind = ATTN_MASK_DOCUMENTS, .offsets = documents, .count = 5};
    inputs in = inputs_make(&p, false, 3, 1);
    attn_plan *plan = plan_or_note(&in.problem, "tiled", NULL);
    output x = output_make(&in.problem, false);
    const int64_t position[BATCH] = {first, N_KV - 5, 30};
    EXPECT_STATUS(run(plan, &(attn_tensors){.q = in.q, .k = in.k, .v = in.v, .q_position = position}, &x),
                  ATTN_OK);
    for (int64_t i = 0; i < 5; i++) {
      double sum = 0, o = 0;
      const int64_t at = first + i;
      int64_t d = 0;
      while (documents[d + 1] <= at) d++;
      for (int64_t j = documents[d]; j < documents[d + 1]; j++) {
        double dot = 0;
        for (int64_t l = 0; l < D; l++)
          dot += inputs_get(&in, TENSOR_Q, 0, 1, i, l) * inputs_get(&in, TENSOR_K, 0, 0, j, l);
        sum += exp(p.scale * dot);
        o += exp(p.scale * dot) * inputs_get(&in, TENSOR_V, 0, 0, j, 4);
      }
      note_context("documents, position %d", (int)at);
      EXPECT(fabs(output_get(&in.problem, x.o, 0, 1, i, 4) - o / sum) <= tolerance(ATTN_F64, 4));
    }
    attn_plan_destroy(plan);
    inputs_free(&in);
  }
}

/* Infinite values under a weight of zero become NaN by the definition, wherever their keys stand. */
Test(core_query_positions, infinite_values) {
  attn_problem p = problem_of(3, ATTN_F64, true);
  p.scale = 60;
  inputs in = inputs_make(&p, false, 9, 1);
  const int64_t lengths[BATCH] = {23, N_KV, 50};
  for (int64_t b = 0; b < BATCH; b++)
    for (int64_t h = 0; h < KV_HEADS; h++) inputs_set(&in, TENSOR_V, b, h, 15, 2, (double)INFINITY);
  int64_t position[BATCH];
  for (int64_t b = 0; b < BATCH; b++) position[b] = lengths[b] - 3;
  attn_plan *plan = plan_or_note(&in.problem, "longformer:window=200,dilation=3", NULL);
  output all = output_make(&in.problem, true);
  EXPECT_STATUS(run(plan, &(attn_tensors){.q = in.q, .k = in.k, .v = in.v, .q_position = position}, &all),
                ATTN_OK);
  for (int64_t b = 0; b < BATCH; b++) {
    output one;
    run_alone(&in, "longformer:window=200,dilation=3", NULL, b, lengths[b], &one);
    for (int64_t at = 0; at < HEADS * 3 * D_V; at++) {
      const double got = attn_get(all.o, b * HEADS * 3 * D_V + at, ATTN_F64),
                   own = attn_get(one.o, at, ATTN_F64);
      EXPECT(isnan(got) == isnan(own) && isinf(got) == isinf(own));
    }
  }
  attn_plan_destroy(plan);
}

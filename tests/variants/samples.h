/* samples.h - what a selector draws for one query of one head, with weights and beside keys that others own,
 * for the tests of variants that weigh keys. */
#ifndef TESTS_VARIANTS_SAMPLES_H
#define TESTS_VARIANTS_SAMPLES_H

#include "tests/support/core.h"

typedef struct sampler {
  attn_plan *plan;
  attn_view view;
  attn_call call;
  void *prepared, *scratch;
  attn_picks picks;
} sampler;

static inline sampler sampler_of(const char *spec, const inputs *in) {
  sampler x = {.plan = NULL};
  x.plan = plan_inspected(&in->problem, spec, NULL, &x.view);
  const attn_selector *s = x.view.selector;
  cr_assert_not_null(s);
  x.call = (attn_call){.context = attn_plan_context(x.plan),
                       .q = in->q,
                       .k = in->k,
                       .v = in->v,
                       .kv_len = in->padded ? in->kv_len : NULL};
  const size_t prepared = s->prepared_bytes, scratch = s->scratch_bytes,
               runs = (size_t)(s->max_runs * s->rows);
  x.prepared = aligned_alloc(64, prepared / 64 * 64 + 64);
  x.scratch = aligned_alloc(64, scratch / 64 * 64 + 64);
  x.picks = (attn_picks){.max_runs = s->max_runs,
                         .runs = calloc(runs, sizeof(attn_run)),
                         .counts = calloc((size_t)s->rows, sizeof(int64_t)),
                         .log_weights = calloc(runs, sizeof(double))};
  return x;
}

static inline void sampler_free(sampler *x) {
  free(x->prepared);
  free(x->scratch);
  free(x->picks.runs);
  free(x->picks.counts);
  free(x->picks.log_weights);
  attn_plan_destroy(x->plan);
}

/* The weight of each key [n_kv], 0 where it is not drawn, for query i of a head. owned: NULL, or selection 0
 * of these is kept out. */
static inline void sample_weights(sampler *x, int64_t batch, int64_t head, int64_t i, const attn_picks *owned,
                                  double *weights) {
  const attn_selector *s = x->view.selector;
  const attn_problem *p = x->call.context->problem;
  if (s->prepare)
    s->prepare(s->state, &x->call, batch, head / (p->heads / p->kv_heads), x->prepared, x->scratch);
  x->picks.owned = owned;
  memset(x->picks.log_weights, 0, (size_t)(s->max_runs * s->rows) * sizeof(double));
  s->select(s->state, &x->call, &(attn_block){batch, head, i, 1}, x->prepared, &x->picks, x->scratch);
  for (int64_t j = 0; j < p->n_kv; j++) weights[j] = 0;
  for (int64_t r = 0; r < x->picks.counts[0]; r++)
    for (int64_t j = 0; j < x->picks.runs[r].count; j++)
      weights[x->picks.runs[r].first + j] = exp(x->picks.log_weights[r]);
}

/* At this setting the variant is exact attention, bit by bit, over 90 keys at most. */
static inline void expect_exact_bits(const char *spec) {
  for (int causal = 0; causal <= 1; causal++) {
    const attn_problem p = shape_problem((case_shape){2, 4, 2, 41, 90, 16, 7, causal, true}, ATTN_F32);
    inputs in = inputs_make(&p, true, 23, 1);
    void *want = run_spec("tiled", NULL, &in), *got = run_spec(spec, NULL, &in);
    expect_same(&p, want, got, spec);
    free(want);
    free(got);
    inputs_free(&in);
  }
}

#endif

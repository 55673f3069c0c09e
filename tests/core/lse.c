/* lse.c - the log-sum-exp of every row: against fp64 within what the roundings of scores and sums allow,
 * beside an unchanged output, and what it is for: attention over parts of the keys, joined by it, is
 * attention over all. */
#include "tests/support/core.h"

static const case_shape shapes[] = {
    {2, 4, 2, 37, 37, 16, 9, true, false},
    {2, 3, 3, 70, 45, 7, 16, true, true},
    {1, 6, 2, 3, 2500, 20, 8, false, false},
    {2, 2, 1, 130, 300, 33, 5, false, true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct run {
  void *o;
  double *lse;
} run;

/* Kept. */
static run run_lse(const attn_plan *plan, const inputs *in) {
  const attn_problem *p = &in->problem;
  run r = {kept_memory(calloc(output_count(p), attn_dtype_size(p->dtype))),
           kept_memory(calloc((size_t)(p->batch * p->heads * p->n_q), sizeof(double)))};
  attn_tensors x = tensors_of(in);
  x.o = r.o;
  x.lse = r.lse;
  EXPECT_STATUS(run_tensors(plan, x), ATTN_OK);
  return r;
}

/* The lse of a row in long double; *error: the most that the engine's may differ. A score's error is gamma of
 * its chain times sum |q||k|; the exponents add kappa_s u |m - s| and exp_error, the sum its chain; the
 * logarithm, fp64 roundings. */
static double expected(const inputs *in, const attn_rounding *r, int64_t b, int64_t h, int64_t i,
                       double *error) {
  const attn_problem *p = &in->problem;
  int64_t *keys = malloc((size_t)p->n_kv * sizeof *keys), count = oracle_keys(in, NULL, b, h, i, keys);
  int64_t kv_head = h / (p->heads / p->kv_heads);
  long double *s = malloc((size_t)(count ? count : 1) * sizeof *s), max = -(long double)INFINITY,
              least = (long double)INFINITY, sum = 0, rough = 0;
  for (int64_t j = 0; j < count; j++) {
    long double plain = 0, absolute = 0;
    for (int64_t l = 0; l < p->d_qk; l++) {
      long double x = (long double)inputs_get(in, TENSOR_Q, b, h, i, l) *
                      (long double)inputs_get(in, TENSOR_K, b, kv_head, keys[j], l);
      plain += x;
      absolute += fabsl(x);
    }
    s[j] = plain * (long double)p->scale;
    max = fmaxl(max, s[j]);
    least = fminl(least, s[j]);
    rough = fmaxl(rough, absolute * fabsl((long double)p->scale));
  }
  for (int64_t j = 0; j < count; j++) sum += expl(s[j] - max);
  double u = r->unit, spread = (double)(max - least);
  *error = 1.01 * (((double)r->score + 3) * u * (double)rough +
                   r->kappa_s * u * spread * (double)(1 + p->n_kv / r->block) + (double)r->sum * u +
                   (double)(2 + p->n_kv / r->block) * r->exp_error + 0x1p-50 * (1 + fabs((double)max)));
  double lse = count ? (double)(max + logl(sum)) : -(double)INFINITY;
  free(keys), free(s);
  return lse;
}

static void try(const inputs *in, const char *spec, const char *isa) {
  attn_options options = {.isa = isa, .threads = 1};
  attn_plan *plan = plan_or_note(&in->problem, spec, &options);
  if (!plan) return;
  attn_view view;
  EXPECT_STATUS(attn_plan_inspect(plan, &view), ATTN_OK);
  run r = run_lse(plan, in);
  void *o = kept_memory(run_plain(plan, in));
  const attn_problem *p = &in->problem;
  expect_same(p, r.o, o, "output with and without lse");
  for (int64_t row = 0; row < p->batch * p->heads * p->n_q; row++) {
    double error, lse = expected(in, &view.rounding, row / p->n_q / p->heads, row / p->n_q % p->heads,
                                 row % p->n_q, &error);
    if (isinf(lse) ? r.lse[row] != lse : !(fabs(r.lse[row] - lse) <= error))
      note_failure("row %lld: lse %.17g, expected %.17g within %g", (long long)row, r.lse[row], lse, error);
  }
  attn_plan_destroy(plan);
}

Test(core_lse, as_fp64_says) {
  for (int s = 0; s < SHAPES; s++)
    for (const char *const *isa = isas_under_test(); *isa; isa++)
      for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
        note_context("%s %s", *isa, shape_text(shapes[s]));
        inputs in = inputs_shaped(shapes[s], dtype, (uint64_t)s, 1.5);
        try(&in, "tiled", *isa);
        try(&in, "tiled:block_q=5,block_k=32", *isa);
        if (dtype == ATTN_F32) try(&in, "tiled:path=split", *isa);
        inputs_free(&in);
      }
}

/* Keys [0, 200) and [200, 300), apart and joined; the join itself is in fp64. */
Test(core_lse, joins_parts_of_the_keys) {
  enum { N = 300, CUT = 200, QUERIES = 40 };
  attn_problem all = shape_problem((case_shape){1, 2, 2, QUERIES, N, 8, 6, false, false}, ATTN_F64);
  inputs in = inputs_make(&all, false, 7, 1);
  all = in.problem;
  attn_problem part = all;
  run runs[2];
  for (int i = 0; i < 2; i++) {
    part.n_kv = i ? N - CUT : CUT;
    inputs piece = in;
    piece.problem = part;
    piece.k = in.k + (i ? CUT : 0) * all.k.row * 8;
    piece.v = in.v + (i ? CUT : 0) * all.v.row * 8;
    runs[i] = run_lse(plan_kept(&part, "tiled", NULL), &piece);
  }
  attn_plan *plan = plan_kept(&all, "tiled", NULL);
  oracle exact = oracle_of(plan, &in);
  double *o = kept_memory(malloc(output_count(&all) * sizeof *o));
  for (size_t e = 0; e < output_count(&all); e++) {
    size_t row = e / (size_t)all.d_v;
    double m = fmax(runs[0].lse[row], runs[1].lse[row]), a = exp(runs[0].lse[row] - m),
           b = exp(runs[1].lse[row] - m);
    o[e] = (a * ((double *)runs[0].o)[e] + b * ((double *)runs[1].o)[e]) / (a + b);
    exact.bound[e] += 0x1p-45; /* |v| < 4; lse < 16, so a and b within 2^-48 */
  }
  expect_within(&all, o, &exact, "joined");
  oracle_free(&exact);
}

/* Scores of -Inf alone sum to 0, whatever weight the kernels keep for them. A NaN is one of its row alone. */
Test(core_lse, what_is_not_finite) {
  for (const char *const *isa = isas_under_test(); *isa; isa++) {
    inputs in = inputs_shaped((case_shape){1, 1, 1, 20, 20, 4, 4, true, false}, ATTN_F32, 3, 1);
    inputs_set(&in, TENSOR_Q, 0, 0, 5, 1, (double)NAN);
    for (int64_t l = 0; l < 4; l++) inputs_set(&in, TENSOR_K, 0, 0, 0, l, l ? 0.0 : -(double)INFINITY);
    for (int64_t i = 0; i < 20; i++) inputs_set(&in, TENSOR_Q, 0, 0, i, 0, 1);
    attn_options options = {.isa = *isa};
    attn_plan *plan = plan_kept(&in.problem, "tiled", &options);
    run r = run_lse(plan, &in);
    note_context("%s", *isa);
    EXPECT(isinf(r.lse[0]) && r.lse[0] < 0);
    for (int64_t i = 1; i < 20; i++) EXPECT(i == 5 ? isnan(r.lse[i]) : isfinite(r.lse[i]));
  }
}

/* -- rows that see no key -- */

/* A batch entry of padding alone, queries before the first key, an empty document, biases that hide whole
 * rows. */
typedef struct hiding {
  attn_problem problem;
  double sinks[4], bias[60 * 44];
  int64_t documents[4];
} hiding;

enum { PADDED, EARLY, APART, BIASED, HIDINGS };

static inputs hide(hiding *x, int how, bool sink, attn_dtype dtype) {
  x->problem = shape_problem(
      (case_shape){2, 4, 2, how == EARLY ? 60 : 44, 44, 8, 5, how == EARLY, how == PADDED}, dtype);
  for (int h = 0; h < 4; h++) x->sinks[h] = h * 3.7 - 5;
  for (int e = 0; e < 44 * 44; e++) x->bias[e] = e / 44 % 7 == 3 ? -(double)INFINITY : e % 5;
  if (sink) x->problem.score.sink = x->sinks;
  if (how == BIASED) x->problem.score.dense = (attn_bias){x->bias, ATTN_F64, 0, 0, 44};
  if (how == APART) { /* no query lies in a document without keys: padding takes them */
    const int64_t ends[] = {0, 20, 44};
    memcpy(x->documents, ends, sizeof ends);
    x->problem.mask = (attn_mask){.kind = ATTN_MASK_DOCUMENTS, .offsets = x->documents, .count = 2};
  }
  inputs in = inputs_make(&x->problem, how == PADDED || how == APART, 9, 1);
  if (how == APART) in.kv_len[0] = in.kv_len[1] = 12;
  return in;
}

static void expect_logits(const inputs *in, const char *spec) {
  const attn_problem *p = &in->problem;
  attn_plan *plan = plan_or_note(p, spec, NULL);
  if (!plan) return;
  run r = run_lse(plan, in);
  int64_t *keys = kept_memory(calloc((size_t)p->n_kv, sizeof *keys)), empty = 0;
  for (int64_t row = 0; row < p->batch * p->heads * p->n_q; row++) {
    const int64_t h = row / p->n_q % p->heads;
    const double want = p->score.sink ? p->score.sink[h] : -(double)INFINITY;
    if (oracle_keys(in, NULL, row / p->n_q / p->heads, h, row % p->n_q, keys)) continue;
    empty++;
    if (r.lse[row] != want) {
      note_failure("row %lld: lse %g, expected %g", (long long)row, r.lse[row], want);
      break;
    }
    for (int64_t l = 0; l < p->d_v; l++) EXPECT(attn_get(r.o, row * p->d_v + l, p->dtype) == 0);
  }
  EXPECT(empty > 0);
  attn_plan_destroy(plan);
}

/* The logarithm of the softmax's denominator: the sink's logit, -Inf without a sink; of an output of
 * zeros. */
Test(core_lse, rows_without_keys) {
  static const char *const expressions[] = {"streaming:sink=2,window=4 + topk:k=4",
                                            "longformer:window=4 + sample:count=4",
                                            "pages:page=4,budget=8 + lsh_tail"};
  static hiding room;
  int tried = 0;
  for (int how = 0; how < HIDINGS; how++)
    for (int sink = 0; sink < 2; sink++) {
      const attn_dtype dtype = (how + sink) % 2 ? ATTN_F64 : ATTN_F32;
      inputs in = hide(&room, how, sink, dtype);
      for (size_t v = 0; v < attn_variant_count(); v++) {
        if (!(attn_variant_at(v)->caps & ATTN_CAP_LSE)) continue;
        spec_list list = specs_for(attn_variant_at(v), &in.problem, 8);
        for (int k = 0; k < list.count; k++, tried++) {
          note_context("%s, hidden %d, %s", list.text[k], how, sink ? "sink" : "no sink");
          expect_logits(&in, list.text[k]);
        }
        spec_list_free(&list);
      }
      for (size_t e = 0; e < sizeof expressions / sizeof *expressions; e++) {
        if ((how == EARLY) != (e == 0)) continue; /* the first is causal, the others see no position before */
        note_context("%s, hidden %d, %s", expressions[e], how, sink ? "sink" : "no sink");
        expect_logits(&in, expressions[e]);
      }
    }
  cr_expect(tried > 200, "%d", tried);
}

Test(core_lse, refusals) {
  attn_problem problem = attn_problem_make(1, 1, 4, 4);
  float x[16] = {0}, o[16];
  double lse[4];
  attn_plan *full = plan_kept(&problem, "full", NULL), *tiled = plan_kept(&problem, "tiled", NULL);
  void *work = kept_memory(malloc(attn_plan_work_size(full) + attn_plan_work_size(tiled)));
  EXPECT_STATUS(attn_plan_execute_lse(full, x, x, x, NULL, o, lse, work), ATTN_EUNSUPPORTED);
  EXPECT_STATUS(attn_plan_execute_lse(tiled, x, x, x, NULL, o, NULL, work), ATTN_EINVAL);
  EXPECT_STATUS(attn_plan_execute_lse(tiled, x, x, NULL, NULL, o, lse, work), ATTN_EINVAL);
}

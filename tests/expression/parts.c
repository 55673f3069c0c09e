/* parts.c - gated sums and dyadic against what they must be: 1*a is a, halves of one thing are that thing,
 * and halves of the sequence, joined by their log-sum-exps, are the whole. */
#include "tests/support/core.h"

#include <float.h>

static attn_problem problem_of(int64_t n_q, int64_t n_kv, bool causal, attn_dtype t) {
  attn_problem p = attn_problem_make(2, 4, n_kv, 16);
  p.kv_heads = 2;
  p.n_q = n_q;
  p.d_v = 12;
  p.causal = causal;
  p.dtype = t;
  return p;
}

static double unit(attn_dtype t) { return t == ATTN_F64 ? DBL_EPSILON / 2 : (double)FLT_EPSILON / 2; }

static void expect_near(const attn_problem *p, const void *a, const void *b, double tolerance) {
  double most = 0;
  if (!a || !b) return;
  for (size_t i = 0; i < output_count(p); i++)
    most = fmax(most, fabs(attn_get(a, (int64_t)i, p->dtype) - attn_get(b, (int64_t)i, p->dtype)));
  if (!(most <= tolerance)) note_failure("apart by %g, at most %g", most, tolerance);
}

static void expect_both(const attn_problem *p, bool padded, const char *a, const char *b, double units) {
  note_context("%s against %s, n %dx%d%s%s", a, b, (int)p->n_q, (int)p->n_kv, p->causal ? " causal" : "",
               padded ? " padded" : "");
  inputs in = inputs_make(p, padded, 5, 1);
  void *x = kept_memory(run_spec(a, NULL, &in)), *y = kept_memory(run_spec(b, NULL, &in));
  if (units > 0)
    expect_near(p, x, y, units * unit(p->dtype) * inputs_most(&in, TENSOR_V));
  else if (x && y)
    expect_same(p, x, y, "bitwise");
}

Test(expression_parts, sums_of_one_thing) {
  for (int k = 0; k < 8; k++) {
    const attn_problem p = problem_of(k & 4 ? 77 : 130, 130, k & 1, k & 2 ? ATTN_F64 : ATTN_F32);
    expect_both(&p, k & 4, "1*tiled", "tiled", 0);
    expect_both(&p, k & 4, "1*lsh:rounds=2", "lsh:rounds=2", 0);
    expect_both(&p, k & 4, "0.5*tiled + 0.5*tiled", "tiled", 0);
    expect_both(&p, k & 4, "2*tiled - 1*tiled", "tiled", 0);
    expect_both(&p, k & 4, "(tiled)", "tiled", 0);
    expect_both(&p, k & 4, "1*(0.5*tiled + 0.5*(tiled))", "tiled", 0);
    /* 1.5 x is rounded, and the sum of it and -0.5 x. */
    expect_both(&p, k & 4, "1.5*tiled - 0.5*tiled", "tiled", 1.5 + 1);
  }
}

Test(expression_parts, sums_add_up) {
  const attn_problem p = problem_of(90, 90, true, ATTN_F64);
  inputs in = inputs_make(&p, false, 5, 1);
  void *a = kept_memory(run_spec("streaming:sink=2,window=9", NULL, &in)),
       *b = kept_memory(run_spec("linear", NULL, &in)),
       *sum = kept_memory(run_spec("0.25*streaming:sink=2,window=9 - 3*linear", NULL, &in));
  cr_assert(a && b && sum);
  for (size_t i = 0; i < output_count(&p); i++) {
    const double expected = 0.25 * attn_get(a, (int64_t)i, ATTN_F64) - 3 * attn_get(b, (int64_t)i, ATTN_F64);
    if (!(fabs(attn_get(sum, (int64_t)i, ATTN_F64) - expected) <= 2 * DBL_EPSILON * fabs(expected) + DBL_MIN))
      note_failure("element %zu", i);
  }
}

/* Parts of the sequence: a row's softmax is that of the parts that it sees, at most L joins of them. Scores
 * are off by at most e = (d + 4) u S in the exponent on either side, sums of at most n weights by n u; these
 * enter numerators and denominators of the parts, and by the log-sum-exps the joins, which round twice. */
static double dyadic_units(const inputs *in, int64_t base) {
  const attn_problem *p = &in->problem;
  const double score =
      fabs(p->scale) * (double)p->d_qk * inputs_most(in, TENSOR_Q) * inputs_most(in, TENSOR_K);
  double joins = 0;
  for (int64_t n = p->n_kv; n > base; n = (n + 1) / 2) joins++;
  const double part = ((double)p->d_qk + 4) * (score + 1) + (double)p->n_kv;
  return 2 * 2 * (joins + 1) * part + 2 * joins;
}

static const struct {
  int64_t n_q, n_kv;
} sizes[] = {{200, 200}, {128, 128}, {129, 129}, {1, 1}, {65, 200}, {3, 200}, {200, 130}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Outputs are those of oracles.c. */
Test(expression_parts, dyadic_of_exact_attention_has_its_log_sum_exps) {
  static const int64_t bases[] = {1, 16, 60, 1024};
  for (int s = 0; s < SIZES; s++)
    for (int k = 0; k < 16; k++) {
      const attn_problem p = problem_of(sizes[s].n_q, sizes[s].n_kv, true, k & 1 ? ATTN_F64 : ATTN_F32);
      const bool padded = k & 2;
      const char *spec = text_of("dyadic(tiled,base=%d)", (int)bases[k / 4]);
      note_context("%s, %dx%d%s", spec, (int)p.n_q, (int)p.n_kv, padded ? ", padded" : "");
      inputs in = inputs_make(&p, padded, 7, 1);
      const double units = dyadic_units(&in, bases[k / 4]);
      attn_plan *plan = plan_or_note(&p, spec, NULL), *exact = plan_or_note(&p, "tiled", NULL);
      const size_t rows = (size_t)(p.batch * p.heads * p.n_q);
      double *lse = malloc(2 * rows * sizeof *lse), *other = lse + rows;
      attn_tensors run = tensors_of(&in);
      run.o = malloc(output_count(&p) * 8);
      cr_assert(lse && run.o);
      run.lse = lse;
      EXPECT_STATUS(run_tensors(plan, run), ATTN_OK);
      run.lse = other;
      EXPECT_STATUS(run_tensors(exact, run), ATTN_OK);
      for (size_t i = 0; i < rows; i++)
        if (!(lse[i] >= other[i] && lse[i] <= other[i]) &&
            !(fabs(lse[i] - other[i]) <= units * unit(p.dtype)))
          note_failure("row %zu: lse %g, expected %g", i, lse[i], other[i]);
      attn_plan_destroy(plan), attn_plan_destroy(exact);
      free(lse), free(run.o);
      inputs_free(&in);
    }
}

Test(expression_parts, dyadic_without_causality_is_refused) {
  const attn_problem p = problem_of(90, 130, false, ATTN_F32);
  expect_no_plan(&p, "dyadic(lsh:rounds=2,base=8)", ATTN_EUNSUPPORTED, "makes attention causal");
}

/* Rows before place m are bitwise the same whatever comes after it. */
Test(expression_parts, dyadic_is_causal) {
  static const char *const specs[] = {"dyadic(tiled,base=16)", "dyadic(topk:k=4,base=16)"};
  for (int s = 0; s < 2; s++)
    for (int64_t m = 1; m < 150; m += 37) {
      const attn_problem p = problem_of(150, 150, true, ATTN_F32);
      note_context("%s from %d", specs[s], (int)m);
      inputs in = inputs_make(&p, false, 7, 1), other = inputs_make(&p, false, 7, 1);
      for (int64_t i = m; i < p.n_kv; i++)
        for (int64_t b = 0; b < p.batch; b++)
          for (int64_t h = 0; h < p.heads; h++) {
            inputs_set_row(&other, TENSOR_Q, b, h, i, 2);
            if (h >= p.kv_heads) continue;
            inputs_set_row(&other, TENSOR_K, b, h, i, (double)NAN);
            inputs_set_row(&other, TENSOR_V, b, h, i, (double)INFINITY);
          }
      attn_plan *plan = plan_or_note(&p, specs[s], NULL);
      void *x = run_plain(plan, &in), *o = run_plain(plan, &other);
      for (int64_t b = 0; b < p.batch; b++) expect_same_rows(&p, x, o, b, 0, m, "later tokens");
      attn_plan_destroy(plan);
      free(x), free(o);
      inputs_free(&in), inputs_free(&other);
    }
}

/* Draws that follow from where a query stands are others in a part of fewer queries; keys that are hashed are
 * not. Landmarks are of all queries of a part, and of these some are later. */
Test(expression_parts, what_terms_cannot_keep) {
  enum { LATER = ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_PREFIX };
  const attn_problem p = problem_of(200, 200, true, ATTN_F32);
  static const struct {
    const char *spec;
    uint32_t exempt, kept, caps, lost;
  } cases[] = {
      {"dyadic(sample:count=4,base=16)", ATTN_EXEMPT_PREFIX, 0, 0, 0},
      {"dyadic(tiled,base=16)", 0, ~(uint32_t)ATTN_EXEMPT_GROUPS, ATTN_CAP_STOCHASTIC, ATTN_CAP_EXACT},
      {"dyadic(topk:k=4,base=16)", 0, ATTN_EXEMPT_PREFIX, 0, 0},
      {"dyadic(lsh,base=16)", 0, ATTN_EXEMPT_PREFIX, 0, 0},
      {"dyadic(longformer:window=8,base=16)", ATTN_EXEMPT_PREFIX, 0, 0, 0},
      {"dyadic(tiled:skip=0.01,base=16)", LATER, 0, 0, 0},
      {"dyadic(nystrom:landmarks=4,base=16)", LATER, 0, 0, 0},
      {"0.5*tiled + 0.5*tiled:skip=0.01", ATTN_EXEMPT_ROWS, 0, 0, ATTN_CAP_SHIFT}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    attn_view view;
    attn_plan *plan = plan_inspected(&p, cases[c].spec, NULL, &view);
    uint32_t found = 0;
    note_context("%s", cases[c].spec);
    for (const attn_exemption *e = view.exempt; e && e->reason; e++) found |= e->properties;
    EXPECT((found & (cases[c].exempt | cases[c].kept)) == cases[c].exempt);
    EXPECT((view.caps & (cases[c].caps | cases[c].lost)) == cases[c].caps);
    attn_plan_destroy(plan);
  }
}

/* special.c - NaN and infinities: they reach exactly the outputs that depend on them, with the class (NaN,
 * +Inf, -Inf) of the textbook row in fp64. */
#include "tests/support/core.h"

/* The textbook row in fp64 without a bound; it decides the class of an output. */
static void textbook(const inputs *in, int64_t b, int64_t h, int64_t i, const int64_t *keys, int64_t count,
                     double *s, double *o) {
  const attn_problem *p = &in->problem;
  int64_t kv_head = h / (p->heads / p->kv_heads);
  double max = -(double)INFINITY, sum = 0;
  for (int64_t t = 0; t < count; t++) {
    s[t] = 0;
    for (int64_t c = 0; c < p->d_qk; c++)
      s[t] += inputs_get(in, TENSOR_Q, b, h, i, c) * inputs_get(in, TENSOR_K, b, kv_head, keys[t], c);
    s[t] *= p->scale;
    if (s[t] > max) max = s[t];
  }
  for (int64_t t = 0; t < count; t++) sum += s[t] = exp(s[t] - max);
  for (int64_t l = 0; l < p->d_v; l++) {
    o[l] = 0;
    for (int64_t t = 0; t < count; t++) o[l] += s[t] / sum * inputs_get(in, TENSOR_V, b, kv_head, keys[t], l);
  }
}

static const char *class_of(double x) {
  return isnan(x) ? "NaN" : isinf(x) ? (x > 0 ? "+Inf" : "-Inf") : "finite";
}

/* Softmax variants (exact, or over a pattern) with all their settings. */
static void expect_classes(const inputs *in, const char *what) {
  const attn_problem *p = &in->problem;
  int64_t *keys = kept_memory(calloc((size_t)p->n_kv, sizeof *keys));
  double *s = kept_memory(calloc((size_t)p->n_kv, sizeof *s)),
         *row = kept_memory(calloc((size_t)p->d_v, sizeof *row));
  cr_assert(keys && s && row);
  for (size_t v = 0; v < attn_variant_count(); v++) {
    spec_list list = specs_for(attn_variant_at(v), p, 6);
    for (int k = 0; k < list.count; k++)
      for (const char *const *isa = isas_under_test(); *isa; isa++) {
        note_context("%s %s %s", what, list.text[k], *isa);
        attn_options options = {.isa = *isa};
        attn_plan *plan = plan_or_note(p, list.text[k], &options);
        attn_view view = {0};
        if (plan) attn_plan_inspect(plan, &view);
        void *o = view.pattern || (view.caps & ATTN_CAP_EXACT) ? run_plain(plan, in) : NULL;
        int bad = 0;
        for (int64_t b = 0; o && b < p->batch; b++)
          for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->n_q; i++) {
              int64_t count = oracle_keys(in, view.pattern, b, h, i, keys);
              textbook(in, b, h, i, keys, count, s, row);
              for (int64_t l = 0; l < p->d_v; l++) {
                const char *want = class_of(row[l]);
                double got = output_get(p, o, b, h, i, l);
                if (class_of(got) != want && !bad++)
                  note_failure("output %d,%d,%d,%d is %g, expected %s", (int)b, (int)h, (int)i, (int)l, got,
                               want);
              }
            }
        free(o);
        attn_plan_destroy(plan);
      }
    spec_list_free(&list);
  }
}

/* Head 0 or kv head 0 of entry 0 gets `value` at a row and column; everything else is ordinary. */
static void poison(tensor which, int64_t row, int64_t column, double value, bool causal, attn_dtype dtype,
                   const char *what) {
  inputs in = inputs_shaped((case_shape){1, 2, 2, 53, 53, 9, 7, causal, true}, dtype, 21, 1);
  in.kv_len[0] = 47;
  inputs_set(&in, which, 0, 0, row, column, value);
  expect_classes(&in, what);
}

static const int64_t rows[] = {0, 20, 46, 50}; /* the last one is padding for keys */

static void poison_everywhere(tensor which, double value, const char *what) {
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    poison(which, rows[r], (int64_t)r * 2, value, r % 2, ATTN_F32, what);
    poison(which, rows[r], (int64_t)r * 2, value, r % 2 == 0, r % 2 ? ATTN_F32 : ATTN_F64, what);
  }
}

Test(core_special, nan_in_q) { poison_everywhere(TENSOR_Q, (double)NAN, "NaN in q"); }
Test(core_special, nan_in_k) { poison_everywhere(TENSOR_K, (double)NAN, "NaN in k"); }
Test(core_special, nan_in_v) { poison_everywhere(TENSOR_V, (double)NAN, "NaN in v"); }
Test(core_special, infinity_in_q) { poison_everywhere(TENSOR_Q, (double)INFINITY, "Inf in q"); }
Test(core_special, infinity_in_k) {
  poison_everywhere(TENSOR_K, (double)INFINITY, "Inf in k");
  poison_everywhere(TENSOR_K, -(double)INFINITY, "-Inf in k");
}
Test(core_special, infinity_in_v) {
  poison_everywhere(TENSOR_V, (double)INFINITY, "Inf in v");
  poison_everywhere(TENSOR_V, -(double)INFINITY, "-Inf in v");
}

/* Queries e_0, keys s_j e_0: scores are set one by one. */
static inputs with_scores(attn_dtype dtype, double (*score)(int64_t)) {
  inputs in = inputs_shaped((case_shape){1, 1, 1, 20, 101, 3, 5, false, false}, dtype, 5, 1);
  in.problem.scale = 1;
  for (int64_t i = 0; i < in.problem.n_q; i++)
    for (int64_t l = 0; l < 3; l++) inputs_set(&in, TENSOR_Q, 0, 0, i, l, l == 0);
  for (int64_t j = 0; j < in.problem.n_kv; j++)
    for (int64_t l = 0; l < 3; l++) inputs_set(&in, TENSOR_K, 0, 0, j, l, l == 0 ? score(j) : 0);
  return in;
}

static double all_minus_infinity(int64_t j) { return j < 0 ? 0 : -(double)INFINITY; }
static double minus_infinity_at_3(int64_t j) { return j == 3 ? -(double)INFINITY : 0.1 * (double)(j % 7); }
static double plus_infinity_last(int64_t j) { return j == 100 ? (double)INFINITY : 0; }
static double nan_first(int64_t j) { return j == 0 ? (double)NAN : (double)j; }
static double first_block_minus_infinity(int64_t j) { return j < 99 ? -(double)INFINITY : 1; }
static double sunk_by_100(int64_t j) { return j == 3 || j == 90 ? -100 : 0; }
static double sunk_by_300(int64_t j) { return j == 3 || j == 90 ? -300 : 0; }
static double sunk_by_2000(int64_t j) { return j == 3 || j == 90 ? -2000 : 0; }
static double raised_by_100_late(int64_t j) { return j == 100 ? 100 : 0; }
static double raised_by_300_twice(int64_t j) { return j < 30 ? 0 : j < 60 ? 300 : 600; }
static double raised_by_600_twice(int64_t j) {
  return j < 30 ? 0 : j < 60 ? 600 : 1200;
} /* key 90 keeps its weight */

Test(core_special, infinite_and_nan_scores) {
  static double (*const scores[])(int64_t) = {all_minus_infinity, minus_infinity_at_3, plus_infinity_last,
                                              nan_first, first_block_minus_infinity};
  for (size_t k = 0; k < sizeof scores / sizeof *scores; k++)
    for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
      inputs in = with_scores(dtype, scores[k]);
      expect_classes(&in, "scores");
      inputs_set(&in, TENSOR_V, 0, 0, 3, 1, (double)INFINITY);
      inputs_set(&in, TENSOR_V, 0, 0, 3, 2, -(double)INFINITY);
      expect_classes(&in, "scores and Inf in v");
    }
}

/* Weights that fp32 cannot hold but fp64 can: a weight is not zero, so an infinity times it is an infinity;
 * beyond exp(-745) it is zero in fp64 too, and the product NaN. */
Test(core_special, infinity_under_a_tiny_weight) {
  static double (*const scores[])(int64_t) = {sunk_by_100,        sunk_by_300,         sunk_by_2000,
                                              raised_by_100_late, raised_by_300_twice, raised_by_600_twice};
  for (size_t k = 0; k < sizeof scores / sizeof *scores; k++)
    for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
      inputs in = with_scores(dtype, scores[k]);
      inputs_set(&in, TENSOR_V, 0, 0, 3, 1, (double)INFINITY);
      inputs_set(&in, TENSOR_V, 0, 0, 90, 2, -(double)INFINITY);
      inputs_set(&in, TENSOR_V, 0, 0, 3, 3, (double)NAN);
      inputs_set(&in, TENSOR_V, 0, 0, 3, 4, (double)INFINITY);
      inputs_set(&in, TENSOR_V, 0, 0, 90, 4, -(double)INFINITY);
      expect_classes(&in, "tiny weights");
    }
}

/* The same over steps, splits and masks of the default sizes. */
Test(core_special, infinity_long_before_the_maximum) {
  for (int64_t n_q = 1; n_q <= 70; n_q += 23)
    for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
      inputs in = inputs_shaped((case_shape){1, 4, 2, n_q, 2200, 2, 3, true, true}, dtype, 5, 1);
      in.problem.scale = 1;
      in.kv_len[0] = 2180;
      for (int64_t h = 0; h < 4; h++)
        for (int64_t i = 0; i < n_q; i++) inputs_set_row(&in, TENSOR_Q, 0, h, i, i % 3 ? 0.5 : -0.5);
      for (int64_t h = 0; h < 2; h++)
        for (int64_t j = 0; j < in.problem.n_kv; j++)
          inputs_set_row(&in, TENSOR_K, 0, h, j, (double)(j / (in.problem.n_kv / 4)) * 600);
      inputs_set(&in, TENSOR_V, 0, 0, 7, 0, (double)INFINITY);
      inputs_set(&in, TENSOR_V, 0, 0, 1500, 1, -(double)INFINITY);
      inputs_set(&in, TENSOR_V, 0, 1, 2170, 2, -(double)INFINITY); /* masked for some */
      expect_classes(&in, "rising scores");
    }
}

/* Does a setting declare one of these exemptions? */
static bool is_exempt(const attn_problem *p, const char *spec, uint32_t properties) {
  attn_plan *plan = plan_or_note(p, spec, NULL);
  attn_view view = {0};
  if (plan) attn_plan_inspect(plan, &view);
  const bool exempt = attn_exempt(view.exempt, properties);
  attn_plan_destroy(plan);
  return exempt;
}

/* What is masked does not multiply: not even for the other rows of a tile. Linear and compressed variants
 * too. */
Test(core_special, masked_nan_reaches_no_row) {
  attn_problem problem = shape_problem((case_shape){1, 2, 1, 70, 70, 8, 6, true, false}, ATTN_F32);
  for (size_t v = 0; v < attn_variant_count(); v++) {
    spec_list list = specs_for(attn_variant_at(v), &problem, 8);
    for (int k = 0; k < list.count; k++)
      for (int64_t j = 1; j < problem.n_kv && !is_exempt(&problem, list.text[k], ATTN_EXEMPT_CAUSAL);
           j += 23) {
        note_context("masked NaN %s at %d", list.text[k], (int)j);
        inputs in = inputs_make(&problem, false, 8, 1), bad = inputs_copy(&in);
        if (!is_exempt(&problem, list.text[k], ATTN_EXEMPT_LOOKAHEAD))
          inputs_set_row(&bad, TENSOR_K, 0, 0, j, (double)NAN);
        inputs_set_row(&bad, TENSOR_V, 0, 0, j, (double)NAN);
        void *clean = run_spec(list.text[k], NULL, &in), *o = run_spec(list.text[k], NULL, &bad);
        expect_same_rows(&problem, clean, o, 0, 0, j, "rows before the NaN");
        bool reached = false;
        for (int64_t i = j; o && i < problem.n_q; i++)
          reached |= isnan(output_get(&problem, o, 0, 0, i, 0)) != 0;
        /* A selection ranks a key of NaN scores last, and need not attend to it. */
        if (!reached && !(attn_variant_at(v)->caps & ATTN_CAP_DATA))
          note_failure("no row behind token %d shows its NaN", (int)j);
        free(clean), free(o);
        inputs_free(&in), inputs_free(&bad);
      }
    spec_list_free(&list);
  }
}

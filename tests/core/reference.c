/* reference.c - attn_reference_row against the tests' own long double row, over masks, patterns and
 * heads. Bound: FP-1 for the sequential textbook form in fp64. */
#include "tests/support/core.h"

static void compare_row(const inputs *in, const attn_pattern *pattern, int64_t b, int64_t h, int64_t i) {
  const attn_problem *p = &in->problem;
  size_t n = (size_t)p->n_kv, d = (size_t)p->d_v;
  int64_t *keys = kept_memory(calloc(n, sizeof *keys));
  double *weights = kept_memory(malloc(n * sizeof *weights)), *o = kept_memory(malloc(d * sizeof *o)),
         *scratch = kept_memory(malloc(n * sizeof *scratch));
  double *want = kept_memory(malloc(d * sizeof *want)), *bound = kept_memory(malloc(d * sizeof *bound)),
         total = 0;
  cr_assert(keys && weights && o && scratch && want && bound);
  attn_problem f64 = *p;
  f64.dtype = ATTN_F64;
  attn_rounding rounding = sequential_rounding(&f64);
  int64_t count = oracle_keys(in, pattern, b, h, i, keys);
  oracle_row(in, &rounding, NULL, b, h, i, keys, count, !pattern, want, bound);
  int64_t seen = attn_reference_row(p, pattern, in->q, in->k, in->v, in->padded ? in->kv_len : NULL, b, h, i,
                                    weights, o, scratch);
  if (seen != count) note_failure("row %d sees %d keys, expected %d", (int)i, (int)seen, (int)count);
  for (size_t l = 0; l < d; l++)
    if (!(fabs(o[l] - want[l]) <= bound[l]))
      note_failure("row %d,%d,%d: %.17g, expected %.17g within %g", (int)b, (int)h, (int)i, o[l], want[l],
                   bound[l]);
  for (size_t j = 0, t = 0; j < n; j++) {
    bool visible = false;
    for (t = 0; t < (size_t)count; t++) visible |= keys[t] == (int64_t)j;
    if (!(visible ? weights[j] >= 0 && weights[j] <= 1 : weights[j] <= 0 && weights[j] >= 0))
      note_failure("weight of key %d is %g", (int)j, weights[j]);
    total += weights[j];
  }
  /* Each weight is within a relative n + 1 roundings of a division by the same sum. */
  if (!(fabs(total - (count > 0)) <= 4 * (double)n * ldexp(1, -53)))
    note_failure("weights sum to %.17g", total);
}

static void compare_all(const inputs *in, const attn_pattern *pattern) {
  const attn_problem *p = &in->problem;
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++)
      for (int64_t i = 0; i < p->n_q; i++) compare_row(in, pattern, b, h, i);
}

Test(core_reference, agrees_over_all_shapes) {
  const case_shape wide = {1, 2, 1, 3, 5, 520, 300, true, false};
  for (int k = 0; k <= property_shape_count; k++)
    for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
      const case_shape shape = k < property_shape_count ? property_shapes[k] : wide;
      inputs in = inputs_shaped(shape, dtype, 4, 2);
      note_context("shape %d", k);
      compare_all(&in, NULL);
      inputs_free(&in);
    }
}

Test(core_reference, agrees_over_patterns) {
  for (size_t v = 0; v < attn_variant_count(); v++)
    for (int k = 0; k < property_shape_count; k += 3) {
      case_shape shape = property_shapes[k];
      attn_problem problem = shape_problem(shape, ATTN_F32);
      spec_list list = specs_for(attn_variant_at(v), &problem, 6);
      for (int s = 0; s < list.count; s++) {
        note_context("%s shape %d", list.text[s], k);
        attn_plan *plan = plan_or_note(&problem, list.text[s], NULL);
        attn_view view = {0};
        if (plan) attn_plan_inspect(plan, &view);
        inputs in = inputs_make(&problem, shape.padded && (view.caps & ATTN_CAP_PADDING), 4, 2);
        if (view.pattern) compare_all(&in, view.pattern);
        inputs_free(&in);
        attn_plan_destroy(plan);
      }
      spec_list_free(&list);
    }
}

Test(core_reference, results_are_optional) {
  attn_problem problem = attn_problem_make(1, 1, 5, 3);
  inputs in = inputs_make(&problem, false, 1, 1);
  double p[5], o[3], only_p[5], only_o[3], scratch[5];
  cr_assert_eq(attn_reference_row(&problem, NULL, in.q, in.k, in.v, NULL, 0, 0, 2, p, o, scratch), 5);
  cr_assert_eq(attn_reference_row(&problem, NULL, in.q, in.k, in.v, NULL, 0, 0, 2, only_p, NULL, scratch), 5);
  cr_assert_eq(attn_reference_row(&problem, NULL, in.q, in.k, in.v, NULL, 0, 0, 2, NULL, only_o, scratch), 5);
  cr_assert_arr_eq(p, only_p, sizeof p);
  cr_assert_arr_eq(o, only_o, sizeof o);
}

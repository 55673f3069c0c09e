/* transforms.c - runs whose problem transforms its scores and masks keys: rows against the definition, the
 * checks on sound outputs, and on outputs of a problem that is a little another. */
#include "tests/support/checks_case.h"

#include "data/data.h"

typedef struct target {
  const char *score, *mask;
  bool causal;
} target;

static const target targets[] = {
    {"softcap=1.5", "", false},
    {"leaky=0.2", "", true},
    {"alibi", "", true},
    {"sink=0.7", "", false},
    {"alibi,sink=6", "", true},
    {"", "prefix:20", false},
    {"", "block_causal:16", false},
    {"", "documents:0+10+37", false},
    {"sink=0", "documents:24", true},
    {"softcap=3,alibi,sink=-1", "prefix:11", false},
};
enum { TARGETS = sizeof targets / sizeof *targets };

static data_target *made;

static attn_problem problem_of(const target *t, attn_dtype dtype) {
  attn_problem p = case_problem(2, 4, 2, 60, 16, 5, t->causal, dtype);
  p.n_q = 50;
  cr_assert_eq(attn_problem_resolve(&p), ATTN_OK);
  cr_assert_eq(data_target_make(t->score, t->mask, &p, &made), ATTN_OK, "%s", attn_last_error());
  return p;
}

static void forget(run_case *c) {
  case_free(c);
  data_target_free(made);
}

/* The reference of the library is another implementation of the same definition. */
Test(checks_transforms, exact_rows_are_those_of_the_definition) {
  double p[60], o[5], scratch[60];
  const int64_t some[] = {55, 33};
  for (int t = 0; t < 2 * TARGETS; t++) {
    const target *of = &targets[t / 2];
    const int64_t *kv_len = t % 2 ? some : NULL;
    run_case *c = case_lengths("full", problem_of(of, ATTN_F64), 1, kv_len);
    const exact_rows *x = c->exact;
    double far = 0, sums = 0;
    for (int64_t r = 0; r < x->judged; r++) {
      const sample_row *at = &x->rows[r];
      double sum = x->sink[r];
      attn_reference_row(c->e.problem, NULL, c->q, c->k, c->v, kv_len, at->batch, at->head, at->i, p, o,
                         scratch);
      for (int64_t j = 0; j < 60; j++) {
        far = fmax(far, fabs(p[j] - x->p[r * 60 + j]));
        sum += x->p[r * 60 + j];
      }
      for (int64_t l = 0; l < 5; l++) far = fmax(far, fabs(o[l] - x->o[r * 5 + l]));
      if (sum > 0) sums = fmax(sums, fabs(sum - 1)); /* some documents have no key left */
    }
    cr_expect(far < 1e-14 && sums < 1e-14, "%s %s: %g, %g", of->score, of->mask, far, sums);
    forget(c);
  }
}

static const char *const checks[] = {"FP-1", "FP-2", "FP-3",      "SP-0",
                                     "SP-1", "SP-2", "PROP-HULL", "PROP-ONES"};
enum { CHECKS = sizeof checks / sizeof *checks };

static void expect_no_violation(const char *spec, const target *t, attn_dtype dtype) {
  run_case *c = case_gaussian(spec, problem_of(t, dtype), 2);
  for (int k = 0; k < CHECKS; k++) {
    if (!check_find(checks[k])->of->holds(&c->view)) continue;
    const result_bound b = case_check(&c->e, checks[k]);
    cr_expect(b.verdict == VERDICT_PASS || b.verdict == VERDICT_NOT_APPLICABLE,
              "%s of %s, %s %s: verdict %d, measured %g, value %g: %s", checks[k], spec, t->score, t->mask,
              (int)b.verdict, b.measured, b.value, b.message);
  }
  forget(c);
}

Test(checks_transforms, sound_variants_violate_nothing) {
  static const char *const specs[] = {"full", "tiled", "longformer:window=8,global=2"};
  for (int s = 0; s < 3; s++)
    for (int t = 0; t < TARGETS; t++)
      for (int dtype = 0; dtype < 2; dtype++) expect_no_violation(specs[s], &targets[t], (attn_dtype)dtype);
}

/* FP-1 of an output that was computed for another problem, of which the reference knows nothing. */
static void expect_told_apart(const target *given, const target *told) {
  data_target *other = NULL;
  run_case *c = case_gaussian("full", problem_of(given, ATTN_F64), 1);
  attn_problem p = *c->e.problem;
  p.score = (attn_score){.softcap = 0};
  p.mask = (attn_mask){.kind = ATTN_MASK_NONE};
  p.causal = told->causal;
  cr_assert_eq(data_target_make(told->score, told->mask, &p, &other), ATTN_OK, "%s", attn_last_error());
  exact_rows_free(c->exact);
  cr_assert_eq(exact_rows_compute(&p, c->q, c->k, c->v, NULL, 7, &c->exact), ATTN_OK);
  c->e.problem = &p;
  c->e.exact = c->exact;
  expect_verdict(&c->e, "FP-1", VERDICT_VIOLATED, told->score);
  data_target_free(other);
  forget(c);
}

Test(checks_transforms, another_problem_is_told_apart) {
  static const target pairs[][2] = {
      {{"softcap=1.5", "", false}, {"softcap=1.500001", "", false}},
      {{"leaky=0.2", "", false}, {"leaky=0.200001", "", false}},
      {{"alibi", "", true}, {"", "", true}},
      {{"sink=0.7", "", false}, {"sink=0.700001", "", false}},
      {{"softcap=2,alibi", "", true}, {"alibi", "", true}},
      {{"", "prefix:20", false}, {"", "prefix:21", false}},
      {{"", "documents:0+10+37", false}, {"", "documents:0+10+36", false}},
      {{"", "block_causal:16", false}, {"", "block_causal:17", false}},
  };
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) expect_told_apart(&pairs[i][0], &pairs[i][1]);
}

/* What no row of a pattern may lose: probes and trials are plain problems, and the rest says what it cannot
 * judge. */
Test(checks_transforms, checks_say_where_they_do_not_apply) {
  run_case *c = case_gaussian("longformer:window=8", problem_of(&targets[4], ATTN_F32), 1);
  expect_verdict(&c->e, "SP-3", VERDICT_NOT_APPLICABLE, "centroids");
  forget(c);
  c = case_gaussian("bigbird:block=4", problem_of(&targets[7], ATTN_F32), 1);
  expect_verdict(&c->e, "SP-4", VERDICT_NOT_APPLICABLE, "masked blocks");
  forget(c);
}

/* draws.c - the joint law of a Performer's draws, and its features at the norms of a run: the performer
 * itself, whose p-values are not small, and the performer with a fault put before or behind its map. */
#include "tests/support/checks_shown.h"

#include <stdio.h>

typedef enum { NO_FAULT, LONGER, REPEATED, FAR_NORM, LARGER, HEADS_ALIKE, HEADS_APART, SAID_ALIKE } map_fault;

static attn_feature_map wrong[1 << 14]; /* of every plan that is looked into */
static int wrong_count;
static void (*honest)(const void *, const attn_context *, const attn_feature_rows *, void *, int64_t,
                      double *);
static map_fault fault;
static double gain = 1.02;       /* LONGER */
static double short_of, long_of; /* FAR_NORM: the squares below and above which the norm term is off */

static void wrong_map(const void *state, const attn_context *c, const attn_feature_rows *given, void *f,
                      int64_t f_row, double *scale) {
  attn_dtype t = c->problem->dtype;
  int64_t d = c->problem->d_qk, rows = given->rows, stride = given->stride, head = given->head;
  const void *x = given->x;
  double *longer = calloc((size_t)(rows * d), sizeof *longer);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t l = 0; l < d; l++)
      attn_set(longer, i * d + l, t, (fault == LONGER ? gain : 1) * attn_get(x, i * stride + l, t));
  if (fault == HEADS_ALIKE) head = 0;
  if (fault == HEADS_APART && head > 0) { /* another draw: the components of x are turned around */
    for (int64_t i = 0; i < rows; i++)
      for (int64_t l = 0; l < d; l++) attn_set(longer, i * d + l, t, attn_get(x, i * stride + d - 1 - l, t));
  }
  attn_feature_rows moved = {fault == HEADS_APART ? 0 : head, given->side, longer, d, given->first, rows};
  honest(state, c, &moved, f, f_row, scale);
  /* exp(gain w.x - |x|^2 / 2) */
  for (int64_t i = 0; i < rows && fault == LONGER; i++) {
    double square = 0;
    for (int64_t l = 0; l < d; l++) square += pow(attn_get(x, i * stride + l, t), 2);
    scale[i] += (gain * gain - 1) * c->problem->scale * square / 2;
  }
  for (int64_t i = 0; i < rows && fault == FAR_NORM; i++) {
    double square = 0;
    for (int64_t l = 0; l < d; l++) square += c->problem->scale * pow(attn_get(x, i * stride + l, t), 2);
    if (square < short_of || square > long_of) scale[i] += 1e-6 * (1 + square);
  }
  for (int64_t i = 0; i < rows && fault == LARGER; i++) scale[i] += log(1.02);
  for (int64_t i = 0; i < rows && fault == REPEATED; i++)
    for (int64_t r = d; r < f_row; r++) attn_set(f, i * f_row + r, t, attn_get(f, i * f_row + r - d, t));
  free(longer);
}

static void show_wrong(attn_view *view) {
#pragma omp critical
  {
    cr_assert_lt(wrong_count, (int)(sizeof wrong / sizeof *wrong));
    attn_feature_map *own = &wrong[wrong_count++];
    *own = *view->features;
    honest = own->map;
    own->map = wrong_map;
    if (fault == SAID_ALIKE) own->law.heads = ATTN_DRAWS_SHARED;
    view->features = own;
  }
}

/* One check on the performer with a fault in what checks see of its map. */
static result_bound judged(const char *name, const char *parameters, attn_problem p, map_fault how) {
  fault = how;
  show_as("performer", "wrong_performer", show_wrong);
  const char *spec = text_of("%s:%s", how == NO_FAULT ? "performer" : "wrong_performer", parameters);
  return case_judge(spec, p, 0.5, name);
}

/* -- what 31 plans of 2 d vectors show at d = 64 -- */

Test(checks_draws, features_two_percent_too_long, .timeout = 120) {
  static const char *const names[] = {"FAV-1", "FAV-3"};
  attn_problem p = attn_problem_make(1, 1, 8, 64);
  for (int n = 0; n < 2; n++) {
    result_bound b = judged(names[n], "features=256", p, NO_FAULT);
    cr_expect(b.verdict == VERDICT_CONSISTENT && b.p_value > 1e-3, "%s: p %g", names[n], b.p_value);
  }
  for (int n = 0; n < 2; n++) {
    result_bound b = judged(names[n], "features=256", p, LONGER);
    cr_expect(b.verdict == VERDICT_CONSISTENT && b.p_value < 1e-5, "%s: p %g, %g of %g", names[n], b.p_value,
              b.measured, b.value);
  }
  /* Less is shown by the lengths of all vectors together, on either side. */
  for (gain = 0.991; gain < 1.01; gain += 0.016)
    cr_expect_lt(judged("FAV-3", "features=256", p, LONGER).p_value, 1e-3, "%g", gain);
}

Test(checks_draws, a_block_that_repeats) {
  result_bound b = judged("FAV-3", "features=48", attn_problem_make(1, 1, 8, 16), REPEATED);
  cr_expect(b.p_value < 1e-12 && strstr(b.message, "have |cos| = 1"), "p %g, %s", b.p_value, b.message);
}

/* Of one component there are two directions, of fixed length two vectors. */
Test(checks_draws, one_component) {
  static const char *const specs[] = {"features=8,norm=sqrt_d", "features=8", "features=8,orthogonal=no",
                                      "features=8,kernel=trig,norm=sqrt_d", "features=8,kernel=relu"};
  static const char *const names[] = {"FAV-1", "FAV-3", "FAV-8"};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int n = 0; n < 3; n++) {
      result_bound b = judged(names[n], specs[s], attn_problem_make(1, 1, 8, 1), NO_FAULT);
      cr_expect(b.verdict == VERDICT_NOT_APPLICABLE || (b.verdict == VERDICT_CONSISTENT && b.p_value > 1e-3),
                "%s, %s: verdict %d p %g, %g of %g %s", specs[s], names[n], (int)b.verdict, b.p_value,
                b.measured, b.value, b.message);
    }
}

/* p-values of correct draws are not small more often than they may be. */
Test(checks_draws, p_values_are_conservative, .timeout = 120) {
  static const char *const laws[] = {"features=8", "features=8,norm=sqrt_d,kernel=hyperbolic",
                                     "features=8,orthogonal=no,kernel=trig"};
  static const char *const names[] = {"FAV-1", "FAV-3"};
  enum { RUNS = 20 };
  for (int n = 0; n < 2; n++) {
    int small = 0;
    for (int l = 0; l < 3; l++)
      for (int s = 0; s < RUNS; s++) {
        const char *parameters = text_of("%s,seed=%d", laws[l], 1000 * s);
        small += judged(names[n], parameters, attn_problem_make(1, 1, 8, 4), NO_FAULT).p_value < 0.05;
      }
    cr_expect_leq(small, 8, "%s: %d", names[n],
                  small); /* of Binomial(60, 0.05): more has probability 0.005 */
  }
}

/* -- FAV-9: features at the run's own norms -- */

Test(checks_draws, features_of_every_kind_are_those_of_the_law) {
  static const char *const kernels[] = {"positive", "hyperbolic", "trig", "relu"};
  for (int k = 0; k < 4; k++)
    for (int64_t d = 1; d < 70; d += 17)
      for (double std = 1e-20; std < 1e21; std = std < 0.1 || std > 30 ? std * 1e10 : std * 4) {
        const char *spec = text_of("performer:features=20,kernel=%s", kernels[k]);
        const result_bound b = case_judge(spec, attn_problem_make(1, 1, 40, d), std, "FAV-9");
        cr_expect(b.verdict == VERDICT_PASS || (b.verdict == VERDICT_UNCERTIFIABLE && std > 1e3),
                  "%s, d %d, std %g: verdict %d, %g of %g %s", spec, (int)d, std, (int)b.verdict, b.measured,
                  b.value, b.message);
      }
}

Test(checks_draws, a_norm_term_that_is_wrong_far_out) {
  attn_problem p = attn_problem_make(1, 1, 64, 64);
  cr_expect_eq(judged("FAV-9", "features=64", p, NO_FAULT).verdict, VERDICT_PASS);
  long_of = 2;
  result_bound b = judged("FAV-9", "features=64", p, FAR_NORM);
  double square = 0;
  int points = 0; /* 8 queries and 64 keys, each twice */
  cr_assert_eq(sscanf(b.message, "worst at |x|^2 = %lf, of %d points", &square, &points), 2, "%s", b.message);
  cr_expect(b.verdict == VERDICT_VIOLATED && square > long_of && points == 144, "%s", b.message);
}

/* Of 640 keys, each also at three times its length. */
Test(checks_draws, a_norm_term_that_is_wrong_for_one_key) {
  const attn_problem p = attn_problem_make(1, 1, 640, 8);
  run_case *c = case_gaussian("performer:features=16", p, 0.5);
  double shortest = (double)INFINITY, longest = 0;
  for (int64_t j = 0; j < 640; j++) {
    double square = 0;
    for (int64_t l = 0; l < 8; l++)
      square += c->e.problem->scale * pow(attn_get(c->k, 8 * j + l, ATTN_F32), 2);
    shortest = fmin(shortest, square);
    longest = fmax(longest, square);
  }
  case_free(c);
  long_of = 9.01 * longest;
  cr_expect_eq(judged("FAV-9", "features=16", p, FAR_NORM).verdict, VERDICT_PASS);
  long_of = 8.99 * longest;
  cr_expect_eq(judged("FAV-9", "features=16", p, FAR_NORM).verdict, VERDICT_VIOLATED);
  long_of = (double)INFINITY;
  short_of = 1.001 * shortest;
  cr_expect_eq(judged("FAV-9", "features=16", p, FAR_NORM).verdict, VERDICT_VIOLATED);
}

Test(checks_draws, features_two_percent_too_large) {
  attn_problem p = attn_problem_make(1, 1, 16, 8);
  cr_expect_eq(judged("FAV-9", "features=16", p, LARGER).verdict, VERDICT_VIOLATED);
  cr_expect_eq(judged("FAV-9", "features=16,kernel=trig", p, LARGER).verdict, VERDICT_VIOLATED);
  cr_expect_eq(judged("FAV-9", "features=16,kernel=relu", p, LARGER).verdict, VERDICT_VIOLATED);
}

/* -- FAV-10: heads -- */

static result_bound heads(const char *parameters, int64_t kv_heads, map_fault how) {
  attn_problem p = case_problem(2, 4, kv_heads, 40, 8, 5, kv_heads == 2, ATTN_F32);
  return judged("FAV-10", parameters, p, how);
}

Test(checks_draws, heads_draw_as_declared) {
  for (int64_t kv_heads = 1; kv_heads <= 4; kv_heads *= 2) {
    result_bound b = heads("features=24", kv_heads, NO_FAULT);
    cr_expect_eq(b.verdict, VERDICT_PASS, "shared: %g of %g %s", b.measured, b.value, b.message);
    b = heads("features=24,share_heads=no", kv_heads, NO_FAULT);
    cr_expect(
        kv_heads == 1 ? b.verdict == VERDICT_PASS
                      : b.verdict == VERDICT_CONSISTENT && b.p_value > 1e-3 && strstr(b.message, "|cos|"),
        "apart: verdict %d, p %g, %g of %g %s", (int)b.verdict, b.p_value, b.measured, b.value, b.message);
  }
}

Test(checks_draws, heads_of_every_kind_of_features) {
  static const char *const specs[] = {"features=24,kernel=hyperbolic,eps=1e-3", "features=24,kernel=trig",
                                      "features=24,kernel=relu,share_heads=no", "features=9,eps=0.1"};
  for (int s = 0; s < 4; s++) {
    result_bound b = heads(specs[s], 2, NO_FAULT);
    cr_expect(b.verdict == VERDICT_PASS || (b.verdict == VERDICT_CONSISTENT && b.p_value > 1e-3),
              "%s: %d %g of %g", specs[s], (int)b.verdict, b.measured, b.value);
  }
}

Test(checks_draws, heads_that_draw_otherwise_than_declared) {
  /* Its outputs are those of other draws than the map's, too. */
  result_bound b = heads("features=24,share_heads=no", 4, HEADS_ALIKE);
  cr_expect(b.verdict == VERDICT_VIOLATED && strstr(b.message, "not that of its kv head's"), "%s", b.message);
  cr_expect_eq(heads("features=24", 4, HEADS_APART).verdict, VERDICT_VIOLATED);
  b = heads("features=24,share_heads=no", 4, SAID_ALIKE);
  cr_expect(b.verdict == VERDICT_VIOLATED && b.measured == 1 && strstr(b.message, "shared ones"), "%s",
            b.message);
}

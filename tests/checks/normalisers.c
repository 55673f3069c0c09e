/* normalisers.c - ENT-0, ENT-1 and ENT-2 on a stranger's function of the scores, right and wrong, which they
 * know by its descriptor alone: w = max((s - tau) / 4, 0)^4, entmax with 1.25. */
#include "tests/support/checks_fake.h"

/* What the stranger does wrong; set before a plan is made. */
typedef struct fault {
  double shift, floor, reach, falls;
} fault;
static fault wrong;

static double weight(const void *state, int64_t n, double x) {
  (void)state, (void)n;
  const double y = fmax(x / 4, 0);
  return y * y * y * y;
}

/* By bisection, as nobody would. */
static void normalise(const void *state, const attn_context *c, int64_t n, double *x, double *room) {
  (void)c, (void)room;
  double top = x[0], low = 0, high = 4;
  for (int64_t j = 0; j < n; j++) top = fmax(top, x[j]);
  for (int step = 0; step < 60; step++) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++) sum += weight(state, n, x[j] - top + (low + high) / 2);
    *(sum > 1 ? &high : &low) = (low + high) / 2;
  }
  for (int64_t j = 0; j < n; j++)
    x[j] = fmax(weight(state, n, x[j] - top + wrong.shift + low * (j % 2 ? 1 : wrong.falls)), wrong.floor);
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b, (void)c;
  out->normaliser =
      (attn_normaliser){.normalise = normalise, .weight = weight, .sums = true, .reach = wrong.reach};
  return ATTN_OK;
}

static const char *stranger(fault by) {
  static attn_variant v;
  static const attn_param none[] = {{.name = NULL}};
  const attn_variant *found;
  wrong = by;
  v = (attn_variant){.abi = ATTN_ABI,
                     .size = sizeof v,
                     .name = "stranger",
                     .summary = "entmax",
                     .cite = "none",
                     .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_STOCHASTIC |
                             ATTN_CAP_CONVEX | ATTN_CAP_PERMUTATION | ATTN_CAP_SHIFT,
                     .params = none,
                     .describe = describe,
                     .cost = attn_variant_find("normaliser", &found) ? NULL : found->cost};
  cr_assert_eq(attn_variant_register(&v), ATTN_OK, "%s", attn_last_error());
  return v.name;
}

static void expect(const char *spec, attn_dtype type, double std, const check_verdict *verdicts) {
  static const char *const names[] = {"ENT-0", "ENT-1", "ENT-2"};
  for (int causal = 0; causal < 2; causal++) {
    run_case *c = case_make(case_problem(1, 2, 1, 120, 16, 9, causal, type), std, 100);
    c->kv_len[0] = 111;
    case_run(c, spec, c->kv_len);
    for (int i = 0; i < 3; i++) expect_verdict(&c->e, names[i], verdicts[i], spec);
    case_free(c);
  }
}

Test(checks_normalisers, correct_weights_pass) {
  const check_verdict sparse[] = {VERDICT_PASS, VERDICT_PASS, VERDICT_PASS},
                      any[] = {VERDICT_PASS, VERDICT_NOT_APPLICABLE, VERDICT_NOT_APPLICABLE};
  for (int type = 0; type < 2; type++) {
    const attn_dtype of = type ? ATTN_F64 : ATTN_F32;
    expect("normaliser", of, 2, any);
    expect("normaliser:kind=relu,power=3", of, 2, any);
    expect("normaliser:kind=sparsemax", of, 2, sparse);
    expect("normaliser:kind=entmax15", of, 2, sparse);
    expect(stranger((fault){0, 0, 4, 1}), of, 2, sparse);
  }
}

Test(checks_normalisers, wrong_weights_fail) {
  const check_verdict sum[] = {VERDICT_VIOLATED, VERDICT_VIOLATED, VERDICT_PASS},
                      floor[] = {VERDICT_VIOLATED, VERDICT_VIOLATED, VERDICT_VIOLATED},
                      reach[] = {VERDICT_PASS, VERDICT_PASS, VERDICT_VIOLATED},
                      threshold[] = {VERDICT_VIOLATED, VERDICT_VIOLATED, VERDICT_PASS};
  expect(stranger((fault){1e-4, 0, 4, 1}), ATTN_F32, 2, sum);
  expect(stranger((fault){0, 1e-5, 4, 1}), ATTN_F32, 2, floor);
  expect(stranger((fault){0, 0, 0.5, 1}), ATTN_F32, 2, reach);
  expect(stranger((fault){0, 0, 4, 1.01}), ATTN_F32, 2, threshold);
}

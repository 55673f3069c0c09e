/* weights.c - PROP-DOB and SINK-1: sound variants keep them over masks, types and shapes, and rows that do
 * not contract or whose sink is clamped are found. */
#include "tests/support/checks_fake.h"

static void expect_sound(const char *spec, attn_problem p, double std, const int64_t *kv_len) {
  run_case *c = case_lengths(spec, p, std, kv_len);
  const result_bound b = case_check(&c->e, "PROP-DOB");
  cr_expect(b.verdict == VERDICT_PASS || (b.verdict == VERDICT_NOT_APPLICABLE && *b.message),
            "%s, n = %d%s: verdict %d, measured %g, value %g: %s", spec, (int)p.n_kv,
            p.causal ? ", causal" : "", (int)b.verdict, b.measured, b.value, b.message);
}

Test(checks_weights, sound_variants_violate_nothing) {
  char specs[] = "full;tiled:path=fma;tiled:block_k=16;longformer:window=8,global=2;"
                 "bigbird:block=8,random=2;graph:size=20;topk:k=8;performer:features=32;"
                 "linformer:projection=pool,k=12";
  static const int64_t kv_len[2] = {61, 40};
  for (const char *spec = strtok(specs, ";"); spec; spec = strtok(NULL, ";"))
    for (int i = 0; i < 8; i++) {
      const bool causal = i & 1, wide = i & 4;
      attn_problem p = case_problem(2, 4, 2, 64, 12, wide ? 12 : 5, causal, i & 2 ? ATTN_F64 : ATTN_F32);
      if (strncmp(spec, "linformer", 9) == 0 && causal) continue;
      expect_sound(spec, p, i < 4 ? 0.3 : 3, i % 3 ? NULL : kv_len);
    }
}

Test(checks_weights, few_components_and_rows) {
  for (int64_t d = 1; d < 5; d++)
    for (int64_t n = 1; n < 6; n++) {
      expect_sound("full", case_problem(1, 1, 1, n, d, d, false, ATTN_F64), 1, NULL);
      expect_sound("tiled", case_problem(1, 2, 1, n, 3, d, true, ATTN_F32), 1, NULL);
    }
}

/* Every second row is divided by twice its sum: rows of sum 1 and of sum 1/2. */
static void halve_rows(const attn_call *c) {
  const attn_problem *p = c->context->problem;
  double sums[16];
  for (int64_t row = 0; row < p->batch * p->heads * p->n_q; row++) {
    fake_row(c, row / p->n_q, row % p->n_q, sums);
    for (int64_t l = 0; l < p->d_v; l++)
      attn_set(c->o, row * p->d_v + l, p->dtype, sums[l] * (row % 2 ? 1 : 0.5));
  }
}

/* The second half of the columns meets the weights of the row before. */
static void shift_columns(const attn_call *c) {
  const attn_problem *p = c->context->problem;
  double sums[16], before[16];
  for (int64_t row = 0; row < p->batch * p->heads * p->n_q; row++) {
    fake_row(c, row / p->n_q, row % p->n_q, sums);
    fake_row(c, row / p->n_q, (row + p->n_q - 1) % p->n_q, before);
    for (int64_t l = 0; l < p->d_v; l++)
      attn_set(c->o, row * p->d_v + l, p->dtype, 2 * l < p->d_v ? sums[l] : before[l]);
  }
}

Test(checks_weights, rows_that_do_not_contract_are_found) {
  void (*const faults[])(const attn_call *) = {halve_rows, shift_columns};
  for (int f = 0; f < 2; f++) {
    fake_reset(weight_exact);
    fake.execute = faults[f];
    expect_gaussian("fake", case_problem(1, 1, 1, 64, 8, 8, false, ATTN_F64), 3, "PROP-DOB", VERDICT_VIOLATED,
                    f ? "columns of two rows" : "half of a row");
  }
}

/* -- SINK-1 -- */

static double share_least;

/* Rows times sigmoid(lse - z), but at least share_least. */
static void sink_rows(const attn_call *c) {
  const attn_problem *p = c->context->problem;
  double sums[64];
  for (int64_t row = 0; row < p->batch * p->heads * p->n_q; row++) {
    const int64_t line = row / p->n_q, i = row % p->n_q, group = p->heads / p->kv_heads,
                  kv = line / p->heads * p->kv_heads + line % p->heads / group;
    double total = 0, share = 1;
    fake_row(c, line, i, sums);
    for (int64_t j = 0; j < p->n_kv; j++) {
      double score = 0;
      for (int64_t l = 0; l < p->d_qk; l++)
        score += fake_element(p, c->q, (line * p->n_q + i) * p->d_qk + l) *
                 fake_element(p, c->k, (kv * p->n_kv + j) * p->d_qk + l);
      total += exp(p->scale * score);
    }
    if (p->score.sink) share = fmax(total / (total + exp(p->score.sink[line % p->heads])), share_least);
    for (int64_t l = 0; l < p->d_v; l++) attn_set(c->o, row * p->d_v + l, p->dtype, share * sums[l]);
  }
}

static check_verdict of_sinks(double least) {
  static attn_variant taking;
  if (!taking.name) {
    taking = fake_variant;
    taking.name = "taking";
    taking.caps |= ATTN_CAP_SCORE;
    cr_assert_eq(attn_variant_register(&taking), ATTN_OK);
  }
  fake_reset(weight_exact);
  fake.view.caps |= ATTN_CAP_SCORE;
  fake.execute = sink_rows;
  share_least = least;
  const result_bound b = case_judge("taking", case_problem(1, 2, 2, 64, 8, 8, false, ATTN_F32), 1, "SINK-1");
  if (b.verdict == VERDICT_VIOLATED) cr_expect_not_null(strstr(b.message, "sink 100"), "%s", b.message);
  return b.verdict;
}

/* A renormalisation by the sigmoid that is clamped is another function. */
Test(checks_weights, a_clamped_sink_is_found) {
  cr_expect_eq(of_sinks(0), VERDICT_PASS);
  cr_expect_eq(of_sinks(1e-4), VERDICT_VIOLATED);
}

Test(checks_weights, sinks_are_asked_of_what_takes_them) {
  run_case *c = case_gaussian("performer:features=16", case_problem(1, 2, 2, 64, 8, 8, false, ATTN_F32), 1);
  cr_expect_not(check_find("SINK-1")->of->holds(&c->view));
}

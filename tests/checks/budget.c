/* budget.c - required sizes: predicted errors occur, and required sizes suffice. */
#include "tests/support/checks_case.h"

#include "experiments/evidence/budget.h"

static attn_problem shape(int64_t n) {
  attn_problem p = attn_problem_make(1, 1, n, 8);
  p.d_v = 5;
  return p;
}

static budget find(run_case *c, double error) {
  budget b;
  cr_assert_eq(budget_find(&c->e, error, &b), ATTN_OK, "%s", attn_last_error());
  return b;
}

static budget find_of(const char *spec, attn_problem p, double std, double error) {
  run_case *c = case_gaussian(spec, p, std);
  const budget b = find(c, error);
  return b;
}

/* Of the first head. */
static double squared_error(const run_case *c, double *size) {
  double sum = 0;
  *size = 0;
  for (int64_t i = 0; i < c->problem.n_q * c->problem.d_v; i++) {
    sum += pow(case_get(c, c->o, i) - c->exact->o[i], 2);
    *size += c->exact->o[i] * c->exact->o[i];
  }
  return sum;
}

/* The root mean square over seeds is the prediction, to terms of the next order in 1/m. */
static void expect_prediction(const char *format, double low, double high) {
  double sum = 0, size = 0, want = 0;
  run_case *c = case_make(shape(8), 0.5, 100); /* of 8 rows all moments are taken */
  for (int seed = 0; seed < 60; seed++) {
    case_run(c, text_of(format, seed), NULL);
    sum += squared_error(c, &size) / 60;
    if (seed == 0) {
      budget b = find(c, 0.1);
      want = b.predicted;
      cr_expect_float_eq(b.needed, ceil(b.used * pow(b.predicted / 0.1, 2)), 1);
      cr_expect(b.best >= 1 && b.best <= 8);
    }
    case_forget(c);
  }
  double ratio = sqrt(sum / size) / want;
  cr_expect(ratio > low && ratio < high, "%s: %g of %g", format, sqrt(sum / size), want);
}

Test(checks_budget, errors_of_random_features) {
  expect_prediction("performer:features=512,orthogonal=no,seed=%d", 0.8, 1.2);
  expect_prediction("performer:features=512,orthogonal=no,kernel=hyperbolic,seed=%d", 0.8, 1.2);
  expect_prediction("performer:features=512,orthogonal=no,kernel=trig,seed=%d", 0.8, 1.2);
}

static budget linformer(const char *kind, int64_t k, double error) {
  return find_of(text_of("linformer:k=%d,%s", (int)k, kind), shape(64), 1, error);
}

/* The least k: one row less predicts more. */
Test(checks_budget, projected_rows) {
  static const char *const kinds[] = {"projection=gaussian", "projection=rademacher", "projection=dct",
                                      "projection=srht"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    double error = linformer(kinds[i], 20, 0.1).predicted;
    cr_expect_eq(linformer(kinds[i], 3, error * (1 + 1e-9)).needed, 20, "%s", kinds[i]);
    cr_expect_eq(linformer(kinds[i], 3, error * (1 - 1e-9)).needed, 21, "%s", kinds[i]);
  }
  cr_expect(isinf(linformer("share=none", 20, 0.1).needed));
  cr_expect(isnan(linformer("projection=pool", 20, 0.1).needed));
}

Test(checks_budget, kept_keys) {
  run_case *c =
      case_gaussian("longformer:window=8,global=1", case_problem(2, 4, 2, 30, 8, 5, false, ATTN_F32), 1);
  double size, error = sqrt(squared_error(c, &size) / size);
  budget b = find(c, 0.1);
  cr_expect_float_eq(b.predicted, error, 1e-5);
  cr_expect(b.best < b.needed && b.needed <= 30);
  int64_t seen = 0;
  for (int64_t i = 0; i < 30; i++) {
    attn_run runs[16];
    int64_t count = attn_pattern_row(c->view.pattern, &c->problem, 0, i, runs);
    for (int64_t r = 0; r < count; r++) seen += runs[r].count;
  }
  cr_expect_float_eq(b.used, (double)seen / 30, 1e-9);
  /* Equal scores: nine keys in ten; of the last row's window only the left half is there. */
  for (int causal = 0; causal < 2; causal++) {
    attn_problem p = shape(30);
    p.n_q = 1;
    p.causal = causal;
    b = find_of("longformer:window=8", p, 0, 0.1);
    cr_expect_eq(b.best, 27);
    cr_expect_eq(b.needed, causal ? 27 : 30);
  }
  /* Half of them: within 9 of a query are (30 * 19 - 9 * 10) / 900, within 8 fewer than half. */
  b = find_of("longformer:window=8", shape(30), 0, 0.5);
  cr_expect(b.best == 15 && b.needed == 19, "%g, %g", b.best, b.needed);
}

static kept_keys kept(run_case *c) {
  kept_keys found;
  cr_assert_eq(budget_kept(&c->e, &found), ATTN_OK, "%s", attn_last_error());
  return found;
}

/* What is kept is compared between settings: on the same rows, so that more keys never keep less. */
Test(checks_budget, more_keys_keep_no_less) {
  attn_problem p = attn_problem_make(1, 2, 8192, 8);
  p.causal = true;
  p.d_v = 64; /* so wide that checks do not look at all rows of the sample */
  run_case *c = case_make(p, 1, 7);
  kept_keys before = {.keys_mean = 0};
  for (int window = 64; window < 220; window += 4) {
    case_run(c, text_of("streaming:sink=0,window=%d", window), NULL);
    const kept_keys now = kept(c);
    cr_expect(now.keys_mean > before.keys_mean && now.mass_mean >= before.mass_mean,
              "window %d: %g keys keep %g, after %g", window, now.keys_mean, now.mass_mean, before.mass_mean);
    cr_expect_eq(now.keys_max, window);
    before = now;
    case_forget(c);
  }
}

/* The keys of largest score are those of most mass, and their number is the budget. */
Test(checks_budget, the_oracle_has_no_regret) {
  attn_problem p = shape(200);
  p.causal = true;
  run_case *c = case_gaussian("topk:k=8", p, 1);
  const kept_keys best = kept(c);
  c = case_gaussian("streaming:sink=0,window=8", p, 1);
  const kept_keys last = kept(c);
  cr_expect(last.mass_least >= 0 && last.mass_least < last.mass_mean && best.mass_least >= last.mass_least);
  cr_expect(best.keys_mean == last.keys_mean && best.keys_max == 8 && best.regret_mean < 1e-12);
  cr_expect_float_eq(last.mass_mean + last.regret_mean, best.mass_mean, 1e-12);
  cr_expect(last.regret_mean > 0.1);
  cr_expect_float_eq(best.read_share, (8 * 9 / 2 + 192 * 8) / (200.0 * 201 / 2), 1e-12);
}

/* Equal queries: rank 1 is enough, and a mask breaks the rank. */
Test(checks_budget, least_ranks) {
  cr_expect_eq(find_of("linformer:k=4", shape(40), 0, 0.01).best, 1);
  attn_problem p = shape(40);
  p.causal = true;
  cr_expect(isnan(find_of("performer:features=4", p, 1, 0.01).best));
  run_case *c = case_gaussian("performer:features=4", shape(40), 3);
  cr_expect(find(c, 0.01).best > find(c, 0.1).best && find(c, 0.1).best > 1);
  const budget b = find_of("tiled", shape(40), 1, 0.1);
  cr_expect(isnan(b.used) && b.predicted == 0);
}

/* What explains a run: the mass left out; all features alike on one key; eps that drowns them; the best of
 * its rank. */
static void all_columns(run_case *c, result_row *row) {
  cr_assert_eq(evidence_all(&c->e, false, checks_run, row), ATTN_OK, "%s", attn_last_error());
}

/* Keys that the problem masks besides are not kept. */
Test(checks_budget, masked_keys) {
  attn_problem p = shape(32);
  result_row row = row_empty();
  p.mask = (attn_mask){.kind = ATTN_MASK_PREFIX, .size = 9};
  all_columns(case_gaussian("longformer:window=8,global=2", p, 1), &row);
  cr_expect_float_eq(row.budget_used, row.keys_mean, 1e-9, "%g, not %g", row.budget_used, row.keys_mean);
  result_row_free(&row);
}

Test(checks_budget, explaining_columns) {
  result_row row = row_empty();
  run_case *c = case_gaussian("longformer:window=8", case_problem(1, 2, 2, 64, 8, 5, false, ATTN_F32), 1);
  double left = 0; /* of every second row of the first head */
  for (int64_t i = 1; i < 64; i += 2)
    for (int64_t j = 0; j < 64; j++) left += llabs(i - j) > 4 ? c->exact->p[i * 64 + j] : 0;
  all_columns(c, &row);
  cr_expect_float_eq(row.tail_mass, left / 32, 1e-12);
  cr_expect(isnan(row.eps_share) && isnan(row.feature_ess));
  static const struct {
    const char *spec;
    double std, share_low, share_high, ess_low, ess_high;
  } cases[] = {{"performer:features=64", 0.001, 0, 0, 63.9, 64.1},
               {"performer:features=64", 3, 0, 0, 1, 20},
               {"performer:features=64,eps=1", 0.001, 0.7, 0.8, 63.9, 64.1},
               {"performer:features=64,eps=1", 5, 0.99, 1, 1, 20}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    c = case_gaussian(cases[i].spec, shape(40), cases[i].std);
    all_columns(c, &row);
    cr_expect(row.eps_share >= cases[i].share_low && row.eps_share <= cases[i].share_high, "%s %g: %g",
              cases[i].spec, cases[i].std, row.eps_share);
    cr_expect(row.feature_ess >= cases[i].ess_low && row.feature_ess <= cases[i].ess_high, "%s %g: %g",
              cases[i].spec, cases[i].std, row.feature_ess);
    cr_expect(isnan(row.rank_ratio)); /* 64 features of 40 keys */
  }
  c = case_gaussian("linformer:k=6", shape(40), 1);
  all_columns(c, &row);
  cr_expect(row.rank_ratio > 1 && row.rank_ratio < 100, "%g", row.rank_ratio);
  result_row_free(&row);
}

/* What a run leaves in its block's cache does not change the next run. */
Test(checks_budget, runs_that_share_a_cache) {
  static const char *const specs[] = {"performer:features=32", "performer:features=16,seed=5",
                                      "linformer:k=6", "longformer:window=8",
                                      "performer:features=32,kernel=trig"};
  struct block_cache *shared = block_cache_create();
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    result_row with = row_empty(), without = row_empty();
    run_case *c = case_gaussian(specs[i], shape(40), 0.5);
    struct block_cache *own = c->e.cache;
    c->e.cache = shared;
    all_columns(c, &with);
    c->e.cache = own;
    all_columns(c, &without);
    for (const result_column *column = result_columns; column->name; column++)
      if (column->type == COLUMN_F64) {
        const double a = result_column_f64(&with, column), b = result_column_f64(&without, column);
        cr_expect(memcmp(&a, &b, sizeof a) == 0, "%s, %s: %g, alone %g", specs[i], column->name, a, b);
      }
    cr_expect(i > 0 || (with.budget_used == 32 && with.need_1pct > 90 * with.need_10pct &&
                        with.best_1pct >= with.best_10pct && with.err_predicted > 0));
    cr_assert_eq(with.bounds_count, without.bounds_count);
    for (int b = 0; b < with.bounds_count; b++)
      cr_expect(with.bounds[b].verdict == without.bounds[b].verdict &&
                    memcmp(&with.bounds[b].measured, &without.bounds[b].measured, sizeof(double)) == 0,
                "%s, %s: %g, alone %g", specs[i], with.bounds[b].name, with.bounds[b].measured,
                without.bounds[b].measured);
    result_row_free(&with);
    result_row_free(&without);
  }
  block_cache_free(shared);
}

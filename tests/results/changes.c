/* changes.c - two results files, run by run: what pairs, which ratios of times are regressions and at which
 * level, errors beyond rounding, verdicts. */

#include <gsl/gsl_cdf.h>

#include "experiments/analysis/change.h"
#include "experiments/analysis/setting.h"
#include "attn_variant.h"
#include "tests/support/results_fixture.h"

/* The comparison of two sets, all of which is kept. */
typedef struct changed {
  result_set a, b;
  result_pairs pairs;
  results_change change;
} changed;

static void release(void *of) {
  changed *c = of;
  change_free(&c->change), pairs_free(&c->pairs), result_set_free(&c->a), result_set_free(&c->b);
}

static changed compare(result_set a, result_set b, double limit) {
  changed c = {.a = a, .b = b};
  cr_assert_eq(pairs_make(&a, &b, &c.pairs), ATTN_OK, "%s", attn_last_error());
  cr_assert_eq(change_make(&c.pairs, limit, &c.change), ATTN_OK, "%s", attn_last_error());
  return *(changed *)keep_copy(&c, sizeof c, release);
}

/* What became of a row of the fixture. */
static const run_change *of(const changed *c, int64_t i) {
  const char *key = text_of("run %08lld", (long long)i);
  const run_change *found = NULL;
  for (size_t r = 0; r < c->change.count; r++)
    if (strcmp(c->change.runs[r].a->key, key) == 0) found = &c->change.runs[r];
  cr_assert(found, "row %lld has no pair", (long long)i);
  return found;
}

Test(results_changes, a_file_against_itself) {
  changed c = compare(fixture_set(60), fixture_set(60), 1.05);
  cr_assert_eq(c.pairs.count, 60);
  cr_expect(!c.pairs.only_a_count && !c.pairs.only_b_count && !c.pairs.other_isa);
  cr_expect_eq(c.change.timed, 52, "every seventh was not run");
  for (size_t i = 0; i < c.change.timed; i++) {
    const run_change *r = &c.change.runs[i];
    cr_expect(r->ratio.mid == 1 && r->ratio.lo < 1 && r->ratio.hi > 1 && r->time == CHANGE_NONE);
  }
  cr_expect(c.change.mean.mid == 1 && c.change.mean.lo < 1 && c.change.mean.hi > 1 && !c.change.mean_slower);
  cr_expect(!c.change.slower && !c.change.faster && !c.change.errors && !c.change.verdicts &&
            !c.change.statuses && !c.change.violated && !c.change.failed && !c.change.undecided);
}

Test(results_changes, one_run_got_slower_and_one_faster) {
  result_set b = fixture_set(60);
  scale_time(&b.rows[7], 1.25);
  scale_time(&b.rows[8], 1.04); /* below the limit */
  scale_time(&b.rows[9], 0.7);
  changed c = compare(fixture_set(60), b, 1.05);
  cr_expect(c.change.slower == 1 && c.change.faster == 1 && !c.change.mean_slower);
  cr_expect(c.change.runs[0].time == CHANGE_SLOWER && !strcmp(c.change.runs[0].a->key, c.a.rows[7].key));
  for (size_t i = 1; i < c.change.timed; i++)
    cr_expect(c.change.runs[i].ratio.mid <= c.change.runs[i - 1].ratio.mid, "run %zu", i);
  cr_expect_float_eq(of(&c, 7)->ratio.mid, 1.25, 1e-12);
  cr_expect(of(&c, 8)->time == CHANGE_NONE && of(&c, 9)->time == CHANGE_FASTER);
  cr_expect_eq(of(&c, 6)->time, CHANGE_UNTIMED);
}

/* 9 % each is no certain thing of a run among sixty; of all together it is. The mean's error is that of runs
 * that differ, and what sessions differ by. */
Test(results_changes, what_all_runs_say_together) {
  for (int slow = 0; slow < 2; slow++) {
    static const double apart[] = {0.07, 0, -0.07, 0};
    const double by = slow ? 1.2 : 1.09;
    result_set b = fixture_set(60);
    for (size_t i = 0, k = 0; i < b.count; i++)
      if (b.rows[i].status == RUN_OK) scale_time(&b.rows[i], by * exp(apart[k++ % 4]));
    changed c = compare(fixture_set(60), b, 1.05);
    /* Of n values, half of them +-a, the variance is a^2 / 2 n / (n - 1). */
    const double n = (double)c.change.timed, error = sqrt(0.07 * 0.07 / 2 / (n - 1) + 2 * 0.01 * 0.01);
    cr_expect(n == 52 && fabs(c.change.mean.mid - by) < 1e-12);
    cr_expect_float_eq(log(c.change.mean.mid / c.change.mean.lo), gsl_cdf_tdist_Pinv(0.975, n - 1) * error,
                       1e-12);
    cr_expect_float_eq(c.change.p_mean, gsl_cdf_tdist_Q(log(by / 1.05) / error, n - 1), 1e-12);
    cr_expect_eq(c.change.mean_slower, slow);
  }
}

/* A run whose p-value is too large for one of all hypotheses is slower once half of the others surely are. */
Test(results_changes, what_is_settled_is_no_longer_counted) {
  for (int settled = 0; settled < 2; settled++) {
    result_set b = fixture_set(60);
    double p = 1;
    for (double by = 1.05; p > 0.05 / 40; by += 0.002) {
      result_set one = fixture_set(8);
      scale_time(&one.rows[7], by);
      changed c = compare(fixture_set(8), one, 1.05);
      if ((p = of(&c, 7)->p_slower) <= 0.05 / 40) scale_time(&b.rows[7], by);
    }
    cr_assert(p > 0.05 / 52, "%g", p);
    for (size_t i = 8; settled && i < 40; i++) scale_time(&b.rows[i], 3);
    changed c = compare(fixture_set(60), b, 1.05);
    cr_expect_eq(of(&c, 7)->time, settled ? CHANGE_SLOWER : CHANGE_NONE, "p %g, %d settled", p, settled);
  }
}

/* Welch and Satterthwaite's of the logarithms, from intervals of 2 1.96 deviations each; none is taken for
 * narrower than sessions are apart. */
Test(results_changes, a_run_alone_is_students) {
  static const double apart[][2] = {{0.05, 0.2}, {0.1, 1e-3}, {1e-3, 1e-3}};
  for (int i = 0; i < 3; i++) {
    result_set sets[2] = {fixture_set(2), fixture_set(2)};
    double squares = 0, parts = 0;
    scale_time(&sets[1].rows[1], 1.2);
    for (int s = 0; s < 2; s++) {
      result_row *row = &sets[s].rows[1];
      row->time_ci_lo = row->time_median * exp(-apart[i][s]);
      row->time_ci_hi = row->time_median * exp(apart[i][s]);
      row->n_samples = 7 + 6 * s;
      const double square = pow(fmax(apart[i][s] / gsl_cdf_ugaussian_Pinv(0.975), 0.01), 2);
      squares += square;
      parts += square * square / (double)(row->n_samples - 1);
    }
    const double freedom = squares * squares / parts, error = sqrt(squares);
    changed c = compare(sets[0], sets[1], 1.05);
    const run_change *r = of(&c, 1);
    const double half = gsl_cdf_tdist_Pinv(0.975, freedom) * error;
    cr_expect_float_eq(log(r->ratio.hi / 1.2), half, 1e-12, "%d", i);
    cr_expect_float_eq(log(r->ratio.lo / 1.2), -half, 1e-12, "%d", i);
    cr_expect_float_eq(r->p_slower, gsl_cdf_tdist_Q(log(1.2 / 1.05) / error, freedom), 1e-12, "%d", i);
    cr_expect_float_eq(r->p_faster, gsl_cdf_tdist_Q(-log(1.2 * 1.05) / error, freedom), 1e-12, "%d", i);
    cr_expect(c.change.mean.lo < c.change.mean.hi, "two runs have a mean");
  }
}

/* A run that was not run, or refused, is no failure; what failed or was violated before is none anew. */
Test(results_changes, what_got_worse) {
  static const run_status statuses[] = {RUN_OK, RUN_SKIPPED, RUN_UNSUPPORTED, RUN_CRASHED};
  static const check_verdict verdicts[] = {VERDICT_PASS, VERDICT_ERROR, VERDICT_UNCHECKED, VERDICT_VIOLATED};
  result_set a = fixture_set(32), b = fixture_set(32);
  for (int i = 0; i < 16; i++) { /* and sixteen with another verdict on the model alone */
    a.rows[i].status = statuses[i / 4], b.rows[i].status = statuses[i % 4];
    a.rows[i].verdict = verdicts[i / 4], b.rows[i].verdict = verdicts[i % 4];
    a.rows[16 + i].model_verdict = verdicts[i / 4], b.rows[16 + i].model_verdict = verdicts[i % 4];
  }
  changed c = compare(a, b, 1.05);
  cr_expect(c.change.failed == 3 && c.change.violated == 3 && c.change.statuses == 12);
  cr_expect_eq(c.change.verdicts, 24);
  for (int i = 0; i < 16; i++) {
    const bool worse = i % 4 == 3 && i < 12;
    cr_expect_eq(of(&c, i)->time == CHANGE_UNTIMED, i > 0, "%d: only what ended well has a time", i);
    cr_expect(of(&c, i)->failed == worse && of(&c, i)->violated == worse, "%d", i);
  }
}

/* ---- errors ------------------------------------------------------------------------------------------- */

Test(results_changes, errors_beyond_rounding) {
  result_set a = fixture_set(8), b = fixture_set(8);
  static const struct {
    double a, b;
    bool changed;
  } cases[6] = {
      {3e-7, 3.5e-7, false}, /* full: rounding in another order */
      {3e-7, 1e-5, true},    /* tiled: another arithmetic */
      {1e-5, 5e-6, true},    /* another approximation */
      {0.1, 0.1005, false},  /* half a hundredth */
      {2e-6, 2.4e-6, false}, /* beyond a hundredth, within what exact variants round */
      {0.1, (double)NAN, true},
  };
  for (size_t i = 0; i < 6; i++) {
    a.rows[i].n = b.rows[i].n = a.rows[i].n_kv = b.rows[i].n_kv = 512;
    a.rows[i].causal = b.rows[i].causal = 0;
    /* Exact variants of the same input. */
    a.rows[i].threads = b.rows[i].threads = 1 + (i < 2);
    a.rows[i].seed = b.rows[i].seed = a.rows[i].cache = b.rows[i].cache = i < 2;
    a.rows[i].err_rel_fro = cases[i].a;
    b.rows[i].err_rel_fro = cases[i].b;
  }
  a.rows[7].err_rel_fro = b.rows[7].err_rel_fro = 1e-8; /* an exact variant, of other inputs */
  changed c = compare(a, b, 1.05);
  for (int64_t i = 0; i < 6; i++) cr_expect_eq(of(&c, i)->error, cases[i].changed, "row %lld", (long long)i);
  cr_expect_eq(c.change.errors, 3);
  /* Other data, and a sample of other size whose interval reaches as far, or does not; two errors that are
   * none. Exact variants that err by less than a unit, or are of other inputs: rounding is then n's. */
  static const struct {
    double lo, hi;
    size_t errors;
  } steps[] = {{2e-7, 1, 1}, {4e-7, 1, 2}, {1e-7, 2e-7, 1}, {2e-7, 1, 1}, {2e-7, 1, 0}};
  c.b.rows[2].dataset_sha256 = "0123";
  c.b.rows[1].rows_sampled = 7;
  c.a.rows[1].err_rel_fro_lo = c.a.rows[1].err_rel_fro_hi = 3e-7;
  for (int i = 0; i < 5; i++) {
    results_change again;
    c.b.rows[1].err_rel_fro_lo = steps[i].lo, c.b.rows[1].err_rel_fro_hi = steps[i].hi;
    if (i == 2) c.a.rows[5].err_rel_fro = (double)NAN;
    if (i == 3) c.b.rows[2].dataset_sha256 = c.a.rows[2].dataset_sha256;
    for (int e = 0; i > 2 && e < 2; e++) {
      c.a.rows[e].err_rel_fro = c.b.rows[e].err_rel_fro = 1e-12;
      c.a.rows[e].d = c.b.rows[e].d = 61 + i;
    }
    cr_assert_eq(change_make(&c.pairs, 1.05, &again), ATTN_OK);
    cr_expect_eq(again.errors, steps[i].errors, "%d", i);
    change_free(&again);
  }
}

/* An error moves by a fifth: less than a row of 512 keys may round, and far more than an exact run does, in
 * one of the files. That counts if it is of the same input, whatever its draws, and whatever the machine
 * chose. Runs pair if another differs in nothing that a user chooses. n without n_kv is another table. */
Test(results_changes, what_differs_is_another_input_or_another_run) {
  for (int i = 0; i < AXES + TEXT_AXES; i++) {
    const char *name = i < AXES ? axes[i].name : text_axes[i - AXES].name, *word = text_of(" %s ", name);
    const bool same = strstr(" seed threads cache block_q block_k isa ", word);
    result_set sets[2] = {fixture_set(6), fixture_set(6)};
    for (int s = 0; s < 2; s++) {
      result_row *rows = sets[s].rows;
      rows[1].err_rel_fro = s == i % 2 ? 1e-7 : 1e-5;
      rows[3].err_rel_fro = s ? 1.2e-5 : 1e-5;
      rows[5].err_rel_fro = 1e-7; /* performer, which is not exact */
      for (int r = 1; r <= 1 + 3 * s; r += 3)
        if (i < AXES)
          rows[r].axis[i]++;
        else
          cr_assert_eq(result_column_set_text(&rows[r], result_column_named(name), "another"), ATTN_OK);
    }
    changed c = compare(sets[0], sets[1], 1.05);
    cr_expect_eq(c.pairs.count, strstr(" threads block_q block_k isa ", word) ? 6U : 5U, "%s", name);
    cr_expect_eq(of(&c, 3)->error, same, "%s", name);
    const bool never = strstr(" data_seed block_q block_k seed ", word), host = strstr(" threads isa ", word);
    cr_expect_eq(!setting_group_compare(&c.a.rows[4], &c.b.rows[4], true), never, "%s", name);
    cr_expect_eq(!setting_group_compare(&c.a.rows[4], &c.b.rows[4], false), never || host, "%s", name);
  }
}

/* ---- pairs --------------------------------------------------------------------------------------------- */

#define WINDOW "{\"window\":256"

/* A row with a window of 256 differs in a text. A parameter that a run does not have counts as its default;
 * their order is no matter. */
Test(results_changes, runs_pair_where_they_are_the_same_run) {
  static const struct {
    const char *column, *text, *params; /* params: of the first */
    size_t pairs;
  } cases[] = {
      {"params", WINDOW "}", WINDOW "}", 1},
      {"plugin_sha256", "0123", WINDOW "}", 1},
      {"params", "{\"window\":128}", WINDOW "}", 0},
      {"variant", "stranger", WINDOW "}", 0},
      {"params", WINDOW ",\"dilation\":1}", WINDOW "}", 1},
      {"params", WINDOW ",\"dilation\":2}", WINDOW "}", 0},
      {"params", WINDOW ",\"dilation\":2}", WINDOW ",\"dilation\":1}", 0},
      {"params", "{\"dilation\":2,\"window\":64}", "{\"window\":64,\"dilation\":2}", 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    result_set a = fixture_set(3), b = fixture_set(3);
    result_pairs pairs;
    a.rows[2].params = cases[i].params;
    b.rows[2].params = WINDOW "}";
    const result_column *column = result_column_named(cases[i].column);
    cr_assert_eq(result_column_set_text(&b.rows[2], column, cases[i].text), ATTN_OK);
    cr_assert_eq(pairs_make(&a, &b, &pairs), ATTN_OK);
    cr_expect(pairs.count == 2 + cases[i].pairs && pairs.only_a_count == 1 - cases[i].pairs &&
                  pairs.only_b_count == 1 - cases[i].pairs,
              "%zu: %s", i, cases[i].column);
    pairs_free(&pairs), result_set_free(&a), result_set_free(&b);
  }
}

/* Where a file has a run with several instruction sets, those that agree pair, and the last two. */
Test(results_changes, several_instruction_sets) {
  static const char *const isas[2][3] = {{"avx2", "scalar", "avx512"}, {"scalar", "avx2", "neon"}};
  result_set sets[2] = {kept_set(fixture_set(3)), kept_set(fixture_set(3))};
  result_pairs pairs;
  for (int s = 0; s < 2; s++)
    for (size_t i = 0; i < 3; i++) {
      result_row_free(&sets[s].rows[i]);
      sets[s].rows[i] = fixture_row(0);
      sets[s].rows[i].isa = isas[s][i];
    }
  cr_assert_eq(pairs_make(&sets[0], &sets[1], &pairs), ATTN_OK);
  cr_expect(pairs.count == 3 && pairs.other_isa == 1);
  for (size_t i = 0; i < pairs.count; i++)
    cr_expect(strcmp(pairs.items[i].a->isa, pairs.items[i].b->isa) == 0 ||
              (strcmp(pairs.items[i].a->isa, "avx512") == 0 && strcmp(pairs.items[i].b->isa, "neon") == 0));
  pairs_free(&pairs);
  sets[0].rows[0].isa = "sse2"; /* two on one side or both agree with none: which of them pair is a guess */
  for (int i = 0; i < 3; i++) {
    sets[0].rows[0].seed = i ? 7 : 0;
    cr_assert_eq(pairs_make(&sets[i == 2], &sets[i != 2], &pairs), ATTN_OK);
    cr_expect(pairs.count == 1 && pairs.only_a_count == 2 && pairs.only_b_count == 2, "%d", i);
    pairs_free(&pairs);
  }
}

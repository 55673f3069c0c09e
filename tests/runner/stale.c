/* stale.c - variants that are right once: executions that are timed are held against the verified one, on
 * inputs that change at moments which nobody can foresee. */
#include "experiments/runner/recheck.h"
#include "experiments/support/digest.h"
#include "tests/support/sweep_fixture.h"

TestSuite(stale, .init = command_enter, .fini = command_leave, .timeout = 120);

#define STALE " --plugin " TEST_BINARY_DIR "/tests/stale.so"

static const struct stale_case {
  const char *mode, *about;
} cases[] = {{"copy", "the result is stale"},
             {"copy_process", "the result is stale"},
             {"late", "the result is stale"},
             {"odd", "gave other bits than"},
             {"addresses", "the result is stale"},
             {"corner", "the result is stale"},
             {"keys", "gave other bits than"},
             {"keys_process", "gave other bits than"},
             {"idle", "unwritten"}};

static void expect_found(const char *more) {
  command_write_text("x.yaml", "schema: 1\ngrid: {n: 24, heads: 2, d: 8, causal: [no, yes]}\n"
                               "variants: [full, stale: {mode: [none, copy, copy_process, late, odd, "
                               "addresses, corner, keys, keys_process, idle]}]\n"
                               "datasets: gaussian\nthreads: 1\nnulls: no\n" TIMING);
  const int code = run(text_of("run x.yaml -o x.h5 -q%s" STALE, more));
  cr_expect(code == 1 || code == 3, "%d %s", code, result.err);
  result_set set = read_results("x.h5");
  cr_expect_eq(set.count, 2 * (1 + 10));
  for (size_t i = 0; i < set.count; i++) {
    const result_row *row = &set.rows[i];
    if (strstr(row->key, "variant=full") || strstr(row->key, "mode=none")) expect_measured(row);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
      if (strcmp(strstr(row->key, "variant="), "variant=full") == 0 || !strstr(row->key, "mode=") ||
          strcmp(strstr(row->key, "mode="), text_of("mode=%s", cases[c].mode)) != 0)
        continue;
      /* A check that executes other plans may meet the process's memory before a turn does. */
      const bool violated = row->verdict == VERDICT_VIOLATED;
      cr_expect(violated || row->status == RUN_FAILED, "%s: %s, %g s", row->key,
                run_status_names[row->status], row->time_median);
      cr_expect(violated || (row->message && strstr(row->message, cases[c].about)), "%s: %s", row->key,
                row->message);
      cr_expect(isnan(row->time_median) && row->n_samples == 0);
    }
  }
}

Test(stale, executions_that_do_not_compute_are_failures) { expect_found(""); }

Test(stale, with_cold_caches_too) { expect_found(" --set cache=cold --set timing.samples=6"); }

/* Few executions, each of them a sample. */
Test(stale, and_where_an_execution_is_longer_than_its_warm_up) {
  expect_found(" --set timing.warmup=0 --set timing.sample_time=1e-9 --set timing.samples=3");
}

/* What the moments are drawn from cannot make a right variant fail. */
Test(stale, right_variants_pass_whatever_is_drawn) {
  const result_set *set =
      sweep("-q", 0,
            "schema: 1\ngrid: {n: [1, 2, 33], heads: 2, kv_heads: 1, d: 4, dtype: [f32, f64], "
            "causal: [no, yes], seed: 1}\n"
            "variants: [full, tiled, longformer: {window: 4}, bigbird: {block: 4}, "
            "performer: {features: 8}, linformer: {k: 1}]\n"
            "datasets: [gaussian, gaussian: {std_v: 0}]\nthreads: 1\nnulls: no\n"
            "timing: {min_time: 0.001, max_time: 0.01, warmup: 0.0001, samples: 4}\n");
  for (size_t i = 0; i < set->count; i++)
    cr_expect(set->rows[i].status == RUN_OK || set->rows[i].status == RUN_UNSUPPORTED, "%s: %s %s",
              set->rows[i].key, run_status_names[set->rows[i].status], set->rows[i].message);
}

/* Where the first measurement was right: a bench measures several times. */
Test(stale, a_bench_notices_too) {
  cr_expect_eq(run("bench --quick full stale:mode=keys -d 8 -n 64 --rounds 3 --budget 1" STALE), 2, "%d %s",
               result.exit_code, result.err);
  expect_says(result.err, "gave other bits");
}

/* However many bytes there are, and whichever changes. */
Test(stale, digests_tell_bytes_apart) {
  unsigned char bytes[100];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i + 1);
  for (size_t size = 1; size <= sizeof bytes; size++)
    for (size_t bit = 0; bit < 8 * size; bit++) {
      const uint64_t whole = digest_of(bytes, size);
      bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
      cr_expect(digest_of(bytes, size) != whole && digest_of(bytes, size - 1) != whole, "%zu of %zu", bit,
                size);
      bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
      cr_expect_eq(digest_of(bytes, size), whole);
    }
}

/* A query may see a few keys alone, and weigh them equally: its output changes if all values do. */
Test(stale, every_value_changes) {
  enum { KEYS = 257, WIDTH = 4 };
  static float q[WIDTH], k[KEYS * WIDTH], v[KEYS * WIDTH], before[KEYS * WIDTH], o[WIDTH];
  for (int i = 0; i < KEYS * WIDTH; i++) k[i] = v[i] = before[i] = (float)(i + 1);
  for (int i = 0; i < WIDTH; i++) q[i] = (float)(i + 1);
  recheck c = {.q = q,
               .k = k,
               .v = v,
               .o = o,
               .q_bytes = sizeof q,
               .k_bytes = sizeof k,
               .v_bytes = sizeof v,
               .o_bytes = sizeof o,
               .dtype = ATTN_F32,
               .d_v = WIDTH};
  recheck_begin(&c);
  recheck_mirror(&c);
  for (int j = 0; j < KEYS; j++)
    cr_expect_neq(memcmp(v + j * WIDTH, before + j * WIDTH, WIDTH * sizeof *v), 0, "key %d", j);
  cr_expect_eq(k[0], 1, "the first keys are those of before");
  cr_expect_eq(v[0], 1);
  recheck_mirror(&c);
  cr_expect_eq(memcmp(v, before, sizeof v), 0);
}

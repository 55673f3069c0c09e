/* faults.c - runs that fail: each gets a row with its status and a message, and the others continue. */
#include "tests/support/sweep_fixture.h"

TestSuite(faults, .init = command_enter, .fini = command_leave, .timeout = 120);

/* Each fault by name, the status that it must get, and a word of its message. */
static const struct fault_case {
  const char *mode;
  run_status status;
  const char *about;
} faults[] = {{"crash", RUN_CRASHED, ""},
              {"crash_late", RUN_CRASHED, ""},
              {"hang", RUN_TIMEOUT, "budget"},
              {"eat", RUN_OOM, "memory"},
              {"quit", RUN_CRASHED, "code 42"},
              {"fail", RUN_FAILED, "fails as told"},
              {"unwritten", RUN_FAILED, "not written"},
              {"unsupported", RUN_UNSUPPORTED, "does not want"},
              {"huge_work", RUN_SKIPPED, "1.00 TiB"},
              {"into_slice", RUN_FAILED, "variant fault: execute wrote behind a piece of its work memory"},
              {"none", RUN_OK, ""}};

static int times_in(const char *text, const char *words) {
  int times = 0;
  while ((text = strstr(text, words))) text++, times++;
  return times;
}

Test(faults, failing_runs_are_rows_and_the_others_go_on) {
  /* NaN violates FP-1, which is worse than a run that failed. */
  const result_set *set =
      sweep("-q" FAULT, 1,
            "schema: 1\ngrid: {n: 32, heads: 2, d: 16}\n"
            "variants: [full, fault: {mode: [crash, crash_late, hang, eat, quit, fail, unwritten, "
            "unsupported, huge_work, into_slice, none]}, tiled]\n"
            "datasets: gaussian\nbudget: {time: 8, memory: 400Mi}\n" TIMING);
  cr_expect_eq(set->count, 2 + 11 + 3);
  expect_measured(find_row(set, "variant=full"));
  expect_measured(find_row(set, "variant=tiled"));
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    const char *part = text_of("variant=fault:mode=%s", faults[i].mode);
    const result_row *row = NULL;
    for (size_t r = 0; r < set->count; r++)
      if (strcmp(strstr(set->rows[r].key, "variant="), part) == 0) row = &set->rows[r];
    cr_assert_not_null(row, "%s", part);
    expect_status(row, faults[i].status);
    cr_expect(strstr(row->message, faults[i].about) != NULL, "%s: %s", part, row->message);
    cr_expect(row->status == RUN_OK || isnan(row->time_median));
  }
}

/* Longer than all samples may take: then a part of the heads is watched. */
Test(faults, a_long_run_is_watched_too) {
  const result_set *set =
      sweep("-q" FAULT, 3,
            "schema: 1\ngrid: {n: 32, heads: 4, kv_heads: 2, d: 16, batch: 2}\n"
            "variants: [full, fault: {mode: [into_slice, none]}, performer, bigbird: {block: 8}]\n"
            "datasets: gaussian\nnulls: no\n"
            "timing: {min_time: 1e-9, max_time: 1e-9, warmup: 0}\n");
  for (size_t r = 0; r < set->count; r++) {
    const bool bad = strstr(set->rows[r].key, "into_slice") != NULL;
    expect_status(&set->rows[r], bad ? RUN_FAILED : RUN_OK);
    cr_expect_eq(strstr(set->rows[r].message, "wrote behind a piece of its work memory") != NULL, bad);
    if (!bad) cr_expect_eq(set->rows[r].n_samples, 1);
  }
}

/* Of 31 x 15 elements, some bytes are left behind the output, and before it; 32 x 16 fill a page. */
Test(faults, memory_that_is_not_the_variants_own_is_guarded) {
  static const struct trespass_case {
    const char *size, *mode;
    run_status status;
    const char *about;
  } cases[] = {{" n=31 ", "mode=before_output", RUN_FAILED, "wrote before its output"},
               {" n=31 ", "mode=behind_output", RUN_FAILED, "wrote behind its output"},
               {" n=31 ", "mode=behind_late", RUN_FAILED, "wrote behind its output while it was timed"},
               {" n=31 ", "mode=before_work", RUN_FAILED, "wrote before its work memory"},
               {" n=31 ", "mode=behind_work", RUN_CRASHED, ""},
               {" n=31 ", "mode=into_queries", RUN_CRASHED, ""},
               {" n=31 ", "mode=into_values", RUN_CRASHED, ""},
               {" n=31 ", "mode=none", RUN_OK, ""},
               {" n=32 ", "mode=before_output", RUN_CRASHED, ""},
               {" n=32 ", "mode=behind_output", RUN_CRASHED, ""},
               {" n=32 ", "mode=behind_late", RUN_CRASHED, ""},
               {" n=32 ", "mode=none", RUN_OK, ""}};
  const result_set *set =
      sweep("-q" FAULT, 3,
            "schema: 1\ngrid: {n: [31, 32], heads: 2, d: [15, 16]}\n"
            "variants: [full, fault: {mode: [before_output, behind_output, behind_late, before_work, "
            "behind_work, into_queries, into_values, none]}, tiled]\n"
            "exclude: [{n: 31, d: 16}, {n: 32, d: 15}]\n"
            "datasets: gaussian\nbudget: {time: 60}\nnulls: no\n" TIMING);
  cr_expect_eq(set->count, 2 * (8 + 2));
  for (size_t i = 0; i < set->count; i++)
    if (strcmp(set->rows[i].variant, "fault") != 0) expect_measured(&set->rows[i]);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const result_row *row = NULL;
    for (size_t r = 0; r < set->count; r++)
      if (strstr(set->rows[r].key, cases[i].size) && strstr(set->rows[r].key, cases[i].mode))
        row = &set->rows[r];
    cr_assert_not_null(row, "%s%s", cases[i].size, cases[i].mode);
    expect_status(row, cases[i].status);
    cr_expect(strstr(row->message, cases[i].about) != NULL, "%s: %s", row->key, row->message);
    cr_expect(row->status == RUN_OK || isnan(row->time_median));
  }
}

/* Of 4096 rows 64 are compared with exact ones; the NaN stands in another. */
Test(faults, one_nan_anywhere_fails_the_run) {
  const result_set *set =
      sweep("-q" FAULT, 3,
            "schema: 1\ngrid: {n: 4096, heads: 1, d: 4}\nvariants: [fault: {mode: one_nan}]\n"
            "datasets: gaussian\nnulls: no\nrows: 64\n" TIMING);
  cr_assert_eq(set->count, 1);
  cr_expect_eq(set->rows[0].status, RUN_FAILED);
  cr_expect(strstr(set->rows[0].message, "NaN") != NULL, "%s", set->rows[0].message);
  cr_expect(isnan(set->rows[0].time_median) && set->rows[0].n_samples == 0);
  cr_expect(set->rows[0].rows_sampled < 4096 && set->rows[0].err_rel_fro < 1e-3);
}

Test(faults, a_wrong_output_is_a_violation_and_has_no_time) {
  const result_set *set =
      sweep(FAULT, 1,
            "schema: 1\ngrid: {n: 32, heads: 2, d: 16}\nvariants: [fault: {mode: [none, wrong]}]\n"
            "datasets: gaussian\n" TIMING);
  expect_says(result.err, "1 with a violated bound");
  const result_row *wrong = find_row(set, "mode=wrong"), *right = find_row(set, "mode=none");
  cr_expect(wrong->verdict == VERDICT_VIOLATED && wrong->n_samples == 0 && isnan(wrong->time_median));
  cr_expect_float_eq(wrong->err_rel_fro, 1, 1e-5);
  cr_expect(right->verdict == VERDICT_PASS || right->verdict == VERDICT_CONSISTENT);
  cr_expect(right->time_median > 0);
}

Test(faults, retry_failed_runs_those_alone) {
  sweep("-q" FAULT, 3,
        "schema: 1\ngrid: {n: 32, heads: 1, d: 16}\n"
        "variants: [full, fault: {mode: [fail, unsupported]}]\ndatasets: gaussian\nnulls: no\n" TIMING);
  const long bytes = size_of("x.jsonl");
  sweep_again("-q" FAULT, 3);
  cr_expect_eq(size_of("x.jsonl"), bytes);
  const result_set *set = sweep_again("-q --retry-failed" FAULT, 3);
  cr_expect_eq(set->count, 3);
  cr_expect_eq(find_row(set, "mode=fail")->session, 1);
  cr_expect_eq(find_row(set, "mode=unsupported")->session, 0);
  cr_expect_eq(find_row(set, "variant=full")->session, 0);
}

Test(faults, tensors_beyond_the_budget_are_skipped) {
  const result_set *set = sweep("-q", 3,
                                "schema: 1\ngrid: {n: 1Mi, heads: 64}\nvariants: full\ndatasets: gaussian\n"
                                "budget: {memory: 1Gi}\n");
  expect_says(result.err, "4 runs skipped: ");
  cr_expect_eq(set->count, 4);
  for (size_t i = 0; i < set->count; i++) {
    cr_expect(set->rows[i].status == RUN_SKIPPED && strstr(set->rows[i].message, "budget") != NULL);
  }
}

Test(faults, a_dataset_that_cannot_be_made_is_a_row) {
  const result_set *set =
      sweep("-q", 3, "schema: 1\ngrid: {n: 32}\nvariants: full\ndatasets: [safetensors: {file: none.st}]\n");
  cr_expect(set->count == 4 && set->rows[0].status == RUN_FAILED);
  cr_expect(strstr(set->rows[0].message, "none.st") != NULL, "%s", set->rows[0].message);
}

/* Features of such vectors overflow; exact attention does not. That is no failure of the sweep. */
Test(faults, an_approximation_beyond_its_range_says_so) {
  float data[64 * 16];
  for (size_t i = 0; i < sizeof data / sizeof *data; i++) data[i] = 1e15F * (float)((int)(i * 7 % 11) - 5);
  fixture_npy("q.npy", "<f4", "1, 64, 16", data, sizeof data);
  for (size_t i = 0; i < sizeof data / sizeof *data; i++) data[i] = (float)(i % 3);
  fixture_npy("v.npy", "<f4", "1, 64, 16", data, sizeof data);
  const result_set *set = sweep("-q", 0,
                                "schema: 1\ngrid: {n: 64, heads: 1, d: 16}\n"
                                "variants: [full, performer: {features: 16}]\n"
                                "datasets: [npy: {q: q.npy, k: q.npy, v: v.npy}]\nnulls: no\n" TIMING);
  const result_row *row = find_row(set, "variant=performer");
  expect_status(row, RUN_UNSUPPORTED);
  cr_expect(strstr(row->message, "beyond the range") != NULL, "%s", row->message);
  cr_expect_eq(find_row(set, "variant=full")->status, RUN_OK);
}

/* exp(-60)^2 is 0 in this type, so that every weight is. */
Test(faults, features_beyond_the_range_of_their_product_say_so) {
  float data[64 * 16];
  for (size_t i = 0; i < sizeof data / sizeof *data; i++) data[i] = -60;
  fixture_npy("q.npy", "<f4", "1, 64, 16", data, sizeof data);
  const result_set *set = sweep("-q", 0,
                                "schema: 1\ngrid: {n: 64, heads: 1, d: 16}\nvariants: [full, linear]\n"
                                "datasets: [npy: {q: q.npy, k: q.npy, v: q.npy}]\nnulls: no\n" TIMING);
  expect_status(find_row(set, "variant=linear"), RUN_UNSUPPORTED);
}

/* A file of one matrix a head is of no other number of heads: what looks at one head alone executes all. */
Test(faults, a_graph_of_all_heads_is_no_failure) {
  char mask[3 * 8 * 8];
  for (size_t i = 0; i < sizeof mask; i++) mask[i] = i % 5 != 0;
  fixture_npy("m.npy", "|b1", "3, 8, 8", mask, sizeof mask);
  const result_set *set =
      sweep("-q", 0,
            "schema: 1\ngrid: {n: 8, heads: 3, d: 4}\nvariants: [\"graph:kind=file,file=m.npy\"]\n"
            "datasets: gaussian\nnulls: no\nmaps: 8\n" TIMING);
  expect_status(&set->rows[0], RUN_OK);
}

/* Sizes that the grid does not name are those of the file; what does not fit is known before any process
 * starts. */
Test(faults, sizes_that_a_file_knows_are_taken_from_it) {
  float data[2 * 4 * 24 * 6] = {0};
  for (size_t i = 0; i < sizeof data / sizeof *data; i++) data[i] = (float)(i * 7 % 13) / 6 - 1;
  fixture_npy("q.npy", "<f4", "2, 4, 24, 6", data, sizeof data);
  fixture_npy("k.npy", "<f4", "2, 2, 24, 6", data, sizeof data / 2);
  fixture_npy("v.npy", "<f4", "2, 2, 24, 3", data, sizeof data / 4);
  const result_set *set = sweep("", 0,
                                "schema: 1\ngrid: {n: [16, 32]}\nvariants: full\n"
                                "datasets: [npy: {q: q.npy, k: k.npy, v: v.npy}]\nnulls: no\n" TIMING);
  expect_says(result.err, ": 2 runs, 0 with a violated bound, 0 failed, 1 unsupported\n");
  const result_row *row = find_row(set, "n=16 ");
  cr_expect(row->status == RUN_OK && row->batch == 2 && row->heads == 4 && row->kv_heads == 2 &&
                row->d == 6 && row->d_v == 3,
            "%s", row->key);
  row = find_row(set, "n=32 ");
  cr_expect(row->status == RUN_UNSUPPORTED && strstr(row->message, "24 queries"), "%s", row->message);
  cr_expect_eq(run("run x.yaml -o y.h5 --set grid.batch=1 --dry-run"), 0, "%s", result.err);
  expect_says(result.out, "the file has batch=2, not 1: set grid.batch");
  cr_expect_eq(run("run x.yaml -o y.h5 --set grid.heads=1 --dry-run"), 0, "%s", result.err);
  expect_says(result.out, "the file has heads=4, not 1: set grid.heads");
  /* The reason of several settings is said once for each length. */
  cr_expect_eq(run("run x.yaml -o y.h5 --set grid.heads=1 --set nulls=yes --dry-run"), 0, "%s", result.err);
  cr_expect_eq(times_in(result.out, "the file has heads=4, not 1"), times_in(result.out, ": n = "), "%s",
               result.out);
  expect_says(result.out, ", null_zeros");
  cr_expect_eq(run("run x.yaml -o y.h5 --set grid.batch=1"), 3, "%s", result.err);
  expect_says(result.err, "2 runs unsupported: dataset npy: the file has batch=2");
  expect_says(result.err, "0 failed, 2 unsupported; no variant was measured\n");
}

/* A check whose own problem has other sizes than a term's file cannot judge, and nothing failed. */
Test(faults, checks_on_problems_that_a_file_does_not_fit) {
  char mask[64];
  for (size_t i = 0; i < sizeof mask; i++) mask[i] = i % 3 != 1;
  fixture_npy("m.npy", "|b1", "8, 8", mask, sizeof mask);
  const result_set *set = sweep("", 0,
                                "schema: 1\ngrid: {n: 8, heads: 2, d: 16}\nnulls: no\ndatasets: gaussian\n"
                                "variants: \"graph:kind=file,file=m.npy + lsh:rounds=2\"\n" TIMING);
  const result_row *row = find_row(set, "lsh");
  cr_expect(row->status == RUN_OK && row->verdict != VERDICT_ERROR, "%s", row->message);
  for (int i = 0; i < row->bounds_count; i++)
    if (strcmp(row->bounds[i].name, "LSH-1") == 0)
      cr_expect(row->bounds[i].verdict == VERDICT_UNCERTIFIABLE && strstr(row->bounds[i].message, "[8,8]"),
                "%s", row->bounds[i].message);
}

/* Masks of a file differ by head, and so do the rows that have no key. */
Test(faults, checks_of_a_head_look_at_its_own_rows) {
  char masks[4][8][8];
  for (int head = 0; head < 4; head++)
    for (int i = 0; i < 8; i++)
      for (int j = 0; j < 8; j++) masks[head][i][j] = i % 4 != head && (i + j + head) % 3 != 1;
  fixture_npy("m.npy", "|b1", "4, 8, 8", masks, sizeof masks);
  const result_set *set = sweep("", 0,
                                "schema: 1\ngrid: {n: 8, heads: 4, d: 4, data_seed: 0:7:1}\nnulls: no\n"
                                "datasets: gaussian\nvariants: \"graph:kind=file,file=m.npy\"\n" TIMING);
  cr_assert_eq(set->count, 8);
  for (size_t i = 0; i < set->count; i++)
    cr_expect_eq(set->rows[i].verdict, VERDICT_PASS, "%s: %s", set->rows[i].key, set->rows[i].message);
}

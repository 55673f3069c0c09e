/* before.c - journals and results files of the version before are still read: tests/fixtures/before.* were
 * written by it (its rows have no column data_seed), and stay as they are. */

#include "tests/support/results_fixture.h"

#define FIXTURES TEST_SOURCE_DIR "/tests/fixtures/"

static void shell(const char *format, const char *from, const char *to) {
  char command[512];
  snprintf(command, sizeof command, format, from, to);
  cr_assert_eq(system(command), 0, "%s", command);
}

#define BLOCK \
  "dataset=gaussian:std_q=1,std_k=1,std_v=1 data_seed=7 n=48 n_kv=48 d=8 d_v=4 heads=2 kv_heads=1 batch=1 "

/* In the order of the keys; errors to the last bit. */
static const struct {
  const char *variant;
  int64_t causal, dtype, seed;
  run_status status;
  check_verdict verdict;
  double error;
  int bounds;
} expected[] = {
    {"full", 0, ATTN_F32, 7, RUN_OK, VERDICT_PASS, 1.6899558094616132e-07, 7},
    {"linformer", 0, ATTN_F32, 3, RUN_OK, VERDICT_CONSISTENT, 6.259825388998227, 8},
    {"performer", 0, ATTN_F32, 3, RUN_OK, VERDICT_UNCERTIFIABLE, 0.760661444591491, 15},
    {"full", 0, ATTN_F64, 7, RUN_OK, VERDICT_PASS, 3.231759365802215e-16, 7},
    {"linformer", 1, ATTN_F32, 3, RUN_UNSUPPORTED, VERDICT_NOT_APPLICABLE, (double)NAN, 0},
    {"performer", 1, ATTN_F32, 3, RUN_OK, VERDICT_UNCERTIFIABLE, 0.6737881402255428, 15},
};
enum { ROWS = sizeof expected / sizeof *expected };

static void expect_rows(const result_set *set) {
  cr_assert(set->count == ROWS && json_array_size(set->sessions) == 1);
  for (size_t i = 0; i < ROWS; i++) {
    const result_row *row = &set->rows[i];
    cr_expect(strncmp(row->key, BLOCK, strlen(BLOCK)) == 0, "%s", row->key);
    cr_expect_str_eq(row->variant, expected[i].variant);
    cr_expect(row->data_seed == 7 && row->seed == expected[i].seed, "row %zu", i);
    cr_expect(row->n == 48 && row->n_kv == 48 && row->d == 8 && row->d_v == 4, "row %zu", i);
    cr_expect(row->heads == 2 && row->kv_heads == 1 && row->batch == 1 && row->threads == 1, "row %zu", i);
    cr_expect(row->causal == expected[i].causal && row->dtype == expected[i].dtype, "row %zu", i);
    cr_expect(row->block_q == 256 && row->block_k == 96 && row->cache == CACHE_WARM, "row %zu", i);
    cr_expect(row->status == expected[i].status && row->verdict == expected[i].verdict);
    cr_expect(same_number(row->err_rel_fro, expected[i].error), "row %zu: %.17g", i, row->err_rel_fro);
    cr_expect_eq(row->bounds_count, expected[i].bounds);
  }
  const result_bound *b = bound_named(&set->rows[2], "FAV-4b");
  cr_assert(b && b->verdict == VERDICT_UNCERTIFIABLE && *b->message);
  cr_expect_eq(param_named(&set->rows[2], "features"), 16);
  cr_expect_str_eq(text_named(&set->rows[2], "features"), "(number)");
  /* What has columns now is found from what the rows have: a model's verdict, texts, labels. */
  cr_expect_eq(set->rows[0].model_verdict, VERDICT_CONSISTENT);
  cr_expect_eq(set->rows[4].model_verdict, VERDICT_NOT_APPLICABLE);
  cr_expect_str_eq(text_named(&set->rows[1], "projection"), "gaussian");
  cr_expect_str_eq(text_named(&set->rows[1], "projection_file"), "");
  cr_expect_str_eq(set->rows[0].label, "full");
  cr_expect_str_eq(set->rows[1].label,
                   "linformer:k=8,projection=gaussian,projection_file=,share=kv,share_heads=yes");
}

Test(results_before, a_journal_is_read) {
  result_set set = load_results(FIXTURES "before.jsonl");
  expect_rows(&set);
}

/* The seed of the data is read from between the texts of the dataset and of the variant. */
Test(results_before, texts_of_a_key_that_look_like_an_axis) {
  const char *path = fixture_path("like.jsonl");
  shell("sed -e 's|dataset=gaussian:std_q=1,std_k=1,std_v=1 |dataset=npy:a data_seed=5 n=9 |' -e "
        "'s|\"dataset\":\"gaussian:std_q=1,std_k=1,std_v=1\"|\"dataset\":\"npy:a data_seed=5 n=9\"|' -e "
        "'s|projection_file=,|projection_file=b data_seed=9 n=3,|' '%s' >'%s'",
        FIXTURES "before.jsonl", path);
  result_set set = load_results(path);
  for (size_t i = 0; i < set.count; i++) {
    cr_expect_str_eq(set.rows[i].dataset, "npy:a data_seed=5 n=9");
    cr_expect_eq(set.rows[i].data_seed, 7, "%s", set.rows[i].key);
  }
}

Test(results_before, a_results_file_is_read_and_says_what_the_journal_says) {
  const char *path = fixture_path("before.h5");
  shell("gzip -dc '%s' >'%s'", FIXTURES "before.h5.gz", path);
  result_set set = read_results(path), lines = load_results(FIXTURES "before.jsonl");
  expect_rows(&set);
  cr_expect_eq(strlen(set.uuid), 36); /* of the text then, of checksums now */
  for (size_t i = 0; i < ROWS; i++) cr_expect_str_eq(rows_difference(&set.rows[i], &lines.rows[i]), "");
}

Test(results_before, a_sweep_goes_on_in_the_journal_and_the_whole_is_exported) {
  const char *path = fixture_path("on.jsonl"), *file = fixture_path("on.h5");
  journal *j = NULL;
  result_row row = kept_row(fixture_row(5));
  row.data_seed = 11;
  shell("cat '%s' >'%s'", FIXTURES "before.jsonl", path);
  cr_assert_eq(journal_open(path, &rows_of_sweep, "another build", NULL, &j), ATTN_OK, "%s",
               attn_last_error());
  cr_assert_eq(journal_append(j, &row), ATTN_OK);
  journal_close(j);
  cr_assert_eq(results_merge(file, &path, 1, NULL), ATTN_OK, "%s", attn_last_error());
  result_set set = read_results(file);
  cr_assert_eq(set.count, ROWS + 1);
  cr_expect(set.rows[0].data_seed == 7 && set.rows[ROWS].data_seed == 11 && set.rows[ROWS].session == 1);
  char *text = fixture_printed(results_export_csv, &set);
  cr_expect(strstr(text, ",data_seed,n,n_kv,d,") != NULL);
  cr_expect(strstr(text, ",7,48,48,8,4,2,1,1,0,f32,1,256,96,warm,0,0,7,") != NULL);
}

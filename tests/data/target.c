/* target.c - scores and masks by their texts. */
#include "tests/support/data_fixture.h"

TestSuite(data_target, .init = fixture_begin, .fini = fixture_end);

static void expect_text(attn_status (*parse)(const char *, char **), const char *text,
                        const char *canonical) {
  char *out = NULL;
  assert_ok(parse(text, &out));
  cr_expect_str_eq(out, canonical, "%s: %s", text, out);
  free(out);
}

Test(data_target, texts_have_one_form) {
  expect_text(data_score_parse, "none", "");
  expect_text(data_score_parse, "", "");
  expect_text(data_score_parse, "sink=0,alibi,softcap=30.0", "softcap=30,alibi,sink=0");
  expect_text(data_score_parse, "alibi=yes", "alibi");
  expect_text(data_score_parse, "leaky=0.20,bias=b.npy", "leaky=0.2,bias=b.npy");
  expect_text(data_mask_parse, "none", "");
  expect_text(data_mask_parse, "prefix:1Ki", "prefix:1024");
  expect_text(data_mask_parse, "block_causal:16", "block_causal:16");
  expect_text(data_mask_parse, "documents:0+30+64", "documents:0+30+64");
  expect_text(data_mask_parse, "documents:1024", "documents:1024");
}

static void expect_refused(const char *score, const char *mask, const char *expected) {
  attn_problem p = attn_problem_make(1, 4, 40, 8);
  data_target *t = NULL;
  cr_assert_neq(data_target_make(score, mask, &p, &t), ATTN_OK, "%s %s", score, mask);
  cr_expect_not_null(strstr(attn_last_error(), expected), "%s %s: %s", score, mask, attn_last_error());
  cr_expect_null(t);
}

Test(data_target, mistakes_are_named) {
  expect_refused("softcap=x", "", "softcap=x, expected a number");
  expect_refused("softcap=-1", "", "out of range");
  expect_refused("leaky=1", "", "in (0, 1)");
  expect_refused("softcap=3,leaky=0.1", "", "exclude each other");
  expect_refused("alibi, sink=0", "", "blanks");
  expect_refused("cap=3", "", "unknown parameter 'cap'");
  expect_refused("sink=inf", "", "sink=inf, expected a finite number or a file");
  expect_refused("bias=missing.npy", "", "missing.npy");
  expect_refused("", "prefix", "expected none, prefix:SIZE");
  expect_refused("", "prefix:-1", "out of range");
  expect_refused("", "block_causal:0", "out of range");
  expect_refused("", "documents:5+7", "beginnings from 0 on");
  expect_refused("", "documents:0+40", "begins at 40, and there are 40 keys");
  expect_refused("", "tree:3", "mask 'tree:3'");
}

static void put(const char *name, int rank, const int64_t *shape, double value) {
  data_array a;
  assert_ok(data_array_make(ATTN_F64, rank, shape, &a));
  for (int64_t i = 0; i < data_array_count(&a); i++) ((double *)a.at)[i] = value + (double)i;
  assert_ok(data_npy_write(name, &a));
  data_array_free(&a);
}

Test(data_target, files_must_fit_the_problem) {
  const int64_t shape[] = {2, 4, 30, 40};
  attn_problem p = attn_problem_make(2, 4, 40, 8);
  data_target *t = NULL;
  p.n_q = 30;
  cr_assert_eq(chdir(fixture_directory), 0);
  put("whole.npy", 4, shape, 0);
  put("plain.npy", 2, shape + 2, 0);
  put("heads.npy", 1, shape + 1, 0.5);
  put("short.npy", 1, shape, 0);
  put("nan.npy", 2, (int64_t[]){40, 40}, (double)NAN);
  put("inf.npy", 2, (int64_t[]){40, 40}, (double)INFINITY);
  assert_ok(data_target_make("bias=whole.npy,sink=heads.npy", "documents:16", &p, &t));
  cr_expect(p.score.dense.head == 1200 && p.score.dense.batch == 4800 && p.score.dense.row == 40);
  cr_expect_float_eq(p.score.sink[3], 3.5, 0);
  cr_expect(p.mask.count == 3 && p.mask.offsets[2] == 32 && p.mask.offsets[3] == 40);
  data_target_free(t);
  assert_ok(data_target_make("bias=plain.npy", "", &p, &t));
  cr_expect(p.score.dense.head == 0 && p.score.dense.batch == 0);
  data_target_free(t);
  expect_refused("bias=plain.npy", "", "plain.npy: shape [1,1,30,40], expected [n_q,n_kv] = [40,40]");
  expect_refused("bias=nan.npy", "", "nan.npy: [0,0,0,0] is nan, expected finite or -inf");
  expect_refused("bias=inf.npy", "", "inf.npy: [0,0,0,0] is inf, expected finite or -inf");
  expect_refused("sink=short.npy", "", "short.npy: expected a number for each of the 4 heads");
}

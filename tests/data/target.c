/* target.c - scores and masks by their texts. */
#include "tests/support/data_fixture.h"

#include "attn_variant.h"

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
  expect_text(data_score_parse, "t5=0.5,leaky=0.30000000000000004", "leaky=0.30000000000000004,t5=0.5");
  expect_text(data_score_parse, "t5=0.5,softcap=30", "softcap=30,t5=0.5");
  expect_text(data_score_parse, "t5=table.npy", "t5=table.npy");
  expect_text(data_mask_parse, "none", "");
  expect_text(data_mask_parse, "m.npy", "m.npy");
  expect_text(data_mask_parse, "../graphs/csr", "../graphs/csr");
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
  expect_refused("softcap=x", "", "score: parameter softcap=x, expected a number");
  expect_refused("softcap=-1", "", "out of range");
  expect_refused("leaky=1", "", "in (0, 1)");
  expect_refused("softcap=3,leaky=0.1", "", "give softcap or leaky, not both");
  expect_refused("alibi, sink=0", "", "blanks");
  expect_refused("cap=3", "", "unknown parameter 'cap'");
  expect_refused("sink=inf", "", "sink=inf, expected a finite number or a file");
  expect_refused("bias=missing.npy", "", "missing.npy");
  expect_refused("", "prefix", "expected none, prefix:SIZE");
  expect_refused("", "prefix:-1", "out of range");
  expect_refused("", "block_causal:0", "out of range");
  expect_refused("", "documents:5+7", "beginnings from 0 on");
  expect_refused("", "documents:0+40",
                 "mask 'documents:0+40': a document begins at 40, and there are 40 keys");
  expect_refused("", "tree:3", "mask 'tree:3'");
  expect_refused("", "mask", "expected none, prefix:SIZE");
  expect_refused("", "missing.npy", "missing.npy");
  expect_refused("t5=nan", "", "t5=nan, expected a finite number or a file");
  expect_refused("t5=1,alibi", "", "give alibi or t5, not both");
}

static void release_target(void *t) { data_target_free(t); }

/* Puts what the texts say into the problem; kept. */
static void aim(const char *score, const char *mask, attn_problem *p) {
  data_target *t = NULL;
  assert_ok(data_target_make(score, mask, p, &t));
  keep_object(t, release_target);
}

/* T5's buckets: of 32, those of keys behind the query from 0 on, of keys before it from 16 on; all of keys
 * behind it where no other is seen. */
Test(data_target, t5_has_a_number_for_each_bucket) {
  const int64_t shape[] = {32, 2}, away[] = {0, 1, 7, 8, 16, 127}, bucket[] = {0, 1, 7, 8, 10, 15};
  const data_array table = array_make(ATTN_F64, 2, shape);
  data_target *t = NULL;
  cr_assert_eq(chdir(fixture_directory), 0);
  for (int64_t i = 0; i < 64; i++) ((double *)table.at)[i] = (double)(i / 2) + 100 * (double)(i % 2);
  assert_ok(data_npy_write("t5.npy", &table));
  attn_problem p = attn_problem_make(1, 2, 300, 8);
  aim("t5=t5.npy", "", &p);
  const attn_score *s = &p.score;
  cr_assert(s->relative_heads == 2 && s->span == 599 && s->zero == 299);
  for (int i = 0; i < 6; i++) {
    cr_expect_float_eq(s->relative[s->zero + away[i]], (double)bucket[i], 0, "%d behind", (int)away[i]);
    cr_expect_float_eq(s->relative[s->span + s->zero + away[i]], 100.0 + (double)bucket[i], 0);
    if (i)
      cr_expect_float_eq(s->relative[s->zero - away[i]], 16.0 + (double)bucket[i], 0, "%d before",
                         (int)away[i]);
  }
  cr_expect_float_eq(s->relative[s->zero + 299], 15, 0);
  p = attn_problem_make(1, 2, 300, 8);
  p.causal = true;
  aim("t5=t5.npy", "", &p);
  cr_expect_float_eq(p.score.relative[p.score.zero + 15], 15, 0);
  cr_expect_float_eq(p.score.relative[p.score.zero + 17], 16, 0);
  cr_expect_float_eq(p.score.relative[p.score.zero + 128], 31, 0);
  p = attn_problem_make(1, 2, 300, 8);
  aim("t5=0.5", "", &p);
  cr_assert_eq(p.score.relative_heads, 1);
  cr_expect_float_eq(p.score.relative[p.score.zero + 16], -5, 0);
  cr_expect_float_eq(p.score.relative[p.score.zero - 16], -5, 0);
  p = attn_problem_make(1, 3, 300, 8);
  assert_refused(data_target_make("t5=t5.npy", "", &p, &t), ATTN_EINVAL,
                 "t5.npy: [32,2], expected a number for each of 32 buckets and each head, [32,3] or [32,1]");
}

static bool mask_sees(const attn_problem *p, int64_t head, int64_t i, int64_t j) {
  const attn_pattern *graph = p->mask.pattern;
  attn_run runs[8];
  cr_assert_leq(graph->max_runs, 8);
  const int64_t position = i + p->n_kv - p->n_q, count = graph->row(graph->state, head, position, runs);
  bool found = false;
  for (int64_t r = 0; r < count; r++) found |= runs[r].first <= j && j < runs[r].first + runs[r].count;
  cr_expect_eq(graph->sees(graph->state, head, position, j), found);
  return found;
}

/* A mask and a graph say the same, of queries or of positions; each head may have its own. */
Test(data_target, masks_from_files) {
  static const uint8_t bytes[2][3][4] = {{{1, 0, 1, 0}, {0, 0, 0, 0}, {1, 1, 1, 1}},
                                         {{0, 1, 0, 1}, {1, 1, 0, 0}, {0, 0, 0, 1}}};
  int64_t wide[12], positions[16] = {0};
  attn_problem p;
  cr_assert_eq(chdir(fixture_directory), 0);
  for (int i = 0; i < 12; i++) wide[i] = positions[4 + i] = (&bytes[0][0][0])[i];
  fixture_npy("both.npy", "|b1", "2, 3, 4", bytes, sizeof bytes);
  fixture_npy("wide.npy", "<i8", "3, 4", wide, sizeof wide);
  fixture_npy("square.npy", "<i8", "4, 4", positions, sizeof positions);
  static const char *const names[] = {"both.npy", "wide.npy", "square.npy", "csr.h5"};
  const attn_graph_request want = {.heads = 2, .rows = 3, .columns = 4};
  attn_graph g;
  assert_ok(data_graph_read("wide.npy", &want, &g));
  assert_ok(data_graph_write("csr.h5", &g));
  attn_graph_free(&g);
  for (int f = 0; f < 4; f++) {
    p = attn_problem_make(1, 2, 4, 8);
    p.n_q = 3;
    aim("", names[f], &p);
    cr_assert_eq(p.mask.kind, ATTN_MASK_PATTERN);
    cr_expect_eq(p.mask.pattern->per_head, f == 0);
    for (int64_t at = 0; at < 24; at++)
      cr_expect_eq(mask_sees(&p, at / 12, at / 4 % 3, at % 4),
                   bytes[f ? 0 : at / 12][at / 4 % 3][at % 4] != 0, "%s: %d", names[f], (int)at);
  }
  /* Of five queries the first has no position. */
  p = attn_problem_make(1, 2, 4, 8);
  p.n_q = 5;
  aim("", "square.npy", &p);
  cr_expect(!mask_sees(&p, 0, 0, 0) && !mask_sees(&p, 0, 1, 0) && mask_sees(&p, 0, 2, 0));
  expect_refused("", "square.npy", "square.npy: a mask [4,4], expected [40,40]");
  expect_refused("", "csr.h5", "csr.h5: indptr has 4 elements, expected 41");
}

static void put(const char *name, int rank, const int64_t *shape, double value) {
  const data_array a = array_make(ATTN_F64, rank, shape);
  for (int64_t i = 0; i < data_array_count(&a); i++) ((double *)a.at)[i] = value + (double)i;
  assert_ok(data_npy_write(name, &a));
}

Test(data_target, files_must_fit_the_problem) {
  const int64_t shape[] = {2, 4, 30, 40};
  attn_problem p = attn_problem_make(2, 4, 40, 8);
  p.n_q = 30;
  cr_assert_eq(chdir(fixture_directory), 0);
  put("whole.npy", 4, shape, 0);
  put("plain.npy", 2, shape + 2, 0);
  put("heads.npy", 1, shape + 1, 0.5);
  put("short.npy", 1, shape, 0);
  put("nan.npy", 2, (int64_t[]){40, 40}, (double)NAN);
  put("inf.npy", 2, (int64_t[]){40, 40}, (double)INFINITY);
  aim("bias=whole.npy,sink=heads.npy", "documents:16", &p);
  cr_expect(p.score.dense.head == 1200 && p.score.dense.batch == 4800 && p.score.dense.row == 40);
  cr_expect_float_eq(p.score.sink[3], 3.5, 0);
  cr_expect(p.mask.count == 3 && p.mask.offsets[2] == 32 && p.mask.offsets[3] == 40);
  aim("bias=plain.npy", "documents:8", &p);
  cr_expect(p.mask.count == 5 && p.mask.offsets[4] == 32 && p.mask.offsets[5] == 40);
  cr_expect(p.score.dense.head == 0 && p.score.dense.batch == 0);
  put("batch.npy", 4, (int64_t[]){2, 1, 30, 40}, 0);
  aim("bias=batch.npy", "", &p);
  cr_expect(p.score.dense.head == 0 && p.score.dense.batch == 1200);
  expect_refused("bias=plain.npy", "", "plain.npy: shape [1,1,30,40], expected [n_q,n_kv] = [40,40]");
  expect_refused("bias=nan.npy", "", "nan.npy: [0,0,0,0] is nan, expected finite or -inf");
  expect_refused("bias=inf.npy", "", "inf.npy: [0,0,0,0] is inf, expected finite or -inf");
  expect_refused("sink=short.npy", "", "short.npy: expected a number for each of the 4 heads");
}

/* eval.c - attnlab eval as a user runs it: the table, the file, variants that fail. */
#include "experiments/results/row.h"
#include "tests/support/command.h"
#include "tests/support/quality_sets.h"

TestSuite(cli_eval, .init = command_enter, .fini = command_leave, .timeout = 300);

#define MODEL TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR "/tests/fixtures/held.txt"
#define SMALL "eval " MODEL " -n 64 -w 8 --task text:skip=8 "
#define FAULT " --plugin " TEST_BINARY_DIR "/tests/fault.so"

Test(cli_eval, a_table_and_a_file) {
  command_run_good(SMALL "-v full -v streaming:sink=0,window=4 -o x.h5");
  expect_says(result.out, "8 windows of 64");
  expect_says(result.out, "exact: ");
  expect_says(result.out, "streaming:sink=0,window=4");
  expect_says(result.out, "no_worse");
  quality_set set = quality_set_of("x.h5");
  cr_assert_eq(set.count, 3, "full is asked for and a baseline; a window as dense as the window is itself");
  const quality_record *mean = quality_run_of(&set, "null_mean_v");
  cr_expect(mean->status == RUN_OK && mean->kl > 0.1 && mean->density > 0.99);
  const quality_record *r = quality_run_of(&set, "streaming");
  cr_expect(r->nll_unigram > 0 && r->nll_unigram < r->nll_uniform && fabs(r->nll_uniform - log(256)) < 1e-12);
  cr_expect(r->status == RUN_OK && r->kl > 0 && r->kl_lo < r->kl && r->density < 0.2 &&
            r->attention_time > 0);
  cr_expect(strlen(r->model_sha256) == 64 && strlen(r->data_sha256) == 64);
}

/* A layer at a time, then all at once at three mixes: the sum of the parts over the whole, and a JSON line a
 * run. */
Test(cli_eval, layers_add_up_and_small_changes_are_quadratic) {
  command_run_good(SMALL "-v streaming:sink=0,window=16 --layers each -o x.h5");
  expect_says(result.out, "KL/error^2");
  command_run_good(SMALL "-v streaming:sink=0,window=16 --mix 0.0625,0.125,1 --kl 0.02 -o x.h5 --json");
  expect_says(result.out, "\"mix\":0.0625,");
  expect_says(result.out, "\"additivity\":");
  quality_set set = quality_set_of("x.h5");
  double kl[2] = {0}, sum = 0;
  const quality_record *whole = NULL;
  for (size_t i = 0; i < set.count; i++) {
    const quality_record *r = &set.records[i];
    if (strcmp(r->variant, "streaming") != 0) continue;
    if (strcmp(r->layers, "all") != 0) sum += r->kl;
    if (r->mix == 0.0625) kl[0] = r->kl;
    if (r->mix == 0.125) kl[1] = r->kl;
    if (r->mix == 1 && strcmp(r->layers, "all") == 0) whole = r;
    cr_expect_float_eq(r->sensitivity, r->kl / (r->attention_error * r->attention_error),
                       1e-12 * r->sensitivity);
  }
  cr_assert(whole);
  cr_expect_float_eq(kl[1] / kl[0], 4, 0.2, "%g", kl[1] / kl[0]);
  cr_expect_float_eq(whole->additivity, sum / whole->kl, 1e-9);
  cr_expect_float_eq(whole->error_allowed, sqrt(0.02 / whole->sensitivity), 1e-9);
}

/* The prompt of a policy ends where the question does, or begins. */
Test(cli_eval, a_policy_sees_the_question_or_not) {
  command_run_good("eval " MODEL
                   " -n 160 -w 1 --task recall:digits=2 --task recall:digits=2,aware=no --cache "
                   "evict:score=snapkv,budget=24,recent=4 --cache store -o x.h5");
  quality_set set = quality_set_of("x.h5");
  double prompt[2] = {0}, kl[2] = {0};
  for (size_t i = 0; i < set.count; i++) {
    attn_spec *spec;
    const quality_record *r = &set.records[i];
    if (strcmp(r->variant, "evict") != 0) continue;
    const bool aware = strstr(r->task, "aware=yes");
    cr_assert(!attn_spec_parse(&spec, r->spec), "%s", attn_last_error());
    prompt[aware] = attn_spec_number(spec, "prompt");
    kl[aware] = r->kl;
    attn_spec_destroy(spec);
  }
  const double question = prompt[1] + 1 - prompt[0],
               fixed = (double)strlen("\nQuestion: what is the number of ? Answer: The number of  is");
  cr_expect_eq(prompt[1], 160 - 1 - (double)strlen(" 12"));
  cr_expect(question >= fixed + 2 * 4 && question <= fixed + 2 * 7, "words have 4 to 7 letters: %g",
            question);
  cr_expect(kl[0] != kl[1]);
}

/* Shards together are the whole, and Holm's words are those of all runs. */
Test(cli_eval, shards_are_merged) {
  command_run_good(SMALL
                   "-v topk:k=2 -v topk:k=4 -v streaming:sink=0,window=4 --task copy:length=8 -o whole.h5");
  command_run_good(
      SMALL "-v topk:k=2 -v topk:k=4 -v streaming:sink=0,window=4 --task copy:length=8 --shard 0/2 -o x.h5");
  command_run_good(
      SMALL "-v topk:k=2 -v topk:k=4 -v streaming:sink=0,window=4 --task copy:length=8 --shard 1/2 -o x.h5");
  command_run_good("merge -o x.h5 x.0-of-2.h5 x.1-of-2.h5");
  quality_set all = quality_set_of("x.h5"), whole = quality_set_of("whole.h5"),
              part = quality_set_of("x.0-of-2.h5");
  cr_expect(part.count < whole.count);
  for (size_t i = 0; i < whole.count; i++) {
    const quality_record *r = quality_set_find(&all, whole.records[i].key);
    cr_assert(r, "%s", whole.records[i].key);
    cr_expect(r->kl == whole.records[i].kl && r->word_holm == whole.records[i].word_holm, "%s", r->key);
  }
  cr_expect_eq(all.count, whole.count);
  command_write_text("y.h5", "y");
  command_run("merge -o z.h5 x.0-of-2.h5 y.h5", &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, "y.h5"), "%s", result.err);
}

Test(cli_eval, a_configuration_asks_every_combination) {
  command_write_text("x.yaml",
                     "schema: 1\neval:\n  model: " TEST_SOURCE_DIR "/data/bytelm\n  text: " TEST_SOURCE_DIR
                     "/tests/fixtures/held.txt\n  n: 48\n  windows: 8\n  task: \"text:skip=8\"\n"
                     "  layers: [all, '1']\n  phase: [both, \"decode:8\"]\n  mix: [0.5, 1]\n"
                     "variants:\n  - topk: {k: [2, 4]}\n");
  command_run_good("run x.yaml -o x.h5");
  quality_set set = quality_set_of("x.h5");
  int asked = 0;
  for (size_t i = 0; i < set.count; i++) asked += strcmp(set.records[i].variant, "topk") == 0;
  cr_expect_eq(asked, 2 * 2 * 2 * 2);
}

/* What is in the file is not computed again, and what is asked besides is added. */
Test(cli_eval, runs_are_kept) {
  command_run_good(SMALL "-v topk:k=3 -o x.h5");
  quality_set set = quality_set_of("x.h5");
  const double time = quality_run_of(&set, "topk")->attention_time;
  command_run_good(SMALL "-v topk:k=3 -v tiled --layers each -o x.h5");
  command_run_good(SMALL "-v topk:k=3 -o x.h5");
  set = quality_set_of("x.h5");
  cr_assert_eq(set.count, 4 + 5 * 4, "topk, tiled, full, null_mean_v and a window; tiled only of each layer");
  cr_expect_eq(quality_run_of(&set, "topk")->attention_time, time);
}

Test(cli_eval, a_variant_that_fails_is_a_row) {
  command_run(SMALL "-v topk:k=3 -v fault:mode=crash -v linformer:k=4 -v fault:mode=fail -o x.h5" FAULT,
              &result);
  cr_expect_eq(result.exit_code, 3);
  quality_set set = quality_set_of("x.h5");
  int crashed = 0, failed = 0;
  for (size_t i = 0; i < set.count; i++) {
    crashed += set.records[i].status == RUN_CRASHED;
    failed += set.records[i].status == RUN_FAILED && strstr(set.records[i].message, "fails as told");
  }
  cr_expect(crashed == 1 && failed == 1);
  cr_expect(quality_run_of(&set, "topk")->status == RUN_OK && quality_run_of(&set, "topk")->kl > 0);
  cr_expect(quality_run_of(&set, "linformer")->status == RUN_UNSUPPORTED &&
            strstr(quality_run_of(&set, "linformer")->message, "causal"));
}

/* A file of edges is for one length; checks on shorter windows do not apply. */
Test(cli_eval, a_variant_that_fits_these_windows_alone_is_evaluated) {
  enum { N = 144 };
  unsigned char *edges = malloc(N * N);
  for (int i = 0; i < N * N; i++) edges[i] = i % 7 < 3 || i % (N + 1) == 0;
  command_write_npy("g.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (144, 144), }", edges, N * N);
  free(edges);
  for (int turn = 0; turn < 2; turn++) {
    command_run_good(text_of("eval " MODEL " -n 144 -w 2 --task text:skip=8 -o x.h5 -v %s -v %s",
                             turn ? "topk:k=4" : "graph:kind=file,file=g.npy",
                             turn ? "graph:kind=file,file=g.npy" : "topk:k=4"));
    quality_set set = quality_set_of("x.h5");
    const quality_record *graph = quality_run_of(&set, "graph"), *other = quality_run_of(&set, "topk");
    cr_expect(graph->status == RUN_OK && graph->kl > 0 && graph->verdict == VERDICT_PASS);
    static const int shorter[] = {EV_6, EV_7, EV_8};
    for (int i = 0; i < 3; i++) {
      const result_bound *b = &graph->checks[shorter[i]];
      cr_expect(b->verdict == VERDICT_NOT_APPLICABLE && strstr(b->message, "g.npy"), "%s", b->message);
      cr_expect_eq(other->checks[shorter[i]].verdict, VERDICT_PASS);
    }
    cr_expect_eq((turn ? other : graph)->checks[EV_10].verdict, turn ? VERDICT_PASS : VERDICT_NOT_APPLICABLE);
    cr_assert(remove("x.h5") == 0 && remove("x.jsonl") == 0);
  }
}

Test(cli_eval, time_has_a_limit) {
  command_run(SMALL "-v fault:mode=hang -v tiled -o x.h5 --limit 15" FAULT, &result);
  cr_expect_eq(result.exit_code, 3);
  quality_set set = quality_set_of("x.h5");
  cr_expect(quality_run_of(&set, "fault")->status == RUN_TIMEOUT &&
            quality_run_of(&set, "tiled")->status == RUN_OK);
}

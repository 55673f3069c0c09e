/* eval_identity.c - what attnlab eval takes from its file: runs of the same model, tokens, variants,
 * plug-ins, files and program, and no others; and what becomes of runs when it is killed, or when files are
 * merged. */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/data/gguf_files.h"
#include "tests/data/tokens_fixture.h"
#include "tests/support/command_json.h"
#include "tests/support/llama_models.h"
#include "tests/support/quality_sets.h"
#include "tests/support/results_fixture.h"

enum { TEXT = 1200 };

/* A model of 11 tokens, its tokenizer, and a text. */
static void write_tokenizer(int a, int b) {
  tokens_write(json_pack("{s:o, s:{s:{s:i, s:i, s:i, s:i}, s:[s]}, s:[{s:i, s:s}]}", "pre_tokenizer",
                         json_loads(GPT2_STEPS, 0, NULL), "model", "vocab", "a", a, "b", b, "\xc4\xa0", 2,
                         "ab", 3, "merges", "a b", "added_tokens", "id", 4, "content", "<s>"));
}

static reference_model small_model(void) {
  reference_model m = model_random(0);
  m.context = 64;
  return m;
}

static void write_config(double theta, int bos) {
  reference_model m = small_model();
  m.theta = theta;
  json_t *config = model_config(&m);
  json_object_set_new(config, "bos_token_id", json_integer(bos));
  model_write_config(config);
  reference_free(&m);
}

static void begin(void) {
  char text[TEXT + 1];
  fixture_begin();
  command_enter();
  reference_model m = small_model();
  model_write(&m, STORE_F32, 1);
  reference_free(&m);
  write_config(10000, 4);
  write_tokenizer(0, 1);
  for (int i = 0; i < TEXT; i++) text[i] = "abba ab b"[(i * i + i / 7) % 9];
  text[TEXT] = '\0';
  command_write_text("text", text);
}
static void end(void) {
  command_leave();
  fixture_end();
}
TestSuite(cli_eval_identity, .init = begin, .fini = end, .timeout = 300);

/* Evaluates the model into `file`. */
static void evaluate(const char *file, const char *rest) {
  command_run_good(
      text_of("eval %s --text text -n 32 -w 8 --task text:skip=4 -o %s %s", fixture_directory, file, rest));
}

static void forget_journal(const char *file) {
  const char *path = text_of("%.*s.jsonl", (int)strlen(file) - 3, file);
  cr_assert_eq(remove(path), 0, "%s", path);
}

/* Of the last run of a spec. */
static double kl_of(const char *file, const char *spec) {
  quality_set set = quality_set_of(file);
  double kl = -1;
  for (size_t i = 0; i < set.count; i++)
    if (strncmp(set.records[i].spec, spec, strlen(spec)) == 0) kl = set.records[i].kl;
  cr_assert(kl >= 0, "no run of %s", spec);
  return kl;
}

static size_t runs_of(const char *file) { return quality_set_of(file).count; }

#define SETTING "streaming:sink=0,window=3"

/* Of a file that has runs of what was before, the numbers are those of a new one. */
static void expect_fresh(const char *what) {
  evaluate("known.h5", "-v " SETTING);
  evaluate("fresh.h5", "-v " SETTING);
  const double known = kl_of("known.h5", SETTING), fresh = kl_of("fresh.h5", SETTING);
  cr_expect(known == fresh, "%s: %.17g, and %.17g of a new file", what, known, fresh);
  cr_assert(remove("fresh.h5") == 0 && remove("fresh.jsonl") == 0);
}

Test(cli_eval_identity, a_model_is_more_than_its_weights) {
  evaluate("known.h5", "-v " SETTING);
  const double before = kl_of("known.h5", SETTING);
  write_config(50, 4);
  expect_fresh("rope_theta");
  cr_expect(kl_of("known.h5", SETTING) != before);
  command_run_good("report known.h5 -o x.html");
  cr_expect(strstr(fixture_text("x.html"), ", config "), "the page does not tell models of one name apart");
  write_tokenizer(1, 0);
  expect_fresh("the tokenizer's ids");
  write_config(50, 5);
  expect_fresh("the first token");
  const size_t count = runs_of("known.h5");
  expect_fresh("nothing");
  cr_expect_eq(runs_of("known.h5"), count);
  cr_expect_str_eq(result.err, "");
}

static void digest_gguf(double theta, char hex[65]) {
  data_llama *model;
  reference_model m = small_model();
  m.theta = theta;
  assert_ok(data_llama_open(gguf_file_write(gguf_model(&m, AS_F32), "m.gguf"), &model));
  data_llama_config_sha256(model, hex);
  data_llama_close(model);
  reference_free(&m);
}

Test(cli_eval_identity, keys_of_a_gguf_file_are_the_model_s) {
  char first[65], same[65], other[65];
  digest_gguf(10000, first);
  digest_gguf(10000, same);
  digest_gguf(50, other);
  cr_expect_str_eq(first, same);
  cr_expect_str_neq(first, other);
}

static void write_weights(double value) {
  double weights[64];
  reference_model m = small_model();
  cr_assert(m.d * m.d <= 64);
  for (int i = 0; i < 64; i++) weights[i] = value * ((i * 7) % 5 - 2);
  const char *header =
      text_of("{'descr': '<f8', 'fortran_order': False, 'shape': (%d, %d), }", (int)m.d, (int)m.d);
  command_write_npy("w.npy", header, weights, (size_t)(m.d * m.d) * sizeof *weights);
  reference_free(&m);
}

Test(cli_eval_identity, a_file_that_a_spec_names_is_read_again_when_it_changes) {
  static const char *const specs[] = {"linear:weights=w.npy", SETTING "@0;linear:weights=w.npy@1"},
                           *const begins[] = {"linear:", SETTING "@0;linear:"};
  for (size_t i = 0; i < 2; i++) {
    const char *rest = text_of("-v %s --keep-stale", specs[i]);
    write_weights(0.25);
    evaluate("known.h5", rest);
    evaluate("known.h5", rest);
    cr_expect_str_eq(result.err, "");
    write_weights(1);
    evaluate("known.h5", rest);
    expect_says(result.err, "known.h5: 1 run repeated: ");
    evaluate("fresh.h5", rest);
    cr_expect_eq(kl_of("known.h5", begins[i]), kl_of("fresh.h5", begins[i]), "%s", specs[i]);
    remove("known.h5");
    remove("fresh.h5");
    forget_journal("known.h5");
    forget_journal("fresh.h5");
  }
}

static double time_of(const char *file, const char *variant) {
  quality_set set = quality_set_of(file);
  double time = -1;
  for (size_t i = 0; i < set.count; i++)
    if (strcmp(set.records[i].variant, variant) == 0) time = set.records[i].attention_time;
  return time;
}

Test(cli_eval_identity, a_plug_in_that_changed_is_run_again) {
  static const char command[] = "-v fault --plugin ./fault.so";
  command_replace(TEST_BINARY_DIR "/tests/fault.so", "fault.so");
  evaluate("x.h5", command);
  const double first = time_of("x.h5", "fault"), full = time_of("x.h5", "full");
  command_replace(TEST_BINARY_DIR "/tests/fault.so", "fault.so"); /* another file of the same content */
  evaluate("x.h5", command);
  cr_expect(time_of("x.h5", "fault") == first && !*result.err, "%s", result.err);
  FILE *plugin = fopen("fault.so", "ab");
  cr_assert(plugin && fputs("changed", plugin) >= 0 && fclose(plugin) == 0);
  evaluate("x.h5", "-v fault --plugin ./fault.so --keep-stale");
  cr_expect(time_of("x.h5", "fault") == first && !*result.err, "%s", result.err);
  evaluate("x.h5", command);
  cr_expect(time_of("x.h5", "fault") != first && time_of("x.h5", "full") == full);
  expect_says(result.err, "x.h5: 1 run repeated: by another build or plug-in ");
  cr_expect_eq(runs_of("x.h5"), 3);
}

/* As another build, or a program that knew no identity, would have written it, neither with a journal. */
static void age(const char *file, bool old) {
  quality_set set = quality_set_of(file);
  for (size_t i = 0; i < set.count; i++) {
    quality_record *r = &set.records[i];
    strcpy(r->build, old ? "" : "another");
    r->kl = 77;
    if (!old) continue;
    *strstr(r->key, " isa=") = '\0';
    r->config_sha256[0] = r->tokens_sha256[0] = r->isa[0] = '\0';
  }
  cr_assert(!quality_write(file, &set), "%s", attn_last_error());
  forget_journal(file);
}

Test(cli_eval_identity, other_builds_and_older_files_are_run_again_unless_kept) {
  for (int old = 0; old < 2; old++) {
    evaluate("x.h5", "-v " SETTING);
    const double kl = kl_of("x.h5", SETTING);
    const size_t count = runs_of("x.h5");
    age("x.h5", old);
    evaluate("x.h5", "--keep-stale -v " SETTING);
    cr_expect(kl_of("x.h5", SETTING) == 77 && runs_of("x.h5") == count && !*result.err, "%s", result.err);
    evaluate("x.h5", "-v " SETTING);
    cr_expect(kl_of("x.h5", SETTING) == kl && runs_of("x.h5") == count, "%g", kl_of("x.h5", SETTING));
    expect_says(result.err, " repeated: ");
    remove("x.h5");
    forget_journal("x.h5");
  }
}

/* What is asked of the same numbers is answered from them. */
Test(cli_eval_identity, a_margin_and_a_budget_are_those_that_are_asked_for) {
  evaluate("x.h5", "--margin 1e-9 --kl 0.04 -v " SETTING);
  const double time = time_of("x.h5", "streaming");
  quality_set set = quality_set_of("x.h5");
  const double allowed = set.records[0].error_allowed;
  cr_expect_neq(set.records[0].word, QUALITY_NO_WORSE);
  evaluate("x.h5", "--margin 100 -v " SETTING);
  set = quality_set_of("x.h5");
  cr_expect(set.records[0].margin == 100 && set.records[0].word == QUALITY_NO_WORSE &&
            set.records[0].word_holm == QUALITY_NO_WORSE);
  cr_expect_float_eq(set.records[0].error_allowed, allowed / 2, 1e-12 * allowed);
  cr_expect_eq(time_of("x.h5", "streaming"), time);
}

/* -- merged -- */

Test(cli_eval_identity, files_that_disagree_are_not_merged) {
  evaluate("a.h5", "-v " SETTING);
  evaluate("b.h5", "--threads 2 -v " SETTING); /* the same numbers, in another time */
  command_run_good("merge -o c.h5 a.h5 b.h5");
  cr_expect_eq(runs_of("c.h5"), runs_of("a.h5"));
  age("b.h5", false);
  for (int turn = 0; turn < 2; turn++) {
    command_run(turn ? "merge -o d.h5 b.h5 a.h5" : "merge -o d.h5 a.h5 b.h5", &result);
    cr_expect(result.exit_code == 2 && command_diagnostics(&result) == 1, "%s", result.err);
    expect_says(result.err, "a.h5");
    expect_says(result.err, "b.h5");
    expect_says(result.err, "kl is ");
    expect_says(result.err, "77");
    expect_says(result.err, "by another build");
    expect_says(result.err, " variant=");
    cr_expect(access("d.h5", F_OK) != 0);
  }
  evaluate("e.h5", "-v " SETTING);
  age("e.h5", true);
  command_run("merge -o d.h5 a.h5 e.h5", &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, "kl is "), "%s", result.err);
}

/* Journals of both kinds make one file, which check and report show both of. */
Test(cli_eval_identity, sweeps_and_evaluations_are_merged_into_one_file) {
  command_write_text("s.yaml",
                     "schema: 1\ngrid: {n: 8, heads: 1, d: 4}\nvariants: [full]\ndatasets: gaussian\n"
                     "threads: 1\nnulls: no\ntiming: {min_time: 0, max_time: 0, warmup: 0}\n");
  command_run_good("run s.yaml -o s.h5");
  evaluate("e.h5", "-v " SETTING);
  command_run_good("merge -o both.h5 e.jsonl s.jsonl");
  cr_expect_eq(read_results("both.h5").count, 1);
  cr_expect_eq(runs_of("both.h5"), runs_of("e.h5"));
  command_run_good("check both.h5");
  expect_says(result.out, "full");
  expect_says(result.out, SETTING);
  expect_says(result.out, "3 runs of a model, 0 with a violated bound, 0 failed");
  command_run_good("check e.h5 --bounds -m");
  expect_says(result.out, "| EV-1 ");
  json_t *json = ask("check both.h5 --json");
  cr_expect_eq(json_integer_value(json_object_get(json, "runs")), 1);
  cr_expect_eq(json_integer_value(json_object_get(json_object_get(json, "evaluation"), "runs")), 3);
  command_run_good("report both.h5 e.h5 -o page.html");
  expect_says(result.out, "page.models.html");
  cr_expect(strstr(fixture_text("page.models.html"), SETTING));
  cr_assert_eq(remove("page.models.html"), 0);
  command_run("report both.h5 e.h5 --times none.csv -o page.html", &result);
  cr_expect(result.exit_code == 74 && access("page.models.html", F_OK), "%d: a page after an error",
            result.exit_code);
  command_run_good("report e.h5 both.h5 -o page.html"); /* the sweep of one of them */
  command_run("merge -o other.h5 both.h5", &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, "not an attnlab journal"), "%s", result.err);
}

/* The lines of an evaluation's journal that are damaged are found by their checksums. */
Test(cli_eval_identity, a_damaged_journal_is_repaired) {
  evaluate("x.h5", "-v " SETTING);
  char *text = fixture_text("x.jsonl"), *digit = strstr(strchr(text, '\n'), "\"kl\":0.");
  cr_assert(digit);
  digit[8] ^= 1;
  command_write_text("x.jsonl", text);
  command_run("merge -o y.h5 x.jsonl", &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, "x.jsonl:2: damaged"), "%s", result.err);
  command_run_good("check --repair x.jsonl");
  expect_says(result.out, "3 of 4 lines are whole");
  command_run_good("merge -o y.h5 x.jsonl");
  cr_expect_eq(runs_of("y.h5"), 2);
  evaluate("x.h5", "-v " SETTING);
  cr_expect_eq(runs_of("x.h5"), 3);
  /* A file without its journal keeps its sessions, and a row is of the header above it. */
  forget_journal("x.h5");
  evaluate("x.h5", "-v topk:k=2");
  cr_expect_eq(json_array_size(quality_set_of("x.h5").sessions), 3);
  cr_expect_eq(quality_set_of("x.h5").records[2].session, 1);
  text = fixture_text("x.jsonl");
  strstr(text, "\"session\":1")[1] ^= 1;
  command_write_text("z.jsonl", text);
  command_run_good("check --repair z.jsonl");
  expect_says(result.out, "a row of session 1, under the header of session 0");
}

/* A check that is asked of the first run alone is not lost, nor are those of its layers. */
Test(cli_eval_identity, checks_of_either_file_are_kept) {
  evaluate("a.h5", "-v topk:k=2 -v " SETTING);
  evaluate("b.h5", "-v " SETTING);
  for (int turn = 0; turn < 2; turn++) {
    command_run_good(turn ? "merge -o c.h5 b.h5 a.h5" : "merge -o c.h5 a.h5 b.h5");
    quality_set set = quality_set_of("c.h5");
    for (size_t i = 0; i < set.count; i++)
      if (strncmp(set.records[i].spec, SETTING, strlen(SETTING)) == 0) {
        const quality_record *r = &set.records[i];
        cr_expect_eq(r->checks[EV_10].verdict, VERDICT_PASS, "%d: %s", turn,
                     check_verdict_names[r->checks[EV_10].verdict]);
        bool judged = false;
        for (int c = QUALITY_CHECKS; c < r->check_count; c++)
          judged |= strcmp(r->checks[c].name, "SP-1") == 0 && r->checks[c].verdict == VERDICT_PASS;
        cr_expect(judged && r->verdict == VERDICT_PASS, "%d: %s", turn, check_verdict_names[r->verdict]);
      }
  }
}

/* -- killed -- */

static void wait_briefly(void) { nanosleep(&(struct timespec){0, 20000000}, NULL); }

Test(cli_eval_identity, two_at_once_lose_nothing) {
  static const char *const specs[] = {"topk:k=2", "topk:k=3", "topk:k=5", "topk:k=7"};
  pid_t started[4];
  for (int i = 0; i < 4; i++)
    started[i] =
        command_start(text_of("eval %s --text text -n 32 -w 8 --task text:skip=4 -o x.h5 --threads 1 "
                              "--layers each -v %s",
                              fixture_directory, specs[i]));
  for (int i = 0; i < 4; i++) cr_expect_eq(command_exit_of(started[i]), 0, "%s", specs[i]);
  quality_set set = quality_set_of("x.h5");
  for (int i = 0; i < 4; i++) {
    size_t found = 0;
    for (size_t r = 0; r < set.count; r++)
      found +=
          strncmp(set.records[r].spec, specs[i], strlen(specs[i])) == 0 && set.records[r].status == RUN_OK;
    reference_model m = small_model();
    cr_expect_eq(found, (size_t)m.layers, "%s: %zu runs", specs[i], found);
    reference_free(&m);
  }
}

/* Starts an evaluation whose last run never ends, and kills it once the others are in the journal. */
static void kill_midway(const char *specs, size_t done) {
  const pid_t pid =
      command_start(text_of("eval %s --text text -n 32 -w 8 --task text:skip=4 -o x.h5 %s -v fault:mode=hang "
                            "--plugin " TEST_BINARY_DIR "/tests/fault.so",
                            fixture_directory, specs));
  for (int i = 0; i < 5000 && fixture_lines("x.jsonl") < 1 + done; i++) wait_briefly();
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
}

Test(cli_eval_identity, what_is_done_is_kept_when_it_is_killed) {
  kill_midway("-v topk:k=2", 1);
  cr_assert_eq(fixture_lines("x.jsonl"), 2);
  remove("x.h5"); /* as if it had been killed before the file was written */
  FILE *torn = fopen("x.jsonl", "ab");
  cr_assert(torn && fputs("{\"key\":\"torn", torn) >= 0 && fclose(torn) == 0);
  evaluate("x.h5", "-v topk:k=2 -v topk:k=3");
  expect_says(result.err, "1 torn line left out of x.jsonl");
  const double time = time_of("x.h5", "topk");
  size_t rows = 0;
  for (const char *at = fixture_text("x.jsonl"); (at = strstr(at, "\"spec\":\"topk:k=2")) != NULL; at++)
    rows++;
  cr_expect_eq(rows, 1, "the run that was done is repeated, %zu rows", rows);
  evaluate("x.h5", "-v topk:k=2 -v topk:k=3");
  cr_expect_eq(time_of("x.h5", "topk"), time);
}

/* A journal is of a sweep or of an evaluation. */
Test(cli_eval_identity, a_sweep_and_an_evaluation_do_not_share_a_journal) {
  command_write_text("x.jsonl", "{\"schema\":\"attnlab-journal\",\"version\":2,\"session\":0,\"build\":\"b\","
                                "\"provenance\":{}}\n");
  command_run(
      text_of("eval %s --text text -n 32 -w 8 --task text:skip=4 -o x.h5 -v topk:k=2", fixture_directory),
      &result);
  cr_expect(result.exit_code == 2 && command_diagnostics(&result) == 1 &&
                strstr(result.err, "x.jsonl:1: rows of kind 'sweep'; expected those of an evaluation"),
            "%s", result.err);
}

/* advise_budget.c - attnlab advise --budget: keys that are shared among the layers of a model. */
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/quality_sets.h"

TestSuite(cli_advise_budget, .init = command_enter, .fini = command_leave);

/* No assignment within a budget is predicted to cost less than the same setting in every layer; what is
 * written is what the model was run with, and is read again. */
Test(cli_advise_budget, a_budget_is_shared_among_the_layers) {
  double predicted, kl, even;
  command_run_good(
      "advise --model " TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR
      "/tests/fixtures/held.txt -n 32 -w 2 --budget 4 topk:k=2 topk:k=4 topk:k=8 -o x.h5 --assignment x.txt");
  const char *at = strstr(result.out, "\nmethod "), *spec = strstr(result.out, "-v '");
  cr_assert(at && spec &&
                sscanf(at, " method KL predicted KL 95 %% in every layer 95 %% topk %lf %lf - %lf",
                       &predicted, &kl, &even) == 3,
            "%s", result.out);
  cr_expect(predicted > 0 && kl > predicted / 3 && kl < 3 * predicted && even > 0, "%s", result.out);
  double sum = 0, whole = 0;
  quality_set set = quality_set_of("x.h5");
  for (size_t i = 0; i < set.count; i++) /* topk:k=4 of each layer, and of all */
    if (strstr(set.records[i].spec, ":k=4,") && !strchr(set.records[i].spec, '@'))
      *(strlen(set.records[i].layers) == 1 ? &sum : &whole) += set.records[i].kl;
  cr_expect_float_eq(even, whole, 1e-3 * whole, "%g, not %g", even, whole);
  cr_expect(sum > 0 && predicted <= sum * (1 + 1e-3), "%g, not at most %g", predicted, sum);
  const size_t runs = set.count;
  char *assigned = strdup(spec + strlen("-v '"));
  command_run_good("eval " TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR
                   "/tests/fixtures/held.txt -n 32 -w 2 --task text:skip=8 -v @x.txt -o x.h5");
  set = quality_set_of("x.h5");
  size_t same = 0;
  for (size_t i = 0; i < runs; i++) {
    const size_t length = strlen(set.records[i].spec);
    same += strncmp(assigned, set.records[i].spec, length) == 0 && assigned[length] == '\'';
  }
  free(assigned);
  cr_expect(same == 1 && !strstr(result.err, "repeated"), "the run is known: %s", result.err);
  command_run("advise --model " TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR
              "/tests/fixtures/held.txt -n 32 -w 2 --budget 1 topk:k=2 topk:k=4 -o x.h5",
              &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, "no setting is within the budget"), "%s", result.err);
}

/* Of three methods of n / 16 ... n / 2 keys the one of least KL is written, in place of an assignment alone.
 * Runs by another build of a plug-in are repeated, which is told. */
Test(cli_advise_budget, presets_and_an_assignment) {
  static const char *const others[] = {"notes", "0,1", "topk@0 1\n", "topk@\n", "topk@1-2,a"};
  static const char *const presets[] = {"streaming:sink=4,window=%d", "pages:page=16,budget=%d,",
                                        "topk:k=%d,"};
#define ON_LICENSE "advise --model " TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR "/LICENSE -w 1 "
  for (int i = 0; i <= 5; i++) {
    command_write_text("x.txt", i < 5 ? others[i] : "topk:k=2@0-2;topk:k=4@3");
    command_run(ON_LICENSE "-o x.h5 --assignment x.txt", &result);
    cr_expect_eq(result.exit_code, i < 5 ? 2 : 0, "%d: %s", i, result.err);
    cr_expect(i == 5 || strstr(result.err, "not an assignment of settings to layers"), "%s", result.err);
  }
  const quality_record *best = NULL;
  size_t size, found = 0;
  quality_set set = quality_set_of("x.h5");
  for (const quality_record *r = set.records; r < set.records + set.count; r++) {
    const bool whole = strcmp(r->layers, "all") == 0, mixed = strchr(r->spec, '@');
    cr_expect(r->n == 512 && r->kl_budget == 0.01 && r->margin == 0.01 && !strcmp(r->task, "text:skip=128"));
    for (int p = 0; p < 12 && whole && !mixed; p++) {
      const char *start = text_of(presets[p / 4], 32 << p % 4);
      found += strncmp(r->spec, start, strlen(start)) == 0;
    }
    if (mixed && (!best || r->kl < best->kl)) best = r;
  }
  char *written = fixture_bytes("x.txt", &size);
  cr_assert(found == 12 && best && size == strlen(best->spec) + 1);
  cr_expect(memcmp(written, best->spec, size - 1) == 0 && written[size - 1] == '\n');
  free(written);
  command_run_good(ON_LICENSE "--kl 0.05 --assignment x.txt"); /* topk's KL is least, but pages read least */
  expect_says(fixture_text("x.txt"), "pages:page=16,budget=32,");
  for (int turn = 0; turn < 2; turn++) {
    command_replace(TEST_BINARY_DIR "/tests/plugins/planted_budget.so", "p.so");
    if (turn) cr_assert_eq(truncate("p.so", 1 << 20), 0);
    command_run_good(ON_LICENSE "-n 32 -o y.h5 --plugin ./p.so planted_budget:half=4");
    cr_expect_eq(strncmp(result.out, "y.h5: 1 run repeated: ", 22) == 0, turn, "%s", result.out);
  }
}

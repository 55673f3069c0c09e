/* advise_budget.c - attnlab advise --budget: keys that are shared among the layers of a model. */
#include "experiments/quality/evaluation_file.h"
#include "tests/support/command.h"

TestSuite(cli_advise_budget, .init = command_enter, .fini = command_leave);

/* No assignment within a budget is predicted to cost less than the same setting in every layer; what is
 * written is what the model was run with, and is read again. */
Test(cli_advise_budget, a_budget_is_shared_among_the_layers) {
  command_result r;
  double predicted, kl, even;
  command_run(
      "advise --model " TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR
      "/tests/fixtures/held.txt -n 32 -w 2 --budget 4 topk:k=2 topk:k=4 topk:k=8 -o x.h5 --assignment x.txt",
      &r);
  cr_assert_eq(r.exit_code, 0, "%s", r.err);
  const char *at = strstr(r.out, "\ntopk "), *spec = strstr(r.out, "-v '");
  cr_assert(at && spec && sscanf(at, "\ntopk %lf %lf - %lf", &predicted, &kl, &even) == 3, "%s", r.out);
  cr_expect(predicted > 0 && kl > predicted / 3 && kl < 3 * predicted && even > 0, "%s", r.out);
  quality_set set;
  double sum = 0;
  cr_assert(!quality_read("x.h5", &set), "%s", attn_last_error());
  for (size_t i = 0; i < set.count; i++) /* topk:k=4 of each layer */
    if (strlen(set.records[i].layers) == 1 && strstr(set.records[i].spec, ":k=4,")) sum += set.records[i].kl;
  cr_expect(sum > 0 && predicted <= sum * (1 + 1e-3), "%g, not at most %g", predicted, sum);
  const size_t runs = set.count;
  char *assigned = strdup(spec + strlen("-v '"));
  result_set_free(&set);
  command_run("eval " TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR
              "/tests/fixtures/held.txt -n 32 -w 2 --task text:skip=8 -v @x.txt -o x.h5",
              &r);
  cr_assert_eq(r.exit_code, 0, "%s", r.err);
  cr_assert(!quality_read("x.h5", &set), "%s", attn_last_error());
  size_t same = 0;
  for (size_t i = 0; i < runs; i++) {
    const size_t length = strlen(set.records[i].spec);
    same += strncmp(assigned, set.records[i].spec, length) == 0 && assigned[length] == '\'';
  }
  free(assigned);
  cr_expect(same == 1 && !strstr(r.err, "repeated"), "the run is known: %s", r.err);
  result_set_free(&set);
  command_run("advise --model " TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR
              "/tests/fixtures/held.txt -n 32 -w 2 --budget 1 topk:k=2 topk:k=4 -o x.h5",
              &r);
  cr_expect(r.exit_code == 2 && strstr(r.err, "no setting is within the budget"), "%s", r.err);
}

/* masks.c - the commands of experiments/docs/masks.md as they stand there, and what wrong options get. */
#include "tests/support/command.h"
#include "data/data.h"

TestSuite(cli_masks, .init = command_enter, .fini = command_leave);

enum { N = 256, HEADS = 4, COMMANDS = 11 };

static void capture(void) {
  command_run_good("capture " TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR
                   "/LICENSE --layer 1 --n 256 -o qkv.h5");
}

/* A chain with a branch at every eighth position. */
static void plant_tree(void) {
  int64_t parents[N];
  for (int64_t i = 0; i < N; i++) parents[i] = i % 8 ? i - 1 : i / 8 - 1;
  command_write_npy("parents.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (256,), }", parents,
                    sizeof parents);
}

static data_array read_output(void) {
  data_array o = {0};
  cr_assert(!data_npy_read("o.npy", &o), "%s", attn_last_error());
  return o;
}

static double distance(const data_array *a, const data_array *b) {
  double far = 0;
  for (int64_t i = 0; i < data_array_count(a); i++)
    far = fmax(far, fabs((double)((const float *)a->at)[i] - (double)((const float *)b->at)[i]));
  return far;
}

Test(cli_masks, every_command_of_the_table_works) {
  size_t size;
  char *text = fixture_bytes(TEST_SOURCE_DIR "/experiments/docs/masks.md", &size);
  data_array first = {0};
  int count = 0;
  capture();
  plant_tree();
  for (char *at = text; (at = strstr(at, "`attnlab apply ")); count++) {
    char *end = strchr(at + 1, '`');
    cr_assert_not_null(end);
    *end = '\0';
    command_run_good(at + strlen("`attnlab "));
    data_array o = read_output();
    cr_expect(o.rank == 3 && o.shape[0] == HEADS && o.shape[1] == N, "%s", at);
    if (count)
      cr_expect(distance(&o, &first) > 1e-3, "%s: no other than plain causal attention", at);
    else
      first = o;
    if (count) data_array_free(&o);
    at = end + 1;
  }
  cr_expect_eq(count, COMMANDS);
  data_array_free(&first);
  free(text);
}

/* One line that names what is wrong, and exit code 2. */
static void expect_refused(const char *arguments, const char *expected) {
  command_run(arguments, &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, expected), "attnlab %s: exit %d, %s", arguments,
            result.exit_code, result.err);
}

Test(cli_masks, mistakes_are_named) {
  float bias[6] = {0};
  capture();
  command_write_npy("bias.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", bias,
                    sizeof bias);
  expect_refused("apply tiled --in qkv.h5 -o o.npy --softcap x", "softcap=x, expected a number");
  expect_refused("apply tiled --in qkv.h5 -o o.npy --softcap 3 --leaky 0.2", "exclude each other");
  expect_refused("apply tiled --in qkv.h5 -o o.npy --bias bias.npy", "bias.npy: shape [1,1,2,3], expected");
  expect_refused("apply tiled --in qkv.h5 -o o.npy --mask documents:0+256", "begins at 256");
  expect_refused("apply performer --in qkv.h5 -o o.npy --softcap 3", "performer");
  command_write_text("c.yaml", "schema: 1\ngrid: {n: 64, score: [alibi, cap=3]}\nvariants: [tiled]\n"
                               "datasets: [gaussian]\n");
  expect_refused("run c.yaml -o c.h5", "c.yaml:2:30: score: unknown parameter 'cap'");
}

/* The keys of runs without are what they were; the others say what they compute. */
Test(cli_masks, a_sweep_names_what_it_computes) {
  command_write_text(
      "c.yaml", "schema: 1\n"
                "grid: {n: 64, d: 8, heads: 2, score: [none, \"sink=0,alibi\"], mask: [none, \"prefix:9\"]}\n"
                "exclude: [{score: none, mask: \"prefix:9\"}]\n"
                "variants: [tiled, full]\n"
                "datasets: [gaussian]\n"
                "nulls: no\n"
                "timing: {min_time: 0.001, max_time: 0.002, warmup: 0, rounds: 1, samples: 3}\n");
  command_run_good("run c.yaml -o c.h5 -q");
  command_run_good("export --csv c.h5");
  cr_expect_not_null(strstr(result.out, "score=alibi,sink=0 mask=prefix:9 variant=tiled"));
  cr_expect_not_null(strstr(result.out, "score=alibi,sink=0 variant=full"));
  cr_expect_not_null(strstr(result.out, "cache=warm variant=full"));
  cr_expect_null(strstr(result.out, "cache=warm mask="), "an excluded run was made");
  command_run_good("check c.h5");
  cr_expect_not_null(strstr(result.out, "score alibi,sink=0, mask prefix:9"), "%s", result.out);
  cr_expect_not_null(strstr(result.out, "6 runs: 6 ok"), "%s", result.out);
  command_run_good("run c.yaml -o d.h5 -q --softcap 5 --mask documents:16");
  command_run_good("check d.h5");
  cr_expect_not_null(strstr(result.out, "score softcap=5, mask documents:16"), "%s", result.out);
}

/* masks.c - the commands of experiments/docs/masks.md as they stand there, and what wrong options get. */
#include "tests/support/command.h"
#include "data/data.h"

#include <unistd.h>

TestSuite(cli_masks, .init = command_enter, .fini = command_leave);

enum { N = 256, HEADS = 4, COMMANDS = 15, PREPARATIONS = 3 };

static char *document(void) {
  size_t size;
  return fixture_bytes(TEST_SOURCE_DIR "/experiments/docs/masks.md", &size);
}

/* The files of the repository that the commands name, and the commands that stand before the table. Returns how many. */
static int prepare(char *text) {
  int count = 0;
  cr_assert(!symlink(TEST_SOURCE_DIR "/data", "data") && !symlink(TEST_SOURCE_DIR "/LICENSE", "LICENSE"));
  for (char *at = text; (at = strstr(at, "\n    attnlab ")); count++) {
    char *end = strchr(at + 1, '\n');
    *end = '\0';
    command_run_good(at + strlen("\n    attnlab "));
    *(at = end) = '\n';
  }
  return count;
}

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
  char *text = document();
  data_array first = {0};
  int count = 0;
  cr_assert_eq(prepare(text), PREPARATIONS);
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
  expect_refused("apply tiled --in qkv.h5 -o o.npy --t5 bias.npy",
                 "bias.npy: [2,3], expected a number for each of 32 buckets and each head, [32,4] or [32,1]");
  command_write_text("c.yaml", "schema: 1\ngrid: {n: 64, score: [alibi, cap=3]}\nvariants: [tiled]\n"
                               "datasets: [gaussian]\n");
  expect_refused("run c.yaml -o c.h5", "c.yaml:2:30: score: unknown parameter 'cap'");
}

static void expect_same_output(const char *one, const char *other) {
  command_run_good(one);
  data_array a = read_output();
  command_run_good(other);
  data_array b = read_output();
  cr_expect(distance(&a, &b) <= 0, "%s, and %s", one, other);
  data_array_free(&a);
  data_array_free(&b);
}

/* A mask from a file is the variant graph with that file; and it is the mask of every command that has the option. */
Test(cli_masks, masks_from_files) {
  capture();
  command_run_good("pattern bigbird:block=16,random=2 --in qkv.h5 -o m.npy");
  command_run_good("pattern bigbird:block=16,random=2 --in qkv.h5 -o csr.h5");
  expect_same_output("apply tiled --mask m.npy --in qkv.h5 -o o.npy",
                     "apply graph:kind=file,file=m.npy --in qkv.h5 -o o.npy");
  expect_same_output("apply tiled --causal --mask csr.h5 --in qkv.h5 -o o.npy",
                     "apply graph:kind=file,file=csr.h5 --causal --in qkv.h5 -o o.npy");
  command_run_good("pattern longformer:window=16 --in qkv.h5 -o w.npy");
  expect_same_output("apply longformer:window=16 --mask csr.h5 --in qkv.h5 -o o.npy",
                     "apply graph:kind=file,file=csr.h5 --mask w.npy --in qkv.h5 -o o.npy");
  expect_same_output("matrix tiled --mask m.npy --in qkv.h5 -o o.npy",
                     "matrix graph:kind=file,file=csr.h5 --in qkv.h5 -o o.npy");
  command_run_good("advise tiled --mask csr.h5 --in qkv.h5");
  cr_expect(strstr(result.out, "tiled"), "%s", result.out);
}

Test(cli_masks, mistakes_in_masks_are_named) {
  static const int64_t edges[] = {0, 3, 7, 256};
  capture();
  command_run_good("pattern longformer --n 40 -o m.npy");
  command_run_good("pattern longformer --n 40 -o csr.h5");
  command_write_npy("edges.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 2), }", edges,
                    sizeof edges);
  expect_refused("apply tiled --in qkv.h5 -o o.npy --mask m.npy",
                 "m.npy: a mask [40,40], expected [256,256]");
  expect_refused("matrix tiled --in qkv.h5 -o o.npy --mask csr.h5",
                 "csr.h5: indptr has 41 elements, expected 257");
  expect_refused("advise tiled --in qkv.h5 --mask edges.npy",
                 "edges.npy: edge 1 is (head 0, row 7, column 256)");
  expect_refused("apply tiled --in qkv.h5 -o o.npy --mask tree:3", "or a file (.npy, .h5, .safetensors)");
  expect_refused("apply tiled --in qkv.h5 -o m.npy --mask m.npy",
                 "m.npy: the output would replace the input");
  expect_refused("apply topk --in qkv.h5 -o o.npy --mask m.npy", "m.npy: a mask [40,40]");
  command_write_text("c.yaml", "schema: 1\ngrid: {n: 64, mask: [none, m.npy]}\nvariants: [tiled]\n"
                               "datasets: [gaussian]\n");
  expect_refused("run c.yaml -o c.h5", "m.npy: a mask [40,40], expected [64,64]");
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
  command_run_good("pattern longformer:window=8 --n 64 -o m.npy");
  command_run_good("run c.yaml -o e.h5 -q --t5 0.25 --mask m.npy");
  command_run_good("check e.h5");
  cr_expect_not_null(strstr(result.out, "score t5=0.25, mask m.npy"), "%s", result.out);
  command_run_good("run c.yaml -o d.h5 -q --softcap 5 --mask documents:16");
  command_run_good("check d.h5");
  cr_expect_not_null(strstr(result.out, "score softcap=5, mask documents:16"), "%s", result.out);
}

/* graph.c - patterns written to files and read again as graphs, through the program itself. */
#include "tests/support/command.h"

TestSuite(cli_graph, .init = command_enter, .fini = command_leave);

static void expect_same_file(const char *a, const char *b, const char *what) {
  char command[128];
  snprintf(command, sizeof command, "cmp -s %s %s", a, b);
  cr_expect(system(command) == 0, "%s: the outputs differ", what);
}

/* Few enough keys for one step: tiles may be cut otherwise, since a graph does not say which rows are global. And keys
 * in ascending order: listed tokens within a dilated window are not. */
Test(cli_graph, exported_patterns_give_the_same_bits) {
  static const char *const specs[] = {
      "longformer:window=16,global=3", "longformer:window=8,dilation=3,global=2",
      "bigbird:block=8,random=2,global=1", "bigbird:block=16,random=1,global=0"};
  command_run_good("capture " TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR
                   "/LICENSE --layer 1 --n 96 -o qkv.h5");
  char arguments[256];
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
    for (int form = 0; form < 4; form++) {
      const char *causal = form % 2 ? "--causal" : "", *file = form / 2 ? "g.h5" : "g.npy";
      snprintf(arguments, sizeof arguments, "pattern %s --in qkv.h5 %s -o %s", specs[i], causal, file);
      command_run_good(arguments);
      snprintf(arguments, sizeof arguments, "apply %s --in qkv.h5 %s -o a.npy", specs[i], causal);
      command_run_good(arguments);
      snprintf(arguments, sizeof arguments, "apply graph:kind=file,file=%s --in qkv.h5 %s -o b.npy", file,
               causal);
      command_run_good(arguments);
      expect_same_file("a.npy", "b.npy", arguments);
    }
}

Test(cli_graph, what_is_written_is_read_alike) {
  command_run_good("pattern bigbird:block=4,random=2 --n 40 --heads 3 -o a.h5");
  command_run_good("pattern bigbird:block=4,random=2 --n 40 --heads 3 -o a.npy");
  command_run_good("pattern graph:kind=file,file=a.npy --n 40 --heads 3 -o b.h5");
  command_run_good("pattern graph:kind=file,file=a.h5 --n 40 --heads 3 -o b.npy");
  expect_same_file("a.h5", "b.h5", "from a mask");
  expect_same_file("a.npy", "b.npy", "from rows");
}

/* Attention to what was selected is attention to the graph of it. */
Test(cli_graph, exported_selections_give_the_same_output) {
  command_run_good("capture " TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR
                   "/LICENSE --layer 1 --n 96 -o qkv.h5");
  command_run_good("pattern topk:k=12,sink=2 --in qkv.h5 --causal -o g.h5");
  command_run_good("apply topk:k=12,sink=2 --in qkv.h5 --causal -o a.npy");
  command_run_good("apply graph:kind=file,file=g.h5 --in qkv.h5 --causal -o b.npy");
  float a[96], b[96];
  FILE *files[] = {fopen("a.npy", "rb"), fopen("b.npy", "rb")};
  cr_assert(files[0] && files[1]);
  for (int f = 0; f < 2; f++) cr_assert_eq(fseek(files[f], -(long)sizeof a, SEEK_END), 0);
  cr_assert(fread(a, sizeof *a, 96, files[0]) == 96 && fread(b, sizeof *b, 96, files[1]) == 96);
  for (int l = 0; l < 96; l++) cr_expect_float_eq(a[l], b[l], 1e-5, "%g, %g", (double)a[l], (double)b[l]);
  fclose(files[0]);
  fclose(files[1]);
}

static void expect_refused(const char *arguments, const char *says) {
  command_run(arguments, &result);
  cr_expect(result.exit_code == 2 && command_diagnostics(&result) == 1 && strstr(result.err, says),
            "attnlab %s: exit %d\n%s", arguments, result.exit_code, result.err);
}

Test(cli_graph, refusals) {
  command_run_good("pattern longformer --n 8 -o a.npy");
  expect_refused("pattern graph:kind=file,file=a.npy --n 9 -o b.npy", "a.npy: a mask [8,8], expected [9,9]");
  expect_refused("pattern graph:kind=file,file=a.npy --n 8 -o a.npy", "a.npy");
  expect_refused("pattern longformer --n 8 --in a.npy -o b.npy", "--in");
  expect_refused("pattern longformer --in a.npy --heads 2 -o b.npy", "--heads");
  expect_refused("pattern topk --n 8 -o b.npy", "--in FILE is needed");
  expect_refused("pattern longformer -o b.npy", "--n N or --in FILE");
}

/* masks.c - the commands of experiments/docs/masks.md as they stand there; masks from files are in
 * cases/masks.txt. */
#include "tests/support/command.h"
#include "tests/support/data_fixture.h"

#include <unistd.h>

TestSuite(cli_masks, .init = command_enter, .fini = command_leave);

enum { N = 256, HEADS = 4, COMMANDS = 16, PREPARATIONS = 3 };

/* The files of the repository that the commands name, and the commands that stand before the table. Returns
 * how many. */
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

/* A chain with a branch at every eighth position. */
static void plant_tree(void) {
  int64_t parents[N];
  for (int64_t i = 0; i < N; i++) parents[i] = i % 8 ? i - 1 : i / 8 - 1;
  command_write_npy("parents.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (256,), }", parents,
                    sizeof parents);
}

static double distance(const data_array *a, const data_array *b) {
  double far = 0;
  for (int64_t i = 0; i < data_array_count(a); i++)
    far = fmax(far, fabs((double)((const float *)a->at)[i] - (double)((const float *)b->at)[i]));
  return far;
}

Test(cli_masks, every_command_of_the_table_works) {
  char *text = fixture_text(TEST_SOURCE_DIR "/experiments/docs/masks.md");
  data_array first = {0};
  int count = 0;
  cr_assert_eq(prepare(text), PREPARATIONS);
  plant_tree();
  for (char *at = text; (at = strstr(at, "`attnlab apply ")); count++) {
    char *end = strchr(at + 1, '`');
    cr_assert_not_null(end);
    *end = '\0';
    command_run_good(at + strlen("`attnlab "));
    data_array o = array_read("o.npy");
    cr_expect(o.rank == 3 && o.shape[0] == HEADS && o.shape[1] == N, "%s", at);
    if (count)
      cr_expect(distance(&o, &first) > 1e-3, "%s: no other than plain causal attention", at);
    else
      first = o;
    at = end + 1;
  }
  cr_expect_eq(count, COMMANDS);
}

/* Attention to what was selected is attention to the graph of it. */
Test(cli_masks, exported_selections_give_the_same_output) {
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

/* sweep.c - a whole small experiment: run, resume, check, export, shard and merge, and reading back. */
#include <hdf5.h>
#include <sys/wait.h>

#include "tests/support/command.h"

static const char config[] =
    "schema: 1\n"
    "grid: {n: [32, 65], heads: 2, d: 8, causal: [no, yes], seed: 0:1}\n"
    "variants:\n"
    "  - full\n"
    "  - tiled: {block_q: 16, block_k: 16}\n"
    "  - longformer: {window: 8, global: 1}\n"
    "  - bigbird: {block: 8, random: 1, global: 1}\n"
    "  - linformer: {k: 16}\n"
    "  - performer: {features: 16}\n"
    "datasets: [gaussian]\n"
    "timing: {min_time: 0.0005, max_time: 0.002, warmup: 0.0002, sample_time: 1e-4}\n";

/* 2 sizes x 2 masks x (3 without a seed + 3 x 2 seeds): without the null baselines. */
enum { RUNS_WITHOUT_NULLS = 36 };

static void enter(void) {
  command_enter();
  command_write_text("small.yaml", config);
}

TestSuite(cli_sweep, .init = enter, .fini = command_leave, .timeout = 300);

static void expect_same(const char *a, const char *b) {
  size_t a_size, b_size;
  char *a_bytes = fixture_bytes(a, &a_size), *b_bytes = fixture_bytes(b, &b_size);
  cr_expect(a_size == b_size && memcmp(a_bytes, b_bytes, a_size) == 0, "%s and %s differ", a, b);
  free(a_bytes), free(b_bytes);
}

static int64_t count_runs(const char *name) {
  const hid_t file = H5Fopen(name, H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t column = H5Dopen2(file, "err_rel_fro", H5P_DEFAULT), space = H5Dget_space(column);
  cr_assert(file >= 0 && column >= 0 && space >= 0, "%s", name);
  hsize_t runs = 0;
  cr_assert(H5Sget_simple_extent_dims(space, &runs, NULL) == 1);
  H5Sclose(space), H5Dclose(column), H5Fclose(file);
  return (int64_t)runs;
}

/* Every Python of the machine that has h5py or xarray must be able to read the file; the script says which
 * has. */
static void expect_python_reads(const char *name, int64_t runs) {
  static const char *const pythons[] = {"python3", "/usr/bin/python3"};
  for (int i = 0; i < 2; i++) {
    char command[512];
    snprintf(command, sizeof command,
             "%s " TEST_SOURCE_DIR "/tests/results/read_results.py %s %d >python.txt 2>&1", pythons[i], name,
             (int)runs);
    const int status = system(command);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    size_t size;
    char *said = fixture_bytes("python.txt", &size);
    cr_expect(code == 0 || code == 127, "%s read_results.py: exit %d\n%s", pythons[i], code, said);
    free(said);
  }
}

Test(cli_sweep, from_run_to_table) {
  command_run_good("run small.yaml -o out.h5");
  const int64_t runs = count_runs("out.h5");
  cr_expect(runs > RUNS_WITHOUT_NULLS, "%d runs", (int)runs);

  /* Nothing is left to do: the journal stays as it is. */
  size_t before, after;
  char *journal = fixture_bytes("out.jsonl", &before);
  command_run_good("run small.yaml -o out.h5");
  free(fixture_bytes("out.jsonl", &after));
  cr_expect(before == after && journal[before - 1] == '\n');
  free(journal);

  command_run_good("check --bounds out.h5");
  static const char *const names[] = {"full",      "tiled",     "longformer", "bigbird",
                                      "linformer", "performer", "FP-2"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    cr_expect(strstr(result.out, names[i]), "check does not tell of %s", names[i]);

  static char csv[1 << 20];
  int64_t lines = 0;
  FILE *stream = popen(TEST_BINARY_DIR "/experiments/attnlab export --csv out.h5", "r");
  cr_assert_not_null(stream);
  while (fgets(csv, sizeof csv, stream)) {
    if (lines == 0) cr_expect(strncmp(csv, "key,", 4) == 0 || strstr(csv, ",key,"), "header: %.60s", csv);
    lines++;
  }
  cr_expect(pclose(stream) == 0);
  cr_expect(lines == runs + 1, "%d lines for %d runs", (int)lines, (int)runs);

  command_run_good("merge -o merged.h5 out.jsonl");
  expect_same("out.h5", "merged.h5");
  expect_python_reads("out.h5", runs);
}

Test(cli_sweep, shards_make_the_whole) {
  command_run_good("run small.yaml -o out.h5 --set grid.n=32");
  command_run_good("run small.yaml -o part.h5 --set grid.n=32 --shard 0/2");
  command_run_good("run small.yaml -o part.h5 --set grid.n=32 --shard 1/2");
  command_run_good("merge -o ab.h5 part.0-of-2.jsonl part.1-of-2.jsonl");
  command_run_good("merge -o ba.h5 part.1-of-2.jsonl part.0-of-2.jsonl");
  cr_expect(count_runs("ab.h5") == count_runs("out.h5"));
  expect_same("ab.h5", "ba.h5");
}

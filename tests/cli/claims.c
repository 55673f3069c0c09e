/* claims.c - attnlab claims: the words, that they do not hang on the seed, intervals, its file, wrong names.
 * Draws are seeded, so the words are too; claims about time are left out. */
#include <hdf5.h>

#include "experiments/support/base64.h"
#include "tests/support/command.h"
#include "tests/support/data_fixture.h"

TestSuite(claims, .init = command_enter, .fini = command_leave);

static void expect(const char *name, const char *verdict, int seed) {
  char arguments[80], line[160];
  snprintf(arguments, sizeof arguments, "claims %s --seed %d", name, seed);
  snprintf(line, sizeof line, "%s: %s\n", name, verdict);
  command_run(arguments, &result);
  cr_expect(result.exit_code == 0 && !strncmp(result.out, line, strlen(line)), "seed %d: %s%s", seed,
            result.out, result.err);
}

/* Of those that take less than some seconds. */
static const struct {
  const char *name, *verdict;
  int seeds; /* to try */
} claims[] = {
    {"flash-memory", "reproduced", 1},
    {"performer-theorem-1", "holds under a bound on SM(x,x) and SM(y,y); one on SM(x,y) is not enough", 20},
    {"linformer-lemma-1", "holds under eps |x| |y| for the printed eps |x y| of (12)", 20},
    {"linformer-lemma", "refuted as printed", 20},
    {"bigbird-graph", "derived", 4},
    {"performer-lemma-2", "reproduced", 3},
    {"orthogonal-theorem", "refuted as printed", 3},
    {"orthogonal-preprint", "reproduced", 3},
    {"linformer-limit", "refuted as printed", 1},
    {"orthogonal-sign", "derived", 1},
    {"performer-theorem-4", "holds under d = 8, R = 1, eps = 1/2, a constant of 1 in Theta", 1},
    {"flash-exact", "holds under rounding to fp32 (within the bound FP-2)", 1},
    {"performer-law", "derived", 1},
    {"performer-unit-variance", "derived", 1},
    {"performer-positive", "holds under queries and keys of std 0.75 and more", 1},
    {"favor++-gain", "derived", 20},
    {"taylor-needs", "derived", 1},
    {"performer-pytorch-69", "holds under eps matched to the implementation's", 1},
    {"regimes", "holds under peaks that are local", 1},
    {"scatterbrain-regimes", "holds under a softmax that is not peaked", 10},
    {"streaming-sinks", "not reproduced", 1},
    {"sink-sigmoid", "refuted as printed", 20},
    {"linformer-rank", "not reproduced", 1}, /* of normal scores no head is */
    {"nystrom-pinv", "derived", 3},
    {"gaussian-rule", "holds under scores that are normal", 2},
    {"pages-ranking", "derived", 3},
    {"pages-certificate", "not reproduced", 1}, /* of normal scores no few keys hold the mass */
    {"reformer-rounds", "not reproduced", 1},
    {"skip-order", "not reproduced", 1}, /* nor are there blocks to pass over */
    {"oracle-sampling-vs-topk", "holds under a flat softmax over values that go with the keys", 5},
    {"magicpig-weights-matter", "not reproduced", 1}, /* normal values need none */
    {"vattention-delta", "derived", 1},
    {"vattention-output", "derived", 1},
    {"magicpig-unbiased", "holds under numerator and denominator each; not their ratio, the output", 3},
    {"hyper-double-count", "derived", 20},
    {"hyper-sort-helps", "not reproduced", 3}, /* of normal tensors no few keys are large */
    {"store-uniform", "derived", 20},
    {"store-keys", "not reproduced", 20}, /* normal keys and values lose as much */
    {"evict-store", "derived", 20},
    {"h2o-early", "derived", 20},
};

Test(claims, words) {
  for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) expect(claims[i].name, claims[i].verdict, 0);
}

Test(claims, seeds) {
  for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
    for (int seed = 1; seed < claims[i].seeds; seed++) expect(claims[i].name, claims[i].verdict, seed);
}

/* The seed reaches the draws: another one, other figures; the same one, the same. */
Test(claims, seed) {
  char first[sizeof result.out];
  command_run_good("claims --markdown linformer-lemma --seed 3");
  snprintf(first, sizeof first, "%s", result.out);
  command_run_good("claims --markdown linformer-lemma --seed 3");
  cr_expect(!strcmp(first, result.out));
  command_run_good("claims --markdown linformer-lemma --seed 4");
  cr_expect(strcmp(first, result.out) != 0);
}

/* Every figure has an interval with its kind and level, or is exact. */
Test(claims, intervals) {
  command_run_good("claims flash-memory linformer-lemma linformer-lemma-1 performer-theorem-1 "
                   "orthogonal-theorem --seed 2");
  int figures = 0;
  for (char *line = strtok(result.out, "\n"); line; line = strtok(NULL, "\n")) {
    if (strncmp(line, "    ", 4) != 0) continue;
    figures++;
    cr_expect((strstr(line, "  exact") || (strstr(line, " ... ") && strstr(line, " %, "))) &&
                  !strstr(line, "nan"),
              "%s", line);
  }
  cr_expect(figures > 15, "%d", figures);
}

static double first_of(hid_t file, const char *name, hsize_t *count) {
  double values[64] = {0};
  hid_t set = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(set);
  cr_assert(H5Sget_simple_extent_dims(space, count, NULL) == 1 && *count <= 64);
  cr_assert(H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  H5Sclose(space);
  H5Dclose(set);
  return values[0];
}

/* A row a figure: of the two claims five. */
Test(claims, file) {
  command_run("claims linformer-lemma flash-memory -o claims.h5", &result);
  cr_assert(result.exit_code == 0, "%s", result.err);
  hid_t file = H5Fopen("claims.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
  hsize_t count;
  const double value = first_of(file, "value", &count);
  cr_expect(count == 5);
  cr_expect(first_of(file, "low", &count) <= value && first_of(file, "high", &count) >= value);
  cr_expect(fabs(first_of(file, "level", &count) - 0.95) < 1e-12);
  cr_expect(fabs(first_of(file, "said", &count) - (1 - 2 * exp(-8))) < 1e-12);
  cr_expect(H5Lexists(file, "verdict", H5P_DEFAULT) > 0 && H5Lexists(file, "interval", H5P_DEFAULT) > 0);
  H5Fclose(file);
}

Test(claims, markdown) {
  command_run("claims --markdown linformer-lemma taylor-needs", &result);
  cr_expect(result.exit_code == 0 && strstr(result.out, "| linformer-lemma |") &&
                strstr(result.out, "| refuted as printed |") &&
                strstr(result.out, "| derived, as recalled |"),
            "%s", result.out);
}

/* Captured tensors: the figures say so, and a file that is not there is an error that names it. */
Test(claims, captured) {
  command_run_good("capture " TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR
                   "/LICENSE --layer 0 --n 1024 -o qkv.h5");
  command_run_good("claims flash-exact --captured qkv.h5");
  cr_expect(strstr(result.out, "flash-exact: holds under") && strstr(result.out, "captured Q, K, V"), "%s",
            result.out);
  command_run_good("claims pages-ranking pages-certificate reformer-rounds --captured qkv.h5");
  cr_expect(strstr(result.out, "pages-ranking: holds under standard normal") &&
                strstr(result.out, "pages-certificate: derived") &&
                strstr(result.out, "reformer-rounds: not reproduced"),
            "%s", result.out);
  command_run("claims flash-exact --captured qkv.h5 -o qkv.h5", &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, "qkv.h5"), "%s", result.err);
  command_run("claims flash-operations --captured missing.h5", &result);
  cr_expect(result.exit_code == 74 && strstr(result.err, "missing.h5"), "%s", result.err);
}

/* Base64 the bundled model does not know, and is too sure of: a window makes it another, and its perplexity
 * fall. It has no sinks. */
Test(claims, models) {
  size_t size;
  unsigned char *plain = fixture_bytes(TEST_SOURCE_DIR "/LICENSE", &size);
  char *text = base64_encode(plain, size);
  for (size_t i = 76; i < strlen(text); i += 77) text[i] = '\n';
  command_write_text("base64.txt", text);
  free(text);
  free(plain);
  command_run_good("claims model-perplexity model-window --model " TEST_SOURCE_DIR
                   "/data/bytelm --text base64.txt");
  cr_expect(strstr(result.out, "model-perplexity: derived") &&
                strstr(result.out, "model-window: not reproduced"),
            "%s", result.out);
  command_run("claims model-layers --seed 1", &result);
  cr_expect(result.exit_code == 2 && !result.out[0], "%s", result.err);
  command_run("claims model-first-layers", &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, "'model-first-layers' needs --model"), "%s",
            result.err);
  command_run("claims model-window --model missing --text base64.txt", &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, "missing"), "%s", result.err);
  command_run("claims flash-memory --model missing", &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, "--text"), "%s", result.err);
}

Test(claims, wrong_names) {
  command_run("claims no-such-claim", &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, "no-such-claim") && !result.out[0], "%s", result.err);
  command_run("claims linformer-lemma --seed -1", &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, "--seed"), "%s", result.err);
  command_run("claims linformer-lemma -o missing/claims.h5", &result);
  cr_expect(result.exit_code == 74 && strstr(result.err, "missing"), "%s", result.err);
}

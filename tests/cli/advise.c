/* advise.c - attnlab advise: a line for each variant, consistent numbers, notes on impossible settings. */
#include <hdf5.h>

#include "attn_variant.h"
#include "tests/support/command.h"

TestSuite(cli_advise, .init = command_enter, .fini = command_leave);

enum { N = 96, D = 8 };

static void write_inputs(double std) {
  const hid_t file = H5Fcreate("qkv.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t shape[] = {1, 2, N, D};
  const hid_t space = H5Screate_simple(4, shape, NULL);
  static const char *const names[] = {"q", "k", "v"};
  for (int t = 0; t < 3; t++) {
    float x[2 * N * D];
    attn_rng rng;
    attn_rng_init(&rng, 1, 2, (uint64_t)t);
    for (int i = 0; i < 2 * N * D; i++) x[i] = (float)(attn_rng_normal(&rng) * (t < 2 ? std : 1));
    const hid_t data =
        H5Dcreate2(file, names[t], H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    cr_assert(H5Dwrite(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    H5Dclose(data);
  }
  H5Sclose(space);
  H5Fclose(file);
}

/* The columns of a variant's line: uses, error, certified, ops, needs, ops, best; "-" is NaN. */
static void columns_of(const char *out, const char *variant, double columns[7]) {
  const char *line = out;
  const size_t length = strlen(variant);
  while (line && (strncmp(line, variant, length) != 0 || line[length] != ' ')) {
    line = strchr(line, '\n');
    if (line) line++;
  }
  cr_assert_not_null(line, "no line of %s in\n%s", variant, out);
  line += length;
  for (int c = 0; c < 7; c++) {
    char *end;
    while (*line == ' ') line++;
    columns[c] = *line == '-' ? (double)NAN : strtod(line, &end);
    line = *line == '-' ? line + 1 : end;
  }
}

Test(cli_advise, every_variant_has_a_line) {
  command_result r;
  double full[7], longformer[7], performer[7], again[7];
  write_inputs(0.5);
  command_run("advise --in qkv.h5 --error 0.2", &r);
  cr_assert_eq(r.exit_code, 0, "%s", r.err);
  columns_of(r.out, "full", full);
  cr_expect(full[1] == 0 && full[3] == 1);
  columns_of(r.out, "longformer", longformer);
  cr_expect(longformer[0] == N && longformer[1] < 1e-9); /* its window holds everything */
  columns_of(r.out, "performer", performer);
  cr_expect(performer[0] == 256 && performer[4] >= 1 && performer[6] >= 1);
  /* The error is printed to 0.005. */
  cr_expect_float_eq(performer[4], 256 * pow(performer[1] / 0.2, 2), performer[4] * 0.01 / performer[1] + 1,
                     "%s", r.out);
  cr_expect_not_null(strstr(r.out, "k=256 is above n_kv = 96"));
  /* What it asks for is predicted to reach the error. */
  char arguments[128];
  snprintf(arguments, sizeof arguments, "advise performer:features=%.0f --in qkv.h5 --error 0.2",
           performer[4]);
  command_run(arguments, &r);
  snprintf(arguments, sizeof arguments, "performer:features=%.0f", performer[4]);
  columns_of(r.out, arguments, again);
  cr_expect(again[0] == performer[4] && again[1] <= 0.201 && fabs(again[3] - performer[5]) < 0.02 * again[3]);
}

Test(cli_advise, windows_reach_the_tail_mass) {
  command_result r;
  double small[7], causal[7];
  write_inputs(0.5);
  command_run("advise longformer:window=8,global=0 --in qkv.h5 --error 0.3", &r);
  columns_of(r.out, "longformer:window=8,global=0", small);
  cr_expect(small[1] > 0.3 && small[4] > small[6] && small[5] > small[3] && small[1] == small[2]);
  command_run("advise longformer:window=8,global=0 linformer:k=4 --in qkv.h5 --error 0.3 --causal", &r);
  cr_expect_eq(r.exit_code, 0, "%s", r.err);
  columns_of(r.out, "longformer:window=8,global=0", causal);
  cr_expect_lt(causal[0], small[0]);
  cr_expect_not_null(strstr(r.out, "causal attention is impossible"));
}

Test(cli_advise, mistakes) {
  static const char *const wrong[] = {"advise",
                                      "advise --in missing.h5",
                                      "advise --in qkv.h5 --error 2",
                                      "advise nosuch --in qkv.h5",
                                      "advise performer:features=x --in qkv.h5",
                                      "advise --model x",
                                      "advise --model x --text y --kl 0",
                                      "advise --model x --in qkv.h5 --text y"};
  write_inputs(0.5);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    command_result r;
    command_run(wrong[i], &r);
    cr_expect(r.exit_code == (i == 1 ? 74 : 2) && command_diagnostics(&r) == 1, "%s: %d %s", wrong[i],
              r.exit_code, r.err);
    cr_expect_str_empty(r.out);
  }
}

#define ON_MODEL                                                                                             \
  "advise --model " TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR "/tests/fixtures/held.txt -n 64 " \
  "streaming:sink=0,window=8 streaming:sink=0,window=16 streaming:sink=0,window=32 topk:k=4 topk:k=8 "

/* What the layers are predicted to cost together is what the model with them does, within the spread of bytelm's
 * windows, and within the budget; another budget has another assignment. */
Test(cli_advise, layers_of_a_model) {
  command_result r;
  double predicted[2], kl[2];
  command_run(ON_MODEL "--kl 0.02 -o x.h5", &r);
  cr_assert_eq(r.exit_code, 0, "%s", r.err);
  const char *at[] = {strstr(r.out, "\nstreaming "), strstr(r.out, "\ntopk ")};
  for (int m = 0; m < 2; m++) {
    double read;
    cr_assert(at[m] && sscanf(strchr(at[m] + 1, ' '), "%lf %lf %lf", &read, &predicted[m], &kl[m]) == 3, "%s",
              r.out);
    cr_expect(predicted[m] > 0 && predicted[m] <= 0.02 && kl[m] < 0.04, "%s", r.out);
    cr_expect(kl[m] > predicted[m] / 3 && kl[m] < 3 * predicted[m], "%g, %g", predicted[m], kl[m]);
  }
  cr_expect(strstr(r.out, "held") && strstr(r.out, "-v 'topk:k="), "%s", r.out);
  command_run(ON_MODEL "--kl 1e-9 -o x.h5", &r);
  cr_expect(r.exit_code == 0 && strstr(r.out, "topk: no setting is close enough in any layer"), "%s", r.out);
}

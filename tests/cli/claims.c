/* claims.c - attnlab claims: what is reproduced and what is not, its file, wrong names. Draws are seeded, so
 * the verdicts are too; claims about time are left out. */
#include <hdf5.h>

#include "tests/support/command.h"

TestSuite(claims, .init = command_enter, .fini = command_leave);

static void expect(const char *name, const char *verdict) {
  char arguments[80], line[80];
  snprintf(arguments, sizeof arguments, "claims %s", name);
  snprintf(line, sizeof line, "%s: %s\n", name, verdict);
  command_run(arguments, &result);
  cr_expect(result.exit_code == 0 && !strncmp(result.out, line, strlen(line)), "%s%s", result.out,
            result.err);
}

Test(claims, verdicts) {
  static const char *const held[] = {"flash-exact",    "flash-memory",       "bigbird-graph",
                                     "performer-law",  "performer-positive", "performer-pytorch-69",
                                     "orthogonal-sign"};
  static const char *const failed[] = {"orthogonal-theorem", "linformer-lemma", "linformer-limit"};
  for (size_t i = 0; i < sizeof held / sizeof *held; i++) expect(held[i], "reproduced");
  for (size_t i = 0; i < sizeof failed / sizeof *failed; i++) expect(failed[i], "NOT REPRODUCED");
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

/* A row a figure: of the two claims four. */
Test(claims, file) {
  command_run("claims linformer-lemma orthogonal-theorem -o claims.h5", &result);
  cr_assert(result.exit_code == 0, "%s", result.err);
  hid_t file = H5Fopen("claims.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
  hsize_t count;
  cr_expect(first_of(file, "value", &count) == 0 && count == 4);
  cr_expect(first_of(file, "said", &count) == 1 && count == 4);
  H5Fclose(file);
}

Test(claims, markdown) {
  command_run("claims --markdown linformer-lemma", &result);
  cr_expect(result.exit_code == 0 && strstr(result.out, "| linformer-lemma |") &&
                strstr(result.out, "| **no** |"),
            "%s", result.out);
}

Test(claims, wrong_names) {
  command_run("claims no-such-claim", &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, "no-such-claim") && !result.out[0], "%s", result.err);
  command_run("claims linformer-lemma -o missing/claims.h5", &result);
  cr_expect(result.exit_code == 74 && strstr(result.err, "missing"), "%s", result.err);
}

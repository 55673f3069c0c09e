/* claims.c - the file that attnlab claims writes; outcomes are in cases/claims.txt. */
#include <hdf5.h>

#include "tests/support/command.h"

TestSuite(claims, .init = command_enter, .fini = command_leave);

static double first_of(hid_t file, const char *name, hsize_t *count) {
  double values[64] = {0};
  hid_t set = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(set);
  cr_assert(H5Sget_simple_extent_dims(space, count, NULL) == 1 && *count <= 64);
  cr_assert(H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  H5Sclose(space), H5Dclose(set);
  return values[0];
}

/* A row a figure: of the two claims five. */
Test(claims, file) {
  command_run_good("claims linformer-lemma flash-memory -o claims.h5");
  hid_t file = H5Fopen("claims.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
  hsize_t count;
  const double value = first_of(file, "value", &count);
  cr_expect(count == 5 && first_of(file, "low", &count) <= value && first_of(file, "high", &count) >= value);
  cr_expect(fabs(first_of(file, "level", &count) - 0.95) < 1e-12);
  cr_expect(fabs(first_of(file, "said", &count) - (1 - 2 * exp(-8))) < 1e-12);
  cr_expect(H5Lexists(file, "verdict", H5P_DEFAULT) > 0 && H5Lexists(file, "interval", H5P_DEFAULT) > 0);
  H5Fclose(file);
}

/* fuzz_times.c - times of others: each has a setting, a device, n and a time above 0. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

#include "experiments/analysis/other_times.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  other_times times;
  const char *path = fuzz_file("x.csv", data, size);
  fuzz_prepare(&times, sizeof times);
  if (!fuzz_succeeded(other_times_read(path, &times), &times, sizeof times)) return 0;
  REQUIRE(times.count > 0);
  for (const other_time *one = times.items; one < times.items + times.count; one++)
    REQUIRE(one->texts[0] && one->texts[1] && one->texts[2] && one->seconds > 0 && one->axis[AXIS_n] > 0);
  free(times.items);
  return 0;
}

/* version.c - the version, ABI and struct sizes that callers in other languages compare with their own, and
 * the limits of the machine. */
#include "attn_variant.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

Test(core_version, sizes_are_those_of_the_header) {
  static const struct {
    const char *name;
    size_t bytes;
  } known[] = {{"problem", sizeof(attn_problem)},
               {"options", sizeof(attn_options)},
               {"cost", sizeof(attn_cost)},
               {"stride", sizeof(attn_stride)},
               {"view", sizeof(attn_view)},
               {"variant", sizeof(attn_variant)},
               {"context", sizeof(attn_context)},
               {"call", sizeof(attn_call)},
               {"param", sizeof(attn_param)},
               {"feature_law", sizeof(attn_feature_law)},
               {"budget", sizeof(attn_budget)},
               {"attn_problem", 0},
               {"problems", 0},
               {"", 0}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    cr_expect(attn_sizeof(known[i].name) == known[i].bytes, "%s: %zu", known[i].name,
              attn_sizeof(known[i].name));
}

Test(core_version, names_itself) {
  cr_expect(attn_abi() == ATTN_ABI);
  int parts[3], end = 0;
  cr_expect(sscanf(attn_version(), "%d.%d.%d%n", &parts[0], &parts[1], &parts[2], &end) == 3 &&
                !attn_version()[end],
            "%s", attn_version());
}

/* ---- the machine: measured on every instruction set, refused for wrong arguments; no rate is asserted */

enum { BYTES = 1 << 16 };

Test(peak, every_instruction_set) {
  void *buffer = calloc(1, BYTES);
  cr_assert(buffer);
  for (const char *const *isa = attn_isa_list(); *isa; isa++)
    for (int threads = 1; threads <= 3; threads++) {
      const attn_options options = {.threads = threads, .isa = *isa};
      for (attn_peak_kind t = ATTN_PEAK_F32; t <= ATTN_PEAK_BF16; t++) {
        double rate = -1;
        cr_expect(!attn_peak(&options, t, 1e-4, &rate));
        cr_expect(isfinite(rate) && rate > 0, "%s: %g", *isa, rate);
      }
      double bandwidth = -1;
      cr_expect(!attn_read_bandwidth(&options, buffer, BYTES, 1e-4, &bandwidth));
      cr_expect(isfinite(bandwidth) && bandwidth > 0, "%s: %g", *isa, bandwidth);
    }
  free(buffer);
}

Test(peak, refuses) {
  static const char small[64];
  double rate = -1;
  const attn_options unknown = {.isa = "abacus"}, threads = {.threads = -1}, fine = {.threads = 1};
  cr_expect(attn_peak(&unknown, ATTN_PEAK_F32, 1e-4, &rate) == ATTN_EINVAL);
  cr_expect(attn_peak(&threads, ATTN_PEAK_F32, 1e-4, &rate) == ATTN_EINVAL);
  cr_expect(attn_read_bandwidth(&unknown, small, sizeof small, 1e-4, &rate) == ATTN_EINVAL);
  cr_expect(attn_read_bandwidth(&threads, small, sizeof small, 1e-4, &rate) == ATTN_EINVAL);
  cr_expect(attn_read_bandwidth(&fine, small, sizeof small, 1e-4, &rate) == ATTN_EINVAL);
  cr_expect(rate < 0, "a failed call wrote its result");
}

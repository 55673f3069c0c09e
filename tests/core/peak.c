/* peak.c - the machine's limits: measured on every instruction set, refused for wrong arguments. No
 * rate is asserted. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "attn.h"

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

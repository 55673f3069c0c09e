/* spec.h - specs that a test writes as texts. */
#ifndef TESTS_SUPPORT_SPEC_H
#define TESTS_SUPPORT_SPEC_H

#include <criterion/criterion.h>

#include "attn.h"

/* Lives as long as the test. */
static inline attn_spec *spec_of(const char *text) {
  static attn_spec *kept[256];
  static int count;
  cr_assert(count < 256);
  cr_assert_eq(attn_spec_parse(&kept[count], text), ATTN_OK, "%s", attn_last_error());
  return kept[count++];
}

#endif

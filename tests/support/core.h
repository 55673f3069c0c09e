/* core.h - what the tests of core/ include; one file of a program does. */
#ifndef TESTS_SUPPORT_CORE_H
#define TESTS_SUPPORT_CORE_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/oracle.h"

void fail_test(void) { cr_expect(false, "the failures noted above"); }

/* A plan that must be made, and what it shows. */
static inline attn_plan *plan_inspected(const attn_problem *p, const char *spec, const attn_options *options,
                                        attn_view *view) {
  attn_plan *plan = plan_or_note(p, spec, options);
  cr_assert_not_null(plan);
  cr_assert_eq(attn_plan_inspect(plan, view), ATTN_OK);
  return plan;
}

#endif

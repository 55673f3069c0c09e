/* data_fixture.h - what the tests of data/ share, and the check of a refusal. */
#ifndef TESTS_SUPPORT_DATA_FIXTURE_H
#define TESTS_SUPPORT_DATA_FIXTURE_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data.h"
#include "tests/support/files.h"

/* A refusal has the status, and a line that names `what`. */
#define assert_refused(call, wanted, what)                                                                  \
  do {                                                                                                      \
    attn_status refusal = (call);                                                                           \
    cr_assert_eq(refusal, wanted, "%s: %s, %s", #call, attn_status_name(refusal), attn_last_error());       \
    cr_assert_not_null(strstr(attn_last_error(), what), "'%s' does not say '%s'", attn_last_error(), what); \
    cr_assert_null(strchr(attn_last_error(), '\n'));                                                        \
  } while (0)

#define assert_ok(call) cr_assert_eq(call, ATTN_OK, "%s: %s", #call, attn_last_error())

#endif

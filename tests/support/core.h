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

#endif

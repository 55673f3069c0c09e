/* refuse.h - which allocations refuse.c refuses, for a test that it is linked to. */
#ifndef TESTS_SUPPORT_REFUSE_H
#define TESTS_SUPPORT_REFUSE_H

#include <stdbool.h>

/* From here on allocation number `at' (0: the next) is refused, with `after' all after it, too; below 0: none
 * is. */
void refuse_from(long at, bool after);
long refuse_calls(void); /* allocations since */

extern bool refuse_paused; /* what is allocated now is neither counted nor refused */

#endif

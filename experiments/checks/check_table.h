/* check_table.h - the const object of every check. */
#ifndef EXPERIMENTS_CHECKS_CHECK_TABLE_H
#define EXPERIMENTS_CHECKS_CHECK_TABLE_H

#include "experiments/checks/check.h"

#define FAMILY(title)
#define CHECK(name) extern const check check_##name;
#include "experiments/checks/checks.def"
#undef FAMILY
#undef CHECK

#endif

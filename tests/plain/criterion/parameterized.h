/* criterion/parameterized.h - is part of criterion.h here. */
#include <criterion/criterion.h>

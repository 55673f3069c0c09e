/* function_law.h - which keys a function says that its queries see, as a pattern. */
#ifndef EXPERIMENTS_FUNCTIONS_FUNCTION_LAW_H
#define EXPERIMENTS_FUNCTIONS_FUNCTION_LAW_H

#include "experiments/functions/function_program.h"

/* Asks the program of all queries and keys of the builder's problem. EINVAL, EFOREIGN, ENOMEM. */
attn_status function_law_plan(attn_builder *, function_program *, attn_pattern *);

#endif

/* param.h - the parameters of a set's variants as columns p_<name>. */
#ifndef EXPERIMENTS_RESULTS_PARAM_H
#define EXPERIMENTS_RESULTS_PARAM_H

#include "experiments/results/set.h"
#include "experiments/support/names.h"

const result_param *result_row_param(const result_row *, const char *name); /* NULL: none of the name */

/* Adds the names that the rows have. ENOMEM. */
attn_status results_param_names(const result_set *, names *);
/* A name that is a text of any row is a column of texts. */
bool results_param_is_text(const result_set *, const char *name);
/* "parameter window, of longformer: keys to each side; of bigbird: ...": what the tables of the library's
 * variants in the set say. To be freed; NULL: no memory. */
char *results_param_about(const result_set *, const char *name);

#endif

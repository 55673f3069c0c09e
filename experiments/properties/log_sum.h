/* log_sum.h - the log-sum-exp of rows in fp64, log sum_j exp(scale q_i . k_j) over the keys that query i
 * sees: every key, those of the pattern's law, or those that are selected. */
#ifndef EXPERIMENTS_PROPERTIES_LOG_SUM_H
#define EXPERIMENTS_PROPERTIES_LOG_SUM_H

#include "experiments/evidence/judged_run.h"

/* expected, and bound: by how much a computation that rounds as the view describes may differ; where it
 * describes nothing, the textbook form in the precision of the tensors. A NaN bound: there is none, and *why
 * has the reason. Rows in ascending order; of e: plan, problem, view, q, k, v, kv_len. */
attn_status log_sum_rows(const evidence *, const sample_row *, int64_t count, double *expected, double *bound,
                         const char **why);

/* Is it the expected number? Exactly -Inf where nothing is seen. */
bool log_sum_holds(double given, double expected, double bound);

#endif

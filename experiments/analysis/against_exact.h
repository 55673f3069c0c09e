/* against_exact.h - every line of a group against the exact one. */
#ifndef EXPERIMENTS_ANALYSIS_AGAINST_EXACT_H
#define EXPERIMENTS_ANALYSIS_AGAINST_EXACT_H

#include "experiments/analysis/model.h"

/* Fills speed-ups and crossings of a group. ENOMEM. */
attn_status compare_group(const results_model *, model_group *);

#endif

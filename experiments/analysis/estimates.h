/* estimates.h - how good the estimates of time and memory were. */
#ifndef EXPERIMENTS_ANALYSIS_ESTIMATES_H
#define EXPERIMENTS_ANALYSIS_ESTIMATES_H

#include "experiments/analysis/model.h"

/* What was estimated of the runs beforehand against what they took: an array of {"line": setting, "time",
 * "run", "memory": [runs, median of actual over estimate, the ratio farthest from 1, its n]}, of the settings
 * of which anything was estimated. NULL without memory. */
json_t *estimates_json(const results_model *);

#endif

/* qnt_versions.h - the output of a store with a residual, on the keys and values that each query reads. */
#ifndef EXPERIMENTS_CHECKS_STORES_QNT_VERSIONS_H
#define EXPERIMENTS_CHECKS_STORES_QNT_VERSIONS_H

#include "experiments/evidence/judged_run.h"

/* Judges some rows of the run, those of its edges among them. */
attn_status store_versions_judge(const evidence *, result_bound *);

#endif

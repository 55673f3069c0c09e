/* share_budget.h - a total of keys shared among the layers of a model, so that what they cost together is
 * least. */
#ifndef EXPERIMENTS_QUALITY_BUDGETS_SHARE_BUDGET_H
#define EXPERIMENTS_QUALITY_BUDGETS_SHARE_BUDGET_H

#include "attn.h"

/* One of `settings` for each layer, chosen [layers]: of those whose budgets, from 0 on, add up to at most
 * `total` the choice of the least sum of cost [layers, settings] (NaN: cannot be chosen), *predicted. By
 * dynamic programming over layers and what is spent, so that costs may be any curves of the budget. EINVAL:
 * no choice is within the total; ENOMEM */
attn_status share_budget(int64_t layers, int64_t settings, const int64_t *budget, const double *cost,
                         int64_t total, int64_t *chosen, double *predicted);

#endif

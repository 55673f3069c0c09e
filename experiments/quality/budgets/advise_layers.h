/* advise_layers.h - which settings of each method a model's layers may have for a divergence, and whether the
 * model agrees.
 *
 * Of each method the settings are run in all layers at once, for the error e_l of each layer's attention, and
 * one of them, the middle one, layer by layer, for s_l = KL_l / e_l^2. Layers are predicted to add up: layer
 * l has the setting that reads least among those with s_l e_l^2 <= kl / L, or stays exact. The assignment is
 * then run whole.
 *
 * Within a budget, which the parameters that buy accuracy may have on average over the layers, every setting
 * is run layer by layer, and layers have those whose KL add up to the least sum (share_budget.h); the model
 * is run so, and with this budget in every layer. */
#ifndef EXPERIMENTS_QUALITY_BUDGETS_ADVISE_LAYERS_H
#define EXPERIMENTS_QUALITY_BUDGETS_ADVISE_LAYERS_H

#include <stdio.h>

#include "experiments/quality/request.h"

/* budget 0: within kl_budget. Of the request: ids, specs (settings of one or several methods), one task, one
 * n, windows, seed, limit and kl_budget. *best: the assignment that reads least of those that keep kl_budget,
 * or else the one of the least KL, to be freed; NULL: every layer stays exact. EUNSUPPORTED: no setting could
 * be run; EINVAL: a variant has no budget, or none as small. */
attn_status quality_advise(const quality_request *, quality_store *, int64_t budget, FILE *out, char **best);

#endif

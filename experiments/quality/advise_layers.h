/* advise_layers.h - which settings of each method a model's layers may have for a divergence, and whether the
 * model agrees.
 *
 * Of each method the settings are run in all layers at once, for the error e_l of each layer's attention, and
 * one of them, the middle one, layer by layer, for s_l = KL_l / e_l^2. Layers are predicted to add up: layer
 * l has the setting that reads least among those with s_l e_l^2 <= kl / L, or stays exact. The assignment is
 * then run whole. */
#ifndef EXPERIMENTS_QUALITY_ADVISE_LAYERS_H
#define EXPERIMENTS_QUALITY_ADVISE_LAYERS_H

#include <stdio.h>

#include "experiments/quality/request.h"

/* Of the request: ids, specs (settings of one or several methods), one task, one n, windows, seed, limit and
 * kl_budget. EUNSUPPORTED: no setting could be run. */
attn_status quality_advise(const quality_request *, quality_store *, FILE *out);

#endif

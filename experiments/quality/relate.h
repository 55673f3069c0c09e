/* relate.h - what the runs of an evaluation say together: which of them change the likelihood, all runs of a
 * question considered (Holm), whether layers add up, and what error each layer may have. */
#ifndef EXPERIMENTS_QUALITY_RELATE_H
#define EXPERIMENTS_QUALITY_RELATE_H

#include "experiments/quality/evaluation_rows.h"

/* Fills word_p, word_holm, score_p_holm, doubt, sensitivity, error_allowed and additivity of all records.
 * ENOMEM
 *
 * sensitivity = KL / error^2, error that of the replaced attention: while the model answers in proportion, KL
 * is a quadratic form of the change, and the same at any mix. For a divergence of `kl_budget` over L layers,
 * which add up, a run over m of them has the share m / L and may have error_allowed = sqrt(kl_budget m / (L
 * sensitivity)). additivity, of a run over all layers whose layers were run one by one: the sum of their KL
 * over its own. */
attn_status quality_relate(quality_set *);

/* Whether the same model was asked the same on the same windows. */
bool quality_same_question(const quality_record *, const quality_record *);

#endif

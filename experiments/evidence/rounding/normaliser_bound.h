/* normaliser_bound.h - how far rounding may take a row whose weights are another function of the scores than
 * softmax, by the law of that function. */
#ifndef EXPERIMENTS_EVIDENCE_ROUNDING_NORMALISER_BOUND_H
#define EXPERIMENTS_EVIDENCE_ROUNDING_NORMALISER_BOUND_H

#include "experiments/evidence/judged_run.h"
#include "experiments/evidence/support_row.h"

/* Of a weight by the law, beside the roundings of the scores: those of weight and of normalise. */
#define NORMALISER_ERROR 0x1p-48

/* With s->q, which becomes the columns that are multiplied, and the support set: scores by place in s->score,
 * gates included, less the largest if weights sum to 1; s->slack how far computed ones may be off; s->units
 * the scores less that, s->map more. moved: as of row_attend. */
row_verdict normaliser_scores(const evidence *, const head_data *, const double *moved, row_space *);

/* Both, and the sum over keys: s->o and s->bound; s->weight by the law, s->units and s->map the least and the
 * greatest that a computed weight may be. */
row_verdict normaliser_bound(const evidence *, const head_data *, const double *moved, row_space *);

/* What sums of weights that are to be 1 may be off. */
double normaliser_sum_error(const evidence *);

#endif

/* judged_layer.h - a replaced layer as a run of a sweep is judged: by every check of the kind of variant that
 * its plan is, on the model's own queries, keys and values. */
#ifndef EXPERIMENTS_QUALITY_JUDGED_LAYER_H
#define EXPERIMENTS_QUALITY_JUDGED_LAYER_H

#include "data/data.h"
#include "experiments/results/row.h"

typedef struct judged_cells {
  result_bound *at; /* [count] to be freed */
  int count;
} judged_cells;

/* Adds the cells of the layer, whose output the plan computes again: of a check that has a cell already (of
 * another variant in another layer) the worse is kept. */
attn_status judged_layer_add(const data_llama_attention *, judged_cells *);

#endif

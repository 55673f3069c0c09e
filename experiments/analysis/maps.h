/* maps.h - attention maps as pictures. */
#ifndef EXPERIMENTS_ANALYSIS_MAPS_H
#define EXPERIMENTS_ANALYSIS_MAPS_H

#include "experiments/analysis/model.h"

/* The attention maps of the cells, at the first seed that has one (maps.c names the members). Pictures are
 * made coarser where there are too many of them for a page. NULL: no memory. */
json_t *maps_json(const results_model *);

#endif

/* depth_maps.h - answers by where in the window they stand, and by its length (a needle in a haystack). */
#ifndef EXPERIMENTS_QUALITY_DEPTH_MAPS_H
#define EXPERIMENTS_QUALITY_DEPTH_MAPS_H

#include <stdio.h>

#include "experiments/quality/evaluation_rows.h"
#include "experiments/support/table.h"

/* For each question that was asked at several depths of 0 to 1, a table of the share of windows that are
 * answered: of the exact model, then of each variant, a row for each n and a column for each depth. ENOMEM */
attn_status quality_print_depths(FILE *, const quality_set *, table_format);

#endif

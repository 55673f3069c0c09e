/* kinds.h - what the formats write, for output_check before the work. */
#ifndef DATA_FORMATS_KINDS_H
#define DATA_FORMATS_KINDS_H

#include "data/support/output.h"

extern const output_kind kind_npy;     /* npy.c */
extern const output_kind kind_capture; /* hdf5.c */
extern const output_kind kind_graph;   /* graph_rows.c */

#endif

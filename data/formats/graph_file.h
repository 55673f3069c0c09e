/* graph_file.h - compressed sparse rows on their way from a file to a graph. Internal to data/. */
#ifndef DATA_FORMATS_GRAPH_FILE_H
#define DATA_FORMATS_GRAPH_FILE_H

#include <stdbool.h>

#include "attn_variant.h"

typedef struct graph_rows {
  int64_t starts, edges; /* elements of indptr, which has one at least, and of indices */
  int64_t *indptr, *indices;
} graph_rows;

/* Checks the rows against what is wanted. */
attn_status graph_from_rows(const char *path, const graph_rows *, const attn_graph_request *, attn_graph *);

/* As data_graph_read; parents: a list of one axis is of parents, and else refused. */
attn_status graph_read(const char *path, bool parents, const attn_graph_request *, attn_graph *);
attn_status graph_read_hdf5(const char *path, const attn_graph_request *, attn_graph *);
attn_status graph_read_safetensors(const char *path, const attn_graph_request *, attn_graph *);

#endif

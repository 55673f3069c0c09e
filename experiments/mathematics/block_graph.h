/* block_graph.h - the graph of blocks that see one another in a pattern. */
#ifndef EXPERIMENTS_MATHEMATICS_BLOCK_GRAPH_H
#define EXPERIMENTS_MATHEMATICS_BLOCK_GRAPH_H

#include "attn_variant.h"

/* edge[a * blocks + b]: a query of one of the blocks a, b sees a key of the other. */
attn_status graph_build(const attn_pattern *pattern, const attn_problem *p, int64_t head, int64_t block,
                        int64_t blocks, bool *edge);

/* Longest of the shortest paths, infinite if some block cannot be reached. queue, depth: blocks. */
double graph_diameter(const bool *edge, int64_t blocks, int64_t *queue, int64_t *depth);

/* The bound from the spectrum; infinite where lambda is 1 to within the solver's error. */
attn_status graph_spectral_bound(const bool *edge, int64_t blocks, double *out);

#endif

/* graph.h - the graph of blocks that see one another in a pattern. */
#ifndef EXPERIMENTS_MATHEMATICS_GRAPH_H
#define EXPERIMENTS_MATHEMATICS_GRAPH_H

#include "attn_variant.h"

/* The largest modulus of the eigenvalues of D^{-1/2} A D^{-1/2} but the first, A the symmetrised graph of
 * blocks of a head's pattern. ENOMEM, EFOREIGN. */
attn_status graph_eigenvalue(const attn_pattern *, const attn_problem *, int64_t head, int64_t block,
                             double *lambda);

#endif

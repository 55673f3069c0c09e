/* lin_matrix.h - the matrices E and F behind a projection, read off a plan of the same variant and parameters
 * on a problem that the check chooses. */
#ifndef EXPERIMENTS_CHECKS_LIN_MATRIX_H
#define EXPERIMENTS_CHECKS_LIN_MATRIX_H

#include "experiments/evidence/judged_run.h"

typedef struct projector {
  attn_problem problem;
  attn_plan *plan;
  attn_view view;
  attn_status status; /* of the plan */
} projector;

/* A plan of the spec (NULL: the run's own) in fp64, contiguous, not causal; n_q as it must be. EUNSUPPORTED,
 * EINVAL: the variant does not take the problem. Release with projector_free, also after a failure. */
attn_status projector_make(const evidence *, const attn_spec *spec, const attn_problem *, int threads,
                           projector *);
void projector_free(projector *);

/* y[used, d] = E x of the kv head, x [keys, d], as one slab; in pieces: slabs of one slice, of the next two,
 * and of the rest, accumulated. *used: the slots in use. */
attn_status projector_apply(const projector *, int64_t head, attn_side, const double *x, int64_t keys,
                            int64_t d, bool pieces, double *y, int64_t *used);

/* e[used, keys]: the projection of the identity of `keys` rows. */
attn_status projector_read(const projector *, int64_t head, attn_side, int64_t keys, double *e,
                           int64_t *used);

#endif

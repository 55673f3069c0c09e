/* lin_matrix.h - the matrices E and F behind a projection, read off a plan of the same variant and parameters
 * on a problem that the check chooses, and the slots that they give. */
#ifndef EXPERIMENTS_CHECKS_LIN_MATRIX_H
#define EXPERIMENTS_CHECKS_LIN_MATRIX_H

#include "experiments/evidence/head.h"

typedef struct projector {
  attn_problem problem;
  attn_plan *plan;
  attn_view view;
  attn_status status; /* of the plan */
} projector;

/* A plan of the spec (NULL: the run's own) in fp64, contiguous, not causal; n_q as it must be. EUNSUPPORTED,
 * EINVAL: the variant does not take the problem. Release with projector_free, also after a failure. */
attn_status projector_make(const evidence *, const attn_spec *spec, const attn_problem *, projector *);
void projector_free(projector *);

/* y[used, d] = E x of the kv head, x [keys, d], as one slab; in pieces: slabs of one slice, of the next two,
 * and of the rest, accumulated. *used: the slots in use. */
attn_status projector_apply(const projector *, int64_t head, attn_side, const double *x, int64_t keys,
                            int64_t d, bool pieces, double *y, int64_t *used);

/* e[used, keys]: the projection of the identity of `keys` rows. */
attn_status projector_read(const projector *, int64_t head, attn_side, int64_t keys, double *e,
                           int64_t *used);

/* E and F of one kv head over the first `keys` keys. */
typedef struct projected_pair {
  int64_t keys, used, columns;
  double *e, *f;         /* [used, columns], keys <= columns; f may be e */
  double e_norm, f_norm; /* the largest of a row */
} projected_pair;

/* Release with projected_pair_free. */
attn_status projected_pair_read(const projector *, int64_t head, int64_t keys, projected_pair *);
void projected_pair_free(projected_pair *);

/* y[used, d] = e x, e of the pair. */
void projected_product(const projected_pair *, const double *e, const double *x, int64_t d, double *y);
/* What rounding to `unit` does to component l of a slot, and the fp64 of this reference. */
void projected_errors(const double *x, int64_t keys, int64_t d, double norm, double unit, double *out);

/* The slots of one (batch, kv head), and how far they may be off. It may not be moved. */
typedef struct projected_slots {
  attn_problem problem;
  head_data head;
  double *key_error, *value_error;
} projected_slots;

attn_status projected_slots_make(const attn_problem *, const projected_pair *, const double *k,
                                 const double *v, double unit, projected_slots *);
void projected_slots_free(projected_slots *);

#endif

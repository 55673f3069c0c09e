/* latent_copies.h - the factors of a variant of latents (attn_latent) on the tensors of a run, and the keys
 * and values that they give, for judges. */
#ifndef EXPERIMENTS_EVIDENCE_LATENT_COPIES_H
#define EXPERIMENTS_EVIDENCE_LATENT_COPIES_H

#include "experiments/evidence/stored_copies.h"

/* Of one batch entry. */
typedef struct latent_factors {
  int64_t keys, width, rank;
  double *x; /* [keys, width]: K of all kv heads, then V */
  double *c; /* [rank, keys] */
  double *w; /* [rank, width] */
} latent_factors;

/* k, v: contiguous, of the plan's dtype and shapes; the first `keys` rows of the entry's heads exist. Release
 * with latent_factors_free, also where it fails. */
attn_status latent_factors_make(const attn_plan *, const attn_latent *, const void *k, const void *v,
                                int64_t batch, int64_t keys, latent_factors *);
void latent_factors_free(latent_factors *);

/* Row j of C W^T, [width]. */
void latent_row(const latent_factors *, int64_t j, double *to);

/* Keys and values of `count` entries as their factors give them, rounded to the plan's dtype: contiguous,
 * zeros where there are no keys. Release with stored_copies_free, also where it fails. */
attn_status latent_copies_make(const attn_plan *, const latent_factors *, int64_t count, stored_copies *);

#endif

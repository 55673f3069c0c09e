/* latent_copies.h - the factors of a variant of latents (attn_latent) on the tensors of a run, and the keys
 * and values that they give, for judges. */
#ifndef EXPERIMENTS_EVIDENCE_LATENT_COPIES_H
#define EXPERIMENTS_EVIDENCE_LATENT_COPIES_H

#include "experiments/evidence/stored_copies.h"
#include "experiments/evidence/support_row.h"

/* Of one batch entry; the first `fitted` of its keys are those to which W is fitted. */
typedef struct latent_factors {
  int64_t keys, fitted, width, rank;
  region memory;
  double *x; /* [keys, width]: K of all kv heads, then V */
  double *c; /* [rank, keys] */
  double *w; /* [rank, width] */
} latent_factors;

/* k, v: contiguous, of the plan's dtype and shapes; the first `keys` rows of the entry's heads exist. Release
 * with latent_factors_free, also where it fails. */
attn_status latent_factors_make(const attn_plan *, const attn_latent *, const void *k, const void *v,
                                int64_t batch, int64_t keys, latent_factors *);
void latent_factors_free(latent_factors *);

/* Does query i read latents, or is it one of the prompt, and reads keys and values as they are given? */
static inline bool latent_reads(const attn_latent *l, const attn_problem *p, int64_t i) {
  return !l->prompt || attn_problem_position(p, i) >= l->prompt;
}

/* Row j of C W^T, [width]. */
void latent_row(const latent_factors *, int64_t j, double *to);

/* Keys and values of `count` entries as their factors give them, rounded to the plan's dtype: contiguous,
 * zeros where there are no keys. Release with stored_copies_free, also where it fails. */
attn_status latent_copies_make(const attn_plan *, const latent_factors *, int64_t count, stored_copies *);

/* Both of all batch entries, and how large their products may be. */
typedef struct latent_run {
  const attn_problem *problem;
  const attn_view *view;
  latent_factors *of; /* [batch] */
  double *reach;      /* [batch, rank] largest |c_je| over the keys */
  stored_copies kept;
  region memory; /* of `of` and `reach` */
} latent_run;

/* k, v as above; kv_len: NULL, or of each entry. Release with latent_run_free, also where it fails. */
attn_status latent_run_make(const attn_plan *, const attn_view *, const void *k, const void *v,
                            const int64_t *kv_len, latent_run *);
void latent_run_free(latent_run *);

/* With space->q and the support of a row set: row_attend of the head's keys, and FP-3 with |c| sum_le
 * |q_l||W_le| max_j |c_je| in place of |c||q||k_j| (MLA-1); *v_reach: what is in place of the largest value.
 * Of a query that reads no latents, FP-3. */
row_verdict latent_row_bound(const latent_run *, const head_data *, row_space *, prior *, double *v_reach);
/* By it, how far a component of such a row may be off, whose values have this range. */
static inline double latent_off(const prior *r, double range, double v_reach) {
  return r->spread * range + (r->growth + 0x1p-40) * v_reach + r->floor;
}

#endif

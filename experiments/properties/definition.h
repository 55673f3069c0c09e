/* definition.h - a row of a variant's output straight from what the variant describes, in fp64. */
#ifndef EXPERIMENTS_PROPERTIES_DEFINITION_H
#define EXPERIMENTS_PROPERTIES_DEFINITION_H

#include "experiments/checks/lin_matrix.h"
#include "experiments/evidence/latent_copies.h"
#include "experiments/evidence/probe.h"
#include "experiments/properties/property.h"

/* Is there one? */
bool definition_exists(const attn_view *);
/* Is a row divided by the sum of its weights, which may cancel? */
bool definition_divides(const attn_view *);

/* What the rows of one batch entry and head share. It may not be moved. */
typedef struct definition {
  evidence e; /* of a run on `in`, without an output */
  const trial_inputs *in;
  region memory;
  head_data head;     /* keys and values as the last row read them */
  stored_copies kept; /* those of the head as they are stored, or as latents give them */
  probe_features features;
  projected_slots slots;
  seen_keys seen;
  row_space space;
  double *o, *amplified; /* low rank: [n_q, d_v], [n_q]; else NULL */
} definition;

attn_status definition_make(const attn_plan *, const attn_view *, const trial_inputs *, int64_t batch,
                            int64_t head, definition *);
void definition_free(definition *);

/* Row i into o [d_v]. Returns by how much rounding in the weights is amplified: sum |w_j| / |sum w_j|, or
 * infinity where the row is not defined, or of a recurrence may overflow. */
double definition_row(definition *, int64_t i, double *o);

#endif

/* definition.h - a row of a variant's output straight from what the variant describes, in fp64. */
#ifndef EXPERIMENTS_PROPERTIES_DEFINITION_H
#define EXPERIMENTS_PROPERTIES_DEFINITION_H

#include "experiments/reference/seen.h"
#include "experiments/evidence/latent_copies.h"
#include "experiments/properties/property.h"

/* Is there one? */
bool definition_exists(const attn_view *);
/* Is a row divided by the sum of its weights, which may cancel? */
bool definition_divides(const attn_view *);

/* What the rows of one batch entry and head share: features, or projected keys and values. */
typedef struct definition {
  const attn_plan *plan;
  const attn_view *view;
  const trial_inputs *in;
  int64_t batch, head;
  region memory;
  stored_copies kept;  /* keys and values of the head, as they are stored */
  double *weights, *q; /* [n] of a row; [d_qk] its query */
  double *met;         /* [d_qk] a key, as that query meets it */
  double *query, *key; /* features; slots: keys, then values */
  double *scale;       /* of the keys' features */
  double *query_scale; /* of the queries */
  int64_t slots;       /* in use */
  seen_keys seen;
  attn_run *runs;
  bool *inside; /* [n] the keys that a row sees */
  int64_t *index;
  double *log_weights;   /* [n] of those, by place */
  double *o, *amplified; /* low rank: [n_q, d_v], [n_q]; else NULL */
} definition;

attn_status definition_make(const attn_plan *, const attn_view *, const trial_inputs *, int64_t batch,
                            int64_t head, definition *);
void definition_free(definition *);

/* Row i into o [d_v]. Returns by how much rounding in the weights is amplified: sum |w_j| / |sum w_j|, or
 * infinity where the row is not defined, or of a recurrence may overflow. */
double definition_row(const definition *, int64_t i, double *o);

#endif

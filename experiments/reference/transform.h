/* transform.h - what a problem makes of its scores (attn_problem.score), written from the definitions in
 * attn.h and apart from the core, with what rounding costs:
 *   s' = map(t) + relative + dense,  |map(t') - map(t)| <= |t' - t|
 * so that the error of t = scale * q.k passes through, and a computed s' is off by at most that and
 *   u (|s'| of a leaky map + 3 |b| of each bias + 2 |s'| + 2 |dense| if there is any) + rounding.map
 *   |map(t)|.
 * A log-weight w that a selection gives a key is added to its bias b before the score is:
 *   s'' = s' + w, and u (3 |w| + |b + w| + 2 |s''|) more. */
#ifndef EXPERIMENTS_REFERENCE_TRANSFORM_H
#define EXPERIMENTS_REFERENCE_TRANSFORM_H

#include "attn_variant.h"

typedef struct transformed {
  double score;
  double bias;  /* what was added: at most so much */
  double units; /* times the unit roundoff: the error of biases and of the leaky map */
  double map;   /* times attn_rounding.map: that of the soft cap */
} transformed;

/* The score of query i and key j, of t = scale * q.k; not of a key whose bias is -Inf (visible.h). */
transformed transform_score(const attn_problem *, int64_t batch, int64_t head, int64_t i, int64_t j,
                            double t);

/* Adds a log-weight. */
void transform_weigh(transformed *, double log_weight);

/* Is any score another than t? Has any row a sink? */
bool transform_any(const attn_problem *);

/* The greatest magnitude of what is added to a score of the row, or of its sink: |s'| <= |t| + this. */
double transform_most(const attn_problem *, int64_t batch, int64_t head, int64_t i);

/* Relative error of the soft cap in fp64: the quotient, tanh within two ulps, the product. */
double transform_reference_map(const attn_problem *);

/* The problem with its scores as they are and no mask but causality and padding: of probes and trials, whose
 * rows are at other positions and in other heads. */
void transform_clear(attn_problem *);
/* The problem of one head of one batch entry, strides of Q, K, V, O left alone. */
void transform_one_head(attn_problem *, int64_t batch, int64_t head);

#endif

/* gradient_run.h - a variant run forward and backward on the inputs of a trial. */
#ifndef EXPERIMENTS_PROPERTIES_GRADIENT_RUN_H
#define EXPERIMENTS_PROPERTIES_GRADIENT_RUN_H

#include "experiments/properties/property.h"

/* What a problem's score has, what it is moved to, and the gradient by it; count 0: nobody asks for that. */
typedef struct run_biases {
  int64_t count;
  const double *own;
  double *moved, *gradient;
} run_biases;
enum { RUN_SINK, RUN_RELATIVE, RUN_DENSE, RUN_BIASES };

/* A loss <d_o, o> + <dlse, lse> of a plan's outputs on inputs, and its gradients, contiguous. */
typedef struct gradient_run {
  const attn_plan *plan;
  const trial_inputs *in;
  attn_view view;
  char *o, *d_o, *work;
  double *lse, *dlse; /* [batch, heads, n_q]; NULL: the variant has none */
  char *dq, *dk, *dv;
  attn_extra extra[ATTN_EXTRA_KINDS]; /* fp64; what is executed on, and may be moved from their own numbers */
  double *own[ATTN_EXTRA_KINDS], *moved[ATTN_EXTRA_KINDS], *dextra[ATTN_EXTRA_KINDS];
  int64_t extras;
  run_biases biases[RUN_BIASES];
} gradient_run;

/* Draws d_o and dlse, and of a recurrence the extra tensors, of which some have one batch entry or fewer
 * heads for all; takes the outputs' memory from the region. The plan is of the inputs' problem. */
attn_status gradient_run_make(region *, const attn_plan *, const trial_inputs *, gradient_run *);
int64_t gradient_run_count(const attn_extra *); /* elements */
/* Asks for the gradients by what the problem's score has; a dense bias is fp64, its rows one behind the
 * other. */
attn_status gradient_run_ask_biases(region *, gradient_run *);
/* Its outputs on inputs of the same shapes, and *loss, summed in fp64; *size: the sum of its terms'
 * magnitudes. */
attn_status gradient_run_forward(gradient_run *, const trial_inputs *, double *loss, double *size);
/* The gradients at the run's own inputs, after its forward pass there; NaN where they are left unwritten. */
attn_status gradient_run_backward(gradient_run *);

#endif

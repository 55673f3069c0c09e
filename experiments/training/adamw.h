/* adamw.h - AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) under a rate that rises over a tenth of the
 * steps and falls along half a cosine, of gradients that are cut to a norm of 1. */
#ifndef EXPERIMENTS_TRAINING_ADAMW_H
#define EXPERIMENTS_TRAINING_ADAMW_H

#include <stdbool.h>
#include <stdint.h>

typedef struct adamw {
  int64_t count, steps, step; /* weights; steps of the whole training; how many were taken */
  double rate, decay;         /* at most; of the weights that decay, times the rate */
  const bool *decays;         /* [count] */
  double *first, *second;     /* [count] moments, zeros at first */
} adamw;

/* The rate of a step, counted from 0. */
double adamw_rate(const adamw *, int64_t step);
/* One step; gradients are scaled in place. */
void adamw_step(adamw *, double *gradients, double *weights);

#endif

/* rope.h - rotary and sinusoidal positions (Su et al. 2021; Vaswani et al. 2017). Internal to data/. */
#ifndef DATA_LLAMA_ROPE_H
#define DATA_LLAMA_ROPE_H

#include "data/data.h"

/* theta^(-2i/d) for i < d/2. */
void rope_frequencies(int64_t d, double theta, double *frequency);
/* Rotates the pairs (i, i + d/2) of x by position * frequency[i]. */
void rope_rotate(int64_t d, const double *frequency, int64_t position, double *x);
/* x[2i] += sin(position * frequency[i]), x[2i+1] += cos(...). */
void rope_add_sinusoid(int64_t d, const double *frequency, int64_t position, double *x);

/* The cosines and sines of data_rope_f32 at a position: d/2 pairs of them, each times `attention`. */
void rope_cos_sin(int64_t d, const double *frequency, int64_t position, double attention, double *turns);
/* The first d components of a row, rotated by them; the bits of data_rope_f32. */
void rope_turn(int64_t d, const double *turns, float *x);

#endif

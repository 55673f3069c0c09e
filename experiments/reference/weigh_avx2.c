/* weigh_avx2.c - the loops of weigh.h, vectorised for AVX2. */
#define NAME weigh_avx2
#include "experiments/reference/weigh.inc"

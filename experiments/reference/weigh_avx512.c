/* weigh_avx512.c - the loops of weigh.h, vectorised for AVX-512. */
#define NAME weigh_avx512
#include "experiments/reference/weigh.inc"

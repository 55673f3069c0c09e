/* kernels_common.h - what the vocabularies of all instruction sets share: the coefficients of 2^f = 1 + f
 * g(f) on |f| <= 1/2, g by minimax fit of the relative error of 2^f (fp32: 2.0e-9; fp64: 8.5e-18). */
#ifndef ATTN_KERNELS_COMMON_H
#define ATTN_KERNELS_COMMON_H

#include "kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define LOG2E 1.4426950408889634
#define EXP_ZERO (-1075) /* 2^-1075 rounds to 0 in fp64 */

#define EXP_COEFFICIENTS_F32                                                                 \
  0.69314720285525222f, 0.24022647913611128f, 0.055503324707013496f, 0.0096184373584867529f, \
      0.0013398874588824716f, 0.00015353362061290565f
#define EXP_COEFFICIENTS_F64                                                                        \
  0.69314718055994529, 0.24022650695910097, 0.055504108664821597, 0.0096181291076068882,            \
      0.0013333558146416936, 0.0001540353044173605, 1.5252733829836119e-05, 1.3215442587921689e-06, \
      1.0178062445845774e-07, 7.0725859492692234e-09, 4.4549605981865186e-10

/* Relative error of 2^x by Horner's rule in working precision, in units u of one rounding: the last sum
 * rounds once (u); without fma the product f g, at most 0.41 / 0.71 of the result, rounds too (0.6 u); g
 * carries its own last two roundings (1.2 u); the fit adds less than 0.1 u. Declared: 4 u. */
#define EXP_ERROR_F32 0x1p-22
#define EXP_ERROR_F64 0x1p-51

#endif

/* common.h - what the vocabularies of all instruction sets share: the coefficients of 2^f = 1 + f
 * g(f) on 0 <= f < 1, g by minimax fit of the relative error of 2^f (fp32: 2.0e-9; fp64: 3.2e-18). */
#ifndef ATTN_CORE_KERNELS_COMMON_H
#define ATTN_CORE_KERNELS_COMMON_H

#include "core/kernels/codes.h"
#include "core/kernels/kernels.h"
#include "core/kernels/weight_formats.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define EXP_COEFFICIENTS_F32                                                                 \
  0.69314704444343397f, 0.24022930555085154f, 0.055485280624564179f, 0.0096754515551053521f, \
      0.0012467846556660056f, 0.00021612914564858448f
#define EXP_COEFFICIENTS_F64                                                                         \
  0.69314718055994593, 0.2402265069590633, 0.055504108665602231, 0.0096181290995509522,              \
      0.0013333558629560209, 0.00015403512309801669, 1.5253175052591148e-05, 1.3208367322073526e-06, \
      1.0253212204481519e-07, 6.5595302419991219e-09, 6.2634645537651545e-10

/* Relative error of 2^x by Horner's rule in working precision, in units u of one rounding: the last sum
 * rounds once (u); without fma the product f g, at most half of the result, rounds too (0.5 u); g carries its
 * own last roundings and that of its first coefficient (1.2 u); f is rounded where x is near 0 (0.4 u); the
 * fit adds less than 0.1 u. Declared: 4 u. */
#define EXP_ERROR_F32 0x1p-22
#define EXP_ERROR_F64 0x1p-51

/* tanh x = x + x z t(z), z = x^2, |x| <= TANH_SMALL, by minimax fit of the relative error of tanh (fp32:
 * 4.4e-9; fp64: 3.7e-19). */
#define TANH_SMALL 0.625
#define TANH_COEFFICIENTS_F32                                                                     \
  -0.333332819439521675f, 0.133314422402428472f, -0.0537397176507568403f, 0.0206390934562065788f, \
      -0.00570499226917552879f
#define TANH_COEFFICIENTS_F64                                                                            \
  -0.333333333333333128, 0.133333333333297425, -0.0539682539660587609, 0.0218694884687128053,            \
      -0.00886323431255381556, 0.00359211399975256824, -0.00145572594786165004, 0.000589451799955732051, \
      -0.000237011736846997276, 0.0000915584284606455832, -0.000030187240732636964, 6.04247819155928451e-6

/* Relative error of cap tanh(t / cap), in units u: t times the rounded 1 / cap is off by 1.5, and tanh passes
 * on at most as much (it is concave); up to TANH_SMALL the last sum rounds once, and what it adds, at most
 * 0.12 of the result, is off by at most 4; beyond, e = 2^-x is off by 4 and by 2 x (its rounded argument) of
 * at most 0.29, which the quotient (1 - e) / (1 + e) multiplies by 2 / (1 - e^2) < 2.2, so by less than 5,
 * and rounds three times; the product rounds once. Less than 11; declared: 16. */
#define TANH_ERROR_F32 0x1p-20
#define TANH_ERROR_F64 0x1p-49

#define PI 3.141592653589793

/* sin r = r + r z s(z), cos r = 1 + z c(z), z = r^2, |r| <= pi/2, by minimax fit of the absolute error (fp32:
 * 4.6e-9, 2.4e-10; fp64: 2.0e-19, 4.2e-18). */
#define SIN_COEFFICIENTS_F32 \
  -0.16666657096497101f, 0.0083330172913743655f, -0.00019806615187673512f, 2.600054737434859e-06f
#define COS_COEFFICIENTS_F32                                                                     \
  -0.49999999549556823f, 0.041666640728039855f, -0.0013888403507936735f, 2.476188623302432e-05f, \
      -2.607710506975135e-07f
#define SIN_COEFFICIENTS_F64                                                                    \
  -0.16666666666666666, 0.0083333333333331146, -0.00019841269841185962, 2.7557319207786968e-06, \
      -2.5052106606639225e-08, 1.6058927836513347e-10, -7.6427129285020003e-13, 2.7184963733743314e-15
#define COS_COEFFICIENTS_F64                                                                  \
  -0.49999999999999983, 0.041666666666664368, -0.0013888888888785652, 2.4801587279149009e-05, \
      -2.7557316525226591e-07, 2.0876567740960541e-09, -1.1463039367559243e-11, 4.6102941403124818e-14

/* Pi in three parts. The first two end early (11 and 32 bits), so that their products with any n < 2^12 and
 * 2^20 are exact; beyond, the C library. */
#define TRIG_PI_F32 0x1.92p+1f, 0x1.fb4p-11f, 0x1.4442d2p-23f
#define TRIG_PI_F64 0x1.921fb544p+1, 0x1.0b4611ap-33, 0x1.898cc51701b8p-63
#define TRIG_LIMIT_F32 12800.0f
#define TRIG_LIMIT_F64 3.2e6

#endif

/* collision.h - how often random hashes put two vectors into one bucket.
 *
 * A hash of b = 2 r buckets names which of r independent normal vectors and their negatives has the
 * largest product with what is hashed. The products of x and y with one of them are normal (X, Y) of
 * correlation rho = cos(x, y), up to their lengths, which do not matter. By symmetry each bucket holds
 * both with the same probability: that (X, Y) is positive in both, and no other pair (X', Y') is larger in
 * magnitude in either,
 *   P = 2 r E[1(X > 0, Y > 0) F(X, Y)^(r-1)],  F(x, y) = P(|X'| < x, |Y'| < y);
 * r = 1: 1 - angle / pi; r = 2: (1 - angle / pi)^2. */
#ifndef EXPERIMENTS_MATHEMATICS_COLLISION_H
#define EXPERIMENTS_MATHEMATICS_COLLISION_H

#include <stdint.h>

/* To 1e-4, up to 4096 buckets, for angles from COLLISION_EDGE to pi less that. */
#define COLLISION_EDGE 0.3
double collision_probability(double angle, int64_t buckets);

/* The angle for which at least one of `hashes` independent hashes puts both into one bucket with this
 * probability, or with the nearest one that an angle gives. */
double collision_angle(double probability, int64_t buckets, int64_t hashes);
double collision_any(double angle, int64_t buckets, int64_t hashes); /* 1 - (1 - P)^hashes */

#endif

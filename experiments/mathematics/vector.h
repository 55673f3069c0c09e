/* vector.h - inner products, norms and matrices of vectors in double precision. */
#ifndef EXPERIMENTS_MATHEMATICS_VECTOR_H
#define EXPERIMENTS_MATHEMATICS_VECTOR_H

#include <stdint.h>

/* Adds in the order of the elements. */
double vector_dot(const double *a, const double *b, int64_t n);
/* Adds four interleaved sums, for inner loops. */
double vector_dot_fast(const double *a, const double *b, int64_t n);
double vector_norm(const double *, int64_t n);
/* |a - b|, as vector_dot_fast adds. */
double vector_distance(const double *a, const double *b, int64_t n);
/* to [rows, columns] <- a [rows, inner] b [inner, columns] */
void matrix_product(const double *a, const double *b, int64_t rows, int64_t inner, int64_t columns,
                    double *to);
/* to [rows, columns] <- the inner products of the rows of a [rows, n] and those of b [columns, n] */
void matrix_of_dots(const double *a, const double *b, int64_t rows, int64_t columns, int64_t n, double *to);
/* Sorts, the largest first. */
void vector_descend(double *, int64_t n);

#endif

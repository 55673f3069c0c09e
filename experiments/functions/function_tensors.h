/* function_tensors.h - the tensors of a call in the memory that is shared with a program: where they stand,
 * and copies to there and back. */
#ifndef EXPERIMENTS_FUNCTIONS_FUNCTION_TENSORS_H
#define EXPERIMENTS_FUNCTIONS_FUNCTION_TENSORS_H

#include "attn_variant.h"

enum { FUNCTION_HEADER = 4096 }; /* bytes before the tensors */

/* Places in bytes, of contiguous tensors; end: behind all, SIZE_MAX if that is too large. */
typedef struct function_places {
  size_t q, k, v, o, kv_len, end;
} function_places;

function_places function_places_of(const attn_problem *);

/* 1/sqrt(d): that of a function without an argument for it. */
double function_usual_scale(const attn_problem *);
bool function_scale_is_usual(const attn_problem *);

/* Writes q, k, v and kv_len. Padding, NaN and enormous numbers become such that whoever uses them is off by
 * much, while what is hidden by a weight of 0 stays hidden. Unless it is `scaled` by another scale, queries
 * take what is missing to the usual one. */
void function_operands_write(const attn_call *, const function_places *, bool scaled, char *memory);
void function_output_read(const attn_call *, const char *o);

#endif

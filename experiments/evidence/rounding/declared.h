/* declared.h - how much rounding a variant declares, besides what the textbook form has. */
#ifndef EXPERIMENTS_EVIDENCE_ROUNDING_DECLARED_H
#define EXPERIMENTS_EVIDENCE_ROUNDING_DECLARED_H

#include "attn_variant.h"

/* Of the textbook form in the tensors' precision, with room for the usual liberties: other orders of sums,
 * products split in parts, exponentials of a few units in the last place. */
attn_rounding rounding_textbook(const attn_problem *);
/* To first order: the relative error of the weight of a score of size 1, and of its product with a value. */
double rounding_size(const attn_rounding *);

#endif

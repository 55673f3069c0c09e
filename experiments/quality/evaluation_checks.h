/* evaluation_checks.h - the bounds that a run of an evaluation is held against: theorems about two
 * distributions of the next token, at every scored position, and what a forward pass with replaced heads must
 * keep, on short windows. */
#ifndef EXPERIMENTS_QUALITY_EVALUATION_CHECKS_H
#define EXPERIMENTS_QUALITY_EVALUATION_CHECKS_H

#include "experiments/checks/check.h"
#include "experiments/quality/evaluate.h"
#include "experiments/results/bound.h"

enum { EV_1, EV_2, EV_3, EV_4, EV_5, EV_6, EV_7, EV_8, EV_9, EV_10, QUALITY_CHECKS };
/* As other checks are listed and described; evaluate is NULL, quality_check evaluates all together. */
extern const check quality_checks[QUALITY_CHECKS];
/* The checks that a run may have cells of: those of its layers (checks_all), then these. NULL: none is there,
 * or has this name. */
const check *quality_check_at(size_t place);
const check *quality_check_find(const char *name);

/* Cells without a finding. */
void quality_checks_begin(result_bound cells[QUALITY_CHECKS]);

typedef struct quality_checked {
  const data_llama *model;
  const quality_windows *windows;
  const data_llama_swap *swaps;
  int64_t count;
  const quality_data *data; /* of these swaps */
} quality_checked;

/* whole: the first swap is also asked what takes many passes (EV-4, EV-10). */
attn_status quality_check(const quality_checked *, bool whole, result_bound (*cells)[QUALITY_CHECKS]);

/* Why one of the swap's variants, on windows of n positions, need not have one of these (ATTN_EXEMPT_...);
 * NULL: they must. Valid until the next failure. */
const char *quality_exempt(const data_llama *, int64_t n, const data_llama_swap *, uint32_t properties);

/* evaluation_probe.c: EV-4, EV-6, EV-7 and EV-8, from one pass over a short window and the same with other
 * tokens at its end. */
attn_status quality_probe(const quality_checked *, bool whole, result_bound (*cells)[QUALITY_CHECKS]);
/* rounding_floor.c: EV-5, of a swap by one variant that equals exact attention up to rounding. */
attn_status quality_floor(const quality_checked *, const data_llama_swap *, result_bound *);
/* greedy.c: EV-10 */
attn_status quality_greedy(const quality_checked *, result_bound *);

#endif

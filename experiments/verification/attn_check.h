/* attn_check.h - libattn_check: which bounds, published and derived, does an output of attention keep?
 *
 *   attn_checked *found;
 *   attn_status status = attn_check(plan, &(attn_tensors){.q = q, .k = k, .v = v, .o = o}, NULL, &found);
 *   if (!status) printf("%s; off by %g\n", found->verdict, found->error);
 *   attn_checked_free(found);
 *
 * It is the judge of the attnlab program: exact attention in fp64 on rows of the output, and every check of
 * the plan's kind of variant, chosen by what the variant declares and describes. The output may be the
 * plan's, or that of any other implementation of its spec, which is then held to the rounding that the plan
 * describes. `attnlab list checks` tells of each check. */
#ifndef ATTN_CHECK_H
#define ATTN_CHECK_H

#include "attn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_check_options {
  uint64_t seed; /* of the rows that are drawn, and of what checks draw */
  int64_t
      rows; /* of each (batch, head) whose errors are measured, drawn; 0: all, if that takes 10 s at most */
  bool properties; /* judge what every variant must keep, too, by running the plan's on small problems */
} attn_check_options;

/* The verdict of one check. Texts live as long as the program. */
typedef struct attn_bound {
  const char *name;    /* "FP-2" */
  const char *kind;    /* hard, prob, model, report, property */
  const char *verdict; /* pass, consistent, violated, uncertifiable, not_applicable, error, unchecked */
  const char *message; /* where it is violated, or why nothing is certain; "": nothing to tell */
  const char *statement, *formula, *source;
  double value, measured; /* the bound, and what it bounds; NaN: none */
  double p_value;         /* of a prob: of this draw alone, corrected for nothing; else NaN */
} attn_bound;

typedef struct attn_checked {
  const char *verdict; /* the worst of what is proven, and of properties */
  double error, error_low,
      error_high; /* |o - exact|_F / |exact|_F, with 95 % confidence; of all rows: alike */
  int64_t rows;   /* whose errors were measured */
  size_t count;
  attn_bound *bounds; /* [count] in the order of `attnlab list checks` */
} attn_checked;

/* Judges t->o as the output of the plan's variant for t->q, t->k, t->v, t->kv_len and the extra tensors;
 * work and lse are not read. Tensors are as in attn_plan_run. options may be NULL: all zeros. Release with
 * attn_checked_free. EUNSUPPORTED: positions are given, of which checks know nothing. EFOREIGN: tensors are
 * stored in 16 bits, and the output is not that of the same numbers in fp32, rounded once; or a function of
 * the variant wrote where it may not. ENOMEM. */
ATTN_API attn_status attn_check(const attn_plan *, const attn_tensors *t, const attn_check_options *options,
                                attn_checked **);
ATTN_API void attn_checked_free(attn_checked *);

#ifdef __cplusplus
}
#endif
#endif

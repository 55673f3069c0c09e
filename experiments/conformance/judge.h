/* judge.h - one problem of attnlab test: the variant's output against its definition, and against itself. */
#ifndef EXPERIMENTS_CONFORMANCE_JUDGE_H
#define EXPERIMENTS_CONFORMANCE_JUDGE_H

#include "experiments/conformance/drawn_problem.h"

typedef enum {
  FINDING_DEFINED,    /* the output is that of the definition */
  FINDING_CONSISTENT, /* ... without a definition, or one of rows; the bits are the same in every run */
  FINDING_REFUSED,    /* the variant takes no such problem */
  FINDING_OUTPUT,     /* not the definition's */
  FINDING_LSE,        /* not the log-sum-exp */
  FINDING_BITS,  /* not the same bits as contiguous, by one thread, in a first call, without a log-sum-exp */
  FINDING_ERROR, /* the variant, or attn_plan_verify, gave up */
  FINDINGS
} finding_kind;

enum { FINDING_TEXT = 320 };
typedef struct finding {
  finding_kind kind;
  char text[FINDING_TEXT]; /* where and what; why it was refused */
  /* More rounding is declared than the textbook form has; so much that it may be more than 1 % of the
   * values. */
  bool loose, vacuous;
} finding;

static inline bool finding_failed(const finding *f) { return f->kind >= FINDING_OUTPUT; }

/* ENOMEM and the like: of this program. What the variant does wrong is a finding. */
attn_status problem_judge(const attn_spec *spec, const problem *, finding *);

#endif

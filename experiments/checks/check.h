/* check.h - a bound check: a published or derived statement about a variant's output, evaluated on one run.
 *
 * A check says of which kind of variant it speaks (variant_kind.h): what a variant declares and describes
 * chooses its checks, and it cannot leave one out. Each check is a const object in a file of its family under
 * experiments/checks/. */
#ifndef EXPERIMENTS_CHECKS_CHECK_H
#define EXPERIMENTS_CHECKS_CHECK_H

#include "experiments/checks/variant_kind.h"
#include "experiments/evidence/judged_run.h"

/* The null approximations: a check must reject each of them on some input, or declare why it cannot. */
typedef enum { CHECK_ZEROS, CHECK_MEAN_V, CHECK_RANDOM_KEYS, CHECK_NULLS } null_kind;

/* One of the two is set: tests/checks/nulls.c runs the input that it records for the check. */
typedef struct check_null {
  const char *rejected_on; /* an input on which the check rejects this null */
  const char *blind;       /* why the check cannot reject it */
} check_null;

#define CHECK_REJECTS_ALL(input)                                             \
  {                                                                          \
    {.rejected_on = input}, {.rejected_on = input}, { .rejected_on = input } \
  }
#define CHECK_BLIND(reason)                                   \
  {                                                           \
    {.blind = reason}, {.blind = reason}, { .blind = reason } \
  }

typedef struct check {
  const char *name;       /* "FP-2" */
  const variant_kind *of; /* others have no cell of it */
  check_kind kind;
  const char *statement; /* one sentence */
  const char *source;    /* who proved it, where */
  const char *formula;   /* with every symbol explained */
  const char *cause;     /* what usually makes it fail; NULL: nothing in particular */
  const char *assumes;   /* hypotheses: what is outside of them is uncertifiable or not applicable */
  check_null nulls[CHECK_NULLS];
  /* Fills value, measured, margin, p_value, verdict and message (why, if uncertifiable). A status other than
   * ATTN_OK becomes verdict error with attn_last_error() as its message. */
  attn_status (*evaluate)(const evidence *, result_bound *);
} check;

extern const check *const checks_all[];    /* NULL-terminated */
const check *check_find(const char *name); /* NULL if there is none */
const char *
check_family(const check *); /* the heading that it stands under in checks.def; NULL: it is not there */

/* Does it speak of the variant, and is it asked for? */
bool check_asked(const check *, const evidence *);
/* Runs one check: fills the whole cell. e->cache must not be NULL, and a probe that it holds must be of this
 * plan. */
void check_evaluate(const check *, const evidence *, result_bound *);

/* Runs every check of the plan's kind of variant, in the table's order, and appends a bound for each to the
 * row, except properties, which are judged once for many runs (experiments/properties/). It is the judge for
 * evidence_all, or is called directly. A probe that the cache holds must be of this plan; afterwards it holds
 * none. */
evidence_judge checks_run;

/* Makes a cell without a violation unchecked where a law is missing: what was compared was compared with
 * the variant itself. Returns ATTN_OK. */
attn_status stated_demand(const evidence *, result_bound *);

#endif

/* nonfinite.h - inputs that are not finite: they reach exactly the outputs that depend on them. */
#ifndef EXPERIMENTS_EVIDENCE_ROUNDING_NONFINITE_H
#define EXPERIMENTS_EVIDENCE_ROUNDING_NONFINITE_H

#include "experiments/evidence/judged_run.h"

enum { NONFINITE_TEXT = 160 };

/* Names the first component of a judged row that is NaN although all that it depends on is finite or, of an
 * exact variant, that is a number where exact attention has NaN; "": there is none. Variants whose rows
 * depend on other rows are not judged. */
attn_status nonfinite_judge(const evidence *, char fault[NONFINITE_TEXT]);

#endif

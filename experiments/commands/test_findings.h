/* test_findings.h - what attnlab test has found of a variant: a cell for each property and bound, the worst
 * of all cases, and the drawn problems; as lines, and as JSON. */
#ifndef EXPERIMENTS_COMMANDS_TEST_FINDINGS_H
#define EXPERIMENTS_COMMANDS_TEST_FINDINGS_H

#include "experiments/checks/check.h"
#include "experiments/commands/test_case.h"
#include "experiments/conformance/drawn.h"

enum { CELLS = 96 };
extern const char run_cell[];   /* of a case that could not be judged */
extern const char drawn_cell[]; /* of the drawn problems */

typedef struct found_cell {
  result_bound worst;
  char where[TEST_CASE_NAME];
} found_cell;

typedef struct findings {
  found_cell cells[CELLS];
  int count, failed;
  char refused[480]; /* why problems were, each reason once */
  drawn_result drawn;
  bool lost; /* the last case did not come to its end, and those after it were not run */
} findings;

/* Does the cell say that something is wrong? */
bool finding_is_failed(const result_bound *);

/* Prints the cells, what is failed with its usual cause, and counts these. argc, argv: the command's. */
void findings_print(findings *, int argc, char **argv);
/* That no bound holds a variant which is unchecked, or hardly any. fixed: the fixed problems were judged. */
void findings_warn(const attn_spec *, const findings *, bool fixed);
/* The same as a JSON object, README.md of experiments/functions. */
attn_status findings_print_json(const char *spec, findings *);

#endif

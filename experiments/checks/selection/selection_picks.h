/* selection_picks.h - goes through what the selector of a run took for its judged rows. */
#ifndef EXPERIMENTS_CHECKS_SELECTION_SELECTION_PICKS_H
#define EXPERIMENTS_CHECKS_SELECTION_SELECTION_PICKS_H

#include "experiments/checks/check_table.h"
#include "experiments/evidence/rows.h"

/* A row, and the runs that the selector gave it, before causality and padding. */
typedef struct pick_case {
  const row_case *row;
  const attn_run *runs;
  const double *log_weights; /* of the runs; NULL: keys have none */
  int64_t count;
} pick_case;

/* text: what is wrong, as the end of "batch entry 0, head 1, query 2 ...". */
typedef struct pick_finding {
  outcome x;
  char text[128];
  bool tells; /* are there figures of the row, for their means? */
  double told[2];
} pick_finding;

/* In parallel. */
typedef void pick_judge(const void *context, const pick_case *, pick_finding *);
/* Takes `most` (0: all) of the judged rows with a place, spread over them and over the positions of each
 * head. */
void picks_spread(const int64_t *place, int64_t judged, int64_t most, bool *take);
/* Of all judged rows, or of `most` of them; 0: of all. */
attn_status picks_check(const evidence *, int64_t most, pick_judge *, const void *context, result_bound *);
/* And the sums of what rows tell, of how many. */
typedef struct pick_sums {
  double told[2], rows;
} pick_sums;
attn_status picks_sum(const evidence *, int64_t most, pick_judge *, const void *context, result_bound *,
                      pick_sums *);

/* SEL-1 and SEL-2: what the run selects, by the law with the tensors of this call. */
attn_status picks_rank(const evidence *, const attn_call *law, result_bound *);

/* Is the key among the runs? */
bool picks_have(const attn_run *runs, int64_t count, int64_t key);

#endif

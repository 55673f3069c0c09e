/* index_tensors.h - the tensors of an index (attn_index), drawn for the problem of a run. */
#ifndef EXPERIMENTS_CHECKS_SELECTION_INDEX_TENSORS_H
#define EXPERIMENTS_CHECKS_SELECTION_INDEX_TENSORS_H

#include "experiments/checks/check_table.h"

enum { INDEX_TENSORS = 3 };

/* Have they at most 2^24 numbers? */
bool index_tensors_fit(const evidence *, const attn_index *);
/* extra[INDEX_TENSORS]: index_q, index_k and index_w, uniform in -1 ... 1; index_q and index_w are the same
 * for all batch entries. */
attn_status index_tensors_draw(const evidence *, const attn_index *, attn_extra *extra);

#endif

/* attention_map.h - the weights that a variant gives to the keys, as far as they can be read off its
 * output. */
#ifndef EXPERIMENTS_EVIDENCE_ATTENTION_MAP_H
#define EXPERIMENTS_EVIDENCE_ATTENTION_MAP_H

#include "experiments/evidence/run.h"

/* Makes the row's map. The weights of all cells of keys take one execution with a value per cell:
 * linear memory, and the time of an execution with d_v = 128; the exact weights, n_q n_kv d in double
 * precision, are computed once per cache. None where a weight is not finite. e->plan and cache are needed. */
attn_status evidence_map(const evidence *e, result_row *);

/* Implied weights of head 0 of batch 0, summed over the keys of a cell: [n_q, cells] in the problem's dtype
 * (release with free). Key j is in cell j * cells / n_kv; n_kv cells are the weights themselves. */
attn_status attention_map_weights(const evidence *e, int64_t cells, void **weights);

#endif

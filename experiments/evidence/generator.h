/* generator.h - whom a row sees according to a variant's parameters: stated by membership, apart from the
 * variant's own runs, for the parameters of a window with global tokens (window, dilation, global, global_at)
 * and of blocks (block, window, random, global, seed). */
#ifndef EXPERIMENTS_EVIDENCE_GENERATOR_H
#define EXPERIMENTS_EVIDENCE_GENERATOR_H

#include "attn_variant.h"
#include "experiments/evidence/rows.h"

typedef struct generator {
  bool blocks;                 /* else a window of positions */
  int64_t side;                /* half the window, in steps or blocks */
  int64_t step;                /* of the window: the dilation */
  int64_t block, random;       /* keys of a block, blocks drawn; blocks only */
  int64_t global;              /* leading tokens or blocks */
  const attn_int_list *listed; /* global tokens by position, or NULL */
  int64_t n;
  bool causal;
} generator;

/* false: the variant's parameters are of neither kind. */
bool generator_read(const evidence *, generator *);

/* Must the query at this position see the key, whatever is drawn? Causality not included. */
bool generator_fixed(const generator *, int64_t position, int64_t key);
/* May a query at this position see the block because it is drawn? */
bool generator_candidate(const generator *, int64_t position, int64_t block);
int64_t generator_candidates(const generator *, int64_t position);
int64_t generator_blocks(const generator *);

/* How many keys a row sees though it must not, or does not see though it must, or sees twice, and by how many
 * blocks the draw is short. inside: n_kv. */
int64_t generator_mismatch(const generator *, const evidence *, int64_t head, int64_t i, attn_run *runs,
                           bool *inside);

#endif

/* placement.h - a trial's numbers at other places in memory: strides, gaps of NaN, and forbidden pages. */
#ifndef EXPERIMENTS_PROPERTIES_PLACEMENT_H
#define EXPERIMENTS_PROPERTIES_PLACEMENT_H

#include "experiments/instruments/guard.h"
#include "experiments/properties/property.h"

typedef enum {
  LAYOUT_PLAIN,       /* [batch, heads, n, d] */
  LAYOUT_INTERLEAVED, /* [batch, n, heads, d] */
  LAYOUT_SHARED,      /* K and V side by side in one buffer, a row of K before its row of V */
  LAYOUT_SPACED,      /* gaps of odd lengths behind rows, heads and batch entries */
  LAYOUT_ROOMY,       /* room for more rows behind each head, as a cache of keys has it */
  LAYOUTS
} layout_kind;

/* Q, K, V, O; each but the first three of LAYOUT_SHARED, whose K and V are one block, ends at a forbidden
 * page, K and V with the last row that exists. What is no element, and keys and values that do not exist, are
 * NaN. */
typedef struct layout {
  layout_kind kind;
  attn_problem problem;
  guard q, k, v, o;
  unsigned char *v_at; /* row 0 of V */
} layout;

extern const char *const layout_names[LAYOUTS];

attn_status layout_make(const trial_inputs *, layout_kind, layout *);
void layout_free(layout *);

/* NaN in the rows of O, and what can be told again between them. */
void layout_blank(const layout *);
/* Copies O, contiguous, to `to`. Was a byte of it written that is no element? */
bool layout_take(const layout *, char *to);

/* Runs the spec on it. *o: as of trial_run. *touch: of the block 0 (Q), 1 (K) or 2 (V); *gap: a byte of O
 * that is no element was written. */
attn_status layout_run(const trial *, const trial_inputs *, const layout *, char **o, guard_touch *touch,
                       bool *gap);

#endif

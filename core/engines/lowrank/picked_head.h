/* picked_head.h - what the files of the engine of picked rows share: a head in fp64. */
#ifndef CORE_ENGINES_LOWRANK_PICKED_HEAD_H
#define CORE_ENGINES_LOWRANK_PICKED_HEAD_H

#include "core/internal.h"

typedef struct picked_head {
  const attn_context *context;
  const attn_low_rank *law;
  const attn_kernels *wide; /* of fp64 */
  int64_t n_q, keys, d, d_v, v_row;
  double *q, *k;         /* [n_q, d], and behind it [keys, d] */
  double *v, *o;         /* rows of v_row: [keys, d_v + 1], [n_q, d_v + 1] */
  int64_t *picked, most; /* [most]; `most` may be picked, of n_kv keys */
  void *scratch, *space; /* of pick; of what follows */
} picked_head;

/* o of `count` picked rows. What it takes from a carver, for the problem's n_q and n_kv. */
void picked_clusters(const picked_head *, int64_t count);
void picked_clusters_room(const picked_head *, attn_carver *);
void picked_points(const picked_head *, int64_t count);
void picked_points_room(const picked_head *, attn_carver *);

#endif

/* softmax.h - the softmax engine's plan: tiles of queries and the keys that each tile visits. */
#ifndef ATTN_SOFTMAX_H
#define ATTN_SOFTMAX_H

#include "internal.h"

/* Keys first, first + step, ...; partial: some queries of the tile do not see some of them. */
typedef struct softmax_segment {
  int64_t first, count, step;
  bool partial;
} softmax_segment;

typedef struct softmax_tile {
  const int64_t *rows; /* query rows */
  int64_t row_count;
  const softmax_segment *segments; /* ascending by first; a class of equal step never repeats a key */
  int64_t segment_count;
  int64_t keys; /* of all segments */
} softmax_tile;

/* How the work is cut, from the problem alone: results depend on it, so it must not depend on threads. */
typedef struct softmax_shape {
  attn_blocks blocks; /* resolved */
  int64_t heads;  /* query heads of one kv head that share a tile, so that its keys are read once for them */
  int64_t rows;   /* most rows of a tile: blocks.query of each of its heads */
  int64_t split;  /* keys of a split, a multiple of blocks.key: few tiles leave work for many threads */
  int64_t splits; /* most splits of a tile; 1: none */
  const attn_tile_kernels *kernels;
} softmax_shape;

/* per_head: heads differ in the keys they see. */
softmax_shape attn_softmax_shape(const attn_context *, attn_blocks, bool per_head);

struct attn_softmax {
  attn_pattern pattern;
  bool dense; /* no pattern: every key */
  softmax_shape shape;
  int64_t pattern_heads; /* 1, or one list of tiles per head */
  int64_t tile_count;    /* per head */
  softmax_tile *tiles;   /* [pattern_heads][tile_count], the most work first */
  int64_t most_keys;     /* of any tile */
};

/* Fills segments of one tile from the runs of its rows. */
attn_status attn_softmax_segments(attn_builder *, const attn_softmax *, int64_t head, softmax_tile *,
                                  void *scratch);
size_t attn_softmax_segments_scratch(int64_t rows, int64_t max_runs);

#endif

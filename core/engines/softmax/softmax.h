/* softmax.h - the softmax engine's plan: tiles of queries and the keys that each tile visits. */
#ifndef ATTN_CORE_ENGINES_SOFTMAX_SOFTMAX_H
#define ATTN_CORE_ENGINES_SOFTMAX_SOFTMAX_H

#include "core/internal.h"

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
  int64_t seen;   /* keys of a step that a row sees, at most */
  bool weighted;  /* keys have weights of their own (attn_selector.weighted) */
  int64_t split;  /* keys of a split, a multiple of blocks.key: few tiles leave work for many threads */
  int64_t splits; /* most splits of a tile; 1: none */
  const attn_tile_kernels *kernels;
} softmax_shape;

/* What is known of a variant's pattern (NULL: every key) within the problem's graph before it is computed:
 * most runs of a row, and whether they depend on the head. false: every key. */
bool attn_softmax_outline(const attn_problem *, const attn_pattern *, attn_pattern *);

/* pattern: NULL for every key. */
softmax_shape attn_softmax_shape(const attn_context *, const attn_pattern *, attn_tiling);

/* What the problem makes of the scores, as the kernels take it. */
typedef struct softmax_score {
  attn_score_map map;
  bool mapped, biased;
  void *relative; /* [relative_heads][relative_row]: at distance d + n_q - 1; in units of log 2 */
  int64_t relative_row;
} softmax_score;

/* Steps that queries pass over (attn_tiling.skip). */
typedef struct softmax_skip {
  double least, margin; /* skip, and its logarithm in units of log 2; 0: every step is taken */
  attn_order order;
} softmax_skip;

typedef struct attn_softmax {
  attn_pattern pattern; /* the variant's, within the problem's mask where that is a graph */
  bool dense;           /* no pattern: every key */
  int64_t max_runs;     /* of a row */
  softmax_score score;
  softmax_skip skip;
  attn_selector visited; /* what is not passed over, as checks ask for it */
  softmax_shape shape;
  int64_t pattern_heads; /* 1, or one list of tiles per head */
  int64_t tile_count;    /* per head */
  softmax_tile *tiles;   /* [pattern_heads][tile_count], the most work first */
  int64_t most_keys;     /* of any tile */
} attn_softmax;

/* A stretch of a segment inside a step: keys first, first + step, ... stand at positions at, at + 1, ... */
typedef struct softmax_piece {
  int64_t first, count, step, at;
  bool partial;
} softmax_piece;

/* The keys that one tile of a task takes. */
typedef struct softmax_visits {
  int64_t tile;
  attn_run *runs;
  int64_t count;
} softmax_visits;

typedef struct softmax_back softmax_back; /* backward.h */

/* One thread's workspace. */
typedef struct softmax_worker {
  attn_tile *tiles;       /* the tile's queries, as many as the kernels take at a time */
  int64_t *keys;          /* of a step */
  uint64_t *mask, *taken; /* rows that see each key; the same before a step is taken twice */
  softmax_piece *pieces;
  int64_t piece_count;
  const void **bias; /* of the keys of a step, where the problem has biases */
  void *biases;      /* [keys of a step][ATTN_LANES] */
  const void **q;    /* the tile's rows: those of its first head, of the next, ... */
  void **o;
  /* Of tensors that are stored in another type, converted: the tile's queries and outputs, a step's keys and
   * values. */
  void *queries, *outputs, *k, *v;
  int64_t *places; /* of these keys: 0, 1, ... */
  void *packed;    /* a step's keys and values, where the kernels pack them */
  attn_run *runs;  /* [row][max_runs], clipped to the keys that exist; alike for all heads of a tile */
  int64_t *run_count;
  softmax_visits *visits; /* NULL: nobody asks */
  softmax_back *back;     /* the tile's gradients are computed, not its outputs; NULL: forward */
} softmax_worker;

/* What was selected for the rows of a tile; shared: that of row 0 for all of them. */
typedef struct softmax_picks {
  const attn_picks *of;
  bool shared;
} softmax_picks;

/* A tile for the query heads that share it. */
typedef struct softmax_task {
  const attn_softmax *s;
  const attn_call *call;
  const softmax_tile *tile;
  int64_t batch, head, heads; /* query heads head, head + 1, ... */
  const void *k, *v;          /* of the kv head */
  int64_t keys;               /* that exist */
  const softmax_picks *picks; /* the selections of its rows; NULL: the pattern's keys */
  attn_problem problem;       /* with the positions of this batch entry and head */
  bool placed;                /* the tile's segments are of other positions */
} softmax_task;

/* Are keys and values of a step converted side by side? */
static inline bool softmax_gathers(const attn_problem *p) { return p->k.stored || p->v.stored; }

static inline int64_t softmax_rows(const softmax_task *t) { return t->heads * t->tile->row_count; }

/* Tiles of all heads and batches; a tile's splits are tasks of their own. */
int64_t attn_softmax_units(const attn_problem *, const softmax_shape *, int64_t tile_count);

/* The kernels for a problem and tiles of at most `rows` rows. */
const attn_tile_kernels *attn_softmax_kernels(const attn_context *, attn_path, int64_t rows);
/* The running state of a task's rows in tiles that have their room (attn_softmax_use_room): begins it,
 * without the sinks; takes `left` keys of the task's segments after the first `skip`; writes outputs. */
void attn_softmax_begin(const softmax_task *, softmax_worker *, attn_tile *);
void attn_softmax_walk(const softmax_task *, softmax_worker *, attn_tile *, int64_t skip, int64_t left);
/* The same of the keys that stand in the worker, `count` with their masks. */
void attn_softmax_take(const softmax_task *, softmax_worker *, attn_tile *, int64_t count);
void attn_softmax_finish(const softmax_task *, softmax_worker *, const attn_tile *);
attn_rounding attn_softmax_rounding(const attn_softmax *, const attn_context *);

/* -- the backward pass (backward.c) -- */

/* In the place of what the kernels do forward: takes the rows of a task; the keys of a step, for a group of
 * ATTN_LANES of them; writes dq. */
void attn_softmax_back_begin(const softmax_task *, softmax_worker *);
void attn_softmax_back_step(const softmax_task *, softmax_worker *, int64_t group, const attn_step *);
void attn_softmax_back_finish(const softmax_task *, const softmax_worker *);
/* Why there is no gradient, or ATTN_OK. */
attn_status attn_softmax_back_check(const attn_context *, attn_tiling);

/* -- where steps are passed over (skip.c) -- */

/* Why not, or ATTN_OK; the shape of the work; and the members skip and visited. */
attn_status attn_softmax_skip_check(const attn_context *, const attn_pattern *, attn_tiling);
softmax_shape attn_softmax_skip_shape(const attn_context *, attn_tiling);
void attn_softmax_skip(const attn_context *, attn_tiling, attn_softmax *);
/* Takes all keys of the task in the order of steps; takes a step with tile i if it is not passed over. */
void attn_softmax_walk_above(const softmax_task *, softmax_worker *, attn_tile *);
void attn_softmax_step_above(const softmax_task *, softmax_worker *, attn_tile *tiles, int64_t i,
                             const attn_step *);
/* The task of a batch entry, kv head, part of its query heads, and tile. */
softmax_task attn_softmax_task(const attn_softmax *, const attn_call *, int64_t batch, int64_t head,
                               int64_t tile);

/* -- rows that are read as a store keeps them (settled.c): bit 0 of a way is of keys, bit 1 of values -- */

/* Keys and values of a task's kv head as they are read in one way. */
typedef struct softmax_rows_read {
  const void *k, *v;
  attn_stride k_at, v_at;
} softmax_rows_read;
softmax_rows_read attn_softmax_read(const softmax_task *, unsigned way);
/* The way in which row r of a tile reads a key. */
unsigned attn_softmax_way(const softmax_task *, int64_t r, int64_t key);
/* The ways in which some row may read some of the step's `count` keys: a bit for each. */
unsigned attn_softmax_ways(const softmax_task *, const softmax_worker *, int64_t count);
/* Clears the bits of the masks of lanes from row0 on that read a key in another way. */
void attn_softmax_keep_way(const softmax_task *, softmax_worker *, int64_t row0, int64_t count, unsigned way);

/* Hands out one thread's workspace; the running state of a tile's queries, as one split leaves it. */
softmax_worker attn_softmax_carve(const attn_context *, const softmax_shape *, int64_t max_runs,
                                  attn_carver *);
attn_tile *attn_softmax_carve_tiles(const attn_context *, const softmax_shape *, attn_carver *);
/* Lends a tile the part of another that is no running state. */
void attn_softmax_use_room(attn_tile *, const attn_tile *from);
size_t attn_softmax_worker_bytes(const attn_context *, const softmax_shape *, int64_t max_runs);
size_t attn_softmax_split_bytes(const attn_context *, const softmax_shape *);

/* The problem's score for the engine. */
attn_status attn_softmax_score(attn_builder *, softmax_score *);
/* Sets the worker's biases of `count` keys for the rows of a task from row0 on, and clears the bits of the
 * masks that a bias of -Inf hides. */
void attn_softmax_bias(const softmax_task *, softmax_worker *, int64_t row0, int64_t count);
/* Adds to these biases, or to none, what the selections of the task give their keys as log-weights. */
void attn_softmax_weigh(const softmax_task *, softmax_worker *, int64_t row0, int64_t count);
/* Begins the running state of tiles with the sinks of their heads. */
void attn_softmax_sink(const softmax_task *, attn_tile *tiles);
/* The pattern that leaves of a variant's what the problem's graph has, computed once. reader: of the
 * variant's. */
attn_status attn_softmax_within(attn_builder *, const attn_pattern_reader *, attn_pattern *);

/* Sets the runs of the tile's rows, without the keys that do not exist; as attn_pattern_row gives them. */
void attn_softmax_clip_runs(const softmax_task *, softmax_worker *);

/* Makes those infinite outputs NaN in which an infinite value has a weight of 0. tile: of the rows row0, ...
 * of the task, after end; infinite: what end returned. */
void attn_softmax_repair(const softmax_task *, softmax_worker *, const attn_tile *tile, int64_t row0,
                         uint64_t infinite);

/* -- selections (picks.c) -- */

/* Queries of a block; selections of one. */
int64_t attn_selection_rows(const attn_problem *, const attn_selector *);
int64_t attn_picks_count(const attn_block *, const attn_selector *);
/* Room for the picks of `rows` queries. */
attn_picks attn_picks_carve(const attn_selector *, int64_t rows, attn_carver *);
/* Asks for the picks of a block. */
void attn_picks_ask(const attn_selector *, const attn_call *, const attn_block *, const void *prepared,
                    attn_picks *, void *scratch);

#endif

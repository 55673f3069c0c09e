/* grid.h - the work list of an experiment: blocks of runs that share Q, K, V, mask and machine settings.
 *
 * All runs of a block execute in one process, so that the exact reference is computed once and times are
 * compared on equal terms. A block is therefore the unit that shards are dealt in. */
#ifndef EXPERIMENTS_GRID_GRID_H
#define EXPERIMENTS_GRID_GRID_H

#include "data/data.h"
#include "experiments/grid/config.h"
#include "experiments/results/row.h"

enum { GRID_RUNS_MAX = 1000000 };

typedef struct grid_run {
  char *key;              /* canonical text of all that defines the run */
  char *variant;          /* the name; a null baseline's (null.h) too */
  attn_spec *spec;        /* NULL: of a null baseline */
  int64_t seed;           /* of the variant's draws; for a variant that draws nothing, the dataset's */
  bool map;               /* whether its attention map is wanted */
  const char *plugin;     /* path of the object that its variant is from; NULL: the library */
  char plugin_sha256[65]; /* of that; "": none */
  char
      files_sha256[65]; /* of the files that its spec and the block's score name; "": none, or not readable */
  /* What its variant says beforehand. */
  bool priced;    /* false: it says nothing, */
  bool refused;   /* since its parameters contradict each other, */
  char *unknown;  /* for this reason; or NULL */
  attn_cost cost; /* of one execution; 0 of a baseline */
  size_t work;    /* bytes of work memory */
} grid_run;

/* The canonical text of its spec, or that of the baseline. */
const char *grid_run_text(const grid_run *);

typedef struct grid_block {
  union {
    char *text[TEXT_AXES];
    struct {
#define TEXT_AXIS(name, ...) char *name;
#include "experiments/results/axes.def"
    };
  };
  char dataset_sha256[65]; /* of the files it reads; "": none, or not readable */
  char target_sha256[65];  /* of the files that score and mask name; "": none */
  union {                  /* nothing left at 0 for "as another axis"; seed is that of each run */
    int64_t axis[AXES];
    struct {
#define AXIS(name, ...) int64_t name;
#include "experiments/results/axes.def"
    };
  };
  char *unfit; /* why its dataset cannot be made, with the status; NULL: nothing is known to be wrong */
  attn_status unfit_status;
  grid_run *runs;
  size_t count;
  double cost;  /* estimated multiply-adds of all runs once */
  size_t order; /* in the configuration */
} grid_block;

/* Runs that are not in the grid, since what they ask for contradicts itself. */
typedef struct grid_refusal {
  char *spec; /* of the first of them */
  char *reason;
  size_t runs;
} grid_refusal;

typedef struct grid {
  grid_block *blocks; /* by cost, descending; of equal cost as the configuration has them */
  size_t count;
  grid_refusal *refusals; /* of different reasons */
  size_t refusal_count;
} grid;

/* isa and threads: what the machine gives by default. Variants are asked for their costs in a process of its
 * own. EINVAL: the product is too large, a combination that is not excluded has no valid shapes, or every run
 * is refused. */
attn_status grid_expand(const config *, const char *isa, int threads, grid *);
void grid_free(grid *);
void grid_block_free(grid_block *);
size_t grid_run_count(const grid *);

/* Deals the blocks round-robin to `count` shards and keeps those of shard `index`. */
void grid_shard(grid *, int64_t index, int64_t count);
/* Keeps the runs for which keep() is true, and the blocks that still have any. */
void grid_filter(grid *, bool (*keep)(const grid_block *, const grid_run *, void *context), void *context);

/* The shapes of a block's problem; and the problem itself, resolved, with its score and mask, which live as
 * long as the target. EINVAL, EFOREIGN as data_target_make. */
attn_problem grid_problem(const grid_block *);
attn_status grid_target(const grid_block *, attn_problem *, data_target **);
attn_options grid_options(const grid_block *); /* with the C library's allocator */
/* The identity columns of a run, into an initialised row. */
attn_status grid_row(const grid_block *, const grid_run *, result_row *);

#endif

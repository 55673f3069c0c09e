/* cache.h - what the runs of a block share: results for one Q, K, V and mask; and what the judges of one run
 * share, its probe. */
#ifndef EXPERIMENTS_EVIDENCE_CACHE_H
#define EXPERIMENTS_EVIDENCE_CACHE_H

#include "experiments/mathematics/pair_moments.h"

struct probe;
struct run_facts;
struct weight_draws;
struct trial;
struct head_data;
struct result_bound;

/* A block of exact weights of head 0, [count, count] of n_q queries and n_kv keys, with the squares of its
 * singular values, descending. */
typedef struct spectrum_entry {
  int64_t count, n_q, n_kv;
  double *block, *squares;
} spectrum_entry;

enum { SPECTRA = 4, MOMENT_ROWS = 8 };

typedef struct moment_entry {
  bool made;
  double a; /* of the law */
  int64_t count;
  int64_t row[MOMENT_ROWS], of_run[MOMENT_ROWS]; /* index in the probe, and in the run */
  row_moment rows[MOMENT_ROWS];
} moment_entry;

/* What budgets need of the exact weights of head 0: cumulative mean mass of the heaviest keys and of those up
 * to a distance, both [n_kv], and the squares of the singular values of some rows. NULL: not computed. */
typedef struct budget_curves {
  double *heaviest, *nearest, *squares;
  int64_t ranks;
} budget_curves;
void budget_curves_free(budget_curves *);

struct block_cache {
  bool described;
  double row_entropy_mean, top16_mass_mean, eff_rank, score_osc;
  spectrum_entry spectra[SPECTRA]; /* the latest */
  int spectrum_next;
  moment_entry moments[ATTN_FEATURES_TRIG + 1]; /* by kind of features */
  struct head_data *heads; /* [batch * kv_heads] inputs in fp64 that are loaded, or NULL */
  int64_t head_count;
  budget_curves curves;
  double *gradients;            /* exact ones (evidence_gradients), or NULL */
  float *exact_map;             /* as the first half of result_row.map, or NULL */
  struct probe *probe;          /* of the plan that is being checked */
  struct run_facts *facts;      /* of the run that is being checked */
  struct weight_draws *weights; /* of its variant, or NULL */
  struct trial *trial;          /* of properties_run, while it lasts */
  bool ranged;                  /* are the next two known? */
  double v_most, v_least;       /* head.h */
  void (*judged)(
      void *to,
      const struct result_bound *); /* is told of each cell as soon as it has its verdict, or NULL */
  void *to;
};

#endif

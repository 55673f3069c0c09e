/* sampling.h - what the evidence files and the checks share: the sampling design and the block's
 * cache. */
#ifndef EXPERIMENTS_EVIDENCE_SAMPLING_H
#define EXPERIMENTS_EVIDENCE_SAMPLING_H

#include "experiments/evidence/evidence.h"

/* Strata of the row sample: bins of the position within each (batch, head). One bin with all rows is a
 * census. */
typedef struct sampling {
  int64_t bins, per_stratum;
} sampling;

sampling sampling_of(const attn_problem *);
int64_t sampling_start(const sampling *, int64_t n_q, int64_t bin); /* first row of a bin */
int64_t sampling_bin(const sampling *, int64_t n_q, int64_t i);     /* the bin of a row */

typedef struct stratum {
  int64_t first, count; /* rows of the sample */
  double size;          /* rows that it stands for */
} stratum;

/* The stratum after *at; {0} is before the first. false at the end. */
bool stratum_next(const attn_problem *, const exact_rows *, const sampling *, stratum *at);

/* Implied weights of head 0 of batch 0, summed over the keys of a cell: [n_q, cells] in the problem's dtype
 * (release with free). Key j is in cell j * cells / n_kv; n_kv cells are the weights themselves. */
attn_status implied_weights(const evidence *e, int64_t cells, void **weights);

struct probe;
struct head_data;

/* A block of exact weights of head 0, [count, count], with the squares of its singular values, descending. */
typedef struct spectrum_entry {
  int64_t count;
  double *block, *squares;
} spectrum_entry;

enum { SPECTRA = 4, MOMENT_ROWS = 8, MOMENT_KERNELS = 3 };

/* Second moments of a row that random features estimate, over their draws (checks/moments.h). */
typedef struct row_moment {
  int64_t row, of_run; /* index in the probe, and in the run */
  double rho, spread;  /* E Y^2 / D^2, E |W|^2 / D^2 */
  double square;       /* |o|^2, exact */
} row_moment;

typedef struct moment_entry {
  bool made;
  int64_t count;
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
  bool explained;
  double row_entropy_mean, top16_mass_mean, eff_rank, score_osc;
  spectrum_entry spectra[SPECTRA]; /* the latest */
  int spectrum_next;
  moment_entry moments[MOMENT_KERNELS];
  struct head_data *heads; /* [batch * kv_heads] inputs in fp64 as far as loaded, or NULL (checks/row.h) */
  int64_t head_count;
  budget_curves curves;
  float *exact_map;    /* as the first half of result_row.map, or NULL */
  struct probe *probe; /* of the plan that is being checked (checks/probe.h) */
};

#endif

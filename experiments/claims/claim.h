/* claim.h - a public claim about an approximation, rerun on a small configuration: reproduced or not, with
 * the numbers. */
#ifndef EXPERIMENTS_CLAIMS_CLAIM_H
#define EXPERIMENTS_CLAIMS_CLAIM_H

#include "data/support/output.h"

enum { CLAIM_FIGURES = 16, CLAIM_SEEDS = 20 };

typedef struct claim_figure {
  char what[80];
  double value, low, high; /* measured; the 95 % interval of a mean over seeds, or NaN for a single value */
  double said;             /* the value that the source gives, or NaN */
} claim_figure;

typedef struct claim_report {
  claim_figure figures[CLAIM_FIGURES];
  int count;
  int telling; /* the figure to quote, by its index */
  bool reproduced;
  double seconds;
} claim_report;

typedef struct claim {
  const char *name;
  const char *statement; /* what would have to hold */
  const char *source;
  attn_status (*test)(claim_report *); /* fills figures and reproduced */
} claim;

extern const claim *const claims_all[]; /* NULL-terminated */
extern const claim claim_performer_law, claim_performer_std1, claim_performer_trig, claim_performer_issue69;
extern const claim claim_performer_sign, claim_performer_orthogonal;
extern const claim claim_linformer_flat, claim_linformer_lemma, claim_linformer_limit;
extern const claim claim_longformer_linear, claim_bigbird_graph, claim_flash_memory, claim_flash_exact;
extern const claim claim_regimes;

/* ---- figures. All return the figure; beyond CLAIM_FIGURES the last is overwritten. ---- */

/* what: printf-style. */
claim_figure *claim_value(claim_report *, double value, double said, const char *what, ...);
/* The mean of values, with Student's interval. */
claim_figure *claim_mean(claim_report *, const double *values, int count, double said, const char *what, ...);
/* Slope of log y against log x. */
double claim_slope(const double *x, const double *y, int count);

/* ---- runs: one head, n queries and keys, width d, fp64 ---- */

typedef struct claim_run {
  const char *data; /* dataset spec */
  int64_t n, d;
  uint64_t seed;                                               /* of the data */
  void (*reshape)(double *q, double *k, int64_t n, int64_t d); /* what is done to the dataset; or NULL */
} claim_run;

/* The output [n, d] of a variant, to be freed. */
attn_status claim_output(const claim_run *, const char *spec, double **o);
/* |o - exact| / |exact|: of Frobenius norms, or of sums of moduli. */
typedef enum { NORM_FROBENIUS, NORM_L1 } claim_norm;
attn_status claim_error(const claim_run *, const char *spec, claim_norm, double *error);
/* The same for each of CLAIM_SEEDS seeds of data and draws; a random variant's spec ends in "seed=". */
attn_status claim_errors(const claim_run *, const char *spec, claim_norm, double errors[CLAIM_SEEDS]);

extern const output_kind kind_claims;

/* Writes claims and reports as HDF5 columns, a row a figure; the file appears whole or not at all. */
attn_status claims_write(const char *path, const claim *const *claims, const claim_report *reports,
                         int count);

#endif

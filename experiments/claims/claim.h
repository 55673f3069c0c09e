/* claim.h - a public claim about an approximation, rerun on a small configuration: a word for how it came
 * out, and the figures with their intervals. */
#ifndef EXPERIMENTS_CLAIMS_CLAIM_H
#define EXPERIMENTS_CLAIMS_CLAIM_H

#include <math.h>

#include "attn.h"
#include "data/data.h"
#include "data/support/output.h"

enum { CLAIM_FIGURES = 64, CLAIM_SEEDS = 10 };
#define CLAIM_UNSAID ((double)NAN) /* the source gives no figure */

/* How a claim came out. Only what the source says word for word is reproduced or refuted. */
typedef enum {
  CLAIM_MISSED, /* not seen here, which refutes nothing */
  CLAIM_REPRODUCED,
  CLAIM_HOLDS_UNDER, /* a condition that the source does not state, or states elsewhere */
  CLAIM_DERIVED,     /* ours, from what the source says; and it holds */
  CLAIM_REFUTED,     /* as printed */
} claim_word;

typedef struct claim_figure {
  char what[112];
  double value, low, high; /* low and high: the interval at `level` */
  double level;            /* NaN: nothing in the value is random */
  char interval[40];       /* which kind, of how many; or "exact" */
  double said;             /* the value that the source gives, or CLAIM_UNSAID */
} claim_figure;

typedef struct claim_report {
  claim_figure figures[CLAIM_FIGURES];
  int count;
  int telling; /* the figure to quote, by its index */
  claim_word word;
  char condition[80]; /* of CLAIM_HOLDS_UNDER */
  double level;       /* of the figures that are added */
  double seconds;
} claim_report;

typedef struct claim_options {
  uint64_t seed;
  const char *captured;     /* a file of attnlab capture for the claims about exactness and time, or NULL */
  const char *model, *text; /* for the claims about whole models: as in data_ids_request */
} claim_options;

typedef struct claim {
  const char *name;
  const char *statement; /* what would have to hold */
  const char *source;
  attn_status (*test)(const claim_options *, claim_report *); /* fills figures, word and condition */
} claim;

#define CLAIM(name) extern const claim claim_##name;
#define MODEL_CLAIM CLAIM
#include "experiments/claims/claims.def"
#undef MODEL_CLAIM
#undef CLAIM

/* ---- words ---- */

void claim_holds_under(claim_report *, const char *condition, ...); /* printf-style */
/* "reproduced", "holds under ...", ... */
void claim_verdict(const claim_report *, char *text, size_t size);

/* ---- figures: claim_add makes one; a figure_ function gives it value and interval, and returns it ---- */

/* what: printf-style. Beyond CLAIM_FIGURES the last is overwritten. */
claim_figure *claim_add(claim_report *, double said, const char *what, ...);
claim_figure *figure_exact(claim_figure *, double value);
/* The mean of values, with Student's interval; unit: what they are of. */
claim_figure *figure_mean(claim_figure *, const double *values, int count, const char *unit);
/* Their standard deviation, with the interval of normal ones. */
claim_figure *figure_deviation(claim_figure *, const double *values, int count, const char *unit);
/* hits of count, with the interval of Clopper and Pearson. */
claim_figure *figure_share(claim_figure *, int hits, int count, const char *unit);
/* Slope of log y against log x: the mean of the slopes of `count` curves y[points]. */
claim_figure *figure_slope(claim_figure *, const double *x, int points, const double *y, int count,
                           const char *unit);
double claim_slope(const double *x, const double *y, int points);
/* "-0.51 ... -0.49 (95 %, t, 20 seeds)", or "exact". */
void figure_interval(const claim_figure *, char *text, size_t size);

/* ---- runs: one head, n keys, width d, fp64 ---- */

typedef struct claim_run {
  const char *data; /* dataset spec */
  int64_t n_q, n, d;
  void (*reshape)(double *q, double *k, int64_t n, int64_t d); /* what is done to the dataset; or NULL */
} claim_run;

attn_status claim_inputs(const claim_run *, uint64_t seed, data_qkv *);
/* The output [heads, n_q, d_v] of a variant, to be freed. */
attn_status claim_output(const data_qkv *, const char *spec, void **o);
/* |o - exact| / |exact|: of Frobenius norms, or of sums of moduli; or |o - exact|^2 over their number. */
typedef enum { NORM_FROBENIUS, NORM_L1, NORM_MSE } claim_norm;
/* Relative Frobenius error of a variant, causal, of whatever type the tensors have. */
attn_status claim_causal_error(const data_qkv *, const char *spec, double *error);
/* Of each variant for each of `seeds` seeds of data and draws: errors [count][seeds]. A spec ends in "seed="
 * where something is drawn. */
attn_status claim_errors(const claim_options *, const claim_run *, const char *const *specs, int count,
                         claim_norm, int seeds, double *errors);
/* Seed number s of a claim. */
static inline uint64_t claim_seed(const claim_options *o, int s) { return o->seed * 1000 + (uint64_t)s; }

/* ---- time: one head of 64 of standard normal tensors, or all heads of the capture; fp32 ---- */

enum { CLAIM_ROUNDS = 7 };

/* n queries and keys of the captured file, or drawn. */
attn_status claim_tensors(const claim_options *, int64_t n, data_qkv *);
const char *claim_tensors_name(const claim_options *);
/* Processor seconds of one execution by one thread, [count][CLAIM_ROUNDS][lengths], all in turn in each
 * round. */
attn_status claim_times(const claim_options *, const char *const *specs, int count, const int64_t *n,
                        int lengths, double *seconds);
/* Operations by the variant's formula. */
attn_status claim_operations(const char *spec, int64_t n, double *flops);

/* ---- random features of performer for vectors x and y: each vector's share of exp(x.y), [vectors] ---- */

attn_status claim_products(const char *spec, int64_t d, const double *x, const double *y, int64_t vectors,
                           double *products);
/* Features of `rows` vectors of d, [rows, columns], scaled as they stand; to be freed. */
attn_status claim_features(const attn_plan *, int side, const double *x, int64_t rows, int64_t *columns,
                           double **f);
attn_status claim_feature_plan(const char *spec, int64_t d, attn_plan **);

extern const output_kind kind_claims;

/* Writes claims and reports as HDF5 columns, a row a figure; the file appears whole or not at all. */
attn_status claims_write(const char *path, const claim *const *claims, const claim_report *reports,
                         int count);

#endif

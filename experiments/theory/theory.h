/* theory.h - statements of the mathematics of attention, measured in fp64: what each promises, on an input
 * that meets its assumption, and on one that does not, where the promise must fail. */
#ifndef EXPERIMENTS_THEORY_THEORY_H
#define EXPERIMENTS_THEORY_THEORY_H

#include "attn.h"
#include "attn_variant.h"
#include "experiments/claims/claim.h"

enum { THEORY_FIGURES = 96 };

/* Of a measured value to the promised one. SHOWN: nothing is promised. */
typedef enum { THEORY_SHOWN, THEORY_EQUAL, THEORY_AT_MOST, THEORY_AT_LEAST } theory_relation;

typedef struct theory_figure {
  claim_figure figure; /* said: the promised value */
  theory_relation relation;
  double tolerance;  /* rounding, derived where it is set */
  bool breaks;       /* the input does not meet the assumption: the promise must fail */
  const char *curve; /* of a point: which curve it is of; NULL: no point */
  double x;
} theory_figure;

/* Drawn figures are judged by intervals of this level: of 60 of them one in 10^4 seeds errs. */
#define THEORY_LEVEL (1 - 1e-6)

typedef struct theory_report {
  theory_figure figures[THEORY_FIGURES];
  int count;
  attn_rng rng;       /* all draws */
  attn_status status; /* of the first call that failed; the functions below do nothing after it */
} theory_report;

typedef struct theory {
  const char *name, *statement;
  const char *assumption, *otherwise; /* what the promise needs, and what is taken to break it */
  const char *source;
  const char *x, *y; /* axes of the plot */
  size_t room;       /* bytes, zeros, that `measure` works in */
  void (*measure)(theory_report *, void *room);
} theory;

#define THEORY(name) extern const theory theory_##name;
#include "experiments/theory/theory.def"
#undef THEORY
#define THEORY_DEFINE(name, ...) const theory theory_##name = {__VA_ARGS__}
extern const theory *const theories[]; /* ends with NULL */

/* Fills the report. ENOMEM, and what the calls of the library return. */
attn_status theory_run(const theory *, uint64_t seed, theory_report *);

/* Is the promise kept, or broken where it must be, over the whole interval? Of SHOWN: true. */
bool theory_figure_holds(const theory_figure *);
/* "holds", "does not hold", "fails, as it must", "is kept without its assumption"; "" of SHOWN. */
const char *theory_figure_verdict(const theory_figure *);
/* Of all figures. */
bool theory_holds(const theory_report *);
extern const char *const theory_relations[]; /* "", "=", "<=", ">=" */

/* ---- what `measure` is written with -------------------------------------------------------------------- */

/* A figure to which a function figure_... of claim.h gives its value, and what is promised of it; breaks:
 * where the assumption does not hold. */
claim_figure *theory_promise(theory_report *, bool breaks, theory_relation, double promised, double tolerance,
                             const char *what, ...);
#define theory_show(r, ...) theory_promise(r, false, THEORY_SHOWN, (double)NAN, 0, __VA_ARGS__)
/* A number that is promised to be 0. */
#define theory_vanishes(r, breaks, value, ...) \
  figure_exact(theory_promise(r, breaks, THEORY_EQUAL, 0, __VA_ARGS__), value)
claim_figure *theory_point(theory_report *, const char *curve, double x);

/* N(0, deviation^2) */
void theory_normals(theory_report *, int64_t count, double deviation, double *x);
/* Rows of d of length 1 in the directions of N(mean, 1): uniform where the mean is 0. */
void theory_directions(theory_report *, int64_t count, int64_t d, double mean, double *x);

/* One head of fp64. */
attn_problem theory_problem(int64_t n_q, int64_t n_kv, int64_t d_qk, int64_t d_v, double scale);
void theory_attend(theory_report *, const attn_problem *, const char *spec, const attn_tensors *);
/* The weights [n_q, n_kv] of one head: attention to the unit vectors. unit: n_kv^2 numbers to work in. */
void theory_weights(theory_report *, attn_problem, const double *q, const double *k, double *unit,
                    double *weights);

/* How far two evaluations of one softmax row in fp64 can lie apart, in each component: of n keys of width d,
 * products scale |q_l k_l| of which a score sums at most `size`, values of at most `largest`. */
double theory_rounding(int64_t n, int64_t d, double size, double largest);
double theory_larger(double, double);                                    /* NaN if one is */
double theory_largest(const double *x, int64_t count);                   /* max |x_i| */
double theory_distance(const double *a, const double *b, int64_t count); /* max |a_i - b_i| */
double theory_score_size(int64_t n_q, int64_t n_kv, int64_t d, double scale, const double *q,
                         const double *k); /* max scale sum_l |q_l k_l| */

/* ---- what comes of reports ----------------------------------------------------------------------------- */

extern const output_kind kind_theory;
/* HDF5, a row a figure, and a page with a plot a statement; NULL: none. */
attn_status theory_write(const char *file, const char *page, const theory *const *, const theory_report *,
                         int count);

#endif

/* rows.h - goes through the judged rows of a run, and reduces what is found on them to one verdict. */
#ifndef EXPERIMENTS_EVIDENCE_ROWS_H
#define EXPERIMENTS_EVIDENCE_ROWS_H

#include "experiments/evidence/support_row.h"
#include "experiments/reference/seen.h"
#include "experiments/results/bound.h"

/* What a check found on one row: measured against value; why: it cannot be certified. */
typedef struct outcome {
  double measured, value;
  const char *why;
} outcome;
/* Nothing compared as yet; a finding that holds, by a bound that is too large to say anything. */
extern const char outcome_nothing[], outcome_vacuous[];
#define OUTCOME_NONE \
  { 0, 0, outcome_nothing }

/* Keeps the worse of two findings: a violation before the uncertifiable before the larger ratio, and any
 * before none; vacuous if one of the two is. Returns whether that is the second. */
bool outcome_worsen(outcome *worst, outcome);
/* Turns the worst finding into a HARD verdict; not applicable if nothing was compared; uncertifiable, with
 * its numbers, if it is vacuous or its bound infinite. Returns ATTN_OK. */
attn_status outcome_to_verdict(const outcome *worst, result_bound *);
/* The component of a row with the largest |a - b| / bound. */
outcome outcome_components(const double *a, const double *b, const double *bound, int64_t d);
/* The same of a bound on rounding, by values of at most this size: vacuous where it is above 1 % of the
 * size. */
outcome outcome_rounded(const double *a, const double *b, const double *bound, int64_t d, double size);

/* One row of the sample with everything about it. space->q and space->given (the run's output) are set. */
typedef struct row_case {
  const evidence *e;
  const head_data *head;
  const sample_row *row;
  const double *p, *o; /* exact, all keys */
  double sink;         /* exact weight of the row's sink */
  int64_t keys;
  row_space *space;
  void *context; /* of rows_check_with */
} row_case;

/* Judges rows of the sample in parallel, and settles the worst finding. Where all would exceed the budget of
 * a check (2^24 multiply-adds; cost_per_row of them each), rows spread over the sample and the edges, others
 * for another seed of the evidence. */
attn_status rows_check(const evidence *, double cost_per_row, outcome (*judge)(const row_case *),
                       result_bound *);

/* The same with a context, and with what is found of a (batch, head) before its rows; or NULL. */
typedef struct rows_judge {
  void *context;
  attn_status (*prepare)(void *context, const head_data *);
  outcome (*judge)(const row_case *);
} rows_judge;
attn_status rows_check_with(const evidence *, double cost_per_row, const rows_judge *, result_bound *);

/* About `wanted` of the judged rows (at least 8), a quarter of them edges; NULL: no memory. Release with
 * free. */
bool *rows_subsample(const evidence *, double wanted);

typedef struct rows_visitor {
  void *context;
  attn_status (*prepare)(void *context, const head_data *);  /* before the rows of a (batch, head); or NULL */
  void (*visit)(void *context, int64_t r, const row_case *); /* r: the row's place; in parallel */
} rows_visitor;
/* Visits the rows r with take[r] set. */
attn_status rows_walk(const evidence *, const bool *take, const rows_visitor *);

/* Visits rows, ascending, one after the other, each on keys and values as the view's store keeps them for it:
 * space->q, the run's output as space->given (where there is one) and the support are set. */
typedef struct stored_walk {
  const sample_row *rows;
  const bool *take; /* [count], or NULL: all */
  int64_t count;
  const seen_run *by; /* what selects keys; NULL: the run's variant, of what is stored */
  void *context;
  void (*visit)(void *context, int64_t r, const head_data *, row_space *);
} stored_walk;
attn_status rows_walk_stored(const evidence *, const stored_walk *);

/* Multiply-adds of a pass over the keys that one row sees. */
double row_cost(const evidence *);

/* -- what several checks need to know of a row, computed once for a run -- */

enum { ROW_DIRECTIONS = 2 };

/* Vectors are [d_v]. Nothing here depends on the run's output. */
typedef struct row_facts {
  const sample_row *row;
  const double *exact; /* the exact row */
  int64_t keys;        /* seen without a pattern */
  int64_t support;     /* seen under it */
  /* Softmax over the support, and bounds on how far rounding takes a computed one (FP-1), also by the
   * model. */
  row_verdict bounded, modelled;
  double *o, *bound, *model;
  /* How far fp64 may have taken an exact row; FP-3's bound, that included. */
  row_verdict reference, known;
  double *exact_error, *prior;
  /* Convex weights: range of the values of the support per component and in random directions, and what
   * rounding adds to a component. */
  row_verdict hulled;
  double *low, *high, *slack;
  double least[ROW_DIRECTIONS], most[ROW_DIRECTIONS];
  /* Of a pattern or a selection: the mass left out, o + t (o_S - o_T) by the exact weights (or o_S,
   * weighted), the largest
   * |v_j - o_S| over the keys
   * left out, and a bound on the mass from block centroids (SP-3). */
  double mass, *identity, far, certified;
  double divergence, divergence_room; /* |t - (1 - e^-KL(p_S || p))|, and its fp64 error (SEL-5) */
  double diameter;                    /* Delta_V of the head */
  double size;                        /* greatest magnitude of its values */
} row_facts;

/* Component l of direction t. */
double row_direction(const evidence *, int t, int64_t l);

/* How long chains of roundings need to be for the model to say more than FP-1; its lambda (FP-5). */
double row_lambda(const evidence *);

/* Judges rows by the run's output (given [d_v]) and their facts, which are made at the first call and kept in
 * e->cache; as many rows as 2^26 multiply-adds allow. */
typedef outcome facts_judge(const evidence *, const row_facts *, const double *given);
attn_status facts_check(const evidence *, facts_judge *, result_bound *);
void facts_forget(struct block_cache *);

/* What the rows with facts see; (*place)[r] < 0: judged row r has none. */
attn_status facts_seen(const evidence *, const seen_keys **, const int64_t **place);

#endif

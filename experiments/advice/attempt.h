/* attempt.h - one setting on the tensors of a request: planned, executed, compared. Internal to advice/. */
#ifndef EXPERIMENTS_ADVICE_ATTEMPT_H
#define EXPERIMENTS_ADVICE_ATTEMPT_H

#include "experiments/advice/advice.h"
#include "experiments/evidence/judged_run.h"
#include "experiments/instruments/guard.h"

/* What all attempts of a process share. A variant that writes to inputs crashes; what it writes beside its
 * output is found. */
typedef struct attempts {
  const advice_request *request;
  attn_problem problem; /* resolved */
  attn_options options;
  guard q, k, v, out;
  data_qkv input; /* the request's, in these */
  attn_extra extra[ATTN_EXTRA_KINDS];
  int64_t extras;
  exact_rows *rows;
  struct block_cache *cache;
  void *exact, *o;  /* outputs of exact attention, and of the attempt: out */
  double *square;   /* [rows of the output] */
  double reference; /* sum of squares of the exact output */
  attn_spec *exact_spec;
  bool whole;      /* rows has all rows: errors are against fp64, */
  double rounding; /* else to within the relative error of exact attention, the upper end of its interval */
  size_t memory;   /* bytes that a plan and its work may take */
  double done;     /* share of the variants that have been searched */
} attempts;

/* Moves the request's tensors, which this process alone has, behind guards; memory for outputs. */
attn_status attempts_open(const advice_request *, data_qkv *, attempts *);
/* Exact attention, which errors are relative to. */
attn_status attempts_refer(attempts *, advice_setting *exact, double *mean_v);
void attempts_close(attempts *);

/* Work memory between guards, NULL where none is needed; and whether a plan wrote beside it or its output. */
attn_status attempts_take_work(const attn_plan *, guard *);
attn_status attempts_check(const attempts *, const attn_spec *, const guard *work);
/* Into the attempt's output. */
attn_status attempts_execute(const attempts *, const attn_plan *, const guard *work);

typedef struct attempt {
  attn_spec *spec;
  bool exact, drawn, damaged; /* damaged: it wrote where it may not */
  int draws;                  /* that were made: error[0 .. draws) */
  double error[ADVICE_DRAWS];
  char nonfinite[DATA_PLACE]; /* the first element of an output that is not finite; empty: all are */
  double seconds, memory;
} attempt;

/* Plans and executes a spec, whose seed is that of the first draw. whole: all draws are made; else none after
 * one that is above the error asked for. ENOMEM, EUNSUPPORTED, EINVAL: it cannot be planned. */
attn_status attempt_run(const attempts *, const attn_spec *, bool whole, attempt *);
bool attempt_within(const attempts *, const attempt *);
void attempt_free(attempt *);

/* Fills a setting except its label and its time. */
attn_status attempt_settle(const attempts *, const attempt *, advice_setting *);

#endif

/* advice.h - which setting of which variant is the cheapest within an error on given tensors: measured, not
 * predicted.
 *
 * Of each variant the least budget (attn_budget) is searched whose output is within the error, by doubling
 * and then bisection; what is found is timed in turns with exact attention. An output is compared with that
 * of exact attention (tiled), row by row, all rows: where nothing is drawn, the error of that variant on
 * these tensors is known, up to the rounding of exact attention, which is itself measured against fp64 on a
 * sample of rows; so is an error that is not far above it. Where something is drawn the error is estimated
 * from several draws. */
#ifndef EXPERIMENTS_ADVICE_ADVICE_H
#define EXPERIMENTS_ADVICE_ADVICE_H

#include "data/data.h"

enum { ADVICE_DRAWS = 64 };

typedef struct advice_request {
  const data_qkv *input;
  const attn_problem *problem; /* of the input, with its scores and mask */
  /* Specs; a spec that sets its budget is measured unchanged. None: every variant with its presets, except
   * oracles: those that are the best of their rank (attn_low_rank), which cost more than exact attention. */
  const char *const *specs;
  int count;
  double error;     /* relative Frobenius error, in (0, 1) */
  int64_t kv_bytes; /* 0, or the size of the cache: the specs fit in it (caches.h), and the best errs least */
  double limit;     /* seconds for the search of a variant, looked at between executions */
  int draws;        /* of what is drawn, at most ADVICE_DRAWS */
  int64_t seed;     /* the first draw's */
  int threads;      /* 0: OpenMP's default */
  void (*progress)(void *to, double done, const char *text); /* done: share of the work, from 0 to 1 */
  void *to;
} advice_request;

typedef struct advice_setting {
  char *spec; /* without presets and seed */
  attn_spec *parsed;
  bool exact, within;
  int draws; /* 0: nothing is drawn; 1: the first was too far off for others */
  double error, error_lo,
      error_hi;                /* of draws: the mean with its 95 % interval; else known within the interval */
  double worst;                /* of the draws */
  double left_mean, left_most; /* exact weight of the keys left out, on some rows; NaN: no keys are */
  double keys_read;            /* share of the keys, on some rows; 1: all; NaN: it has no keys of its own */
  double time, time_lo, time_hi; /* median and its 95 % interval; one sample has none (NaN) */
  unsigned doubts;               /* of the time (analysis/doubts.h) */
  double memory;                 /* bytes of plan and work */
  char nonfinite[DATA_PLACE];    /* the first element of its output that is NaN or infinite; empty: none is */
  const char *ended;             /* why the search ended early; NULL: it did not */
} advice_setting;

/* Is it exact attention under another name, without the kernels for it? */
static inline bool advice_reads_all(const advice_setting *s) { return !s->exact && s->keys_read >= 1; }

typedef struct advice {
  advice_setting exact; /* tiled; its error is that against fp64, of sampled rows */
  /* Those within the error first, by time, then those of them that read all keys, then the others by
   * error. */
  advice_setting *settings;
  int64_t count,
      best;    /* best: -1 if none is faster than exact attention; of caches, if no output is finite */
  double load; /* average of the last minute, when the search began; NaN: not known */
  int threads, cores;
  double mean_v;      /* error of the mean of the values, which looks at no key */
  char **unsupported; /* [unsupported_count] lines, each of a variant that was left out, and why */
  int64_t unsupported_count;
} advice;

/* A failure of one variant is a line of `unsupported`, if it was not named. */
attn_status advice_make(const advice_request *, advice *);
void advice_free(advice *);

#endif

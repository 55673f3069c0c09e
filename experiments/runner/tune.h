/* tune.h - which block sizes are fastest on this machine: those that the caches suggest against candidates
 * around them.
 *
 * All candidates of a case are timed side by side with the suggested sizes, in interleaved rounds (bench.h).
 * The fastest of many is fast by luck too: it is timed anew, alone with the suggested sizes, and chosen if
 * the whole 95 % interval of the time ratio is below 1 both times. */
#ifndef EXPERIMENTS_RUNNER_TUNE_H
#define EXPERIMENTS_RUNNER_TUNE_H

#include <stddef.h>
#include <stdint.h>

#include "attn.h"

enum { TUNE_CANDIDATES = 9, TUNE_CASES_MAX = 64 };

typedef struct tune_candidate {
  attn_block_sizes blocks;
  double ratio, low, high; /* its time over that of the suggested sizes; NaN: not measured */
} tune_candidate;

typedef struct tune_case {
  const char *isa;
  attn_dtype dtype;
  int64_t d; /* d_qk = d_v */
  attn_block_sizes suggested;
  tune_candidate candidates[TUNE_CANDIDATES];
  size_t count;
  tune_candidate again; /* the fastest, timed anew; sizes of 0: none was surely faster */
  bool chosen;          /* it is, instead of the suggested */
} tune_case;

typedef struct tune_result {
  tune_case cases[TUNE_CASES_MAX];
  size_t count;
  double passed, had; /* seconds of all threads in the processor's peak, and what they had of a processor */
} tune_result;

/* Measures every instruction set but plain C, or the one that ATTN_ISA names. Knows no wisdom but what is
 * imported. */
attn_status tune_measure(bool quick, tune_result *);

/* The lines of a wisdom file for the cases in which a candidate was chosen, to be freed; NULL, recorded,
 * without memory. */
char *tune_lines(const tune_result *);

#endif

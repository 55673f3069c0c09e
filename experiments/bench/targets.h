/* targets.h - the target of each ratio of the benchmark. */
#ifndef EXPERIMENTS_BENCH_TARGETS_H
#define EXPERIMENTS_BENCH_TARGETS_H

#include <stdbool.h>

typedef enum {
  TARGET_NONE, /* reported only */
  TARGET_EXACT_AVX512,
  TARGET_EXACT_AVX2,
  TARGET_SPLIT,
  TARGET_SPLIT_WIDE,
  TARGET_BF16,
  TARGET_BF16_WIDE,
  TARGET_REFERENCE,
  TARGET_CAUSAL,
  TARGET_UNTUNED,
  TARGET_MEMORY,
  TARGET_SPARSE,
  TARGET_PERFORMER,
  TARGET_PERFORMER_CAUSAL,
  TARGET_LINEAR,
  TARGET_RECURRENT,
  TARGET_DELTA,
  TARGET_NYSTROM,
  TARGET_LINFORMER,
  TARGET_TRANSFORM,
  TARGET_GEMM,
  TARGET_FLAT,
  TARGET_THREADS,
  TARGET_DECODE,
  TARGET_READ,
  TARGET_STORE_16,
  TARGET_STORE_8,
  TARGET_STORE_4,
  TARGET_APPEND,
  TARGET_BIAS,
  TARGET_SOFTCAP,
  TARGET_DOCUMENTS,
  TARGET_TILE_SHARED,
  TARGET_ROW_SHARED,
  TARGET_QUEST,
  TARGET_QUEST_LONG,
  TARGET_QUEST_WIDE,
  TARGET_TOPK,
  TARGET_CROSSOVER,
  TARGET_LONG,
  TARGET_ALONE,
  TARGET_COUNT
} bench_target;

typedef struct bench_goal {
  bool at_most; /* else at least */
  double value; /* NaN for TARGET_NONE */
  const char *of;
} bench_goal;

extern const bench_goal bench_goals[TARGET_COUNT];

bool target_met(bench_target, double ratio); /* false for NaN */

#endif

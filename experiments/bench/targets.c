/* targets.c - the table of targets. */
#include "experiments/bench/targets.h"

#include <math.h>

const bench_goal bench_goals[TARGET_COUNT] = {
    [TARGET_NONE] = {false, (double)NAN, ""},
    [TARGET_EXACT_AVX512] = {false, 0.80, "tiled on AVX-512: flops over the FMA peak"},
    [TARGET_EXACT_AVX2] = {false, 0.75, "tiled on AVX2: flops over the AVX2 FMA peak"},
    [TARGET_SPLIT] = {false, 1.2, "tiled split in terms of bf16, d <= 64: flops over the FMA peak"},
    [TARGET_SPLIT_WIDE] = {false, 1.3, "tiled split in terms of bf16, d > 64: flops over the FMA peak"},
    [TARGET_BF16] = {false, 0.40, "tiled in bf16, d <= 64: flops over the peak of tile products"},
    [TARGET_BF16_WIDE] = {false, 0.52, "tiled in bf16, d > 64: flops over the peak of tile products"},
    [TARGET_REFERENCE] = {false, 0.70, "exact attention in fp64 on all rows: flops over the fp64 FMA peak"},
    [TARGET_CAUSAL] = {true, 0.54, "causal time over non-causal time"},
    [TARGET_UNTUNED] = {false, 0.75, "short sequences, odd head sizes: flops over the nearest tuned size's"},
    [TARGET_MEMORY] = {true, 1, "plan and work memory over 5 % of Q, K, V, O and one head's K, V"},
    [TARGET_SPARSE] = {false, 0.85, "sparse patterns: flops over dense tiled's"},
    [TARGET_PERFORMER] = {false, 0.60, "performer: flops over the FMA peak"},
    [TARGET_PERFORMER_CAUSAL] = {false, 0.45, "causal performer: flops over the FMA peak"},
    [TARGET_LINEAR] = {false, 0.50, "linear, fixed features: flops over the FMA peak"},
    [TARGET_RECURRENT] = {false, 0.50, "recurrent, decays: flops over the FMA peak"},
    [TARGET_DELTA] = {false, 0.35, "recurrent, delta rules: flops over the FMA peak"},
    [TARGET_STEP] = {false, 0.70,
                     "a token of a recurrence: bytes of states per second over the read bandwidth"},
    [TARGET_NYSTROM] = {false, 0.60, "nystrom, 64 landmarks: flops over the FMA peak"},
    [TARGET_LINFORMER] = {false, 0.60, "linformer, gaussian: flops over the FMA peak"},
    [TARGET_TRANSFORM] = {true, 2,
                          "linformer, fast transforms: time over the transform's and the attention's"},
    [TARGET_CONVOLUTION] = {true, 2, "toeplitz: time over that of its transforms by FFTW"},
    [TARGET_GEMM] = {false, 0.80, "gemm of full attention: flops over OpenBLAS's"},
    [TARGET_FLAT] = {true, 1.15, "time per token of a long sequence over that of a short one"},
    [TARGET_BACKWARD] = {false, 0.70, "backward, tiled: flops over the FMA peak"},
    [TARGET_BACKWARD_FORWARD] = {true, 2.7, "backward, tiled: time over the forward pass"},
    [TARGET_BACKWARD_CAUSAL] = {true, 0.55, "backward, tiled: causal time over non-causal time"},
    [TARGET_BACKWARD_ONE] = {false, 0.90, "backward, tiled: flops per second of one head over 8"},
    [TARGET_BACKWARD_PATTERN] = {false, 0.80, "backward: flops per second of a pattern over tiled"},
    [TARGET_THREADS] = {false, 1.85, "time on one thread over time on two"},
    [TARGET_DECODE] = {false, 0.80, "few queries: bytes of K and V per second over the read bandwidth"},
    [TARGET_READ] = {false, 0.85, "one query: bytes of K and V per second over the read bandwidth"},
    [TARGET_STORE_16] = {true, 1 / 1.8, "one query, keys and values of 16 bits: time over that of fp32"},
    [TARGET_STORE_8] = {true, 1 / 3.0, "one query, keys and values of 8 bits: time over that of fp32"},
    [TARGET_STORE_4] = {true, 1 / 5.0, "one query, keys and values of 4 bits: time over that of fp32"},
    [TARGET_APPEND] = {true, 0.02, "a token more in a cache: time over that of attention to it"},
    [TARGET_BIAS] = {true, 1.10, "with a bias of the distance: time over that without"},
    [TARGET_SOFTCAP] = {true, 1.25, "with a soft cap: time over that without"},
    [TARGET_DOCUMENTS] = {false, 1 / 1.3, "documents: flops per second over those of one sequence"},
    [TARGET_TILE_SHARED] = {false, 0.70, "keys selected for blocks of queries: flops over dense tiled's"},
    [TARGET_ROW_SHARED] = {false, 0.35, "keys selected for each query: flops over dense tiled's"},
    [TARGET_QUEST] = {true, 1 / 1.8, "pages, 1024 keys of 16Ki: time over dense tiled's"},
    [TARGET_QUEST_LONG] = {true, 1 / 4.0, "pages of 16, 1024 keys of 64Ki: time over dense tiled's"},
    [TARGET_QUEST_WIDE] = {true, 1 / 7.0, "pages of 64, 1024 keys of 64Ki: time over dense tiled's"},
    [TARGET_TOPK] = {true, 1.3, "exact top-k of 16Ki keys: time over dense tiled's"},
    [TARGET_CROSSOVER] = {true, 1.3, "length where a variant overtakes tiled over the predicted one"},
    [TARGET_LONG] = {true, 3, "peak memory of a million tokens in GiB"},
    [TARGET_ALONE] = {false, 0.95,
                      "processor time over elapsed time: below it, other processes disturb every figure"},
};

bool target_met(bench_target which, double ratio) {
  const bench_goal *t = &bench_goals[which];
  return t->at_most ? ratio <= t->value : ratio >= t->value;
}

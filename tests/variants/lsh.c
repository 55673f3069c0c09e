/* lsh.c - rows without keys. Which keys of lsh share a bucket is for LSH-1 (experiments/checks). */
#include "tests/variants/picks.h"

enum { D = 16 };

/* A query opposite to its only key shares no bucket with it. */
Test(variants_lsh, without_a_window_rows_may_be_empty) {
  attn_problem p = attn_problem_make(1, 1, 1, D);
  inputs in = inputs_make(&p, false, 3, 1);
  for (int64_t l = 0; l < D; l++) {
    inputs_set(&in, TENSOR_Q, 0, 0, 0, l, 1);
    inputs_set(&in, TENSOR_K, 0, 0, 0, l, -1);
  }
  for (int window = 0; window < 2; window++) {
    picks x = picks_of(window ? "lsh:rounds=2" : "lsh:rounds=2,window=0", &in);
    const uint32_t sum_to_one = ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX;
    EXPECT(picks_has(&x, 0, 0) == (window > 0));
    EXPECT((x.view.caps & sum_to_one) == (window ? sum_to_one : 0));
  }
}

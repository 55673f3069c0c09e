/* vslash.c - the keys that vslash picks against sums in long double. */
#include "tests/variants/picks.h"

enum { HEADS = 4, N_Q = 75, N_KV = 90, D = 16, VERTICAL = 7, SLASH = 5, LAST = 9, SINK = 3, WINDOW = 2 };

/* Is x[at] among the `count` largest of places first ... end - 1? Of equal ones the lower come first. */
static bool among(const long double *x, int64_t first, int64_t end, int64_t count, int64_t at) {
  int64_t ahead = 0;
  for (int64_t i = first; i < end; i++) ahead += x[i] > x[at] || (!(x[i] < x[at]) && i < at);
  return at >= first && ahead < count;
}

/* Sums of columns, and of diagonals at t_i - j + N_Q. */
static void add_row(const inputs *in, int64_t b, int64_t h, int64_t i, long double *column,
                    long double *diagonal) {
  const int64_t kv_head = h / (in->problem.heads / in->problem.kv_heads);
  int64_t keys[N_KV];
  const int64_t count = oracle_keys(in, NULL, b, h, i, keys);
  long double weight[N_KV], sum = 0;
  for (int64_t a = 0; a < count; a++) {
    long double s = 0;
    for (int64_t l = 0; l < D; l++)
      s += (long double)inputs_get(in, TENSOR_Q, b, h, i, l) *
           (long double)inputs_get(in, TENSOR_K, b, kv_head, keys[a], l);
    sum += weight[a] = expl(s * (long double)in->problem.scale);
  }
  for (int64_t a = 0; a < count; a++) {
    column[keys[a]] += weight[a] / sum;
    diagonal[i + N_KV - keys[a]] += weight[a] / sum; /* t_i = i + N_KV - N_Q */
  }
}

static int64_t wrong_picks(const inputs *in, const picks *x, int64_t b, int64_t h) {
  const bool causal = in->problem.causal;
  long double column[N_KV] = {0}, diagonal[N_Q + N_KV] = {0};
  const int64_t keys = inputs_keys(in, b), end = keys - (N_KV - N_Q);
  int64_t seen[N_KV], wrong = 0;
  for (int64_t i = end > LAST ? end - LAST : 0; i < end; i++) add_row(in, b, h, i, column, diagonal);
  for (int64_t i = 0; i < N_Q; i++) {
    const int64_t count = oracle_keys(in, NULL, b, h, i, seen);
    for (int64_t a = 0; a < count; a++) {
      const int64_t j = seen[a];
      const bool kept = j < SINK || a >= count - WINDOW || among(column, SINK, keys, VERTICAL, j) ||
                        among(diagonal, causal ? N_Q : 1, N_Q + N_KV, SLASH, i + N_KV - j);
      wrong += picks_has(x, (b * HEADS + h) * N_Q + i, j) != kept;
    }
  }
  return wrong;
}

Test(variants_vslash, columns_and_diagonals_of_the_largest_sums) {
  for (int causal = 0; causal < 2; causal++) {
    inputs in = inputs_shaped((case_shape){3, HEADS, 2, N_Q, N_KV, D, 5, causal, true}, ATTN_F64, 31, 1);
    in.kv_len[2] = N_KV - 4; /* the last queries stand at no key */
    picks x = picks_of("vslash:vertical=7,slash=5,last=9,sink=3,window=2", &in);
    for (int64_t b = 0; b < 3; b++)
      for (int64_t h = 0; h < HEADS; h++) EXPECT(wrong_picks(&in, &x, b, h) == 0);
    inputs_free(&in);
  }
}

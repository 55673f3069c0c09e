/* landmarks.c - rows that represent others, and the weights of attention among them, in fp64. */
#include "core/engines/lowrank/landmark_head.h"

#include <math.h>
#include <string.h>

bool landmark_rows(const attn_low_rank *law, attn_side side, const void *x, int64_t row, attn_dtype t,
                   int64_t n, int64_t landmarks, int64_t d, double *to) {
  for (int64_t l = 0; l < landmarks; l++) {
    int64_t first = -1, count = 0;
    law->segment(law->state, side, n, landmarks, l, &first, &count);
    if (first < 0 || first >= n || count < 1 || count > n - first) return false;
    attn_numbers[t].add(attn_at(x, first * row, t), row, count, d, to + l * d);
    for (int64_t c = 0; c < d; c++) to[l * d + c] /= (double)count;
  }
  return true;
}

void landmark_rows_back(const attn_low_rank *law, attn_side side, const double *from, int64_t n,
                        int64_t landmarks, int64_t d, attn_dtype t, void *to) {
  for (int64_t l = 0; l < landmarks; l++) {
    int64_t first, count;
    law->segment(law->state, side, n, landmarks, l, &first, &count);
    for (int64_t i = first * d; i < (first + count) * d; i++)
      attn_set(to, i, t, attn_get(to, i, t) + from[l * d + i % d] / (double)count);
  }
}

void landmark_narrow(const double *x, int64_t count, attn_dtype t, void *to, int64_t at) {
  for (int64_t l = 0; l < count; l++) attn_set(to, at + l, t, x[l]);
}

static double inner(const double *x, const double *y, int64_t d) {
  double sum = 0;
  for (int64_t l = 0; l < d; l++) sum += x[l] * y[l];
  return sum;
}

void landmark_weights(const double *q, const double *k, int64_t m, int64_t d, double scale, double *a,
                      int64_t a_row, double *sums) {
  for (int64_t i = 0; i < m; i++) {
    double *row = a + i * a_row, top = -(double)INFINITY, sum = 0;
    for (int64_t j = 0; j < m; j++) {
      row[j] = scale * inner(q + i * d, k + j * d, d);
      if (row[j] > top) top = row[j];
    }
    for (int64_t j = 0; j < m; j++) sum += row[j] = exp(row[j] - top);
    for (int64_t j = 0; j < m; j++) row[j] /= sum;
    sums[i] = top + log(sum);
  }
}

void landmark_weights_back(const double *q, const double *k, int64_t m, int64_t d, double scale,
                           const double *a, const double *da, int64_t a_row, const double *dsums, double *dq,
                           double *dk) {
  memset(dq, 0, (size_t)(m * d) * sizeof *dq);
  memset(dk, 0, (size_t)(m * d) * sizeof *dk);
  for (int64_t i = 0; i < m; i++) {
    const double *row = a + i * a_row, *by = da + i * a_row, mean = attn_inner(row, by, m);
    for (int64_t j = 0; j < m; j++) {
      const double ds = scale * row[j] * (by[j] - mean + dsums[i]);
      attn_add_times(ds, k + j * d, dq + i * d, d);
      attn_add_times(ds, q + i * d, dk + j * d, d);
    }
  }
}

/* landmarks.c - rows that stand for others, and the weights of attention among them, in fp64. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

/* to += the sum of `count` rows, four at a time: each is converted to fp64, which costs more than to add it. t is a constant
 * where it is called, and eight columns are vectors then. */
static inline void add_rows(const void *x, int64_t row, int64_t count, const attn_dtype t, int64_t d,
                            double *to) {
  enum { ROWS = 4, COLUMNS = 8 };
  int64_t i = 0;
  for (; i + ROWS <= count; i += ROWS) {
    int64_t at = i * row, l = 0;
    for (; l + COLUMNS <= d; l += COLUMNS, at += COLUMNS)
      for (int64_t c = 0; c < COLUMNS; c++)
        to[l + c] += attn_get(x, at + c, t) + attn_get(x, at + row + c, t) +
                     (attn_get(x, at + 2 * row + c, t) + attn_get(x, at + 3 * row + c, t));
    for (; l < d; l++, at++)
      for (int64_t r = 0; r < ROWS; r++) to[l] += attn_get(x, at + r * row, t);
  }
  for (; i < count; i++)
    for (int64_t l = 0; l < d; l++) to[l] += attn_get(x, i * row + l, t);
}

void attn_landmarks(const attn_low_rank *law, attn_side side, const void *x, int64_t row, attn_dtype t,
                    int64_t n, int64_t landmarks, int64_t d, double *to) {
  if (!law || !law->segment || !x || !to) return;
  memset(to, 0, (size_t)(landmarks * d) * sizeof *to);
  for (int64_t l = 0; l < landmarks; l++) {
    int64_t first, count;
    law->segment(law->state, side, n, landmarks, l, &first, &count);
    if (t == ATTN_F64) add_rows(attn_at(x, first * row, t), row, count, ATTN_F64, d, to + l * d);
    if (t == ATTN_F32) add_rows(attn_at(x, first * row, t), row, count, ATTN_F32, d, to + l * d);
    for (int64_t c = 0; c < d; c++) to[l * d + c] /= (double)count;
  }
}

static double inner(const double *x, const double *y, int64_t d) {
  double sum = 0;
  for (int64_t l = 0; l < d; l++) sum += x[l] * y[l];
  return sum;
}

void attn_landmark_weights(const double *q, const double *k, int64_t m, int64_t d, double scale, double *a,
                           int64_t a_row, double *sums) {
  if (!q || !k || !a || !sums) return;
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

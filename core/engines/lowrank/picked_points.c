/* picked_points.c - picked points stand for all by a Gaussian kernel G. With G_SS = L L^T and F = G_.S L^-T
 * of the queries and keys, weights F_Q F_K^T are G_QS G_SS^-1 G_SK: outputs are F_Q (F_K^T V), and of KEYS,
 * whose values and whose 1 are times e^(scale |x_j|^2 / 2), divided by the last column.
 *
 * e^(scale q.k) = e^(scale |y|^2 / 2) G(y, x) e^(scale |x|^2 / 2), y = t q, x = k / t: the first factor is
 * the same in a row, and so is what raises the largest G(y, x_s) to 1, without which far queries would lose
 * all of theirs. */
#include "core/engines/lowrank/picked_head.h"

#include <math.h>
#include <string.h>

static double distance(const double *x, const double *y, int64_t d) {
  double s[4] = {0, 0, 0, 0};
  int64_t l = 0;
  for (; l + 4 <= d; l += 4)
    for (int i = 0; i < 4; i++) s[i] += (x[l + i] - y[l + i]) * (x[l + i] - y[l + i]);
  for (; l < d; l++) s[0] += (x[l] - y[l]) * (x[l] - y[l]);
  return (s[0] + s[1]) + (s[2] + s[3]);
}

bool attn_gauss_column(double scale, int64_t n, int64_t d, const double *x, const double *raise, int64_t at,
                       double least, int64_t column, double *factor, double *rest) {
  if (!x || !factor || !rest || !(rest[at] > least)) return false;
  double *to = factor + column * n;
  const double root = sqrt(rest[at]);
  for (int64_t i = 0; i < n; i++)
    to[i] = exp((raise ? raise[i] : 0) - scale * distance(x + i * d, x + at * d, d) / 2);
  for (int64_t c = 0; c < column; c++) {
    const double *before = factor + c * n, by = before[at];
    for (int64_t i = 0; i < n; i++) to[i] -= by * before[i];
  }
  for (int64_t i = 0; i < n; i++) {
    to[i] /= root;
    rest[i] = rest[i] - to[i] * to[i] < 0 ? 0 : rest[i] - to[i] * to[i];
  }
  rest[at] = 0;
  return true;
}

typedef struct room {
  double *factor, *rest, *raise; /* [most, n_q + keys], [n_q + keys] */
  double *sums, *sizes;          /* F_K^T V, [most, v_row]; sum_j |F_j|, [most] */
} room;

static room room_at(const picked_head *h, attn_carver *carver) {
  const int64_t n = h->n_q + h->keys;
  return (room){.factor = attn_carve(carver, h->most, n, sizeof(double)),
                .rest = attn_carve(carver, n, 1, sizeof(double)),
                .raise = attn_carve(carver, n, 1, sizeof(double)),
                .sums = attn_carve(carver, h->most, h->v_row, sizeof(double)),
                .sizes = attn_carve(carver, h->most, 1, sizeof(double))};
}

void picked_points_room(const picked_head *h, attn_carver *carver) { room_at(h, carver); }

/* Queries and keys to y and x, values and their 1 to those times e^(scale |x|^2 / 2), the largest of which
 * is 1; and what raises a query's exponents. */
static void prepare_keys(const picked_head *h, int64_t count, const room *x) {
  const double scale = h->context->problem->scale, t = h->law->temperature;
  double top = 0;
  for (int64_t i = 0; i < h->n_q * h->d; i++) h->q[i] *= t;
  for (int64_t l = 0; l < h->d; l++) {
    double sum = 0;
    for (int64_t j = 0; j < h->keys; j++) sum += h->k[j * h->d + l];
    for (int64_t j = 0; j < h->keys; j++)
      h->k[j * h->d + l] = (h->k[j * h->d + l] - sum / (double)h->keys) / t;
  }
  for (int64_t j = 0; j < h->keys; j++) {
    double *half = x->raise + h->n_q + j, square = 0;
    for (int64_t l = 0; l < h->d; l++) square += h->k[j * h->d + l] * h->k[j * h->d + l];
    *half = scale * square / 2;
    if (!(*half <= top)) top = *half;
  }
  for (int64_t j = 0; j < h->keys; j++) {
    const double by = exp(x->raise[h->n_q + j] - top);
    for (int64_t l = 0; l <= h->d_v; l++) h->v[j * h->v_row + l] *= by;
    x->raise[h->n_q + j] = 0;
  }
  for (int64_t i = 0; i < h->n_q; i++) {
    double nearest = (double)INFINITY;
    for (int64_t s = 0; s < count; s++) {
      const double far = scale * distance(h->q + i * h->d, h->k + h->picked[s] * h->d, h->d) / 2;
      if (far < nearest) nearest = far;
    }
    x->raise[i] = nearest;
  }
}

/* By the last column; NaN where the sum is not above 2^-26 of its products' magnitudes. */
static void divide(const picked_head *h, int64_t columns, const room *x) {
  const int64_t n = h->n_q + h->keys;
  for (int64_t c = 0; c < columns; c++) {
    x->sizes[c] = 0;
    for (int64_t j = 0; j < h->keys; j++)
      x->sizes[c] += fabs(x->factor[c * n + h->n_q + j]) * h->v[j * h->v_row + h->d_v];
  }
  for (int64_t i = 0; i < h->n_q; i++) {
    double *o = h->o + i * h->v_row, size = 0;
    for (int64_t c = 0; c < columns; c++) size += fabs(x->factor[c * n + i]) * x->sizes[c];
    const double by = o[h->d_v] > 0x1p-26 * size ? o[h->d_v] : (double)NAN;
    for (int64_t l = 0; l < h->d_v; l++) o[l] /= by;
  }
}

void picked_points(const picked_head *h, int64_t count) {
  const bool keys = h->law->picked == ATTN_PICKED_KEYS;
  const int64_t n = h->n_q + h->keys;
  attn_carver carver = {.base = h->space};
  const room x = room_at(h, &carver);
  int64_t columns = 0;
  for (int64_t j = 0; j < h->keys; j++) h->v[j * h->v_row + h->d_v] = 1;
  for (int64_t i = 0; i < n; i++) x.rest[i] = 1;
  if (keys) prepare_keys(h, count, &x);
  for (int64_t s = 0; s < count; s++)
    columns +=
        attn_gauss_column(h->context->problem->scale, n, h->d, h->q, keys ? x.raise : NULL,
                          h->picked[s] + (keys ? h->n_q : 0), h->law->rcond, columns, x.factor, x.rest);
  attn_product(h->wide, columns, h->d_v + 1, h->keys, (attn_matrix){x.factor + h->n_q, n, 1}, h->v, h->v_row,
               false, x.sums, h->v_row);
  attn_product(h->wide, h->n_q, h->d_v + 1, columns, (attn_matrix){x.factor, 1, n}, x.sums, h->v_row, false,
               h->o, h->v_row);
  if (keys) divide(h, columns, &x);
}

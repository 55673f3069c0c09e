/* picked_clusters.c - queries of a cluster share the weights of their mean c; with `own` keys T, those of the
 * largest c.k, o_i = sum_(j not in T) w_cj v_j + (sum_T w_cj) softmax_T(scale q_i.k) V_T (Vyas et al. 2020,
 * arXiv:2007.04825, sections 3.2 and 3.3). Weights stand key by key, so that all clusters share a product. */
#include "core/engines/lowrank/picked_head.h"

#include <math.h>
#include <string.h>

typedef struct room {
  int64_t row, own;
  double *means;           /* [d, row]: a column of each cluster */
  double *weights;         /* [keys, row] */
  double *top, *sum;       /* [row] */
  double *shared, *scores; /* [clusters, v_row]: without their own keys; [own] */
  int64_t *keys;           /* [clusters, own] */
} room;

static room room_at(const picked_head *h, attn_carver *carver) {
  const int64_t row = attn_padded(h->most, ATTN_F64), own = attn_min(h->law->own, h->keys);
  return (room){.row = row,
                .own = own,
                .means = attn_carve(carver, h->d, row, sizeof(double)),
                .weights = attn_carve(carver, h->keys, row, sizeof(double)),
                .top = attn_carve(carver, row, 1, sizeof(double)),
                .sum = attn_carve(carver, row, 1, sizeof(double)),
                .shared = attn_carve(carver, h->most, h->v_row, sizeof(double)),
                .scores = attn_carve(carver, own, 1, sizeof(double)),
                .keys = attn_carve(carver, h->most, own, sizeof(int64_t))};
}

void picked_clusters_room(const picked_head *h, attn_carver *carver) { room_at(h, carver); }

static void find_means(const picked_head *h, int64_t count, const room *x) {
  memset(x->means, 0, (size_t)(h->d * x->row) * sizeof *x->means);
  memset(x->sum, 0, (size_t)x->row * sizeof *x->sum);
  for (int64_t i = 0; i < h->n_q; i++) {
    x->sum[h->picked[i]]++;
    for (int64_t l = 0; l < h->d; l++) x->means[l * x->row + h->picked[i]] += h->q[i * h->d + l];
  }
  for (int64_t l = 0; l < h->d; l++)
    for (int64_t c = 0; c < count; c++) x->means[l * x->row + c] /= x->sum[c] > 0 ? x->sum[c] : 1;
}

/* The keys of the largest scores of a cluster, the first of equal ones. */
static void rank_keys(const picked_head *h, int64_t c, const room *x) {
  int64_t *best = x->keys + c * x->own, count = 0;
  for (int64_t j = 0; j < h->keys; j++) {
    const double score = x->weights[j * x->row + c];
    if (count == x->own && !(score > x->scores[count - 1])) continue;
    int64_t at = count < x->own ? count++ : count - 1;
    for (; at > 0 && score > x->scores[at - 1]; at--) {
      x->scores[at] = x->scores[at - 1];
      best[at] = best[at - 1];
    }
    x->scores[at] = score;
    best[at] = j;
  }
}

/* Scores to weights, of all clusters at once. */
static void soften(const picked_head *h, int64_t count, const room *x) {
  for (int64_t c = 0; c < count; c++) {
    x->top[c] = -(double)INFINITY;
    x->sum[c] = 0;
  }
  for (int64_t j = 0; j < h->keys; j++)
    for (int64_t c = 0; c < count; c++)
      if (x->weights[j * x->row + c] > x->top[c]) x->top[c] = x->weights[j * x->row + c];
  for (int64_t j = 0; j < h->keys; j++)
    for (int64_t c = 0; c < count; c++)
      x->sum[c] += x->weights[j * x->row + c] = exp(x->weights[j * x->row + c] - x->top[c]);
  for (int64_t j = 0; j < h->keys; j++)
    for (int64_t c = 0; c < count; c++) x->weights[j * x->row + c] /= x->sum[c];
}

/* Adds to o what the own keys of query i have of `mass`. */
static void add_own(const picked_head *h, int64_t i, double mass, const room *x) {
  const int64_t *keys = x->keys + h->picked[i] * x->own;
  double top = -(double)INFINITY, sum = 0, *o = h->o + i * h->v_row;
  for (int64_t t = 0; t < x->own; t++) {
    double score = 0;
    for (int64_t l = 0; l < h->d; l++) score += h->q[i * h->d + l] * h->k[keys[t] * h->d + l];
    x->scores[t] = h->context->problem->scale * score;
    if (x->scores[t] > top) top = x->scores[t];
  }
  for (int64_t t = 0; t < x->own; t++) sum += x->scores[t] = exp(x->scores[t] - top);
  for (int64_t t = 0; t < x->own; t++)
    for (int64_t l = 0; l < h->d_v; l++) o[l] += mass * (x->scores[t] / sum) * h->v[keys[t] * h->v_row + l];
}

void picked_clusters(const picked_head *h, int64_t count) {
  attn_carver carver = {.base = h->space};
  const room x = room_at(h, &carver);
  find_means(h, count, &x);
  attn_product(h->wide, h->keys, count, h->d, (attn_matrix){h->k, h->d, 1}, x.means, x.row, false, x.weights,
               x.row);
  for (int64_t j = 0; j < h->keys; j++)
    for (int64_t c = 0; c < count; c++) x.weights[j * x.row + c] *= h->context->problem->scale;
  for (int64_t c = 0; c < count && x.own > 0; c++) rank_keys(h, c, &x);
  soften(h, count, &x);
  for (int64_t c = 0; c < count; c++) {
    x.sum[c] = 0;
    for (int64_t t = 0; t < x.own; t++) {
      double *w = x.weights + x.keys[c * x.own + t] * x.row + c;
      x.sum[c] += *w;
      *w = 0;
    }
  }
  attn_product(h->wide, count, h->d_v, h->keys, (attn_matrix){x.weights, 1, x.row}, h->v, h->v_row, false,
               x.shared, h->v_row);
  for (int64_t i = 0; i < h->n_q; i++) {
    memcpy(h->o + i * h->v_row, x.shared + h->picked[i] * h->v_row, (size_t)h->d_v * sizeof(double));
    if (x.own > 0) add_own(h, i, x.sum[h->picked[i]], &x);
  }
}

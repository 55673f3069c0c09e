/* picked.c - see picked.h. Cluster by cluster and row by row; none of it is the engine's code. */
#include "experiments/checks/lowrank/picked.h"

#include "experiments/checks/lowrank/picked_kernel.h"
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

attn_status picked_rows(region *memory, const attn_low_rank *x, const low_rank_head *h, int64_t **picked,
                        int64_t *count) {
  const attn_picked_head head = {h->n_q, h->keys, h->d_qk, h->q, h->k};
  void *room = aligned_alloc(64, (x->scratch + 64) / 64 * 64);
  *picked = region_take(memory, h->n_q + h->keys, sizeof **picked);
  if (!room || !*picked) {
    free(room);
    return attn_fail(ATTN_ENOMEM, "no memory for picked rows");
  }
  *count = x->pick(x->state, h->context, &head, *picked, room);
  free(room);
  const bool clusters = x->picked == ATTN_PICKED_CLUSTERS;
  const int64_t end = clusters ? *count : x->picked == ATTN_PICKED_KEYS ? h->keys : h->n_q + h->keys;
  bool sound = *count >= clusters && *count <= (clusters ? h->n_q : end);
  for (int64_t i = 0; sound && i < (clusters ? h->n_q : *count); i++)
    sound = (*picked)[i] >= 0 && (*picked)[i] < end;
  return sound ? ATTN_OK : attn_fail(ATTN_EFOREIGN, "low_rank.pick gives rows that there are not");
}

/* Scores of the mean of the queries of cluster c, and the mean [d]. Returns the largest size of a sum. */
static double mean_scores(const low_rank_head *h, const int64_t *cluster, int64_t c, double *mean,
                          double *scores) {
  double members = 0, most = 0;
  memset(mean, 0, (size_t)h->d_qk * sizeof *mean);
  for (int64_t i = 0; i < h->n_q; i++) members += cluster[i] == c;
  for (int64_t i = 0; i < h->n_q; i++)
    for (int64_t l = 0; l < h->d_qk && cluster[i] == c; l++) mean[l] += h->q[i * h->d_qk + l] / members;
  for (int64_t j = 0; j < h->keys; j++) {
    double size = 0;
    scores[j] = h->scale * vector_dot(mean, h->k + j * h->d_qk, h->d_qk);
    for (int64_t l = 0; l < h->d_qk; l++) size += fabs(h->scale * mean[l] * h->k[j * h->d_qk + l]);
    most = fmax(most, size);
  }
  return most;
}

/* Marks the `own` largest of n scores, the first of equal ones. Returns how far the least of them is above
 * the largest of the others. */
static double mark_largest(const double *scores, int64_t n, int64_t own, bool *marked) {
  double least = (double)INFINITY, other = -(double)INFINITY;
  memset(marked, 0, (size_t)n * sizeof *marked);
  for (int64_t t = 0; t < own && t < n; t++) {
    int64_t best = -1;
    for (int64_t j = 0; j < n; j++)
      if (!marked[j] && (best < 0 || scores[j] > scores[best])) best = j;
    marked[best] = true;
    least = scores[best];
  }
  for (int64_t j = 0; j < n; j++)
    if (!marked[j]) other = fmax(other, scores[j]);
  return least - other;
}

/* From those of its cluster's mean to those of query i: the marked keys have among them what the query
 * gives. */
static void own_weights(const low_rank_head *h, int64_t i, const bool *marked, double *w) {
  double top = -(double)INFINITY, mass = 0, sum = 0;
  for (int pass = 0; pass < 3; pass++)
    for (int64_t j = 0; j < h->keys; j++) {
      if (!marked[j]) continue;
      const double score = h->scale * vector_dot(h->q + i * h->d_qk, h->k + j * h->d_qk, h->d_qk);
      if (pass == 0) {
        mass += w[j];
        top = fmax(top, score);
      } else if (pass == 1) {
        sum += exp(score - top);
      } else {
        w[j] = mass * exp(score - top) / sum;
      }
    }
}

static attn_status cluster_weights(region *memory, const attn_low_rank *x, const low_rank_head *h,
                                   const int64_t *cluster, int64_t count, double unit, double *w,
                                   double *amplified) {
  const int64_t n = h->keys;
  double *mean = region_take(memory, h->d_qk, sizeof *mean), *scores = region_take(memory, n, sizeof *scores);
  bool *marked = region_take(memory, n, sizeof *marked);
  if (region_status(memory, "for the weights of a cluster")) return ATTN_ENOMEM;
  for (int64_t c = 0; c < count; c++) {
    const double size = mean_scores(h, cluster, c, mean, scores),
                 off = (double)(4 * h->d_qk + h->n_q) * 0x1p-53 * size;
    const bool tied = x->own > 0 && x->own < n && !(mark_largest(scores, n, x->own, marked) > 2 * off);
    if (x->own >= n) mark_largest(scores, n, n, marked);
    double top = scores[0], sum = 0;
    for (int64_t j = 0; j < n; j++) top = fmax(top, scores[j]);
    for (int64_t j = 0; j < n; j++) sum += scores[j] = exp(scores[j] - top);
    for (int64_t i = 0; i < h->n_q; i++) {
      if (cluster[i] != c) continue;
      for (int64_t j = 0; j < n; j++) w[i * n + j] = scores[j] / sum;
      if (x->own > 0) own_weights(h, i, marked, w + i * n);
      amplified[i] = tied ? (double)INFINITY : 1 + size * 0x1p-53 / unit;
    }
  }
  return ATTN_OK;
}

attn_status picked_weights(region *memory, const attn_low_rank *x, const low_rank_head *h, double unit,
                           double *w, double *amplified) {
  int64_t *picked, count = 0;
  if (x->picked != ATTN_PICKED_CLUSTERS) return picked_kernel_weights(memory, x, h, unit, w, amplified);
  const attn_status status = picked_rows(memory, x, h, &picked, &count);
  return status ? status : cluster_weights(memory, x, h, picked, count, unit, w, amplified);
}

/* head.c - keys and values of one (batch, head) in fp64, with what bounds need of them: ranges, norms,
 * Delta_V. */
#include "experiments/evidence/head.h"

#include "experiments/evidence/cache.h"
#include "experiments/evidence/support_row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/mathematics/vector.h"

static const int64_t held_max = INT64_C(1) << 28; /* bytes */

void head_data_measure(head_data *h) {
  int64_t d = h->problem->d_qk, d_v = h->problem->d_v;
  double far = 0;
  for (int64_t l = 0; l < d_v; l++) {
    h->low[l] = h->keys ? h->v[l] : 0;
    h->high[l] = h->low[l];
  }
  double *restrict low = h->low, *restrict high = h->high, *restrict mean = h->mean;
  for (int64_t j = 0; j < h->keys; j++) {
    const double *v = h->v + j * d_v;
    for (int64_t l = 0; l < d_v; l++) {
      mean[l] += v[l] / (double)h->keys;
      low[l] = v[l] < low[l] ? v[l] : low[l];
      high[l] = v[l] > high[l] ? v[l] : high[l];
    }
  }
  for (int64_t l = 0; l < d_v; l++) {
    h->finite = h->finite && isfinite(h->mean[l]);
    h->v_max = fmax(h->v_max, fmax(-h->low[l], h->high[l]));
  }
  for (int64_t j = 0; j < h->keys; j++) {
    const double *k = h->k + j * d, norm = vector_norm(k, d);
    h->finite = h->finite && isfinite(norm * norm);
    h->k_max = fmax(h->k_max, norm);
    far = fmax(far, vector_distance(h->v + j * d_v, h->mean, d_v));
  }
  h->diameter = 2 * far;
}

attn_status head_data_alloc(const attn_problem *p, head_data *out) {
  head_data h = {.problem = p, .keys = p->n_kv, .finite = true};
  h.k = region_zeros(&h.memory, p->n_kv * p->d_qk, sizeof(double));
  h.v = region_zeros(&h.memory, p->n_kv * p->d_v, sizeof(double));
  h.low = region_zeros(&h.memory, p->d_v, sizeof(double));
  h.high = region_zeros(&h.memory, p->d_v, sizeof(double));
  h.mean = region_zeros(&h.memory, p->d_v, sizeof(double));
  const attn_status status = region_status(&h.memory, "for the keys and values of a head in fp64");
  if (status)
    region_free(&h.memory);
  else
    *out = h;
  return status;
}

attn_status head_data_load(const evidence *e, int64_t batch, int64_t head, head_data *out) {
  const attn_problem *p = e->problem;
  int64_t line = batch * p->kv_heads + head / (p->heads / p->kv_heads);
  head_data h;
  attn_status status = head_data_alloc(p, &h);
  if (status) return status;
  h.batch = batch;
  h.head = head;
  if (e->kv_len) h.keys = e->kv_len[batch];
  row_widen(e->k, p->dtype, line * p->n_kv * p->d_qk, h.keys * p->d_qk, h.k);
  row_widen(e->v, p->dtype, line * p->n_kv * p->d_v, h.keys * p->d_v, h.v);
  head_data_measure(&h);
  *out = h;
  return ATTN_OK;
}

void head_data_free(head_data *h) {
  region_free(&h->memory);
  h->k = h->v = h->low = h->high = h->mean = NULL;
}

attn_status head_data_borrow(const evidence *e, int64_t batch, int64_t head, head_data *out) {
  const attn_problem *p = e->problem;
  struct block_cache *cache = e->cache;
  int64_t lines = p->batch * p->kv_heads, line = batch * p->kv_heads + head / (p->heads / p->kv_heads);
  if (lines > held_max / (int64_t)sizeof(double) / p->n_kv / (p->d_qk + p->d_v))
    return head_data_load(e, batch, head, out);
  if (!cache->heads) {
    cache->heads = calloc((size_t)lines, sizeof *cache->heads);
    if (!cache->heads) return attn_fail(ATTN_ENOMEM, "no memory for the heads of a block");
    cache->head_count = lines;
  }
  head_data *held = &cache->heads[line];
  if (!held->k) {
    attn_status status = head_data_load(e, batch, head, held);
    if (status) return status;
  }
  *out = *held;
  out->problem = p;
  out->head = head;
  return ATTN_OK;
}

void head_data_return(const evidence *e, head_data *h) {
  if (!e->cache->heads) head_data_free(h);
}

attn_status head_data_ones(const head_data *h, head_data *out) {
  head_data ones;
  attn_status status = head_data_alloc(h->problem, &ones);
  if (status) return status;
  memcpy(ones.k, h->k, (size_t)(h->problem->n_kv * h->problem->d_qk) * sizeof *ones.k);
  for (int64_t i = 0; i < h->keys * h->problem->d_v; i++) ones.v[i] = 1;
  ones.keys = h->keys;
  ones.head = h->head;
  head_data_measure(&ones);
  *out = ones;
  return ATTN_OK;
}

void head_values_range(const evidence *e, double *most, double *least) {
  const attn_problem *p = e->problem;
  struct block_cache *c = e->cache;
  for (int64_t line = 0; !c->ranged && line < p->batch * p->kv_heads; line++) {
    const int64_t keys = e->kv_len ? e->kv_len[line / p->kv_heads] : p->n_kv, at = line * p->n_kv * p->d_v;
    double size = 0;
    for (int64_t i = 0; i < keys * p->d_v; i++) size = fmax(size, fabs(attn_get(e->v, at + i, p->dtype)));
    if (size > c->v_most) c->v_most = size;
    if (size > 0 && (c->v_least == 0 || size < c->v_least)) c->v_least = size;
  }
  c->ranged = true;
  *most = c->v_most;
  *least = c->v_least;
}

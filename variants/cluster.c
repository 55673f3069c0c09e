/* cluster - clustered attention: a cluster of queries shares the weights of their mean c,
 *
 *   o_i = softmax(scale c K^T) V,
 *
 * and with topk > 0 ("improved") over the topk keys T of the largest c.k a query has its own weights, times
 * m = sum_T softmax(scale c K^T): m softmax_T(scale q_i K^T) there, and those of c elsewhere.
 *
 * Vyas et al. 2020 (arXiv:2007.04825), sections 3.2 and 3.3, from memory. Cost n clusters (d_qk (iterations
 * + 1) + d_v) + n topk (d_qk + d_v) multiply-adds, in fp64. Bounds: CL-1 (topk = 0), CL-2 (topk > 0), LOW-3.
 *
 * Deviations: the paper clusters hashes of queries by Lloyd's iteration with Hamming distances; here it is
 * Lloyd's iteration on the queries themselves, `iterations` assignments to the nearest mean, from a query
 * drawn of each of `clusters` nearly equal segments. A cluster that loses its queries keeps its place. A mean
 * is of queries at all positions: not causal, and a row depends on the other queries. */
#include "attn_variant.h"

#include <math.h>

typedef struct params {
  int64_t clusters, topk, iterations, seed;
} params;

static const attn_param table[] = {
    {"clusters", ATTN_INT, offsetof(params, clusters), 1, 1 << 16, "64", NULL, "clusters of queries"},
    {"topk", ATTN_INT, offsetof(params, topk), 0, 1 << 20, "32", NULL,
     "keys whose weights are a query's own; 0: none"},
    {"iterations", ATTN_INT, offsetof(params, iterations), 1, 1000, "10", NULL, "of Lloyd's algorithm"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the first means"},
    {.name = NULL},
};

enum { PURPOSE = 0x636c75, ROWS = 64 }; /* "clu"; queries whose products stand in memory */

static attn_status applicable(const attn_context *c) {
  if (!c->problem->causal) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED,
                   "variant cluster: causal attention is impossible, the mean of a cluster "
                   "is of queries at all positions");
}

typedef struct room {
  int64_t row;
  double *means, *products; /* [d, row], [ROWS, row] */
  double *squares, *sizes;  /* [row] */
} room;

static room room_at(const attn_context *c, attn_carver *carver) {
  const params *x = c->params;
  const int64_t n = c->problem->n_q, row = attn_padded(x->clusters < n ? x->clusters : n, ATTN_F64);
  return (room){.row = row,
                .means = attn_carve(carver, c->problem->d_qk, row, sizeof(double)),
                .products = attn_carve(carver, ROWS, row, sizeof(double)),
                .squares = attn_carve(carver, row, 1, sizeof(double)),
                .sizes = attn_carve(carver, row, 1, sizeof(double))};
}

/* Of queries first ... to the nearest means: the least |c|^2 / 2 - q.c. */
static void assign(const attn_context *c, const attn_picked_head *h, int64_t first, int64_t count,
                   const room *x, int64_t *cluster) {
  const int64_t rows = h->n_q - first < ROWS ? h->n_q - first : ROWS;
  attn_product(attn_kernels_f64(c->kernels), rows, count, h->d, (attn_matrix){h->q + first * h->d, h->d, 1},
               x->means, x->row, false, x->products, x->row);
  for (int64_t i = 0; i < rows; i++) {
    const double *row = x->products + i * x->row;
    int64_t best = 0;
    for (int64_t m = 1; m < count; m++)
      if (x->squares[m] / 2 - row[m] < x->squares[best] / 2 - row[best]) best = m;
    cluster[first + i] = best;
  }
}

static void average(const attn_picked_head *h, int64_t count, const int64_t *cluster, const room *x) {
  for (int64_t m = 0; m < count; m++) x->sizes[m] = 0;
  for (int64_t i = 0; i < h->n_q; i++)
    if (x->sizes[cluster[i]]++ == 0)
      for (int64_t l = 0; l < h->d; l++) x->means[l * x->row + cluster[i]] = 0;
  for (int64_t i = 0; i < h->n_q; i++)
    for (int64_t l = 0; l < h->d; l++)
      x->means[l * x->row + cluster[i]] += h->q[i * h->d + l] / x->sizes[cluster[i]];
}

static int64_t pick(const void *state, const attn_context *c, const attn_picked_head *h, int64_t *cluster,
                    void *memory) {
  const params *p = state;
  const int64_t count = p->clusters < h->n_q ? p->clusters : h->n_q;
  attn_carver carver = {.base = memory};
  const room x = room_at(c, &carver);
  for (int64_t i = 0; i < h->d * x.row; i++) x.means[i] = 0;
  for (int64_t m = 0; m < count; m++) {
    attn_rng rng;
    attn_rng_init(&rng, (uint64_t)p->seed, PURPOSE, (uint64_t)m);
    const int64_t first = m * h->n_q / count,
                  at = first + attn_rng_below(&rng, (m + 1) * h->n_q / count - first);
    for (int64_t l = 0; l < h->d; l++) x.means[l * x.row + m] = h->q[at * h->d + l];
  }
  for (int64_t t = 0; t < p->iterations; t++) {
    if (t) average(h, count, cluster, &x);
    for (int64_t m = 0; m < count; m++) {
      x.squares[m] = 0;
      for (int64_t l = 0; l < h->d; l++) x.squares[m] += x.means[l * x.row + m] * x.means[l * x.row + m];
    }
    for (int64_t i = 0; i < h->n_q; i += ROWS) assign(c, h, i, count, &x, cluster);
  }
  return count;
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *p = c->problem;
  const params *x = c->params;
  const double heads = (double)(p->batch * p->heads), n = (double)p->n_q, keys = (double)p->n_kv,
               m = fmin((double)x->clusters, n), own = fmin((double)x->topk, keys), d = (double)p->d_qk,
               width = d + (double)p->d_v;
  return (attn_cost){.mul_add =
                         heads * (m * (n * d * (double)x->iterations + keys * width) + n * own * width),
                     .exp = heads * (m * keys + n * own),
                     .bytes = attn_problem_bytes(p)};
}

static const attn_exemption shared[] = {{ATTN_EXEMPT_ROWS, "a cluster's mean is of other queries, too"},
                                        {.reason = NULL}};

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *x = c->params;
  attn_carver counter = {.base = NULL};
  (void)b;
  room_at(c, &counter);
  out->low_rank = (attn_low_rank){.state = x,
                                  .rank = x->clusters,
                                  .pick = pick,
                                  .scratch = counter.used,
                                  .picked = ATTN_PICKED_CLUSTERS,
                                  .own = x->topk};
  out->exempt = shared;
  /* Which keys are a mean's topk may hang on rounding. */
  if (x->topk == 0) out->caps |= ATTN_CAP_PERMUTATION | ATTN_CAP_SHIFT;
  return ATTN_OK;
}

ATTN_VARIANT(
    cluster, .summary = "a cluster of queries shares the weights of its mean (clustered attention)",
    .formula = "softmax(c q' K^T) V, q' the mean of the query's cluster; topk: over the topk keys of "
               "q', the query's own weights; O(n clusters d + n topk d)",
    .cite = "Vyas et al. 2020, arXiv:2007.04825",
    .caps = ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_HALF | ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX,
    .params = table, .params_size = sizeof(params), .seed = "seed", .budget = {.parameter = "clusters"},
    .applicable = applicable, .describe = describe, .cost = cost)

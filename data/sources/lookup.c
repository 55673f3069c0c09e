/* lookup.c - datasets whose keys are made of their values: what is looked up is what is found.
 *
 * hopfield  patterns x_j uniform on the unit sphere, K = V = X bit by bit; q_i = beta sqrt(d) (x_t + noise
 *           u), u uniform on the unit sphere, t uniform among the keys up to the position of query i.
 *
 *           At scale 1/sqrt(d) attention is one step xi <- X softmax(beta X^T xi) of a modern Hopfield
 *           network (Ramsauer et al. 2021) from xi = q / (beta sqrt(d)), and |xi - x_t| = noise. From beta =
 *           20 on 64 patterns of d = 64 are far enough apart for their theorem: a row is x_t within an error
 *           that falls exponentially, with causality too, as x_t is visible.
 *
 * gat       nodes z_j ~ N(0, I), V = Z; alpha_i = a . z_p for p = i + n_kv - n_q, the node of query i, beta_j
 *           = b . z_j, a ~ N(0, std^2 I / d_v) of each head, b of each key/value head; q_i = sqrt(d)
 *           (alpha_i, 1, 0, ...), k_j = (1, beta_j, 0, ...).
 *
 *           At scale 1/sqrt(d) the score is alpha_i + beta_j, and with a leaky score of slope 0.2 it is
 *           LeakyReLU([a, b] . [z_i, z_j]), that of a graph attention layer (Velickovic et al. 2018) after
 *           its linear map; its graph is the mask. Power for checks of graphs and of leaky scores: without
 *           the leak alpha_i cancels in the softmax, with it the weights of a query depend on it, and alpha
 *           and beta exchanged or the leak left out show at once. */
#include "data/sources/sources.h"

#include <math.h>

/* -- hopfield -- */

typedef struct hopfield {
  double beta, noise;
} hopfield;

static const attn_param hopfield_params[] = {
    {"beta", ATTN_REAL, offsetof(hopfield, beta), 0, 1e6, "20", NULL, "inverse temperature"},
    {"noise", ATTN_REAL, offsetof(hopfield, noise), 0, 1e6, "0.1", NULL,
     "distance of a query from its pattern, which has length 1"},
    {0}};

static void draw_unit(attn_rng *rng, int64_t d, double *x) {
  double square = 0;
  draw_normal(rng, 1, d, x);
  for (int64_t j = 0; j < d; j++) square += x[j] * x[j];
  for (int64_t j = 0; j < d; j++) x[j] /= sqrt(square);
}

static void hopfield_row(draw_head *h, int64_t i, double *x) {
  const hopfield *p = h->params;
  if (h->tensor == DRAW_V) {
    draw_unit(&h->rng, h->d, x);
    return;
  }
  if (h->tensor == DRAW_K) {
    for (int64_t j = 0; j < h->d; j++) x[j] = draw_made(h, DRAW_V, i, j);
    return;
  }
  const int64_t position = draw_position(h, i);
  const int64_t target = attn_rng_below(&h->rng, position < 0 ? h->request->n_kv : position + 1);
  const double length = p->beta * sqrt((double)h->d);
  draw_unit(&h->rng, h->d, x);
  for (int64_t j = 0; j < h->d; j++) x[j] = length * (draw_made(h, DRAW_V, target, j) + p->noise * x[j]);
}

static attn_status hopfield_fits(const void *params, const data_request *r) {
  (void)params;
  if (r->d_qk == r->d_v) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED,
                   "dataset hopfield: keys are the values, but d_qk=%lld and d_v=%lld differ",
                   (long long)r->d_qk, (long long)r->d_v);
}

static attn_status hopfield_generate(const void *params, const data_request *r, data_qkv *out) {
  return draw_all(&(draw_plan){.row = hopfield_row}, params, r, out);
}

const data_source source_hopfield = {
    "hopfield",
    "patterns on the unit sphere as keys and values, queries near one of them",
    hopfield_params,
    sizeof(hopfield),
    true,
    hopfield_generate,
    NULL,
    0,
    hopfield_fits};

/* -- gat -- */

typedef struct gat {
  double std;
} gat;

static const attn_param gat_params[] = {{"std", ATTN_REAL, offsetof(gat, std), 0, 1e6, "1", NULL,
                                         "root mean square of alpha and beta, whose sum is the score"},
                                        {0}};

/* The product of node j with this head's vector, which begins its stream and so is the same for every row. */
static double gat_weigh(draw_head *h, int64_t j) {
  const int64_t d_v = h->request->d_v;
  const double std = ((const gat *)h->params)->std / sqrt((double)d_v);
  double sum = 0;
  h->rng = h->start;
  for (int64_t l = 0; l < d_v; l++) sum += std * attn_rng_normal(&h->rng) * draw_made(h, DRAW_V, j, l);
  return sum;
}

static void gat_row(draw_head *h, int64_t i, double *x) {
  if (h->tensor == DRAW_V) {
    draw_normal(&h->rng, 1, h->d, x);
    return;
  }
  for (int64_t j = 2; j < h->d; j++) x[j] = 0;
  if (h->tensor == DRAW_K) {
    x[0] = 1;
    x[1] = gat_weigh(h, i);
  } else {
    x[0] = sqrt((double)h->d) * gat_weigh(h, draw_wrapped(draw_position(h, i), h->request->n_kv));
    x[1] = sqrt((double)h->d);
  }
}

static attn_status gat_fits(const void *params, const data_request *r) {
  (void)params;
  if (r->d_qk >= 2) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED, "dataset gat: a score alpha + beta needs d_qk of 2 or more, not %lld",
                   (long long)r->d_qk);
}

static attn_status gat_generate(const void *params, const data_request *r, data_qkv *out) {
  return draw_all(&(draw_plan){.row = gat_row}, params, r, out);
}

const data_source source_gat = {"gat",      "scores alpha + beta of random node features: graph attention's",
                                gat_params, sizeof(gat),
                                true,       gat_generate,
                                NULL,       0,
                                gat_fits};

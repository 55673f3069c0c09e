/* coreset - attention by a few keys S that stand for all: with h(x, y) = e^(c x.y), keys x = (k - their mean)
 * / t and queries y = t q, c the scale,
 *
 *   o_i = sum_s h(y_i, x_s) (W V)_s / sum_s h(y_i, x_s) (W 1)_s,   W = h_SS^-1 h_S,all,
 *
 * S drawn by pivoted Cholesky: a key at a time, in proportion to what those before leave of h(x, x).
 *
 * WildCat (2026), of which a summary of the abstract was read, the rest derived; Chen, Epperly, Tropp and
 * Webber 2022 (arXiv:2207.06503) for the draws, from memory. With the Gaussian kernel G(x, y) = e^(-c |x -
 * y|^2 / 2), h(x, y) = e^(c |x|^2 / 2) G(x, y) e^(c |y|^2 / 2): Cholesky factors are those of G, and no
 * exponential overflows. A key of which at most rcond is left in G is not drawn. Cost (n_q + 2 n_kv) keys
 * (d_qk + keys / 2) + (n_q + n_kv) keys d_v multiply-adds, in fp64. Bounds: COR-1, LOW-3, LIN-3.
 *
 * Deviations: keys less their mean, which changes no softmax and keeps h small; t is a parameter; every query
 * head draws its keys again, the same in all that share keys. Weights may be negative: a row whose sum of
 * weights is lost is NaN. The keys of S are of all positions: not causal. */
#include "attn_variant.h"

#include <math.h>

typedef struct params {
  int64_t keys, seed;
  double temperature, rcond;
} params;

static const attn_param table[] = {
    {"keys", ATTN_INT, offsetof(params, keys), 1, 1 << 16, "64", NULL, "keys that stand for all"},
    {"temperature", ATTN_REAL, offsetof(params, temperature), 0.01, 100, "1", NULL,
     "t: keys are drawn by the kernel of k / t"},
    {"rcond", ATTN_REAL, offsetof(params, rcond), 1e-13, 0.5, "1e-10", NULL,
     "a key of which less is left is not drawn"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the draws"},
    {.name = NULL},
};

enum { PURPOSE = 0x636f72 }; /* "cor" */

static attn_status applicable(const attn_context *c) {
  if (c->problem->causal)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant coreset: causal attention is impossible, a key stands for keys "
                     "at all positions");
  if (!(c->problem->scale >= 0))
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant coreset: scale = %g, expected 0 or more, for the kernel to be "
                     "positive",
                     c->problem->scale);
  return ATTN_OK;
}

typedef struct room {
  double *x, *factor, *rest, *half; /* [n_kv, d_qk], [keys, n_kv], [n_kv] each: half = c |x|^2 / 2 */
} room;

static room room_at(const attn_context *c, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const params *x = c->params;
  return (room){.x = attn_carve(carver, p->n_kv, p->d_qk, sizeof(double)),
                .factor = attn_carve(carver, attn_min(x->keys, p->n_kv), p->n_kv, sizeof(double)),
                .rest = attn_carve(carver, p->n_kv, 1, sizeof(double)),
                .half = attn_carve(carver, p->n_kv, 1, sizeof(double))};
}

/* The points, and of the diagonal of G all that is left. */
static void place(const attn_picked_head *h, double scale, double temperature, const room *x) {
  double top = 0;
  for (int64_t l = 0; l < h->d; l++) {
    double sum = 0;
    for (int64_t j = 0; j < h->keys; j++) sum += h->k[j * h->d + l];
    for (int64_t j = 0; j < h->keys; j++)
      x->x[j * h->d + l] = (h->k[j * h->d + l] - sum / (double)h->keys) / temperature;
  }
  for (int64_t j = 0; j < h->keys; j++) {
    double square = 0;
    for (int64_t l = 0; l < h->d; l++) square += x->x[j * h->d + l] * x->x[j * h->d + l];
    x->half[j] = scale * square / 2;
    if (x->half[j] > top) top = x->half[j];
    x->rest[j] = 1;
  }
  for (int64_t j = 0; j < h->keys; j++) x->half[j] = exp(2 * (x->half[j] - top));
}

static int64_t pick(const void *state, const attn_context *c, const attn_picked_head *h, int64_t *picked,
                    void *memory) {
  const params *p = state;
  attn_carver carver = {.base = memory};
  const room x = room_at(c, &carver);
  attn_rng rng;
  int64_t count = 0;
  attn_rng_init(&rng, (uint64_t)p->seed, PURPOSE, 0);
  place(h, c->problem->scale, p->temperature, &x);
  while (count < attn_min(p->keys, h->keys)) {
    double total = 0, below = 0;
    int64_t last = -1;
    for (int64_t j = 0; j < h->keys; j++)
      if (x.rest[j] > p->rcond) total += x.half[j] * x.rest[j];
    const double at = total * attn_rng_uniform(&rng);
    for (int64_t j = 0; j < h->keys && !(below > at); j++)
      if (x.rest[j] > p->rcond && x.half[j] > 0) {
        below += x.half[j] * x.rest[j];
        last = j;
      }
    if (last < 0 || !attn_gauss_column(c->problem->scale, h->keys, h->d, x.x, NULL, last, p->rcond, count,
                                       x.factor, x.rest))
      break;
    picked[count++] = last;
  }
  return count;
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *p = c->problem;
  const double heads = (double)(p->batch * p->heads), n = (double)p->n_q, keys = (double)p->n_kv,
               m = fmin((double)((const params *)c->params)->keys, keys);
  return (attn_cost){.mul_add = heads * m *
                                ((2 * n + 2 * keys) * (double)p->d_qk + (n + 2 * keys) * m / 2 +
                                 (n + keys) * (double)(p->d_v + 1)),
                     .exp = heads * m * (n + 2 * keys),
                     .bytes = attn_problem_bytes(p)};
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *x = c->params;
  attn_carver counter = {.base = NULL};
  (void)b;
  room_at(c, &counter);
  out->low_rank = (attn_low_rank){.state = x,
                                  .rank = x->keys,
                                  .rcond = x->rcond,
                                  .pick = pick,
                                  .scratch = counter.used,
                                  .picked = ATTN_PICKED_KEYS,
                                  .temperature = x->temperature};
  return ATTN_OK;
}

ATTN_VARIANT(coreset, .summary = "a few keys, drawn by pivoted Cholesky, stand for all (WildCat)",
             .formula = "softmax's weights of the keys S, times S's interpolation W = h_SS^-1 h_S,all of all "
                        "keys, h(k, k') = e^(c k.k' / t^2); O(n keys (d + keys))",
             .cite = "WildCat 2026; Chen et al. 2022, arXiv:2207.06503",
             .caps = ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_HALF | ATTN_CAP_STOCHASTIC, .params = table,
             .params_size = sizeof(params), .seed = "seed", .budget = {.parameter = "keys"},
             .applicable = applicable, .describe = describe, .cost = cost)

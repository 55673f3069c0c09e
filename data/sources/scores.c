/* scores.c - datasets whose scores are known: what a selection, a ranking and a rounding of keys must make of
 * them can be said without computing attention. Values are N(0, 1).
 *
 * flat       q_i = (0, ..., 0, a_i sqrt(d)), k_j = (g, ..., g, 1), a_i ~ N(0, std^2), g ~ N(0, 1).
 *
 *            At scale 1/sqrt(d) query i has the score a_i with every key, bit by bit, as one product alone is
 *            not zero: weights are 1/n, the output is the mean of V, and k of n keys keep the share k/n of
 *            the weight, whichever they are. Power for checks of selections (every order of the keys is
 *            right, no selection has a regret) and of tails (SP-3 at its loosest); a check of outputs is
 *            blind to the mean of V here.
 *
 * peaked     k_jl = E - 1, E ~ Exp(1); q_i = std sqrt(d) e_c, channel c uniform.
 *
 *            The score is std k_jc: mean 0, standard deviation std, and weights proportional to Pareto
 *            variables, P(e^(std E) > x) = x^(-1/std) for x > 1. Beyond std = 1 a few keys hold the weight
 *            however many there are: the sum of its squares tends to 1 - 1/std (Poisson-Dirichlet, Pitman and
 *            Yor 1997). Queries of one channel rank the keys alike, others do not. Power for checks of
 *            selections, rankings and kept mass (SP-1): what misses the best keys, or takes those of another
 *            query, is far off.
 *
 * duplicate  keys N(0, 1), key j = key j - distinct bit by bit; queries N(0, 1).
 *
 *            Scores tie exactly in groups, and V tells which key of a group was taken. Power for checks of
 *            exact selections (ties broken twice in two ways), of hashed ones (equal keys share every bucket;
 *            each has its own weight) and of methods that solve with a matrix of keys, which lacks full rank.
 *
 * outlier    q and k of gaussian, except that in `channels` channels of each key/value head, drawn without
 *            replacement, k is multiplied by factor and q divided by it.
 *
 *            The products q_l k_l are those of gaussian with the same seed, all of their bits if factor is a
 *            power of two: attention is the same. Power for checks of rounded or sketched keys: steps of the
 *            largest entry of a row, or a ranking by |k|, lose what the other channels say. */
#include "data/sources/sources.h"

#include <math.h>

/* -- flat -- */

typedef struct flat {
  double std;
} flat;

static const attn_param flat_params[] = {{"std", ATTN_REAL, offsetof(flat, std), 0, 1e6, "1", NULL,
                                          "standard deviation of the score that a query has with all keys"},
                                         {0}};

static void flat_row(draw_head *h, int64_t i, double *x) {
  (void)i;
  const flat *p = h->params;
  draw_normal(&h->rng, 1, h->d, x);
  if (h->tensor == DRAW_K) x[h->d - 1] = 1;
  if (h->tensor != DRAW_Q) return;
  x[h->d - 1] *= p->std * sqrt((double)h->d);
  for (int64_t j = 0; j < h->d - 1; j++) x[j] = 0;
}

static attn_status flat_generate(const void *params, const data_request *r, data_qkv *out) {
  return draw_all(&(draw_plan){.row = flat_row}, params, r, out);
}

const data_source source_flat = {
    "flat",      "a query has the same score with all keys, though the keys differ",
    flat_params, sizeof(flat),
    true,        flat_generate,
    NULL,        0,
    NULL};

/* -- peaked -- */

typedef struct peaked {
  double std;
} peaked;

static const attn_param peaked_params[] = {
    {"std", ATTN_REAL, offsetof(peaked, std), 0, 1e6, "2", NULL,
     "standard deviation of the scores; beyond 1 a few keys hold the weight"},
    {0}};

/* Exp(1) from comparisons alone (von Neumann 1951), the same under any mathematics library: u stands if it
 * heads a falling run of odd length, else 1 is added to the next one. */
static double draw_exponential(attn_rng *rng) {
  for (double whole = 0;; whole++) {
    const double first = attn_rng_uniform(rng);
    bool odd = true;
    double last = first, next;
    for (; (next = attn_rng_uniform(rng)) < last; odd = !odd) last = next;
    if (odd) return whole + first;
  }
}

static void peaked_row(draw_head *h, int64_t i, double *x) {
  (void)i;
  const peaked *p = h->params;
  if (h->tensor == DRAW_V) {
    draw_normal(&h->rng, 1, h->d, x);
    return;
  }
  for (int64_t j = 0; j < h->d; j++) x[j] = h->tensor == DRAW_K ? draw_exponential(&h->rng) - 1 : 0;
  if (h->tensor == DRAW_Q) x[attn_rng_below(&h->rng, h->d)] = p->std * sqrt((double)h->d);
}

static attn_status peaked_generate(const void *params, const data_request *r, data_qkv *out) {
  return draw_all(&(draw_plan){.row = peaked_row}, params, r, out);
}

const data_source source_peaked = {
    "peaked",      "exponential scores: a few keys hold the weight, others for each channel",
    peaked_params, sizeof(peaked),
    true,          peaked_generate,
    NULL,          0,
    NULL};

/* -- duplicate -- */

typedef struct duplicate {
  int64_t distinct;
} duplicate;

static const attn_param duplicate_params[] = {{"distinct", ATTN_INT, offsetof(duplicate, distinct), 1, 9e15,
                                               "64", NULL, "keys before they repeat, below n_kv"},
                                              {0}};

static void duplicate_row(draw_head *h, int64_t i, double *x) {
  const int64_t distinct = ((const duplicate *)h->params)->distinct;
  if (h->tensor != DRAW_K || i < distinct)
    draw_normal(&h->rng, 1, h->d, x);
  else
    for (int64_t j = 0; j < h->d; j++) x[j] = draw_made(h, DRAW_K, i - distinct, j);
}

static attn_status duplicate_fits(const void *params, const data_request *r) {
  const duplicate *p = params;
  if (p->distinct < r->n_kv) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED,
                   "dataset duplicate: distinct=%lld is not below n_kv=%lld, so that no keys are equal",
                   (long long)p->distinct, (long long)r->n_kv);
}

static attn_status duplicate_generate(const void *params, const data_request *r, data_qkv *out) {
  return draw_all(&(draw_plan){.row = duplicate_row}, params, r, out);
}

const data_source source_duplicate = {"duplicate",
                                      "normal keys that repeat exactly: scores tie in groups",
                                      duplicate_params,
                                      sizeof(duplicate),
                                      true,
                                      duplicate_generate,
                                      NULL,
                                      0,
                                      duplicate_fits};

/* -- outlier -- */

typedef struct outlier {
  int64_t channels;
  double factor;
} outlier;

static const attn_param outlier_params[] = {
    {"channels", ATTN_INT, offsetof(outlier, channels), 0, 1 << 20, "1", NULL,
     "large channels of a key/value head, at most d_qk"},
    {"factor", ATTN_REAL, offsetof(outlier, factor), 1, 1e6, "32", NULL, "how many times larger they are"},
    {0}};

/* The factor of each channel of the keys: a sample without replacement, channel by channel. */
static void outlier_share(const void *params, const data_request *r, attn_rng *rng, double *factor) {
  const outlier *p = params;
  int64_t left = p->channels;
  for (int64_t j = 0; j < r->d_qk; j++) {
    const bool large = attn_rng_below(rng, r->d_qk - j) < left;
    factor[j] = large ? p->factor : 1;
    left -= large;
  }
}

static void outlier_row(draw_head *h, int64_t i, double *x) {
  (void)i;
  draw_normal(&h->rng, 1, h->d, x);
  if (h->tensor == DRAW_V) return;
  for (int64_t j = 0; j < h->d; j++) x[j] *= h->tensor == DRAW_K ? h->shared[j] : 1 / h->shared[j];
}

static attn_status outlier_fits(const void *params, const data_request *r) {
  const outlier *p = params;
  if (p->channels <= r->d_qk) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED, "dataset outlier: channels=%lld exceeds d_qk=%lld",
                   (long long)p->channels, (long long)r->d_qk);
}

static attn_status outlier_generate(const void *params, const data_request *r, data_qkv *out) {
  return draw_all(&(draw_plan){r->d_qk, outlier_share, outlier_row}, params, r, out);
}

const data_source source_outlier = {
    "outlier",      "normal keys with a few large channels, small in the queries",
    outlier_params, sizeof(outlier),
    true,           outlier_generate,
    NULL,           0,
    outlier_fits};

/* iid.c - datasets without positions: rows are independent given what their head shares.
 *
 * gaussian     entries N(0, std^2); std_q * std_k is the inverse temperature: scores have standard deviation
 *              std_q std_k at scale 1/sqrt(d)
 * clustered    x = std (c_z + spread g) / sqrt(1 + spread^2), z uniform over `clusters` centres c ~ N(0, I)
 *              that the queries and keys of a key/value head share
 * lowrank      x = std sqrt(d / rank) B^T g, B orthonormal [rank, d], shared likewise: scores have rank
 *              `rank`, power for checks of whatever factors or sketches keys, which must find no more than
 *              that
 * heavytailed  entries scale * t, Student's t with dof degrees of freedom (polar method, Bailey 1994)
 *
 * Values are N(0, 1) unless a parameter says otherwise. */
#include "data/sources/sources.h"

#include <math.h>

/* -- gaussian -- */

typedef struct gaussian {
  double std_q, std_k, std_v;
} gaussian;

static const attn_param gaussian_params[] = {
    {"std_q", ATTN_REAL, offsetof(gaussian, std_q), 0, 1e6, "1", NULL, "standard deviation of the queries"},
    {"std_k", ATTN_REAL, offsetof(gaussian, std_k), 0, 1e6, "1", NULL, "standard deviation of the keys"},
    {"std_v", ATTN_REAL, offsetof(gaussian, std_v), 0, 1e6, "1", NULL, "standard deviation of the values"},
    {0}};

static void gaussian_row(draw_head *h, int64_t i, double *x) {
  (void)i;
  const gaussian *p = h->params;
  draw_normal(&h->rng, h->tensor == DRAW_Q ? p->std_q : h->tensor == DRAW_K ? p->std_k : p->std_v, h->d, x);
}

static attn_status gaussian_generate(const void *params, const data_request *r, data_qkv *out) {
  return draw_all(&(draw_plan){.row = gaussian_row}, params, r, out);
}

const data_source source_gaussian = {
    "gaussian",
    "independent normal entries; std_q and std_k set the temperature of the softmax",
    gaussian_params,
    sizeof(gaussian),
    true,
    gaussian_generate,
    NULL,
    0,
    NULL};

/* -- clustered -- */

typedef struct clustered {
  int64_t clusters;
  double spread, std;
} clustered;

static const attn_param clustered_params[] = {
    {"clusters", ATTN_INT, offsetof(clustered, clusters), 1, 1 << 20, "16", NULL,
     "centres of a key/value head"},
    {"spread", ATTN_REAL, offsetof(clustered, spread), 0, 1e6, "0.5", NULL,
     "deviation from the centre, per entry"},
    {"std", ATTN_REAL, offsetof(clustered, std), 0, 1e6, "1", NULL, "standard deviation of queries and keys"},
    {0}};

static void clustered_share(const void *params, const data_request *r, attn_rng *rng, double *table) {
  const clustered *p = params;
  draw_normal(rng, 1, p->clusters * r->d_qk, table);
}

static void clustered_row(draw_head *h, int64_t i, double *x) {
  (void)i;
  const clustered *p = h->params;
  draw_normal(&h->rng, 1, h->d, x);
  if (h->tensor == DRAW_V) return;
  const double *centre = h->shared + attn_rng_below(&h->rng, p->clusters) * h->d;
  double norm = p->std / sqrt(1 + p->spread * p->spread);
  for (int64_t j = 0; j < h->d; j++) x[j] = norm * (centre[j] + p->spread * x[j]);
}

static attn_status clustered_generate(const void *params, const data_request *r, data_qkv *out) {
  const clustered *p = params;
  size_t bytes;
  attn_status status =
      attn_size_product("centres", (int64_t[]){p->clusters, r->d_qk, sizeof(double)}, 3, &bytes);
  if (status) return status;
  return draw_all(&(draw_plan){p->clusters * r->d_qk, clustered_share, clustered_row}, params, r, out);
}

const data_source source_clustered = {"clustered",
                                      "queries and keys around common centres; values are normal",
                                      clustered_params,
                                      sizeof(clustered),
                                      true,
                                      clustered_generate,
                                      NULL,
                                      0,
                                      NULL};

/* -- lowrank -- */

typedef struct lowrank {
  int64_t rank;
  double std;
} lowrank;

static const attn_param lowrank_params[] = {
    {"rank", ATTN_INT, offsetof(lowrank, rank), 1, 1 << 20, "8", NULL,
     "dimension of the subspace, at most d_qk"},
    {"std", ATTN_REAL, offsetof(lowrank, std), 0, 1e6, "1", NULL, "root mean square of queries and keys"},
    {0}};

/* Gram-Schmidt, each row projected twice: orthonormal to rounding error. */
static void lowrank_share(const void *params, const data_request *r, attn_rng *rng, double *basis) {
  const lowrank *p = params;
  int64_t d = r->d_qk;
  for (int64_t i = 0; i < p->rank; i++) {
    double *row = basis + i * d, norm = 0;
    draw_normal(rng, 1, d, row);
    for (int64_t j = 0; j < 2 * i; j++) {
      const double *other = basis + j % i * d;
      double dot = 0;
      for (int64_t l = 0; l < d; l++) dot += row[l] * other[l];
      for (int64_t l = 0; l < d; l++) row[l] -= dot * other[l];
    }
    for (int64_t l = 0; l < d; l++) norm += row[l] * row[l];
    for (int64_t l = 0; l < d; l++) row[l] /= sqrt(norm);
  }
}

static void lowrank_row(draw_head *h, int64_t i, double *x) {
  (void)i;
  const lowrank *p = h->params;
  if (h->tensor == DRAW_V) {
    draw_normal(&h->rng, 1, h->d, x);
    return;
  }
  double scale = p->std * sqrt((double)h->d / (double)p->rank);
  for (int64_t j = 0; j < h->d; j++) x[j] = 0;
  for (int64_t j = 0; j < p->rank; j++) {
    double g = scale * attn_rng_normal(&h->rng);
    for (int64_t l = 0; l < h->d; l++) x[l] += g * h->shared[j * h->d + l];
  }
}

static attn_status lowrank_fits(const void *params, const data_request *r) {
  const lowrank *p = params;
  if (p->rank <= r->d_qk) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED, "dataset lowrank: rank=%lld exceeds d_qk=%lld", (long long)p->rank,
                   (long long)r->d_qk);
}

static attn_status lowrank_generate(const void *params, const data_request *r, data_qkv *out) {
  const lowrank *p = params;
  return draw_all(&(draw_plan){p->rank * r->d_qk, lowrank_share, lowrank_row}, params, r, out);
}

const data_source source_lowrank = {
    "lowrank",      "queries and keys in a common random subspace; values are normal",
    lowrank_params, sizeof(lowrank),
    true,           lowrank_generate,
    NULL,           0,
    lowrank_fits};

/* -- heavytailed -- */

typedef struct heavytailed {
  double dof, scale;
} heavytailed;

static const attn_param heavytailed_params[] = {
    {"dof", ATTN_REAL, offsetof(heavytailed, dof), 1, 1e6, "3", NULL,
     "degrees of freedom: 1 is Cauchy; the variance is infinite up to 2"},
    {"scale", ATTN_REAL, offsetof(heavytailed, scale), 0, 1e6, "1", NULL, "factor of queries and keys"},
    {0}};

static double draw_t(attn_rng *rng, double dof) {
  for (;;) {
    double u = 2 * attn_rng_uniform(rng) - 1, v = 2 * attn_rng_uniform(rng) - 1, w = u * u + v * v;
    /* expm1 keeps the digits of w^(-2/dof) - 1 for large dof. */
    if (w <= 1 && w > 0) return u * sqrt(dof * expm1(-2 / dof * log(w)) / w);
  }
}

static void heavytailed_row(draw_head *h, int64_t i, double *x) {
  (void)i;
  const heavytailed *p = h->params;
  if (h->tensor == DRAW_V)
    draw_normal(&h->rng, 1, h->d, x);
  else
    for (int64_t j = 0; j < h->d; j++) x[j] = p->scale * draw_t(&h->rng, p->dof);
}

static attn_status heavytailed_generate(const void *params, const data_request *r, data_qkv *out) {
  return draw_all(&(draw_plan){.row = heavytailed_row}, params, r, out);
}

const data_source source_heavytailed = {"heavytailed",
                                        "Student t entries in queries and keys; values are normal",
                                        heavytailed_params,
                                        sizeof(heavytailed),
                                        true,
                                        heavytailed_generate,
                                        NULL,
                                        0,
                                        NULL};

/* performer - FAVOR+: the softmax kernel as the mean over random features, so that attention is linear in n.
 *
 * With x = sqrt(scale) q and y = sqrt(scale) k, exp(x.y) = E phi(x).phi(y) for w ~ N(0, I) and
 *   positive    phi_r(x) = exp(w_r.x - |x|^2/2)
 *   optimal     (1 - 4a)^(d/4) exp(a |w_r|^2 + sqrt(1 - 4a) w_r.x - |x|^2/2), unbiased for every a < 1/8:
 *               positive ones with vectors of variance 1 - 4a, each weighted by the ratio of the densities.
 *               The mean square of a product is least at a = (d - 2z - sqrt((d + 2z)^2 + 8dz)) / 16d <= 0 if
 *               |x + y|^2 = z. Likhosherstov et al. 2022, FAVOR++ (arXiv:2205.15317)
 *   hyperbolic  positive ones with w_r and -w_r, 2m columns
 *   trig        exp(|x|^2/2) (cos w_r.x, sin w_r.x), 2m columns
 *   relu        max(w_r.x, 0): another kernel; a query that shares no positive feature with any key is
 *               0/0, NaN
 * Rows w_r: iid, or orthogonal in blocks of d (Haar: QR with the signs of R's diagonal moved into Q), of norm
 * chi_d (unbiased) or sqrt(d). The factor 1/m cancels and is left out.
 *
 * Choromanski et al. 2021 (arXiv:2009.14794). Cost n m (2 d + 2 d_v) multiply-adds. Bounds: FAV-1 to FAV-8,
 * LIN-3. Deviations from the authors' code: the sign step (theirs omits it, which biases positive features,
 * FAV-3); the stabiliser of keys is a running maximum, exact and causal, where theirs is a maximum over all
 * positions; eps = 0. FAVOR++ takes for z the mean of |x + y|^2 over all queries and keys of a call, which
 * makes a row depend on all others and on later ones; here z is given. */
#include "attn_variant.h"

#include <math.h>
#include <string.h>

typedef enum { POSITIVE, HYPERBOLIC, TRIG, RELU, OPTIMAL } kernel;
typedef enum { YES, NO } answer;
typedef enum { CHI, SQRT_D } norm;

typedef struct params {
  int64_t features, seed;
  double eps, z;
  int kernel, orthogonal, norm, share_heads;
} params;

static const char *const kernels[] = {"positive", "hyperbolic", "trig", "relu", "optimal", NULL};
static const char *const answers[] = {"yes", "no", NULL};
static const char *const norms[] = {"chi", "sqrt_d", NULL};

static const attn_param table[] = {
    {"features", ATTN_INT, offsetof(params, features), 1, 1 << 20, "256", NULL, "random vectors w"},
    {"kernel", ATTN_CHOICE, offsetof(params, kernel), 0, OPTIMAL, "positive", kernels, "feature function"},
    {"orthogonal", ATTN_CHOICE, offsetof(params, orthogonal), 0, 1, "yes", answers,
     "w orthogonal in blocks of d"},
    {"norm", ATTN_CHOICE, offsetof(params, norm), 0, 1, "chi", norms,
     "length of w if orthogonal: chi_d draws, or sqrt(d)"},
    {"z", ATTN_REAL, offsetof(params, z), 0, 1e3, "16", NULL,
     "optimal: mean of scale |q + k|^2 that it is best for; 0: positive"},
    {"eps", ATTN_REAL, offsetof(params, eps), 0, 1, "0", NULL, "added to each stabilised feature"},
    {"share_heads", ATTN_CHOICE, offsetof(params, share_heads), 0, 1, "yes", answers,
     "one draw of w for all heads"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the draws"},
    {.name = NULL},
};

typedef struct state {
  params p;
  int64_t d, draws; /* of w: 1, or one for each kv head */
  int64_t w_row;    /* elements between rows of w */
  void *w;          /* [draws][d][features] times sqrt(scale), and sqrt(1 - 4a) of optimal ones */
  double a;
  void *bias; /* [draws][features] a |w|^2; NULL where a = 0 */
} state;

static int64_t columns_of(const params *p) {
  return p->kernel == HYPERBOLIC || p->kernel == TRIG ? 2 * p->features : p->features;
}

static attn_status applicable(const attn_context *c) {
  const params *p = c->params;
  if (!(c->problem->scale > 0))
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant performer: scale = %g, expected a positive number for features",
                     c->problem->scale);
  if (p->eps > 0 && p->kernel == TRIG)
    return attn_fail(ATTN_EINVAL,
                     "variant performer: eps needs nonnegative features, and trig features may be negative");
  return ATTN_OK;
}

static double gaussian_norm(attn_rng *rng, int64_t d) {
  double sum = 0;
  for (int64_t l = 0; l < d; l++) {
    double x = attn_rng_normal(rng);
    sum += x * x;
  }
  return sqrt(sum);
}

static double tilt(const params *p, double d) {
  const double width = d + 2 * p->z;
  return p->kernel == OPTIMAL ? (d - 2 * p->z - sqrt(width * width + 8 * d * p->z)) / (16 * d) : 0;
}

/* One draw of all w. scratch: d (2 d + 1) doubles. */
static attn_status draw(const state *s, const attn_problem *x, int64_t index, double *scratch) {
  int64_t d = s->d;
  double *a = scratch, *q = a + d * d, *tau = q + d * d, root = sqrt(x->scale * (1 - 4 * s->a));
  attn_rng rng;
  attn_rng_init(&rng, (uint64_t)s->p.seed, 0xfa70b, (uint64_t)index);
  for (int64_t r0 = 0; r0 < s->p.features; r0 += d) {
    for (int64_t i = 0; i < d * d; i++) a[i] = attn_rng_normal(&rng);
    const double *rows = a;
    if (s->p.orthogonal == YES) {
      attn_status status = attn_orthogonalise(d, a, tau, q);
      if (status) return status;
      rows = q;
    }
    for (int64_t r = 0; r < d && r0 + r < s->p.features; r++) {
      double length = 1;
      if (s->p.orthogonal == YES) length = s->p.norm == CHI ? gaussian_norm(&rng, d) : sqrt((double)d);
      double square = 0;
      for (int64_t l = 0; l < d; l++) {
        /* Rounded to fp32 in either dtype: the fp64 run of a check has the same draws. A row of Q^T. */
        double w = s->p.orthogonal == YES ? rows[l * d + r] * length : rows[r * d + l];
        double rounded = (double)(float)(w * root);
        square += rounded * rounded / (root * root);
        attn_set(s->w, (index * d + l) * s->w_row + r0 + r, x->dtype, rounded);
      }
      if (s->bias) attn_set(s->bias, index * s->w_row + r0 + r, x->dtype, s->a * square);
    }
  }
  return ATTN_OK;
}

/* Features from the products w.x in the first m columns. max: the exponent taken out of each row, where there
 * is one. */
static void finish(const params *p, const attn_kernels *simd, attn_dtype t, int64_t rows, void *f,
                   int64_t f_row, double *max) {
  int64_t m = p->features;
  for (int64_t i = 0; i < rows; i++) {
    void *row = attn_at(f, i * f_row, t), *rest = attn_at(row, m, t);
    if (p->kernel == HYPERBOLIC) attn_scale_row(simd, m, -1, row, rest);
    if (p->kernel == TRIG) attn_trig_row(simd, m, row, row, rest);
    if (p->kernel == RELU) attn_relu_row(simd, m, row);
  }
  if (p->kernel == POSITIVE || p->kernel == HYPERBOLIC || p->kernel == OPTIMAL)
    attn_exp_rows(simd, rows, columns_of(p), f, f_row, max);
}

static void map(const void *opaque, const attn_context *c, const attn_feature_rows *x, void *f, int64_t f_row,
                double *scale) {
  const state *s = opaque;
  attn_dtype t = c->problem->dtype;
  int64_t m = s->p.features, draw = s->draws > 1 ? x->head : 0;
  for (int64_t i = 0; s->bias && i < x->rows; i++)
    memcpy(attn_at(f, i * f_row, t), attn_at(s->bias, draw * s->w_row, t), (size_t)m * attn_dtype_size(t));
  attn_product(c->kernels, x->rows, m, s->d, (attn_matrix){x->x, x->stride, 1},
               attn_at(s->w, draw * s->d * s->w_row, t), s->w_row, s->bias, f, f_row);
  finish(&s->p, c->kernels, t, x->rows, f, f_row, scale);
  for (int64_t i = 0; scale && i < x->rows; i++) {
    double half_norm =
        c->problem->scale / 2 * attn_square_row(c->kernels, s->d, attn_at(x->x, i * x->stride, t));
    scale[i] = s->p.kernel == RELU   ? 0
               : s->p.kernel == TRIG ? half_norm
                                     : scale[i] - half_norm + (double)s->d / 4 * log1p(-4 * s->a);
  }
}

/* df <- the gradients by the products w.x, in the first m columns. */
static void pull_products(const params *p, const attn_kernels *simd, attn_dtype t, const void *f, void *df,
                          double dscale) {
  const int64_t m = p->features;
  if (p->kernel == POSITIVE || p->kernel == HYPERBOLIC || p->kernel == OPTIMAL)
    attn_exp_row_vjp(simd, columns_of(p), f, df, dscale);
  for (int64_t r = 0; r < m && p->kernel != POSITIVE && p->kernel != OPTIMAL; r++) {
    double first = attn_get(df, r, t);
    if (p->kernel == RELU && !(attn_get(f, r, t) > 0)) first = 0;
    if (p->kernel == HYPERBOLIC) first -= attn_get(df, m + r, t);
    if (p->kernel == TRIG) first = attn_get(f, r, t) * attn_get(df, m + r, t) - attn_get(f, m + r, t) * first;
    attn_set(df, r, t, first);
  }
}

static void vjp(const void *opaque, const attn_context *c, const attn_feature_rows *x,
                const attn_feature_gradients *g) {
  const state *s = opaque;
  const attn_dtype t = c->problem->dtype;
  const int64_t draw = s->draws > 1 ? x->head : 0;
  for (int64_t i = 0; i < x->rows; i++)
    pull_products(&s->p, c->kernels, t, attn_at(g->f, i * g->f_row, t), attn_at(g->df, i * g->f_row, t),
                  g->dscale ? g->dscale[i] : 0);
  attn_gemm(c->kernels, x->rows, s->d, s->p.features, (attn_matrix){g->df, g->f_row, 1},
            (attn_matrix){attn_at(s->w, draw * s->d * s->w_row, t), 1, s->w_row}, false, g->dx, s->d,
            g->scratch);
  if (!g->dscale || s->p.kernel == RELU) return;
  const double by = s->p.kernel == TRIG ? c->problem->scale : -c->problem->scale;
  for (int64_t i = 0; i < x->rows; i++)
    attn_add_row(c->kernels, s->d, by * g->dscale[i], attn_at(x->x, i * x->stride, t),
                 attn_at(g->dx, i * s->d, t));
}

static attn_status prepare(attn_builder *b, const attn_context *c, state *s) {
  const attn_problem *x = c->problem;
  s->a = tilt(&s->p, (double)s->d);
  s->draws = s->p.share_heads == YES ? 1 : x->kv_heads;
  s->w_row = attn_padded(s->p.features, x->dtype);
  size_t ignored;
  int64_t factors[] = {s->draws, s->w_row, s->d, 8}, block[] = {s->d, 2 * s->d + 1, 8};
  attn_status status = attn_size_product("variant performer: the random vectors", factors, 4, &ignored);
  if (!status) status = attn_size_product("variant performer: a block of random vectors", block, 3, &ignored);
  if (status) return status;
  s->w = attn_builder_alloc(b, s->draws * s->d * s->w_row, attn_dtype_size(x->dtype));
  double *scratch = s->w ? attn_builder_scratch(b, s->d * (2 * s->d + 1), sizeof *scratch) : NULL;
  if (scratch && s->a != 0) s->bias = attn_builder_alloc(b, s->draws * s->w_row, attn_dtype_size(x->dtype));
  if (!scratch || (s->a != 0 && !s->bias)) return ATTN_ENOMEM;
  memset(s->w, 0, (size_t)(s->draws * s->d * s->w_row) * attn_dtype_size(x->dtype));
  for (int64_t i = 0; i < s->draws; i++)
    if ((status = draw(s, x, i, scratch))) return status;
  return ATTN_OK;
}

static const attn_exemption own_draws[] = {
    {ATTN_EXEMPT_GROUPS, "share_heads=no: each kv head has its own draws"}, {.reason = NULL}};

/* A query that shares no positive feature with any key has weights 0/0. */
static uint32_t lacks(const params *p) {
  if (p->kernel == TRIG) return ATTN_CAP_CONVEX;
  return p->kernel == RELU && !(p->eps > 0) ? ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX : 0;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  static const attn_features_kind kinds[] = {ATTN_FEATURES_POSITIVE, ATTN_FEATURES_HYPERBOLIC,
                                             ATTN_FEATURES_TRIG, ATTN_FEATURES_RELU, ATTN_FEATURES_POSITIVE};
  const params *p = c->params;
  state *s = b ? attn_builder_alloc(b, 1, sizeof *s) : NULL;
  if (b && !s) return ATTN_ENOMEM;
  if (s) *s = (state){.p = *p, .d = c->problem->d_qk};
  const attn_status status = s ? prepare(b, c, s) : ATTN_OK;
  if (status) return status;
  out->caps &= ~lacks(p);
  if (p->share_heads == NO) out->exempt = own_draws;
  out->features =
      (attn_feature_map){.state = s,
                         .columns = columns_of(p),
                         .eps = p->eps,
                         .map = map,
                         .vjp = vjp,
                         .mul_add = (double)p->features * (double)c->problem->d_qk,
                         .exp = (double)columns_of(p),
                         .law = {.kind = kinds[p->kernel],
                                 .vectors = p->features,
                                 .orthogonal = p->orthogonal == YES,
                                 .fixed_length = p->orthogonal == YES && p->norm == SQRT_D,
                                 .softmax = p->kernel != RELU,
                                 .a = s ? s->a : 0,
                                 .heads = p->share_heads == YES ? ATTN_DRAWS_SHARED : ATTN_DRAWS_APART}};
  return ATTN_OK;
}

ATTN_VARIANT(performer, .summary = "random features of the softmax kernel (FAVOR+, FAVOR++)",
             .formula = "o_i = phi(q_i).sum_j phi(k_j) v_j / phi(q_i).sum_j phi(k_j), phi of m = `features` "
                        "random vectors, E phi(q).phi(k) = exp(scale q.k); O(n m d)",
             .cite = "Choromanski et al. 2021, arXiv:2009.14794",
             .caps = ATTN_CAP_LINEAR | ATTN_CAP_POSITIONS, .params = table, .params_size = sizeof(params),
             .seed = "seed", .budget = {.parameter = "features"}, .applicable = applicable,
             .describe = describe, .cost = attn_features_cost)

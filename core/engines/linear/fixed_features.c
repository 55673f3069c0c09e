/* fixed_features.c - the maps of attn_fixed_features: what linear and toeplitz have in common. The head of
 * variants/linear.c has their formulas and papers. */
#include "core/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AHEAD = 24 }; /* rows */

typedef enum { ELU, RELU, RELU2, IDENTITY, DPFP, EXP, TAYLOR, COS, HEDGEHOG } feature;
_Static_assert((int)EXP == (int)ATTN_FIXED_EXP && (int)HEDGEHOG == (int)ATTN_FIXED_HEDGEHOG,
               "the header names these");

typedef enum { YES, NO } answer;

const char *const attn_fixed_features_names[] = {"elu", "relu",   "relu2", "identity", "dpfp",
                                                 "exp", "taylor", "cos",   "hedgehog", NULL};
const char *const attn_fixed_features_answers[] = {"yes", "no", NULL};

typedef attn_fixed_features params;

typedef struct state {
  params p;
  int64_t inner, columns; /* components of W x; features */
  double factor;          /* that they are multiplied with */
  double period;          /* cos: 2 M / pi */
  int64_t w_row;
  void *w;               /* [d_qk] rows of `inner`; NULL without weights */
  const double *weights; /* [inner, d_qk], the same numbers */
} state;

static state shape_of(const attn_context *c, const params *p) {
  const attn_problem *x = c->problem;
  const bool given = *p->weights, scores = p->feature == IDENTITY || p->feature == TAYLOR;
  state s = {.p = *p, .inner = given && p->rows ? p->rows : x->d_qk, .factor = scores ? sqrt(x->scale) : 1};
  if (p->feature == HEDGEHOG && !given) s.factor = 2;
  s.period = 2 / acos(-1) * (double)(p->length ? p->length : x->n_kv);
  const int64_t d = s.inner;
  s.columns = p->feature == DPFP                            ? 2 * d * p->nu
              : p->feature == COS || p->feature == HEDGEHOG ? 2 * d
              : p->feature != TAYLOR                        ? d
              : p->degree > 1                               ? 1 + d + d * (d + 1) / 2
                                                            : 1 + d;
  return s;
}

attn_status attn_fixed_features_check(const attn_context *c, const params *p) {
  if (!c || !p) return attn_null("fixed features", c ? "parameters" : "context");
  const attn_problem *x = c->problem;
  const char *name = c->variant->name;
  const state s = shape_of(c, p);
  const int of = p->feature;
  if (p->rows && !*p->weights)
    return attn_fail(ATTN_EINVAL, "variant %s: rows = %lld, but no weights are given", name,
                     (long long)p->rows);
  if ((of == IDENTITY || of == TAYLOR) && !(x->scale > 0))
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: scale = %g, expected a positive number for feature=%s",
                     name, x->scale, attn_fixed_features_names[of]);
  if (p->eps > 0 && of != RELU && of != RELU2 && of != DPFP)
    return attn_fail(ATTN_EINVAL,
                     "variant %s: eps is for features that may all be 0 (relu, relu2, dpfp), not for %s",
                     name, attn_fixed_features_names[of]);
  if (of == EXP && p->normalise == NO)
    return attn_fail(ATTN_EINVAL,
                     "variant %s: feature=exp needs normalise=yes, because its sums are unbounded", name);
  if (of == DPFP && p->nu >= 2 * s.inner)
    return attn_fail(ATTN_EINVAL, "variant %s: nu = %lld, expected less than the %lld components of dpfp",
                     name, (long long)p->nu, (long long)(2 * s.inner));
  if (of != COS) return ATTN_OK;
  if (x->n_q > x->n_kv)
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: n_q > n_kv leaves queries of cos without a position",
                     name);
  if (p->length && p->length < x->n_kv)
    return attn_fail(ATTN_EINVAL, "variant %s: M = %lld, but there are %lld positions", name,
                     (long long)p->length, (long long)x->n_kv);
  return ATTN_OK;
}

/* -- the map -- */

/* u_i u_(i + r) for each i and r from the components in the first places of the row; the first shift last,
 * since it takes their place. */
static void dpfp_row(const state *s, const attn_kernels *simd, attn_dtype t, void *row) {
  const int64_t n = 2 * s->inner;
  attn_scale_row(simd, s->inner, -1, row, attn_at(row, s->inner, t));
  attn_relu_row(simd, n, row);
  for (int64_t r = s->p.nu; r > 0; r--) {
    void *to = attn_at(row, (r - 1) * n, t);
    const double first = attn_get(row, 0, t), last = attn_get(row, n - 1, t);
    attn_multiply_row(simd, n - r, row, attn_at(row, r, t), to);
    if (r == 1)
      attn_set(row, n - 1, t, last * first);
    else
      attn_multiply_row(simd, r, attn_at(row, n - r, t), row, attn_at(to, n - r, t));
  }
}

static void finish_row(const state *s, const attn_kernels *simd, attn_dtype t, int64_t position, void *row) {
  const int of = s->p.feature;
  const int64_t n = s->inner;
  const double angle = (double)(position + 1) / s->period;
  void *rest = attn_at(row, n, t);
  if (of == ELU) attn_elu_row(simd, n, row);
  if (of == RELU || of == RELU2 || of == COS) attn_relu_row(simd, n, row);
  if (of == RELU2) attn_multiply_row(simd, n, row, row, row);
  if (of == DPFP) dpfp_row(s, simd, t, row);
  if (of == TAYLOR) attn_set(row, 0, t, 1);
  if (of == TAYLOR && s->p.degree > 1) attn_pairs_row(simd, n, attn_at(row, 1, t), attn_at(rest, 1, t));
  if (of == COS) {
    attn_scale_row(simd, n, sin(angle), row, rest);
    attn_scale_row(simd, n, cos(angle), row, row);
  }
  if (of == HEDGEHOG) {
    attn_scale_row(simd, n, -1, row, rest);
    attn_softmax_row(simd, 2 * n, row, 1);
  }
}

static void map(const void *opaque, const attn_context *c, const attn_feature_rows *x, void *f, int64_t f_row,
                double *scale) {
  const state *s = opaque;
  const attn_dtype t = c->problem->dtype;
  const int64_t d = c->problem->d_qk;
  void *inner = attn_at(f, s->p.feature == TAYLOR, t); /* after the constant */
  if (s->w)
    attn_product(c->kernels, x->rows, s->inner, d, (attn_matrix){x->x, x->stride, 1}, s->w, s->w_row, false,
                 inner, f_row);
  for (int64_t i = 0; i < x->rows; i++) {
    /* Rows are short, and what is done to one is over before the next has come from memory; of the next call,
     * too. */
    if (!s->w) attn_prefetch_row(attn_at(x->x, (i + AHEAD) * x->stride, t), d, t);
    void *to = attn_at(inner, i * f_row, t);
    const void *from = s->w ? to : attn_at(x->x, i * x->stride, t);
    if (!s->w || s->factor != 1) attn_scale_row(c->kernels, s->inner, s->factor, from, to);
    finish_row(s, c->kernels, t, x->first + i, attn_at(f, i * f_row, t));
    if (scale) scale[i] = 0;
  }
  if (s->p.feature == EXP) attn_exp_rows(c->kernels, x->rows, s->inner, f, f_row, scale);
}

/* -- its derivative: df becomes that by the components y = factor W x, where they stand in a row of map -- */

/* f: u = max([y; -y], 0). That by u_i takes the place of that by u_i u_(i + 1), which the next one needs. */
static void pull_dpfp(const state *s, attn_dtype t, const void *u, void *df) {
  const int64_t n = 2 * s->inner;
  double before = attn_get(df, n - 1, t);
  for (int64_t i = 0; i < n; i++) {
    double sum = before * attn_get(u, (i + n - 1) % n, t);
    before = attn_get(df, i, t);
    sum += before * attn_get(u, (i + 1) % n, t);
    for (int64_t r = 2; r <= s->p.nu; r++) {
      const int64_t ahead = (i + r) % n, behind = (i + n - r) % n, shift = (r - 1) * n;
      sum += attn_get(df, shift + i, t) * attn_get(u, ahead, t) +
             attn_get(df, shift + behind, t) * attn_get(u, behind, t);
    }
    attn_set(df, i, t, attn_get(u, i, t) > 0 ? sum : 0);
  }
}

static void pull_pairs(int64_t n, attn_dtype t, const void *y, const void *pairs, void *dy) {
  for (int64_t i = 0, at = 0; i < n; i++)
    for (int64_t j = i; j < n; j++, at++) {
      const double of = attn_get(pairs, at, t) * (i == j ? sqrt(0.5) : 1);
      attn_set(dy, i, t, attn_get(dy, i, t) + of * attn_get(y, j, t));
      attn_set(dy, j, t, attn_get(dy, j, t) + of * attn_get(y, i, t));
    }
}

/* Times the slope of elu, 1 or the feature itself, whose place it takes. */
static void pull_elu(int64_t n, const attn_kernels *simd, void *f, void *df) {
  float *f32 = f;
  double *f64 = f;
  const bool single = simd->dtype == ATTN_F32;
  for (int64_t c = 0; single && c < n; c++) f32[c] = f32[c] < 1 ? f32[c] : 1;
  for (int64_t c = 0; !single && c < n; c++) f64[c] = f64[c] < 1 ? f64[c] : 1;
  simd->multiply_row(n, df, f, df);
}

static void pull_row(const state *s, const attn_kernels *simd, attn_dtype t, int64_t position, void *f,
                     void *df, double dscale) {
  const int of = s->p.feature;
  const int64_t n = s->inner;
  const double angle = (double)(position + 1) / s->period;
  if (of == EXP) attn_exp_row_vjp(simd, n, f, df, dscale);
  if (of == ELU) pull_elu(n, simd, f, df);
  if (of == DPFP) pull_dpfp(s, t, f, df);
  if (of == TAYLOR && s->p.degree > 1)
    pull_pairs(n, t, attn_at(f, 1, t), attn_at(df, 1 + n, t), attn_at(df, 1, t));
  double mean = 0;
  for (int64_t c = 0; c < 2 * n && of == HEDGEHOG; c++) mean += attn_get(f, c, t) * attn_get(df, c, t);
  const bool two = of == COS || of == HEDGEHOG || of == DPFP;
  for (int64_t c = 0; c < n && (two || of == RELU || of == RELU2); c++) {
    const double a = attn_get(f, c, t), b = two ? attn_get(f, n + c, t) : 0,
                 h = two ? attn_get(df, n + c, t) : 0;
    double g = attn_get(df, c, t);
    if (of == RELU) g *= a > 0;
    if (of == RELU2) g *= 2 * sqrt(a);
    if (of == COS) g = a > 0 || b > 0 ? cos(angle) * g + sin(angle) * h : 0;
    if (of == HEDGEHOG) g = a * (g - mean) - b * (h - mean);
    if (of == DPFP) g -= h;
    attn_set(df, c, t, g);
  }
}

static void vjp(const void *opaque, const attn_context *c, const attn_feature_rows *x,
                const attn_feature_gradients *g) {
  const state *s = opaque;
  const attn_kernels *simd = c->kernels;
  const attn_dtype t = c->problem->dtype;
  const int64_t d = c->problem->d_qk;
  const void *inner = attn_at(g->df, s->p.feature == TAYLOR, t);
  state components = *s;
  components.p.feature = IDENTITY;
  if (s->p.feature == DPFP) map(&components, c, x, g->f, g->f_row, NULL);
  for (int64_t i = 0; i < x->rows; i++) {
    void *f = attn_at(g->f, i * g->f_row, t);
    if (s->p.feature == DPFP) {
      attn_scale_row(simd, s->inner, -1, f, attn_at(f, s->inner, t));
      attn_relu_row(simd, 2 * s->inner, f);
    }
    pull_row(s, simd, t, x->first + i, f, attn_at(g->df, i * g->f_row, t), g->dscale ? g->dscale[i] : 0);
  }
  if (s->w)
    attn_gemm(simd, x->rows, d, s->inner, (attn_matrix){inner, g->f_row, 1}, (attn_matrix){s->w, 1, s->w_row},
              false, g->dx, d, g->scratch);
  for (int64_t i = 0; i < x->rows; i++)
    attn_scale_row(simd, d, s->factor, attn_at(s->w ? g->dx : inner, i * (s->w ? d : g->f_row), t),
                   attn_at(g->dx, i * d, t));
}

/* -- the law: the kernel of a pair, by its definition -- */

typedef struct sized {
  double at, size; /* a number, and what its rounding is relative to */
} sized;

static sized component(const state *s, const double *x, int64_t d, int64_t r) {
  if (!s->weights) return (sized){s->factor * x[r], s->factor * fabs(x[r])};
  sized t = {0, 0};
  for (int64_t l = 0; l < d; l++) {
    t.at += s->factor * s->weights[r * d + l] * x[l];
    t.size += fabs(s->factor * s->weights[r * d + l] * x[l]);
  }
  return t;
}

/* The feature of a component where each component has one feature. */
static sized single(const state *s, sized t) {
  const sized power = {exp(t.at), exp(t.at) * (1 + t.size)}, part = {t.at < 0 ? 0 : t.at, t.size};
  switch (s->p.feature) {
  case ELU:
    return t.at < 0 ? power : (sized){t.at + 1, t.size + 1};
  case EXP:
    return power;
  case RELU:
  case COS:
    return part;
  case RELU2:
    return (sized){part.at * part.at, part.size * part.size};
  default:
    return t;
  }
}

static void add_product(sized *sum, sized a, sized b, double eps) {
  sum->at += (a.at + eps) * (b.at + eps);
  sum->size += (fabs(a.size) + eps) * (fabs(b.size) + eps);
}

static sized part_of(const state *s, const double *x, int64_t d, int64_t i) {
  sized t = component(s, x, d, i % s->inner);
  if (i >= s->inner) t.at = -t.at;
  return (sized){t.at < 0 ? 0 : t.at, t.size};
}

static sized dpfp_feature(const state *s, const double *x, int64_t d, int64_t i, int64_t r) {
  const sized a = part_of(s, x, d, i), b = part_of(s, x, d, (i + r) % (2 * s->inner));
  return (sized){a.at * b.at, a.size * b.size};
}

/* The largest |component| and what all of exp(+-component - largest) add up to. */
static double softmax_of(const state *s, const double *x, int64_t d, sized *largest) {
  double sum = 0;
  *largest = (sized){0, 0};
  for (int64_t r = 0; r < s->inner; r++) {
    const sized t = component(s, x, d, r);
    largest->at = fmax(largest->at, fabs(t.at));
    largest->size = fmax(largest->size, t.size);
  }
  for (int64_t r = 0; r < s->inner; r++) {
    const double t = component(s, x, d, r).at;
    sum += exp(t - largest->at) + exp(-t - largest->at);
  }
  return sum;
}

static sized hedgehog(const state *s, const attn_feature_pair *x, int64_t d) {
  sized q, k, sum = {0, 0};
  const double all = softmax_of(s, x->q, d, &q) * softmax_of(s, x->k, d, &k);
  for (int64_t r = 0; r < s->inner; r++) {
    const double t = component(s, x->q, d, r).at + component(s, x->k, d, r).at;
    sum.at += (exp(t - q.at - k.at) + exp(-t - q.at - k.at)) / all;
  }
  sum.size = sum.at * (1 + 2 * q.size) * (1 + 2 * k.size);
  return sum;
}

static double kernel(const void *opaque, const attn_context *c, const attn_feature_pair *x, double *size) {
  const state *s = opaque;
  const int64_t d = c->problem->d_qk;
  sized sum = {0, 0};
  for (int64_t i = 0; i < 2 * s->inner && s->p.feature == DPFP; i++)
    for (int64_t r = 1; r <= s->p.nu; r++)
      add_product(&sum, dpfp_feature(s, x->q, d, i, r), dpfp_feature(s, x->k, d, i, r), s->p.eps);
  for (int64_t r = 0; r < s->inner && s->p.feature != DPFP && s->p.feature != HEDGEHOG; r++)
    add_product(&sum, single(s, component(s, x->q, d, r)), single(s, component(s, x->k, d, r)), s->p.eps);
  if (s->p.feature == HEDGEHOG) sum = hedgehog(s, x, d);
  if (s->p.feature == COS) sum = (sized){sum.at * cos((double)(x->query - x->key) / s->period), 2 * sum.size};
  if (s->p.feature == TAYLOR) {
    const bool square = s->p.degree > 1;
    sum = (sized){1 + sum.at + (square ? sum.at * sum.at / 2 : 0),
                  1 + sum.size + (square ? sum.size * sum.size / 2 : 0)};
  }
  *size = sum.size;
  return sum.at;
}

/* -- the part -- */

/* Rounded to fp32 in either dtype: the fp64 run of a check has the same matrix. */
static attn_status read_weights(attn_builder *b, state *s) {
  const attn_problem *x = b->context.problem;
  const int64_t d = x->d_qk;
  double *given = NULL, *kept = NULL;
  int64_t rows, columns;
  s->w_row = attn_padded(s->inner, x->dtype);
  attn_status status = attn_matrix_read(s->p.weights, &rows, &columns, &given);
  if (status) return status;
  if (rows != s->inner || columns != d) {
    status = attn_fail(ATTN_EINVAL, "variant %s: %s is %lld x %lld, expected %lld x %lld",
                       b->context.variant->name, s->p.weights, (long long)rows, (long long)columns,
                       (long long)s->inner, (long long)d);
    goto out;
  }
  kept = attn_builder_alloc(b, s->inner * d, sizeof *kept);
  s->w = attn_builder_alloc(b, d * s->w_row, attn_dtype_size(x->dtype));
  if (!kept || !s->w) status = ATTN_ENOMEM;
  if (status) goto out;
  memset(s->w, 0, (size_t)(d * s->w_row) * attn_dtype_size(x->dtype));
  for (int64_t i = 0; i < s->inner * d; i++) {
    kept[i] = (double)(float)given[i];
    attn_set(s->w, i % d * s->w_row + i / d, x->dtype, kept[i]);
  }
  s->weights = kept;
out:
  free(given);
  return status;
}

static const attn_exemption own_length[] = {
    {ATTN_EXEMPT_PREFIX, "M=0: angles are counted in lengths of the sequence"}, {.reason = NULL}};

static uint32_t lacks(const params *p) {
  const int of = p->feature;
  uint32_t lost = of == COS ? ATTN_CAP_PERMUTATION : 0;
  if (of == IDENTITY || (of == TAYLOR && p->degree == 1)) lost |= ATTN_CAP_CONVEX;
  /* A query that shares no positive feature with any key has weights 0/0. */
  if ((of == RELU || of == RELU2 || of == DPFP || of == COS) && !(p->eps > 0))
    lost |= ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX;
  if (p->normalise == NO) lost |= ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX;
  return lost;
}

attn_status attn_fixed_features_describe(attn_builder *b, const attn_context *c, const params *p,
                                         attn_parts *out) {
  if (!c || !p || !out) return attn_null("fixed features", !c ? "context" : p ? "parts" : "parameters");
  const state shape = shape_of(c, p);
  state *s = b ? attn_builder_alloc(b, 1, sizeof *s) : NULL;
  if (b && !s) return ATTN_ENOMEM;
  if (s) *s = shape;
  const attn_status status = s && *p->weights ? read_weights(b, s) : ATTN_OK;
  if (status) return status;
  out->caps &= ~lacks(p);
  if (p->feature == COS && !p->length) out->exempt = own_length;
  out->features = (attn_feature_map){
      .state = s,
      .columns = shape.columns,
      .eps = p->eps,
      .map = map,
      .vjp = vjp,
      .positions = p->feature == COS,
      .unnormalised = p->normalise == NO,
      .mul_add = *p->weights ? (double)shape.inner * (double)c->problem->d_qk : 0,
      .exp = p->feature == ELU || p->feature == EXP || p->feature == HEDGEHOG ? (double)shape.columns : 0,
      .law = {.kind = ATTN_FEATURES_FIXED,
              .kernel = kernel,
              .degree = p->feature == TAYLOR && p->normalise == YES ? p->degree : 0}};
  return ATTN_OK;
}

/* features.c - a feature map as a plug-in: attention without softmax, linear in n.
 *
 *   o_i = sum_j w_ij v_j / sum_j w_ij,   w_ij = sum_l phi(q_il) phi(k_jl),   phi(x) = ln(1 + e^x)
 *
 *   cc -std=c17 -shared -fPIC -DATTN_PLUGIN features.c $(pkg-config --cflags attn) -o features.so
 *   attnlab test features --plugin ./features.so */
#include <attn_variant.h>

#include <math.h>

static const attn_param table[] = {{.name = NULL}};

static double phi(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }

/* Rows of f from rows of x: here a feature for each component. A row's logarithmic scale is 0: nothing
 * overflows. */
static void map(const void *state, const attn_context *c, const attn_feature_rows *x, void *f, int64_t f_row,
                double *scale) {
  const attn_dtype t = c->problem->dtype;
  (void)state;
  for (int64_t i = 0; i < x->rows; i++) {
    for (int64_t l = 0; l < c->problem->d_qk; l++)
      attn_set(f, i * f_row + l, t, phi(attn_get(x->x, i * x->stride + l, t)));
    if (scale) scale[i] = 0;
  }
}

/* The law that checks hold map against: the weight of a pair, from the definition. No term is negative, so
 * that rounding is relative to their sum. */
static double kernel(const void *state, const attn_context *c, const attn_feature_pair *x, double *size) {
  double sum = 0;
  (void)state;
  for (int64_t l = 0; l < c->problem->d_qk; l++) sum += phi(x->q[l]) * phi(x->k[l]);
  *size = sum;
  return sum;
}

/* What it is made of: a feature map. A state that map needs would be kept by attn_builder_keep. */
static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b;
  out->features = (attn_feature_map){.columns = c->problem->d_qk,
                                     .map = map,
                                     .exp = 2 * (double)c->problem->d_qk,
                                     .law = {.kind = ATTN_FEATURES_FIXED, .kernel = kernel}};
  return ATTN_OK;
}

ATTN_VARIANT(
    features, .summary = "softplus features without softmax",
    .formula = "o_i = phi(q_i).sum_j phi(k_j) v_j / phi(q_i).sum_j phi(k_j), phi(x) = ln(1 + e^x); O(n d^2)",
    .cite = "an example", .caps = ATTN_CAP_LINEAR, .params = table, .describe = describe,
    .cost = attn_features_cost)

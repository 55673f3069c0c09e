/* signs - a store of the signs of a row and the mean of its magnitudes, in 16 bits. */
#include <attn_variant.h>

#include <math.h>

/* What the code of one row means. */
static void decode(const void *state, int64_t d, double *x, double *kept) {
  double mean = 0;
  (void)state;
  for (int64_t l = 0; l < d; l++) mean += fabs(x[l]) / (double)d;
  for (int64_t l = 0; l < d; l++) kept[l] = copysign(attn_rounded(mean, ATTN_F16), x[l]);
}

static attn_kv_scheme scheme(int64_t d) { return (attn_kv_scheme){.decode = decode, .bits = (double)d + 16}; }

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b;
  out->store.k_scheme = scheme(c->problem->d_qk);
  out->store.v_scheme = scheme(c->problem->d_v);
  return ATTN_OK;
}

static const attn_param table[] = {{.name = NULL}};

ATTN_VARIANT(signs, .summary = "exact attention to signs and mean magnitudes of keys and values",
             .formula = "softmax over c q.k^, k^ = mean |k_l| sign(k); O(n^2 d)",
             .cite = "Rastegari et al. 2016, arXiv:1603.05279", .caps = ATTN_CAP_KV_STORE, .params = table,
             .params_size = 0, .describe = describe, .cost = attn_kv_store_cost)

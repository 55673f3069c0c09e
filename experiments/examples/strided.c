/* strided.c - a variant as a plug-in: query i sees every key at a multiple of the stride from it, n/stride
 * keys in all. It is the strided half of the Sparse Transformer's pattern (Child et al. 2019,
 * arXiv:1904.10509).
 *
 *   cc -std=c17 -shared -fPIC -DATTN_PLUGIN strided.c $(pkg-config --cflags attn) -o strided.so
 *   attnlab describe strided --plugin ./strided.so
 *   attnlab test strided:stride=4 --plugin ./strided.so
 *   attnlab run strided.yaml --plugin ./strided.so -o strided.h5 */
#include <attn_variant.h>

typedef struct params {
  int64_t stride;
} params;

static const attn_param table[] = {
    {"stride", ATTN_INT, offsetof(params, stride), 1, 1 << 20, "16", NULL, "distance between the keys seen"},
    {.name = NULL},
};

typedef struct state {
  int64_t stride, n;
} state;

static int64_t row(const void *opaque, int64_t head, int64_t position, attn_run *runs) {
  const state *s = opaque;
  (void)head;
  const int64_t first = position % s->stride;
  runs[0] = (attn_run){first, (s->n - 1 - first) / s->stride + 1, s->stride};
  return 1;
}

/* The law that checks hold row against, written apart from it. */
static bool sees(const void *opaque, int64_t head, int64_t position, int64_t key) {
  (void)head;
  return (position - key) % ((const state *)opaque)->stride == 0;
}

static attn_status applicable(const attn_context *c) {
  if (c->problem->n_q > c->problem->n_kv)
    return attn_fail(ATTN_EUNSUPPORTED, "variant strided: n_q > n_kv leaves queries without a position");
  return ATTN_OK;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const state s = {.stride = ((const params *)c->params)->stride, .n = c->problem->n_kv};
  /* max_pieces: for expressions, which join runs of step 1. */
  out->pattern = (attn_pattern){.row = row, .max_runs = 1, .max_pieces = s.n / s.stride + 1, .sees = sees};
  return attn_builder_keep(b, &s, sizeof s, &out->pattern.state);
}

static attn_cost cost(const attn_context *c) {
  const double keys = (double)c->problem->n_kv / (double)((const params *)c->params)->stride;
  return attn_softmax_cost(c, (double)c->problem->n_q * keys / (c->problem->causal ? 2 : 1));
}

ATTN_VARIANT(strided, .summary = "every stride-th key from the query's own",
             .formula = "keys j with stride dividing i - j; O(n^2 d / stride)", .cite = "arXiv:1904.10509",
             .caps = ATTN_CAP_SOFTMAX, .params = table, .params_size = sizeof(params),
             .applicable = applicable, .describe = describe, .cost = cost)

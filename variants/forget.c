/* forget - softmax attention that forgets: a key is dimmed by the gates of all keys from it to the query.
 *
 *   o_i = sum_j w_ij v_j / sum_j w_ij,   w_ij = exp(s_ij + g_j+1 + ... + g_i),   j <= i
 *
 * Lin et al. 2025 (arXiv:2503.02130; formula as recalled). g is the logarithm of a gate in 0 ... 1 of a head
 * and key, from a layer that is not part of attention: the call's extra tensor "decay", one column. A call
 * that has none is given -slope, which is ALiBi's bias (Press et al. 2021, arXiv:2108.12409).
 *
 * The sum is taken from the query backwards in fp64, never as a difference of sums from the first key: its
 * rounding is relative to itself. Cost that of exact attention, row by row. It is another function than
 * softmax attention: errors against that are reported. Bounds: ENT-0, ENT-1. */
#include "attn_variant.h"

#include <math.h>

typedef struct params {
  double slope;
} params;

static const attn_param table[] = {
    {"slope", ATTN_REAL, offsetof(params, slope), 0, 1e6, "0", NULL,
     "without gates: of the distance, in every head; 0: ALiBi's"},
    {.name = NULL},
};

typedef struct slopes {
  double slope;
  int64_t heads;
} slopes;

/* attn_normaliser.gate */
static double gate(const void *state, const attn_call *call, int64_t batch, int64_t head, int64_t key) {
  const slopes *s = state;
  const attn_extra *x = attn_call_extra(call, "decay");
  if (x) return attn_get(attn_call_extra_row(call, x, batch, head, key), 0, x->dtype);
  double power = exp2(floor(log2((double)s->heads))), h = (double)(head + 1), slope = exp2(-8 * h / power);
  if (h > power) slope = exp2(-8 * (2 * (h - power) - 1) / (2 * power));
  return s->slope > 0 ? -s->slope : -slope;
}

/* attn_normaliser.gates; NaN, which is refused, of vectors. */
static void gates(const void *state, const attn_call *call, int64_t batch, int64_t head, int64_t first,
                  int64_t count, double *logs) {
  const attn_extra *x = attn_call_extra(call, "decay");
  const double all = x ? (double)NAN : gate(state, call, batch, head, first);
  for (int64_t i = 0; i < count; i++) {
    logs[i] = all;
    if (x && x->columns == 1)
      attn_convert(attn_call_extra_row(call, x, batch, head, first + i), x->dtype, 1, ATTN_F64, logs + i);
  }
}

/* attn_normaliser.gates_back: gates are elements of the tensor. */
static void gates_back(const void *state, const attn_call *call, int64_t batch, int64_t head, int64_t first,
                       int64_t count, const double *d, double *const *dextra) {
  const attn_extra *x = attn_call_extra(call, "decay");
  (void)state;
  if (!x || !dextra[x - call->extra]) return;
  const attn_extra to = {"decay", ATTN_F64, dextra[x - call->extra], x->batch, x->heads, x->n, x->columns};
  for (int64_t i = 0; i < count; i++)
    *(double *)attn_call_extra_row(call, &to, batch, head, first + i) += d[i];
}

static attn_status applicable(const attn_context *c) {
  return c->problem->causal ? ATTN_OK : attn_fail(ATTN_EUNSUPPORTED, "variant forget: only causal attention");
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const slopes own = {((const params *)c->params)->slope, c->problem->heads};
  out->normaliser = attn_softmax_normaliser();
  out->normaliser.gates = gates;
  out->normaliser.gate = gate;
  out->normaliser.gates_back = gates_back;
  return attn_builder_keep(b, &own, sizeof own, &out->normaliser.state);
}

static attn_cost cost(const attn_context *c) { return attn_softmax_cost(c, attn_visible_pairs(c->problem)); }

ATTN_VARIANT(forget, .summary = "softmax attention with forget gates (Forgetting Transformer)",
             .formula = "o_i = sum_j exp(s_ij + G_i - G_j) v_j / sum_j exp(s_ij + G_i - G_j), G sums of log "
                        "gates; O(n^2 d)",
             .cite = "Lin et al. 2025, arXiv:2503.02130",
             .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_KEYS) | ATTN_CAP_POSITIONS, .params = table,
             .params_size = sizeof(params), .applicable = applicable, .describe = describe, .cost = cost)

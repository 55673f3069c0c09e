/* recurrent - recurrent attention: each query head carries a matrix from key to key.
 *
 *   S' = diag(a_t) S_t-1,   S_t = S' + k_t u_t^T,   o_t = c S_t^T q_t,   and
 *
 *   rule          a_t                          u_t                       paper
 *   retention     a number of the head         v_t                       Sun et al. 2023, arXiv:2307.08621
 *   ssd           a number of the key          b_t v_t                   Dao and Gu 2024, arXiv:2405.21060
 *   gla           a vector of the key          v_t                       Yang et al. 2023, arXiv:2312.06635
 *   delta         1                            b_t (v_t - S'^T k_t)      Yang et al. 2024, arXiv:2406.06484
 *   gated_delta   a number of the key          b_t (v_t - S'^T k_t)      Yang et al. 2024, arXiv:2412.06464
 *   kda           a vector of the key          b_t (v_t - S'^T k_t)      Kimi Team 2025, arXiv:2510.26692
 *
 * so that the decay comes before the value is written, and queries read behind it. Without the delta rule o_i
 * = c sum_j<=i (q_i . (a_j+1 ... a_i) k_j) u_j. In ssd S is the papers' state, k their B, q their C, v their
 * x, b their Delta and ln a = -A Delta.
 *
 * Gates come from a layer that is not part of attention. decay=retnet: a = 1 - 2^(-5 - h) of head h = 0, 1,
 * ...; decay=constant: `gamma` of all; decay=extra: e to the call's extra tensor "decay", and beta=extra its
 * "beta". A call that has none is given draws, a function of head and key alone: of a number ln a = -A Delta
 * with A = 1 + h mod 16 and Delta log-uniform in 0.001 ... 0.1, as Mamba-2 begins; of a vector a = u^(1/16), u
 * uniform; b = Delta in ssd, else uniform in 0 ... 1. The delta rules take keys of length 1 (key_norm=auto),
 * as their papers do: with b |k|^2 > 2 the state grows.
 *
 * c is the problem's scale. The papers' rotation, convolution, normalisation of queries and of outputs are
 * outside. It approximates no softmax: its errors against softmax are reported, and what it computes is held
 * against its definition. Cost: chunks of `chunk` keys read the state and their own triangle. Bounds:
 * REC-1. */
#include "attn_variant.h"

#include <math.h>
#include <string.h>

typedef enum { RETENTION, SSD, GLA, DELTA, GATED_DELTA, KDA } rule;
enum { AUTO, RETNET, CONSTANT, EXTRA, UNDECAYED }; /* decay */
enum { BETA_EXTRA = 2, NORM_NONE = 1, GATES = 0x67617465 };

typedef struct params {
  int rule, decay, beta, key_norm;
  double gamma;
  int64_t chunk;
} params;

static const char *const rules[] = {"retention", "ssd", "gla", "delta", "gated_delta", "kda", NULL},
                         *const decays_of[] = {"auto", "retnet", "constant", "extra", NULL},
                         *const betas_of[] = {"auto", "one", "extra", NULL},
                         *const norms[] = {"auto", "none", "l2", NULL};
static const attn_param table[] = {
    {"rule", ATTN_CHOICE, offsetof(params, rule), 0, 0, "retention", rules, "how the state changes"},
    {"decay", ATTN_CHOICE, offsetof(params, decay), 0, 0, "auto", decays_of,
     "what it keeps at each key; auto: the rule's"},
    {"gamma", ATTN_REAL, offsetof(params, gamma), 0, 1, "0.99", NULL, "decay=constant: a of every head"},
    {"beta", ATTN_CHOICE, offsetof(params, beta), 0, 0, "auto", betas_of,
     "what of a value is written; auto: the rule's"},
    {"key_norm", ATTN_CHOICE, offsetof(params, key_norm), 0, 0, "auto", norms,
     "keys are divided by their length; auto: by the delta rules"},
    {"chunk", ATTN_INT, offsetof(params, chunk), 0, 1024, "0", NULL,
     "keys that are taken together; 0: 64, or 16 where decays are vectors"},
    {.name = NULL},
};

static bool by_columns(const params *p) { return p->rule == GLA || p->rule == KDA; }
static bool by_delta(const params *p) { return p->rule >= DELTA; }

static int decay_of(const params *p) {
  if (p->decay) return p->decay;
  return p->rule == RETENTION ? RETNET : p->rule == DELTA ? UNDECAYED : EXTRA;
}

static bool has_betas(const params *p) {
  return p->beta == BETA_EXTRA || (p->beta == AUTO && (p->rule == SSD || by_delta(p)));
}

static attn_status applicable(const attn_context *c) {
  if (!c->problem->causal) return attn_fail(ATTN_EUNSUPPORTED, "variant recurrent: only causal attention");
  return attn_problem_plain(c->problem)
             ? ATTN_OK
             : attn_fail(ATTN_EUNSUPPORTED, "variant recurrent: a mask or a transform of the scores");
}

/* Draws of a head and key. */
static attn_rng draws_of(int64_t head, int64_t key) {
  attn_rng r;
  attn_rng_init(&r, (uint64_t)head, GATES, (uint64_t)key);
  return r;
}
static double drawn_delta(attn_rng *r) { return 0.001 * exp(attn_rng_uniform(r) * log(100)); }

/* ln a of one key, [d_qk] or a number. */
static void drawn_logs(const params *p, int64_t d, int64_t head, int64_t key, double *logs) {
  attn_rng r = draws_of(head, key);
  if (!by_columns(p)) *logs = -(double)(1 + head % 16) * drawn_delta(&r);
  for (int64_t l = 0; l < d && by_columns(p); l++) logs[l] = log(attn_rng_uniform(&r)) / 16;
}

static double drawn_beta(const params *p, int64_t head, int64_t key) {
  attn_rng r = draws_of(head, key);
  if (p->rule == SSD) return drawn_delta(&r);
  attn_rng_init(&r, (uint64_t)head, GATES + 1, (uint64_t)key);
  return attn_rng_uniform(&r);
}

/* attn_recurrence.gates */
static void gates(const void *state, const attn_call *call, int64_t batch, int64_t head, int64_t first,
                  int64_t count, double *logs, double *betas) {
  const params *p = state;
  const attn_extra *decay = attn_call_extra(call, "decay"), *beta = attn_call_extra(call, "beta");
  const int64_t d = by_columns(p) ? call->context->problem->d_qk : 1;
  const int kind = decay_of(p);
  const double all = kind == RETNET ? log1p(-exp2(-5 - (double)head)) : kind == CONSTANT ? log(p->gamma) : 0;
  for (int64_t i = 0; i < count * d && kind != EXTRA; i++) logs[i] = all;
  for (int64_t i = 0; i < count && kind == EXTRA; i++) {
    if (!decay) {
      drawn_logs(p, d, head, first + i, logs + i * d);
      continue;
    }
    attn_convert(attn_call_extra_row(call, decay, batch, head, first + i), decay->dtype, decay->columns,
                 ATTN_F64, logs + i * d);
    for (int64_t l = decay->columns; l < d; l++) logs[i * d + l] = logs[i * d];
  }
  for (int64_t i = 0; i < count && betas; i++)
    betas[i] = beta ? attn_get(attn_call_extra_row(call, beta, batch, head, first + i), 0, beta->dtype)
                    : drawn_beta(p, head, first + i);
}

/* attn_recurrence.law */
static void law(const void *state, const attn_call *call, int64_t batch, int64_t head, int64_t key,
                double *logs, double *beta) {
  const params *p = state;
  const attn_extra *decay = attn_call_extra(call, "decay"), *written = attn_call_extra(call, "beta");
  const int64_t d = by_columns(p) ? call->context->problem->d_qk : 1;
  const int kind = decay_of(p);
  if (kind == EXTRA && !decay) drawn_logs(p, d, head, key, logs);
  for (int64_t l = 0; l < d && (kind != EXTRA || decay); l++)
    logs[l] = kind == RETNET     ? log(1 - ldexp(1, (int)(-5 - head)))
              : kind == CONSTANT ? log(p->gamma)
              : kind == EXTRA    ? attn_get(attn_call_extra_row(call, decay, batch, head, key),
                                         decay->columns > 1 ? l : 0, decay->dtype)
                                 : 0;
  if (has_betas(p))
    *beta = written ? attn_get(attn_call_extra_row(call, written, batch, head, key), 0, written->dtype)
                    : drawn_beta(p, head, key);
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *p = c->params;
  out->recurrence = (attn_recurrence){.chunk = p->chunk        ? p->chunk
                                               : by_columns(p) ? 16
                                                               : 64,
                                      .delta = by_delta(p),
                                      .columns = by_columns(p),
                                      .betas = has_betas(p),
                                      .unit_keys = p->key_norm ? p->key_norm > NORM_NONE : by_delta(p),
                                      .gates = gates,
                                      .law = law};
  return attn_builder_keep(b, p, sizeof *p, &out->recurrence.state);
}

ATTN_VARIANT(recurrent, .summary = "a state carried from key to key (retention, SSD, gated, delta rules)",
             .formula = "o_t = c S_t^T q_t, S_t = diag(a_t) S_t-1 + k_t u_t^T; O(n d (d + chunk))",
             .cite = "Sun et al. 2023, arXiv:2307.08621",
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_POSITIONS | ATTN_CAP_HALF,
             .params = table, .params_size = sizeof(params), .applicable = applicable, .describe = describe,
             .cost = attn_recurrent_cost)

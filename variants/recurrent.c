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
 *   gated_delta2  a vector of the key          w_t.v_t - S'^T (b_t.k_t)  Hatamizadeh et al. 2026,
 *                                                                        arXiv:2605.22791
 *   mamba3        a number of the key          b_t v_t                   Lahoti et al. 2026, arXiv:2603.15569
 *
 * so that the decay comes before the value is written, and queries read behind it. Without the delta rule o_i
 * = c sum_j<=i (q_i . (a_j+1 ... a_i) k_j) u_j. In ssd S is the papers' state, k their B, q their C, v their
 * x, b their Delta and ln a = -A Delta.
 *
 * mamba3 is the paper's exponential-trapezoidal rule with its rotation, of one input and one output:
 *   S' = a_t R_t (S_t-1 + e_t k_t-1 v_t-1^T)
 * with ln a = Delta A, b = lambda Delta, e = (1 - lambda) Delta, and R_t that turns elements l and l + d / 2
 * by Delta theta_l.
 *
 * Gates come from a layer that is not part of attention. decay=retnet: a = 1 - 2^(-5 - h) of head h = 0, 1,
 * ...; decay=constant: `gamma` of all; decay=extra: e to the call's extra tensor "decay". beta=extra: its
 * "beta", of gated_delta2 "erase" and "write" for b and w, of mamba3 "beta", "previous" and "angle" for b, e
 * and the angles. A call that has none is given draws, a function
 * of head and key alone: of a number ln a = -A Delta with A = 1 + h mod 16 and Delta log-uniform in 0.001
 * ... 0.1, as Mamba-2 begins; of a vector a = u^(1/16), u uniform; b = Delta in ssd, else uniform in 0 ...
 * 1; in mamba3 lambda uniform, and angles Delta times uniform in -pi ... pi.
 *
 * With b |k|^2 > 2 a delta rule's state grows, so that keys are divided by their length, in each
 * implementation by another formula: key_norm=l2 is k / |k|; rsqrt, of flash-linear-attention, k / sqrt(|k|^2
 * + norm_eps); max, of earlier llama.cpp, k / max(|k|, norm_eps); rms, k / sqrt(|k|^2 / d + norm_eps), is
 * sqrt(d) times as long. The papers' queries have the same length: query_norm. read=before is c S_t-1^T q_t,
 * a query that does not read its own key, as RWKV-6 has it without its bonus. state=bf16 and f16 keep the
 * state in 16 bits between chunks, as servers do between tokens: chunk=1. normaliser=rows divides o_t by
 * max(|x|, 1), x the sum of the row's weights, c q_t . k_j and the decays between of retention, whose paper
 * has it in front of its group norm; its factors of D are left out, and calls carry no state.
 *
 * c is the problem's scale. The papers' convolution and the normalisation of outputs are outside. It
 * approximates no softmax: its errors against softmax are reported, and what it computes is held against its
 * definition. Cost: chunks of `chunk` keys read the state and their own triangle. Bounds: REC-1, REC-3. */
#include "attn_variant.h"

#include <math.h>
#include <string.h>

typedef enum { RETENTION, SSD, GLA, DELTA, GATED_DELTA, KDA, GATED_DELTA_2, MAMBA_3 } rule;
enum { AUTO, RETNET, CONSTANT, EXTRA, UNDECAYED }; /* decay */
enum { BETA_EXTRA = 2, GATES = 0x67617465 };
enum { NORM_AUTO, NORM_NONE, NORM_L2, NORM_RSQRT, NORM_MAX, NORM_RMS }; /* key_norm */

typedef struct params {
  int rule, decay, beta, key_norm, query_norm, read, state, normaliser;
  double gamma, norm_eps;
  int64_t chunk;
} params;

static const char *const
    rules[] = {"retention", "ssd", "gla", "delta", "gated_delta", "kda", "gated_delta2", "mamba3", NULL},
    *const decays_of[] = {"auto", "retnet", "constant", "extra", NULL},
    *const beta_names[] = {"auto", "one", "extra", NULL}, *const norms[] = {"auto", "none", "l2", "rsqrt",
                                                                            "max",  "rms",  NULL},
    *const reads[] = {"after", "before", NULL}, *const states[] = {"own", "bf16", "f16", NULL},
    *const normalisers[] = {"none", "rows", NULL};
static const attn_param table[] = {
    {"rule", ATTN_CHOICE, offsetof(params, rule), 0, 0, "retention", rules, "how the state changes"},
    {"decay", ATTN_CHOICE, offsetof(params, decay), 0, 0, "auto", decays_of,
     "what it keeps at each key; auto: the rule's"},
    {"gamma", ATTN_REAL, offsetof(params, gamma), 0, 1, "0.99", NULL, "decay=constant: a of every head"},
    {"beta", ATTN_CHOICE, offsetof(params, beta), 0, 0, "auto", beta_names,
     "what of a value is written; auto: the rule's"},
    {"key_norm", ATTN_CHOICE, offsetof(params, key_norm), 0, 0, "auto", norms,
     "keys are divided by their length; auto: by the delta rules"},
    {"norm_eps", ATTN_REAL, offsetof(params, norm_eps), 0, 1, "1e-06", NULL, "eps of rsqrt, max and rms"},
    {"query_norm", ATTN_CHOICE, offsetof(params, query_norm), 0, 0, "auto", norms,
     "queries are divided by their length; auto: by the delta rules"},
    {"read", ATTN_CHOICE, offsetof(params, read), 0, 0, "after", reads,
     "queries read the state after, or before, their own key"},
    {"state", ATTN_CHOICE, offsetof(params, state), 0, 0, "own", states,
     "the type in which the state is kept behind each chunk"},
    {"normaliser", ATTN_CHOICE, offsetof(params, normaliser), 0, 0, "none", normalisers,
     "rows: outputs are divided by the sum of their weights, where it is above 1 in magnitude"},
    {"chunk", ATTN_INT, offsetof(params, chunk), 0, 1024, "0", NULL,
     "keys that are taken together; 0: 64, or 16 where decays are vectors"},
    {.name = NULL},
};

static bool by_columns(const params *p) {
  return p->rule == GLA || p->rule == KDA || p->rule == GATED_DELTA_2;
}
static bool by_delta(const params *p) { return p->rule >= DELTA && p->rule <= GATED_DELTA_2; }

static int decay_of(const params *p) {
  if (p->decay) return p->decay;
  return p->rule == RETENTION ? RETNET : p->rule == DELTA ? UNDECAYED : EXTRA;
}

/* attn_recurrence.betas */
static int64_t betas_of(const params *p, const attn_problem *problem) {
  const bool extra = p->beta == BETA_EXTRA || (p->beta == AUTO && (p->rule == SSD || by_delta(p)));
  if (p->rule == MAMBA_3) return 2;
  return !extra ? 0 : p->rule == GATED_DELTA_2 ? problem->d_qk + problem->d_v : 1;
}

/* attn_recurrence.turns */
static int64_t turns_of(const params *p, const attn_problem *problem) {
  return p->rule == MAMBA_3 ? problem->d_qk / 2 : 0;
}

static int norm_of(const params *p, int norm) {
  return norm != NORM_AUTO ? norm : by_delta(p) ? NORM_L2 : NORM_NONE;
}

static double row_scale(const params *p, int norm, int64_t d, double square) {
  const double length = sqrt(square);
  switch (norm_of(p, norm)) {
  case NORM_RSQRT:
    return 1 / sqrt(square + p->norm_eps);
  case NORM_MAX:
    return 1 / fmax(length, p->norm_eps);
  case NORM_RMS:
    return 1 / sqrt(square / (double)d + p->norm_eps);
  default:
    return length > 0 ? 1 / length : 1;
  }
}

static attn_status applicable(const attn_context *c) {
  if (!c->problem->causal) return attn_fail(ATTN_EUNSUPPORTED, "variant recurrent: only causal attention");
  const params *x = c->params;
  if (x->normaliser && x->rule == GATED_DELTA_2)
    return attn_fail(
        ATTN_EUNSUPPORTED,
        "variant recurrent: normaliser=rows: of gated_delta2 a vector writes, and keys have no weights");
  if (x->rule == MAMBA_3 && x->beta != AUTO && x->beta != BETA_EXTRA)
    return attn_fail(ATTN_EINVAL, "variant recurrent: beta=one does not apply to rule=mamba3");
  attn_problem p = *c->problem;
  if (p.mask.kind == ATTN_MASK_DOCUMENTS) p.mask.kind = ATTN_MASK_NONE;
  return attn_problem_plain(&p)
             ? ATTN_OK
             : attn_fail(ATTN_EUNSUPPORTED, "variant recurrent: a mask other than documents, or a transform "
                                            "of the scores");
}

/* attn_recurrence.key_scale, query_scale */
static double key_scale(const void *state, int64_t d, double square) {
  const params *p = state;
  return row_scale(p, p->key_norm, d, square);
}
static double query_scale(const void *state, int64_t d, double square) {
  const params *p = state;
  return row_scale(p, p->query_norm, d, square);
}

/* attn_recurrence.key_slope, query_slope: f = x^(-1/2), or that of x + eps, has the slope -f^3 / 2. */
static double row_slope(const params *p, int norm, int64_t d, double square) {
  const double f = row_scale(p, norm, d, square);
  norm = norm_of(p, norm);
  if (norm == NORM_MAX ? !(sqrt(square) > p->norm_eps) : norm == NORM_L2 && !(square > 0)) return 0;
  return -f * f * f / (norm == NORM_RMS ? 2 * (double)d : 2);
}
static double key_slope(const void *state, int64_t d, double square) {
  const params *p = state;
  return row_slope(p, p->key_norm, d, square);
}
static double query_slope(const void *state, int64_t d, double square) {
  const params *p = state;
  return row_slope(p, p->query_norm, d, square);
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

/* b, and w, of one key; or b, e, and the angles. */
static void drawn_betas(const params *p, int64_t count, int64_t head, int64_t key, double *betas) {
  attn_rng r = draws_of(head, key);
  const double delta = p->rule == SSD || p->rule == MAMBA_3 ? drawn_delta(&r) : 1;
  if (p->rule == SSD) {
    *betas = delta;
    return;
  }
  attn_rng_init(&r, (uint64_t)head, GATES + 1, (uint64_t)key);
  for (int64_t l = 0; l < count; l++) betas[l] = attn_rng_uniform(&r);
  if (p->rule != MAMBA_3) return;
  betas[1] = delta * (1 - betas[0]);
  betas[0] *= delta;
  for (int64_t l = 2; l < count; l++) betas[l] = delta * acos(-1.0) * (2 * betas[l] - 1);
}

/* `count` numbers of a key; an extra tensor of 1 column has the same for all. */
static void copy_extra(const attn_call *call, const attn_extra *x, int64_t batch, int64_t head, int64_t key,
                       int64_t count, double *to) {
  attn_convert(attn_call_extra_row(call, x, batch, head, key), x->dtype, x->columns, ATTN_F64, to);
  for (int64_t l = x->columns; l < count; l++) to[l] = to[0];
}

/* The extra tensors of b, w and what stands behind them, in their order. */
enum { PARTS = 3 };
typedef struct gate_part {
  const char *name;
  attn_extra_columns columns;
} gate_part;

static const gate_part *parts_of(const params *p) {
  static const gate_part one[PARTS] = {{"beta", ATTN_COLUMNS_ONE}},
                         vectors[PARTS] = {{"erase", ATTN_COLUMNS_QK}, {"write", ATTN_COLUMNS_V}},
                         turned[PARTS] = {{"beta", ATTN_COLUMNS_ONE},
                                          {"previous", ATTN_COLUMNS_ONE},
                                          {"angle", ATTN_COLUMNS_PAIRS}};
  return p->rule == MAMBA_3 ? turned : p->rule == GATED_DELTA_2 ? vectors : one;
}

static int64_t part_width(const attn_problem *p, attn_extra_columns columns) {
  return columns == ATTN_COLUMNS_QK      ? p->d_qk
         : columns == ATTN_COLUMNS_V     ? p->d_v
         : columns == ATTN_COLUMNS_PAIRS ? p->d_qk / 2
                                         : 1;
}

static void copy_betas(const params *p, const attn_call *call, int64_t batch, int64_t head, int64_t key,
                       int64_t count, double *betas) {
  const attn_problem *problem = call->context->problem;
  const gate_part *part = parts_of(p);
  const attn_extra *given[PARTS] = {NULL};
  bool all = true;
  for (int i = 0; i < PARTS && part[i].name; i++)
    all = (given[i] = attn_call_extra(call, part[i].name)) && all;
  if (!all) drawn_betas(p, count, head, key, betas);
  for (int i = 0; i < PARTS && part[i].name; i++) {
    const int64_t width = part_width(problem, part[i].columns);
    if (given[i]) copy_extra(call, given[i], batch, head, key, width, betas);
    betas += width;
  }
}

/* attn_recurrence.gates */
static void gates(const void *state, const attn_call *call, int64_t batch, int64_t head, int64_t first,
                  int64_t count, double *logs, double *betas) {
  const params *p = state;
  const attn_extra *decay = attn_call_extra(call, "decay");
  const int64_t width = betas_of(p, call->context->problem) + turns_of(p, call->context->problem);
  const int64_t d = by_columns(p) ? call->context->problem->d_qk : 1;
  const int kind = decay_of(p);
  const double all = kind == RETNET ? log1p(-exp2(-5 - (double)head)) : kind == CONSTANT ? log(p->gamma) : 0;
  for (int64_t i = 0; i < count * d && kind != EXTRA; i++) logs[i] = all;
  for (int64_t i = 0; i < count && kind == EXTRA; i++) {
    if (decay)
      copy_extra(call, decay, batch, head, first + i, d, logs + i * d);
    else
      drawn_logs(p, d, head, first + i, logs + i * d);
  }
  for (int64_t i = 0; i < count && width; i++)
    copy_betas(p, call, batch, head, first + i, width, betas + i * width);
}

/* attn_recurrence.gates_back: gates are elements of the tensors. */
static void gates_back(const void *state, const attn_call *call, int64_t batch, int64_t head, int64_t key,
                       const double *logs, const double *betas, double *const *dextra) {
  const params *p = state;
  const attn_problem *problem = call->context->problem;
  const bool written = betas_of(p, problem) > 0;
  for (int64_t x = 0; x < call->extras; x++) {
    attn_extra to = call->extra[x];
    int64_t width = 0;
    const double *from = betas;
    if (strcmp(to.name, "decay") == 0 && decay_of(p) == EXTRA)
      from = logs, width = by_columns(p) ? problem->d_qk : 1;
    for (const gate_part *part = parts_of(p); written && !width && part < parts_of(p) + PARTS && part->name;
         part++) {
      if (strcmp(to.name, part->name) == 0)
        width = part_width(problem, part->columns);
      else
        from += part_width(problem, part->columns);
    }
    to.at = dextra[x], to.dtype = ATTN_F64;
    if (!width || !to.at) continue;
    double *row = (double *)attn_call_extra_row(call, &to, batch, head, key);
    for (int64_t l = 0; l < width; l++) row[to.columns > 1 ? l : 0] += from[l];
  }
}

/* Element l of an extra tensor of a key. */
static double element_of(const attn_call *call, const attn_extra *x, int64_t batch, int64_t head, int64_t key,
                         int64_t l) {
  return attn_get(attn_call_extra_row(call, x, batch, head, key), x->columns > 1 ? l : 0, x->dtype);
}

/* attn_recurrence.law */
static void law(const void *state, const attn_call *call, int64_t batch, int64_t head, int64_t key,
                double *logs, double *betas) {
  const params *p = state;
  const attn_problem *problem = call->context->problem;
  const attn_extra *decay = attn_call_extra(call, "decay");
  const int64_t d = by_columns(p) ? problem->d_qk : 1, width = betas_of(p, problem) + turns_of(p, problem);
  const int kind = decay_of(p);
  if (kind == EXTRA && !decay) drawn_logs(p, d, head, key, logs);
  for (int64_t l = 0; l < d && (kind != EXTRA || decay); l++)
    logs[l] = kind == RETNET     ? log(1 - ldexp(1, (int)(-5 - head)))
              : kind == CONSTANT ? log(p->gamma)
              : kind == EXTRA    ? element_of(call, decay, batch, head, key, l)
                                 : 0;
  if (width) drawn_betas(p, width, head, key, betas);
  const gate_part *part = parts_of(p);
  for (int64_t l = 0, behind = 0; l < width; l++) {
    if (l - behind >= part_width(problem, part->columns)) behind += part_width(problem, part++->columns);
    const attn_extra *given = attn_call_extra(call, part->name);
    if (given) betas[l] = element_of(call, given, batch, head, key, l - behind);
  }
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *p = c->params;
  out->recurrence =
      (attn_recurrence){.chunk = p->chunk        ? p->chunk
                                 : by_columns(p) ? 16
                                                 : 64,
                        .delta = by_delta(p),
                        .columns = by_columns(p),
                        .before = p->read,
                        .betas = betas_of(p, c->problem),
                        .carries = p->rule == MAMBA_3,
                        .turns = turns_of(p, c->problem),
                        .key_scale = norm_of(p, p->key_norm) == NORM_NONE ? NULL : key_scale,
                        .query_scale = norm_of(p, p->query_norm) == NORM_NONE ? NULL : query_scale,
                        .normalised = p->normaliser,
                        .key_slope = key_slope,
                        .query_slope = query_slope,
                        .rounds = p->state > 0,
                        .stored = p->state == 1 ? ATTN_BF16 : ATTN_F16,
                        .gates = gates,
                        .gates_back = gates_back,
                        .law = law};
  return attn_builder_keep(b, p, sizeof *p, &out->recurrence.state);
}

ATTN_VARIANT(recurrent, .summary = "a state carried from key to key (retention, SSD, gated, delta rules)",
             .formula = "o_t = c S_t^T q_t, S_t = diag(a_t) S_t-1 + k_t u_t^T; O(n d (d + chunk))",
             .cite = "Sun et al. 2023, arXiv:2307.08621",
             .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_POSITIONS |
                     ATTN_CAP_HALF | ATTN_CAP_MASK,
             .params = table, .params_size = sizeof(params), .applicable = applicable, .describe = describe,
             .cost = attn_recurrent_cost)

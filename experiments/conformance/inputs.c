/* inputs.c - see inputs.h. */
#include "experiments/conformance/inputs.h"

#include <math.h>
#include <stdlib.h>

static const uint64_t purpose = 0x696e70757473; /* "inputs" */

/* -- scores -- */

static bool has(problem_score s, problem_score what) {
  switch (what) {
  case SCORE_SOFTCAP:
    return s == SCORE_SOFTCAP || s == SCORE_SOFTCAP_BIAS || s == SCORE_SOFTCAP_HIDDEN;
  case SCORE_LEAKY:
    return s == SCORE_LEAKY || s == SCORE_LEAKY_ALIBI_SINK;
  case SCORE_ALIBI:
    return s == SCORE_ALIBI || s == SCORE_LEAKY_ALIBI_SINK;
  case SCORE_BIAS:
    return s == SCORE_BIAS || s == SCORE_SOFTCAP_BIAS;
  case SCORE_HIDDEN:
    return s == SCORE_HIDDEN || s == SCORE_SOFTCAP_HIDDEN;
  case SCORE_SINK:
    return s == SCORE_SINK || s == SCORE_LEAKY_ALIBI_SINK;
  default:
    return s == what;
  }
}

/* A bias of each distance; one table for all heads ends after a few distances, which the others share. */
static attn_status make_relative(attn_problem *p, bool each, problem_inputs *x, attn_rng *rng) {
  const int64_t n = p->n_q > p->n_kv ? p->n_q : p->n_kv, heads = each ? p->heads : 1,
                span = each ? 2 * n - 1 : 7;
  x->relative = calloc((size_t)(heads * span), sizeof *x->relative);
  if (!x->relative) return attn_fail(ATTN_ENOMEM, "no memory for a bias");
  p->score.relative = x->relative;
  p->score.relative_heads = heads;
  p->score.span = span;
  p->score.zero = each ? n - 1 : 2;
  if (each) return attn_alibi(p->heads, n, x->relative);
  for (int64_t i = 0; i < span; i++) x->relative[i] = attn_rng_normal(rng);
  return ATTN_OK;
}

static attn_status make_dense(attn_problem *p, bool hides, problem_inputs *x, attn_rng *rng) {
  const int64_t lines = hides ? p->batch * p->heads : 1, count = lines * p->n_q * p->n_kv;
  x->dense = calloc((size_t)count, attn_dtype_size(p->dtype));
  if (!x->dense) return attn_fail(ATTN_ENOMEM, "no memory for a bias");
  p->score.dense = (attn_bias){x->dense, p->dtype, hides ? p->heads * p->n_q * p->n_kv : 0,
                               hides ? p->n_q * p->n_kv : 0, p->n_kv};
  for (int64_t i = 0; i < count; i++) {
    const bool hidden = hides && (i % p->n_kv == 0 || attn_rng_below(rng, 5) == 0);
    attn_set(x->dense, i, p->dtype, hidden ? -(double)INFINITY : attn_rng_normal(rng));
  }
  return ATTN_OK;
}

static attn_status make_score(attn_problem *p, problem_score s, problem_inputs *x, attn_rng *rng) {
  attn_status status = ATTN_OK;
  if (has(s, SCORE_SOFTCAP)) p->score.softcap = 1.5;
  if (has(s, SCORE_LEAKY)) p->score.leaky = 0.25;
  if (has(s, SCORE_ALIBI) || s == SCORE_RELATIVE) status = make_relative(p, s != SCORE_RELATIVE, x, rng);
  if (!status && (has(s, SCORE_BIAS) || has(s, SCORE_HIDDEN)))
    status = make_dense(p, has(s, SCORE_HIDDEN), x, rng);
  if (status || !has(s, SCORE_SINK)) return status;
  x->sink = calloc((size_t)p->heads, sizeof *x->sink);
  if (!x->sink) return attn_fail(ATTN_ENOMEM, "no memory for the sinks of a problem");
  for (int64_t h = 0; h < p->heads; h++) x->sink[h] = 1 + attn_rng_normal(rng);
  p->score.sink = x->sink;
  return ATTN_OK;
}

/* -- masks -- */

/* A graph: some first keys, and those around half of the way to the query's own. */
static int64_t graph_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  const int64_t keys = *(const int64_t *)state;
  (void)head;
  int64_t first = position < 0 ? 0 : 1 + position % 3, begin = position / 2 - 2, end = position + 4;
  if (first > keys) first = keys;
  if (begin < first) begin = first;
  if (end > keys) end = keys;
  int64_t count = 0;
  if (first > 0) runs[count++] = (attn_run){0, first, 1};
  if (end > begin) runs[count++] = (attn_run){begin, end - begin, 1};
  return count;
}

static void make_mask(attn_problem *p, attn_mask_kind kind, problem_inputs *x) {
  const int64_t n = p->n_kv;
  p->mask.kind = kind;
  switch (kind) {
  case ATTN_MASK_PREFIX:
    p->mask.size = n / 3;
    break;
  case ATTN_MASK_BLOCK_CAUSAL:
    p->mask.size = n / 4 + 1;
    break;
  case ATTN_MASK_DOCUMENTS:
    p->mask.count = 0;
    for (int64_t d = 0; d < 3; d++)
      if (d == 0 || n * d / 3 > x->offsets[p->mask.count - 1]) x->offsets[p->mask.count++] = n * d / 3;
    x->offsets[p->mask.count] = n;
    p->mask.offsets = x->offsets;
    break;
  case ATTN_MASK_PATTERN:
    x->keys = n;
    x->graph = (attn_pattern){.state = &x->keys, .row = graph_row, .max_runs = 2};
    p->mask.pattern = &x->graph;
    break;
  default:
    break;
  }
}

/* -- lengths -- */

static int64_t length_of(const problem *p, int64_t batch) {
  const int64_t n = p->value[FIELD_N_KV], entries = p->value[FIELD_BATCH];
  switch (p->value[FIELD_PADDING]) {
  case PADDING_EACH:
    return (n * (batch + 1) + entries) / (entries + 1);
  case PADDING_LAST:
    return batch == entries - 1 ? (2 * n + 2) / 3 : n;
  case PADDING_EMPTY:
    return batch ? n - n / 5 : 0;
  default:
    return n;
  }
}

static void pad(const problem *p, trial_inputs *in) {
  const attn_problem *own = &in->problem;
  in->padded = p->value[FIELD_PADDING] != PADDING_NONE;
  for (int64_t b = 0; in->padded && b < own->batch; b++) {
    in->kv_len[b] = length_of(p, b);
    for (int64_t h = 0; h < own->kv_heads; h++)
      for (int64_t j = in->kv_len[b]; j < own->n_kv; j++) {
        trial_row_fill(in, ATTN_KEY, b, h, j, (double)NAN);
        trial_row_fill(in, ATTN_VALUE, b, h, j, (double)NAN);
      }
  }
}

/* -- all -- */

static double scale_of(problem_scale s, double root) {
  return s == SCALE_ZERO ? 0 : s == SCALE_NEGATIVE ? -root : s == SCALE_LARGE ? 3 * root : root;
}

attn_status problem_inputs_make(const problem *p, problem_inputs *x) {
  const int64_t *v = p->value;
  const uint64_t seed = (uint64_t)v[FIELD_SEED];
  attn_rng rng;
  attn_problem made = attn_problem_make(v[FIELD_BATCH], v[FIELD_HEADS], v[FIELD_N_KV], v[FIELD_D]);
  *x = (problem_inputs){.relative = NULL};
  attn_rng_init(&rng, seed, purpose, 0);
  made.kv_heads = v[FIELD_KV_HEADS];
  made.n_q = v[FIELD_N_Q];
  made.d_v = v[FIELD_D_V];
  made.dtype = (attn_dtype)v[FIELD_DTYPE];
  made.causal = v[FIELD_CAUSAL];
  made.scale = scale_of((problem_scale)v[FIELD_SCALE], made.scale);
  make_mask(&made, (attn_mask_kind)v[FIELD_MASK], x);
  attn_status status = make_score(&made, (problem_score)v[FIELD_SCORE], x, &rng);
  if (!status) status = trial_inputs_draw(&made, seed, &x->in);
  if (!status && v[FIELD_LATER]) status = trial_inputs_draw(&made, seed + 1, &x->other);
  if (!status)
    pad(p, &x->in);
  else
    problem_inputs_free(x);
  return status;
}

void problem_inputs_free(problem_inputs *x) {
  trial_inputs_free(&x->in);
  trial_inputs_free(&x->other);
  free(x->relative);
  free(x->sink);
  free(x->dense);
  *x = (problem_inputs){.relative = NULL};
}

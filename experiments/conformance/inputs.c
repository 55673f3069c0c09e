/* inputs.c - see inputs.h. */
#include "experiments/conformance/inputs.h"

#include <math.h>
#include <stdlib.h>

static const uint64_t purpose = 0x696e70757473; /* "inputs" */

/* -- scores -- */

static bool has(problem_score s, problem_score what) {
  switch (what) {
  case SCORE_SOFTCAP:
    return s == SCORE_SOFTCAP || s == SCORE_SOFTCAP_BIAS || s == SCORE_SOFTCAP_HIDDEN ||
           s == SCORE_SOFTCAP_ALIBI || s == SCORE_SOFTCAP_SINK;
  case SCORE_LEAKY:
    return s == SCORE_LEAKY || s == SCORE_LEAKY_ALIBI_SINK;
  case SCORE_ALIBI:
    return s == SCORE_ALIBI || s == SCORE_LEAKY_ALIBI_SINK || s == SCORE_SOFTCAP_ALIBI;
  case SCORE_RELATIVE:
    return s == SCORE_RELATIVE || s == SCORE_HIDDEN_RELATIVE;
  case SCORE_BIAS:
    return s == SCORE_BIAS || s == SCORE_SOFTCAP_BIAS || s == SCORE_BIAS_SINK;
  case SCORE_HIDDEN:
    return s == SCORE_HIDDEN || s == SCORE_SOFTCAP_HIDDEN || s == SCORE_HIDDEN_RELATIVE;
  case SCORE_SINK:
    return s == SCORE_SINK || s == SCORE_LEAKY_ALIBI_SINK || s == SCORE_SOFTCAP_SINK || s == SCORE_BIAS_SINK;
  default:
    return s == what;
  }
}

/* A bias of each distance; one table for all heads ends after a few distances, which the others share. */
static attn_status make_relative(attn_problem *p, bool each, problem_inputs *x, attn_rng *rng) {
  const int64_t n = p->n_q > p->n_kv ? p->n_q : p->n_kv, heads = each ? p->heads : 1,
                span = each ? 2 * n - 1 : 7;
  x->relative = region_zeros(&x->memory, heads * span, sizeof *x->relative);
  if (!x->relative) return region_status(&x->memory, "for a bias");
  p->score.relative = x->relative;
  p->score.relative_heads = heads;
  p->score.span = span;
  p->score.zero = each ? n - 1 : 2;
  if (each) return attn_alibi(p->heads, n, x->relative);
  for (int64_t i = 0; i < span; i++) x->relative[i] = attn_rng_normal(rng);
  return ATTN_OK;
}

/* Which keys a row's bias hides, besides those that it hides here and there. */
typedef struct stretch {
  int64_t first, end;
  bool others; /* the first, and some */
} stretch;

/* Some rows hide their first keys, some those in the middle or at the end, some all. */
static stretch draw_stretch(int64_t keys, attn_rng *rng) {
  const int64_t at = attn_rng_below(rng, keys), more = 1 + attn_rng_below(rng, keys);
  const stretch ways[] = {{0, at, false}, {at, at + more, false}, {at, keys, false}, {0, keys, false}};
  const int64_t way = attn_rng_below(rng, 8);
  return way < 4 ? ways[way] : (stretch){0, 0, true};
}

/* What a bias is of: each batch entry, or all; each head, or all. */
typedef struct dense_shape {
  attn_dtype dtype;
  bool batch, head, hides;
  int64_t gap; /* behind each row */
} dense_shape;

static dense_shape shape_of(const attn_problem *p, problem_score s) {
  const attn_dtype other = p->dtype ? ATTN_F32 : ATTN_F64;
  if (has(s, SCORE_HIDDEN)) return (dense_shape){p->dtype, true, true, true, 0};
  if (has(s, SCORE_SOFTCAP)) return (dense_shape){other, true, false, false, 0};
  if (has(s, SCORE_SINK)) return (dense_shape){p->dtype, false, true, false, 1};
  return (dense_shape){p->dtype, false, false, false, 3};
}

static attn_status make_dense(attn_problem *p, problem_score s, problem_inputs *x, attn_rng *rng) {
  const dense_shape of = shape_of(p, s);
  const int64_t row = p->n_kv + of.gap, each = p->n_q * row, heads = of.head ? p->heads : 1,
                rows = (of.batch ? p->batch : 1) * heads * p->n_q;
  x->dense = region_zeros(&x->memory, rows * row, attn_dtype_size(of.dtype));
  if (!x->dense) return region_status(&x->memory, "for a bias");
  p->score.dense = (attn_bias){x->dense, of.dtype, of.batch ? heads * each : 0, of.head ? each : 0, row};
  for (int64_t i = 0; i < rows; i++) {
    const stretch hidden = of.hides ? draw_stretch(p->n_kv, rng) : (stretch){0, 0, false};
    for (int64_t j = 0; j < row; j++) {
      double bias = attn_rng_normal(rng);
      if (j >= p->n_kv) bias = (double)NAN;
      if ((hidden.first <= j && j < hidden.end) || (hidden.others && (j == 0 || attn_rng_below(rng, 5) == 0)))
        bias = -(double)INFINITY;
      attn_set(x->dense, i * row + j, of.dtype, bias);
    }
  }
  return ATTN_OK;
}

/* Near the scores, or so far from them that the maximum, or the sink, is all that counts. */
static double draw_sink(attn_rng *rng) {
  const double far = (double)attn_rng_below(rng, 5), z = 1 + attn_rng_normal(rng);
  return far < 1 ? z + 60 : far < 2 ? z - 200 : z;
}

static attn_status make_score(attn_problem *p, problem_score s, problem_inputs *x, attn_rng *rng) {
  attn_status status = ATTN_OK;
  if (has(s, SCORE_SOFTCAP)) p->score.softcap = attn_rng_below(rng, 2) ? 1.5 : 30;
  if (has(s, SCORE_LEAKY)) p->score.leaky = 0.25;
  if (has(s, SCORE_ALIBI) || has(s, SCORE_RELATIVE)) status = make_relative(p, has(s, SCORE_ALIBI), x, rng);
  if (!status && (has(s, SCORE_BIAS) || has(s, SCORE_HIDDEN))) status = make_dense(p, s, x, rng);
  if (status || !has(s, SCORE_SINK)) return status;
  x->sink = region_zeros(&x->memory, p->heads, sizeof *x->sink);
  if (!x->sink) return region_status(&x->memory, "for the sinks of a problem");
  for (int64_t h = 0; h < p->heads; h++) x->sink[h] = draw_sink(rng);
  p->score.sink = x->sink;
  return ATTN_OK;
}

/* -- masks -- */

/* A graph: some first keys, and those around half of the way to the query's own. Heads 1, 3 ... do without
 * the first, and every fifth of their queries without any. */
static int64_t graph_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  const int64_t keys = *(const int64_t *)state;
  if (head % 2 && position % 5 == 4) return 0;
  int64_t first = position < 0 || head % 2 ? 0 : 1 + position % 3, begin = position / 2 - 2,
          end = position + 4;
  if (first > keys) first = keys;
  if (begin < first) begin = first;
  if (end > keys) end = keys;
  int64_t count = 0;
  if (first > 0) runs[count++] = (attn_run){0, first, 1};
  if (end > begin) runs[count++] = (attn_run){begin, end - begin, 1};
  return count;
}

/* A band: the same keys around the query's own in all heads, which variants that select may be masked by. */
static int64_t band_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  const int64_t keys = *(const int64_t *)state, first = position - keys / 3, end = position + 1 + keys / 4;
  (void)head;
  runs[0] = (attn_run){first < 0 ? 0 : first, 0, 1};
  runs[0].count = (end < keys ? end : keys) - runs[0].first;
  return runs[0].count > 0;
}

/* Documents of random lengths, the first often of one key; or one of all keys. */
static void make_documents(attn_problem *p, problem_inputs *x, attn_rng *rng) {
  const int64_t n = p->n_kv, most = 1 + attn_rng_below(rng, INPUTS_DOCUMENTS);
  int64_t count = 1, at = 1;
  x->offsets[0] = 0;
  while (count < most && at < n) {
    x->offsets[count++] = at;
    at += 1 + attn_rng_below(rng, 2 * n / most);
  }
  x->offsets[count] = n;
  p->mask.count = count;
  p->mask.offsets = x->offsets;
}

static void make_mask(attn_problem *p, attn_mask_kind kind, problem_inputs *x, attn_rng *rng) {
  const int64_t n = p->n_kv, sizes[] = {n / 3, 0, n, attn_rng_below(rng, n)},
                blocks[] = {n / 4 + 1, 1, 16, 1 + attn_rng_below(rng, n)}, way = attn_rng_below(rng, 4);
  p->mask.kind = kind;
  switch (kind) {
  case ATTN_MASK_PREFIX:
    p->mask.size = sizes[way];
    break;
  case ATTN_MASK_BLOCK_CAUSAL:
    p->mask.size = blocks[way];
    break;
  case ATTN_MASK_DOCUMENTS:
    make_documents(p, x, rng);
    break;
  case ATTN_MASK_PATTERN:
    x->keys = n;
    x->graph = way % 2 ? (attn_pattern){.state = &x->keys, .row = band_row, .max_runs = 1}
                       : (attn_pattern){.state = &x->keys, .row = graph_row, .max_runs = 2, .per_head = true};
    p->mask.pattern = &x->graph;
    break;
  default:
    break;
  }
}

/* -- lengths -- */

/* empty: no key in one entry, in another a single one. */
static int64_t length_of(const problem *p, int64_t batch) {
  const int64_t n = p->value[FIELD_N_KV], entries = p->value[FIELD_BATCH],
                from = (batch + p->value[FIELD_SEED]) % entries;
  switch (p->value[FIELD_PADDING]) {
  case PADDING_EACH:
    return (n * (batch + 1) + entries) / (entries + 1);
  case PADDING_LAST:
    return batch == entries - 1 ? (2 * n + 2) / 3 : n;
  case PADDING_EMPTY:
    return from ? from == 1 && entries > 2 ? 1 : n - n / 5 : 0;
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

static double scale_of(problem_scale s, attn_dtype t, double root) {
  const double far = attn_numbers[t].unit < 0x1p-52 ? 512 : 64, by[SCALES] = {1, 0, -1, 3, far};
  return by[s] * root;
}

double problem_inputs_gain(const problem *p) {
  static const double by[VALUES] = {1, 0x1p20, 0x1p-20};
  return by[p->value[FIELD_VALUES]];
}

static void scale_values(const trial_inputs *in, double by) {
  const attn_problem *p = &in->problem;
  for (int64_t i = 0; i < p->batch * p->kv_heads * p->n_kv * p->d_v; i++)
    attn_set(in->v, i, p->dtype, by * attn_get(in->v, i, p->dtype));
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
  made.scale = scale_of((problem_scale)v[FIELD_SCALE], made.dtype, made.scale);
  make_mask(&made, (attn_mask_kind)v[FIELD_MASK], x, &rng);
  attn_status status = make_score(&made, (problem_score)v[FIELD_SCORE], x, &rng);
  if (!status) status = trial_inputs_draw(&x->memory, &made, seed, &x->in);
  if (!status && v[FIELD_LATER]) status = trial_inputs_draw(&x->memory, &made, seed + 1, &x->other);
  if (status) return status;
  scale_values(&x->in, problem_inputs_gain(p));
  pad(p, &x->in);
  return ATTN_OK;
}

/* density.c - keys that sampled queries read (density.h). */
#include "experiments/quality/density.h"

#include <math.h>
#include <stdlib.h>

#include "experiments/evidence/stored_copies.h"
#include "experiments/reference/seen.h"
#include "experiments/reference/visible.h"

enum { SAMPLE = 16 /* queries of a head */, MOST = 2 * SAMPLE + 1 };

/* A query of a head, and what it is looked at for. */
typedef struct sampled {
  int64_t i;
  bool pairs, scored;
} sampled;

/* SAMPLE queries from the middles of equal parts of all, and as many of those at scored positions, ascending.
 * Returns how many they are. */
static int64_t sample_queries(const data_llama_attention *a, int64_t first, int64_t end, sampled *out) {
  const int64_t from[] = {0, first > a->first ? first - a->first : 0},
                to[] = {a->count, end < a->first + a->count ? end - a->first : a->count};
  int64_t next[2] = {0, 0}, most[2], at[2], count = 0;
  for (int s = 0; s < 2; s++) {
    const int64_t all = to[s] > from[s] ? to[s] - from[s] : 0;
    most[s] = SAMPLE < all ? SAMPLE : all;
  }
  while (next[0] < most[0] || next[1] < most[1]) {
    for (int s = 0; s < 2; s++)
      at[s] = next[s] < most[s] ? from[s] + (2 * next[s] + 1) * (to[s] - from[s]) / (2 * most[s]) : INT64_MAX;
    const int64_t i = at[0] < at[1] ? at[0] : at[1];
    for (int s = 0; s < 2; s++) next[s] += at[s] == i;
    out[count++] = (sampled){i, at[0] == i, at[1] == i};
  }
  return count;
}

/* The share of the exact weights of the visible keys, and the sink, that the others have. score: room for
 * n_kv. */
static double weight_left(const data_llama_attention *a, const sample_row *row, const bool *visible,
                          const bool *read, double *score) {
  const attn_problem *p = attn_plan_problem(a->plan);
  const int64_t d = p->d_qk, kv_head = row->head / (p->heads / p->kv_heads);
  const float *q = a->q + ((a->first + row->i) * p->heads + row->head) * d;
  const double sink = p->score.sink ? p->score.sink[row->head] : -(double)INFINITY;
  double most = sink, left = 0;
  for (int64_t j = 0; j < p->n_kv; j++) {
    if (!visible[j]) continue;
    const float *k = a->k + (j * p->kv_heads + kv_head) * d;
    score[j] = 0;
    for (int64_t x = 0; x < d; x++) score[j] += p->scale * (double)q[x] * (double)k[x];
    if (p->score.softcap > 0) score[j] = p->score.softcap * tanh(score[j] / p->score.softcap);
    most = fmax(most, score[j]);
  }
  double all = exp(sink - most);
  for (int64_t j = 0; j < p->n_kv; j++) {
    const double weight = visible[j] ? exp(score[j] - most) : 0;
    all += weight;
    if (!read[j]) left += weight;
  }
  return left / all;
}

/* The queries of a head. held: what the last of all sees is added. */
static attn_status read_head(const data_llama_attention *a, const seen_run *run, int64_t head,
                             const sampled *queries, int64_t count, double *held, quality_layer *out) {
  const attn_problem *p = attn_plan_problem(run->plan);
  sample_row rows[MOST];
  seen_keys seen = {0};
  for (int64_t r = 0; r < count; r++) rows[r] = (sample_row){0, head, queries[r].i};
  attn_status status = seen_make(run, rows, NULL, count, &seen);
  if (status) return status;
  const attn_pattern *pattern = seen_of(&seen, 0);
  attn_run *runs = malloc((size_t)visible_most_runs(pattern, p) * sizeof *runs);
  bool *read = malloc(2 * (size_t)p->n_kv * sizeof *read), *visible = read + p->n_kv;
  double *score = malloc((size_t)p->n_kv * sizeof *score);
  if (!runs || !read || !score) status = attn_fail(ATTN_ENOMEM, "no memory for the keys that a query sees");
  for (int64_t r = 0; !status && r < count; r++) {
    const int64_t keys = visible_mark(pattern, p, 0, head, rows[r].i, p->n_kv, runs, read);
    if (rows[r].i == a->count - 1) *held += (double)keys;
    if (queries[r].pairs) out->pairs += (double)visible_keys(p, rows[r].i, p->n_kv);
    if (queries[r].pairs) out->read += (double)keys;
    if (!queries[r].scored) continue;
    visible_mark(NULL, p, 0, head, rows[r].i, p->n_kv, runs, visible);
    out->left += weight_left(a, &rows[r], visible, read, score);
    out->judged++;
  }
  free(runs);
  free(read);
  free(score);
  seen_free(&seen);
  return status;
}

/* Bits of a row of d elements. */
static double row_bits(attn_dtype type, const attn_kv_scheme *scheme, int64_t d) {
  return scheme->decode ? scheme->bits : 8 * (double)attn_row_bytes(d, type);
}

/* Bits of the keys or values that are held after the last position. Of those that are given up a policy may
 * have taken some that wait. */
static double side_bits(const attn_problem *p, const attn_kv_store *s, bool keys, int64_t held) {
  const attn_dtype given = attn_stored(keys ? p->k : p->v, p->dtype), type = keys ? s->k : s->v;
  const int64_t d = keys ? p->d_qk : p->d_v,
                left = s->residual ? p->n_kv - attn_kv_coded(s, keys, p->n_kv - 1, p->n_kv) : 0,
                waiting = left < held ? left : held;
  const double group = (double)s->group, codes = (double)d * (double)(type - ATTN_INT1 + 1);
  if (keys && s->group && !s->residual) /* scales, and a mean, in fp32 */
    return (double)held * codes + 32 * (ceil((double)held / group) + (s->smooth ? (double)d : 0));
  const double coded = keys && s->group
                           ? codes + (double)d * 32 / group
                           : row_bits(type ? type : given, keys ? &s->k_scheme : &s->v_scheme, d);
  return (double)waiting * row_bits(given, &(attn_kv_scheme){.bits = 0}, d) +
         (double)(held - waiting) * coded;
}

static double bits_held(const attn_problem *p, const attn_kv_store *store, const attn_view *reader,
                        double admitted) {
  const attn_kv_store none = {.reader = NULL}, *s = store ? store : &none;
  const attn_kv_rule *rule = reader->cache;
  int64_t held = p->n_kv;
  if (reader->features || reader->projection || reader->low_rank || reader->residual) return (double)NAN;
  if (rule) held = attn_kv_admits(rule) ? (int64_t)round(admitted) : attn_kv_count(rule, p->n_kv - 1);
  if (reader->latent && p->n_kv > reader->latent->prompt)
    return 8 * (double)reader->latent->rank * (double)attn_dtype_size(p->dtype) /
           (double)(p->kv_heads * (p->d_qk + p->d_v));
  if (reader->pattern && reader->pattern->cache > 0 && reader->pattern->cache < held)
    held = reader->pattern->cache;
  return (side_bits(p, s, true, held) + side_bits(p, s, false, held)) /
         ((double)p->n_kv * (double)(p->d_qk + p->d_v));
}

attn_status quality_density(const data_llama_attention *a, int64_t first, int64_t end, quality_layer *out) {
  const attn_problem *p = attn_plan_problem(a->plan);
  attn_view view, own;
  attn_plan *reader = NULL;
  sampled queries[MOST];
  double held = 0;
  stored_copies copies = {.k = a->k, .v = a->v};
  seen_run run = {.plan = a->plan, .view = &view, .in.q = a->q + a->first * p->heads * p->d_qk};
  attn_status status = attn_plan_inspect(a->plan, &own);
  view = own;
  if (!status && own.store) {
    status = stored_copies_make(p, own.store, a->k, a->v, NULL, &copies);
    if (!status) status = stored_reader_plan(a->plan, &reader);
    if (!status) status = attn_plan_inspect(reader, &view);
    run.plan = reader;
  }
  run.in.k = copies.k;
  run.in.v = copies.v;
  if (!status && (view.features || view.projection || view.low_rank || view.residual))
    out->read = out->pairs = out->left = (double)NAN;
  int64_t count = sample_queries(a, first, end, queries);
  const bool last = count && queries[count - 1].i == a->count - 1;
  if (view.cache && attn_kv_admits(view.cache) && !last) queries[count++] = (sampled){.i = a->count - 1};
  for (int64_t h = 0; !status && !isnan(out->pairs) && h < p->heads; h++)
    status = read_head(a, &run, h, queries, count, &held, out);
  const double bits = status ? 0 : bits_held(p, own.store, &view, held / (double)p->heads);
  out->bits += (bits - out->bits) / (double)++out->windows;
  stored_copies_free(&copies);
  attn_plan_destroy(reader);
  return status;
}

/* density.c - keys that sampled queries read (density.h). */
#include "experiments/quality/density.h"

#include <math.h>
#include <stdlib.h>

#include "experiments/evidence/stored_copies.h"
#include "experiments/reference/seen.h"
#include "experiments/reference/visible.h"

enum { SAMPLE = 16 /* queries of a head */ };

/* The rows of a head. */
static attn_status read_head(const seen_run *run, const sample_row *rows, int64_t count, double *read,
                             double *pairs) {
  const attn_problem *p = attn_plan_problem(run->plan);
  seen_keys seen = {0};
  attn_status status = seen_make(run, rows, NULL, count, &seen);
  if (status) return status;
  const attn_pattern *pattern = seen_of(&seen, 0);
  attn_run *runs = malloc((size_t)visible_most_runs(pattern, p) * sizeof *runs);
  bool *inside = malloc((size_t)p->n_kv * sizeof *inside);
  if (!runs || !inside) status = attn_fail(ATTN_ENOMEM, "no memory for the keys that a query sees");
  for (int64_t r = 0; !status && r < count; r++) {
    *pairs += (double)visible_keys(p, rows[r].i, p->n_kv);
    *read += (double)visible_mark(pattern, p, 0, rows[r].head, rows[r].i, p->n_kv, runs, inside);
  }
  free(runs);
  free(inside);
  seen_free(&seen);
  return status;
}

static attn_status read_heads(const data_llama_attention *a, const seen_run *run, double *read,
                              double *pairs) {
  const int64_t heads = attn_plan_problem(run->plan)->heads, count = SAMPLE < a->count ? SAMPLE : a->count;
  attn_status status = ATTN_OK;
  for (int64_t h = 0; !status && h < heads; h++) {
    sample_row rows[SAMPLE];
    for (int64_t r = 0; r < count; r++) rows[r] = (sample_row){0, h, (2 * r + 1) * a->count / (2 * count)};
    status = read_head(run, rows, count, read, pairs);
  }
  return status;
}

/* Bits of a row of d elements. */
static double row_bits(attn_dtype type, const attn_kv_scheme *scheme, int64_t d) {
  return scheme->decode ? scheme->bits : 8 * (double)attn_row_bytes(d, type);
}

static double bits_held(const attn_problem *p, const attn_kv_store *store, const attn_view *reader) {
  const attn_kv_store none = {.reader = NULL}, *s = store ? store : &none;
  const double k = row_bits(s->k ? s->k : attn_stored(p->k, p->dtype), &s->k_scheme, p->d_qk),
               v = row_bits(s->v ? s->v : attn_stored(p->v, p->dtype), &s->v_scheme, p->d_v);
  const attn_kv_rule *rule = reader->cache;
  int64_t held = p->n_kv;
  if (reader->features || reader->projection || reader->low_rank || reader->residual) return (double)NAN;
  if (rule) held = attn_kv_count(rule, p->n_kv - 1);
  if (reader->latent)
    return 8 * (double)reader->latent->rank * (double)attn_dtype_size(p->dtype) /
           (double)(p->kv_heads * (p->d_qk + p->d_v));
  if (reader->pattern && reader->pattern->cache > 0 && reader->pattern->cache < held)
    held = reader->pattern->cache;
  return (double)held * (k + v) / ((double)p->n_kv * (double)(p->d_qk + p->d_v));
}

attn_status quality_density(const data_llama_attention *a, double *read, double *pairs, double *bits) {
  const attn_problem *p = attn_plan_problem(a->plan);
  attn_view view, own;
  attn_plan *reader = NULL;
  stored_copies copies = {.k = a->k, .v = a->v};
  seen_run run = {.plan = a->plan, .view = &view, .q = a->q + a->first * p->heads * p->d_qk};
  attn_status status = attn_plan_inspect(a->plan, &own);
  view = own;
  if (!status && own.store) {
    status = stored_copies_make(p, own.store, a->k, a->v, &copies);
    if (!status) status = stored_reader_plan(a->plan, &reader);
    if (!status) status = attn_plan_inspect(reader, &view);
    run.plan = reader;
  }
  run.k = copies.k;
  run.v = copies.v;
  if (!status) *bits = bits_held(p, own.store, &view);
  if (!status && (view.features || view.projection || view.low_rank || view.residual))
    *read = *pairs = (double)NAN;
  else if (!status && !isnan(*pairs))
    status = read_heads(a, &run, read, pairs);
  stored_copies_free(&copies);
  attn_plan_destroy(reader);
  return status;
}

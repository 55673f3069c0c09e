/* kv_append.c - positions that arrive in a cache of keys and values (attn_kv_cache.h): one after the other in
 * each kv head, of those that share a budget up to the prompt's end, where all divide it, and then on. */
#include "core/cache/kv_memory.h"

#include <string.h>

static attn_status check_arrivals(const attn_kv_cache *c, const kv_arrivals *a) {
  if (a->n < 1) return attn_fail(ATTN_EINVAL, "cache: %lld positions to append", (long long)a->n);
  if (!a->k) return attn_null("cache", "k");
  if (!a->v) return attn_null("cache", "v");
  if (!a->q && c->evicts && attn_kv_observes(c->rule.score))
    return attn_fail(ATTN_EINVAL, "cache: score=%s looks at queries, and q is NULL", c->rule.score->name);
  for (int64_t b = 0; b < c->problem.batch; b++) {
    if (kv_arriving(a, b) < 0 || kv_arriving(a, b) > a->n)
      return attn_fail(ATTN_EINVAL, "cache: length[%lld] = %lld, expected 0 ... %lld", (long long)b,
                       (long long)kv_arriving(a, b), (long long)a->n);
    if (kv_arriving(a, b) > c->problem.n_kv - c->length[b])
      return attn_fail(
          ATTN_EINVAL, "cache: %lld positions more in batch entry %lld, which has %lld of at most %lld",
          (long long)kv_arriving(a, b), (long long)b, (long long)c->length[b], (long long)c->problem.n_kv);
  }
  return ATTN_OK;
}

/* One key, as it is held, arrives in a head under a rule; others may go. */
static void arrive(attn_kv_cache *c, const kv_arrivals *a, int64_t line, int64_t i, const char *k) {
  const attn_problem *p = &c->problem;
  const int64_t batch = line / p->kv_heads, d = p->d_qk, group = kv_group(c), position = c->length[batch] + i;
  const size_t q_bytes = (size_t)d * attn_dtype_size(attn_stored(p->q, p->dtype));
  double *own = c->row + line * (group + 1) * d, *wide = kv_row(c, KV_WIDE_KEYS, line, 0);
  attn_kv_head *h = &c->head[line];
  const int64_t before = h->count;
  attn_convert(k, attn_stored(p->k, p->dtype), d, ATTN_F64, own);
  h->values = kv_row(c, KV_WIDE_VALUES, line, 0);
  const int64_t gone = attn_kv_arrive(h, position, wide, own);
  kv_close_gaps(c, line, before, h->gone, gone);
  if (gone) c->went[line] = position;
  if (wide) memcpy(wide + (h->count - 1) * d, own, (size_t)d * sizeof *own);
  if (!attn_kv_observes(c->rule.score)) return;
  const int64_t head = line % p->kv_heads * group;
  for (int64_t g = 0; g < group; g++)
    attn_convert(a->q + (size_t)((batch * p->heads + head + g) * a->n + i) * q_bytes,
                 attn_stored(p->q, p->dtype), d, ATTN_F64, own + (g + 1) * d);
  attn_kv_observe(h, p, batch, head, group, own + d, wide, position);
}

static void take_line(attn_kv_cache *c, const kv_arrivals *a, int64_t line, int64_t first, int64_t end) {
  const attn_problem *p = &c->problem;
  const int64_t batch = line / p->kv_heads;
  const size_t k_bytes = c->field[KV_KEYS].bytes;
  for (int64_t i = first; i < end; i++) {
    const char *k = a->k + (size_t)(line * a->n + i) * attn_row_bytes(p->d_qk, c->k_given),
               *v = a->v + (size_t)(line * a->n + i) * attn_row_bytes(p->d_v, c->v_given);
    char *code = c->evicts ? c->code + (size_t)line * k_bytes : NULL;
    if (code) {
      attn_convert(k, c->k_given, p->d_qk, attn_stored(p->k, p->dtype), code);
      arrive(c, a, line, i, code);
    }
    const int64_t at = code ? c->head[line].count - 1 : c->held[batch] + i;
    void *k_row = kv_row(c, KV_KEYS, line, at), *v_row = kv_row(c, KV_VALUES, line, at),
         *wide = kv_row(c, KV_WIDE_VALUES, line, at);
    if (code)
      memcpy(k_row, code, k_bytes);
    else
      attn_convert(k, c->k_given, p->d_qk, attn_stored(p->k, p->dtype), k_row);
    attn_convert(v, c->v_given, p->d_v, attn_stored(p->v, p->dtype), v_row);
    if (wide) attn_convert(v_row, attn_stored(p->v, p->dtype), p->d_v, ATTN_F64, wide);
  }
}

/* Of those that arrive: before the kv heads of a sequence divide their budgets, at the prompt's end. */
static int64_t undivided(const attn_kv_cache *c, const kv_arrivals *a, int64_t batch) {
  const int64_t left = c->rule.prompt - c->length[batch], n = kv_arriving(a, batch);
  return kv_shares(c) && left >= 0 ? attn_min(left, n) : n;
}

static void divide(attn_kv_cache *c, int64_t batch) {
  const int64_t heads = c->problem.kv_heads;
  for (int64_t h = 0, line = batch * heads; h < heads; h++, line++) {
    c->head[line].values = kv_row(c, KV_WIDE_VALUES, line, 0);
    attn_kv_chunk_scores(&c->head[line], c->rule.prompt, kv_row(c, KV_WIDE_KEYS, line, 0),
                         c->scores + h * c->most);
  }
  attn_kv_share(&c->rule, heads, c->most, c->scores, c->budget);
  for (int64_t h = 0; h < heads; h++) c->head[batch * heads + h].rule.budget = c->budget[h];
}

/* Positions of all kv heads that arrive before budgets are divided, or after. */
static void take_lines(attn_kv_cache *c, const kv_arrivals *a, bool divided) {
#pragma omp parallel for num_threads(c->options.threads) schedule(dynamic, 1)
  for (int64_t line = 0; line < kv_lines(c); line++) {
    const int64_t batch = line / c->problem.kv_heads, part = undivided(c, a, batch);
    fenv_t outer;
    attn_float_enter(&outer);
    if (divided)
      take_line(c, a, line, part, kv_arriving(a, batch));
    else
      take_line(c, a, line, 0, part);
    attn_float_leave(&outer);
  }
}

/* Returns whether any are. */
static bool divide_all(attn_kv_cache *c, const kv_arrivals *a) {
  bool divided = false;
  fenv_t outer;
  attn_float_enter(&outer);
  for (int64_t b = 0; b < c->problem.batch; b++)
    if (undivided(c, a, b) < kv_arriving(a, b)) divide(c, b), divided = true;
  attn_float_leave(&outer);
  return divided;
}

attn_status attn_kv_cache_append(attn_kv_cache *c, int64_t n, const int64_t *length, const void *q,
                                 const void *k, const void *v) {
  const kv_arrivals a = {n, length, q, k, v};
  if (!c) return attn_null("cache", "cache");
  attn_status status = check_arrivals(c, &a);
  if (!status && c->latents.law.rank) return kv_latents_append(c, &a);
  int64_t most = 0;
  for (int64_t b = 0; !status && b < c->problem.batch; b++)
    most = attn_max(most, attn_min(c->held[b] + kv_arriving(&a, b), c->most));
  if (!status) status = kv_grow(c, most);
  if (!status) status = attn_threads_enter(c->options.threads);
  if (status) return status;
  take_lines(c, &a, false);
  if (divide_all(c, &a)) take_lines(c, &a, true);
  for (int64_t b = 0; b < c->problem.batch; b++) c->length[b] += kv_arriving(&a, b);
  kv_count_held(c);
  return ATTN_OK;
}

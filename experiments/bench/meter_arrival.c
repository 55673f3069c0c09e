/* meter_arrival.c - a token more in a cache of keys and values (attn_kv_cache.h) as a meter. */
#include "experiments/bench/benchmark.h"

#include <stdlib.h>

#include "attn_arithmetic.h"
#include "core/cache/attn_kv_cache.h"

typedef struct state {
  attn_problem problem;
  attn_kv_cache *cache;
  int64_t held;
} state;

static attn_status fill(bench_meter *m) {
  state *s = m->state;
  const attn_options options = {.threads = m->threads, .isa = m->isa};
  attn_kv_cache_view view;
  const attn_problem *p = &s->problem;
  const float *x = m->owner->in;
  attn_status status = attn_kv_cache_create(&s->cache, p, m->name, &options);
  for (int64_t at = 0; !status && at < s->held; at++) /* tokens as they stand side by side */
    status = attn_kv_cache_append(s->cache, 1, NULL, x, x + at * p->d_qk, x + at * p->d_v);
  if (!status) status = attn_kv_cache_look(s->cache, 0, 0, &view);
  if (!status && view.held != s->held)
    status = attn_fail(ATTN_ENUMERIC, "%s holds %lld keys of %lld", m->name, (long long)view.held,
                       (long long)s->held);
  return status;
}

static attn_status arrive(bench_meter *m) {
  state *s = m->state;
  const float *x = m->owner->in;
  const attn_status status = attn_kv_cache_append(s->cache, 1, NULL, x, x, x);
  const bool stays = s->problem.n_kv == s->held + 1; /* there is room for this one alone */
  return status || !stays ? status : attn_kv_cache_truncate(s->cache, &s->held);
}

static attn_status measure(bench_meter *m, double span, double *seconds) {
  const state *s = m->state;
  const attn_status status = s->cache ? ATTN_OK : fill(m);
  return status ? status : bench_repeat(m, arrive, span, seconds);
}

static void release(void *state_) {
  state *s = state_;
  attn_kv_cache_destroy(s->cache);
  free(s);
}

bench_meter *bench_arrival(bench *b, const char *spec, const attn_problem *p, int64_t held) {
  if (b->options.dtype != ATTN_F32 || p->batch != 1) return NULL;
  bench_meter *m = bench_meter_add(b, spec);
  state *s = m ? calloc(1, sizeof *s) : NULL;
  if (!s) {
    if (!b->status) b->status = attn_fail(ATTN_ENOMEM, "out of memory to measure %s", spec);
    return NULL;
  }
  *s = (state){.problem = *p, .held = held};
  m->n = held;
  m->d = p->d_qk;
  m->tokens = 1;
  m->measure = measure;
  m->release = release;
  m->state = s;
  bench_need(b, (size_t)((held + p->kv_heads - 1) * attn_max(p->d_qk, p->d_v)), 0, 0);
  return m;
}

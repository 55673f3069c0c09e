/* reach.c - layers that see all keys before a query, and those that see the last ones alone (Mistral, Jiang
 * et al. 2023, arXiv:2310.06825: query i sees keys i - window + 1 ... i); of an encoder as many after it. */
#include "data/llama/reach.h"

#include <stdlib.h>

static llama_reach reach_of(const data_llama_config *c, int64_t layer) {
  return c->layer[layer] & DATA_LLAMA_WINDOW ? REACH_WINDOW : REACH_ALL;
}

static int64_t row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  const llama_seen *s = state;
  const int64_t first = position < s->before ? 0 : position - s->before,
                end = s->n - position > s->after ? position + s->after + 1 : s->n;
  (void)head;
  runs[0] = (attn_run){first, end - first, 1};
  return position >= 0;
}

static bool sees(const void *state, int64_t head, int64_t position, int64_t key) {
  const llama_seen *s = state;
  (void)head;
  return position - key <= s->before && key - position <= s->after;
}

void llama_seen_make(const data_llama_config *c, bool both_ways, int64_t n, llama_seen *out) {
  const int64_t before = c->window - 1;
  *out = (llama_seen){.before = before, .after = both_ways ? before : 0, .n = n};
  out->pattern = (attn_pattern){.state = out, .row = row, .max_runs = 1, .sees = sees, .reach = before};
}

attn_problem llama_problem(const data_llama *m, int64_t layer, int64_t n_q, int64_t n_kv) {
  const data_llama_config *c = &m->config;
  const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
  attn_problem p = attn_problem_make(1, c->heads, n_kv, c->head_dim);
  p.n_q = n_q;
  p.kv_heads = c->kv_heads;
  p.causal = !m->kind->encoder;
  p.scale = c->score_scale;
  p.score.softcap = c->score_cap;
  if (m->sinks) p.score.sink = m->sinks + layer * c->heads;
  p.q = p.o = (attn_stride){n_q * q, c->head_dim, q, 0};
  p.k = p.v = (attn_stride){n_kv * kv, c->head_dim, kv, 0};
  return p;
}

/* Where the plan of a layer is. */
static int64_t place_of(const llama_plans *p, int64_t layer) {
  return p->of->sinks ? layer : (int64_t)reach_of(&p->of->config, layer);
}

attn_status llama_plans_make(const data_llama *m, const attn_spec *spec, const unsigned char *where,
                             int64_t n_q, int64_t n_kv, llama_plan_problem *change, const void *of,
                             llama_plans *out) {
  const data_llama_config *c = &m->config;
  attn_status status = ATTN_OK;
  *out = (llama_plans){.of = m, .count = m->sinks ? c->layers : REACHES};
  out->plan = calloc((size_t)out->count, sizeof(attn_plan *));
  if (!out->plan) return attn_fail(ATTN_ENOMEM, "%s: no memory for plans of its attention", m->path);
  for (int64_t l = 0; !status && l < c->layers; l++) {
    attn_plan **plan = &out->plan[place_of(out, l)];
    bool used = !where;
    for (int64_t h = 0; !used && h < c->heads; h++) used = where[l * c->heads + h] != 0;
    if (*plan || !used) continue;
    attn_problem p = llama_problem(m, l, n_q, n_kv);
    change(of, reach_of(c, l), &p);
    status = attn_plan_create_spec(plan, &p, spec, NULL);
    if (status && p.mask.kind)
      status = attn_fail(status, "layers that see the last %lld keys alone: %s", (long long)c->window,
                         attn_last_error());
  }
  return status;
}

void llama_plans_free(llama_plans *p) {
  for (int64_t i = 0; p->plan && i < p->count; i++) attn_plan_destroy(p->plan[i]);
  free(p->plan);
  *p = (llama_plans){.of = NULL};
}

attn_plan *llama_plan_of(const llama_plans *p, int64_t layer) { return p->plan[place_of(p, layer)]; }

size_t llama_plans_work(const llama_plans *p) {
  size_t most = 0;
  for (int64_t i = 0; i < p->count; i++)
    if (p->plan[i] && attn_plan_work_size(p->plan[i]) > most) most = attn_plan_work_size(p->plan[i]);
  return most;
}

/* reach.c - layers that see all keys before a query, and those that see the last ones alone (Mistral, Jiang
 * et al. 2023, arXiv:2310.06825: query i sees keys i - window + 1 ... i); of an encoder as many after it. */
#include "data/llama/reach.h"

llama_reach llama_reach_of(const data_llama_config *c, int64_t layer) {
  return c->layer[layer] & DATA_LLAMA_WINDOW ? REACH_WINDOW : REACH_ALL;
}

bool llama_reach_occurs(const data_llama_config *c, llama_reach reach, const unsigned char *where) {
  for (int64_t l = 0; l < c->layers; l++)
    for (int64_t h = 0; h < c->heads; h++)
      if (llama_reach_of(c, l) == reach && (!where || where[l * c->heads + h])) return true;
  return false;
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

attn_problem llama_problem(const data_llama *m, int64_t n_q, int64_t n_kv) {
  const data_llama_config *c = &m->config;
  const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
  attn_problem p = attn_problem_make(1, c->heads, n_kv, c->head_dim);
  p.n_q = n_q;
  p.kv_heads = c->kv_heads;
  p.causal = !m->kind->encoder;
  p.scale = c->score_scale;
  p.score.softcap = c->score_cap;
  p.q = p.o = (attn_stride){n_q * q, c->head_dim, q, 0};
  p.k = p.v = (attn_stride){n_kv * kv, c->head_dim, kv, 0};
  return p;
}

attn_status llama_reach_plans(const data_llama *m, const llama_seen *seen, const attn_spec *spec,
                              const unsigned char *where, double scale, int64_t n_q, int64_t n_kv,
                              attn_plan *plan[REACHES]) {
  const data_llama_config *c = &m->config;
  attn_problem p = llama_problem(m, n_q, n_kv);
  attn_status status = ATTN_OK;
  if (scale > 0) p.scale = scale;
  for (int reach = 0; !status && reach < REACHES; reach++) {
    if (!llama_reach_occurs(c, (llama_reach)reach, where)) continue;
    const bool masked = reach == REACH_WINDOW && c->window < n_kv;
    if (masked) p.mask = (attn_mask){.kind = ATTN_MASK_PATTERN, .pattern = &seen->pattern};
    status = attn_plan_create_spec(&plan[reach], &p, spec, NULL);
    if (status && masked)
      status = attn_fail(status, "layers that see the last %lld keys alone: %s", (long long)c->window,
                         attn_last_error());
  }
  return status;
}

void llama_reach_destroy(attn_plan *plan[REACHES]) {
  for (int reach = 0; reach < REACHES; reach++) attn_plan_destroy(plan[reach]);
}

size_t llama_reach_work(attn_plan *const plan[REACHES]) {
  size_t most = 0;
  for (int reach = 0; reach < REACHES; reach++)
    if (plan[reach] && attn_plan_work_size(plan[reach]) > most) most = attn_plan_work_size(plan[reach]);
  return most;
}

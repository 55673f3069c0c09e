/* reach.c - layers that see all keys before a query, and those that see the last ones alone (Mistral, Jiang
 * et al. 2023, arXiv:2310.06825: query i sees keys i - window + 1 ... i). */
#include "data/llama/reach.h"

llama_reach llama_reach_of(const data_llama_config *c, int64_t layer) {
  return c->window > 0 && layer >= c->window_from ? REACH_WINDOW : REACH_ALL;
}

bool llama_reach_occurs(const data_llama_config *c, llama_reach reach) {
  return reach == llama_reach_of(c, 0) || reach == llama_reach_of(c, c->layers - 1);
}

static int64_t row(const void *config, int64_t head, int64_t position, attn_run *runs) {
  const int64_t width = ((const data_llama_config *)config)->window,
                first = position < width ? 0 : position - width + 1;
  (void)head;
  runs[0] = (attn_run){first, position - first + 1, 1};
  return position >= 0;
}

static bool sees(const void *config, int64_t head, int64_t position, int64_t key) {
  (void)head;
  return key <= position && position - key < ((const data_llama_config *)config)->window;
}

attn_pattern llama_reach_pattern(const data_llama_config *c) {
  return (attn_pattern){.state = c, .row = row, .max_runs = 1, .sees = sees, .reach = c->window - 1};
}

attn_problem llama_problem(const data_llama_config *c, int64_t n_q, int64_t n_kv) {
  const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
  attn_problem p = attn_problem_make(1, c->heads, n_kv, c->head_dim);
  p.n_q = n_q;
  p.kv_heads = c->kv_heads;
  p.causal = true;
  p.q = p.o = (attn_stride){n_q * q, c->head_dim, q, 0};
  p.k = p.v = (attn_stride){n_kv * kv, c->head_dim, kv, 0};
  return p;
}

attn_status llama_reach_plans(const data_llama *m, const attn_spec *spec, double scale, int64_t n_q,
                              int64_t n_kv, attn_plan *plan[REACHES]) {
  const data_llama_config *c = &m->config;
  attn_problem p = llama_problem(c, n_q, n_kv);
  attn_status status = ATTN_OK;
  if (scale > 0) p.scale = scale;
  for (int reach = 0; !status && reach < REACHES; reach++) {
    if (!llama_reach_occurs(c, (llama_reach)reach)) continue;
    if (reach == REACH_WINDOW && c->window < n_kv)
      p.mask = (attn_mask){.kind = ATTN_MASK_PATTERN, .pattern = &m->seen};
    status = attn_plan_create_spec(&plan[reach], &p, spec, NULL);
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

/* experts.c - a mixture of experts in place of a layer's MLP (Shazeer et al. 2017, arXiv:1701.06538; Fedus et
 * al. 2021, arXiv:2101.03961): with r = h Wr^T (+ b) of the normalised row h and S its k largest,
 *
 *   x += sum_{e in S} p_e MLP_e(h) + sigmoid(h . g) MLP_shared(h),   p_e = exp(r_e) / sum_f exp(r_f),
 *
 * f in S where the weights of those used add up to 1, else over all; the shared one where a model has it. An
 * expert's weights are widened when its turn comes, once for all rows that chose it, and give way to the
 * next's; or they are read where they are. */
#include <math.h>
#include <stdlib.h>

#include "data/llama/layer.h"

typedef struct mixture {
  llama_window *w;
  const llama_weights *l;
  float *const *x; /* `count` of [n, hidden] */
  int64_t count;
  int64_t *chosen; /* [rows, k] */
  float *weight;   /* [rows, k] */
  float *total;    /* [rows, hidden] what is added to x */
} mixture;

/* Where the largest of r is, the first of equal ones. */
static int64_t largest(const float *r, int64_t count) {
  int64_t best = 0;
  for (int64_t e = 1; e < count; e++)
    if (r[e] > r[best]) best = e;
  return best;
}

/* The k largest of r and their weights. */
static void choose(const data_llama_config *c, float *r, int64_t *chosen, float *weight) {
  double sum = 0, all = 0;
  const float most = r[largest(r, c->experts)];
  for (int64_t e = 0; e < c->experts; e++) all += exp((double)r[e] - (double)most);
  for (int64_t i = 0; i < c->experts_used; i++) {
    const int64_t best = chosen[i] = largest(r, c->experts);
    weight[i] = expf(r[best] - most);
    sum += (double)weight[i];
    r[best] = -INFINITY;
  }
  for (int64_t i = 0; i < c->experts_used; i++) weight[i] /= (float)(c->experts_normed ? sum : all);
}

static const float *normalised(llama_window *w, const llama_weights *l, const float *x) {
  llama_normalise(w, w->n, x, &l->norm[LLAMA_MLP_NORM], w->h);
  return w->h;
}

/* Which experts the rows choose, and what the shared one gives them. */
static attn_status route(mixture *m) {
  llama_window *w = m->w;
  const data_llama_config *c = &w->model->config;
  const product_matrix *of = m->l->matrix;
  float *r = NULL;
  attn_status status = product_allocate("the router's logits", w->n, c->experts, sizeof *r, &r);
  for (int64_t i = 0; !status && i < m->count; i++) {
    const int64_t first = i * w->n;
    const float *h = normalised(w, m->l, m->x[i]);
    float *total = m->total + first * c->hidden;
    product_multiply(&w->tools, &of[LLAMA_ROUTER], w->n, h, false, r);
    for (int64_t row = 0; row < w->n; row++)
      choose(c, r + row * c->experts, m->chosen + (first + row) * c->experts_used,
             m->weight + (first + row) * c->experts_used);
    if (of[LLAMA_UP].rows == 0) continue;
    product_multiply(&w->tools, &of[LLAMA_SHARED_GATE], w->n, h, false, r);
    product_multiply(&w->tools, &of[LLAMA_DOWN], w->n, llama_activate(w, &of[LLAMA_GATE], w->n, h), false,
                     total);
    for (int64_t row = 0; row < w->n; row++)
      for (int64_t j = 0; j < c->hidden; j++) total[row * c->hidden + j] /= 1 + expf(-r[row]);
  }
  free(r);
  return status;
}

/* At most n rows that chose the expert, by choices from *next on, gathered in w->h. place: of their choices.
 * Returns how many they are. */
static int64_t gather(const mixture *m, int64_t expert, int64_t *next, int64_t *place) {
  const llama_window *w = m->w;
  const data_llama_config *c = &w->model->config;
  const int64_t choices = m->count * w->n * c->experts_used;
  int64_t found = 0;
  for (; *next < choices && found < w->n; ++*next) {
    const int64_t row = *next / c->experts_used;
    if (m->chosen[*next] != expert) continue;
    const float *x = m->x[row / w->n] + row % w->n * c->hidden;
    for (int64_t j = 0; j < c->hidden; j++) w->h[found * c->hidden + j] = x[j];
    place[found++] = *next;
  }
  return found;
}

static attn_status add_expert(mixture *m, const product_rows from[3], int64_t expert, int64_t *place) {
  llama_window *w = m->w;
  const data_llama_config *c = &w->model->config;
  bool loaded = false;
  attn_status status = ATTN_OK;
  for (int64_t next = 0, n; !status && (n = gather(m, expert, &next, place)) > 0;) {
    for (int i = 0; !loaded && !status && i < 3; i++) status = m->l->get(&w->tools, &from[i], &w->expert[i]);
    if (status) return status;
    loaded = true;
    llama_normalise(w, n, w->h, &m->l->norm[LLAMA_MLP_NORM], w->h);
    product_multiply(&w->tools, &w->expert[2], n, llama_activate(w, w->expert, n, w->h), false, w->added);
    for (int64_t i = 0; i < n; i++) {
      float *to = m->total + place[i] / c->experts_used * c->hidden;
      for (int64_t j = 0; j < c->hidden; j++) to[j] += m->weight[place[i]] * w->added[i * c->hidden + j];
    }
  }
  return status;
}

attn_status llama_mix(llama_window *w, int64_t layer, const llama_weights *l, float *const *x,
                      int64_t count) {
  const data_llama_config *c = &w->model->config;
  const int64_t rows = count * w->n;
  mixture m = {.w = w, .l = l, .x = x, .count = count};
  int64_t *place = NULL;
  attn_status status = product_allocate("choices", rows, c->experts_used, sizeof *m.chosen, &m.chosen);
  if (!status) status = product_allocate("weights", rows, c->experts_used, sizeof *m.weight, &m.weight);
  if (!status) status = product_allocate("a mixture", rows, c->hidden, sizeof *m.total, &m.total);
  if (!status) status = product_allocate("places", 1, w->n, sizeof *place, &place);
  for (int64_t i = 0; !status && i < rows * c->hidden; i++) m.total[i] = 0;
  if (!status) status = route(&m);
  for (int64_t e = 0; !status && e < c->experts; e++)
    status = add_expert(&m, w->model->layer[layer].one + 3 * e, e, place);
  for (int64_t i = 0; !status && i < rows; i++)
    for (int64_t j = 0; j < c->hidden; j++)
      x[i / w->n][i % w->n * c->hidden + j] += m.total[i * c->hidden + j];
  free(m.chosen);
  free(m.weight);
  free(m.total);
  free(place);
  return status;
}

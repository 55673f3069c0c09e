/* decode_tokens.c - the forward pass a token at a time, of several texts at once, with the keys and values of
 * the tokens before kept (data_llama_decoder in data.h). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/llama/layer.h"
#include "data/llama/reach.h"

enum { SMALL = 1 << 22 /* multiply-adds that one thread has done before others have begun */ };

struct data_llama_decoder {
  const data_llama *model;
  int64_t texts, n, given;
  llama_window window;    /* its rows are the texts */
  llama_weights *weights; /* [layers] */
  product_matrix head;
  llama_norm norm;
  float *x;             /* [texts, hidden] */
  float *keys, *values; /* [layers, texts, n, kv_heads * d] */
};

attn_status data_llama_decoder_make(const data_llama *m, int64_t texts, int64_t n, data_llama_decoder **out) {
  const data_llama_config *c = &m->config;
  const int64_t kv = c->kv_heads * c->head_dim;
  if (texts < 1 || n < 1 || n > c->max_positions)
    return attn_fail(ATTN_EINVAL, "%s: %" PRId64 " texts of %" PRId64 " positions; the model has %" PRId64,
                     m->path, texts, n, c->max_positions);
  const attn_problem problem = llama_problem(m, 0, 1, 1);
  attn_plan *plan = NULL;
  data_llama_decoder *d = calloc(1, sizeof *d);
  if (!d) return attn_fail(ATTN_ENOMEM, "%s: no memory", m->path);
  *d = (data_llama_decoder){.model = m, .texts = texts, .n = n};
  d->weights = calloc((size_t)c->layers, sizeof *d->weights);
  attn_status status = d->weights ? ATTN_OK : attn_fail(ATTN_ENOMEM, "%s: no memory for its layers", m->path);
  if (!status) status = attn_plan_create(&plan, &problem, "tiled", NULL);
  if (!status) status = llama_window_make(m, attn_plan_context(plan)->kernels, texts, &d->window);
  if (texts * c->hidden * c->intermediate < SMALL) d->window.tools.threads = 1;
  for (int64_t l = 0; !status && l < c->layers; l++)
    status = llama_weights_load(&d->window, l, product_matrix_place, &d->weights[l]);
  if (!status) status = llama_norm_load(m, &m->norm, 1, &d->norm);
  if (!status) status = product_matrix_place(&d->window.tools, &m->head, &d->head);
  if (!status) status = product_allocate("the state", texts, c->hidden, sizeof *d->x, &d->x);
  if (!status) status = product_allocate("keys", c->layers * texts * n, kv, sizeof *d->keys, &d->keys);
  if (!status) status = product_allocate("values", c->layers * texts * n, kv, sizeof *d->values, &d->values);
  if (!status && c->rotary_dim > 0)
    data_rope_frequencies(&c->rope, c->rotary_dim, n, d->window.rotation[0].frequency);
  attn_plan_destroy(plan);
  if (status)
    data_llama_decoder_free(d);
  else
    *out = d;
  return status;
}

void data_llama_decoder_free(data_llama_decoder *d) {
  if (!d) return;
  for (int64_t l = 0; d->weights && l < d->model->config.layers; l++) llama_weights_free(&d->weights[l]);
  llama_window_free(&d->window);
  free(d->weights);
  product_matrix_free(&d->head);
  llama_norm_free(&d->norm);
  free(d->x);
  free(d->keys);
  free(d->values);
  free(d);
}

/* Keeps the layer's new keys and values, and attends to all. */
static attn_status attend(data_llama_decoder *d, const attn_plan *plan, int64_t layer, void *work) {
  const int64_t kv = d->model->config.kv_heads * d->model->config.head_dim,
                first = layer * d->texts * d->n * kv;
  float *keys = d->keys + first, *values = d->values + first;
  for (int64_t t = 0; t < d->texts; t++) {
    memcpy(keys + (t * d->n + d->given) * kv, d->window.k + t * kv, (size_t)kv * sizeof *keys);
    memcpy(values + (t * d->n + d->given) * kv, d->window.v + t * kv, (size_t)kv * sizeof *values);
  }
  const int64_t unseen = (d->given + 1 - attn_plan_problem(plan)->n_kv) * kv;
  return attn_plan_execute(plan, d->window.q, keys + unseen, values + unseen, NULL, d->window.mixed, work);
}

/* The last token's attention, on as many keys as layers of each reach see. */
static void limit(const void *of, llama_reach reach, attn_problem *p) {
  const data_llama_decoder *d = of;
  const data_llama_config *c = &d->model->config;
  if (reach == REACH_WINDOW && c->window <= d->given) p->n_kv = c->window;
  p->batch = d->texts;
  p->k.batch = p->v.batch = d->n * c->kv_heads * c->head_dim;
}

attn_status data_llama_decoder_step(data_llama_decoder *d, const int64_t *tokens, float *logits) {
  const data_llama_config *c = &d->model->config;
  llama_plans plans = {.of = NULL};
  attn_spec *exact = NULL;
  char *work = NULL;
  attn_status status = data_llama_check(d->model, tokens, d->texts, 1);
  if (!status && d->given == d->n)
    status = attn_fail(ATTN_EINVAL, "%s: a token after the last of %" PRId64, d->model->path, d->n);
  if (status) return status;
  status = attn_spec_parse(&exact, "tiled");
  if (!status) status = llama_plans_make(d->model, exact, NULL, 1, d->given + 1, limit, d, &plans);
  if (!status)
    status = product_allocate("scratch of attention", 1, (int64_t)llama_plans_work(&plans) + 1, 1, &work);
  for (int64_t t = 0; !status && t < d->texts; t++)
    status = llama_embed(&d->window, tokens[t], d->given, d->x + t * c->hidden);
  for (int64_t l = 0; !status && l < c->layers; l++) {
    llama_project(&d->window, &d->weights[l], d->x);
    llama_rotate(&d->window, l, false, d->given);
    if ((status = attend(d, llama_plan_of(&plans, l), l, work))) break;
    llama_add(&d->window, &d->weights[l], d->x);
    status = llama_finish(&d->window, l, &d->weights[l], &d->x, 1);
  }
  if (!status) {
    llama_normalise(&d->window, d->texts, d->x, &d->norm, d->window.h);
    product_multiply(&d->window.tools, &d->head, d->texts, d->window.h, false, logits);
    llama_bend_logits(&d->window, d->texts * c->vocab, logits);
    d->given++;
  }
  llama_plans_free(&plans);
  attn_spec_destroy(exact);
  free(work);
  return status;
}

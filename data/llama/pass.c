/* pass.c - a forward pass of several windows and streams, layer by layer, so that a layer's weights are
 * widened once for all of them (data_llama_run in data.h). Where a model's own attention sees the last keys
 * alone (Mistral), the exact stream and the variants have this as the mask of their problem.
 *
 * A stream that has replaced no head yet equals the exact stream and has no separate state; it begins with a
 * copy. The exact stream comes last in each layer, because its state before the layer is copied. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/llama/layer.h"
#include "data/llama/reach.h"

enum { ROWS = 512 /* about this many rows of logits are held at a time */ };

typedef struct stream {
  const data_llama_swap *swap; /* NULL: exact */
  llama_plans plans;
  int64_t first, count; /* queries that the variant computes */
  struct stream *next;  /* of swap->next, without a separate state */
  float *x;             /* [windows, n, hidden]; NULL: as yet that of stream 0 */
} stream;

typedef struct pass {
  const data_llama *model;
  const data_llama_pass *asked;
  int64_t streams;
  stream *stream;
  llama_plans exact;
  llama_window window;
  llama_weights weights;
  llama_seen seen; /* of an encoder: clipped to the window */
  float *swapped;  /* [n, heads * d] */
  float **state;   /* [streams * windows] those that are finished together */
  char *work;
} pass;

static void stream_end(stream *s) {
  llama_plans_free(&s->plans);
  for (stream *part = s->next, *next; part; part = next) {
    next = part->next;
    llama_plans_free(&part->plans);
    free(part);
  }
}

static void pass_end(pass *p) {
  for (int64_t s = 0; p->stream && s < p->streams; s++) {
    stream_end(&p->stream[s]);
    free(p->stream[s].x);
  }
  free(p->stream);
  llama_plans_free(&p->exact);
  llama_window_free(&p->window);
  llama_weights_free(&p->weights);
  free(p->swapped);
  free(p->state);
  free(p->work);
}

/* The scale of a swap, and the window of keys where one ends what a query sees. */
typedef struct sight {
  const llama_seen *seen;
  double scale; /* 0: the model's */
} sight;

static void limit(const void *of, llama_reach reach, attn_problem *p) {
  const sight *s = of;
  if (s->scale > 0) p->scale = s->scale;
  if (reach == REACH_WINDOW && s->seen->before + 1 < p->n_kv)
    p->mask = (attn_mask){.kind = ATTN_MASK_PATTERN, .pattern = &s->seen->pattern};
}

static attn_status part_begin(const data_llama *m, int64_t n, const data_llama_swap *swap, stream *s) {
  const int64_t last = swap->phase == DATA_LLAMA_BOTH ? 0 : swap->decode;
  if (last < 0 || last >= n || (last == 0 && swap->phase != DATA_LLAMA_BOTH))
    return attn_fail(ATTN_EINVAL,
                     "%s: the last %" PRId64 " queries of %" PRId64 " positions, expected 1 to %" PRId64,
                     swap->spec->text, last, n, n - 1);
  *s = (stream){.swap = swap, .count = n - last};
  if (swap->phase == DATA_LLAMA_DECODE) {
    s->first = n - last;
    s->count = last;
  }
  return llama_plans_make(m, swap->spec, swap->where, s->count, s->first + s->count, limit,
                          &(sight){&m->seen, swap->scale}, &s->plans);
}

static attn_status stream_begin(const data_llama *m, int64_t n, const data_llama_swap *swap, stream *s) {
  attn_status status = part_begin(m, n, swap, s);
  for (stream *last = s; !status && (swap = swap->next); last = last->next) {
    if (!(last->next = calloc(1, sizeof *last))) return attn_fail(ATTN_ENOMEM, "no memory for a stream");
    status = part_begin(m, n, swap, last->next);
  }
  return status;
}

static attn_status pass_begin(const data_llama *m, const data_llama_pass *asked, pass *p) {
  const data_llama_config *c = &m->config;
  *p = (pass){.model = m, .asked = asked, .streams = asked->count + 1};
  if (!(p->stream = calloc((size_t)p->streams, sizeof *p->stream)))
    return attn_fail(ATTN_ENOMEM, "no memory for %" PRId64 " streams", p->streams);
  attn_spec *exact = NULL;
  attn_status status = attn_spec_parse(&exact, "tiled");
  llama_seen_make(c, m->kind->encoder, asked->n, &p->seen);
  if (!status)
    status = llama_plans_make(m, exact, NULL, asked->n, asked->n, limit, &(sight){&p->seen, 0}, &p->exact);
  attn_spec_destroy(exact);
  if (!status)
    status =
        llama_window_make(m, attn_plan_context(llama_plan_of(&p->exact, 0))->kernels, asked->n, &p->window);
  if (!status)
    status = product_allocate("the attention's output", asked->n, c->heads * c->head_dim, sizeof(float),
                              &p->swapped);
  if (!status) status = product_allocate("states", p->streams, asked->windows, sizeof *p->state, &p->state);
  size_t work = llama_plans_work(&p->exact);
  for (int64_t s = 1; !status && s < p->streams; s++) {
    status = stream_begin(m, asked->n, &asked->swaps[s - 1], &p->stream[s]);
    for (const stream *part = &p->stream[s]; !status && part; part = part->next)
      if (llama_plans_work(&part->plans) > work) work = llama_plans_work(&part->plans);
  }
  return status ? status : product_allocate("scratch of attention", 1, (int64_t)work + 1, 1, &p->work);
}

static size_t state_size(const pass *p) {
  return (size_t)(p->asked->windows * p->asked->n * p->model->config.hidden);
}

/* Gives a stream its own state, a copy of the exact stream's. */
static attn_status give_own_state(pass *p, stream *s) {
  const float *from = p->stream[0].x;
  attn_status status = product_allocate("a stream's state", p->asked->windows * p->asked->n,
                                        p->model->config.hidden, sizeof(float), &s->x);
  if (!status && from) memcpy(s->x, from, state_size(p) * sizeof *from);
  return status;
}

/* -- attention -- */

static bool replaces(const pass *p, const stream *s, int64_t layer, int64_t head) {
  if (!s->swap || s->swap->mix == 0) return false;
  return !s->swap->where || s->swap->where[layer * p->model->config.heads + head];
}

static int64_t replaced_heads(const pass *p, const stream *s, int64_t layer) {
  int64_t count = 0;
  for (int64_t h = 0; h < p->model->config.heads; h++) count += replaces(p, s, layer, h);
  return count;
}

/* What replaces heads in the layer; NULL: nothing. */
static const stream *part_in(const pass *p, const stream *s, int64_t layer) {
  while (s && replaced_heads(p, s, layer) == 0) s = s->next;
  return s;
}

/* The variant's rows of the heads it replaces, in place of the exact ones. */
static void combine(pass *p, const stream *s, int64_t layer) {
  const int64_t d = p->model->config.head_dim, heads = p->model->config.heads;
  const float mix = (float)s->swap->mix;
  for (int64_t i = s->first; i < s->first + s->count; i++)
    for (int64_t h = 0; h < heads; h++) {
      float *to = p->window.mixed + (i * heads + h) * d;
      const float *from = p->swapped + (i * heads + h) * d;
      if (!replaces(p, s, layer, h)) continue;
      if (s->swap->mix == 1)
        memcpy(to, from, (size_t)d * sizeof *to);
      else
        for (int64_t l = 0; l < d; l++) to[l] += mix * (from[l] - to[l]);
    }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* x += the attention's part of the layer, that of a variant where it replaces heads. */
static attn_status attend(pass *p, const stream *s, int64_t layer, int64_t window, float *x) {
  llama_window *w = &p->window;
  const int64_t width = p->model->config.heads * p->model->config.head_dim;
  const size_t bytes = (size_t)(w->n * width) * sizeof(float);
  const stream *by = part_in(p, s, layer);
  attn_status status =
      attn_plan_execute(llama_plan_of(&p->exact, layer), w->q, w->k, w->v, NULL, w->mixed, p->work);
  if (status) return status;
  if (!by) {
    llama_add(w, &p->weights, x);
    return ATTN_OK;
  }
  const attn_plan *plan = llama_plan_of(&by->plans, layer);
  const double begun = now();
  status = attn_plan_execute(plan, w->q + by->first * width, w->k, w->v, NULL, p->swapped + by->first * width,
                             p->work);
  if (status) return status;
  const double seconds = now() - begun;
  if (!p->asked->attention) {
    combine(p, by, layer);
    llama_add(w, &p->weights, x);
    return ATTN_OK;
  }
  float *exact = malloc(bytes);
  if (!exact) return attn_fail(ATTN_ENOMEM, "no memory for an attention's output, %zu bytes", bytes);
  memcpy(exact, w->mixed, bytes);
  combine(p, by, layer);
  const float *state = llama_add(w, &p->weights, x);
  status = p->asked->attention(p->asked->to, &(data_llama_attention){.layer = layer,
                                                                     .stream = s - p->stream,
                                                                     .window = window,
                                                                     .plan = plan,
                                                                     .first = by->first,
                                                                     .count = by->count,
                                                                     .seconds = seconds,
                                                                     .q = w->q,
                                                                     .k = w->k,
                                                                     .v = w->v,
                                                                     .exact = exact,
                                                                     .output = w->mixed,
                                                                     .state = state});
  free(exact);
  return status;
}

/* The first half of a layer. */
static attn_status layer_of_stream(pass *p, stream *s, int64_t layer) {
  const int64_t size = p->asked->n * p->model->config.hidden;
  attn_status status = ATTN_OK;
  if (!s->x && !part_in(p, s, layer)) return ATTN_OK;
  if (!s->x) status = give_own_state(p, s);
  for (int64_t w = 0; !status && w < p->asked->windows; w++) {
    float *x = s->x + w * size;
    llama_project(&p->window, &p->weights, x);
    llama_rotate(&p->window, layer, true, 0);
    status = attend(p, s, layer, w, x);
  }
  return status;
}

/* Of all streams with a state, so that what is widened serves all. */
static attn_status finish_layer(pass *p, int64_t layer) {
  const int64_t size = p->asked->n * p->model->config.hidden, windows = p->asked->windows;
  int64_t count = 0;
  for (int64_t s = 0; s < p->streams; s++)
    for (int64_t w = 0; p->stream[s].x && w < windows; w++) p->state[count++] = p->stream[s].x + w * size;
  return llama_finish(&p->window, layer, &p->weights, p->state, count);
}

static attn_status run_layers(pass *p, int64_t layers) {
  const int64_t d = p->model->config.hidden, rows = p->asked->windows * p->asked->n;
  attn_status status = give_own_state(p, &p->stream[0]);
  for (int64_t i = 0; !status && i < rows; i++)
    status = llama_embed(&p->window, p->asked->tokens[i], i % p->asked->n, p->stream[0].x + i * d);
  for (int64_t l = 0; !status && l < layers; l++) {
    status = llama_weights_load(&p->window, l, product_matrix_load, &p->weights);
    for (int64_t s = p->streams - 1; !status && s >= 0; s--) status = layer_of_stream(p, &p->stream[s], l);
    if (!status) status = finish_layer(p, l);
  }
  return status;
}

/* -- logits -- */

static attn_status run_head(pass *p) {
  const data_llama_config *c = &p->model->config;
  const data_llama_pass *a = p->asked;
  const int64_t chunk = (ROWS - 1) / p->streams + 1;
  product_matrix head = {.at = NULL};
  llama_norm norm = {.weight = NULL};
  float *h = NULL, *all = NULL;
  const float **logits = calloc((size_t)p->streams, sizeof *logits);
  attn_status status = logits ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for logits");
  if (!status) status = llama_norm_load(p->model, &p->model->norm, 1, &norm);
  if (!status) status = product_matrix_load(&p->window.tools, &p->model->head, &head);
  if (!status) status = product_allocate("normalised rows", p->streams * chunk, c->hidden, sizeof *h, &h);
  if (!status) status = product_allocate("logits", p->streams * chunk, c->vocab, sizeof *all, &all);
  for (int64_t w = 0; !status && w < a->windows; w++)
    for (int64_t i = a->scored; !status && i < a->n; i += chunk) {
      const int64_t rows = a->n - i < chunk ? a->n - i : chunk;
      int64_t own = 0; /* streams with a state of their own, whose rows follow one another */
      for (int64_t s = 0; s < p->streams; s++) {
        logits[s] = all;
        if (!p->stream[s].x) continue;
        llama_normalise(&p->window, rows, p->stream[s].x + (w * a->n + i) * c->hidden, &norm,
                        h + own * rows * c->hidden);
        logits[s] = all + own++ * rows * c->vocab;
      }
      product_multiply(&p->window.tools, &head, own * rows, h, false, all);
      llama_bend_logits(&p->window, own * rows * c->vocab, all);
      status = a->logits(a->to, &(data_llama_rows){w, i, rows, p->streams, logits});
    }
  product_matrix_free(&head);
  llama_norm_free(&norm);
  free(h);
  free(all);
  free(logits);
  return status;
}

attn_status data_llama_check(const data_llama *m, const int64_t *tokens, int64_t windows, int64_t n) {
  if (n < 1 || windows < 1) return attn_fail(ATTN_EINVAL, "%s: no tokens; at least one is needed", m->path);
  if (n > m->config.max_positions)
    return attn_fail(ATTN_EINVAL, "%s: a window of %" PRId64 " positions; the model has %" PRId64, m->path, n,
                     m->config.max_positions);
  for (int64_t i = 0; i < windows * n; i++) {
    const int64_t *image = m->config.image_tokens;
    if (tokens[i] >= 0 && (tokens[i] == image[0] || tokens[i] == image[1]))
      return attn_fail(ATTN_EUNSUPPORTED,
                       "token %" PRId64 " is %" PRId64
                       ", which stands for an image or a video in %s: only text is read",
                       i, tokens[i], m->path);
    if (tokens[i] < 0 || tokens[i] >= m->config.vocab)
      return attn_fail(ATTN_EINVAL,
                       "token %" PRId64 " is %" PRId64 "; the vocabulary of %s is 0 ... %" PRId64, i,
                       tokens[i], m->path, m->config.vocab - 1);
  }
  return ATTN_OK;
}

attn_status llama_hidden(const data_llama *m, const int64_t *tokens, int64_t windows, int64_t n,
                         int64_t layers, float **out, llama_window *window) {
  pass p = {0};
  const data_llama_pass asked = {.tokens = tokens, .windows = windows, .n = n};
  attn_status status = data_llama_check(m, tokens, windows, n);
  if (!status) status = pass_begin(m, &asked, &p);
  if (!status) status = run_layers(&p, layers);
  if (!status) {
    *out = p.stream[0].x;
    *window = p.window;
    p.stream[0].x = NULL;
    p.window = (llama_window){0};
  }
  pass_end(&p);
  return status;
}

attn_status data_llama_run(const data_llama *m, const data_llama_pass *asked) {
  pass p = {0};
  attn_status status = data_llama_check(m, asked->tokens, asked->windows, asked->n);
  if (!status) status = pass_begin(m, asked, &p);
  if (!status) status = run_layers(&p, m->config.layers);
  if (!status) status = run_head(&p);
  pass_end(&p);
  return status;
}

attn_status data_llama_try(const data_llama *m, int64_t n, const data_llama_swap *swap) {
  stream s = {0};
  const attn_status status = stream_begin(m, n, swap, &s);
  stream_end(&s);
  return status;
}

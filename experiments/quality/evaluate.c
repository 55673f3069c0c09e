/* evaluate.c - the pass, and what is kept of its logits, which are not stored (evaluate.h). */
#include "experiments/quality/evaluate.h"

#include <math.h>
#include <stdlib.h>

#include "experiments/quality/density.h"

typedef struct collector {
  const quality_windows *text;
  quality_data *data;
  int64_t vocab;
} collector;

/* The streams of one position. */
static void reduce(const collector *c, const data_llama_rows *r, int64_t row, double *p) {
  quality_data *d = c->data;
  const int64_t i = r->first + row, y = c->text->tokens[r->window * c->text->n + i + 1];
  const int64_t at = r->window * d->positions + i - c->text->first[r->window];
  const float *z = r->logits[0] + row * c->vocab;
  exact_token exact;
  divergence_exact(c->vocab, z, y, p, &exact);
  d->nll[at] = exact.nll;
  d->right[at] = exact.top == y;
  for (int64_t s = 0; s < d->swaps; s++) {
    quality_point *to = &d->points[s * d->windows * d->positions + at];
    divergence x;
    divergence_of(c->vocab, z, p, &exact, r->logits[s + 1] + row * c->vocab, y, &x);
    *to = (quality_point){.dnll = (float)x.dnll,
                          .kl = (float)x.kl,
                          .dp = (float)x.dp,
                          .range = (float)x.range,
                          .bennett = (float)divergence_bennett(x.variance, x.above),
                          .same_top = x.top == exact.top,
                          .certified = exact.margin > x.range,
                          .right = x.top == y};
  }
}

static attn_status take_logits(void *to, const data_llama_rows *r) {
  const collector *c = to;
  attn_status failed = ATTN_OK;
#pragma omp parallel
  {
    double *p = malloc((size_t)c->vocab * sizeof *p);
#pragma omp for schedule(dynamic)
    for (int64_t row = 0; row < r->rows; row++)
      if (p && r->first + row < c->text->n - 1 && r->first + row >= c->text->first[r->window])
        reduce(c, r, row, p);
    free(p);
    if (!p) {
#pragma omp atomic write
      failed = ATTN_ENOMEM;
    }
  }
  return failed ? attn_fail(failed, "no memory for a distribution over %lld tokens", (long long)c->vocab)
                : ATTN_OK;
}

static attn_status take_attention(void *to, const data_llama_attention *a) {
  const collector *c = to;
  const attn_problem *p = attn_plan_problem(a->plan);
  quality_layer *l = &c->data->layer[(a->stream - 1) * c->data->layers + a->layer];
  const int64_t count = c->text->n * p->heads * p->d_v;
  l->seconds += a->seconds;
  for (int64_t x = 0; x < count; x++) {
    const double exact = (double)a->exact[x], by = (double)a->output[x] - exact;
    l->error += by * by;
    l->size += exact * exact;
  }
  return quality_density(a, &l->read, &l->pairs);
}

static attn_status make(const quality_windows *text, int64_t swaps, int64_t layers, quality_data *d) {
  *d = (quality_data){.windows = text->count, .swaps = swaps, .layers = layers};
  d->scored = calloc((size_t)text->count, sizeof *d->scored);
  for (int64_t w = 0; d->scored && w < text->count; w++) {
    d->scored[w] = text->n - 1 - text->first[w];
    if (d->scored[w] > d->positions) d->positions = d->scored[w];
  }
  const size_t rows = (size_t)(d->windows * d->positions);
  d->nll = calloc(rows, sizeof *d->nll);
  d->right = calloc(rows, sizeof *d->right);
  d->points = calloc(rows * (size_t)(swaps + 1), sizeof *d->points);
  d->layer = calloc((size_t)((swaps + 1) * layers), sizeof *d->layer);
  if (d->scored && d->nll && d->right && d->points && d->layer) return ATTN_OK;
  return attn_fail(ATTN_ENOMEM, "no memory for an evaluation of %zu positions", rows);
}

attn_status quality_evaluate(const data_llama *m, const quality_windows *text, const data_llama_swap *swaps,
                             int64_t count, quality_data *out) {
  const data_llama_config *config = data_llama_get_config(m);
  quality_data d;
  collector c = {text, &d, config->vocab};
  attn_status status = make(text, count, config->layers, &d);
  if (!status)
    status = data_llama_run(m, &(data_llama_pass){.tokens = text->tokens,
                                                  .windows = text->count,
                                                  .n = text->n,
                                                  .scored = text->n - 1 - d.positions,
                                                  .swaps = swaps,
                                                  .count = count,
                                                  .to = &c,
                                                  .attention = take_attention,
                                                  .logits = take_logits});
  if (status)
    quality_data_free(&d);
  else
    *out = d;
  return status;
}

void quality_data_free(quality_data *d) {
  free(d->scored);
  free(d->nll);
  free(d->right);
  free(d->points);
  free(d->layer);
  *d = (quality_data){0};
}

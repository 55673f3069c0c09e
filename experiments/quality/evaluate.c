/* evaluate.c - the pass, and what is kept of its logits, which are not stored (evaluate.h). */
#include "experiments/quality/evaluate.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/quality/density.h"

typedef struct collector {
  const quality_windows *text;
  quality_data *data;
  int64_t vocab;
  bool judged;
} collector;

static double share(double measured, double limit) { return measured == 0 ? 0 : measured / limit; }

void quality_extreme_keep(quality_extreme *e, double measured, double limit) {
  const double now = share(measured, limit), kept = share(e->measured, e->limit);
  /* Of equal shares one that does not depend on which thread comes first. */
  if (now > kept ||
      (now == kept && (measured > e->measured || (measured == e->measured && limit > e->limit))))
    *e = (quality_extreme){measured, limit};
}

enum { AGAIN = 16 /* one position in AGAIN is computed a second time, from the definition */ };

/* log p_y - log p'_y from its definition. */
static double change_of_nll(int64_t vocab, const float *z, const float *changed, int64_t y) {
  const float *at[] = {z, changed};
  double nll[2];
  for (int s = 0; s < 2; s++) {
    double most = -(double)INFINITY, sum = 0;
    for (int64_t t = 0; t < vocab; t++) most = fmax(most, (double)at[s][t]);
    for (int64_t t = 0; t < vocab; t++) sum += exp((double)at[s][t] - most);
    nll[s] = most + log(sum) - (double)at[s][y];
  }
  return nll[1] - nll[0];
}

static void judge(const collector *c, int64_t window, int64_t i, const float *z, const exact_token *e,
                  const float *changed, const divergence *x, quality_extreme *extreme) {
  const double slack = divergence_dnll_rounding(c->vocab, e, x);
  quality_extreme_keep(&extreme[THEOREM_KL], x->kl,
                       divergence_limit(x->range) + divergence_kl_rounding(c->vocab, e, x));
  quality_extreme_keep(&extreme[THEOREM_DNLL], fabs(x->dnll), x->range + slack);
  if (x->top != e->top)
    quality_extreme_keep(&extreme[THEOREM_TOP], e->margin, x->range + 8 * DBL_EPSILON * x->size);
  if (i % AGAIN) return;
  const int64_t y = c->text->tokens[window * c->text->n + i + 1];
  const double again = change_of_nll(c->vocab, z, changed, y);
  /* Two logarithms of sums as large as the logits, each off by its sum's roundings. */
  const double allowed =
      slack + 2 * ((double)c->vocab + 4 * (e->size + x->size) + 16) * DBL_EPSILON * (1 + e->size + x->size);
  quality_extreme_keep(&extreme[THEOREM_DNLL], fabs(x->dnll - again), allowed);
}

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
    if (isfinite(x.kl)) {
      quality_extreme extreme[THEOREMS] = {{0, 0}};
      judge(c, r->window, i, z, &exact, r->logits[s + 1] + row * c->vocab, &x, extreme);
#pragma omp critical
      for (int t = 0; t < THEOREMS; t++)
        quality_extreme_keep(&d->extreme[s][t], extreme[t].measured, extreme[t].limit);
    }
    *to = (quality_point){.dnll = (float)x.dnll,
                          .kl = (float)x.kl,
                          .dp = (float)x.dp,
                          .range = (float)x.range,
                          .bennett = (float)divergence_bennett(x.variance, x.above),
                          .variance = (float)x.variance,
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

/* Of layers that differ in their sinks alone the first is judged. */
static bool is_same(const attn_plan *a, const attn_plan *b) {
  return a == b ||
         (a && attn_plan_problem(a)->score.sink && strcmp(attn_plan_spec(a), attn_plan_spec(b)) == 0 &&
          attn_plan_problem(a)->mask.kind == attn_plan_problem(b)->mask.kind);
}

static attn_status judge_variant(const collector *c, const data_llama_attention *a,
                                 const quality_layer *layers) {
  if (!c->judged || a->window > 0) return ATTN_OK;
  for (int64_t l = 0; l < a->layer; l++)
    if (is_same(layers[l].by, a->plan)) return ATTN_OK;
  return judged_layer_add(a, &c->data->judged[a->stream - 1]);
}

static attn_status take_attention(void *to, const data_llama_attention *a) {
  const collector *c = to;
  const attn_problem *p = attn_plan_problem(a->plan);
  quality_layer *layers = &c->data->layer[(a->stream - 1) * c->data->layers], *l = &layers[a->layer];
  const int64_t count = c->text->n * p->heads * p->d_v;
  l->seconds += a->seconds;
  for (int64_t x = 0; x < count; x++) {
    const double exact = (double)a->exact[x], by = (double)a->output[x] - exact;
    l->error += by * by;
    l->size += exact * exact;
  }
  l->by = a->plan;
  const attn_status status = judge_variant(c, a, layers);
  return status ? status : quality_density(a, c->text->first[a->window], c->text->n - 1, l);
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
  d->extreme = calloc((size_t)swaps + 1, sizeof *d->extreme);
  d->judged = calloc((size_t)swaps + 1, sizeof *d->judged);
  if (d->scored && d->nll && d->right && d->points && d->layer && d->extreme && d->judged) return ATTN_OK;
  return attn_fail(ATTN_ENOMEM, "no memory for an evaluation of %zu positions", rows);
}

attn_status quality_evaluate(const data_llama *m, const quality_windows *text, const data_llama_swap *swaps,
                             int64_t count, bool judged, quality_data *out) {
  const data_llama_config *config = data_llama_get_config(m);
  quality_data d;
  collector c = {text, &d, config->vocab, judged};
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
  free(d->extreme);
  for (int64_t s = 0; d->judged && s < d->swaps; s++) free(d->judged[s].at);
  free(d->judged);
  *d = (quality_data){0};
}

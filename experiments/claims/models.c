/* models.c - claims about whole models with their attention replaced: what a window without its first tokens
 * does (Xiao et al. 2023, arXiv:2309.17453), which layers a method may not touch (Tang et al. 2024,
 * arXiv:2406.10774, keeps the first two exact), what perplexity does not see, and whether layers' divergences
 * add up. */
#include "experiments/claims/claim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/quality/evaluate.h"
#include "experiments/quality/swaps.h"
#include "experiments/quality/tasks/tasks.h"

enum { WINDOWS = 16, POSITIONS = 512, SWAPS = 40 };

/* What a model is asked, with which swaps. Layers as in --layers. */
typedef struct question {
  const char *task;
  int64_t n;
  int count;
  struct {
    const char *spec, *layers;
  } swaps[SWAPS];
} question;

/* Means over a window's scored positions. */
typedef struct window_means {
  int64_t layers, count; /* of the model; of the swaps, one for each member of "each" */
  double kl[SWAPS][WINDOWS], dnll[SWAPS][WINDOWS];
  double right[SWAPS][WINDOWS], right_exact[WINDOWS];
} window_means;

static void take_means(const quality_data *d, window_means *out) {
  for (int64_t w = 0; w < WINDOWS; w++) {
    const double share = 1 / (double)d->scored[w];
    for (int64_t i = 0; i < d->scored[w]; i++) out->right_exact[w] += share * d->right[w * d->positions + i];
    for (int64_t s = 0; s < d->swaps; s++)
      for (int64_t i = 0; i < d->scored[w]; i++) {
        const quality_point *p = &d->points[(s * WINDOWS + w) * d->positions + i];
        out->kl[s][w] += share * (double)p->kl;
        out->dnll[s][w] += share * (double)p->dnll;
        out->right[s][w] += share * p->right;
      }
  }
}

static attn_status add_swaps(const question *q, int i, const data_llama_config *c, swap_list *list,
                             data_llama_swap *swaps, int64_t *count) {
  static const double whole = 1;
  const swap_request asked = {
      &q->swaps[i].spec, 1, q->swaps[i].layers, "all", "both", &whole, 1, q->n, NULL, 0, 0};
  attn_status status = swap_list_make(&asked, c, list);
  if (!status && *count + list->count > SWAPS)
    status = attn_fail(ATTN_EUNSUPPORTED, "a model of %lld layers: claims take %d runs at most",
                       (long long)c->layers, SWAPS);
  for (int64_t s = 0; !status && s < list->count; s++) swaps[(*count)++] = list->runs[s].swap;
  return status;
}

static attn_status evaluate(const data_llama *model, const quality_windows *windows, const question *q,
                            window_means *out) {
  const data_llama_config *c = data_llama_get_config(model);
  swap_list lists[SWAPS] = {{0}};
  data_llama_swap swaps[SWAPS];
  quality_data data = {0};
  attn_status status = ATTN_OK;
  out->layers = c->layers;
  for (int i = 0; !status && i < q->count; i++) status = add_swaps(q, i, c, &lists[i], swaps, &out->count);
  if (!status) status = quality_evaluate(model, windows, swaps, out->count, false, &data);
  if (!status) take_means(&data, out);
  quality_data_free(&data);
  for (int i = 0; i < q->count; i++) swap_list_free(&lists[i]);
  return status;
}

/* Needs options->model and a text, the bytes that the model is asked about; an error names what is
 * missing. */
static attn_status evaluate_question(const claim_options *options, const question *q, window_means *out) {
  const data_ids_request asked = {.model = options->model, .text = options->text};
  data_llama *model = NULL;
  data_tokenizer *tokenizer = NULL;
  data_ids text = {0};
  quality_windows windows = {0};
  char *canonical = NULL;
  *out = (window_means){0};
  attn_status status = data_llama_open(options->model, &model);
  if (status) return status;
  const data_llama_config *c = data_llama_get_config(model);
  status = data_ids_read(&asked, c, &text);
  if (!status && c->vocab != 256) status = data_tokenizer_open(options->model, &tokenizer);
  if (!status) status = quality_windows_make(WINDOWS, q->n, &windows);
  const task_input in = {.text = text.id,
                         .length = text.count,
                         .vocab = c->vocab,
                         .bos = text.bos,
                         .seed = options->seed,
                         .tokenizer = tokenizer};
  if (!status) status = task_fill(q->task, &in, &windows, &canonical);
  if (!status) status = data_llama_check(model, windows.tokens, WINDOWS, q->n);
  if (!status) status = evaluate(model, &windows, q, out);
  free(canonical);
  quality_windows_free(&windows);
  free(text.id);
  data_tokenizer_close(tokenizer);
  data_llama_close(model);
  return status;
}

static claim_figure *mean(claim_report *r, const char *what, const double *values) {
  return figure_mean(claim_add(r, CLAIM_UNSAID, "%s", what), values, WINDOWS, "windows");
}

/* ---- sinks --------------------------------------------------------------------------------------------- */

/* "Window attention fails when the text length surpasses the cache size", which the first tokens mend. */
static attn_status window(const claim_options *options, claim_report *r) {
  static const question q = {"text:skip=128",
                             POSITIONS,
                             3,
                             {{"streaming:sink=0,window=64", "all"},
                              {"streaming:sink=1,window=63", "all"},
                              {"streaming:sink=4,window=60", "all"}}};
  static const char *const names[] = {"window of 64 keys", "1 first and 63 last keys",
                                      "4 first and 60 last keys"};
  window_means m;
  attn_status status = evaluate_question(options, &q, &m);
  if (status) return status;
  for (int i = 0; i < 3; i++) {
    char what[80];
    snprintf(what, sizeof what, "nats a token lost, %s", names[i]);
    mean(r, what, m.dnll[i]);
  }
  double ratio[WINDOWS];
  for (int w = 0; w < WINDOWS; w++) ratio[w] = log(m.kl[0][w] / m.kl[1][w]);
  const claim_figure *f = mean(r, "log of the divergence without over with the first key", ratio);
  r->telling = r->count - 1;
  if (f->low > log(5)) r->word = CLAIM_REPRODUCED;
  return ATTN_OK;
}
const claim claim_model_window = {
    "model-window",
    "a window destroys a model, and the same window with a first token kept does not "
    "(a fifth of the divergence at most)",
    "Xiao et al. 2023, section 3.1 and figure 3", window};

/* ---- perplexity ---------------------------------------------------------------------------------------- */

static attn_status perplexity(const claim_options *options, claim_report *r) {
  static const question q = {"text:skip=128",
                             2 * POSITIONS,
                             3,
                             {{"streaming:sink=0,window=32", "all"},
                              {"streaming:sink=0,window=128", "all"},
                              {"streaming:sink=4,window=252", "all"}}};
  window_means m;
  attn_status status = evaluate_question(options, &q, &m);
  for (int i = 0; !status && i < q.count; i++) {
    char what[80];
    snprintf(what, sizeof what, "nats a token lost, %s", q.swaps[i].spec);
    const claim_figure *lost = mean(r, what, m.dnll[i]);
    snprintf(what, sizeof what, "divergence, %s", q.swaps[i].spec);
    const claim_figure *kl = mean(r, what, m.kl[i]);
    if (lost->high < kl->low / 2 && r->word == CLAIM_MISSED) {
      r->word = CLAIM_DERIVED;
      r->telling = r->count - 2;
    }
  }
  return status;
}
const claim claim_model_perplexity = {
    "model-perplexity",
    "perplexity can miss most of a change: nats a token lost below half of the divergence",
    "ours, from E log(p / p') = KL on text of the model alone", perplexity};

/* ---- layers -------------------------------------------------------------------------------------------- */

/* Quest leaves the first two layers exact, since they "exhibit low sparsity". */
static attn_status first_layers(const claim_options *options, claim_report *r) {
  static const question q = {"text:skip=128", POSITIONS, 1, {{"pages:budget=64", "each"}}};
  window_means m;
  attn_status status = evaluate_question(options, &q, &m);
  if (status) return status;
  if (m.layers < 4)
    return attn_fail(ATTN_EUNSUPPORTED, "a model of %lld layers: model-first-layers takes four",
                     (long long)m.layers);
  double first[WINDOWS], other[WINDOWS], share[WINDOWS];
  for (int w = 0; w < WINDOWS; w++) {
    first[w] = (m.kl[0][w] + m.kl[1][w]) / 2;
    other[w] = 0;
    for (int64_t l = 2; l < m.layers; l++) other[w] += m.kl[l][w] / (double)(m.layers - 2);
    share[w] = log(first[w] / other[w]);
  }
  mean(r, "divergence of one of the first two layers, pages:budget=64", first);
  mean(r, "divergence of one of the others", other);
  const claim_figure *f = mean(r, "log of the first two layers' over the others'", share);
  r->telling = r->count - 1;
  if (f->low > 0) r->word = CLAIM_REPRODUCED;
  return ATTN_OK;
}
const claim claim_model_layers = {
    "model-first-layers", "replacing attention harms a model more in the first two layers than in the others",
    "Tang et al. 2024, section 4.1", first_layers};

static attn_status additivity(const claim_options *options, claim_report *r) {
  static const question q = {"text:skip=128", POSITIONS, 2, {{"topk:k=64", "all"}, {"topk:k=64", "each"}}};
  window_means m;
  attn_status status = evaluate_question(options, &q, &m);
  if (status) return status;
  double ratio[WINDOWS];
  for (int w = 0; w < WINDOWS; w++) {
    double sum = 0;
    for (int64_t l = 0; l < m.layers; l++) sum += m.kl[1 + l][w];
    ratio[w] = sum / m.kl[0][w];
  }
  const claim_figure *f =
      mean(r, "sum of the layers' divergences over that of all together, topk:k=64", ratio);
  if (f->low > 0.5 && f->high < 2) r->word = CLAIM_DERIVED;
  return ATTN_OK;
}
const claim claim_model_additivity = {
    "model-additivity",
    "divergences of layers replaced one at a time sum up to that of all replaced, within a "
    "factor of 2, where they are small",
    "ours, from KL = Var(dz) / 2 and independent errors of layers", additivity};

/* ---- copying ------------------------------------------------------------------------------------------- */

static attn_status copying(const claim_options *options, claim_report *r) {
  static const question copy = {"copy:length=64",
                                POSITIONS,
                                2,
                                {{"streaming:sink=4,window=124", "all"}, {"topk:k=16", "all"}}},
                        text = {"text:skip=128", POSITIONS, 1, {{"streaming:sink=4,window=124", "all"}}};
  window_means m, plain;
  attn_status status = evaluate_question(options, &copy, &m);
  if (!status) status = evaluate_question(options, &text, &plain);
  if (status) return status;
  const claim_figure *exact = mean(r, "copied tokens that are right, exact attention", m.right_exact);
  const claim_figure *window = mean(r, "with a window of 124 keys and 4 first ones", m.right[0]);
  r->telling = r->count - 1;
  const claim_figure *kept = mean(r, "with the 16 heaviest keys", m.right[1]);
  const claim_figure *lost = mean(r, "nats a token of text lost, window", plain.dnll[0]);
  if (exact->low > 0.2 && window->high < exact->low / 4 && kept->low > exact->low / 2 && lost->high < 0.5)
    r->word = CLAIM_DERIVED;
  return ATTN_OK;
}
const claim claim_model_copying = {
    "model-copying",
    "a window that leaves text nearly as it was takes copying away, which few chosen keys keep",
    "ours, from Olsson et al. 2022 (arXiv:2209.11895): induction heads look far back", copying};

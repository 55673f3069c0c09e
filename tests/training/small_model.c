/* small_model.c - the gradient of a whole model, by differences; with attention of fp32 it is that of fp64,
 * rounded. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/training/small_model.h"
#include "tests/support/basics/kept.h"
#include "tests/support/directions.h"

static const small_shape shape = {.vocabulary = 7,
                                  .n = 6,
                                  .batch = 2,
                                  .width = 8,
                                  .heads = 2,
                                  .layers = 2,
                                  .inner = 5,
                                  .attention = ATTN_F64};
static const int32_t tokens[12] = {1, 0, 6, 2, 2, 5, 3, 4, 1, 1, 0, 6},
                     targets[12] = {0, -1, 2, 4, 5, 1, -1, -1, 3, 6, 0, 2};

static double loss(const void *context, const double *weights, double *size) {
  small_model *m = (small_model *)(uintptr_t)context;
  scored s;
  cr_assert(small_model_forward(m, weights, tokens, targets, &s) == ATTN_OK, "%s", attn_last_error());
  cr_assert(s.rows == 9);
  return *size = s.loss / (double)s.rows;
}

/* Of a model of this shape at fixed weights. */
static double *gradient_of(const small_shape *s, const char *text, const double *weights, small_model *m) {
  attn_spec *spec;
  double *g = kept_memory(malloc((size_t)small_weights_count(s) * sizeof *g)), size;
  cr_assert(attn_spec_parse(&spec, text) == ATTN_OK && g);
  cr_assert(small_model_make(s, spec, m) == ATTN_OK, "%s", attn_last_error());
  attn_spec_destroy(spec);
  loss(m, weights, &size);
  cr_assert(small_model_backward(m, weights, tokens, targets, 9, g) == ATTN_OK, "%s", attn_last_error());
  return g;
}

static double *drawn_weights(void) {
  double *weights = kept_memory(malloc((size_t)small_weights_count(&shape) * sizeof *weights));
  attn_rng rng = rng_of(5, 0, 0);
  cr_assert(weights);
  small_weights_draw(&shape, &rng, weights);
  return weights;
}

/* Exact; a pattern; outputs that are added, without log-sum-exps. */
Test(training_small_model, gradient) {
  const char *const specs[] = {"tiled", "longformer:window=2,global=1",
                               "0.5*tiled + 0.5*streaming:sink=1,window=2"};
  double *weights = drawn_weights();
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    small_model m;
    double *g = gradient_of(&shape, specs[i], weights, &m);
    expect_derivative(specs[i], loss, &m, small_weights_count(&shape), weights, g);
    small_model_free(&m);
  }
}

/* Fewer than 256 roundings of fp32 lie between a weight and its gradient, none amplified more than tenfold at
 * weights of this size. */
Test(training_small_model, attention_of_fp32) {
  small_shape single = shape;
  double *weights = drawn_weights(), apart = 0, norm = 0;
  small_model m, of_single;
  single.attention = ATTN_F32;
  double *g = gradient_of(&shape, "tiled", weights, &m),
         *rounded = gradient_of(&single, "tiled", weights, &of_single);
  for (int64_t i = 0; i < small_weights_count(&shape); i++) {
    apart += (g[i] - rounded[i]) * (g[i] - rounded[i]);
    norm += g[i] * g[i];
  }
  cr_expect(sqrt(apart) <= 10 * 256 * 0x1p-24 * sqrt(norm), "%g of %g", sqrt(apart), sqrt(norm));
  cr_expect(apart > 0, "attention is not of fp32");
  small_model_free(&m);
  small_model_free(&of_single);
}

/* No position hears of a later one: with other last tokens the logits before them keep their bits. */
Test(training_small_model, causal) {
  double *weights = drawn_weights(), before[12 * 7];
  small_model m;
  int32_t other[12];
  scored s;
  gradient_of(&shape, "tiled", weights, &m);
  cr_assert(small_model_forward(&m, weights, tokens, targets, &s) == ATTN_OK);
  for (int i = 0; i < 12 * 7; i++) before[i] = m.logits[i];
  for (int i = 0; i < 12; i++) other[i] = i % 6 < 4 ? tokens[i] : (tokens[i] + 1) % 7;
  cr_assert(small_model_forward(&m, weights, other, targets, &s) == ATTN_OK);
  for (int i = 0; i < 12 * 7; i++) cr_expect((m.logits[i] == before[i]) == (i / 7 % 6 < 4), "row %d", i / 7);
  small_model_free(&m);
}

/* Whether another last token changes a logit before it, and whether that is declared: of vslash, alone and in
 * a gated sum, the last queries choose keys for all. */
Test(training_small_model, declares_what_it_sees_later) {
  static const struct {
    const char *spec;
    bool later;
  } cases[] = {{"tiled", false},
               {"topk:k=1", false},
               {"vslash:vertical=1,slash=1,last=1,sink=0", true},
               {"0.5*tiled + 0.5*vslash:vertical=1,slash=1,last=1,sink=0", true}};
  double *weights = drawn_weights(), before[12 * 7];
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    small_model m;
    attn_spec *spec;
    char *later = NULL;
    scored s;
    bool seen = false;
    cr_assert(attn_spec_parse(&spec, cases[c].spec) == ATTN_OK);
    cr_assert(small_attention_check(&shape, spec, &later) == ATTN_OK, "%s", attn_last_error());
    cr_assert(small_model_make(&shape, spec, &m) == ATTN_OK, "%s", attn_last_error());
    cr_assert(small_model_forward(&m, weights, tokens, targets, &s) == ATTN_OK);
    memcpy(before, m.logits, sizeof before);
    for (int last = 0; last < 7; last++) {
      int32_t other[12];
      memcpy(other, tokens, sizeof other);
      other[5] = last;
      cr_assert(small_model_forward(&m, weights, other, targets, &s) == ATTN_OK);
      seen = seen || memcmp(before, m.logits, sizeof(double[5 * 7])) != 0;
    }
    cr_expect(seen == cases[c].later, "%s", cases[c].spec);
    cr_expect(!later == !cases[c].later, "%s: %s", cases[c].spec, later ? later : "nothing is declared");
    small_model_free(&m);
    attn_spec_destroy(spec);
    free(later);
  }
}

/* E and P, the last gain, and of each layer gains, matrices of its inputs, and those that add to x, whose sum
 * over the layers has the size of one; only matrices of layers decay, and gains are 1. */
Test(training_small_model, weights_at_first) {
  const small_shape s = {
      .vocabulary = 40, .n = 30, .batch = 1, .width = 32, .heads = 1, .layers = 3, .inner = 48};
  const int64_t d = s.width, count = small_weights_count(&s);
  const int64_t counts[] = {70 * d, d, 2 * d, 3 * d * d, d * d, 2 * s.inner * d, s.inner * d};
  const double deviations[] = {0.5, 0, 0, 1 / sqrt(32), 1 / sqrt(32 * 6), 1 / sqrt(32), 1 / sqrt(48 * 6)};
  double *weights = malloc((size_t)count * sizeof *weights);
  bool *decays = malloc((size_t)count * sizeof *decays);
  int64_t at = 0;
  attn_rng rng = rng_of(5, 0, 0);
  cr_assert(weights && decays);
  small_weights_draw(&s, &rng, weights);
  small_weights_decay(&s, decays);
  for (int64_t p = 0; p < 2 + 5 * s.layers; p++) {
    const int64_t k = p < 2 ? p : 2 + (p - 2) % 5, end = at + counts[k];
    const double deviation = deviations[k]; /* 0: of gains */
    double sum = 0;
    for (; at < end; at++) {
      cr_expect(decays[at] == (k > 2) && (k == 0 || k > 2 || weights[at] == 1), "part %d", (int)p);
      sum += weights[at] * weights[at] / (double)counts[k];
    }
    /* Within five standard errors of a variance. */
    cr_expect(deviation == 0 || fabs(sum / (deviation * deviation) - 1) < 5 * sqrt(2 / (double)counts[k]),
              "part %d: %g", (int)p, sqrt(sum));
  }
  cr_expect_eq(at, count);
  free(weights), free(decays);
}

/* small_model.c - see small_model.h. */
#include "experiments/training/small_model.h"

#include <math.h>
#include <string.h>

#include "attn_gradients.h"
#include "data/support/file.h"

/* -- weights: one array, E, P, the last gain, then the layers one after another -- */

typedef struct layer_weights {
  double *gain, *qkv, *out, *middle_gain, *up, *down;
} layer_weights;

typedef struct all_weights {
  double *tokens, *places, *last_gain, *layers;
} all_weights;

static int64_t before_layers(const small_shape *s) { return (s->vocabulary + s->n + 1) * s->width; }

static int64_t layer_count(const small_shape *s) { return (2 + 4 * s->width + 3 * s->inner) * s->width; }

static all_weights weights_at(const small_shape *s, const double *weights) {
  double *at = (double *)(uintptr_t)weights;
  return (all_weights){at, at + s->vocabulary * s->width, at + (s->vocabulary + s->n) * s->width,
                       at + before_layers(s)};
}

static layer_weights layer_at(const small_shape *s, all_weights all, int64_t layer) {
  const int64_t d = s->width;
  double *at = all.layers + layer * layer_count(s);
  return (layer_weights){at,     at + 2 * d,           at + (2 + 3 * d) * d,
                         at + d, at + (2 + 4 * d) * d, at + (2 + 4 * d + 2 * s->inner) * d};
}

int64_t small_weights_count(const small_shape *s) { return before_layers(s) + s->layers * layer_count(s); }

void small_weights_decay(const small_shape *s, bool *decays) {
  const int64_t count = small_weights_count(s), first = before_layers(s), layer = layer_count(s);
  for (int64_t i = 0; i < count; i++) decays[i] = i >= first && (i - first) % layer >= 2 * s->width;
}

static void draw(attn_rng *rng, int64_t count, double deviation, double *x) {
  for (int64_t i = 0; i < count; i++) x[i] = deviation * attn_rng_normal(rng);
}

void small_weights_draw(const small_shape *s, attn_rng *rng, double *weights) {
  const all_weights all = weights_at(s, weights);
  const int64_t d = s->width;
  const double plain = 1 / sqrt((double)d), added = 1 / sqrt(2 * (double)s->layers);
  draw(rng, (s->vocabulary + s->n) * d, 0.5, all.tokens);
  for (int64_t j = 0; j < d; j++) all.last_gain[j] = 1;
  for (int64_t l = 0; l < s->layers; l++) {
    const layer_weights w = layer_at(s, all, l);
    for (int64_t j = 0; j < d; j++) w.gain[j] = w.middle_gain[j] = 1;
    draw(rng, 3 * d * d, plain, w.qkv);
    draw(rng, d * d, plain * added, w.out);
    draw(rng, 2 * s->inner * d, plain, w.up);
    draw(rng, s->inner * d, added / sqrt((double)s->inner), w.down);
  }
}

/* -- attention -- */

static attn_problem problem_of(const small_shape *s) {
  const int64_t d = s->width / s->heads;
  attn_problem p = attn_problem_make(s->batch, s->heads, s->n, d);
  p.dtype = s->attention;
  p.causal = true;
  p.q = p.k = p.v = (attn_stride){.batch = s->n * 3 * s->width, .head = d, .row = 3 * s->width};
  p.o = (attn_stride){.batch = s->n * s->width, .head = d, .row = s->width};
  return p;
}

static attn_status attention_make(const small_shape *s, const attn_spec *spec, attn_plan **plan,
                                  size_t *bytes) {
  const attn_problem p = problem_of(s);
  size_t backward = 0;
  attn_status status = attn_plan_create_spec(plan, &p, spec, &(attn_options){.threads = 1});
  if (status) return status;
  if ((status = attn_plan_backward_size(*plan, &backward))) {
    attn_plan_destroy(*plan);
    *plan = NULL;
    return status;
  }
  *bytes = attn_plan_work_size(*plan) > backward ? attn_plan_work_size(*plan) : backward;
  return ATTN_OK;
}

attn_status small_attention_check(const small_shape *s, const attn_spec *spec, char **later) {
  const uint32_t leaks = ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_CAUSAL | ATTN_EXEMPT_ROWS;
  attn_plan *plan = NULL;
  attn_view view = {.exempt = NULL};
  size_t bytes;
  attn_status status = attention_make(s, spec, &plan, &bytes);
  *later = NULL;
  if (!status) status = attn_plan_inspect(plan, &view);
  const char *why = status ? NULL : attn_exempt(view.exempt, leaks);
  if (why && !(*later = strdup(why)))
    status = attn_fail(ATTN_ENOMEM, "no memory for what '%s' declares", spec->text);
  attn_plan_destroy(plan);
  return status;
}

static attn_tensors tensors_of(const small_model *m, const small_activations *a) {
  const int64_t d = m->shape.width;
  const attn_dtype t = m->shape.attention;
  return (attn_tensors){.q = a->qkv,
                        .k = attn_at(a->qkv, d, t),
                        .v = attn_at(a->qkv, 2 * d, t),
                        .o = a->mixed,
                        .lse = a->lse,
                        .work = m->work};
}

/* a->o from the projection in m->qkv. */
static attn_status attention_forward(small_model *m, const small_activations *a) {
  const int64_t count = m->shape.batch * m->shape.n * m->shape.width;
  attn_convert(m->qkv, ATTN_F64, 3 * count, m->shape.attention, a->qkv);
  const attn_tensors x = tensors_of(m, a);
  const attn_status status = attn_plan_run(m->plan, &x);
  if (!status) attn_convert(a->mixed, m->shape.attention, count, ATTN_F64, a->o);
  return status;
}

/* dq, dk and dv, [batch, heads, n, d] each, into the rows of the projection. */
static void gather_heads(const small_model *m) {
  const small_shape *s = &m->shape;
  const int64_t d = s->width / s->heads, part = s->batch * s->n * s->width;
  for (int64_t t = 0; t < 3; t++)
    for (int64_t b = 0; b < s->batch; b++)
      for (int64_t h = 0; h < s->heads; h++)
        for (int64_t i = 0; i < s->n; i++)
          attn_convert(attn_at(m->dheads, t * part + ((b * s->heads + h) * s->n + i) * d, s->attention),
                       s->attention, d, ATTN_F64,
                       m->dqkv + (b * s->n + i) * 3 * s->width + t * s->width + h * d);
}

/* m->dqkv from the gradient by a->o. */
static attn_status attention_backward(small_model *m, const small_activations *a, const double *d_o) {
  const int64_t part = m->shape.batch * m->shape.n * m->shape.width;
  const attn_dtype t = m->shape.attention;
  const attn_tensors x = tensors_of(m, a);
  attn_convert(d_o, ATTN_F64, part, t, m->dmixed);
  const attn_gradients g = {.d_o = m->dmixed,
                            .d_o_at = attn_plan_problem(m->plan)->o,
                            .dq = m->dheads,
                            .dk = attn_at(m->dheads, part, t),
                            .dv = attn_at(m->dheads, 2 * part, t)};
  const attn_status status = attn_plan_backward(m->plan, &x, &g);
  if (!status) gather_heads(m);
  return status;
}

/* -- the model -- */

static void take_activations(small_model *m, bool has_lse, small_activations *a) {
  const small_shape *s = &m->shape;
  const int64_t rows = s->batch * s->n;
  const struct {
    double **to;
    int64_t columns;
  } table[] = {{&a->x, s->width},      {&a->normed, s->width},        {&a->o, s->width},
               {&a->middle, s->width}, {&a->normed_middle, s->width}, {&a->up, 2 * s->inner},
               {&a->gated, s->inner}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    *table[i].to = region_take(&m->memory, rows * table[i].columns, sizeof(double));
  a->qkv = region_take(&m->memory, 3 * rows * s->width, attn_dtype_size(s->attention));
  a->mixed = region_take(&m->memory, rows * s->width, attn_dtype_size(s->attention));
  if (has_lse) a->lse = region_take(&m->memory, rows * s->heads, sizeof(double));
}

/* Those of fp64, whatever type attention has. */
static attn_status kernels_find(const attn_kernels **out) {
  attn_problem p = attn_problem_make(1, 1, 1, 1);
  attn_plan *plan = NULL;
  p.dtype = ATTN_F64;
  const attn_status status = attn_plan_create(&plan, &p, "tiled", NULL);
  if (!status) *out = attn_plan_context(plan)->kernels;
  attn_plan_destroy(plan);
  return status;
}

/* What the layers share. */
static void take_shared(small_model *m) {
  const small_shape *s = &m->shape;
  const int64_t rows = s->batch * s->n;
  const size_t size = attn_dtype_size(s->attention), scratch = attn_gemm_scratch(m->products.kernels) + 64;
  const struct {
    double **to;
    int64_t columns;
  } table[] = {{&m->x, s->width},        {&m->normed, s->width},  {&m->logits, s->vocabulary},
               {&m->qkv, 3 * s->width},  {&m->dx, s->width},      {&m->dnormed, s->width},
               {&m->dqkv, 3 * s->width}, {&m->dup, 2 * s->inner}, {&m->dgated, s->inner}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    *table[i].to = region_take(&m->memory, rows * table[i].columns, sizeof(double));
  m->dmixed = region_take(&m->memory, rows * s->width, size);
  m->dheads = region_take(&m->memory, 3 * rows * s->width, size);
  char *at = region_take(&m->memory, 1, scratch);
  if (at) m->products.scratch = at + (64 - (uintptr_t)at % 64) % 64;
}

attn_status small_model_make(const small_shape *s, const attn_spec *spec, small_model *out) {
  small_model m = {.shape = *s};
  attn_view view;
  size_t bytes = 0;
  attn_status status = attention_make(s, spec, &m.plan, &bytes);
  if (!status) status = attn_plan_inspect(m.plan, &view);
  if (!status) status = kernels_find(&m.products.kernels);
  if (!status) {
    take_shared(&m);
    m.work = region_take(&m.memory, 1, bytes + 1);
    m.layer = region_zeros(&m.memory, s->layers, sizeof *m.layer);
    for (int64_t l = 0; m.layer && l < s->layers; l++)
      take_activations(&m, view.caps & ATTN_CAP_LSE, &m.layer[l]);
    status = region_status(&m.memory, "for a model");
  }
  if (status)
    small_model_free(&m);
  else
    *out = m;
  return status;
}

void small_model_free(small_model *m) {
  attn_plan_destroy(m->plan);
  region_free(&m->memory);
  *m = (small_model){.plan = NULL};
}

static void embed(const small_shape *s, all_weights w, const int32_t *tokens, double *x) {
  for (int64_t i = 0; i < s->batch * s->n; i++)
    for (int64_t j = 0; j < s->width; j++)
      x[i * s->width + j] = w.tokens[tokens[i] * s->width + j] + w.places[i % s->n * s->width + j];
}

attn_status small_model_forward(small_model *m, const double *weights, const int32_t *tokens,
                                const int32_t *targets, scored *out) {
  const small_shape *s = &m->shape;
  const products *p = &m->products;
  const all_weights all = weights_at(s, weights);
  const int64_t rows = s->batch * s->n, d = s->width;
  const size_t bytes = (size_t)(rows * d) * sizeof(double);
  embed(s, all, tokens, m->x);
  for (int64_t l = 0; l < s->layers; l++) {
    const layer_weights w = layer_at(s, all, l);
    const small_activations *a = &m->layer[l];
    memcpy(a->x, m->x, bytes);
    rms_forward(rows, d, a->x, w.gain, a->normed);
    linear_forward(p, rows, d, 3 * d, a->normed, w.qkv, false, m->qkv);
    const attn_status status = attention_forward(m, a);
    if (status) return status;
    linear_forward(p, rows, d, d, a->o, w.out, true, m->x);
    memcpy(a->middle, m->x, bytes);
    rms_forward(rows, d, a->middle, w.middle_gain, a->normed_middle);
    linear_forward(p, rows, d, 2 * s->inner, a->normed_middle, w.up, false, a->up);
    swiglu_forward(rows, s->inner, a->up, a->gated);
    linear_forward(p, rows, s->inner, d, a->gated, w.down, true, m->x);
  }
  rms_forward(rows, d, m->x, all.last_gain, m->normed);
  linear_forward(p, rows, d, s->vocabulary, m->normed, all.tokens, false, m->logits);
  *out = cross_entropy(rows, s->vocabulary, m->logits, targets);
  return ATTN_OK;
}

/* From dx behind a layer to dx before it. */
static attn_status layer_backward(small_model *m, const small_activations *a, layer_weights w,
                                  layer_weights g) {
  const small_shape *s = &m->shape;
  const products *p = &m->products;
  const int64_t rows = s->batch * s->n, d = s->width;
  linear_backward(p, rows, s->inner, d, a->gated, w.down, m->dx, false, m->dgated, g.down);
  swiglu_backward(rows, s->inner, a->up, m->dgated, m->dup);
  linear_backward(p, rows, d, 2 * s->inner, a->normed_middle, w.up, m->dup, false, m->dnormed, g.up);
  rms_backward(rows, d, a->middle, w.middle_gain, m->dnormed, m->dx, g.middle_gain);
  linear_backward(p, rows, d, d, a->o, w.out, m->dx, false, m->dnormed, g.out);
  const attn_status status = attention_backward(m, a, m->dnormed);
  if (status) return status;
  linear_backward(p, rows, d, 3 * d, a->normed, w.qkv, m->dqkv, false, m->dnormed, g.qkv);
  rms_backward(rows, d, a->x, w.gain, m->dnormed, m->dx, g.gain);
  return ATTN_OK;
}

attn_status small_model_backward(small_model *m, const double *weights, const int32_t *tokens,
                                 const int32_t *targets, int64_t scored_rows, double *gradients) {
  const small_shape *s = &m->shape;
  const all_weights all = weights_at(s, weights), g = weights_at(s, gradients);
  const int64_t rows = s->batch * s->n, d = s->width;
  memset(gradients, 0, (size_t)small_weights_count(s) * sizeof *gradients);
  memset(m->dx, 0, (size_t)(rows * d) * sizeof *m->dx);
  cross_entropy_backward(rows, s->vocabulary, scored_rows, targets, m->logits);
  linear_backward(&m->products, rows, d, s->vocabulary, m->normed, all.tokens, m->logits, false, m->dnormed,
                  g.tokens);
  rms_backward(rows, d, m->x, all.last_gain, m->dnormed, m->dx, g.last_gain);
  for (int64_t l = s->layers; l-- > 0;) {
    const attn_status status = layer_backward(m, &m->layer[l], layer_at(s, all, l), layer_at(s, g, l));
    if (status) return status;
  }
  for (int64_t i = 0; i < rows; i++) {
    attn_add_times(1, m->dx + i * d, g.tokens + tokens[i] * d, d);
    attn_add_times(1, m->dx + i * d, g.places + i % s->n * d, d);
  }
  return ATTN_OK;
}

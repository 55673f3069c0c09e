/* train_run.c - see train_run.h. */
#include "experiments/training/train_run.h"

#include "experiments/training/adamw.h"

const train_settings train_presets = {
    .batch = 16, .tests = 16, .width = 32, .heads = 1, .layers = 2, .inner = 64, .decay = 0.01};

enum { PURPOSE_WEIGHTS = 0x747731, PURPOSE_TRAIN, PURPOSE_TEST };

small_shape train_shape(const train_task *task, const train_settings *s) {
  return (small_shape){.vocabulary = task->vocabulary,
                       .n = task->n,
                       .batch = s->batch,
                       .width = s->width,
                       .heads = s->heads,
                       .layers = s->layers,
                       .inner = s->inner,
                       .attention = ATTN_F32};
}

/* Each batch has a stream of draws. */
static void draw_batch(const train_task *task, int64_t batch, uint64_t seed, uint64_t purpose, int64_t index,
                       int32_t *tokens, int32_t *targets) {
  attn_rng rng;
  attn_rng_init(&rng, seed, purpose, (uint64_t)index);
  for (int64_t i = 0; i < batch * task->n; i++) targets[i] = -1;
  for (int64_t b = 0; b < batch; b++) task->draw(task, &rng, tokens + b * task->n, targets + b * task->n);
}

attn_status train_run(const train_task *task, const train_settings *s, const attn_spec *spec, uint64_t seed,
                      double *weights, double *curve) {
  const small_shape shape = train_shape(task, s);
  const int64_t count = small_weights_count(&shape), rows = shape.batch * shape.n,
                spans = train_spans(task, s);
  scored met[TRAIN_SPANS] = {{0}};
  region memory = {NULL, false};
  small_model model = {.plan = NULL};
  double *gradients = region_take(&memory, count, sizeof *gradients),
         *first = region_zeros(&memory, count, sizeof *first),
         *second = region_zeros(&memory, count, sizeof *second);
  bool *decays = region_take(&memory, count, sizeof *decays);
  int32_t *tokens = region_take(&memory, rows, sizeof *tokens),
          *targets = region_take(&memory, rows, sizeof *targets);
  attn_status status = region_status(&memory, "for a training");
  if (!status) status = small_model_make(&shape, spec, &model);
  if (status) goto out;
  attn_rng rng;
  attn_rng_init(&rng, seed, PURPOSE_WEIGHTS, 0);
  small_weights_draw(&shape, &rng, weights);
  small_weights_decay(&shape, decays);
  adamw a = {.count = count,
             .steps = train_steps(task, s),
             .rate = task->rate,
             .decay = s->decay,
             .decays = decays,
             .first = first,
             .second = second};
  while (!status && a.step < a.steps) {
    scored score;
    draw_batch(task, s->batch, seed, PURPOSE_TRAIN, a.step, tokens, targets);
    status = small_model_forward(&model, weights, tokens, targets, &score);
    if (!status) status = small_model_backward(&model, weights, tokens, targets, score.rows, gradients);
    if (status) break;
    scored *span = &met[a.step * spans / a.steps];
    span->loss += score.loss;
    span->rows += score.rows;
    adamw_step(&a, gradients, weights);
  }
  for (int64_t i = 0; !status && i < spans; i++) curve[i] = met[i].loss / (double)met[i].rows;
out:
  small_model_free(&model);
  region_free(&memory);
  return status;
}

attn_status train_test(const train_task *task, const train_settings *s, const attn_spec *spec, uint64_t seed,
                       const double *weights, train_score *out) {
  const small_shape shape = train_shape(task, s);
  const int64_t rows = shape.batch * shape.n;
  region memory = {NULL, false};
  small_model model = {.plan = NULL};
  int32_t *tokens = region_take(&memory, rows, sizeof *tokens),
          *targets = region_take(&memory, rows, sizeof *targets);
  scored all = {0};
  attn_status status = region_status(&memory, "for a test");
  if (!status) status = small_model_make(&shape, spec, &model);
  for (int64_t i = 0; !status && i < s->tests; i++) {
    scored score;
    draw_batch(task, s->batch, seed, PURPOSE_TEST, i, tokens, targets);
    status = small_model_forward(&model, weights, tokens, targets, &score);
    if (status) break;
    all.loss += score.loss;
    all.rows += score.rows;
    all.right += score.right;
  }
  if (!status) *out = (train_score){all.loss / (double)all.rows, (double)all.right / (double)all.rows};
  small_model_free(&model);
  region_free(&memory);
  return status;
}

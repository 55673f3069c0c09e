/* small_model.h - a causal model of tokens, small enough to be trained in seconds, in fp64:
 *   x = E[token] + P[position];  a layer: x += attention(rms(x) Wq^T, rms(x) Wk^T, rms(x) Wv^T) Wo^T,
 *   x += swiglu(rms(x) Wu^T) Wd^T;  logits = rms(x) E^T
 * Attention is that of any spec with gradients, in all layers, on tensors of fp32 or fp64. Of it o and
 * log-sum-exps are kept for the backward pass, of the rest the activations. */
#ifndef EXPERIMENTS_TRAINING_SMALL_MODEL_H
#define EXPERIMENTS_TRAINING_SMALL_MODEL_H

#include "experiments/support/region.h"
#include "experiments/training/differentiable.h"

typedef struct small_shape {
  int64_t vocabulary, n, batch; /* n: positions of a sequence */
  int64_t width, heads, layers, inner;
  attn_dtype attention; /* of its tensors: ATTN_F32 or ATTN_F64 */
} small_shape;

int64_t small_weights_count(const small_shape *);
/* Normal numbers of deviation 1 / sqrt(inputs) in matrices, those that add to x 1 / sqrt(2 layers) of it; 0.5
 * in E and P; gains are 1. */
void small_weights_draw(const small_shape *, attn_rng *, double *weights);
/* Which weights decay: those of a layer's matrices. */
void small_weights_decay(const small_shape *, bool *decays);

typedef struct small_activations {
  double *x, *normed, *o, *lse, *middle, *normed_middle, *up, *gated;
  void *qkv, *mixed; /* q, k and v side by side, and o, as attention takes and gives them */
} small_activations;

typedef struct small_model {
  small_shape shape;
  attn_plan *plan;
  void *work;
  products products;
  small_activations *layer; /* [layers] */
  double *x, *normed;       /* [batch * n, width] behind the last layer */
  double *logits;           /* [batch * n, vocabulary] */
  double *qkv, *dx, *dnormed, *dqkv, *dup, *dgated;
  void *dmixed, *dheads; /* by mixed, and by q, k and v of each head, as attention takes and gives them */
  region memory;
} small_model;

/* What attention the spec makes of the model: EUNSUPPORTED if it is not causal or has no gradients. *later:
 * to be freed; why a position may depend on later tokens, as the variant declares it; NULL: it does not. */
attn_status small_attention_check(const small_shape *, const attn_spec *, char **later);

attn_status small_model_make(const small_shape *, const attn_spec *, small_model *);
void small_model_free(small_model *);

/* The logits of tokens [batch, n], and how they score. */
attn_status small_model_forward(small_model *, const double *weights, const int32_t *tokens,
                                const int32_t *targets, scored *);
/* After a forward pass of the same tokens: gradients, of the loss of a scored row in the mean. The logits are
 * overwritten. */
attn_status small_model_backward(small_model *, const double *weights, const int32_t *tokens,
                                 const int32_t *targets, int64_t scored_rows, double *gradients);

#endif

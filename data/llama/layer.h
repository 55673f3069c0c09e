/* layer.h - the forward pass of the Llama architecture (Touvron et al. 2023), f32, a layer and a window at a
 * time.
 *
 * x = E[token]; a layer: h = rms(x) * g1; q, k, v = h Wq^T, h Wk^T, h Wv^T; q, k rotated; x += attention(q,
 * k, v) Wo^T; h = rms(x) * g2; x += (silu(h Wg^T) * (h Wu^T)) Wd^T; logits = (rms(x) * g) H^T; rms(x) = x /
 * sqrt(mean(x^2) + eps). Qwen2 adds biases to q, k and v; Qwen3 takes rms of each head of q and k, times a
 * vector, before they are rotated.
 *
 * A layer's weights are widened to f32 and packed for products once, and serve all windows and streams.
 * Products are the library's; the bits are the same for any number of threads. Internal to data/. */
#ifndef DATA_LLAMA_LAYER_H
#define DATA_LLAMA_LAYER_H

#include "data/llama/llama.h"
#include "data/weights/product.h"

typedef struct llama_weights {
  float *attention_norm, *mlp_norm, *q_norm, *k_norm;
  product_matrix q, k, v, o, gate, up, down;
} llama_weights;

/* What the layers of one window of n positions are computed in. */
typedef struct llama_window {
  const data_llama *model;
  product_tools tools;
  int64_t n;
  float *h;                 /* [n, hidden] */
  float *q, *k, *v, *mixed; /* [n, heads * d], [n, kv_heads * d] twice, [n, heads * d] */
  float *gate, *up;         /* [n, intermediate] */
  double *frequency;        /* [rotary_dim/2] */
  double *turns;            /* [n, rotary_dim]: rotations at positions turns_first ... */
  int64_t turns_first;
} llama_window;

attn_status llama_window_make(const data_llama *, const attn_kernels *, int64_t n, llama_window *);
void llama_window_free(llama_window *);

/* The weights of a layer in place of those before: zeroed at first, the same memory for all layers of a
 * model. */
attn_status llama_weights_load(const llama_window *, int64_t layer, llama_weights *);
void llama_weights_free(llama_weights *);

/* h[n, hidden] = rms(x) * weight */
void llama_normalise(const llama_window *, int64_t n, const float *x, const float *weight, float *h);

/* The hidden states [windows, n, hidden] before layer `layers`, and what the next one is computed in; both to
 * be freed. */
attn_status llama_hidden(const data_llama *, const int64_t *tokens, int64_t windows, int64_t n,
                         int64_t layers, float **out, llama_window *);

/* x [n, hidden] to q, k and v; rotated at positions first ... by llama_rotate. */
void llama_project(llama_window *, const llama_weights *, const float *x);
void llama_rotate(llama_window *, int64_t first);
/* x += mixed Wo^T */
void llama_add(llama_window *, const llama_weights *, float *x);
/* The layer's second half. */
void llama_finish(llama_window *, const llama_weights *, float *x);

#endif

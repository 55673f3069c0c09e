/* layer.h - the forward pass of a model, f32, a layer and a window at a time; architectures.h has what
 * differs.
 *
 * x = E[token], times a constant, plus the row of a learned position; a layer: h = norm(x); q, k, v = h Wq^T,
 * h Wk^T, h Wv^T, some models' q and k normalised; q, k rotated; x += attention(q, k, v) Wo^T; h = norm(x);
 * x += (f(h Wg^T) * (h Wu^T)) Wd^T, or f(h Wu^T) Wd^T; logits = norm(x) H^T. rms(x) = x / sqrt(mean(x^2) +
 * eps) * w; LayerNorm (Ba et al. 2016): the same of x - mean(x), + b. What attention and MLP add may be
 * normalised and multiplied first; a parallel block computes both from one x. Several MLPs in place of one:
 * experts.c.
 *
 * A layer's weights are widened to f32 and packed for products once, and serve all windows and streams; a
 * token at a time reads them where they are stored.
 * Products are the library's; the bits are the same for any number of threads. Internal to data/. */
#ifndef DATA_LLAMA_LAYER_H
#define DATA_LLAMA_LAYER_H

#include "data/llama/llama.h"
#include "data/weights/product.h"

typedef struct llama_norm {
  float *weight, *bias; /* weight NULL: there is no such norm */
  int64_t count;        /* of numbers: of a row, or of several in turn */
} llama_norm;

/* product_matrix_load or product_matrix_place. */
typedef attn_status llama_matrix_get(const product_tools *, const product_rows *, product_matrix *);

typedef struct llama_weights {
  llama_norm norm[LLAMA_NORMS];
  product_matrix matrix[LLAMA_PARTS]; /* from LLAMA_Q on */
  llama_matrix_get *get;              /* of matrices, those of experts too */
} llama_weights;

/* How the heads of some layers turn, at positions first ... */
typedef struct llama_rotation {
  double *frequency; /* [rotary_dim/2] */
  double *turns;     /* [n, rotary_dim] */
  double attention;
  int64_t first;
} llama_rotation;

/* What the layers of one window of n positions are computed in. */
typedef struct llama_window {
  const data_llama *model;
  product_tools tools;
  int64_t n;
  float *h, *added;           /* [n, hidden] */
  float *q, *k, *v, *mixed;   /* [n, heads * d], [n, kv_heads * d] twice, [n, heads * d] */
  float *gate, *up;           /* [n, the widest MLP] */
  product_matrix expert[3];   /* gate, up and down of the one that was used last */
  llama_rotation rotation[2]; /* the second in layers with a window, if they have their own base */
  llama_norm embedding_norm;
  float *type; /* [hidden] what is added to every embedding; NULL: nothing */
} llama_window;

attn_status llama_window_make(const data_llama *, const attn_kernels *, int64_t n, llama_window *);
void llama_window_free(llama_window *);

/* The weights of a layer in place of those before: zeroed at first, the same memory for all layers of a
 * model. */
attn_status llama_weights_load(const llama_window *, int64_t layer, llama_matrix_get *, llama_weights *);
void llama_weights_free(llama_weights *);

/* Of a norm, or of `count` for as many rows in turn. */
attn_status llama_norm_load(const data_llama *, const product_rows *, int64_t count, llama_norm *);
void llama_norm_free(llama_norm *);
/* h[n, hidden] = norm(x) */
void llama_normalise(const llama_window *, int64_t n, const float *x, const llama_norm *, float *h);

/* x[hidden] of a token at a position. */
attn_status llama_embed(llama_window *, int64_t token, int64_t position, float *x);

/* The hidden states [windows, n, hidden] before layer `layers`, and what the next one is computed in; both to
 * be freed. */
attn_status llama_hidden(const data_llama *, const int64_t *tokens, int64_t windows, int64_t n,
                         int64_t layers, float **out, llama_window *window);

/* x [n, hidden] to q, k and v. */
void llama_project(llama_window *, const llama_weights *, const float *x);
/* Of that layer, at positions first ...; or, each_row false, all rows at `first`. */
void llama_rotate(llama_window *, int64_t layer, bool each_row, int64_t first);
/* Adds to x what the attention gives. Returns [n, hidden]: x, or, where a norm or a constant comes between,
 * mixed Wo^T, which is to be seen until the next call. */
const float *llama_add(llama_window *, const llama_weights *, float *x);
/* f(h Wg^T) * (h Wu^T), or f(h Wu^T), of n rows, [n, rows of Wu], to be seen until the next call. matrix:
 * gate, up and down. */
float *llama_activate(llama_window *, const product_matrix matrix[3], int64_t n, const float *h);
/* The layer's second half, for `count` states [n, hidden] at once. */
attn_status llama_finish(llama_window *, int64_t layer, const llama_weights *, float *const *x,
                         int64_t count);
/* The same where experts are mixed. */
attn_status llama_mix(llama_window *, int64_t layer, const llama_weights *, float *const *x, int64_t count);
/* Logits [count] of products with the output layer. */
void llama_bend_logits(const llama_window *, int64_t count, float *logits);

#endif

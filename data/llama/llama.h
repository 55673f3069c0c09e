/* llama.h - a model as its files give it; what loading, the forward pass and captures share. Internal to
 * data/. */
#ifndef DATA_LLAMA_LLAMA_H
#define DATA_LLAMA_LLAMA_H

#include "attn_variant.h"
#include "data/llama/architectures.h"
#include "data/weights/product.h"
#include "data/weights/weights.h"

/* A tensor, and where its rows are; weight NULL: the architecture has none. A vector has no columns. */
typedef struct llama_layer {
  product_rows part[LLAMA_PARTS];
  /* What there is one of for each expert, [experts][gate, up, down], or for each head, norms of q and of k;
   * NULL: nothing. */
  product_rows *one;
  const tensor *sinks; /* [heads] */
} llama_layer;

/* Which keys a query sees in a window of n positions: `before` behind it and `after` before it. */
typedef struct llama_seen {
  int64_t before, after, n;
  attn_pattern pattern; /* its state is this */
} llama_seen;

struct data_llama {
  data_llama_config config;
  const llama_architecture *kind;
  char *path;
  char config_sha256[65]; /* of config.json; "": the configuration is in the file of the weights */
  weights *files;
  bool in_gguf;                                   /* where matrices are plain, and norms times w */
  product_rows embedding, positions, types, head; /* [vocab, hidden], [positions, hidden], [types, hidden] */
  product_rows embedding_norm, norm;              /* [hidden] */
  llama_layer *layer;
  llama_seen seen;           /* of layers with a window; causal */
  const tensor *divisors[2]; /* of rotary frequencies, in a GGUF file; NULL: none */
  double *sinks;             /* [layers, heads] logits of attention's sinks; NULL: none */
};

void llama_seen_make(const data_llama_config *, bool both_ways, int64_t n, llama_seen *);

/* EINVAL: the model has no such layer. */
attn_status llama_check_layer(const data_llama *, int64_t layer);

/* Opens a model, an encoder, too. */
attn_status llama_open(const char *path, data_llama **);

/* The tensors of *m, whose configuration, kind and files are set. */
attn_status llama_find_tensors(data_llama *m);

/* Reads DIRECTORY/config.json. What is set is to be freed by llama_config_free. */
attn_status llama_read_config(const char *directory, data_llama_config *out);
/* Reads the keys of a GGUF file; what it has of divisors is a tensor. */
attn_status llama_read_gguf(const gguf *, data_llama_config *out);

#endif

/* llama.h - a model as its files give it; what loading, the forward pass and captures share. Internal to
 * data/. */
#ifndef DATA_LLAMA_LLAMA_H
#define DATA_LLAMA_LLAMA_H

#include "attn_variant.h"
#include "data/data.h"
#include "data/weights/weights.h"

/* A linear layer; bias NULL: it has none. */
typedef struct llama_linear {
  const tensor *weight, *bias;
} llama_linear;

typedef struct llama_layer {
  const tensor *attention_norm, *mlp_norm; /* [hidden] */
  const tensor *q_norm, *k_norm;           /* [d], or NULL */
  llama_linear q, k, v, o;                 /* [heads*d, hidden], [kv_heads*d, hidden] twice, back */
  llama_linear gate, up, down;             /* [intermediate, hidden] twice, back */
} llama_layer;

struct data_llama {
  data_llama_config config;
  char *path;
  char config_sha256[65]; /* of config.json; "": the configuration is in the file of the weights */
  weights *files;
  const tensor *embedding, *norm, *head; /* [vocab, hidden], [hidden], [vocab, hidden] */
  llama_layer *layer;
  attn_pattern seen;         /* of layers with a window */
  const tensor *divisors[2]; /* of rotary frequencies, in a GGUF file; NULL: none */
  /* Of those rows of each head of q and k that turn, 2i and 2i + 1 are a pair, not i and i + rotary_dim/2. */
  bool adjacent_pairs;
};

/* Reads DIRECTORY/config.json. out->rope.divisors is to be freed. */
attn_status llama_read_config(const char *directory, data_llama_config *out);
/* Reads the keys of a GGUF file; what it has of divisors is a tensor. */
attn_status llama_read_gguf(const gguf *, data_llama_config *out);

#endif

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
  attn_pattern seen;          /* of layers with a window */
  double *frequency_divisors; /* [d/2], of rotary positions; NULL: none */
  const tensor *divisors;
  /* The rows 2i and 2i + 1 of each head of q and k are a rotary pair, not i and i + d/2. */
  bool adjacent_pairs;
};

/* Frequencies of rotary positions [d/2] in a window of n. */
void llama_frequencies(const data_llama *, int64_t n, double *frequency);

/* Reads DIRECTORY/config.json. */
attn_status llama_read_config(const char *directory, data_llama_config *out);
/* Reads the keys of a GGUF file. */
attn_status llama_read_gguf(const gguf *, data_llama_config *out);

#endif

/* llama.h - a model as its files give it; what loading, the forward pass and captures share. Internal to
 * data/. */
#ifndef DATA_LLAMA_LLAMA_H
#define DATA_LLAMA_LLAMA_H

#include "data/data.h"
#include "data/llama/weights.h"

typedef struct llama_layer {
  const tensor *attention_norm, *q, *k, *v,
      *o; /* [hidden]; [heads*d, hidden], [kv_heads*d, hidden] twice, back */
  const tensor *mlp_norm, *gate, *up, *down; /* [hidden]; [intermediate, hidden] twice, back */
} llama_layer;

struct data_llama {
  data_llama_config config;
  char *path;
  weights *files;
  const tensor *embedding, *norm, *head; /* [vocab, hidden], [hidden], [vocab, hidden] */
  llama_layer *layer;
  /* The rows 2i and 2i + 1 of each head of q and k are a rotary pair, not i and i + d/2. */
  bool adjacent_pairs;
};

/* Reads DIRECTORY/config.json. */
attn_status llama_read_config(const char *directory, data_llama_config *out);
/* Reads the keys of a GGUF file. */
attn_status llama_read_gguf(const gguf *, data_llama_config *out);

#endif

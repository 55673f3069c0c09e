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
  char *directory;
  weights *files;
  const tensor *embedding, *norm, *head; /* [vocab, hidden], [hidden], [vocab, hidden] */
  llama_layer *layer;
};

/* Reads DIRECTORY/config.json. */
attn_status llama_read_config(const char *directory, data_llama_config *out);

#endif

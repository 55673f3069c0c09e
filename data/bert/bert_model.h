/* bert_model.h - the tensors of an encoder. Internal to data/bert/. */
#ifndef DATA_BERT_BERT_MODEL_H
#define DATA_BERT_BERT_MODEL_H

#include "data/bert/bert.h"
#include "data/weights/weights.h"

/* A linear layer, or what follows a norm: scale and shift. */
typedef struct bert_pair {
  const tensor *weight, *bias;
} bert_pair;

typedef struct bert_layer {
  bert_pair q, k, v, o, attention_norm, up, down, norm;
} bert_layer;

struct bert {
  bert_config config;
  char *path;
  weights *files;
  const tensor *words, *positions, *types; /* [vocab, hidden], [max_positions, hidden], [1 or more, hidden] */
  bert_pair norm;
  bert_layer *layer;
};

#endif

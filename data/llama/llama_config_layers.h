/* llama_config_layers.h - what config.json says of single layers. Internal to data/llama/. */
#ifndef DATA_LLAMA_LLAMA_CONFIG_LAYERS_H
#define DATA_LLAMA_LLAMA_CONFIG_LAYERS_H

#include <jansson.h>

#include "data/llama/architectures.h"

/* Sets c->window and the bits of c->layer. path: for messages. */
attn_status llama_read_layers(const char *path, const json_t *config, const llama_architecture *,
                              data_llama_config *c);

#endif

/* llama.c - opening a model. */
#include "data/llama/llama.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/llama/reach.h"
#include "data/support/file.h"

static attn_status digest_config(data_llama *m) {
  file_map map;
  char *path = file_join(m->path, "config.json");
  attn_status status = path ? file_map_open(path, &map) : ATTN_ENOMEM;
  if (!status) {
    data_sha256(map.at, map.bytes, m->config_sha256);
    file_map_close(&map);
  }
  free(path);
  return status;
}

static attn_status load(data_llama *m, bool encoders) {
  m->in_gguf = file_is_regular(m->path);
  attn_status status = m->in_gguf ? ATTN_OK : llama_read_config(m->path, &m->config);
  if (!status && !m->in_gguf) status = digest_config(m);
  if (!status) status = weights_open(m->path, &m->files);
  if (!status && m->in_gguf) status = llama_read_gguf(weights_gguf(m->files), &m->config);
  if (status) return status;
  m->kind = llama_architecture_of(&m->config);
  if (m->kind->encoder && !encoders)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "%s: model_type is %s, an encoder, which predicts no next token: only capture reads it",
                     m->path, m->kind->name);
  llama_seen_make(&m->config, false, INT64_MAX, &m->seen);
  return llama_find_tensors(m);
}

static attn_status open_model(const char *path, bool encoders, data_llama **out) {
  data_llama *m = calloc(1, sizeof *m);
  if (!m) return attn_fail(ATTN_ENOMEM, "%s: no memory", path);
  m->path = text_format("%s", path);
  attn_status status = m->path ? load(m, encoders) : ATTN_ENOMEM;
  if (!status)
    *out = m;
  else
    data_llama_close(m);
  return status;
}

attn_status llama_open(const char *path, data_llama **out) { return open_model(path, true, out); }

attn_status data_llama_open(const char *path, data_llama **out) { return open_model(path, false, out); }

void data_llama_close(data_llama *m) {
  if (!m) return;
  weights_close(m->files);
  for (int64_t i = 0; m->layer && i < m->config.layers; i++) free(m->layer[i].one);
  free(m->layer);
  free(m->sinks);
  llama_config_free(&m->config);
  free(m->path);
  free(m);
}

const data_llama_config *data_llama_get_config(const data_llama *m) { return &m->config; }

void data_llama_sha256(const data_llama *m, char hex[65]) { weights_sha256(m->files, hex); }

void data_llama_config_sha256(const data_llama *m, char hex[65]) {
  if (*m->config_sha256)
    memcpy(hex, m->config_sha256, sizeof m->config_sha256);
  else
    weights_sha256(m->files, hex);
}

attn_status data_llama_output(const data_llama *m, int64_t layer, float *to) {
  return product_rows_widen(&m->layer[layer].part[LLAMA_O], to);
}

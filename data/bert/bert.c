/* bert.c - opening an encoder: its numbers, and every tensor that they call for, with its shape. */
#include "data/bert/bert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/bert/bert_model.h"
#include "data/support/file.h"
#include "data/support/json_setting.h"

enum { SIZE_MAX_HERE = 1 << 28, LAYERS_MAX = 1 << 16, NAME_MAX_LENGTH = 128 };

bool bert_is(const char *directory) {
  char *path = NULL;
  json_t *config = NULL;
  bool is = false;
  if (!file_is_regular(directory) && !json_config_read(directory, &path, &config)) {
    const setting type = json_setting(config, "model_type");
    is = type.kind == SETTING_TEXT && strcmp(type.text, "bert") == 0;
  }
  json_decref(config);
  free(path);
  return is;
}

static attn_status parse(const char *path, const json_t *config, bert_config *c) {
  const struct {
    const char *key;
    int64_t max, *to;
  } sizes[] = {{"vocab_size", SIZE_MAX_HERE, &c->vocab},
               {"hidden_size", SIZE_MAX_HERE, &c->hidden},
               {"intermediate_size", SIZE_MAX_HERE, &c->intermediate},
               {"num_hidden_layers", LAYERS_MAX, &c->layers},
               {"num_attention_heads", LAYERS_MAX, &c->heads},
               {"max_position_embeddings", SIZE_MAX_HERE, &c->max_positions}};
  const struct {
    const char *key, *wanted;
  } texts[] = {{"model_type", "bert"}, {"hidden_act", "gelu"}, {"position_embedding_type", "absolute"}};
  bool decoder = false;
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < sizeof texts / sizeof *texts; i++)
    status = setting_expect(path, texts[i].key, json_setting(config, texts[i].key), texts[i].wanted, i == 0);
  if (!status) status = setting_flag(path, "is_decoder", json_setting(config, "is_decoder"), &decoder);
  if (!status && decoder) status = attn_fail(ATTN_EUNSUPPORTED, "%s: is_decoder is not supported", path);
  for (size_t i = 0; !status && i < sizeof sizes / sizeof *sizes; i++)
    status =
        setting_size(path, sizes[i].key, json_setting(config, sizes[i].key), 0, sizes[i].max, sizes[i].to);
  if (!status)
    status =
        setting_real(path, "layer_norm_eps", json_setting(config, "layer_norm_eps"), 1e-12, 0, 1, &c->eps);
  if (!status && c->hidden % c->heads != 0)
    status =
        attn_fail(ATTN_EINVAL, "%s: num_attention_heads=%" PRId64 " does not divide hidden_size=%" PRId64,
                  path, c->heads, c->hidden);
  return status;
}

static attn_status read_config(const char *directory, bert_config *out) {
  char *path = NULL;
  json_t *config = NULL;
  bert_config c = {0};
  attn_status status = json_config_read(directory, &path, &config);
  if (!status) status = parse(path, config, &c);
  if (!status) *out = c;
  json_decref(config);
  free(path);
  return status;
}

/* -- tensors -- */

/* columns 0: a vector; rows 0: any number. Files of BertModel alone leave out the prefix. */
static attn_status find(const bert *m, const char *name, int64_t rows, int64_t columns, const tensor **out) {
  char longer[NAME_MAX_LENGTH + 8];
  snprintf(longer, sizeof longer, "bert.%s", name);
  const tensor *t = weights_find(m->files, name);
  if (!t) t = weights_find(m->files, longer);
  if (!t) return attn_fail(ATTN_EINVAL, "%s: tensor %s is missing", m->path, name);
  const int rank = columns > 0 ? 2 : 1;
  if (t->rank != rank || (rows > 0 && t->shape[0] != rows) || (columns > 0 && t->shape[1] != columns))
    return attn_fail(
        ATTN_EINVAL, "%s: tensor %s is not a %s of %" PRId64 " x %" PRId64 " as the configuration says",
        t->file, t->name, rank == 2 ? "matrix" : "vector", rows > 0 ? rows : 1, columns > 0 ? columns : 1);
  if (!t->format->widen)
    return attn_fail(ATTN_EUNSUPPORTED, "%s: tensor %s is %s; expected a format of floating point", t->file,
                     t->name, t->format->name);
  *out = t;
  return ATTN_OK;
}

/* columns 0: a norm. */
static attn_status find_pair(const bert *m, const char *place, int64_t rows, int64_t columns,
                             bert_pair *out) {
  char name[NAME_MAX_LENGTH];
  snprintf(name, sizeof name, "%s.weight", place);
  attn_status status = find(m, name, rows, columns, &out->weight);
  snprintf(name, sizeof name, "%s.bias", place);
  return status ? status : find(m, name, rows, 0, &out->bias);
}

static attn_status find_layer(const bert *m, int64_t index, bert_layer *l) {
  const int64_t d = m->config.hidden, inner = m->config.intermediate;
  const struct {
    const char *name;
    int64_t rows, columns;
    bert_pair *to;
  } table[] = {{"attention.self.query", d, d, &l->q},
               {"attention.self.key", d, d, &l->k},
               {"attention.self.value", d, d, &l->v},
               {"attention.output.dense", d, d, &l->o},
               {"attention.output.LayerNorm", d, 0, &l->attention_norm},
               {"intermediate.dense", inner, d, &l->up},
               {"output.dense", d, inner, &l->down},
               {"output.LayerNorm", d, 0, &l->norm}};
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < sizeof table / sizeof *table; i++) {
    char place[NAME_MAX_LENGTH - 8];
    snprintf(place, sizeof place, "encoder.layer.%" PRId64 ".%s", index, table[i].name);
    status = find_pair(m, place, table[i].rows, table[i].columns, table[i].to);
  }
  return status;
}

static attn_status load(bert *m) {
  const bert_config *c = &m->config;
  char deeper[NAME_MAX_LENGTH];
  attn_status status = read_config(m->path, &m->config);
  if (!status) status = weights_open(m->path, &m->files);
  if (!status) status = find(m, "embeddings.word_embeddings.weight", c->vocab, c->hidden, &m->words);
  if (!status)
    status = find(m, "embeddings.position_embeddings.weight", c->max_positions, c->hidden, &m->positions);
  if (!status) status = find(m, "embeddings.token_type_embeddings.weight", 0, c->hidden, &m->types);
  if (!status) status = find_pair(m, "embeddings.LayerNorm", c->hidden, 0, &m->norm);
  if (status) return status;
  m->layer = calloc((size_t)c->layers, sizeof *m->layer);
  if (!m->layer) return attn_fail(ATTN_ENOMEM, "%s: no memory for its layers", m->path);
  for (int64_t i = 0; !status && i < c->layers; i++) status = find_layer(m, i, &m->layer[i]);
  if (status) return status;
  snprintf(deeper, sizeof deeper, "encoder.layer.%" PRId64 ".output.dense.weight", c->layers);
  if (weights_find(m->files, deeper))
    return attn_fail(ATTN_EINVAL, "%s: tensor %s is there, and num_hidden_layers is %" PRId64, m->path,
                     deeper, c->layers);
  return ATTN_OK;
}

attn_status bert_open(const char *directory, bert **out) {
  bert *m = calloc(1, sizeof *m);
  if (!m) return attn_fail(ATTN_ENOMEM, "%s: no memory", directory);
  m->path = text_format("%s", directory);
  attn_status status = m->path ? load(m) : ATTN_ENOMEM;
  if (!status)
    *out = m;
  else
    bert_close(m);
  return status;
}

void bert_close(bert *m) {
  if (!m) return;
  weights_close(m->files);
  free(m->layer);
  free(m->path);
  free(m);
}

const bert_config *bert_get_config(const bert *m) { return &m->config; }

void bert_sha256(const bert *m, char hex[65]) { weights_sha256(m->files, hex); }

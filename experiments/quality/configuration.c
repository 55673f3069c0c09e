/* configuration.c - the section eval (configuration.h). */
#include "experiments/quality/configuration.h"

#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "experiments/grid/config_keys.h"
#include "experiments/grid/config_specs.h"

struct quality_configuration {
  quality_request base;
  tree_node *root;
  value_texts task, layers, heads, phase;
  value_ints n, seed;
  double *mix;
  config_specs variants;
  const char **specs;
};

#define BASE(member) offsetof(quality_configuration, base.member)
#define OWN(member) offsetof(quality_configuration, member)
static const config_key keys[] = {
    {"eval", "model", KEY_TEXT, BASE(ids.model), 0, 0, "", "a directory, or a GGUF file"},
    {"eval", "text", KEY_TEXT, BASE(ids.text), 0, 0, "", "the text that it is asked about; or"},
    {"eval", "tokens", KEY_TEXT, BASE(ids.tokens), 0, 0, "", "token ids, .npy"},
    {"eval", "bos", KEY_TEXT, BASE(ids.bos), 0, 0, "the model's",
     "the token that every window begins with, or none"},
    {"eval", "task", KEY_TEXTS, OWN(task), 0, 0, "text",
     "what is asked, such as copy:gap=0 (`attnlab eval --help')"},
    {"eval", "layers", KEY_TEXTS, OWN(layers), 0, 0, "all", "where attention is replaced: all, each, 0,3"},
    {"eval", "heads", KEY_TEXTS, OWN(heads), 0, 0, "all", "and in which heads of these"},
    {"eval", "phase", KEY_TEXTS, OWN(phase), 0, 0, "both",
     "both, prefill:M (all queries but the last M) or decode:M (the last M)"},
    {"eval", "n", KEY_INTS, OWN(n), 2, INT32_MAX, "1024", "positions of a window"},
    {"eval", "seed", KEY_INTS, OWN(seed), 0, 1e15, "0", "of the windows' places, and of draws"},
    {"eval", "windows", KEY_INT, BASE(windows), 1, INT32_MAX, NULL,
     "windows; fewer than 8 give no intervals"},
    {"eval", "mix", KEY_REALS, OWN(mix), -QUALITY_MIX, QUALITY_MIX, "1",
     "share of the replacement's output, the rest is exact attention's"},
    {"eval", "margin", KEY_REAL, BASE(margin), -1e3, 1e3, NULL, "nats a token that \"no worse\" allows"},
    {"eval", "kl", KEY_REAL, BASE(kl_budget), 1e-12, 1e3, NULL,
     "divergence that the layers together may cost, nats a token"}};
enum { KEYS = sizeof keys / sizeof *keys };

static attn_status read_texts(const tree_node *node, const char *name, value_texts *out) {
  attn_status status = ATTN_OK;
  const bool list = node->kind == TREE_LIST;
  if (list && node->count == 0) return tree_fail(node, "%s: an empty list", name);
  for (size_t i = 0; !status && i < (list ? node->count : 1); i++) {
    const tree_node *item = list ? node->items[i] : node;
    if (item->kind != TREE_TEXT) return tree_fail(item, "%s: expected a text, or a list of texts", name);
    status = value_texts_add(out, item->text);
  }
  return status;
}

static attn_status read_reals(const tree_node *node, const config_key *k, quality_configuration *c) {
  const bool list = node->kind == TREE_LIST;
  const size_t count = list ? node->count : 1;
  attn_status status = ATTN_OK;
  if (count == 0) return tree_fail(node, "%s: an empty list", k->name);
  free(c->mix);
  if (!(c->mix = malloc(count * sizeof *c->mix))) return attn_fail(ATTN_ENOMEM, "no memory for mixes");
  for (size_t i = 0; !status && i < count; i++)
    status = values_read_real(list ? node->items[i] : node, k->name, k->min, k->max, &c->mix[i]);
  c->base.mix_count = (int64_t)count;
  return status;
}

static attn_status read_key(const tree_node *node, const config_key *k, quality_configuration *c) {
  void *at = (char *)c + k->offset;
  switch (k->type) {
  case KEY_TEXT:
    if (node->kind != TREE_TEXT) return tree_fail(node, "%s: expected a text", k->name);
    *(const char **)at = node->text;
    return ATTN_OK;
  case KEY_TEXTS:
    return read_texts(node, k->name, at);
  case KEY_INTS:
    return values_read_ints(node, k->name, (int64_t)k->min, (int64_t)k->max, at);
  case KEY_INT:
    return values_read_int(node, k->name, (int64_t)k->min, (int64_t)k->max, at);
  case KEY_REAL:
    return values_read_real(node, k->name, k->min, k->max, at);
  default:
    return read_reals(node, k, c);
  }
}

static attn_status read_section(const tree_node *section, quality_configuration *c) {
  if (section->kind != TREE_MAP) return tree_fail(section, "eval: expected {key: value, ...}");
  for (size_t i = 0; i < section->count; i++) {
    const tree_node *node = section->items[i];
    const config_key *k = config_key_find(keys, KEYS, "eval", node->key->text);
    attn_status status = k ? read_key(node, k, c) : config_key_unknown(node->key, "eval", keys, KEYS);
    if (status) return status;
  }
  if (!c->base.ids.model) return tree_fail(section, "the key 'eval.model' is missing");
  if (!c->base.ids.text == !c->base.ids.tokens)
    return tree_fail(section, "one of the keys 'eval.text' and 'eval.tokens' is expected");
  return ATTN_OK;
}

static attn_status fill_presets(quality_configuration *c) {
  attn_status status = ATTN_OK;
  const struct {
    value_texts *to;
    const char *preset;
  } texts[] = {{&c->task, "text"}, {&c->layers, "all"}, {&c->heads, "all"}, {&c->phase, "both"}};
  for (size_t i = 0; !status && i < sizeof texts / sizeof *texts; i++)
    if (!texts[i].to->count) status = value_texts_add(texts[i].to, texts[i].preset);
  if (!status && !c->n.count) status = value_ints_add(&c->n, 1024);
  if (!status && !c->seed.count) status = value_ints_add(&c->seed, 0);
  if (!status && !c->mix) {
    c->mix = malloc(sizeof *c->mix);
    if (!c->mix) return attn_fail(ATTN_ENOMEM, "no memory for mixes");
    *c->mix = 1;
    c->base.mix_count = 1;
  }
  return status;
}

static attn_status read_root(quality_configuration *c) {
  static const char *const known[] = {"schema", "eval", "variants"};
  const tree_node *root = c->root, *schema = tree_get(root, "schema"), *variants = tree_get(root, "variants");
  int64_t version = 0;
  if (!schema || schema->kind != TREE_TEXT || !attn_int_parse(schema->text, &version) || version != 1)
    return tree_fail(schema ? schema : root, "expected the key 'schema: 1'");
  for (size_t i = 0; i < root->count; i++) {
    size_t k = 0;
    while (k < 3 && strcmp(known[k], root->items[i]->key->text) != 0) k++;
    if (k == 3)
      return tree_fail(root->items[i]->key, "'%s' beside eval: only schema and variants may be",
                       root->items[i]->key->text);
  }
  if (!variants) return tree_fail(root, "the key 'variants' is missing");
  attn_status status = read_section(tree_get(root, "eval"), c);
  if (!status) status = fill_presets(c);
  if (!status) status = config_read_variants(variants, &c->variants);
  if (!status && !(c->specs = calloc(c->variants.count + 1, sizeof *c->specs)))
    status = attn_fail(ATTN_ENOMEM, "no memory for variants");
  for (size_t i = 0; !status && i < c->variants.count; i++) c->specs[i] = c->variants.items[i].text;
  return status;
}

static const quality_request presets = {.windows = 16, .margin = 0.01, .limit = 86400, .kl_budget = 0.01};

void quality_configuration_print_help(FILE *out) {
  const quality_configuration defaults = {.base = presets};
  config_keys_print(out, "eval", keys, KEYS, &defaults);
}

attn_status quality_configuration_load(const char *path, quality_configuration **out) {
  file_map map;
  attn_status status = file_map_open(path, &map);
  if (status) return status;
  quality_configuration *c = calloc(1, sizeof *c);
  if (!c) status = attn_fail(ATTN_ENOMEM, "%s: no memory for the configuration", path);
  if (!status) {
    c->base = presets;
    status = tree_parse(path, (const char *)map.at, map.bytes, &c->root);
  }
  file_map_close(&map);
  const bool asks = !status && c->root->kind == TREE_MAP && tree_get(c->root, "eval");
  if (asks) status = read_root(c);
  *out = NULL;
  if (asks && !status)
    *out = c;
  else
    quality_configuration_free(c);
  return status;
}

void quality_configuration_free(quality_configuration *c) {
  if (!c) return;
  value_texts *const texts[] = {&c->task, &c->layers, &c->heads, &c->phase};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) value_texts_free(texts[i]);
  value_ints_free(&c->n);
  value_ints_free(&c->seed);
  config_specs_free(&c->variants);
  free(c->mix);
  free(c->specs);
  tree_free(c->root);
  free(c);
}

size_t quality_configuration_count(const quality_configuration *c) {
  return c->layers.count * c->heads.count * c->phase.count * c->seed.count;
}

void quality_configuration_request(const quality_configuration *c, size_t index, quality_request *out) {
  *out = c->base;
  out->specs = c->specs;
  out->spec_count = (int64_t)c->variants.count;
  out->tasks = (const char *const *)c->task.items;
  out->task_count = (int64_t)c->task.count;
  out->n = (attn_int_list){(int64_t)c->n.count, c->n.items};
  out->mixes = c->mix;
  out->seed = c->seed.items[index % c->seed.count];
  index /= c->seed.count;
  out->phase = c->phase.items[index % c->phase.count];
  index /= c->phase.count;
  out->heads = c->heads.items[index % c->heads.count];
  out->layers = c->layers.items[index / c->heads.count];
}

/* config.c - see config.h. One table says which keys there are, what they hold and what they default to. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/grid/config_specs.h"
#include "experiments/results/row.h"

const char *const config_dtype_names[] = {"f32", "f64", NULL};
const char *const config_yes_no_names[] = {"no", "yes", NULL};

typedef enum { KEY_INTS, KEY_CHOICES, KEY_INT, KEY_REAL, KEY_YES_NO, KEY_SPECIAL } key_type;

typedef struct config_key {
  const char *section, *name; /* section "" is the top level */
  key_type type;
  size_t offset;
  double min, max;
  const char *const *choices;
  const char *preset; /* NULL: the key is needed, or config_defaults sets it */
} config_key;

#define FIELD(member) offsetof(config, member)
#define SIZE_LIMIT 1073741824.0       /* of one axis; the product is judged when a plan is made */
#define SEED_LIMIT 9007199254740992.0 /* what a double in the results holds exactly */
#define TIME_LIMIT 1e7
#define MAPS_LIMIT 4096.0 /* n^2 d multiply-adds in double precision, within a run's budget of time */

static const config_key keys[] = {
    {"grid", "n", KEY_INTS, FIELD(n), 1, SIZE_LIMIT, NULL, NULL},
    {"grid", "heads", KEY_INTS, FIELD(heads), 1, SIZE_LIMIT, NULL, "4"},
    {"grid", "kv_heads", KEY_INTS, FIELD(kv_heads), 0, SIZE_LIMIT, NULL, "0"},
    {"grid", "d", KEY_INTS, FIELD(d), 1, SIZE_LIMIT, NULL, "64"},
    {"grid", "d_v", KEY_INTS, FIELD(d_v), 0, SIZE_LIMIT, NULL, "0"},
    {"grid", "batch", KEY_INTS, FIELD(batch), 1, SIZE_LIMIT, NULL, "1"},
    {"grid", "causal", KEY_CHOICES, FIELD(causal), 0, 0, config_yes_no_names, "no"},
    {"grid", "dtype", KEY_CHOICES, FIELD(dtype), 0, 0, config_dtype_names, "f32"},
    {"grid", "seed", KEY_INTS, FIELD(seed), 0, SEED_LIMIT, NULL, "0"},
    {"grid", "data_seed", KEY_INTS, FIELD(data_seed), 0, SEED_LIMIT, NULL, "0"},
    {"timing", "min_time", KEY_REAL, FIELD(timing.min_time), 0, TIME_LIMIT, NULL, NULL},
    {"timing", "max_time", KEY_REAL, FIELD(timing.max_time), 0, TIME_LIMIT, NULL, NULL},
    {"timing", "warmup", KEY_REAL, FIELD(timing.warmup), 0, TIME_LIMIT, NULL, NULL},
    {"timing", "sample_time", KEY_REAL, FIELD(timing.sample_time), 0, TIME_LIMIT, NULL, NULL},
    {"timing", "target", KEY_REAL, FIELD(timing.target), 0, 1, NULL, NULL},
    {"timing", "samples", KEY_INT, FIELD(timing.samples), 1, 100000, NULL, NULL},
    {"timing", "rounds", KEY_INT, FIELD(timing.rounds), 1, 10000, NULL, NULL},
    {"budget", "time", KEY_REAL, FIELD(budget_time), 1e-3, TIME_LIMIT, NULL, NULL},
    {"budget", "memory", KEY_INT, FIELD(budget_memory), 1, SEED_LIMIT, NULL, NULL},
    {"", "threads", KEY_INTS, FIELD(threads), 0, 4096, NULL, "0"},
    {"", "cache", KEY_CHOICES, FIELD(cache), 0, 0, cache_state_names, "warm"},
    {"", "nulls", KEY_YES_NO, FIELD(nulls), 0, 0, NULL, NULL},
    {"", "maps", KEY_INT, FIELD(maps), 0, MAPS_LIMIT, NULL, NULL},
    {"", "schema", KEY_SPECIAL, 0, 0, 0, NULL, NULL},
    {"", "grid", KEY_SPECIAL, 0, 0, 0, NULL, NULL},
    {"", "variants", KEY_SPECIAL, 0, 0, 0, NULL, NULL},
    {"", "datasets", KEY_SPECIAL, 0, 0, 0, NULL, NULL},
    {"", "exclude", KEY_SPECIAL, 0, 0, 0, NULL, NULL},
    {"", "timing", KEY_SPECIAL, 0, 0, 0, NULL, NULL},
    {"", "budget", KEY_SPECIAL, 0, 0, 0, NULL, NULL},
};
enum { KEYS = sizeof keys / sizeof *keys };

static attn_status read_value(const tree_node *node, const config_key *k, config *c) {
  void *at = (char *)c + k->offset;
  value_ints choice = {0};
  attn_status status = ATTN_OK;
  switch (k->type) {
  case KEY_INTS:
    return values_read_ints(node, k->name, (int64_t)k->min, (int64_t)k->max, at);
  case KEY_CHOICES:
    return values_read_choices(node, k->name, k->choices, at);
  case KEY_INT:
    return values_read_int(node, k->name, (int64_t)k->min, (int64_t)k->max, at);
  case KEY_REAL:
    return values_read_real(node, k->name, k->min, k->max, at);
  case KEY_YES_NO:
    status = values_read_choices(node, k->name, config_yes_no_names, &choice);
    if (status == ATTN_OK && choice.count != 1) status = tree_fail(node, "%s: expected yes or no", k->name);
    if (status == ATTN_OK) *(bool *)at = choice.items[0] != 0;
    value_ints_free(&choice);
    return status;
  case KEY_SPECIAL:
    break;
  }
  return ATTN_OK;
}

static attn_status unknown_key(const tree_node *key, const char *section) {
  char known[256] = "";
  for (int i = 0; i < KEYS; i++) {
    if (strcmp(keys[i].section, section) != 0) continue;
    const size_t used = strlen(known);
    snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", keys[i].name);
  }
  return tree_fail(key, "unknown key '%s'%s%s, known: %s", key->text, *section ? " in " : "", section, known);
}

/* Every entry of a section's map, which may be absent. */
static attn_status read_section(const tree_node *map, const char *section, config *c) {
  if (map && map->kind != TREE_MAP) return tree_fail(map, "%s: expected {key: value, ...}", section);
  for (size_t i = 0; map && i < map->count; i++) {
    const tree_node *node = map->items[i];
    int k = 0;
    while (k < KEYS && (strcmp(keys[k].section, section) != 0 || strcmp(keys[k].name, node->key->text) != 0))
      k++;
    if (k == KEYS) return unknown_key(node->key, section);
    const attn_status status = read_value(node, &keys[k], c);
    if (status != ATTN_OK) return status;
  }
  return ATTN_OK;
}

/* Lists that the file does not name. */
static attn_status fill_presets(config *c) {
  attn_status status = ATTN_OK;
  for (int i = 0; status == ATTN_OK && i < KEYS; i++) {
    if (!keys[i].preset || ((value_ints *)((char *)c + keys[i].offset))->count) continue;
    char text[8];
    snprintf(text, sizeof text, "%s", keys[i].preset);
    status = read_value(&(tree_node){.kind = TREE_TEXT, .source = "preset", .text = text}, &keys[i], c);
  }
  return status;
}

static attn_status check_schema(const tree_node *root) {
  const tree_node *schema = tree_get(root, "schema");
  int64_t version = 0;
  if (!schema) return tree_fail(root, "the key 'schema: 1' is missing");
  if (schema->kind == TREE_TEXT && value_int(schema->text, &version) && version > 1)
    return tree_fail(schema, "schema %s is newer than this program, which knows schema 1", schema->text);
  return version == 1 ? ATTN_OK : tree_fail(schema, "schema: expected 1");
}

static attn_status require(const tree_node *map, const tree_node *root, const char *section,
                           const char *name) {
  const tree_node *place = map ? map : root;
  if (map && tree_get(map, name)) return ATTN_OK;
  return tree_fail(place, "the key '%s%s%s' is missing", section, *section ? "." : "", name);
}

static attn_status check_times(const tree_node *root, const config *c) {
  const tree_node *timing = tree_get(root, "timing");
  if (c->timing.min_time <= c->timing.max_time) return ATTN_OK;
  return tree_fail(timing ? timing : root, "timing: min_time %g exceeds max_time %g", c->timing.min_time,
                   c->timing.max_time);
}

static attn_status read_root(const tree_node *root, config *c) {
  static const char *const sections[] = {"", "grid", "timing", "budget"};
  if (root->kind != TREE_MAP) return tree_fail(root, "expected a map of keys (schema, grid, variants, ...)");
  attn_status status = check_schema(root);
  for (size_t i = 0; status == ATTN_OK && i < sizeof sections / sizeof *sections; i++)
    status = read_section(i ? tree_get(root, sections[i]) : root, sections[i], c);
  if (status == ATTN_OK) status = require(tree_get(root, "grid"), root, "grid", "n");
  if (status == ATTN_OK) status = require(root, root, "", "variants");
  if (status == ATTN_OK) status = require(root, root, "", "datasets");
  if (status == ATTN_OK) status = fill_presets(c);
  if (status == ATTN_OK) status = check_times(root, c);
  if (status == ATTN_OK) status = config_read_variants(tree_get(root, "variants"), &c->variants);
  if (status == ATTN_OK) status = config_read_datasets(tree_get(root, "datasets"), &c->datasets);
  const tree_node *exclude = tree_get(root, "exclude");
  return status == ATTN_OK && exclude ? config_read_exclude(exclude, c) : status;
}

/* The file's text and the overrides, for the record. */
static attn_status keep_text(config *c, const char *text, size_t length, const char *const *overrides,
                             size_t count) {
  size_t size = 0;
  FILE *stream = open_memstream(&c->text, &size);
  if (!stream) return attn_fail(ATTN_ENOMEM, "no memory for the configuration's text");
  fwrite(text, 1, length, stream);
  for (size_t i = 0; i < count; i++) fprintf(stream, "# --set %s\n", overrides[i]);
  return fclose(stream) == 0 ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the configuration's text");
}

static attn_status apply_override(tree_node *root, const char *override, const char *label) {
  const char *equals = strchr(override, '=');
  if (!equals) return attn_fail(ATTN_EINVAL, "%s: expected PATH=VALUE, such as grid.n=1Ki,2Ki", label);
  char *path = strndup(override, (size_t)(equals - override));
  if (!path) return attn_fail(ATTN_ENOMEM, "%s: no memory", label);
  const attn_status status = tree_set(root, label, path, equals + 1);
  free(path);
  return status;
}

attn_status config_parse(const char *source, const char *text, size_t length, const char *const *overrides,
                         size_t count, config **result) {
  tree_node *root = NULL;
  value_texts labels = {0};
  config *c = calloc(1, sizeof *c);
  if (!c) return attn_fail(ATTN_ENOMEM, "%s: no memory for the configuration", source);
  c->timing = timing_defaults();
  c->budget_time = 60;
  c->budget_memory = INT64_C(8) << 30;
  c->nulls = true;
  attn_status status = tree_parse(source, text, length, &root);
  for (size_t i = 0; status == ATTN_OK && i < count; i++) {
    char label[128];
    snprintf(label, sizeof label, "--set %s", overrides[i]);
    status = value_texts_add(&labels, label);
    if (status == ATTN_OK) status = apply_override(root, overrides[i], labels.items[i]);
  }
  if (status == ATTN_OK) status = read_root(root, c);
  if (status == ATTN_OK) status = keep_text(c, text, length, overrides, count);
  tree_free(root);
  value_texts_free(&labels);
  if (status == ATTN_OK)
    *result = c;
  else
    config_free(c);
  return status;
}

attn_status config_load(const char *path, const char *const *overrides, size_t count, config **result) {
  FILE *file = fopen(path, "rb");
  if (!file) return attn_fail(ATTN_EFOREIGN, "%s: %s", path, strerror(errno));
  char *text = malloc(TREE_BYTES + 1);
  attn_status status = text ? ATTN_OK : attn_fail(ATTN_ENOMEM, "%s: no memory", path);
  size_t length = 0;
  if (text) {
    /* One byte more than is allowed, so that a longer file is noticed. */
    length = fread(text, 1, TREE_BYTES + 1, file);
    if (ferror(file)) status = attn_fail(ATTN_EFOREIGN, "%s: %s", path, strerror(errno));
  }
  fclose(file);
  if (status == ATTN_OK) status = config_parse(path, text, length, overrides, count, result);
  free(text);
  return status;
}

void config_free(config *c) {
  if (!c) return;
  for (int i = 0; i < KEYS; i++)
    if (keys[i].type == KEY_INTS || keys[i].type == KEY_CHOICES)
      value_ints_free((void *)((char *)c + keys[i].offset));
  config_specs_free(&c->variants);
  config_specs_free(&c->datasets);
  for (size_t i = 0; i < c->exclude_count; i++) config_filter_free(&c->exclude[i]);
  free(c->exclude);
  free(c->text);
  free(c);
}

/* config.c - tables say which keys there are and what they hold: the axes (results/axes.def), the limits of
 * a run (settings.def), and below what else is the same for all runs. */
#include "experiments/grid/config_keys.h"

#include "data/data.h"
#include "data/support/file.h"
#include "experiments/grid/config_specs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(member) offsetof(config, member)
#define BYTES_LIMIT 9007199254740992.0 /* what a double holds exactly */
#define TIME_LIMIT 1e7
#define MAPS_LIMIT 4096.0 /* n^2 d multiply-adds in double precision, within a run's budget of time */

static const config_key keys[] = {
    {"", "schema", KEY_MAP, 0, 0, 0, "", "version of this form: 1"},
    {"", "grid", KEY_MAP, 0, 0, 0, "", "axes of the sweep; every combination is run"},
    {"grid", "score", KEY_SCORE, FIELD(scores), 0, 0, "none",
     "what scores become: softcap=50, leaky=0.2, alibi, t5=0.5, bias=FILE, sink=0, joined by commas"},
    {"grid", "mask", KEY_MASK, FIELD(masks), 0, 0, "none",
     "besides causal: prefix:64, block_causal:64, documents:1024, documents:0+30+64, FILE"},
    {"", "variants", KEY_MAP, 0, 0, 0, "",
     "names, \"NAME:PARAMETER=VALUE,...\", or NAME: {PARAMETER: values}; every combination of one item is "
     "run"},
    {"", "datasets", KEY_MAP, 0, 0, 0, "", "the same of datasets (`attnlab list datasets')"},
    {"", "exclude", KEY_MAP, 0, 0, 0, "none",
     "runs to skip, {COLUMN or PARAMETER: values, ...}; every entry must match"},
    {"", "timing", KEY_MAP, 0, 0, 0, "as below", "how long a run is timed, seconds"},
#define SETTING(section, name, type, member, min, max, help) \
  {#section, #name, KEY_##type, FIELD(member), min, max, NULL, help},
#include "experiments/grid/settings.def"
    {"", "budget", KEY_MAP, 0, 0, 0, "as below", "what a run may take"},
    {"", "nulls", KEY_YES_NO, FIELD(nulls), 0, 0, NULL,
     "whether zeros, the mean of V and random keys run beside the variants"},
    {"", "maps", KEY_INT, FIELD(maps), 0, MAPS_LIMIT, NULL,
     "largest n of which attention maps are kept, of each variant at its first seed"},
};
enum { KEYS = sizeof keys / sizeof *keys };

static attn_status read_value(const tree_node *node, const config_key *k, config *c) {
  void *at = (char *)c + k->offset;
  value_ints choice = {0};
  attn_status status = ATTN_OK;
  switch (k->type) {
  case KEY_INT:
    return values_read_int(node, k->name, (int64_t)k->min, (int64_t)k->max, at);
  case KEY_REAL:
    return values_read_real(node, k->name, k->min, k->max, at);
  case KEY_YES_NO:
    status = values_read_choices(node, k->name, yes_no_names, 0, &choice);
    if (!status && choice.count != 1) status = tree_fail(node, "%s: expected yes or no", k->name);
    if (!status) *(bool *)at = choice.items[0] != 0;
    value_ints_free(&choice);
    return status;
  case KEY_SCORE:
  case KEY_MASK:
    return config_read_targets(node, k->type == KEY_MASK, at);
  default: /* sections, which have readers of their own */
    return ATTN_OK;
  }
}

attn_status config_read_targets(const tree_node *node, bool of_mask, value_texts *out) {
  const bool is_list = node->kind == TREE_LIST && node->count > 0;
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < (is_list ? node->count : 1); i++) {
    const tree_node *item = is_list ? node->items[i] : node;
    char *text = NULL;
    if (item->kind != TREE_TEXT)
      return tree_fail(item, "expected a text, such as %s", of_mask ? "prefix:64" : "alibi");
    status = of_mask ? data_mask_parse(item->text, &text) : data_score_parse(item->text, &text);
    if (status) return tree_fail(item, "%s", attn_last_error());
    status = value_texts_add(out, text);
    free(text);
  }
  return status;
}

attn_status config_read_axis(const tree_node *node, axis_id a, int64_t min, int64_t max, value_ints *out) {
  if (!axes[a].choices) return values_read_ints(node, axes[a].name, min, max, out);
  return values_read_choices(node, axes[a].name, axes[a].choices, axis_numbers(a) ? max : 0, out);
}

/* Every entry of a section's map, which may be absent. */
static attn_status read_section(const tree_node *map, const char *section, config *c) {
  if (map && map->kind != TREE_MAP) return tree_fail(map, "%s: expected {key: value, ...}", section);
  for (size_t i = 0; map && i < map->count; i++) {
    const tree_node *node = map->items[i];
    const axis_id a = axis_find(section, node->key->text);
    const config_key *k = config_key_find(keys, KEYS, section, node->key->text);
    attn_status status;
    if (a < AXES)
      status = config_read_axis(node, a, axes[a].min, axes[a].max, &c->axis[a]);
    else
      status = k ? read_value(node, k, c) : config_key_unknown(node->key, section, keys, KEYS);
    if (status) return status;
  }
  return ATTN_OK;
}

static attn_status check_schema(const tree_node *root) {
  const tree_node *schema = tree_get(root, "schema");
  int64_t version = 0;
  if (!schema) return tree_fail(root, "the key 'schema: 1' is missing");
  if (schema->kind == TREE_TEXT && attn_int_parse(schema->text, &version) && version > 1)
    return tree_fail(schema, "schema %s is newer than this program, which knows schema 1", schema->text);
  return version == 1 ? ATTN_OK : tree_fail(schema, "schema: expected 1");
}

static attn_status require(const tree_node *map, const tree_node *root, const char *section,
                           const char *name) {
  const tree_node *place = map ? map : root;
  if (map && tree_get(map, name)) return ATTN_OK;
  return tree_fail(place, "the key '%s%s%s' is missing", section, *section ? "." : "", name);
}

/* Axes that the file does not name. */
static attn_status fill_presets(const tree_node *root, config *c) {
  attn_status status = ATTN_OK;
  for (axis_id a = 0; !status && a < AXES; a++) {
    const char *section = axes[a].section;
    if (!section || c->axis[a].count) continue;
    c->omitted[a] = true;
    status = axes[a].preset < axes[a].min
                 ? require(*section ? tree_get(root, section) : root, root, section, axes[a].name)
                 : value_ints_add(&c->axis[a], axes[a].preset);
  }
  if (!status && !c->scores.count) status = value_texts_add(&c->scores, "");
  if (!status && !c->masks.count) status = value_texts_add(&c->masks, "");
  return status;
}

static attn_status check_times(const tree_node *root, const config *c) {
  const tree_node *timing = tree_get(root, "timing"), *least = timing ? tree_get(timing, "min_time") : NULL,
                  *most = timing ? tree_get(timing, "max_time") : NULL;
  if (c->timing.min_time <= c->timing.max_time) return ATTN_OK;
  return tree_fail(least  ? least
                   : most ? most
                          : root,
                   "timing: min_time %g exceeds max_time %g", c->timing.min_time, c->timing.max_time);
}

static attn_status read_root(const tree_node *root, config *c) {
  static const char *const sections[] = {"", "grid", "timing", "budget"};
  if (root->kind != TREE_MAP) return tree_fail(root, "expected a map of keys (schema, grid, variants, ...)");
  attn_status status = check_schema(root);
  for (size_t i = 0; !status && i < sizeof sections / sizeof *sections; i++)
    status = read_section(i ? tree_get(root, sections[i]) : root, sections[i], c);
  if (!status) status = fill_presets(root, c);
  if (!status) status = require(root, root, "", "variants");
  if (!status) status = require(root, root, "", "datasets");
  if (!status) status = check_times(root, c);
  if (!status) status = config_read_variants(tree_get(root, "variants"), &c->variants);
  if (!status) status = config_read_datasets(tree_get(root, "datasets"), &c->datasets);
  const tree_node *exclude = tree_get(root, "exclude");
  return !status && exclude ? config_read_exclude(exclude, c) : status;
}

/* The file's text and the overrides, for the record. */
static attn_status keep_text(config *c, const char *text, size_t length, const char *const *overrides,
                             size_t count) {
  static const char label[] = "# --set ";
  size_t size = length + 2;
  for (size_t i = 0; i < count; i++) size += strlen(label) + strlen(overrides[i]) + 1;
  if (!(c->text = malloc(size))) return attn_fail(ATTN_ENOMEM, "no memory for the configuration's text");
  memcpy(c->text, text, length);
  char *end = c->text + length;
  if (count && length && text[length - 1] != '\n') *end++ = '\n';
  for (size_t i = 0; i < count; i++) end += sprintf(end, "%s%s\n", label, overrides[i]);
  *end = '\0';
  return ATTN_OK;
}

static config presets(void) {
  return (config){
      .timing = timing_defaults(), .budget_time = 60, .budget_memory = INT64_C(8) << 30, .nulls = true};
}

void config_print_help(FILE *out) {
  const config defaults = presets();
  config_keys_print(out, "", keys, KEYS, &defaults);
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
  *c = presets();
  attn_status status = tree_parse(source, text, length, &root);
  for (size_t i = 0; !status && i < count; i++) {
    char label[128];
    snprintf(label, sizeof label, "--set %s", overrides[i]);
    status = value_texts_add(&labels, label);
    if (!status) status = apply_override(root, overrides[i], labels.items[i]);
  }
  if (!status) status = read_root(root, c);
  if (!status) status = keep_text(c, text, length, overrides, count);
  tree_free(root);
  value_texts_free(&labels);
  if (!status)
    *result = c;
  else
    config_free(c);
  return status;
}

attn_status config_load(const char *path, const char *const *overrides, size_t count, config **result) {
  file_map map;
  attn_status status = file_map_open(path, &map);
  if (status) return status;
  status = config_parse(path, (const char *)map.at, map.bytes, overrides, count, result);
  file_map_close(&map);
  return status;
}

void config_free(config *c) {
  if (!c) return;
  for (axis_id a = 0; a < AXES; a++) value_ints_free(&c->axis[a]);
  value_texts_free(&c->scores);
  value_texts_free(&c->masks);
  config_specs_free(&c->variants);
  config_specs_free(&c->datasets);
  for (size_t i = 0; i < c->exclude_count; i++) config_filter_free(&c->exclude[i]);
  free(c->exclude);
  free(c->text);
  free(c);
}

/* config_exclude.c - the list `exclude:` of a configuration: partial rows and whether a run is one of
 * them. */
#include "experiments/grid/config_specs.h"
#include "attn_variant.h"

#include <stdlib.h>
#include <string.h>

#include "data/data.h"

static bool is_target(const char *name) { return text_axis_find(name) < TEXT_AXES; }

/* Whether the name is a column; else it is a parameter. */
static bool is_column(const char *name) {
  return strcmp(name, "variant") == 0 || strcmp(name, "dataset") == 0 || is_target(name) ||
         axis_find(NULL, name) < AXES;
}

/* The name of a variant, or an expression, whose name is what runs have. */
static attn_status add_variant(const char *text, value_texts *out) {
  const attn_variant *variant;
  attn_spec *spec = NULL;
  attn_status status = attn_variant_find(text, &variant);
  if (!status) return value_texts_add(out, text);
  if (!strpbrk(text, "+-*(")) return status;
  if ((status = attn_spec_parse(&spec, text))) return status;
  status = value_texts_add(out, spec->variant->name);
  attn_spec_destroy(spec);
  return status;
}

static attn_status read_names(const tree_node *node, bool of_variant, value_texts *out) {
  const bool is_list = node->kind == TREE_LIST && node->count > 0;
  const data_source *source;
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < (is_list ? node->count : 1); i++) {
    const tree_node *item = is_list ? node->items[i] : node;
    if (item->kind != TREE_TEXT) return tree_fail(item, "expected a name");
    if (of_variant) {
      if ((status = add_variant(item->text, out)) == ATTN_ENOMEM) return status;
    } else if (!(status = data_source_find(item->text, &source))) {
      status = value_texts_add(out, item->text);
    }
    if (status) return tree_fail(item, "%s", attn_last_error());
  }
  return status;
}

static attn_status read_values(const tree_node *node, axis_id a, value_texts *out) {
  value_ints values = {0};
  char text[AXIS_TEXT];
  /* Rows have the number of threads, and the axis that a 0 stands for. */
  const bool resolved = a == AXIS_threads || axes[a].same_as < AXES;
  attn_status status = config_read_axis(node, a, resolved, axes[a].max, &values);
  for (size_t i = 0; !status && i < values.count; i++)
    status = value_texts_add(out, axis_print(a, values.items[i], text));
  value_ints_free(&values);
  return status;
}

/* A parameter is checked against each variant that the filter names; its values are those of the first. */
static attn_status read_parameter(const tree_node *filter, const tree_node *node, value_texts *out) {
  const tree_node *variants = tree_get(filter, "variant");
  if (!variants)
    return tree_fail(node->key, "unknown column '%s'; a parameter needs the variant beside it",
                     node->key->text);
  const bool is_list = variants->kind == TREE_LIST;
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < (is_list ? variants->count : 1); i++) {
    const tree_node *variant = is_list ? variants->items[i] : variants;
    if (variant->kind != TREE_TEXT) return tree_fail(variant, "expected a name");
    value_texts values = {0};
    status = config_read_variant_param(variant->text, node, &values);
    if (status == ATTN_ENOTFOUND) status = tree_fail(variant, "%s", attn_last_error());
    if (!status && i == 0) {
      *out = values;
      continue;
    }
    value_texts_free(&values);
  }
  return status;
}

static attn_status read_entry(const tree_node *filter, const tree_node *node, value_texts *out) {
  const char *name = node->key->text;
  const axis_id a = axis_find(NULL, name);
  if (a < AXES) return read_values(node, a, out);
  if (is_target(name)) return config_read_targets(node, strcmp(name, "mask") == 0, out);
  return is_column(name) ? read_names(node, strcmp(name, "variant") == 0, out)
                         : read_parameter(filter, node, out);
}

void config_filter_free(config_filter *filter) {
  for (size_t i = 0; filter->values && i < filter->names.count; i++) value_texts_free(&filter->values[i]);
  free(filter->values);
  value_texts_free(&filter->names);
}

static attn_status read_filter(const tree_node *node, config_filter *filter) {
  if (node->kind != TREE_MAP || node->count == 0)
    return tree_fail(node, "expected a partial row, {variant: full, n: [16Ki]}");
  filter->values = calloc(node->count, sizeof *filter->values);
  if (!filter->values) return attn_fail(ATTN_ENOMEM, "no memory for a filter of %zu columns", node->count);
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < node->count; i++) {
    status = value_texts_add(&filter->names, node->items[i]->key->text);
    if (!status) status = read_entry(node, node->items[i], &filter->values[i]);
  }
  return status;
}

attn_status config_read_exclude(const tree_node *node, config *c) {
  if (node->kind != TREE_LIST) return tree_fail(node, "exclude: expected a list of partial rows");
  c->exclude = calloc(node->count + 1, sizeof *c->exclude);
  if (!c->exclude) return attn_fail(ATTN_ENOMEM, "no memory for %zu filters", node->count);
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < node->count; i++)
    status = read_filter(node->items[i], &c->exclude[c->exclude_count++]);
  return status;
}

static bool has_value(const attn_spec *spec, const char *name, const char *value) {
  attn_spec *same = NULL;
  const bool has = spec && !attn_spec_with(spec, name, value, &same) && attn_spec_equal(same, spec);
  attn_spec_destroy(same);
  return has;
}

static bool entry_matches(const char *name, const value_texts *values, const attn_spec *spec,
                          config_lookup *lookup, const void *context) {
  const char *actual = is_column(name) ? lookup(context, name) : NULL;
  for (size_t i = 0; i < values->count; i++)
    if (is_column(name) ? strcmp(actual, values->items[i]) == 0 : has_value(spec, name, values->items[i]))
      return true;
  return false;
}

bool config_excludes(const config *c, const attn_spec *spec, config_lookup *lookup, const void *context) {
  for (size_t i = 0; i < c->exclude_count; i++) {
    const config_filter *filter = &c->exclude[i];
    bool all = true;
    for (size_t j = 0; all && j < filter->names.count; j++)
      all = entry_matches(filter->names.items[j], &filter->values[j], spec, lookup, context);
    if (all) return true;
  }
  return false;
}

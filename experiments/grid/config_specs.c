/* config_specs.c - variants and datasets are read alike: a name, and lists of values for
 * rows of its parameter table; the library's own parsers judge each value. */
#include "experiments/grid/config_specs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_expression.h"
#include "data/data.h"
#include "data/support/file.h"
#include "experiments/support/names.h"

/* What is different between variants and datasets. */
typedef struct spec_kind {
  const char *noun;
  attn_status (*find)(const char *name, const attn_param **table); /* an unknown name fails */
  attn_status (*parse)(const char *text, attn_spec **out);         /* *out stays where it is a dataset */
} spec_kind;

static attn_status find_variant(const char *name, const attn_param **table) {
  const attn_variant *variant;
  const attn_status status = attn_variant_find(name, &variant);
  if (!status) *table = variant->params;
  return status;
}

static attn_status find_dataset(const char *name, const attn_param **table) {
  const data_source *source;
  const attn_status status = data_source_find(name, &source);
  if (!status) *table = source->params;
  return status;
}

static attn_status parse_variant(const char *text, attn_spec **out) { return attn_spec_parse(out, text); }

static attn_status parse_dataset(const char *text, attn_spec **out) {
  (void)out;
  return data_source_parse(text, NULL, NULL);
}

static const spec_kind variant_kind = {"variant", find_variant, parse_variant};
static const spec_kind dataset_kind = {"dataset", find_dataset, parse_dataset};

/* The last failure again, at a place. */
static attn_status fail_here(const tree_node *node, attn_status status) {
  return status == ATTN_ENOMEM ? status : tree_fail(node, "%s", attn_last_error());
}

static attn_status unknown_param(const tree_node *node, const char *noun, const char *owner,
                                 const attn_param *table) {
  char known[256] = "none";
  attn_nearest near = {.name = node->text};
  for (size_t i = 0; table && table[i].name; i++) {
    const size_t used = i ? strlen(known) : 0;
    snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", table[i].name);
    attn_nearest_try(&near, table[i].name);
  }
  return tree_fail(node, "%s %s: unknown parameter '%s'%s, known: %s", noun, owner, node->text,
                   attn_nearest_hint(&near), known);
}

/* One value of a parameter, parsed alone. */
static attn_status check_value(const spec_kind *kind, const char *owner, const attn_param *param,
                               const tree_node *item, const char *value) {
  char *text = text_format("%s:%s=%s", owner, param->name, value);
  attn_spec *spec = NULL;
  attn_status status = text ? kind->parse(text, &spec) : ATTN_ENOMEM;
  if (status)
    status = fail_here(item, status);
  else if (spec && attn_spec_is_expression(spec))
    status = tree_fail(
        item, "parameter %s: '%s' would begin another term: write an expression as a separate list item",
        param->name, value);
  attn_spec_destroy(spec);
  free(text);
  return status;
}

/* One parameter of an item: its values, so that an error names the place of each. */
static attn_status read_axis(const spec_kind *kind, const char *owner, const attn_param *table,
                             const tree_node *node, value_texts *values) {
  const attn_param *param = names_param(table, node->key->text);
  if (!param) return unknown_param(node->key, kind->noun, owner, table);
  const bool is_list = node->kind == TREE_LIST && node->count > 0;
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < (is_list ? node->count : 1); i++) {
    const tree_node *item = is_list ? node->items[i] : node;
    size_t next = values->count;
    status = values_read_param(item, param, values);
    for (; !status && next < values->count; next++)
      status = check_value(kind, owner, param, item, values->items[next]);
  }
  return status;
}

attn_status config_read_variant_param(const char *variant, const tree_node *node, value_texts *values) {
  const attn_param *table = NULL;
  const attn_status status = find_variant(variant, &table);
  return status ? status : read_axis(&variant_kind, variant, table, node, values);
}

static attn_status add_spec(const spec_kind *kind, const tree_node *place, const char *text,
                            config_specs *list) {
  config_spec *items = realloc(list->items, (list->count + 1) * sizeof *items);
  if (!items) return attn_fail(ATTN_ENOMEM, "no memory for %zu specs", list->count + 1);
  list->items = items;
  config_spec *one = &items[list->count];
  *one = (config_spec){.spec = NULL};
  const attn_status status = kind->parse(text, &one->spec);
  if (status) return fail_here(place, status);
  list->count++;
  const char *seed = one->spec ? one->spec->variant->seed : NULL;
  one->seed = seed && !attn_spec_names(one->spec, seed) ? seed : NULL;
  one->text = text_format("%s", text);
  return one->text ? ATTN_OK : ATTN_ENOMEM;
}

/* Every text so far, times every value of one more parameter. */
static attn_status multiply(value_texts *specs, const char *param, const value_texts *values) {
  value_texts product = {0};
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < specs->count; i++)
    for (size_t j = 0; !status && j < values->count; j++) {
      const char *head = specs->items[i];
      char *text = text_format("%s%s%s=%s", head, strchr(head, ':') ? "," : ":", param, values->items[j]);
      status = text ? value_texts_add(&product, text) : ATTN_ENOMEM;
      free(text);
      if (product.count > VALUES_MAX)
        status = attn_fail(ATTN_EINVAL, "%s: more than %d combinations of parameters", head, VALUES_MAX);
    }
  value_texts_free(specs);
  *specs = product;
  return status;
}

static bool is_expression(const spec_kind *kind, const char *text) {
  attn_spec *spec = NULL;
  const bool made = !kind->parse(text, &spec) && spec && attn_spec_is_expression(spec);
  attn_spec_destroy(spec);
  return made;
}

/* name: {parameter: values, ...}, or a name alone with its colon */
static attn_status read_map_item(const spec_kind *kind, const tree_node *item, config_specs *out) {
  if (item->count != 1)
    return tree_fail(item, "expected one %s with its parameters, 'name: {parameter: [values]}'", kind->noun);
  const tree_node *params = item->items[0];
  const char *name = params->key->text;
  const attn_param *table = NULL;
  attn_status status = kind->find(name, &table);
  if (status && is_expression(kind, name))
    return tree_fail(params->key,
                     "write an expression's parameters inside it, NAME=[A,B] for several values");
  if (status) return fail_here(params->key, status);
  const bool empty = params->kind == TREE_TEXT && *params->text == '\0';
  if (params->kind != TREE_MAP && !empty)
    return tree_fail(params, "%s %s: expected {parameter: [values]}", kind->noun, name);
  value_texts specs = {0};
  status = value_texts_add(&specs, name);
  for (size_t i = 0; !status && i < params->count; i++) {
    value_texts values = {0};
    status = read_axis(kind, name, table, params->items[i], &values);
    if (!status) {
      status = multiply(&specs, params->items[i]->key->text, &values);
      if (status == ATTN_EINVAL) status = fail_here(params->items[i], status);
    }
    value_texts_free(&values);
  }
  for (size_t i = 0; !status && i < specs.count; i++)
    status = add_spec(kind, params->key, specs.items[i], out);
  value_texts_free(&specs);
  return status;
}

/* The list of values after the first "=[" of a spec; NULL: it has none. */
static char *find_list(char *text, char **end) {
  char *list = strstr(text, "=[");
  *end = list ? strchr(list, ']') : NULL;
  return *end ? list + 1 : NULL;
}

/* A name, or a whole spec as on the command line, such as an expression, in which NAME=[A,B] is a spec for
 * each. */
static attn_status read_text_item(const spec_kind *kind, const tree_node *item, char *text, size_t most,
                                  config_specs *out) {
  char *end, *list = find_list(text, &end);
  attn_status status = ATTN_OK;
  if (!list) {
    if (out->count == most) return tree_fail(item, "more than %d combinations of parameters", VALUES_MAX);
    return add_spec(kind, item, text, out);
  }
  const int before = (int)(list - text);
  do {
    list += 1 + strspn(list + 1, " ");
    const size_t length = strcspn(list, ",]");
    char *one = text_format("%.*s%.*s%s", before, text, (int)length, list, end + 1);
    status = one ? read_text_item(kind, item, one, most, out) : ATTN_ENOMEM;
    free(one);
    list += length;
  } while (!status && list < end);
  return status;
}

static attn_status read_item(const spec_kind *kind, const tree_node *item, config_specs *out) {
  if (item->kind == TREE_TEXT) return read_text_item(kind, item, item->text, out->count + VALUES_MAX, out);
  if (item->kind == TREE_MAP) return read_map_item(kind, item, out);
  return tree_fail(item, "expected the name of a %s or 'name: {parameter: [values]}'", kind->noun);
}

static attn_status read_list(const spec_kind *kind, const tree_node *node, config_specs *out) {
  if (node->kind != TREE_LIST) return read_item(kind, node, out);
  if (node->count == 0) return tree_fail(node, "expected at least one %s", kind->noun);
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < node->count; i++) status = read_item(kind, node->items[i], out);
  return status;
}

attn_status config_read_variants(const tree_node *node, config_specs *out) {
  return read_list(&variant_kind, node, out);
}

attn_status config_read_datasets(const tree_node *node, config_specs *out) {
  return read_list(&dataset_kind, node, out);
}

void config_specs_free(config_specs *list) {
  for (size_t i = 0; i < list->count; i++) {
    free(list->items[i].text);
    attn_spec_destroy(list->items[i].spec);
  }
  free(list->items);
  *list = (config_specs){0};
}

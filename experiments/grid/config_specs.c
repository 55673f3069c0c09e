/* config_specs.c - variants and datasets are read alike: a name, and lists of values for
 * rows of its parameter table; the library's own parsers judge each value. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/grid/config_specs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_expression.h"
#include "data/data.h"
#include "data/support/file.h"
#include "experiments/support/spec.h"

/* What is different between variants and datasets. */
typedef struct spec_kind {
  const char *noun;
  /* An unknown name fails. seed: the parameter that the grid seeds, or NULL. */
  attn_status (*find)(const char *name, const attn_param **table, const char **seed);
  attn_status (*find_seed)(const char *spec, const char **seed); /* the same of a spec */
  attn_status (*parse)(const char *text);                        /* an invalid spec fails */
  bool (*made_of)(const char *text);                             /* is a valid spec one of several? */
} spec_kind;

static attn_status find_variant(const char *name, const attn_param **table, const char **seed) {
  const attn_variant *variant;
  const attn_status status = attn_variant_find(name, &variant);
  if (status) return status;
  *table = variant->params;
  *seed = variant->seed;
  return ATTN_OK;
}

/* Of a variant: its own text, and that of an expression is the same for all. */
static attn_status find_variant_seed(const char *text, const char **seed) {
  attn_spec *spec = NULL;
  const attn_status status = attn_spec_parse(&spec, text);
  if (status) return status;
  *seed = spec->variant->seed;
  attn_spec_destroy(spec);
  return ATTN_OK;
}

static attn_status find_dataset(const char *name, const attn_param **table, const char **seed) {
  const data_source *source;
  const attn_status status = data_source_find(name, &source);
  if (status) return status;
  *table = source->params;
  *seed = NULL;
  return ATTN_OK;
}

static attn_status find_dataset_seed(const char *text, const char **seed) {
  *seed = NULL;
  return data_source_parse(text, NULL, NULL);
}

static attn_status parse_variant(const char *text) {
  attn_spec *spec = NULL;
  const attn_status status = attn_spec_parse(&spec, text);
  attn_spec_destroy(spec);
  return status;
}

static bool is_expression(const char *text) {
  attn_spec *spec = NULL;
  const bool made = !attn_spec_parse(&spec, text) && attn_spec_is_expression(spec);
  attn_spec_destroy(spec);
  return made;
}

static bool never(const char *text) {
  (void)text;
  return false;
}

static attn_status parse_dataset(const char *text) { return data_source_parse(text, NULL, NULL); }

static const spec_kind variant_kind = {"variant", find_variant, find_variant_seed, parse_variant,
                                       is_expression};
static const spec_kind dataset_kind = {"dataset", find_dataset, find_dataset_seed, parse_dataset, never};

/* The last failure again, at a place. */
static attn_status fail_here(const tree_node *node, attn_status status) {
  return status == ATTN_ENOMEM ? status : tree_fail(node, "%s", attn_last_error());
}

static char *join(const char *a, const char *b, const char *c, const char *d) {
  const size_t size = strlen(a) + strlen(b) + strlen(c) + strlen(d) + 1;
  char *text = malloc(size);
  if (text)
    snprintf(text, size, "%s%s%s%s", a, b, c, d);
  else
    attn_fail(ATTN_ENOMEM, "no memory for a spec of %zu bytes", size);
  return text;
}

static const attn_param *find_param(const attn_param *table, const char *name) {
  for (; table && table->name; table++)
    if (strcmp(table->name, name) == 0) return table;
  return NULL;
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

/* One parameter of an item: its values, each parsed alone, so that an error names its place. */
static attn_status read_axis(const spec_kind *kind, const char *owner, const attn_param *table,
                             const tree_node *node, value_texts *values) {
  const attn_param *param = find_param(table, node->key->text);
  if (!param) return unknown_param(node->key, kind->noun, owner, table);
  const bool is_list = node->kind == TREE_LIST && node->count > 0;
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < (is_list ? node->count : 1); i++) {
    const tree_node *item = is_list ? node->items[i] : node;
    size_t next = values->count;
    status = values_read_param(item, param, values);
    for (; !status && next < values->count; next++) {
      char *name = join(owner, ":", param->name, "=");
      char *text = name ? join(name, values->items[next], "", "") : NULL;
      status = text ? kind->parse(text) : ATTN_ENOMEM;
      if (status)
        status = fail_here(item, status);
      else if (kind->made_of(text))
        status = tree_fail(item,
                           "parameter %s: '%s' would begin another term; an expression is an item of its own",
                           param->name, values->items[next]);
      free(text);
      free(name);
    }
  }
  return status;
}

attn_status config_read_variant_param(const char *variant, const tree_node *node, value_texts *values) {
  const attn_param *table = NULL;
  const char *seed;
  const attn_status status = find_variant(variant, &table, &seed);
  return status ? status : read_axis(&variant_kind, variant, table, node, values);
}

static attn_status add_spec(config_specs *list, const char *text, const char *seed) {
  char *copy = join(text, "", "", "");
  config_spec *items = copy ? realloc(list->items, (list->count + 1) * sizeof *items) : NULL;
  if (!items) {
    free(copy);
    return attn_fail(ATTN_ENOMEM, "no memory for %zu specs", list->count + 1);
  }
  list->items = items;
  items[list->count++] = (config_spec){copy, seed};
  return ATTN_OK;
}

/* Every text so far, times every value of one more parameter. */
static attn_status multiply(value_texts *specs, const char *param, const value_texts *values) {
  value_texts product = {0};
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < specs->count; i++) {
    char *head = join(specs->items[i], strchr(specs->items[i], ':') ? "," : ":", param, "=");
    for (size_t j = 0; head && !status && j < values->count; j++) {
      char *text = join(head, values->items[j], "", "");
      status = text ? value_texts_add(&product, text) : ATTN_ENOMEM;
      free(text);
      if (product.count > VALUES_MAX)
        status = attn_fail(ATTN_EINVAL, "%s: more than %d combinations of parameters", specs->items[i],
                           VALUES_MAX);
    }
    if (!head) status = ATTN_ENOMEM;
    free(head);
  }
  value_texts_free(specs);
  *specs = product;
  return status;
}

static attn_status add_specs(const spec_kind *kind, const tree_node *place, const char *seed,
                             const value_texts *specs, config_specs *out) {
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < specs->count; i++) {
    status = kind->parse(specs->items[i]);
    if (status) return fail_here(place, status);
    status = add_spec(out, specs->items[i], seed && !spec_names(specs->items[i], seed) ? seed : NULL);
  }
  return status;
}

/* name: {parameter: values, ...}, or a name alone with its colon */
static attn_status read_map_item(const spec_kind *kind, const tree_node *item, config_specs *out) {
  if (item->count != 1)
    return tree_fail(item, "expected one %s with its parameters, 'name: {parameter: [values]}'", kind->noun);
  const tree_node *params = item->items[0];
  const char *name = params->key->text;
  const attn_param *table = NULL;
  const char *seed = NULL;
  attn_status status = kind->find(name, &table, &seed);
  if (status && kind->made_of(name))
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
  if (!status) status = add_specs(kind, params->key, seed, &specs, out);
  value_texts_free(&specs);
  return status;
}

/* The list of values after the first "=[" of a spec; NULL: it has none. */
static char *find_list(char *text, char **end) {
  char *list = strstr(text, "=[");
  *end = list ? strchr(list, ']') : NULL;
  return *end ? list + 1 : NULL;
}

/* A name, or a whole spec as on the command line, such as an expression, in which NAME=[A,B] is a spec for each. */
static attn_status read_text_item(const spec_kind *kind, const tree_node *item, char *text, size_t most,
                                  config_specs *out) {
  const char *seed = NULL;
  char *end, *list = find_list(text, &end);
  attn_status status = ATTN_OK;
  if (!list) {
    if (out->count == most) return tree_fail(item, "more than %d combinations of parameters", VALUES_MAX);
    status = kind->find_seed(text, &seed);
    if (status) return fail_here(item, status);
    return add_specs(kind, item, seed, &(value_texts){&text, 1}, out);
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
  for (size_t i = 0; i < list->count; i++) free(list->items[i].text);
  free(list->items);
  *list = (config_specs){0};
}

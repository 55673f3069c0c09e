/* tree.c - built from libyaml's events, so that what is refused is seen before it is expanded. */
#include "experiments/grid/tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

typedef struct reader {
  yaml_parser_t parser;
  const char *source, *text, *end;
} reader;

attn_status tree_fail(const tree_node *node, const char *format, ...) {
  char message[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return attn_fail(ATTN_EINVAL, "%s:%d:%d: %s", node->source, node->line, node->column, message);
}

static attn_status fail_at(const reader *r, yaml_mark_t mark, const char *what) {
  return attn_fail(ATTN_EINVAL, "%s:%zu:%zu: %s", r->source, mark.line + 1, mark.column + 1, what);
}

static attn_status no_memory(const char *source) {
  return attn_fail(ATTN_ENOMEM, "%s: no memory for its content", source);
}

void tree_free(tree_node *node) {
  if (!node) return;
  tree_free(node->key);
  for (size_t i = 0; i < node->count; i++) tree_free(node->items[i]);
  free(node->items);
  free(node->text);
  free(node);
}

const tree_node *tree_get(const tree_node *map, const char *name) {
  for (size_t i = 0; map->kind == TREE_MAP && i < map->count; i++)
    if (strcmp(map->items[i]->key->text, name) == 0) return map->items[i];
  return NULL;
}

/* Takes the child, also on failure. */
static attn_status append(tree_node *parent, tree_node *child) {
  if (parent->count == TREE_ITEMS) {
    const attn_status status = tree_fail(child, "more than %d entries in one list or map", TREE_ITEMS);
    tree_free(child);
    return status;
  }
  tree_node **items = realloc(parent->items, (parent->count + 1) * sizeof *items);
  if (!items) {
    tree_free(child);
    return no_memory(parent->source);
  }
  parent->items = items;
  items[parent->count++] = child;
  return ATTN_OK;
}

/* Is there a tab in the indentation of this line, counted from 0? */
static bool has_tab(const reader *r, size_t line) {
  const char *at = r->text;
  for (; at < r->end && line > 0; at++) line -= *at == '\n';
  while (at < r->end && *at == ' ') at++;
  return at < r->end && *at == '\t';
}

static attn_status next_event(reader *r, yaml_event_t *event) {
  if (yaml_parser_parse(&r->parser, event)) return ATTN_OK;
  if (r->parser.error == YAML_MEMORY_ERROR) return no_memory(r->source);
  const yaml_mark_t mark = r->parser.problem_mark;
  if (has_tab(r, mark.line)) return fail_at(r, mark, "a tab in the indentation; indent with spaces");
  return fail_at(r, mark, r->parser.problem ? r->parser.problem : "not YAML");
}

/* What an event carries beyond its content must be absent. */
static attn_status refuse_anchor_and_tag(const reader *r, const yaml_event_t *event) {
  const yaml_char_t *anchor = NULL, *tag = NULL;
  switch (event->type) {
  case YAML_SCALAR_EVENT:
    anchor = event->data.scalar.anchor;
    tag = event->data.scalar.tag;
    break;
  case YAML_SEQUENCE_START_EVENT:
    anchor = event->data.sequence_start.anchor;
    tag = event->data.sequence_start.tag;
    break;
  case YAML_MAPPING_START_EVENT:
    anchor = event->data.mapping_start.anchor;
    tag = event->data.mapping_start.tag;
    break;
  case YAML_ALIAS_EVENT:
    return fail_at(r, event->start_mark, "aliases are not allowed; write the value out");
  default:
    return fail_at(r, event->start_mark, "expected a value");
  }
  if (anchor) return fail_at(r, event->start_mark, "anchors are not allowed");
  if (tag) return fail_at(r, event->start_mark, "tags are not allowed");
  return ATTN_OK;
}

static attn_status read_node(reader *r, yaml_event_t *event, int depth, tree_node **result);

static attn_status read_key(reader *r, const tree_node *map, yaml_event_t *event, int depth,
                            tree_node **result) {
  if (event->type != YAML_SCALAR_EVENT) return fail_at(r, event->start_mark, "a key must be a plain word");
  tree_node *key = NULL;
  attn_status status = read_node(r, event, depth, &key);
  if (status) return status;
  const tree_node *first = tree_get(map, key->text);
  if (first) {
    status = tree_fail(key, "duplicate key '%s', first at line %d", key->text, first->key->line);
    tree_free(key);
    return status;
  }
  *result = key;
  return ATTN_OK;
}

static attn_status read_children(reader *r, tree_node *parent, int depth) {
  const yaml_event_type_t last = parent->kind == TREE_MAP ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
  for (;;) {
    yaml_event_t event;
    tree_node *key = NULL, *child = NULL;
    attn_status status = next_event(r, &event);
    if (status) return status;
    const bool done = event.type == last;
    if (!done && parent->kind == TREE_MAP) {
      status = read_key(r, parent, &event, depth + 1, &key);
      yaml_event_delete(&event);
      if (!status) status = next_event(r, &event);
      if (status) {
        tree_free(key);
        return status;
      }
    }
    if (!done) status = read_node(r, &event, depth + 1, &child);
    yaml_event_delete(&event);
    if (done) return ATTN_OK;
    if (status) {
      tree_free(key);
      return status;
    }
    child->key = key;
    status = append(parent, child);
    if (status) return status;
  }
}

/* The node that starts with this event, which stays the caller's. */
static attn_status read_node(reader *r, yaml_event_t *event, int depth, tree_node **result) {
  attn_status status = refuse_anchor_and_tag(r, event);
  if (status) return status;
  if (depth > TREE_DEPTH) return fail_at(r, event->start_mark, "nested too deeply");
  tree_node *node = calloc(1, sizeof *node);
  if (!node) return no_memory(r->source);
  node->source = r->source;
  node->line = (int)event->start_mark.line + 1;
  node->column = (int)event->start_mark.column + 1;
  if (event->type == YAML_SCALAR_EVENT) {
    const char *text = (const char *)event->data.scalar.value;
    node->kind = TREE_TEXT;
    node->text = strdup(text);
    if (!node->text)
      status = no_memory(r->source);
    else if (strlen(text) != event->data.scalar.length)
      status = tree_fail(node, "a NUL character in a value");
  } else {
    node->kind = event->type == YAML_MAPPING_START_EVENT ? TREE_MAP : TREE_LIST;
    status = read_children(r, node, depth);
  }
  if (!status)
    *result = node;
  else
    tree_free(node);
  return status;
}

/* Consumes one event, which must be of the given type. */
static attn_status expect(reader *r, yaml_event_type_t type, const char *otherwise) {
  yaml_event_t event;
  attn_status status = next_event(r, &event);
  if (status) return status;
  if (event.type != type) status = fail_at(r, event.start_mark, otherwise);
  yaml_event_delete(&event);
  return status;
}

attn_status tree_parse(const char *source, const char *text, size_t length, tree_node **result) {
  if (length > TREE_BYTES)
    return attn_fail(ATTN_EINVAL, "%s: %zu bytes, expected at most %d", source, length, TREE_BYTES);
  reader r = {.source = source, .text = text, .end = text + length};
  if (!yaml_parser_initialize(&r.parser)) return no_memory(source);
  yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, length);
  tree_node *root = NULL;
  yaml_event_t event;
  attn_status status = expect(&r, YAML_STREAM_START_EVENT, "not a YAML stream");
  if (!status) status = expect(&r, YAML_DOCUMENT_START_EVENT, "the document is empty");
  if (!status) status = next_event(&r, &event);
  if (!status) {
    status = read_node(&r, &event, 0, &root);
    yaml_event_delete(&event);
  }
  if (!status) status = expect(&r, YAML_DOCUMENT_END_EVENT, "expected the end of the document");
  if (!status) status = expect(&r, YAML_STREAM_END_EVENT, "a second document is not allowed");
  yaml_parser_delete(&r.parser);
  if (!status)
    *result = root;
  else
    tree_free(root);
  return status;
}

static attn_status make_text(const char *source, const char *text, size_t length, tree_node **result) {
  tree_node *node = calloc(1, sizeof *node);
  char *copy = strndup(text, length);
  if (!node || !copy) {
    free(node);
    free(copy);
    return no_memory(source);
  }
  *node = (tree_node){.kind = TREE_TEXT, .source = source, .line = 1, .column = 1, .text = copy};
  *result = node;
  return ATTN_OK;
}

static tree_node *unwrap_single(tree_node *list) {
  if (list->count != 1) return list;
  tree_node *only = list->items[0];
  list->count = 0;
  tree_free(list);
  return only;
}

static attn_status parse_value(const char *label, const char *value, tree_node **result) {
  const size_t size = strlen(value) + 3;
  char *text = malloc(size);
  if (!text) return no_memory(label);
  snprintf(text, size, "[%s]", value);
  tree_node *list = NULL;
  const attn_status status = tree_parse(label, text, size - 1, &list);
  free(text);
  if (!status) *result = unwrap_single(list);
  return status;
}

/* Puts the value under the key, taking both, also on failure. */
static attn_status replace_entry(tree_node *map, tree_node *key, tree_node *value) {
  value->key = key;
  for (size_t i = 0; i < map->count; i++) {
    if (strcmp(map->items[i]->key->text, key->text) != 0) continue;
    tree_free(map->items[i]);
    map->items[i] = value;
    return ATTN_OK;
  }
  return append(map, value);
}

attn_status tree_set(tree_node *root, const char *label, const char *path, const char *value) {
  tree_node *key = NULL, *leaf = NULL;
  attn_status status = ATTN_OK;
  tree_node *map = root;
  for (;;) {
    const size_t length = strcspn(path, ".");
    if (length == 0) return attn_fail(ATTN_EINVAL, "%s: expected PATH=VALUE with a path like grid.n", label);
    if (map->kind != TREE_MAP) return attn_fail(ATTN_EINVAL, "%s: '%s' is not inside a map", label, path);
    status = make_text(label, path, length, &key);
    if (status) return status;
    if (path[length] == '\0') break;
    if (!tree_get(map, key->text)) {
      status = parse_value(label, "{}", &leaf);
      if (!status) status = replace_entry(map, key, leaf);
      if (status) return status;
      map = map->items[map->count - 1];
    } else {
      map = (tree_node *)tree_get(map, key->text);
      tree_free(key);
    }
    path += length + 1;
  }
  status = parse_value(label, value, &leaf);
  if (status) {
    tree_free(key);
    return status;
  }
  return replace_entry(map, key, leaf);
}

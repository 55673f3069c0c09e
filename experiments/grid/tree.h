/* tree.h - a strict YAML document as a tree of texts, lists and maps that know where they stand.
 *
 * Scalars stay as written (no `no` -> false). Refused, with file:line:column: duplicate keys, aliases,
 * anchors, tags, several documents, keys that are not text, more than TREE_DEPTH levels, TREE_ITEMS entries
 * or TREE_BYTES bytes. */
#ifndef EXPERIMENTS_GRID_TREE_H
#define EXPERIMENTS_GRID_TREE_H

#include "attn.h"

enum { TREE_DEPTH = 16, TREE_BYTES = 1 << 20, TREE_ITEMS = 4096 };

typedef enum { TREE_TEXT, TREE_LIST, TREE_MAP } tree_kind;

typedef struct tree_node {
  tree_kind kind;
  const char *source;    /* for messages; the caller's, must outlive the tree */
  int line, column;      /* from 1 */
  char *text;            /* TREE_TEXT, else NULL */
  struct tree_node *key; /* in a map: the name of this entry, a text; else NULL */
  size_t count;          /* of a list or map */
  struct tree_node **items;
} tree_node;

/* Parses a document. An empty one is an error. ENOMEM, EINVAL. */
attn_status tree_parse(const char *source, const char *text, size_t length, tree_node **);
void tree_free(tree_node *);

/* The entry of a map, or NULL. */
const tree_node *tree_get(const tree_node *map, const char *name);

/* Replaces the entry at a path of map keys, "grid.n", by a value written as in a flow list: "1Ki,2Ki" is a
 * list, "yes" a text. Missing maps are made. label names the place in messages and must outlive the tree. */
attn_status tree_set(tree_node *root, const char *label, const char *path, const char *value);

/* attn_fail(EINVAL) with the node's file:line:column in front. */
attn_status tree_fail(const tree_node *, const char *format, ...);

#endif

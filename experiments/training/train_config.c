/* train_config.c - see train_config.h. */
#include "experiments/training/train_config.h"

#include <string.h>

#include "attn_tools.h"
#include "data/support/file.h"
#include "experiments/grid/tree.h"

attn_status train_study_add_task(train_study *s, const char *name) {
  attn_nearest near = {.name = name};
  const train_task *task = train_task_find(name);
  for (int i = 0; i < TRAIN_TASKS; i++) attn_nearest_try(&near, train_tasks[i].name);
  if (!task) return attn_fail(ATTN_EINVAL, "'%s': no task has this name%s", name, attn_nearest_hint(&near));
  for (int64_t i = 0; i < s->task_count; i++)
    if (s->tasks[i] == task) return attn_fail(ATTN_EINVAL, "task '%s' is named twice", name);
  s->tasks[s->task_count++] = task;
  return ATTN_OK;
}

static attn_status read_list(const tree_node *node, attn_status (*add)(train_study *, const char *),
                             train_study *s) {
  if (node->kind == TREE_MAP || (node->kind == TREE_LIST && !node->count))
    return tree_fail(node, "%s: expected a list of texts", node->key->text);
  for (size_t i = 0; i < (node->kind == TREE_LIST ? node->count : 1); i++) {
    const tree_node *item = node->kind == TREE_LIST ? node->items[i] : node;
    if (item->kind != TREE_TEXT) return tree_fail(item, "%s: expected a text", node->key->text);
    const attn_status status = add(s, item->text);
    if (status) return status == ATTN_ENOMEM ? status : tree_fail(item, "%s", attn_last_error());
  }
  return ATTN_OK;
}

static attn_status read_int(const tree_node *node, int64_t max, int64_t *out) {
  int64_t value;
  if (node->kind != TREE_TEXT || !attn_int_parse(node->text, &value) || value < 1 || value > max)
    return tree_fail(node, "%s: expected an integer from 1 to %lld", node->key->text, (long long)max);
  *out = value;
  return ATTN_OK;
}

static attn_status read_key(const tree_node *node, const train_study *given, train_study *s) {
  const char *key = node->key->text;
  int64_t number = 0;
  attn_status status = ATTN_OK;
  if (strcmp(key, "schema") == 0) return read_int(node, 1, &number);
  if (strcmp(key, "tasks") == 0)
    return given->task_count ? ATTN_OK : read_list(node, train_study_add_task, s);
  if (strcmp(key, "variants") == 0) return given->spec_count ? ATTN_OK : read_list(node, train_study_add, s);
  const bool seeds = strcmp(key, "seeds") == 0;
  if (!seeds && strcmp(key, "steps") != 0)
    return tree_fail(node->key, "unknown key '%s', known: schema, tasks, variants, seeds, steps", key);
  status = read_int(node, seeds ? TRAIN_SEEDS : INT32_MAX, &number);
  int64_t *to = seeds ? &s->seeds : &s->settings.steps;
  if (!status && !*to) *to = number;
  return status;
}

attn_status train_config_read(const char *path, train_study *s) {
  const train_study given = *s;
  tree_node *root = NULL;
  file_map map;
  attn_status status = file_map_open(path, &map);
  if (status) return status;
  status = tree_parse(path, (const char *)map.at, map.bytes, &root);
  if (!status && root->kind != TREE_MAP) status = tree_fail(root, "expected keys");
  if (!status && !tree_get(root, "schema")) status = tree_fail(root, "schema: 1 is missing");
  for (size_t i = 0; !status && i < root->count; i++) status = read_key(root->items[i], &given, s);
  tree_free(root);
  file_map_close(&map);
  return status;
}

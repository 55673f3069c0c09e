/* grid_row.c - the identity columns of a run: what is known of it before it starts. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/grid/grid.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/json_text.h"
#include "experiments/evidence/null.h"

/* Numbers as numbers, everything else as text. */
static json_t *param_json(const attn_param *p, const void *params) {
  char text[256];
  if (p->type == ATTN_REAL) return json_real(attn_param_number(p, params));
  attn_param_print(p, params, text, sizeof text);
  return p->type == ATTN_INT ? json_integer((json_int_t)strtoll(text, NULL, 10)) : json_string(text);
}

/* The seed of the draws has a column of its own: without it, params are alike in all runs of a setting. */
static attn_status describe_params(const attn_spec *spec, result_row *row) {
  json_t *object = json_object();
  bool complete = object != NULL;
  for (const attn_param *p = spec->variant->params; complete && p && p->name; p++) {
    const char *seed = spec->variant->seed;
    if (!seed || strcmp(p->name, seed) != 0)
      complete = json_object_set_new(object, p->name, param_json(p, spec->params)) == 0;
    complete = complete && !result_row_add_param(row, p->name, attn_param_number(p, spec->params));
  }
  if (complete) row->params = json_print(object, JSON_COMPACT);
  json_decref(object);
  return row->params ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the parameters of %s", spec->text);
}

static attn_status describe_null(const null_baseline *null, result_row *row) {
  row->params = strdup(null->params);
  if (!row->params) return attn_fail(ATTN_ENOMEM, "no memory for the parameters of %s", null->name);
  return null->keys ? result_row_add_param(row, "keys", null->keys) : ATTN_OK;
}

attn_status grid_row(const grid_block *block, const grid_run *run, result_row *row) {
  row->key = strdup(run->key);
  row->variant = strdup(run->variant);
  row->dataset = strdup(block->dataset);
  row->isa = strdup(block->isa);
  row->score = strdup(block->score);
  row->mask = strdup(block->mask);
  if (!row->key || !row->variant || !row->dataset || !row->isa || !row->score || !row->mask)
    return attn_fail(ATTN_ENOMEM, "no memory for the row of %s", run->key);
  memcpy(row->axis, block->axis, sizeof row->axis);
  row->seed = run->seed;
  const null_baseline *null = null_find(run->variant);
  if (null) return describe_null(null, row);
  attn_spec *spec = NULL;
  attn_status status = attn_spec_parse(&spec, run->spec);
  if (!status) status = describe_params(spec, row);
  attn_spec_destroy(spec);
  return status;
}

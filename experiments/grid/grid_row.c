/* grid_row.c - the identity columns of a run: what is known of it before it starts. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/grid/grid.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/json_text.h"
#include "experiments/evidence/null.h"
#include "experiments/results/row_json.h"
#include "experiments/support/spec.h"

/* Numbers as numbers, everything else as text. */
static json_t *param_json(const attn_param *p, const void *params, const char *text) {
  if (p->type == ATTN_REAL) return json_real(attn_param_number(p, params));
  return p->type == ATTN_INT ? json_integer((json_int_t)strtoll(text, NULL, 10)) : result_json_text(text);
}

/* object NULL: in the column of the parameter alone. */
static attn_status describe_param(const attn_spec *spec, const attn_param *p, json_t *object,
                                  result_row *row) {
  char *text = NULL;
  attn_status status = spec_value(spec->text, p->name, &text);
  if (!status && object && json_object_set_new(object, p->name, param_json(p, spec->params, text)))
    status = ATTN_ENOMEM;
  if (!status)
    status = p->type == ATTN_REAL || p->type == ATTN_INT
                 ? result_row_add_param(row, p->name, attn_param_number(p, spec->params))
                 : result_row_add_text(row, p->name, text);
  free(text);
  return status;
}

/* The seed of the draws has a column of its own: without it, params are alike in all runs of a setting. */
static attn_status describe_params(const attn_spec *spec, result_row *row) {
  const char *seed = spec->variant->seed;
  json_t *object = json_object();
  attn_status status = object ? ATTN_OK : ATTN_ENOMEM;
  for (const attn_param *p = spec->variant->params; !status && p && p->name; p++)
    status = describe_param(spec, p, seed && strcmp(p->name, seed) == 0 ? NULL : object, row);
  if (!status) row->params = json_print(object, JSON_COMPACT);
  json_decref(object);
  return row->params ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the parameters of %s", spec->text);
}

static attn_status describe_label(const attn_spec *spec, result_row *row) {
  char *seedless = NULL;
  attn_status status = spec_without(spec->text, spec->variant->seed, &seedless);
  if (!status) status = spec_short(seedless, &row->label);
  free(seedless);
  return status;
}

static attn_status describe_null(const null_baseline *null, result_row *row) {
  row->params = strdup(null->params);
  row->label = strdup(null->spec);
  if (!row->params || !row->label)
    return attn_fail(ATTN_ENOMEM, "no memory for the parameters of %s", null->name);
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
  if (!status) status = describe_label(spec, row);
  attn_spec_destroy(spec);
  return status;
}

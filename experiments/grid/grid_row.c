/* grid_row.c - the identity columns of a run: what is known of it before it starts. */
#include "experiments/grid/grid.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/json_text.h"
#include "experiments/evidence/null.h"
#include "experiments/results/row_json.h"
#include "experiments/support/label.h"
#include "experiments/support/names.h"

static bool is_same(void *context, const attn_spec *of, const attn_param *p, bool preset) {
  (void)of, (void)preset;
  return p == *(const attn_param **)context;
}

/* Numbers as numbers, everything else as text. object NULL: in the column of the parameter alone. */
static attn_status describe_param(const attn_spec *spec, const attn_param *p, json_t *object,
                                  result_row *row) {
  const double number = attn_param_number(p, spec->params);
  char *text = NULL;
  attn_status status;
  json_t *value;
  if (p->type == ATTN_REAL || p->type == ATTN_INT) {
    value = p->type == ATTN_REAL ? json_real(number) : json_integer((json_int_t)number);
    status = result_row_add_param(row, p->name, number);
  } else {
    status = attn_spec_print(spec, is_same, &p, &text); /* name:parameter=value */
    const char *written = status ? "" : strchr(text, '=') + 1;
    value = result_json_text(written);
    if (!status) status = result_row_add_text(row, p->name, written);
  }
  if (!status && object && json_object_set(object, p->name, value)) status = ATTN_ENOMEM;
  json_decref(value);
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
  char *text = status ? NULL : json_print(object, JSON_COMPACT);
  if (text) row->params = names_keep(text);
  free(text);
  json_decref(object);
  return row->params ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the parameters of %s", spec->text);
}

static attn_status describe_null(const null_baseline *null, result_row *row) {
  row->params = names_keep(null->params);
  row->label = names_keep(null->spec);
  if (!row->params || !row->label)
    return attn_fail(ATTN_ENOMEM, "no memory for the parameters of %s", null->name);
  return null->keys ? result_row_add_param(row, "keys", null->keys) : ATTN_OK;
}

attn_status grid_row(const grid_block *block, const grid_run *run, result_row *row) {
  row->key = strdup(run->key);
  row->variant = names_keep(run->variant);
  bool kept = row->key && row->variant;
  for (text_axis_id t = 0; t < TEXT_AXES; t++) kept = (row->text[t] = names_keep(block->text[t])) && kept;
  if (!kept) return attn_fail(ATTN_ENOMEM, "no memory for the row of %s", run->key);
  memcpy(row->axis, block->axis, sizeof row->axis);
  row->seed = run->seed;
  if (!run->spec) return describe_null(null_find(run->variant), row);
  char *label = NULL;
  attn_status status = describe_params(run->spec, row);
  if (!status) status = label_make(run->spec, false, &label);
  if (!status && !(row->label = names_keep(label)))
    status = attn_fail(ATTN_ENOMEM, "no memory for the row of %s", run->key);
  free(label);
  return status;
}

/* complete.c - what a row lacks that an earlier version wrote, from what it has. */
#include "experiments/results/bound.h"
#include "experiments/results/row_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_tools.h"
#include "data/support/json_text.h"
#include "experiments/support/names.h"

attn_status result_row_params(const result_row *row, json_t **out) {
  json_error_t error;
  json_t *params = NULL;
  const attn_status status =
      row->params ? json_parse(row->params, strlen(row->params), &error, &params) : ATTN_OK;
  if (status == ATTN_ENOMEM) return status;
  if (!json_is_object(params)) {
    json_decref(params);
    params = NULL;
  }
  *out = params;
  return ATTN_OK;
}

static attn_status settle(result_row *row, const char *name, const json_t *value) {
  const char *text = json_string_value(value), *kept = text ? names_keep(text) : NULL;
  const char *owned = names_keep(name);
  if ((text && !kept) || !owned) return attn_fail(ATTN_ENOMEM, "out of memory for the parameters of a run");
  if (!text && !json_is_number(value)) return ATTN_OK;
  for (int i = 0; i < row->p_count; i++)
    if (strcmp(row->p[i].name, name) == 0) {
      row->p[i] = (result_param){owned, text ? (double)NAN : json_number_value(value), kept};
      return ATTN_OK;
    }
  return text ? result_row_add_text(row, owned, text)
              : result_row_add_param(row, owned, json_number_value(value));
}

attn_status result_row_settle_params(result_row *row) {
  json_t *params = NULL, *value;
  const char *name;
  attn_status status = result_row_params(row, &params);
  json_object_foreach(params, name, value) if (!status) status = settle(row, name, value);
  json_decref(params);
  return status;
}

/* Every parameter but a seed, which earlier versions have among them: which are presets is not known of a
 * variant that may be another now. */
static attn_status make_label(result_row *row) {
  json_t *params = NULL, *value;
  const char *name, *mark = ":";
  size_t size;
  attn_status status = result_row_params(row, &params);
  if (status) return status;
  char *label = NULL;
  FILE *out = open_memstream(&label, &size);
  if (out) fputs(row->variant ? row->variant : "", out);
  json_object_foreach(params, name, value) {
    if (!out || strcmp(name, "seed") == 0) continue;
    if (json_is_string(value))
      fprintf(out, "%s%s=%s", mark, name, json_string_value(value));
    else if (json_is_integer(value))
      fprintf(out, "%s%s=%lld", mark, name, (long long)json_integer_value(value));
    else if (json_is_real(value))
      fprintf(out, "%s%s=%.17g", mark, name, json_real_value(value));
    else
      continue;
    mark = ",";
  }
  json_decref(params);
  row->label = attn_stream_text(out, &label) ? names_keep(label) : NULL;
  free(label);
  return row->label ? ATTN_OK : attn_fail(ATTN_ENOMEM, "out of memory for the label of a run");
}

attn_status result_row_complete(result_row *row, bool label, bool model_verdict) {
  attn_status status = ATTN_OK;
  if (!label) status = result_row_settle_params(row);
  if (!status && !label) status = make_label(row);
  /* A violated property may be a cell of another run of the setting. */
  if (!status) status = result_row_refer(row);
  if (!status && !model_verdict && result_row_cells(row) > 0) {
    const bool violated = row->verdict == VERDICT_VIOLATED;
    result_row_judge(row);
    if (violated) row->verdict = VERDICT_VIOLATED;
  }
  return status;
}

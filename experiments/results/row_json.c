/* row_json.c - rows to JSON, driven by result_columns. Format: row_json.h. */
#include "experiments/results/row_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/json_text.h"
#include "experiments/support/base64.h"
#include "experiments/support/escape.h"

json_t *result_json_text(const char *text) {
  if (!text) text = "";
  json_t *json = json_string(text);
  if (json || escape_is_utf8(text)) return json;
  size_t length = strlen(text);
  char *escaped = length < SIZE_MAX / 4 ? malloc(4 * length + 1) : NULL;
  if (!escaped) return NULL;
  char *out = escaped;
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c < 0x80)
      *out++ = (char)*c;
    else
      out += sprintf(out, "\\x%02x", *c);
  }
  *out = '\0';
  json = json_string(escaped);
  free(escaped);
  return json;
}

json_t *result_json_number(double x) {
  if (isnan(x)) return json_null();
  if (isinf(x)) return json_string(x > 0 ? "inf" : "-inf");
  return json_real(x);
}

bool result_json_read_number(const json_t *json, double *x) {
  if (json_is_number(json)) {
    *x = json_number_value(json);
  } else if (json_is_null(json)) {
    *x = (double)NAN;
  } else if (json_is_string(json) && strcmp(json_string_value(json), "inf") == 0) {
    *x = (double)INFINITY;
  } else if (json_is_string(json) && strcmp(json_string_value(json), "-inf") == 0) {
    *x = -(double)INFINITY;
  } else {
    return false;
  }
  return true;
}

json_t *result_numbers_json(const double *x, int64_t count) {
  json_t *array = json_array();
  bool ok = array;
  for (int64_t i = 0; ok && i < count; i++) json_add(array, result_json_number(x[i]), &ok);
  return json_whole(array, ok);
}

static json_t *rounds_json(const result_row *row) {
  json_t *array = json_array();
  bool ok = array;
  for (int64_t i = 0; ok && i < row->n_samples; i++) json_add(array, json_integer(row->rounds[i]), &ok);
  return json_whole(array, ok);
}

json_t *result_column_json(const void *record, const result_column *c) {
  switch (c->type) {
  case COLUMN_TEXT:
    return result_json_text(result_column_text(record, c));
  case COLUMN_F64:
    return result_json_number(result_column_f64(record, c));
  case COLUMN_FLAG:
    return json_string(c->flags[result_column_int(record, c)]);
  case COLUMN_BOOL:
    return json_boolean(result_column_int(record, c));
  case COLUMN_I64:
  case COLUMN_I32:
    break;
  }
  return json_integer(result_column_int(record, c));
}

static json_t *bound_json(const result_bound *b) {
  json_t *object = json_object();
  bool ok = object;
  json_put(object, "name", result_json_text(b->name), &ok);
  for (const result_column *c = result_bound_columns; c->name; c++)
    json_put(object, c->name, result_column_json(b, c), &ok);
  return json_whole(object, ok);
}

json_t *result_bounds_json(const result_bound *bounds, int count) {
  json_t *array = json_array();
  bool ok = array;
  for (int i = 0; ok && i < count; i++) json_add(array, bound_json(&bounds[i]), &ok);
  return json_whole(array, ok);
}

static json_t *cells_json(const float *cells, size_t count) {
  unsigned char *bytes = malloc(4 * count);
  for (size_t i = 0; bytes && i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &cells[i], sizeof bits);
    for (size_t k = 0; k < 4; k++) bytes[4 * i + k] = (unsigned char)(bits >> 8 * k);
  }
  char *text = bytes ? base64_encode(bytes, 4 * count) : NULL;
  json_t *out = json_string(text);
  free(text);
  free(bytes);
  return out;
}

static json_t *map_json(const result_row *row) {
  const size_t count = result_map_size(row);
  json_t *map = json_object();
  bool ok = map;
  json_put(map, "exact", cells_json(row->map, count), &ok);
  json_put(map, "approx", cells_json(row->map + count, count), &ok);
  return json_whole(map, ok);
}

static bool has_profile(const result_row *row) {
  for (int i = 0; i < RESULT_PROFILE_BINS; i++)
    if (!isnan(row->profile_l2[i]) || !isnan(row->profile_max[i])) return true;
  return false;
}

json_t *result_row_to_json(const result_row *row) {
  json_t *object = json_object(), *p = json_object(), *bounds = json_array();
  bool ok = object;
  for (const result_column *c = result_columns; c->name; c++)
    json_put(object, c->name, result_column_json(row, c), &ok);
  for (int i = 0; i < row->p_count; i++)
    json_put(p, row->p[i].name,
             row->p[i].text ? result_json_text(row->p[i].text) : result_json_number(row->p[i].value), &ok);
  json_put(object, "p", p, &ok);
  if (row->samples) json_put(object, "samples", result_numbers_json(row->samples, row->n_samples), &ok);
  if (row->rounds) json_put(object, "rounds", rounds_json(row), &ok);
  if (has_profile(row)) {
    json_t *profile = json_object();
    json_put(profile, "l2", result_numbers_json(row->profile_l2, RESULT_PROFILE_BINS), &ok);
    json_put(profile, "max", result_numbers_json(row->profile_max, RESULT_PROFILE_BINS), &ok);
    json_put(object, "profile", profile, &ok);
  }
  if (row->map) json_put(object, "map", map_json(row), &ok);
  for (int i = 0; i < result_row_cells(row); i++) json_add(bounds, bound_json(result_row_cell(row, i)), &ok);
  json_put(object, "bounds", bounds, &ok);
  if (!ok) attn_fail(ATTN_ENOMEM, "out of memory for the JSON form of a result row");
  return json_whole(object, ok);
}

attn_status result_json_line(const json_t *json, char **line, size_t *length) {
  char *text = json_print(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
  size_t size = text ? strlen(text) : 0;
  char *grown = text ? realloc(text, size + 2) : NULL;
  if (!grown) {
    free(text);
    return attn_fail(ATTN_ENOMEM, "out of memory for a line of JSON");
  }
  memcpy(grown + size, "\n", 2);
  *line = grown;
  *length = size + 1;
  return ATTN_OK;
}

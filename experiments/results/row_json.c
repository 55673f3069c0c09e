/* row_json.c - rows to and from JSON, driven by result_columns. Format: row_json.h. */
#include "experiments/results/row_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/support/base64.h"
#include "experiments/support/escape.h"
#include "experiments/support/names.h"

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

/* ---- writing ------------------------------------------------------------------------------------------- */

static json_t *numbers(const double *x, int64_t count) {
  json_t *array = json_array();
  for (int64_t i = 0; array && i < count; i++)
    if (json_array_append_new(array, result_json_number(x[i]))) {
      json_decref(array);
      array = NULL;
    }
  return array;
}

static json_t *rounds_json(const result_row *row) {
  json_t *array = json_array();
  for (int64_t i = 0; array && i < row->n_samples; i++)
    if (json_array_append_new(array, json_integer(row->rounds[i]))) {
      json_decref(array);
      array = NULL;
    }
  return array;
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
  int failed = json_object_set_new(object, "name", result_json_text(b->name));
  for (const result_column *c = result_bound_columns; c->name; c++)
    failed |= json_object_set_new(object, c->name, result_column_json(b, c));
  if (!failed) return object;
  json_decref(object);
  return NULL;
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
  if (map && !json_object_set_new(map, "exact", cells_json(row->map, count)) &&
      !json_object_set_new(map, "approx", cells_json(row->map + count, count)))
    return map;
  json_decref(map);
  return NULL;
}

static bool has_profile(const result_row *row) {
  for (int i = 0; i < RESULT_PROFILE_BINS; i++)
    if (!isnan(row->profile_l2[i]) || !isnan(row->profile_max[i])) return true;
  return false;
}

json_t *result_row_to_json(const result_row *row) {
  json_t *object = json_object();
  int failed = !object;
  for (const result_column *c = result_columns; c->name; c++)
    failed |= json_object_set_new(object, c->name, result_column_json(row, c));
  json_t *p = json_object();
  for (int i = 0; i < row->p_count; i++)
    failed |= json_object_set_new(p, row->p[i].name, result_json_number(row->p[i].value));
  failed |= json_object_set_new(object, "p", p);
  if (row->samples) failed |= json_object_set_new(object, "samples", numbers(row->samples, row->n_samples));
  if (row->rounds) failed |= json_object_set_new(object, "rounds", rounds_json(row));
  if (has_profile(row)) {
    json_t *profile = json_object();
    failed |= json_object_set_new(profile, "l2", numbers(row->profile_l2, RESULT_PROFILE_BINS));
    failed |= json_object_set_new(profile, "max", numbers(row->profile_max, RESULT_PROFILE_BINS));
    failed |= json_object_set_new(object, "profile", profile);
  }
  if (row->map) failed |= json_object_set_new(object, "map", map_json(row));
  json_t *bounds = json_array();
  for (int i = 0; i < row->bounds_count; i++)
    failed |= json_array_append_new(bounds, bound_json(&row->bounds[i]));
  failed |= json_object_set_new(object, "bounds", bounds);
  if (!failed) return object;
  json_decref(object);
  attn_fail(ATTN_ENOMEM, "out of memory for the JSON form of a result row");
  return NULL;
}

attn_status result_json_line(const json_t *json, char **line, size_t *length) {
  char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
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

/* ---- reading ------------------------------------------------------------------------------------------- */

static attn_status wrong(const char *member, const char *expected) {
  return attn_fail(ATTN_EINVAL, "result row: %s: expected %s", member, expected);
}

static attn_status read_text(const json_t *json, const result_column *c, void *record) {
  if (json && !json_is_string(json)) return wrong(c->name, c->flags ? "one of its names" : "a string");
  const attn_status status = result_column_set_text(record, c, json ? json_string_value(json) : "");
  return status == ATTN_EINVAL ? wrong(c->name, "one of its names") : status;
}

static attn_status read_column(const json_t *json, const result_column *c, void *record) {
  double number;
  int64_t x;
  if (c->type == COLUMN_TEXT || (json && c->type == COLUMN_FLAG)) return read_text(json, c, record);
  if (!json) return ATTN_OK;
  switch (c->type) {
  case COLUMN_F64:
    if (!result_json_read_number(json, &number)) return wrong(c->name, "a number or null");
    result_column_set_f64(record, c, number);
    return ATTN_OK;
  case COLUMN_BOOL:
    if (!json_is_boolean(json)) return wrong(c->name, "true or false");
    x = json_is_true(json);
    break;
  default:
    if (!json_is_integer(json)) return wrong(c->name, "an integer");
    x = json_integer_value(json);
    if (c->type == COLUMN_I32 && (x < INT32_MIN || x > INT32_MAX)) return wrong(c->name, "a 32-bit integer");
  }
  result_column_set_int(record, c, x);
  return ATTN_OK;
}

static attn_status read_params(json_t *json, result_row *row) {
  if (json && !json_is_object(json)) return wrong("p", "an object");
  const char *name;
  json_t *value;
  attn_status status = ATTN_OK;
  json_object_foreach(json, name, value) {
    double number;
    const char *kept = names_keep(name);
    if (!result_json_read_number(value, &number)) return wrong("p", "names with numbers");
    if (!kept) return attn_fail(ATTN_ENOMEM, "out of memory for a result row");
    if ((status = result_row_add_param(row, kept, number))) return status;
  }
  return status;
}

static attn_status read_samples(const json_t *samples, const json_t *rounds, result_row *row) {
  if (row->n_samples < 0) return wrong("n_samples", "a count");
  size_t count = (size_t)row->n_samples;
  if ((samples && (!json_is_array(samples) || json_array_size(samples) != count)) ||
      (rounds && (!json_is_array(rounds) || json_array_size(rounds) != count)))
    return wrong(samples ? "samples" : "rounds", "an array of n_samples numbers");
  if (samples && count && !(row->samples = calloc(count, sizeof *row->samples)))
    return attn_fail(ATTN_ENOMEM, "out of memory for a result row");
  if (rounds && count && !(row->rounds = calloc(count, sizeof *row->rounds)))
    return attn_fail(ATTN_ENOMEM, "out of memory for a result row");
  for (size_t i = 0; row->samples && i < count; i++)
    if (!result_json_read_number(json_array_get(samples, i), &row->samples[i]))
      return wrong("samples", "numbers");
  for (size_t i = 0; row->rounds && i < count; i++) {
    const json_t *round = json_array_get(rounds, i);
    if (!json_is_integer(round) || json_integer_value(round) < 0 || json_integer_value(round) > INT32_MAX)
      return wrong("rounds", "counts");
    row->rounds[i] = (int32_t)json_integer_value(round);
  }
  return ATTN_OK;
}

static attn_status read_profile(const json_t *profile, const char *name, double *out) {
  const json_t *array = json_object_get(profile, name);
  if (!json_is_array(array) || json_array_size(array) != RESULT_PROFILE_BINS)
    return wrong("profile", "l2 and max with 64 numbers each");
  for (size_t i = 0; i < RESULT_PROFILE_BINS; i++)
    if (!result_json_read_number(json_array_get(array, i), &out[i])) return wrong("profile", "numbers");
  return ATTN_OK;
}

static attn_status read_cells(const json_t *text, size_t count, float *cells) {
  attn_status status = ATTN_OK;
  unsigned char *bytes = malloc(4 * count + 1);
  if (!bytes) return attn_fail(ATTN_ENOMEM, "out of memory for a result row");
  if (!json_is_string(text) ||
      !base64_decode(json_string_value(text), json_string_length(text), bytes, 4 * count))
    status =
        wrong("map", "exact and approx in base64, 4 bytes for each of min(n, 128) x min(n_kv, 128) cells");
  for (size_t i = 0; !status && i < count; i++) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 4; k++) bits |= (uint32_t)bytes[4 * i + k] << 8 * k;
    memcpy(&cells[i], &bits, sizeof bits);
    if (!isfinite(cells[i])) status = wrong("map", "finite weights");
  }
  free(bytes);
  return status;
}

static attn_status read_map(const json_t *map, result_row *row) {
  const size_t count = result_map_size(row);
  if (count == 0) return wrong("map", "n and n_kv above 0 with it");
  if (!(row->map = calloc(2 * count, sizeof *row->map)))
    return attn_fail(ATTN_ENOMEM, "out of memory for a result row");
  const attn_status status = read_cells(json_object_get(map, "exact"), count, row->map);
  return status ? status : read_cells(json_object_get(map, "approx"), count, row->map + count);
}

/* Members that a version of the schema added later may be absent: p_repeat and message. */
static attn_status read_bound(const json_t *json, result_row *row) {
  const char *name = json_string_value(json_object_get(json, "name"));
  if (!name || !*name) return wrong("bounds", "a name in each");
  if (!(name = names_keep(name))) return attn_fail(ATTN_ENOMEM, "out of memory for a result row");
  result_bound b = {.name = name, .p_repeat = (double)NAN};
  for (const result_column *c = result_bound_columns; c->name; c++) {
    const json_t *member = json_object_get(json, c->name);
    const attn_status status = !member && (c->measure || c->flags) ? wrong(c->name, "a member of each bound")
                                                                   : read_column(member, c, &b);
    if (status) {
      char problem[256];
      snprintf(problem, sizeof problem, "%s", attn_last_error());
      return attn_fail(status, "%s, in the bound %s", problem, name);
    }
  }
  return result_row_add_bound(row, &b);
}

static attn_status read_bounds(const json_t *json, result_row *row) {
  if (json && !json_is_array(json)) return wrong("bounds", "an array");
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < json_array_size(json); i++)
    status = read_bound(json_array_get(json, i), row);
  return status;
}

attn_status result_row_from_json(const json_t *json, result_row *out) {
  if (!json_is_object(json)) return attn_fail(ATTN_EINVAL, "result row: expected a JSON object");
  result_row row;
  result_row_init(&row);
  attn_status status = ATTN_OK;
  for (const result_column *c = result_columns; !status && c->name; c++) {
    const json_t *member = json_object_get(json, c->name);
    if (!member && c->axis)
      result_row_recover(&row, c);
    else
      status = read_column(member, c, &row);
  }
  if (!status && !*row.key) status = wrong("key", "text that is not empty");
  if (!status) status = read_params(json_object_get(json, "p"), &row);
  if (!status) status = read_samples(json_object_get(json, "samples"), json_object_get(json, "rounds"), &row);
  const json_t *profile = json_object_get(json, "profile");
  if (!status && profile) status = read_profile(profile, "l2", row.profile_l2);
  if (!status && profile) status = read_profile(profile, "max", row.profile_max);
  const json_t *map = json_object_get(json, "map");
  if (!status && map) status = read_map(map, &row);
  if (!status) status = read_bounds(json_object_get(json, "bounds"), &row);
  if (status)
    result_row_free(&row);
  else
    *out = row;
  return status;
}

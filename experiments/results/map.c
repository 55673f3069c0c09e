/* map.c - see map.h. The format is named in row_json.h. */
#include "experiments/results/map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/support/base64.h"

static attn_status wrong(const char *expected) {
  return attn_fail(ATTN_EINVAL, "result row: map: expected %s", expected);
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

json_t *result_map_json(const result_row *row) {
  const size_t count = result_map_size(row);
  json_t *map = json_object();
  if (map && !json_object_set_new(map, "exact", cells_json(row->map, count)) &&
      !json_object_set_new(map, "approx", cells_json(row->map + count, count)))
    return map;
  json_decref(map);
  return NULL;
}

static attn_status read_cells(const json_t *text, size_t count, float *cells) {
  attn_status status = ATTN_OK;
  unsigned char *bytes = malloc(4 * count + 1);
  if (!bytes) return attn_fail(ATTN_ENOMEM, "out of memory for a result row");
  if (!json_is_string(text) ||
      !base64_decode(json_string_value(text), json_string_length(text), bytes, 4 * count))
    status = wrong("exact and approx in base64, 4 bytes for each of min(n, 128) x min(n_kv, 128) cells");
  for (size_t i = 0; !status && i < count; i++) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 4; k++) bits |= (uint32_t)bytes[4 * i + k] << 8 * k;
    memcpy(&cells[i], &bits, sizeof bits);
    if (!isfinite(cells[i])) status = wrong("finite weights");
  }
  free(bytes);
  return status;
}

attn_status result_map_read(const json_t *map, result_row *row) {
  const size_t count = result_map_size(row);
  if (count == 0) return wrong("n and n_kv above 0 with it");
  if (!(row->map = calloc(2 * count, sizeof *row->map)))
    return attn_fail(ATTN_ENOMEM, "out of memory for a result row");
  const attn_status status = read_cells(json_object_get(map, "exact"), count, row->map);
  return status ? status : read_cells(json_object_get(map, "approx"), count, row->map + count);
}

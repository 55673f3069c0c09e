/* read_row.c - a row from its JSON text, in one pass: a journal may hold a million of them. Format:
 * row_json.h. */
#include "experiments/results/read_record.h"
#include "experiments/results/row_json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/support/base64.h"
#include "experiments/support/names.h"

static attn_status read_params(json_reader *r, result_row *row) {
  size_t count = 0;
  attn_status status = ATTN_OK;
  if (!json_reader_begin(r, '{')) return record_wrong("p", "an object");
  while (!status && json_reader_more(r, '}', &count)) {
    double number = (double)NAN;
    const char *kept = json_reader_name(r) ? names_keep(r->text) : "";
    if (!kept) return record_no_memory();
    const bool text = !r->wrong && json_reader_peek(r) == JSON_READ_TEXT;
    if (r->wrong || !(text ? json_reader_text(r) : record_number(r, &number)))
      return record_wrong("p", "names with numbers or texts");
    status = text ? result_row_add_text(row, kept, r->text) : result_row_add_param(row, kept, number);
  }
  return status;
}

/* Moves samples and rounds into the row. */
static attn_status settle_samples(const record_vector *samples, const record_vector *rounds,
                                  result_row *row) {
  const size_t count = (size_t)row->n_samples;
  if ((samples->there && samples->count != count) || (rounds->there && rounds->count != count))
    return record_wrong(samples->there ? "samples" : "rounds", "an array of n_samples numbers");
  if (samples->there && count && !(row->samples = malloc(count * sizeof *row->samples)))
    return record_no_memory();
  if (rounds->there && count && !(row->rounds = malloc(count * sizeof *row->rounds)))
    return record_no_memory();
  if (row->samples) memcpy(row->samples, samples->items, count * sizeof *row->samples);
  for (size_t i = 0; row->rounds && i < count; i++) {
    const double x = rounds->items[i];
    if (!(x >= 0 && x <= INT32_MAX && x == floor(x))) return record_wrong("rounds", "counts");
    row->rounds[i] = (int32_t)x;
  }
  return ATTN_OK;
}

static attn_status read_bins(json_reader *r, double *out) {
  size_t count = 0;
  if (!json_reader_begin(r, '[')) return record_wrong("profile", "l2 and max with 64 numbers each");
  while (json_reader_more(r, ']', &count)) {
    if (count > RESULT_PROFILE_BINS) break;
    if (!record_number(r, &out[count - 1])) return record_wrong("profile", "numbers");
  }
  return r->wrong || count != RESULT_PROFILE_BINS ? record_wrong("profile", "l2 and max with 64 numbers each")
                                                  : ATTN_OK;
}

static attn_status read_profile(json_reader *r, result_row *row) {
  size_t count = 0;
  unsigned seen = 0;
  attn_status status = ATTN_OK;
  if (!json_reader_begin(r, '{')) return record_wrong("profile", "an object");
  while (!status && json_reader_more(r, '}', &count)) {
    if (!json_reader_name(r)) break;
    const bool first = strcmp(r->text, "l2") == 0, second = strcmp(r->text, "max") == 0;
    seen |= first ? 1u : second ? 2u : 0;
    if (first || second)
      status = read_bins(r, first ? row->profile_l2 : row->profile_max);
    else
      (void)json_reader_skip(r);
  }
  if (!status && (r->wrong || seen != 3)) return record_wrong("profile", "l2 and max with 64 numbers each");
  return status;
}

static attn_status read_cells(json_reader *r, size_t count, float *cells) {
  attn_status status = ATTN_OK;
  unsigned char *bytes = malloc(4 * count + 1);
  if (!bytes) return record_no_memory();
  if (json_reader_peek(r) != JSON_READ_TEXT || !json_reader_text(r) ||
      !base64_decode(r->text, r->length, bytes, 4 * count))
    status = record_wrong(
        "map", "exact and approx in base64, 4 bytes for each of min(n, 128) x min(n_kv, 128) cells");
  for (size_t i = 0; !status && i < count; i++) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 4; k++) bits |= (uint32_t)bytes[4 * i + k] << 8 * k;
    memcpy(&cells[i], &bits, sizeof bits);
    if (!isfinite(cells[i])) status = record_wrong("map", "finite weights");
  }
  free(bytes);
  return status;
}

/* Its size follows from n and n_kv, wherever in the line they stand: r is where the map's value begins. */
static attn_status read_map(json_reader *r, result_row *row) {
  const size_t cells = result_map_size(row);
  size_t count = 0;
  unsigned seen = 0;
  attn_status status = ATTN_OK;
  if (cells == 0) return record_wrong("map", "n and n_kv above 0 with it");
  if (!(row->map = calloc(2 * cells, sizeof *row->map))) return record_no_memory();
  if (!json_reader_begin(r, '{')) return record_wrong("map", "an object");
  while (!status && json_reader_more(r, '}', &count)) {
    if (!json_reader_name(r)) break;
    const bool exact = strcmp(r->text, "exact") == 0, approx = strcmp(r->text, "approx") == 0;
    seen |= exact ? 1u : approx ? 2u : 0;
    if (exact || approx)
      status = read_cells(r, cells, exact ? row->map : row->map + cells);
    else
      (void)json_reader_skip(r);
  }
  return !status && (r->wrong || seen != 3) ? record_wrong("map", "exact and approx") : status;
}

/* What a row's text has shown so far. */
typedef struct row_reading {
  result_row row;
  json_reader map; /* where its value begins; at is NULL without one */
  record_vector samples, rounds;
} row_reading;

static attn_status read_member(json_reader *r, size_t member, void *context) {
  row_reading *out = context;
  switch (member) {
  case 0:
    return read_params(r, &out->row);
  case 1:
    return record_vector_read(r, "samples", &out->samples);
  case 2:
    return record_vector_read(r, "rounds", &out->rounds);
  case 3:
    return read_profile(r, &out->row);
  case 4:
    out->map = (json_reader){.at = r->at, .end = r->end};
    return json_reader_skip(r) ? ATTN_OK : record_wrong("map", r->wrong);
  default:
    return record_bounds_read(r, "bounds", &out->row.bounds, &out->row.bounds_count);
  }
}

attn_status result_row_parse(const char *text, size_t length, result_row *out) {
  static const char *const members[] = {"p", "samples", "rounds", "profile", "map", "bounds", NULL};
  row_reading reading = {.samples = {0}};
  record_reading record = {result_columns, &reading.row, members, read_member, &reading, {0}};
  result_row_init(&reading.row);
  attn_status status = record_read(&record, text, length);
  for (const result_column *c = result_columns; !status && c->name; c++)
    if (c->axis && !record_has(&record, c->name)) result_row_recover(&reading.row, c);
  if (!status) status = settle_samples(&reading.samples, &reading.rounds, &reading.row);
  if (!status && reading.map.at) status = read_map(&reading.map, &reading.row);
  if (!status)
    status =
        result_row_complete(&reading.row, record_has(&record, "label"), record_has(&record, "model_verdict"));
  if (status && reading.map.starved) status = record_no_memory();
  free(reading.samples.items);
  free(reading.rounds.items);
  json_reader_free(&reading.map);
  if (status)
    result_row_free(&reading.row);
  else
    *out = reading.row;
  return status;
}

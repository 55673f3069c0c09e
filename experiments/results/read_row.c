/* read_row.c - a row from its JSON text, in one pass: a journal may hold a million of them. Format: row_json.h. */
#include "experiments/results/row_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/support/base64.h"
#include "experiments/support/json_reader.h"
#include "experiments/support/names.h"

static attn_status wrong(const char *member, const char *expected) {
  return attn_fail(ATTN_EINVAL, "result row: %s: expected %s", member, expected);
}

static attn_status no_memory(void) { return attn_fail(ATTN_ENOMEM, "out of memory for a result row"); }

/* A number, null, "inf" or "-inf", as result_json_number writes them. */
static bool read_number(json_reader *r, double *x) {
  switch (json_reader_peek(r)) {
  case JSON_READ_NUMBER:
    return json_reader_number(r, x, NULL);
  case JSON_READ_NULL:
    *x = (double)NAN;
    return json_reader_word(r);
  case JSON_READ_TEXT:
    if (!json_reader_text(r)) return false;
    *x = *r->text == '-' ? -(double)INFINITY : (double)INFINITY;
    return strcmp(r->text, "inf") == 0 || strcmp(r->text, "-inf") == 0;
  default:
    return false;
  }
}

static attn_status read_column(json_reader *r, const result_column *c, void *record) {
  char expected[COLUMN_RANGE];
  double number;
  int64_t x;
  switch (c->type) {
  case COLUMN_TEXT:
  case COLUMN_FLAG:
    if (json_reader_peek(r) != JSON_READ_TEXT || !json_reader_text(r))
      return wrong(c->name, c->flags ? "one of its names" : "a string");
    const attn_status status = result_column_set_text(record, c, r->text);
    return status == ATTN_EINVAL ? wrong(c->name, "one of its names") : status;
  case COLUMN_F64:
    if (!read_number(r, &number)) return wrong(c->name, "a number or null");
    if (!result_column_allows(c, number, expected)) return wrong(c->name, expected);
    result_column_set_f64(record, c, number);
    return ATTN_OK;
  case COLUMN_BOOL:
    x = json_reader_peek(r) == JSON_READ_TRUE;
    if ((!x && json_reader_peek(r) != JSON_READ_FALSE) || !json_reader_word(r))
      return wrong(c->name, "true or false");
    break;
  default:
    if (json_reader_peek(r) != JSON_READ_NUMBER || !json_reader_number(r, NULL, &x))
      return wrong(c->name, "an integer");
    if (c->type == COLUMN_I32 && (x < INT32_MIN || x > INT32_MAX)) return wrong(c->name, "a 32-bit integer");
    if (!result_column_allows(c, (double)x, expected)) return wrong(c->name, expected);
  }
  result_column_set_int(record, c, x);
  return ATTN_OK;
}

static attn_status read_params(json_reader *r, result_row *row) {
  size_t count = 0;
  attn_status status = ATTN_OK;
  if (!json_reader_begin(r, '{')) return wrong("p", "an object");
  while (!status && json_reader_more(r, '}', &count)) {
    double number = (double)NAN;
    const char *kept = json_reader_name(r) ? names_keep(r->text) : "";
    if (!kept) return no_memory();
    const bool text = !r->wrong && json_reader_peek(r) == JSON_READ_TEXT;
    if (r->wrong || !(text ? json_reader_text(r) : read_number(r, &number)))
      return wrong("p", "names with numbers or texts");
    status = text ? result_row_add_text(row, kept, r->text) : result_row_add_param(row, kept, number);
  }
  return status;
}

/* The samples and their rounds, as far as they have been read. */
typedef struct read_vector {
  double *items;
  size_t count, room;
  bool there;
} read_vector;

static attn_status read_numbers(json_reader *r, const char *member, read_vector *out) {
  size_t count = 0;
  if (!json_reader_begin(r, '[')) return wrong(member, "an array of numbers");
  out->there = true;
  while (json_reader_more(r, ']', &count)) {
    if (out->count == out->room) {
      const size_t room = 2 * out->room + 64;
      double *items = realloc(out->items, room * sizeof *items);
      if (!items) return no_memory();
      out->items = items;
      out->room = room;
    }
    if (!read_number(r, &out->items[out->count++])) return wrong(member, "numbers");
  }
  return r->wrong ? wrong(member, "an array of numbers") : ATTN_OK;
}

/* Moves samples and rounds into the row. */
static attn_status settle_samples(const read_vector *samples, const read_vector *rounds, result_row *row) {
  const size_t count = (size_t)row->n_samples;
  if ((samples->there && samples->count != count) || (rounds->there && rounds->count != count))
    return wrong(samples->there ? "samples" : "rounds", "an array of n_samples numbers");
  if (samples->there && count && !(row->samples = malloc(count * sizeof *row->samples))) return no_memory();
  if (rounds->there && count && !(row->rounds = malloc(count * sizeof *row->rounds))) return no_memory();
  if (row->samples) memcpy(row->samples, samples->items, count * sizeof *row->samples);
  for (size_t i = 0; row->rounds && i < count; i++) {
    const double x = rounds->items[i];
    if (!(x >= 0 && x <= INT32_MAX && x == floor(x))) return wrong("rounds", "counts");
    row->rounds[i] = (int32_t)x;
  }
  return ATTN_OK;
}

static attn_status read_bins(json_reader *r, double *out) {
  size_t count = 0;
  if (!json_reader_begin(r, '[')) return wrong("profile", "l2 and max with 64 numbers each");
  while (json_reader_more(r, ']', &count)) {
    if (count > RESULT_PROFILE_BINS) break;
    if (!read_number(r, &out[count - 1])) return wrong("profile", "numbers");
  }
  return r->wrong || count != RESULT_PROFILE_BINS ? wrong("profile", "l2 and max with 64 numbers each")
                                                  : ATTN_OK;
}

static attn_status read_profile(json_reader *r, result_row *row) {
  size_t count = 0;
  unsigned seen = 0;
  attn_status status = ATTN_OK;
  if (!json_reader_begin(r, '{')) return wrong("profile", "an object");
  while (!status && json_reader_more(r, '}', &count)) {
    if (!json_reader_name(r)) break;
    const bool first = strcmp(r->text, "l2") == 0, second = strcmp(r->text, "max") == 0;
    seen |= first ? 1u : second ? 2u : 0;
    if (first || second)
      status = read_bins(r, first ? row->profile_l2 : row->profile_max);
    else
      (void)json_reader_skip(r);
  }
  if (!status && (r->wrong || seen != 3)) return wrong("profile", "l2 and max with 64 numbers each");
  return status;
}

static attn_status read_cells(json_reader *r, size_t count, float *cells) {
  attn_status status = ATTN_OK;
  unsigned char *bytes = malloc(4 * count + 1);
  if (!bytes) return no_memory();
  if (json_reader_peek(r) != JSON_READ_TEXT || !json_reader_text(r) ||
      !base64_decode(r->text, r->length, bytes, 4 * count))
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

/* Its size follows from n and n_kv, wherever in the line they stand: r is where the map's value begins. */
static attn_status read_map(json_reader *r, result_row *row) {
  const size_t cells = result_map_size(row);
  size_t count = 0;
  unsigned seen = 0;
  attn_status status = ATTN_OK;
  if (cells == 0) return wrong("map", "n and n_kv above 0 with it");
  if (!(row->map = calloc(2 * cells, sizeof *row->map))) return no_memory();
  if (!json_reader_begin(r, '{')) return wrong("map", "an object");
  while (!status && json_reader_more(r, '}', &count)) {
    if (!json_reader_name(r)) break;
    const bool exact = strcmp(r->text, "exact") == 0, approx = strcmp(r->text, "approx") == 0;
    seen |= exact ? 1u : approx ? 2u : 0;
    if (exact || approx)
      status = read_cells(r, cells, exact ? row->map : row->map + cells);
    else
      (void)json_reader_skip(r);
  }
  return !status && (r->wrong || seen != 3) ? wrong("map", "exact and approx") : status;
}

/* The column of this name among those from first; *next: where the writer's order has it. */
static const result_column *find_column(const result_column *first, const result_column **next,
                                        const char *name) {
  if ((*next)->name && strcmp((*next)->name, name) == 0) return (*next)++;
  for (const result_column *c = first; c->name; c++)
    if (strcmp(c->name, name) == 0) {
      *next = c + 1;
      return c;
    }
  return NULL;
}

/* Members that a version of the schema added later may be absent: p_repeat and message. */
static attn_status read_bound(json_reader *r, result_row *row) {
  const result_column *next = result_bound_columns;
  result_bound b = {.name = NULL, .p_repeat = (double)NAN};
  uint64_t seen = 0;
  size_t count = 0;
  attn_status status = ATTN_OK;
  if (!json_reader_begin(r, '{')) return wrong("bounds", "a name in each");
  while (!status && json_reader_more(r, '}', &count)) {
    if (!json_reader_name(r)) break;
    const result_column *c = find_column(result_bound_columns, &next, r->text);
    const bool named = strcmp(r->text, "name") == 0;
    if (c) {
      seen |= UINT64_C(1) << (c - result_bound_columns);
      status = read_column(r, c, &b);
    } else if (named) {
      if (json_reader_peek(r) != JSON_READ_TEXT || !json_reader_text(r) || !*r->text)
        return wrong("bounds", "a name in each");
      if (!(b.name = names_keep(r->text))) return no_memory();
    } else {
      (void)json_reader_skip(r);
    }
  }
  if (!status && r->wrong) return wrong("bounds", r->wrong);
  if (!status && !b.name) return wrong("bounds", "a name in each");
  for (const result_column *c = result_bound_columns; !status && c->name; c++)
    if ((c->measure || c->flags) && !(seen >> (c - result_bound_columns) & 1))
      status = wrong(c->name, "a member of each bound");
  if (!status) return result_row_add_bound(row, &b);
  char problem[256];
  snprintf(problem, sizeof problem, "%s", attn_last_error());
  return attn_fail(status, "%s, in the bound %s", problem, b.name ? b.name : "without a name");
}

static attn_status read_bounds(json_reader *r, result_row *row) {
  size_t count = 0;
  attn_status status = ATTN_OK;
  if (!json_reader_begin(r, '[')) return wrong("bounds", "an array");
  while (!status && json_reader_more(r, ']', &count)) status = read_bound(r, row);
  return status;
}

enum { COLUMNS_MAX = 192, MEMBERS = 6 }; /* at most so many columns; members that are no columns */

/* What a row's text has shown so far. */
typedef struct row_reading {
  result_row row;
  bool seen[COLUMNS_MAX + MEMBERS];
  json_reader map; /* where its value begins; at is NULL without one */
  read_vector samples, rounds;
} row_reading;

static size_t column_place(const char *name) {
  size_t place = 0;
  while (strcmp(result_columns[place].name, name) != 0) place++;
  return place;
}

static attn_status read_member(json_reader *r, row_reading *out, const result_column **next) {
  static const char *const members[MEMBERS] = {"p", "samples", "rounds", "profile", "map", "bounds"};
  const result_column *c = find_column(result_columns, next, r->text);
  size_t place = c ? (size_t)(c - result_columns) : COLUMNS_MAX;
  while (!c && place < COLUMNS_MAX + MEMBERS && strcmp(members[place - COLUMNS_MAX], r->text) != 0) place++;
  if (place == COLUMNS_MAX + MEMBERS) return json_reader_skip(r) ? ATTN_OK : wrong("a member", r->wrong);
  if (out->seen[place]) return wrong(c ? c->name : members[place - COLUMNS_MAX], "it once");
  out->seen[place] = true;
  if (c) return read_column(r, c, &out->row);
  switch (place - COLUMNS_MAX) {
  case 0:
    return read_params(r, &out->row);
  case 1:
    return read_numbers(r, "samples", &out->samples);
  case 2:
    return read_numbers(r, "rounds", &out->rounds);
  case 3:
    return read_profile(r, &out->row);
  case 4:
    out->map = (json_reader){.at = r->at, .end = r->end};
    return json_reader_skip(r) ? ATTN_OK : wrong("map", r->wrong);
  default:
    return read_bounds(r, &out->row);
  }
}

attn_status result_row_parse(const char *text, size_t length, result_row *out) {
  json_reader r = json_reader_of(text, length);
  row_reading reading = {.seen = {false}};
  const result_column *next = result_columns;
  size_t count = 0;
  attn_status status = ATTN_OK;
  result_row_init(&reading.row);
  if (!json_reader_begin(&r, '{')) status = attn_fail(ATTN_EINVAL, "result row: expected a JSON object");
  while (!status && json_reader_more(&r, '}', &count))
    if (!json_reader_name(&r) || (status = read_member(&r, &reading, &next))) break;
  if (!status && !json_reader_end(&r)) status = attn_fail(ATTN_EINVAL, "result row: expected %s", r.wrong);
  for (const result_column *c = result_columns; !status && c->name; c++) {
    const bool seen = reading.seen[c - result_columns];
    if (!seen && c->axis) result_row_recover(&reading.row, c);
    if (!seen && !c->axis && c->type == COLUMN_TEXT) status = result_column_set_text(&reading.row, c, "");
  }
  if (!status && !*reading.row.key) status = wrong("key", "text that is not empty");
  if (!status) status = settle_samples(&reading.samples, &reading.rounds, &reading.row);
  if (!status && reading.map.at) status = read_map(&reading.map, &reading.row);
  if (!status)
    status = result_row_complete(&reading.row, reading.seen[column_place("label")],
                                 reading.seen[column_place("model_verdict")]);
  if (status && (r.starved || reading.map.starved)) status = no_memory();
  free(reading.samples.items);
  free(reading.rounds.items);
  json_reader_free(&reading.map);
  json_reader_free(&r);
  if (status)
    result_row_free(&reading.row);
  else
    *out = reading.row;
  return status;
}

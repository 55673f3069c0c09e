/* read_record.c - records from JSON texts (read_record.h). */
#include "experiments/results/read_record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/results/bound.h"
#include "experiments/support/names.h"

attn_status record_wrong(const char *member, const char *expected) {
  return attn_fail(ATTN_EINVAL, "result row: %s: expected %s", member, expected);
}

attn_status record_no_memory(void) { return attn_fail(ATTN_ENOMEM, "out of memory for a result row"); }

bool record_number(json_reader *r, double *x) {
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
      return record_wrong(c->name, c->flags ? "one of its names" : "a string");
    const attn_status status = result_column_set_text(record, c, r->text);
    return status == ATTN_EINVAL ? record_wrong(c->name, "one of its names") : status;
  case COLUMN_F64:
    if (!record_number(r, &number)) return record_wrong(c->name, "a number or null");
    if (!result_column_allows(c, number, expected)) return record_wrong(c->name, expected);
    result_column_set_f64(record, c, number);
    return ATTN_OK;
  case COLUMN_BOOL:
    x = json_reader_peek(r) == JSON_READ_TRUE;
    if ((!x && json_reader_peek(r) != JSON_READ_FALSE) || !json_reader_word(r))
      return record_wrong(c->name, "true or false");
    break;
  default:
    if (json_reader_peek(r) != JSON_READ_NUMBER || !json_reader_number(r, NULL, &x))
      return record_wrong(c->name, "an integer");
    if (c->type == COLUMN_I32 && (x < INT32_MIN || x > INT32_MAX))
      return record_wrong(c->name, "a 32-bit integer");
    if (!result_column_allows(c, (double)x, expected)) return record_wrong(c->name, expected);
  }
  result_column_set_int(record, c, x);
  return ATTN_OK;
}

attn_status record_vector_read(json_reader *r, const char *member, record_vector *out) {
  size_t count = 0;
  if (!json_reader_begin(r, '[')) return record_wrong(member, "an array of numbers");
  out->there = true;
  while (json_reader_more(r, ']', &count)) {
    if (out->count == out->room) {
      const size_t room = 2 * out->room + 64;
      double *items = realloc(out->items, room * sizeof *items);
      if (!items) return record_no_memory();
      out->items = items;
      out->room = room;
    }
    if (!record_number(r, &out->items[out->count++])) return record_wrong(member, "numbers");
  }
  return r->wrong ? record_wrong(member, "an array of numbers") : ATTN_OK;
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
static attn_status read_bound(json_reader *r, const char *member, result_bound **bounds, int *bounds_count) {
  const result_column *next = result_bound_columns;
  result_bound b = {.name = NULL, .p_repeat = (double)NAN};
  uint64_t seen = 0;
  size_t count = 0;
  attn_status status = ATTN_OK;
  if (!json_reader_begin(r, '{')) return record_wrong(member, "a name in each");
  while (!status && json_reader_more(r, '}', &count)) {
    if (!json_reader_name(r)) break;
    const result_column *c = find_column(result_bound_columns, &next, r->text);
    const bool named = strcmp(r->text, "name") == 0;
    if (c) {
      seen |= UINT64_C(1) << (c - result_bound_columns);
      status = read_column(r, c, &b);
    } else if (named) {
      if (json_reader_peek(r) != JSON_READ_TEXT || !json_reader_text(r) || !*r->text)
        return record_wrong(member, "a name in each");
      if (!(b.name = names_keep(r->text))) return record_no_memory();
    } else {
      (void)json_reader_skip(r);
    }
  }
  if (!status && r->wrong) return record_wrong(member, r->wrong);
  if (!status && !b.name) return record_wrong(member, "a name in each");
  for (const result_column *c = result_bound_columns; !status && c->name; c++)
    if ((c->measure || c->flags) && !(seen >> (c - result_bound_columns) & 1))
      status = record_wrong(c->name, "a member of each bound");
  if (!status) return bounds_add(bounds, bounds_count, &b);
  char problem[256];
  snprintf(problem, sizeof problem, "%s", attn_last_error());
  return attn_fail(status, "%s, in the bound %s", problem, b.name ? b.name : "without a name");
}

attn_status record_bounds_read(json_reader *r, const char *member, result_bound **bounds, int *count) {
  size_t items = 0;
  attn_status status = ATTN_OK;
  if (!json_reader_begin(r, '[')) return record_wrong(member, "an array");
  while (!status && json_reader_more(r, ']', &items)) status = read_bound(r, member, bounds, count);
  return status;
}

bool record_has(const record_reading *x, const char *column) {
  size_t place = 0;
  while (strcmp(x->columns[place].name, column) != 0) place++;
  return x->seen[place];
}

static attn_status read_member(json_reader *r, record_reading *x, const result_column **next) {
  const result_column *c = find_column(x->columns, next, r->text);
  size_t place = c ? (size_t)(c - x->columns) : 0, member = 0;
  while (!c && x->members[member] && strcmp(x->members[member], r->text) != 0) member++;
  if (!c && !x->members[member]) return json_reader_skip(r) ? ATTN_OK : record_wrong("a member", r->wrong);
  if (!c) place = RECORD_COLUMNS + member;
  if (x->seen[place]) return record_wrong(c ? c->name : x->members[member], "it once");
  x->seen[place] = true;
  return c ? read_column(r, c, x->record) : x->read(r, member, x->context);
}

attn_status record_read(record_reading *x, const char *text, size_t length) {
  json_reader r = json_reader_of(text, length);
  const result_column *next = x->columns;
  size_t count = 0;
  attn_status status = ATTN_OK;
  if (!json_reader_begin(&r, '{')) status = attn_fail(ATTN_EINVAL, "result row: expected a JSON object");
  while (!status && json_reader_more(&r, '}', &count))
    if (!json_reader_name(&r) || (status = read_member(&r, x, &next))) break;
  if (!status && !json_reader_end(&r)) status = attn_fail(ATTN_EINVAL, "result row: expected %s", r.wrong);
  for (const result_column *c = x->columns; !status && c->name; c++)
    if (!c->axis && c->type == COLUMN_TEXT && !x->seen[c - x->columns])
      status = result_column_set_text(x->record, c, "");
  if (!status && !*result_column_text(x->record, x->columns))
    status = record_wrong(x->columns->name, "text that is not empty");
  if (status && r.starved) status = record_no_memory();
  json_reader_free(&r);
  return status;
}

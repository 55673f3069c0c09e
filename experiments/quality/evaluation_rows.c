/* evaluation_rows.c - runs of evaluations to JSON and back, and the kind of row that they are
 * (evaluation_rows.h). */
#include "experiments/quality/evaluation_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/quality/evaluation_file.h"
#include "experiments/quality/relate.h"
#include "experiments/results/read_record.h"

/* -- sets -- */

const quality_record *quality_set_find(const quality_set *s, const char *key) {
  for (size_t i = 0; i < s->count; i++)
    if (strcmp(s->records[i].key, key) == 0) return &s->records[i];
  for (size_t i = 0; i < s->count; i++)
    if (quality_keys_match(s->records[i].key, key)) return &s->records[i];
  return NULL;
}

/* -- to JSON -- */

json_t *quality_record_json(const quality_record *r) {
  json_t *out = json_object(), *group = NULL;
  int failed = !out;
  for (const result_column *c = quality_columns; c->name; c++)
    failed |= json_object_set_new(out, c->name, result_column_json(r, c));
  for (const quality_series *s = quality_series_list; s < quality_series_list + QUALITY_SERIES; s++) {
    if (s == quality_series_list || strcmp(s->group, s[-1].group) != 0)
      failed |= json_object_set_new(out, s->group, group = json_object());
    failed |= json_object_set_new(
        group, s->name, result_numbers_json(quality_series_values(r, s), quality_series_length(r, s)));
  }
  failed |= json_object_set_new(out, "checks", result_bounds_json(r->checks, r->check_count));
  if (!failed) return out;
  json_decref(out);
  attn_fail(ATTN_ENOMEM, "no memory for a run as JSON");
  return NULL;
}

/* -- from JSON -- */

static const char *const members[] = {"by_window", "by_position", "by_layer", "checks", NULL};

typedef struct reading {
  quality_record record;
  record_vector series[QUALITY_SERIES];
  result_bound *checks;
  int check_count;
} reading;

static attn_status read_group(json_reader *r, const char *group, reading *out) {
  size_t count = 0;
  attn_status status = ATTN_OK;
  if (!json_reader_begin(r, '{')) return record_wrong(group, "an object");
  while (!status && json_reader_more(r, '}', &count)) {
    int s = 0;
    if (!json_reader_name(r)) break;
    while (s < QUALITY_SERIES && (strcmp(quality_series_list[s].group, group) != 0 ||
                                  strcmp(quality_series_list[s].name, r->text) != 0))
      s++;
    if (s == QUALITY_SERIES)
      (void)json_reader_skip(r);
    else if (out->series[s].there)
      return record_wrong(group, "each series once");
    else
      status = record_vector_read(r, group, &out->series[s]);
  }
  return !status && r->wrong ? record_wrong(group, r->wrong) : status;
}

static attn_status read_member(json_reader *r, size_t member, void *context) {
  reading *out = context;
  return member < QUALITY_GROUPS ? read_group(r, members[member], out)
                                 : record_bounds_read(r, members[member], &out->checks, &out->check_count);
}

/* Moves the series into the record: all of them, of the lengths that its columns say, or none. */
static attn_status settle_series(reading *x) {
  quality_record *r = &x->record;
  const bool none = x->series[0].count == 0;
  r->layer_count = (int64_t)x->series[QUALITY_SERIES - 1].count;
  for (int i = 0; i < QUALITY_SERIES; i++) {
    const quality_series *s = &quality_series_list[i];
    const int64_t expected = s->by == BY_WINDOW ? r->windows
                             : s->by == BY_BIN  ? QUALITY_BINS
                                                : r->layer_count;
    if ((int64_t)x->series[i].count != (none ? 0 : expected))
      return record_wrong(s->group, "as many numbers as there are windows, bins or layers");
    if (none) continue;
    memcpy((char *)r + s->offset, &x->series[i].items, sizeof x->series[i].items);
    x->series[i].items = NULL;
  }
  return ATTN_OK;
}

static attn_status parse(const char *text, size_t length, void *row) {
  reading x = {.checks = NULL};
  record_reading record = {quality_columns, &x.record, members, read_member, &x, {0}};
  attn_status status = quality_record_init(&x.record);
  if (status) return status;
  status = record_read(&record, text, length);
  if (!status) status = settle_series(&x);
  if (!status) status = quality_record_take_checks(&x.record, x.checks, x.check_count);
  for (int i = 0; i < QUALITY_SERIES; i++) free(x.series[i].items);
  free(x.checks);
  if (status)
    quality_record_free(&x.record);
  else
    memcpy(row, &x.record, sizeof x.record);
  return status;
}

/* -- the kind -- */

static row_head head(const void *row) {
  const quality_record *r = row;
  return (row_head){r->key, (run_status)r->status, r->end_time, (double)NAN, quality_identity(r)};
}

static void release(void *row) { quality_record_free(row); }
static json_t *to_json(const void *row) { return quality_record_json(row); }

/* A check that only the other run was held against: it is asked of the first of several (quality_check). */
static void adopt(void *row, const void *other) {
  quality_record *r = row;
  const quality_record *o = other;
  for (int i = 0; i < QUALITY_CHECKS; i++)
    if (r->checks[i].verdict == VERDICT_NOT_APPLICABLE) r->checks[i] = o->checks[i];
  r->verdict = (int)bounds_worst(r->checks, r->check_count);
}

const row_kind rows_of_evaluation = {.of = "an evaluation",
                                     .name = "evaluation",
                                     .version = 3,
                                     .size = sizeof(quality_record),
                                     .columns = quality_columns,
                                     .session = offsetof(quality_record, session),
                                     .bounds = offsetof(quality_record, checks),
                                     .bounds_count = offsetof(quality_record, check_count),
                                     .in_order = true,
                                     .head = head,
                                     .release = release,
                                     .to_json = to_json,
                                     .parse = parse,
                                     .settle = quality_relate,
                                     .same = quality_keys_match,
                                     .read_file = quality_read,
                                     .adopt = adopt};

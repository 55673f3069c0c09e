/* bench_table.c - the table of a benchmark, and the same with every sample as JSON. See benchmark.h. */
#include "experiments/bench/benchmark.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/json_text.h"
#include "experiments/results/row_json.h"
#include "experiments/support/table.h"

static const char *verdict_of(const bench_row *row) {
  if (row->note[0]) return row->note;
  if (row->target == TARGET_NONE || isnan(row->ratio)) return "";
  return target_met(row->target, row->ratio) ? "met" : "missed";
}

static void add_row(text_table *s, const bench_row *row) {
  const bench_goal *t = &bench_goals[row->target];
  table_add(s, "%s", row->group);
  table_add(s, "%s", row->what);
  if (row->n)
    table_add(s, "%lld", (long long)row->n);
  else
    table_add(s, "");
  if (row->d)
    table_add(s, "%lld", (long long)row->d);
  else
    table_add(s, "");
  table_add(s, "%s", row->figure);
  if (isnan(row->ratio))
    table_add(s, "");
  else
    table_add(s, "%.3f", row->ratio);
  if (isnan(row->low) || row->low >= row->high)
    table_add(s, "");
  else
    table_add(s, "%.3f ... %.3f", row->low, row->high);
  if (row->target == TARGET_NONE)
    table_add(s, "");
  else
    table_add(s, "%s %.2f", t->at_most ? "<=" : ">=", t->value);
  table_add(s, "%s", verdict_of(row));
}

attn_status bench_print(const bench *b, bool markdown) {
  static const char *const titles[] = {"group", "what", "n", "d", "", "ratio", "95 % interval", "target", ""};
  enum { COLUMNS = sizeof titles / sizeof *titles };
  text_table s = {.columns = COLUMNS, .left = 2};
  for (size_t i = 0; i < COLUMNS; i++) table_add(&s, "%s", titles[i]);
  for (size_t i = 0; i < b->row_count; i++) add_row(&s, &b->rows[i]);
  const attn_status status = table_print(stdout, &s, markdown ? TABLE_MARKDOWN : TABLE_TEXT);
  table_free(&s);
  return status;
}

/* ---- JSON; a NULL of jansson means no memory and passes through its functions ---- */

static json_t *numbers(const double *x, int64_t count) {
  json_t *array = json_array();
  for (int64_t i = 0; i < count; i++) json_array_append_new(array, result_json_number(x[i]));
  return array;
}

static json_t *meter_json(const bench_set *set, const bench_meter *m) {
  return json_pack("{s:s, s:s, s:s, s:[I, I], s:i, s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:o}", "group",
                   set->group, "what", m->name, "isa", m->isa, "blocks", (json_int_t)m->blocks.query,
                   (json_int_t)m->blocks.key, "threads", m->threads, "n", (json_int_t)m->n, "d",
                   (json_int_t)m->d, "flops", m->flops, "bytes", m->bytes, "tokens", m->tokens, "memory",
                   m->memory, "seconds", numbers(m->seconds, m->count), "limit", numbers(m->limit, m->count));
}

static json_t *row_json(const bench_row *row) {
  const bench_goal *t = &bench_goals[row->target];
  return json_pack("{s:s, s:s, s:I, s:I, s:s, s:o, s:[o, o], s:o, s:b, s:s, s:s}", "group", row->group,
                   "what", row->what, "n", (json_int_t)row->n, "d", (json_int_t)row->d, "figure", row->figure,
                   "ratio", result_json_number(row->ratio), "interval", result_json_number(row->low),
                   result_json_number(row->high), "target", result_json_number(t->value), "at_most",
                   t->at_most, "target_of", t->of, "verdict", verdict_of(row));
}

static bool is_bench(const char *path, const file_map *content) {
  (void)path;
  return file_begins(content, "{\n \"provenance\": {");
}

const output_kind kind_bench = {"the JSON of a benchmark", is_bench};

attn_status bench_json(const bench *b, const char *path, json_t *provenance) {
  json_t *meters = json_array(), *rows = json_array();
  bool ok = true;
  for (size_t s = 0; s < b->set_count; s++)
    for (int64_t i = 0; i < b->sets[s]->count; i++)
      ok = json_array_append_new(meters, meter_json(b->sets[s], b->sets[s]->meters[i])) == 0 && ok;
  for (size_t i = 0; i < b->row_count; i++)
    ok = json_array_append_new(rows, row_json(&b->rows[i])) == 0 && ok;
  json_t *document = json_pack("{s:O, s:s, s:i, s:b, s:I, s:o, s:o}", "provenance", provenance, "isa",
                               b->options.isa, "threads", b->options.threads, "quick", b->options.quick,
                               "seed", (json_int_t)b->options.seed, "rows", rows, "meters", meters);
  char *text = ok && document ? json_print(document, JSON_INDENT(1)) : NULL;
  json_decref(document);
  if (!text) return attn_fail(ATTN_ENOMEM, "%s: no memory for the results", path);
  const attn_status status = output_write(path, &kind_bench, &(file_part){text, strlen(text)}, 1);
  free(text);
  return status;
}

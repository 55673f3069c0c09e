/* verdicts.c - see verdicts.h. */
#include "experiments/quality/verdicts.h"

#include <stdlib.h>
#include <string.h>

#include "data/support/json_text.h"
#include "experiments/quality/depth_maps.h"
#include "experiments/quality/evaluation_tables.h"
#include "experiments/quality/relate.h"
#include "experiments/support/escape.h"

static bool is_failure(const quality_record *r) {
  return r->verdict == VERDICT_ERROR || (r->status != RUN_OK && r->status != RUN_UNSUPPORTED);
}

size_t quality_violations(const quality_set *set) {
  size_t count = 0;
  for (size_t i = 0; i < set->count; i++) count += set->records[i].verdict == VERDICT_VIOLATED;
  return count;
}

size_t quality_failures(const quality_set *set) {
  size_t count = 0;
  for (size_t i = 0; i < set->count; i++) count += is_failure(&set->records[i]);
  return count;
}

/* -- text -- */

static attn_status print_questions(FILE *out, const quality_set *set, table_format format) {
  const quality_record **runs = calloc(set->count + 1, sizeof *runs);
  attn_status status = runs ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for %zu runs", set->count);
  for (size_t first = 0; !status && first < set->count; first++) {
    size_t count = 0, i = 0;
    while (i < first && !quality_same_question(&set->records[i], &set->records[first])) i++;
    if (i < first) continue;
    for (; i < set->count; i++)
      if (quality_same_question(&set->records[first], &set->records[i])) runs[count++] = &set->records[i];
    status = quality_print(out, runs, count, format);
  }
  free(runs);
  return status;
}

static attn_status print_counts(FILE *out, const quality_set *set, table_format format) {
  text_table t = {.columns = 1 + VERDICT_UNCHECKED, .left = 1};
  table_add(&t, "check");
  for (int v = 0; v < VERDICT_UNCHECKED; v++) table_add(&t, "%s", check_verdict_names[v]);
  const check *c;
  for (size_t place = 0; (c = quality_check_at(place)); place++) {
    size_t counts[VERDICTS] = {0}, all = 0;
    for (size_t i = 0; i < set->count; i++) {
      const quality_record *r = &set->records[i];
      for (int b = 0; b < r->check_count; b++)
        if (strcmp(r->checks[b].name, c->name) == 0) all += ++counts[r->checks[b].verdict];
    }
    if (all == 0) continue;
    table_add(&t, "%s", c->name);
    for (int v = 0; v < VERDICT_UNCHECKED; v++) table_add(&t, counts[v] ? "%zu" : "", counts[v]);
  }
  const attn_status status = table_print(out, &t, format);
  table_free(&t);
  return status;
}

static void print_run(FILE *out, const quality_record *r) {
  if (r->status != RUN_OK) {
    fprintf(out, "%s: %s: ", run_status_names[r->status], r->spec);
    escape_put(out, r->message);
    fputc('\n', out);
  }
  quality_print_cells(out, NULL, r, VERDICT_VIOLATED);
  quality_print_cells(out, NULL, r, VERDICT_ERROR);
}

attn_status quality_verdicts_print(FILE *out, const quality_set *set, bool bounds, table_format format) {
  attn_status status = bounds ? print_counts(out, set, format) : print_questions(out, set, format);
  if (!status && !bounds) status = quality_print_depths(out, set, format);
  for (size_t i = 0; !status && i < set->count; i++) print_run(out, &set->records[i]);
  if (!status)
    fprintf(out, "%zu runs of a model, %zu with a violated bound, %zu failed\n", set->count,
            quality_violations(set), quality_failures(set));
  return status;
}

/* -- JSON -- */

static json_t *cell_json(const quality_record *r, const result_bound *b, bool *ok) {
  json_t *out = json_object();
  json_put(out, "check", json_string(b->name), ok);
  json_put(out, "verdict", json_string(check_verdict_names[b->verdict]), ok);
  json_put(out, "statement", json_string(quality_check_find(b->name)->statement), ok);
  json_put(out, "measured", result_json_number(b->measured), ok);
  json_put(out, "value", result_json_number(b->value), ok);
  json_put(out, "message", result_json_text(b->message), ok);
  json_put(out, "key", result_json_text(r->key), ok);
  return out;
}

static json_t *failure_json(const quality_record *r, bool *ok) {
  json_t *out = json_object();
  json_put(out, "key", result_json_text(r->key), ok);
  json_put(out, "status", json_string(run_status_names[r->status]), ok);
  json_put(out, "message", result_json_text(r->message), ok);
  return out;
}

static json_t *counts_json(const char *const *names, const size_t *counts, bool *ok) {
  json_t *out = json_object();
  for (int i = 0; names[i]; i++)
    if (counts[i]) json_put(out, names[i], json_integer((json_int_t)counts[i]), ok);
  return out;
}

json_t *quality_verdicts_json(const quality_set *set) {
  size_t statuses[RUN_SKIPPED + 2] = {0}, verdicts[VERDICTS + 1] = {0};
  bool ok = true;
  json_t *out = json_object(), *violations = json_array(), *errors = json_array(), *failures = json_array();
  for (size_t i = 0; i < set->count; i++) {
    const quality_record *r = &set->records[i];
    statuses[r->status]++;
    if (r->status != RUN_OK && json_array_append_new(failures, failure_json(r, &ok))) ok = false;
    for (int c = 0; c < r->check_count; c++) {
      const result_bound *b = &r->checks[c];
      verdicts[b->verdict]++;
      json_t *list = b->verdict == VERDICT_VIOLATED ? violations
                     : b->verdict == VERDICT_ERROR  ? errors
                                                    : NULL;
      if (list && json_array_append_new(list, cell_json(r, b, &ok))) ok = false;
    }
  }
  json_put(out, "runs", json_integer((json_int_t)set->count), &ok);
  json_put(out, "statuses", counts_json(run_status_names, statuses, &ok), &ok);
  json_put(out, "verdicts", counts_json(check_verdict_names, verdicts, &ok), &ok);
  json_put(out, "violations", violations, &ok);
  json_put(out, "errors", errors, &ok);
  json_put(out, "failures", failures, &ok);
  if (ok) return out;
  json_decref(out);
  attn_fail(ATTN_ENOMEM, "no memory for the JSON form of the verdicts");
  return NULL;
}

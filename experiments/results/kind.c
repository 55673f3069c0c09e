/* kind.c - the rows of sweeps as a kind (kind.h). */
#include "experiments/results/kind.h"

#include "experiments/results/set.h"

int64_t *row_session(const row_kind *k, void *row) { return (void *)((char *)row + k->session); }

result_bound **row_bounds(const row_kind *k, void *row) { return (void *)((char *)row + k->bounds); }

int *row_bounds_count(const row_kind *k, void *row) { return (void *)((char *)row + k->bounds_count); }

static row_head head(const void *row) {
  const result_row *r = row;
  return (row_head){
      r->key, r->status, r->end_time, r->load, {r->dataset_sha256, r->plugin_sha256, r->files_sha256, ""}};
}

static void release(void *row) { result_row_free(row); }
static json_t *to_json(const void *row) { return result_row_to_json(row); }
static attn_status parse(const char *text, size_t length, void *row) {
  return result_row_parse(text, length, row);
}
static attn_status settle(result_set *set) { return results_holm(set->rows, set->count, RESULTS_ALPHA); }

const row_kind rows_of_sweep = {.of = "a sweep",
                                .version = 2,
                                .size = sizeof(result_row),
                                .columns = result_columns,
                                .session = offsetof(result_row, session),
                                .bounds = offsetof(result_row, bounds),
                                .bounds_count = offsetof(result_row, bounds_count),
                                .head = head,
                                .release = release,
                                .to_json = to_json,
                                .parse = parse,
                                .settle = settle};

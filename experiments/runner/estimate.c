/* estimate.c - the estimate of a run, and the table of a dry run.
 *
 * An execution takes the multiply-adds of its variant's formula, at the rate that the calibration found for
 * the variant. Before it is timed its output is verified, at a cost that grows with the weights of the exact
 * rows and their width; then it is sampled until its interval is narrow, which on most machines means to the
 * end of max_time. */
#include "experiments/runner/estimate.h"

#include "data/data.h"
#include "data/support/json_text.h"
#include "experiments/reference/exact.h"
#include "experiments/evidence/null.h"
#include "experiments/grid/spec_files.h"
#include "experiments/runner/calibration.h"
#include "experiments/runner/measure.h"
#include "experiments/results/row_json.h"
#include "experiments/support/escape.h"
#include "experiments/support/table.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a row in the journal and the results file together, without its samples and map; of a sample; of a
 * cell of a map's two matrices; of a file without rows. */
#define ROW_BYTES 8e3
#define SAMPLE_BYTES 40.0
#define CELL_BYTES 18.0
#define FILE_BYTES 6e5

typedef struct totals {
  size_t runs, skipped, unknown; /* skipped: that will not run */
  double seconds, memory, disk;
} totals;

/* With the same mask where the variant can do both: some are causal alone, some never. */
static const result_row *calibrated(const result_set *set, const char *variant, const grid_block *block) {
  const result_row *found = NULL;
  for (size_t i = 0; i < set->count; i++) {
    const result_row *row = &set->rows[i];
    if (row->status != RUN_OK || row->threads != block->threads || strcmp(row->variant, variant) != 0)
      continue;
    if (!found || row->causal == block->causal) found = row;
  }
  return found;
}

/* Work of a verification: the products of the exact rows. */
static double verification_work(const attn_problem *p, int64_t rows) {
  const sampling s = sampling_of(p, rows > ROWS_ALL ? rows : 0);
  return (double)(p->batch * p->heads) * (double)(s.bins * s.per_stratum) * (double)p->n_kv * (double)p->d_qk;
}

/* Seconds in the sweep of a run whose execution takes so long. Emptying the caches takes most of a cold
 * run. */
static double sweep_seconds(const timing_options *t, bool cold, double execution, double verification) {
  if (execution > t->max_time) return verification + execution;
  if (cold) return verification + t->max_time;
  const double sample = fmax(execution, t->sample_time);
  const double sampled = fmin(t->max_time, sample * (double)t->samples);
  return verification + t->warmup + fmax(sampled, (double)t->rounds * sample);
}

/* Seconds of an execution and of the run; NaN where the calibration does not know its variant. */
static void predict_times(const grid_block *block, const grid_run *run, const config *c,
                          const result_row *row, run_estimate *e) {
  attn_problem problem = grid_problem(block), small = attn_problem_make(1, 1, CALIBRATION_N, CALIBRATION_D);
  if (!row || attn_problem_resolve(&problem) || attn_problem_resolve(&small)) return;
  const bool null = null_find(run->variant) != NULL, cold = block->cache == CACHE_COLD;
  const double more = verification_work(&problem, block->rows) / verification_work(&small, 0);
  const double verification = (row->end_time - row->start_time) * more;
  e->execution = null ? 0 : row->time_median * 2 * e->cost.mul_add / row->flops;
  const double whole = null ? verification : sweep_seconds(&c->timing, cold, e->execution, verification);
  e->whole = fmin(whole, c->budget_time);
}

attn_status estimate_run(const grid_block *block, const grid_run *run, const config *c,
                         const result_set *calibration, run_estimate *out) {
  const attn_problem problem = grid_problem(block);
  run_estimate e = {.execution = (double)NAN, .whole = (double)NAN, .memory = (double)NAN};
  size_t tensors = 0, output = 0;
  if (block->unfit) return attn_fail(block->unfit_status, "%s", block->unfit);
  attn_status status = measure_tensor_bytes(&problem, &tensors, &output);
  if (!status && !run->priced)
    status = attn_fail(ATTN_EFOREIGN, "%s", run->unknown ? run->unknown : "there is no estimate");
  if (status) return status;
  e.work = run->work;
  e.cost = run->cost;
  e.memory = (double)tensors + (double)e.work;
  e.fits = e.memory <= (double)c->budget_memory;
  if (e.fits) predict_times(block, run, c, calibrated(calibration, run->variant, block), &e);
  *out = e;
  return ATTN_OK;
}

/* One run of a dry run; why: NULL if it is planned. */
typedef struct planned {
  result_row row; /* its identity */
  run_estimate e;
  char *why;
} planned;

static void planned_free(planned *p) {
  result_row_free(&p->row);
  free(p->why);
}

static attn_status plan_run(const grid_block *block, const grid_run *run, const config *c,
                            const result_set *set, totals *sum, planned *p) {
  result_row_init(&p->row);
  p->e = (run_estimate){.work = 0};
  p->why = NULL;
  attn_status status = grid_row(block, run, &p->row);
  if (status) return status;
  const char *why = "skipped: beyond budget.memory";
  if (estimate_run(block, run, c, set, &p->e)) why = attn_last_error();
  if (!p->e.fits && !(p->why = escape_text(why))) return attn_fail(ATTN_ENOMEM, "no memory for an estimate");
  const double cells = (double)(result_map_cells(block->n) * result_map_cells(block->n_kv));
  sum->runs++;
  sum->disk += ROW_BYTES + (run->map ? CELL_BYTES * cells : 0);
  sum->skipped += !p->e.fits;
  if (!p->e.fits) return ATTN_OK;
  sum->memory = fmax(sum->memory, p->e.memory);
  sum->disk += null_find(run->variant) ? 0 : SAMPLE_BYTES * (double)c->timing.samples;
  if (isnan(p->e.whole))
    sum->unknown++;
  else
    sum->seconds += p->e.whole;
  return ATTN_OK;
}

static json_t *planned_json(const planned *p) {
  json_t *o =
      json_pack("{s:o, s:o, s:o}", "key", result_json_text(p->row.key), "label",
                result_json_text(p->row.label), "status", result_json_text(p->why ? p->why : "planned"));
  const double numbers[] = {p->e.cost.mul_add, (double)p->e.work, p->e.fits ? p->e.execution : 0,
                            p->e.fits ? p->e.whole : 0};
  static const char *const names[] = {"mul_add", "work_bytes", "time_s", "sweep_time_s"};
  bool ok = o;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    json_put(o, names[i], isfinite(numbers[i]) ? json_real(numbers[i]) : json_null(), &ok);
  return json_whole(o, ok);
}

/* A setting's runs in a block: they differ in their seeds. */
static void add_line(text_table *t, const planned *p, size_t runs) {
  char text[SHORT_TEXT];
  table_add(t, "%s", p->row.label);
  table_add(t, "%zu", runs);
  table_add(t, "%s", short_number(p->e.cost.mul_add, text));
  table_add(t, "%s", short_bytes((double)p->e.work, text));
}

static attn_status print_block(const result_row *first, const text_table *t, const text_table *notes) {
  char *title = axes_title(first->axis, false);
  if (!title) return attn_fail(ATTN_ENOMEM, "no memory for a title");
  escape_put(stdout, first->dataset);
  printf(": n = %lld, %s\n", (long long)first->n, title);
  free(title);
  const attn_status status = t->count > t->columns ? table_print(stdout, t, TABLE_TEXT) : ATTN_OK;
  for (size_t i = 0; i + 1 < notes->count; i += 2) { /* settings of one reason share a line */
    const bool more = i + 3 < notes->count && strcmp(notes->cells[i + 3], notes->cells[i + 1]) == 0;
    printf("%s%s%s", notes->cells[i], more ? ", " : ": ", more ? "" : notes->cells[i + 1]);
    if (!more) putchar('\n');
  }
  putchar('\n');
  return status;
}

/* document: the array that the runs of the block are added to; NULL: they are printed. */
static attn_status plan_block(const grid_block *block, const config *c, const result_set *set, totals *sum,
                              json_t *document) {
  static const char *const header[] = {"setting", "runs", "mul-adds", "work"};
  text_table t = {.columns = sizeof header / sizeof *header, .left = 1},
             notes = {.columns = 2}; /* of settings that will not run: which, and why */
  for (size_t i = 0; i < t.columns; i++) table_add(&t, "%s", header[i]);
  planned last = {.why = NULL}, now;
  size_t same = 0;
  result_row_init(&last.row);
  attn_status status = ATTN_OK;
  for (size_t r = 0; !status && r < block->count; r++) {
    status = plan_run(block, &block->runs[r], c, set, sum, &now);
    if (!status && document && json_array_append_new(document, planned_json(&now)))
      status = attn_fail(ATTN_ENOMEM, "no memory for the estimates");
    const bool alike = !status && same && !now.why && strcmp(now.row.label, last.row.label) == 0;
    if (!alike && same) add_line(&t, &last, same);
    same = alike ? same + 1 : status || now.why ? 0 : 1;
    if (!status && now.why && strcmp(now.row.label, last.row.label ? last.row.label : "") != 0)
      table_add(&notes, "%s", now.row.label), table_add(&notes, "%s", now.why);
    planned_free(&last);
    last = now;
  }
  if (same) add_line(&t, &last, same);
  if (!status && !document && block->count) status = print_block(&last.row, &t, &notes);
  planned_free(&last);
  table_free(&t);
  table_free(&notes);
  return status;
}

/* The errors of single runs' times, which may be off by ten times in either direction, cancel in part. */
static void print_totals(const totals *sum) {
  char time[SHORT_TEXT], memory[SHORT_TEXT], disk[SHORT_TEXT];
  if (sum->skipped == sum->runs) {
    fprintf(stderr, "%zu runs: nothing will run\n", sum->runs);
    return;
  }
  fprintf(stderr, "%zu runs", sum->runs);
  if (sum->skipped) fprintf(stderr, " (%zu of which will not run)", sum->skipped);
  if (sum->seconds > 0) fprintf(stderr, ", about %s together", short_time(sum->seconds, time));
  fprintf(stderr, ", %s for tensors and work memory, %s of files", short_bytes(sum->memory, memory),
          short_bytes(sum->disk, disk));
  if (sum->unknown) fprintf(stderr, "; %zu runs of unknown time", sum->unknown);
  fputc('\n', stderr);
}

static attn_status print_document(json_t *runs, const totals *sum) {
  json_t *document = json_pack("{s:O, s:{s:I, s:I, s:I, s:f, s:f, s:f}}", "runs", runs, "total", "runs",
                               (json_int_t)sum->runs, "skipped", (json_int_t)sum->skipped, "of_unknown_time",
                               (json_int_t)sum->unknown, "sweep_time_s", sum->seconds, "memory_bytes",
                               sum->memory, "file_bytes", sum->disk);
  if (!document) return attn_fail(ATTN_ENOMEM, "no memory for the estimates");
  const attn_status status = json_write(stdout, document, JSON_INDENT(2));
  json_decref(document);
  return status;
}

/* Names the files of datasets and specs that cannot be read. */
static attn_status check_files(const config *c) {
  char hex[65];
  size_t missing = 0;
  for (size_t i = 0; i < c->datasets.count; i++)
    if (data_source_digest(c->datasets.items[i].text, hex) && ++missing)
      fprintf(stderr, "attnlab run: %s: %s\n", c->datasets.items[i].text, attn_last_error());
  for (size_t i = 0; i < c->variants.count; i++)
    if (spec_files_digest(c->variants.items[i].spec, hex) && ++missing)
      fprintf(stderr, "attnlab run: %s: %s\n", c->variants.items[i].text, attn_last_error());
  return missing ? attn_fail(ATTN_EFOREIGN, "%zu of the datasets and variants cannot be made", missing)
                 : ATTN_OK;
}

attn_status estimate_print(const grid *g, const config *c, char *const *plugins, bool json, bool quiet) {
  totals sum = {.disk = FILE_BYTES};
  result_set set;
  result_set_init(&set);
  json_t *runs = json ? json_array() : NULL;
  attn_status status = calibration_load(g, plugins, &set);
  for (size_t b = 0; !status && b < g->count; b++) status = plan_block(&g->blocks[b], c, &set, &sum, runs);
  result_set_free(&set);
  if (!status && json) status = print_document(runs, &sum);
  if (!status && !json && !quiet) print_totals(&sum);
  json_decref(runs);
  return status ? status : check_files(c);
}

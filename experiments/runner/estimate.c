/* estimate.c - the estimate of a run, and the table of a dry run.
 *
 * An execution takes the multiply-adds of its variant's formula, at the rate that the calibration found for
 * the variant. Before it is timed its output is verified, at a cost that grows with the weights of the exact
 * rows and their width; then it is sampled until its interval is narrow, which on most machines means to the
 * end of max_time. */
#include "experiments/runner/estimate.h"

#include "data/data.h"
#include "experiments/reference/exact.h"
#include "experiments/evidence/null.h"
#include "experiments/runner/calibration.h"
#include "experiments/runner/measure.h"
#include "experiments/support/escape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Bytes of a row in the journal and the results file together, without its samples and map; of a sample; of a
 * cell of a map's two matrices; of a file without rows. */
#define ROW_BYTES 8e3
#define SAMPLE_BYTES 40.0
#define CELL_BYTES 18.0
#define FILE_BYTES 6e5

typedef struct totals {
  size_t runs, unknown;
  double seconds, memory, disk;
} totals;

static const result_row *calibrated(const result_set *set, const char *variant, int64_t threads) {
  const result_row *found = NULL;
  for (size_t i = 0; i < set->count; i++) {
    const result_row *row = &set->rows[i];
    if (row->status == RUN_OK && row->threads == threads && strcmp(row->variant, variant) == 0) found = row;
  }
  return found;
}

/* Work of a verification: the products of the exact rows. */
static double verification_work(const attn_problem *p) {
  const sampling s = sampling_of(p);
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
  const double more = verification_work(&problem) / verification_work(&small);
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
  attn_status status = measure_tensor_bytes(&problem, &tensors, &output);
  if (!status && !run->priced)
    status = attn_fail(ATTN_EFOREIGN, "%s", run->unknown ? run->unknown : "there is no estimate");
  if (status) return status;
  e.work = run->work;
  e.cost = run->cost;
  e.memory = (double)tensors + (double)e.work;
  e.fits = e.memory <= (double)c->budget_memory;
  if (e.fits) predict_times(block, run, c, calibrated(calibration, run->variant, block->threads), &e);
  *out = e;
  return ATTN_OK;
}

static void print_run(const grid_block *block, const grid_run *run, const config *c, const result_set *set,
                      totals *sum) {
  run_estimate e = {.work = 0};
  const char *state = "planned";
  if (estimate_run(block, run, c, set, &e))
    state = attn_last_error();
  else if (!e.fits)
    state = "skipped: beyond budget.memory";
  const bool planned = e.fits;
  const double execution = planned ? e.execution : 0, whole = planned ? e.whole : 0;
  if (planned) {
    sum->memory = fmax(sum->memory, e.memory);
    sum->disk += null_find(run->variant) ? 0 : SAMPLE_BYTES * (double)c->timing.samples;
  }
  escape_put(stdout, run->key);
  putchar('\t');
  escape_put(stdout, state);
  printf("\t%.6g\t%zu\t%.3g\t%.3g\n", e.cost.mul_add, e.work, execution, whole);
  sum->runs++;
  const double cells = (double)(result_map_cells(block->n) * result_map_cells(block->n_kv));
  sum->disk += ROW_BYTES + (run->map ? CELL_BYTES * cells : 0);
  if (isnan(whole))
    sum->unknown++;
  else
    sum->seconds += whole;
}

static void print_totals(const totals *sum) {
  fprintf(stderr, "%zu runs, about %.3g s, %.3g MiB for tensors and work memory, %.3g MB of files", sum->runs,
          sum->seconds, sum->memory / 0x1p20, sum->disk / 1e6);
  if (sum->unknown) fprintf(stderr, "; %zu runs of unknown time", sum->unknown);
  fputc('\n', stderr);
}

/* Names the files of datasets and specs that cannot be read. */
static attn_status check_files(const config *c) {
  char hex[65];
  size_t missing = 0;
  for (size_t i = 0; i < c->datasets.count; i++)
    if (data_source_digest(c->datasets.items[i].text, hex) && ++missing)
      fprintf(stderr, "attnlab run: %s: %s\n", c->datasets.items[i].text, attn_last_error());
  for (size_t i = 0; i < c->variants.count; i++)
    if (grid_spec_digest(c->variants.items[i].text, hex) && ++missing)
      fprintf(stderr, "attnlab run: %s: %s\n", c->variants.items[i].text, attn_last_error());
  return missing ? attn_fail(ATTN_EFOREIGN, "%zu of the datasets and variants cannot be made", missing)
                 : ATTN_OK;
}

attn_status estimate_print(const grid *g, const config *c, char *const *plugins, bool quiet) {
  totals sum = {.disk = FILE_BYTES};
  result_set set;
  result_set_init(&set);
  const attn_status status = calibration_load(g, plugins, &set);
  if (!status) printf("key\tstatus\tmul_add\twork_bytes\tseconds\tsweep_seconds\n");
  for (size_t b = 0; !status && b < g->count; b++)
    for (size_t r = 0; r < g->blocks[b].count; r++)
      print_run(&g->blocks[b], &g->blocks[b].runs[r], c, &set, &sum);
  result_set_free(&set);
  if (!status && !quiet) print_totals(&sum);
  return status ? status : check_files(c);
}

/* sweep.c - a sweep from its configuration to its outcome. The journal is the truth; the results file is made
 * from it now and then. */
#include "experiments/runner/sweep.h"

#include "attn_tools.h"
#include "data/data.h"
#include "experiments/instruments/machine.h"
#include "experiments/runner/settled_properties.h"
#include "experiments/report/summary.h"
#include "experiments/results/set.h"
#include "experiments/results/write_journal.h"
#include "experiments/runner/calibration.h"
#include "experiments/runner/estimate.h"
#include "experiments/runner/pool.h"
#include "experiments/runner/progress.h"
#include "experiments/runner/provenance.h"
#include "experiments/runner/reasons.h"
#include "experiments/support/escape.h"
#include "experiments/support/names.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double SNAPSHOT_PERIOD = 30;
enum { FIRST_REASONS = 3, ALL_REASONS = 20 };

static volatile sig_atomic_t signalled; /* the signal that asks to stop, 0: none */

static void note_signal(int number) { signalled = number; }

/* A second interrupt from the keyboard kills at once. */
static void catch_signals(void) {
  struct sigaction action = {.sa_handler = note_signal};
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGUSR1, &action, NULL);
  action.sa_flags = (int)SA_RESETHAND;
  sigaction(SIGINT, &action, NULL);
}

typedef struct sweep {
  const sweep_options *options;
  config *config;
  grid grid;
  char *journal_path, *results_path;
  journal *journal;
  result_set calibration; /* what is kept of it */
  progress progress;
  const grid_block *block; /* at work */
  double next_snapshot;
  properties_found found;
  size_t violations, failures; /* of it */
  char unchecked[256];         /* variants, each after a blank */
  reasons_counts counts;
  char *reasons; /* why runs were not measured, in lines */
} sweep;

attn_status sweep_path(const char *output, int64_t shard, int64_t shards, const char *extension,
                       char **path) {
  const size_t length = strlen(output), size = length + 64;
  if (length < 4 || strcmp(output + length - 3, ".h5") != 0 || output[length - 4] == '/')
    return attn_fail(ATTN_EINVAL, "%s: expected a results file named NAME.h5", output);
  char *text = malloc(size);
  if (!text) return attn_fail(ATTN_ENOMEM, "no memory for a path");
  char part[48] = "";
  if (shards > 1) snprintf(part, sizeof part, ".%" PRId64 "-of-%" PRId64, shard, shards);
  snprintf(text, size, "%.*s%s.%s", (int)(length - 3), output, part, extension);
  *path = text;
  return ATTN_OK;
}

static bool matches_only(const grid_block *block, const grid_run *run, void *context) {
  (void)block;
  return fnmatch(context, run->key, 0) == 0;
}

static attn_status keep_only(grid *g, const char *only) {
  const size_t size = strlen(only) + 3;
  char *pattern = malloc(size);
  if (!pattern) return attn_fail(ATTN_ENOMEM, "no memory for --only");
  snprintf(pattern, size, "*%s*", only);
  grid_filter(g, matches_only, pattern);
  free(pattern);
  return g->count ? ATTN_OK : attn_fail(ATTN_EINVAL, "--only '%s': no run's key matches", only);
}

static attn_status plan_sweep(sweep *s) {
  const sweep_options *o = s->options;
  attn_options machine;
  attn_status status = sweep_path(o->output, o->shard, o->shards, "jsonl", &s->journal_path);
  if (!status) status = sweep_path(o->output, o->shard, o->shards, "h5", &s->results_path);
  if (!status) status = attn_options_fill(NULL, ATTN_F32, 1, 1, &machine);
  if (!status) status = config_load(o->config_path, o->overrides, o->override_count, &s->config);
  if (!status && o->threads > 0) {
    s->config->threads.count = 0;
    status = value_ints_add(&s->config->threads, o->threads);
  }
  if (!status) status = grid_expand(s->config, machine.isa, machine.threads, &s->grid);
  /* Dealt before --only, so that a shard's runs are its own with or without it. */
  if (!status) grid_shard(&s->grid, o->shard, o->shards);
  if (!status && !s->grid.count && !s->grid.refusal_count && o->shards <= 1)
    status = attn_fail(ATTN_EINVAL, "%s: exclude leaves no run", o->config_path);
  if (!status && o->only) status = keep_only(&s->grid, o->only);
  return status;
}

static attn_status check_output(const sweep *s, const char *path, const output_kind *kind) {
  const sweep_options *o = s->options;
  const config_specs *sets = &s->config->datasets;
  attn_status status = output_check(path, kind, &o->config_path, 1);
  for (char *const *plugin = o->plugins; !status && plugin && *plugin; plugin++)
    status = output_check(path, kind, (const char *const *)plugin, 1);
  for (size_t i = 0; !status && i < sets->count; i++) {
    status = data_source_check_output(sets->items[i].text, path, kind);
  }
  return status;
}

/* Is there still something to do for this run? */
static bool is_pending(const grid_block *block, const grid_run *run, void *context) {
  const sweep *s = context;
  journal_entry entry;
  if (!journal_find(s->journal, run->key, &entry)) return true;
  const identity now = {block->dataset_sha256, run->plugin_sha256, run->files_sha256,
                        journal_build(s->journal)};
  if (!identity_stands(&entry.made, &now, s->options->keep_stale)) return true;
  return s->options->retry_failed && entry.status != RUN_OK && entry.status != RUN_UNSUPPORTED;
}

/* What is to be expected of a run; returns its work for the progress: seconds, or where the calibration does
 * not know the variant, seconds at a rate that is wrong but the same for all. */
static double expect(const sweep *s, const grid_block *block, const grid_run *run, run_estimate *out) {
  const timing_options *t = &s->config->timing;
  *out = (run_estimate){.execution = (double)NAN, .whole = (double)NAN, .memory = (double)NAN};
  if (estimate_run(block, run, s->config, &s->calibration, out) || !out->fits) return 0;
  return isnan(out->whole) ? t->min_time + t->warmup + block->cost / (double)block->count / 2e9 : out->whole;
}

static attn_status open_journal(sweep *s) {
  char build[65];
  json_t *provenance = NULL;
  const sweep_options *o = s->options;
  attn_status status = provenance_build(build);
  if (!status) status = provenance_collect(o->argc, o->argv, s->config->text, !o->no_hostname, &provenance);
  if (!status) status = journal_open(s->journal_path, &rows_of_sweep, build, provenance, &s->journal);
  json_decref(provenance);
  return status;
}

static attn_status list_unchecked(sweep *s, const result_set *set) {
  names variants = {0};
  size_t used = 0;
  const attn_status status = summary_unchecked(set, &variants);
  *s->unchecked = 0;
  for (size_t i = 0; i < variants.count && used < sizeof s->unchecked; i++)
    used += (size_t)snprintf(s->unchecked + used, sizeof s->unchecked - used, " %s", variants.items[i]);
  names_free(&variants);
  return status;
}

static attn_status list_reasons(sweep *s, const result_set *set) {
  size_t size;
  free(s->reasons);
  s->reasons = NULL;
  s->counts = reasons_count(set);
  FILE *out = open_memstream(&s->reasons, &size);
  if (out) reasons_print(out, "attnlab run", set, s->counts.idle ? ALL_REASONS : FIRST_REASONS);
  return attn_stream_text(out, &s->reasons) ? ATTN_OK
                                            : attn_fail(ATTN_ENOMEM, "no memory for the reasons of the runs");
}

/* Writes the results file. */
static attn_status snapshot(sweep *s) {
  const double begin = timing_now();
  result_set set;
  attn_status status = journal_set(s->journal, &set);
  if (status) return status;
  status = results_write(s->results_path, &set);
  s->violations = summary_violations(&set);
  s->failures = summary_failures(&set);
  if (!status) status = list_unchecked(s, &set);
  if (!status) status = list_reasons(s, &set);
  result_set_free(&set);
  /* Of the time that a sweep takes, a tenth at most is for snapshots. */
  s->next_snapshot = timing_now() + fmax(SNAPSHOT_PERIOD, 9 * (timing_now() - begin));
  return status;
}

/* From which files the row was made. */
static attn_status name_files(const grid_block *block, const grid_run *run, result_row *row) {
  const struct {
    const char **to, *text;
  } texts[] = {{&row->dataset_sha256, block->dataset_sha256},
               {&row->plugin, run->plugin ? run->plugin : ""},
               {&row->plugin_sha256, run->plugin_sha256},
               {&row->files_sha256, run->files_sha256}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (!(*texts[i].to = names_keep(texts[i].text)))
      return attn_fail(ATTN_ENOMEM, "no memory for the row of %s", row->key);
  return ATTN_OK;
}

/* A run that was judged has the cells of its setting's properties, by whichever run they were found. */
static attn_status add_properties(sweep *s, result_row *row) {
  bool known;
  if (row->properties) return properties_keep(&s->found, row);
  return row->bounds_count ? properties_give(&s->found, row, &known) : ATTN_OK;
}

static attn_status take_row(void *context, const grid_run *run, result_row *row) {
  sweep *s = context;
  run_estimate e;
  attn_status status = add_properties(s, row);
  if (status) return status;
  const double work = expect(s, s->block, run, &e);
  row->est_time = e.execution;
  row->est_run = e.whole;
  row->est_memory = e.memory;
  row->load = machine_load();
  row->shard = s->options->shard;
  status = name_files(s->block, run, row);
  if (status) return status;
  status = journal_append(s->journal, row);
  progress_advance(&s->progress, work, row);
  if (status || timing_now() < s->next_snapshot) return status;
  return snapshot(s);
}

static void tick(void *context, const grid_run *run) {
  sweep *s = context;
  progress_tick(&s->progress, s->block, run);
}

/* Work of the whole sweep. */
static double expect_all(const sweep *s) {
  double work = 0;
  run_estimate e;
  for (size_t b = 0; b < s->grid.count; b++)
    for (size_t r = 0; r < s->grid.blocks[b].count; r++)
      work += expect(s, &s->grid.blocks[b], &s->grid.blocks[b].runs[r], &e);
  return work;
}

static attn_status run_blocks(sweep *s) {
  char *program = NULL, stamp[PROVENANCE_STAMP] = "";
  attn_status status = provenance_program(&program);
  if (!status) status = provenance_stamp(program, stamp);
  progress_start(&s->progress, grid_run_count(&s->grid), expect_all(s), s->calibration.count > 0,
                 s->options->quiet);
  const worker_pool pool = {.program = program,
                            .stamp = stamp,
                            .plugins = s->options->plugins,
                            .interrupted = &signalled,
                            .row = take_row,
                            .tick = tick,
                            .messages = s->progress.line.pipe[1],
                            .context = s};
  for (size_t i = 0; !status && i < s->grid.count && !signalled; i++) {
    s->block = &s->grid.blocks[i];
    const job j = {.block = *s->block,
                   .timing = s->config->timing,
                   .budget_time = s->config->budget_time,
                   .budget_memory = s->config->budget_memory,
                   .settled = properties_found_json(&s->found)};
    status = j.settled ? pool_run_block(&pool, &j) : ATTN_ENOMEM;
    json_decref(j.settled);
  }
  progress_stop(&s->progress);
  free(program);
  return status;
}

/* Runs after a failure, too, so that measured rows are readable. The first failure is reported. */
static attn_status last_snapshot(sweep *s, attn_status status) {
  char *message = status ? strdup(attn_last_error()) : NULL;
  const attn_status written = snapshot(s);
  if (message) attn_fail(status, "%s", message);
  free(message);
  return status ? status : written;
}

/* What is not in the grid, and why. */
static void put_refusals(const grid *g) {
  for (size_t i = 0; i < g->refusal_count; i++) {
    const grid_refusal *r = &g->refusals[i];
    fprintf(stderr, "attnlab run: %zu runs refused: ", r->runs);
    escape_put(stderr, r->reason);
    fputs(", in ", stderr);
    escape_put(stderr, r->spec);
    fputc('\n', stderr);
  }
}

/* The last line: what became of the runs. */
static void put_outcome(const sweep *s) {
  const reasons_counts *c = &s->counts;
  fprintf(stderr, "%s: %zu run%s, %zu with a violated bound, %zu failed", s->results_path, c->runs,
          c->runs == 1 ? "" : "s", s->violations, s->failures);
  if (c->unsupported) fprintf(stderr, ", %zu unsupported", c->unsupported);
  if (c->skipped) fprintf(stderr, ", %zu skipped", c->skipped);
  if (!c->measured) fputs("; no variant was measured", stderr);
  fputc('\n', stderr);
}

static void put_note(const char *label, const char *text) {
  fprintf(stderr, "attnlab run: %s", label);
  escape_put(stderr, text);
  fputc('\n', stderr);
}

/* A results file is written anew from its journal. */
static attn_status check_journal(const sweep *s) {
  if (access(s->results_path, F_OK) || access(s->journal_path, F_OK) == 0) return ATTN_OK;
  return attn_fail(ATTN_EINVAL,
                   "%s: its journal %s is not there, so that its runs would be lost: choose another "
                   "name, or remove it",
                   s->results_path, s->journal_path);
}

static attn_status execute(sweep *s, sweep_outcome *out) {
  attn_status status = check_journal(s);
  if (!status) status = open_journal(s);
  if (status) return status;
  out->started = true;
  if (journal_torn(s->journal) && !s->options->quiet) put_note("1 torn line left out of ", s->journal_path);
  output_clean(s->results_path);
  /* Without estimates a sweep only has fewer columns. */
  if (calibration_read(&s->calibration) && !s->options->quiet) put_note("no estimates: ", attn_last_error());
  grid_filter(&s->grid, is_pending, s);
  catch_signals();
  s->next_snapshot = timing_now() + SNAPSHOT_PERIOD;
  status = last_snapshot(s, run_blocks(s));
  if (!status && !signalled && (s->counts.idle || !s->options->quiet)) fputs(s->reasons, stderr);
  out->signal = signalled;
  out->violations = s->violations;
  /* A sweep that measured nothing has failed. */
  out->failures = s->failures + s->counts.idle;
  if (!status && !signalled && *s->unchecked)
    put_note("unchecked, since no check of their kind of variant applied:", s->unchecked);
  if (!status && !signalled && !s->options->quiet) put_outcome(s);
  return status;
}

attn_status sweep_run(const sweep_options *options, sweep_outcome *out) {
  sweep s = {.options = options};
  *out = (sweep_outcome){0};
  result_set_init(&s.calibration);
  attn_status status = plan_sweep(&s);
  put_refusals(&s.grid);
  if (!status && options->dry_run)
    status = estimate_print(&s.grid, s.config, options->plugins, options->json, options->quiet);
  else if (!status && !(status = check_output(&s, s.journal_path, &kind_journal)) &&
           !(status = check_output(&s, s.results_path, &kind_results)))
    status = execute(&s, out);
  journal_close(s.journal);
  result_set_free(&s.calibration);
  properties_found_free(&s.found);
  grid_free(&s.grid);
  config_free(s.config);
  free(s.journal_path);
  free(s.results_path);
  free(s.reasons);
  return status;
}

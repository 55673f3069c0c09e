/* calibration.c - the sweep that calibrates, its file, and reading it back. */
#include "experiments/runner/calibration.h"

#include "attn_tools.h"
#include "data/data.h"
#include "data/support/file.h"
#include "experiments/evidence/null.h"
#include "experiments/instruments/machine.h"
#include "experiments/results/write_journal.h"
#include "experiments/runner/pool.h"
#include "experiments/runner/provenance.h"
#include "experiments/support/escape.h"
#include "experiments/support/names.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *nonempty(const char *text) { return text && *text ? text : NULL; }

/* To be freed: what ATTNLAB_CALIBRATION says (NULL if that is empty), else this processor's file under
 * $XDG_CACHE_HOME or ~/.cache; NULL if there is none, or, recorded, without memory. */
static char *journal_path(void) {
  const char *given = getenv("ATTNLAB_CALIBRATION"), *home = nonempty(getenv("HOME")),
             *cache = nonempty(getenv("XDG_CACHE_HOME"));
  if (given) return *given ? text_format("%s", given) : NULL;
  char cpu[200], hex[65];
  machine_processor(cpu, sizeof cpu);
  data_sha256(cpu, strlen(cpu), hex);
  if (cache) return text_format("%s/attnlab/calibration-%.8s.jsonl", cache, hex);
  return home ? text_format("%s/.cache/attnlab/calibration-%.8s.jsonl", home, hex) : NULL;
}

/* Makes the directories above a path. One that cannot be made shows when the file is written. */
static attn_status make_directories(const char *path) {
  char *prefix = text_format("%s", path);
  if (!prefix) return ATTN_ENOMEM;
  for (char *slash = strchr(prefix + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    mkdir(prefix, 0777);
    *slash = '/';
  }
  free(prefix);
  return ATTN_OK;
}

/* Is the block the first of its number of threads? */
static bool is_first(const grid *g, size_t b) {
  size_t i = 0;
  while (g->blocks[i].threads != g->blocks[b].threads) i++;
  return i == b;
}

/* The grid's variants as a configuration. No turns (max_time 0): each is executed once and reported. */
static attn_status configure(const grid *g, config **out) {
  names variants = {0};
  attn_status status = ATTN_OK;
  char *text = NULL;
  size_t size;
  for (size_t b = 0; b < g->count; b++)
    for (size_t r = 0; !status && r < g->blocks[b].count; r++)
      if (!null_find(g->blocks[b].runs[r].variant))
        status = names_add(&variants, g->blocks[b].runs[r].variant);
  if (!status && !variants.count)
    status = names_add(&variants, "full"); /* beside baselines, which have no work */
  FILE *stream = status ? NULL : open_memstream(&text, &size);
  if (stream) {
    fprintf(stream, "schema: 1\ngrid: {n: %d, d: %d, heads: 1, causal: [no, yes]}\nvariants: [",
            CALIBRATION_N, CALIBRATION_D);
    for (size_t i = 0; i < variants.count; i++) {
      fputs(i ? ", " : "", stream);
      escape_put_yaml(stream, variants.items[i]); /* an expression may hold whatever a path does */
    }
    fputs("]\ndatasets: gaussian\nbudget: {time: 20, memory: 1Gi}\ntiming: {min_time: 0, max_time: 0, "
          "warmup: 0}\n"
          "threads: [",
          stream);
    for (size_t b = 0; b < g->count; b++)
      if (is_first(g, b)) fprintf(stream, "%s%" PRId64, b ? ", " : "", g->blocks[b].threads);
    fputs("]\n", stream);
  }
  names_free(&variants);
  if (status) return status;
  status = attn_stream_text(stream, &text) ? config_parse("calibration", text, size, NULL, 0, out)
                                           : attn_fail(ATTN_ENOMEM, "no memory for a calibration");
  free(text);
  return status;
}

static bool is_missing(const grid_block *block, const grid_run *run, void *context) {
  const identity now = {block->dataset_sha256, run->plugin_sha256, run->files_sha256, journal_build(context)};
  journal_entry entry;
  return !journal_find(context, run->key, &entry) || !identity_stands(&entry.made, &now, false);
}

static attn_status take_row(void *context, const grid_run *run, result_row *row) {
  (void)run;
  return journal_append(context, row);
}

static void tick(void *context, const grid_run *run) {
  (void)context;
  (void)run;
}

/* Runs what is not in the journal, which it leaves closed. */
static attn_status measure(const char *path, const config *c, grid *g, char *const *plugins) {
  static const volatile sig_atomic_t never = 0;
  char build[65], stamp[PROVENANCE_STAMP] = "", *program = NULL;
  json_t *provenance = NULL;
  journal *j = NULL;
  attn_status status = provenance_build(build);
  if (!status) status = provenance_program(&program);
  if (!status) status = provenance_stamp(program, stamp);
  if (!status) status = provenance_collect(0, NULL, c->text, false, &provenance);
  if (!status) status = make_directories(path);
  if (!status) status = journal_open(path, &rows_of_sweep, build, provenance, &j);
  if (!status) grid_filter(g, is_missing, j);
  const worker_pool pool = {program, stamp, plugins, &never, 0, take_row, tick, j};
  for (size_t b = 0; !status && b < g->count; b++) {
    const job todo = {g->blocks[b], c->timing, c->budget_time, c->budget_memory, NULL};
    status = pool_run_block(&pool, &todo);
  }
  journal_close(j);
  json_decref(provenance);
  free(program);
  return status;
}

attn_status calibration_read(result_set *out) {
  char *path = journal_path();
  const char *journals[] = {path};
  const attn_status status = path && access(path, F_OK) == 0 ? results_load(journals, 1, out) : ATTN_OK;
  free(path);
  return status;
}

attn_status calibration_load(const grid *g, char *const *plugins, result_set *out) {
  char *path = journal_path();
  if (!path || g->count == 0) {
    free(path);
    return ATTN_OK;
  }
  config *c = NULL;
  grid small = {0};
  attn_status status = configure(g, &c);
  if (!status) status = grid_expand(c, g->blocks[0].isa, 1, &small);
  if (!status) status = measure(path, c, &small, plugins);
  if (!status) status = calibration_read(out);
  grid_free(&small);
  config_free(c);
  free(path);
  return status;
}

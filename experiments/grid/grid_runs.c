/* grid_runs.c - the runs of a block: which variants and seeds, their keys, and what `exclude:` leaves of
 * them. */
#include "experiments/grid/grid_runs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_tools.h"
#include "experiments/evidence/null.h"

void grid_run_free(grid_run *run) {
  free(run->key);
  free(run->variant);
  attn_spec_destroy(run->spec);
  free(run->unknown);
}

static char *make_key(const grid_block *b, const char *spec) {
  char *text = NULL;
  size_t size;
  FILE *stream = open_memstream(&text, &size);
  if (!stream) return NULL;
  fprintf(stream, "dataset=%s", b->dataset);
  for (axis_id a = 0; a < AXES; a++) {
    axis_write_key(stream, a, b->axis[a]);
    if (a == AXIS_threads) fprintf(stream, " isa=%s", b->isa);
  }
  /* Only where there is one, so that older keys stay what they are. */
  for (text_axis_id t = 0; t < TEXT_AXES; t++)
    if (text_axis_in_grid(t) && *b->text[t]) fprintf(stream, " %s=%s", text_axes[t].name, b->text[t]);
  fprintf(stream, " variant=%s", spec);
  attn_stream_text(stream, &text);
  return text;
}

/* A run's columns as texts, for `exclude:`. */
typedef struct run_view {
  const grid_block *block;
  const grid_run *run;
  char (*buffer)[256];
} run_view;

static const char *look_up(const void *context, const char *name) {
  const run_view *view = context;
  const grid_block *b = view->block;
  const axis_id a = axis_find(NULL, name);
  char *buffer = *view->buffer;
  const text_axis_id t = text_axis_find(name);
  if (t < TEXT_AXES) return b->text[t];
  if (strcmp(name, "variant") == 0) return view->run->variant;
  if (a < AXES) return axis_print(a, a == AXIS_seed ? view->run->seed : b->axis[a], buffer);
  snprintf(buffer, sizeof *view->buffer, "%.*s", (int)strcspn(b->dataset, ":"), b->dataset);
  return buffer;
}

const char *grid_run_text(const grid_run *run) {
  return run->spec ? run->spec->text : null_find(run->variant)->spec;
}

static bool has_run(const grid_block *block, const grid_run *run) {
  for (size_t i = 0; i < block->count; i++)
    if (strcmp(grid_run_text(&block->runs[i]), grid_run_text(run)) == 0) return true;
  return false;
}

/* Adds a run of a spec (NULL: of a baseline), unless it is excluded or there already. */
static attn_status add_run(const config *c, grid_block *block, const char *variant, const attn_spec *spec,
                           int64_t seed, bool map) {
  char buffer[256];
  grid_run run = {.variant = strdup(variant), .spec = attn_spec_share(spec), .seed = seed, .map = map};
  const run_view view = {block, &run, &buffer};
  const bool wanted = run.variant && !has_run(block, &run) && !config_excludes(c, spec, look_up, &view);
  if (wanted) {
    run.key = make_key(block, grid_run_text(&run));
    grid_run *runs = realloc(block->runs, (block->count + 1) * sizeof *runs);
    if (runs) block->runs = runs;
    if (runs && run.key) {
      runs[block->count++] = run;
      return ATTN_OK;
    }
  }
  const bool ready = run.variant;
  grid_run_free(&run);
  return ready && !wanted ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the run %s", variant);
}

/* A map is made at the first seed of the data and of the variant's draws: others would look alike. */
static attn_status add_spec(const config *c, grid_block *block, const attn_spec *spec, bool first_draw) {
  const char *name = spec->variant->seed;
  const int64_t seed = name ? (int64_t)attn_spec_number(spec, name) : block->data_seed;
  return add_run(c, block, spec->variant->name, spec, seed,
                 first_draw && block->n <= c->maps && block->data_seed == c->data_seed.items[0]);
}

static attn_status add_seeds(const config *c, grid_block *block, const config_spec *item) {
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < c->seed.count; i++) {
    attn_spec *seeded = NULL;
    status = attn_spec_with_int(item->spec, item->seed, c->seed.items[i], &seeded);
    if (!status) status = add_spec(c, block, seeded, i == 0);
    attn_spec_destroy(seeded);
  }
  return status;
}

attn_status grid_add_runs(const config *c, grid_block *block) {
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < c->variants.count; i++) {
    const config_spec *item = &c->variants.items[i];
    status = item->seed ? add_seeds(c, block, item) : add_spec(c, block, item->spec, true);
  }
  /* Baselines give errors a scale; where every variant is excluded there is nothing to scale. */
  if (!c->nulls || block->count == 0) return status;
  for (const null_baseline *null = null_baselines; !status && null->name; null++)
    status = add_run(c, block, null->name, NULL, block->data_seed, false);
  return status;
}

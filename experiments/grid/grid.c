/* grid.c - expanding a configuration into blocks, sorted by cost. */
#include "experiments/grid/grid.h"

#include "experiments/evidence/null.h"
#include "experiments/grid/grid_runs.h"
#include "experiments/grid/spec_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void grid_block_free(grid_block *block) {
  for (size_t i = 0; i < block->count; i++) grid_run_free(&block->runs[i]);
  free(block->runs);
  for (text_axis_id t = 0; t < TEXT_AXES; t++) free(block->text[t]);
  free(block->unfit);
  *block = (grid_block){0};
}

void grid_free(grid *g) {
  for (size_t i = 0; i < g->count; i++) grid_block_free(&g->blocks[i]);
  free(g->blocks);
  for (size_t i = 0; i < g->refusal_count; i++) {
    free(g->refusals[i].spec);
    free(g->refusals[i].reason);
  }
  free(g->refusals);
  *g = (grid){0};
}

size_t grid_run_count(const grid *g) {
  size_t count = 0;
  for (size_t i = 0; i < g->count; i++) count += g->blocks[i].count;
  return count;
}

attn_problem grid_problem(const grid_block *block) {
  attn_problem problem = attn_problem_make(block->batch, block->heads, block->n, block->d);
  problem.kv_heads = block->kv_heads;
  problem.n_kv = block->n_kv;
  problem.d_v = block->d_v;
  problem.dtype = (attn_dtype)block->dtype;
  problem.causal = block->causal != 0;
  return problem;
}

attn_status grid_target(const grid_block *block, attn_problem *out, data_target **target) {
  attn_problem problem = grid_problem(block);
  data_target *made = NULL;
  attn_status status = attn_problem_resolve(&problem);
  if (!status) status = data_target_make(block->score, block->mask, &problem, &made);
  if (!status) status = attn_problem_resolve(&problem);
  if (status) {
    data_target_free(made);
    return status;
  }
  *out = problem;
  *target = made;
  return ATTN_OK;
}

attn_options grid_options(const grid_block *block) {
  return (attn_options){
      .threads = (int)block->threads, .isa = block->isa, .blocks = {block->block_q, block->block_k}};
}

/* The block's problem is made once, so that shapes and files that do not fit are named before anything
 * runs. */
static attn_status check_problem(const grid_block *block) {
  attn_problem problem;
  data_target *target = NULL;
  const attn_status status = grid_target(block, &problem, &target);
  data_target_free(target);
  return status;
}

/* What a dataset's file has, read once for all blocks. */
typedef struct dataset_file {
  bool known; /* it is from a file */
  data_request sizes;
  attn_status status; /* of reading it, */
  char reason[300];   /* and why it failed */
} dataset_file;

static void look_at_file(const char *dataset, dataset_file *file) {
  *file = (dataset_file){.known = false};
  file->status = data_source_sizes(dataset, &file->sizes, &file->known);
  if (file->status) snprintf(file->reason, sizeof file->reason, "%s", attn_last_error());
}

/* Sizes that the configuration does not name are the file's: its key heads where the heads are its own,
 * too. */
static void take_sizes(const config *c, const dataset_file *file, grid_block *point) {
  const struct {
    axis_id axis;
    int64_t size;
  } sizes[] = {{AXIS_batch, file->sizes.batch},
               {AXIS_heads, file->sizes.heads},
               {AXIS_kv_heads, file->sizes.kv_heads},
               {AXIS_d, file->sizes.d_qk},
               {AXIS_d_v, file->sizes.d_v}};
  for (size_t i = 0; file->known && !file->status && i < sizeof sizes / sizeof *sizes; i++)
    if (c->omitted[sizes[i].axis] && (sizes[i].axis != AXIS_kv_heads || point->heads == file->sizes.heads))
      point->axis[sizes[i].axis] = sizes[i].size;
}

/* Notes why no run of the block can have its tensors. */
static attn_status note_fit(const dataset_file *file, grid_block *block) {
  const attn_problem p = grid_problem(block);
  const data_request wanted = {p.batch, p.heads, p.kv_heads, p.n_q, p.n_kv, p.d_qk, p.d_v, p.dtype, 0};
  char name[64];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(block->dataset, ":"), block->dataset);
  block->unfit_status = file->status  ? file->status
                        : file->known ? data_sizes_fit(name, &file->sizes, &wanted)
                                      : data_source_fits(block->dataset, &wanted);
  if (!block->unfit_status) return ATTN_OK;
  block->unfit = strdup(file->status ? file->reason : attn_last_error());
  return block->unfit ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a block");
}

/* One point of the grid. Blocks in which every run is excluded vanish before their shapes are judged. */
static attn_status add_block(const config *c, const grid_block *point, const dataset_file *file, grid *g) {
  grid_block block = *point;
  attn_status status = ATTN_OK;
  for (text_axis_id t = 0; t < TEXT_AXES; t++)
    if (!(block.text[t] = strdup(point->text[t]))) status = attn_fail(ATTN_ENOMEM, "no memory for a block");
  attn_options machine = grid_options(&block);
  if (!status) status = attn_options_fill(&machine, (attn_dtype)block.dtype, block.d, block.d_v, &machine);
  block.block_q = machine.blocks.query;
  block.block_k = machine.blocks.key;
  if (!status) status = grid_add_runs(c, &block);
  if (!status && block.count) status = check_problem(&block);
  if (!status && block.count) status = note_fit(file, &block);
  if (status || block.count == 0) {
    grid_block_free(&block);
    return status;
  }
  grid_block *blocks = realloc(g->blocks, (g->count + 1) * sizeof *blocks);
  if (!blocks) {
    grid_block_free(&block);
    return attn_fail(ATTN_ENOMEM, "no memory for %zu blocks", g->count + 1);
  }
  g->blocks = blocks;
  block.order = g->count;
  blocks[g->count++] = block;
  return ATTN_OK;
}

/* How many values of an axis make blocks: seeds of runs do not, nor do axes that follow from others. */
static size_t values_of(const config *c, axis_id a) {
  return a == AXIS_seed || !c->axis[a].count ? 1 : c->axis[a].count;
}

/* The point of the grid with these values; a 0 becomes what it stands for. */
static void set_point(const config *c, const size_t digit[AXES], const dataset_file *file, int threads,
                      grid_block *point) {
  for (axis_id a = 0; a < AXES; a++)
    point->axis[a] = a != AXIS_seed && c->axis[a].count ? c->axis[a].items[digit[a]] : 0;
  take_sizes(c, file, point);
  for (axis_id a = 0; a < AXES; a++)
    if (point->axis[a] == 0 && axes[a].same_as < AXES) point->axis[a] = point->axis[axes[a].same_as];
  if (point->threads == 0) point->threads = threads;
}

/* The points of one dataset, score and mask. */
static attn_status expand_target(const config *c, const data_source *source, const dataset_file *file,
                                 grid_block point, int threads, grid *g) {
  attn_status status = ATTN_OK;
  size_t digit[AXES] = {0};
  for (size_t carry = 0; carry < AXES;) {
    set_point(c, digit, file, threads, &point);
    /* A dataset that draws nothing is the same for every seed. */
    if (source->random || digit[AXIS_data_seed] == 0) status = add_block(c, &point, file, g);
    if (status) return status;
    for (carry = 0; carry < AXES && ++digit[AXES - 1 - carry] == values_of(c, (axis_id)(AXES - 1 - carry));
         carry++)
      digit[AXES - 1 - carry] = 0;
  }
  return ATTN_OK;
}

static attn_status expand_dataset(const config *c, const char *dataset, const char *isa, int threads,
                                  grid *g) {
  grid_block point = {.isa = strdup(isa)};
  const data_source *source = NULL;
  dataset_file file;
  attn_status status = point.isa ? data_source_parse(dataset, &source, &point.dataset)
                                 : attn_fail(ATTN_ENOMEM, "no memory for a block");
  if (status) goto out;
  look_at_file(dataset, &file);
  /* A dataset's file that cannot be read fails its runs, not the sweep. */
  if (data_source_digest(dataset, point.dataset_sha256)) *point.dataset_sha256 = '\0';
  for (size_t s = 0; !status && s < c->scores.count; s++)
    for (size_t m = 0; !status && m < c->masks.count; m++) {
      point.score = c->scores.items[s];
      point.mask = c->masks.items[m];
      status = data_target_digest(point.score, point.mask, point.target_sha256);
      if (!status) status = expand_target(c, source, &file, point, threads, g);
    }
out:
  free(point.dataset);
  free(point.isa);
  return status;
}

static int by_key(const void *a, const void *b) {
  const grid_block *x = a, *y = b;
  const int order = strcmp(x->runs[0].key, y->runs[0].key);
  return order ? order : (x->order > y->order) - (x->order < y->order);
}

static int by_cost(const void *a, const void *b) {
  const grid_block *x = a, *y = b;
  const int order = (x->cost < y->cost) - (x->cost > y->cost);
  return order ? order : (x->order > y->order) - (x->order < y->order);
}

/* Values written twice, or both as a default and in full, make the same block twice. */
static void drop_repeated(grid *g) {
  if (g->count == 0) return;
  qsort(g->blocks, g->count, sizeof *g->blocks, by_key);
  size_t kept = 1;
  for (size_t i = 1; i < g->count; i++) {
    if (strcmp(g->blocks[i].runs[0].key, g->blocks[kept - 1].runs[0].key) == 0)
      grid_block_free(&g->blocks[i]);
    else
      g->blocks[kept++] = g->blocks[i];
  }
  g->count = kept;
}

/* Before anything is made of it. */
static attn_status check_size(const config *c) {
  double runs = (double)c->datasets.count * (double)c->variants.count * (double)c->seed.count;
  for (axis_id a = 0; a < AXES; a++) runs *= (double)values_of(c, a);
  runs *= (double)c->scores.count * (double)c->masks.count;
  if (runs <= GRID_RUNS_MAX) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "the grid has up to %.0f runs, expected at most %d", runs, GRID_RUNS_MAX);
}

/* What a run is made from; the block's score or mask may name files, too. */
static attn_status identify_run(spec_files *known, const grid_block *block, grid_run *run) {
  spec_made made = {.plugin = NULL};
  attn_status status = run->spec ? spec_files_find(known, run->spec, &made) : ATTN_OK;
  run->plugin = made.plugin;
  memcpy(run->plugin_sha256, made.plugin_sha256, sizeof made.plugin_sha256);
  memcpy(run->files_sha256, block->target_sha256, sizeof block->target_sha256);
  spec_digest_add(run->files_sha256, made.files_sha256);
  return status;
}

static attn_status identify(grid *g) {
  spec_files *known = NULL;
  attn_status status = spec_files_make(&known);
  for (size_t b = 0; b < g->count; b++)
    for (size_t r = 0; !status && r < g->blocks[b].count; r++)
      status = identify_run(known, &g->blocks[b], &g->blocks[b].runs[r]);
  spec_files_free(known);
  return status;
}

attn_status grid_expand(const config *c, const char *isa, int threads, grid *result) {
  grid g = {0};
  attn_status status = check_size(c);
  for (size_t i = 0; !status && i < c->datasets.count; i++)
    status = expand_dataset(c, c->datasets.items[i].text, isa, threads, &g);
  if (status) {
    grid_free(&g);
    return status;
  }
  drop_repeated(&g);
  status = identify(&g);
  if (!status) status = grid_estimate(&g);
  if (!status) status = grid_refuse(&g);
  if (status) {
    grid_free(&g);
    return status;
  }
  if (g.count) qsort(g.blocks, g.count, sizeof *g.blocks, by_cost);
  *result = g;
  return ATTN_OK;
}

void grid_shard(grid *g, int64_t index, int64_t count) {
  size_t kept = 0;
  for (size_t i = 0; i < g->count; i++) {
    if ((int64_t)i % count == index)
      g->blocks[kept++] = g->blocks[i];
    else
      grid_block_free(&g->blocks[i]);
  }
  g->count = kept;
}

static void filter_block(grid_block *block, bool (*keep)(const grid_block *, const grid_run *, void *),
                         void *context) {
  size_t kept = 0;
  for (size_t i = 0; i < block->count; i++) {
    grid_run *run = &block->runs[i];
    if (keep(block, run, context)) {
      block->runs[kept++] = *run;
      continue;
    }
    grid_run_free(run);
  }
  block->count = kept;
}

void grid_filter(grid *g, bool (*keep)(const grid_block *, const grid_run *, void *context), void *context) {
  size_t kept = 0;
  for (size_t i = 0; i < g->count; i++) {
    filter_block(&g->blocks[i], keep, context);
    if (g->blocks[i].count)
      g->blocks[kept++] = g->blocks[i];
    else
      grid_block_free(&g->blocks[i]);
  }
  g->count = kept;
}

/* grid.c - see grid.h. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "experiments/grid/grid_runs.h"
#include "experiments/evidence/null.h"

void grid_block_free(grid_block *block) {
  for (size_t i = 0; i < block->count; i++) grid_run_free(&block->runs[i]);
  free(block->runs);
  free(block->dataset);
  free(block->isa);
  *block = (grid_block){0};
}

void grid_free(grid *g) {
  for (size_t i = 0; i < g->count; i++) grid_block_free(&g->blocks[i]);
  free(g->blocks);
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
  problem.d_v = block->d_v;
  problem.dtype = (attn_dtype)block->dtype;
  problem.causal = block->causal != 0;
  return problem;
}

attn_options grid_options(const grid_block *block) {
  return (attn_options){.threads = (int)block->threads, .isa = block->isa, .blocks = block->blocks};
}

static double estimate_cost(const grid_block *block, const attn_problem *problem) {
  const attn_options options = grid_options(block);
  double sum = 0;
  for (size_t i = 0; i < block->count; i++) {
    attn_cost cost;
    if (null_find(block->runs[i].variant)) continue;
    if (attn_estimate(problem, block->runs[i].spec, &options, NULL, &cost) == ATTN_OK) sum += cost.mul_add;
  }
  return sum;
}

/* One point of the grid. Blocks in which every run is excluded vanish before their shapes are judged. */
static attn_status add_block(const config *c, const grid_block *point, const char *dataset, const char *isa,
                             grid *g) {
  grid_block block = *point;
  attn_status status = data_source_parse(dataset, NULL, &block.dataset);
  if (status != ATTN_OK) return status;
  block.isa = strdup(isa);
  if (!block.isa) status = attn_fail(ATTN_ENOMEM, "no memory for a block");
  attn_options machine = grid_options(&block);
  if (status == ATTN_OK)
    status = attn_options_fill(&machine, (attn_dtype)block.dtype, block.d, block.d_v, &machine);
  block.blocks = machine.blocks;
  if (status == ATTN_OK) status = grid_add_runs(c, &block);
  attn_problem problem = grid_problem(&block);
  if (status == ATTN_OK && block.count) status = attn_problem_resolve(&problem);
  if (status != ATTN_OK || block.count == 0) {
    grid_block_free(&block);
    return status;
  }
  block.cost = estimate_cost(&block, &problem);
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

/* What makes blocks: a list of the configuration for each field. The seed of the data comes first
 * (expand_dataset). */
static const struct {
  size_t from, to; /* offsets of a value_ints in config, of an int64_t in grid_block */
} axes[] = {{offsetof(config, data_seed), offsetof(grid_block, data_seed)},
            {offsetof(config, dtype), offsetof(grid_block, dtype)},
            {offsetof(config, causal), offsetof(grid_block, causal)},
            {offsetof(config, batch), offsetof(grid_block, batch)},
            {offsetof(config, heads), offsetof(grid_block, heads)},
            {offsetof(config, kv_heads), offsetof(grid_block, kv_heads)},
            {offsetof(config, d), offsetof(grid_block, d)},
            {offsetof(config, d_v), offsetof(grid_block, d_v)},
            {offsetof(config, n), offsetof(grid_block, n)},
            {offsetof(config, threads), offsetof(grid_block, threads)},
            {offsetof(config, cache), offsetof(grid_block, cache)}};
enum { AXES = sizeof axes / sizeof *axes };

static const value_ints *values_of(const config *c, size_t axis) {
  return (const void *)((const char *)c + axes[axis].from);
}

static attn_status expand_dataset(const config *c, const char *dataset, const char *isa, int threads,
                                  grid *g) {
  const data_source *source = NULL;
  attn_status status = data_source_parse(dataset, &source, NULL);
  if (status != ATTN_OK) return status;
  grid_block start = {0};
  /* A file that cannot be read fails its runs, not the sweep. */
  if (data_source_digest(dataset, start.dataset_sha256) != ATTN_OK) *start.dataset_sha256 = '\0';
  size_t digit[AXES] = {0};
  for (size_t carry = 0; carry < AXES;) {
    grid_block point = start;
    for (size_t a = 0; a < AXES; a++)
      *(int64_t *)(void *)((char *)&point + axes[a].to) = values_of(c, a)->items[digit[a]];
    if (point.kv_heads == 0) point.kv_heads = point.heads;
    if (point.d_v == 0) point.d_v = point.d;
    if (point.threads == 0) point.threads = threads;
    /* A dataset that draws nothing is the same for every seed. */
    if (source->random || digit[0] == 0) status = add_block(c, &point, dataset, isa, g);
    if (status != ATTN_OK) return status;
    for (carry = 0; carry < AXES && ++digit[AXES - 1 - carry] == values_of(c, AXES - 1 - carry)->count;
         carry++)
      digit[AXES - 1 - carry] = 0;
  }
  return ATTN_OK;
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
  for (size_t a = 0; a < AXES; a++) runs *= (double)values_of(c, a)->count;
  if (runs <= GRID_RUNS_MAX) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "the grid has up to %.0f runs, expected at most %d", runs, GRID_RUNS_MAX);
}

attn_status grid_expand(const config *c, const char *isa, int threads, grid *result) {
  grid g = {0};
  attn_status status = check_size(c);
  for (size_t i = 0; status == ATTN_OK && i < c->datasets.count; i++)
    status = expand_dataset(c, c->datasets.items[i].text, isa, threads, &g);
  if (status != ATTN_OK) {
    grid_free(&g);
    return status;
  }
  drop_repeated(&g);
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

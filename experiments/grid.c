/* grid.c - see grid.h. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "grid.h"
#include "null.h"

static void free_run(grid_run *run) {
  free(run->key);
  free(run->variant);
  free(run->spec);
}

void grid_block_free(grid_block *block) {
  for (size_t i = 0; i < block->count; i++) free_run(&block->runs[i]);
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

static char *make_key(const grid_block *b, const char *spec) {
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  if (!stream) return NULL;
  fprintf(stream,
          "dataset=%s data_seed=%" PRId64 " n=%" PRId64 " n_kv=%" PRId64 " d=%" PRId64 " d_v=%" PRId64,
          b->dataset, b->data_seed, b->n, b->n, b->d, b->d_v);
  fprintf(stream, " heads=%" PRId64 " kv_heads=%" PRId64 " batch=%" PRId64 " causal=%s dtype=%s", b->heads,
          b->kv_heads, b->batch, config_yes_no_names[b->causal], config_dtype_names[b->dtype]);
  fprintf(stream, " threads=%" PRId64 " isa=%s blocks=%" PRId64 "x%" PRId64 " cache=warm variant=%s",
          b->threads, b->isa, b->blocks.query, b->blocks.key, spec);
  if (fclose(stream) == 0) return text;
  free(text);
  return NULL;
}

/* A run's columns as texts, for `exclude:`. */
typedef struct run_view {
  const grid_block *block;
  const grid_run *run;
  const attn_spec *spec;
  char (*buffer)[256];
} run_view;

static const char *print_param(const attn_spec *spec, const char *name, char buffer[256]) {
  for (const attn_param *p = spec ? spec->variant->params : NULL; p && p->name; p++) {
    if (strcmp(p->name, name) != 0) continue;
    attn_param_print(p, spec->params, buffer, 256);
    return buffer;
  }
  return NULL;
}

static const char *look_up(const void *context, const char *name) {
  const run_view *view = context;
  const grid_block *b = view->block;
  const struct {
    const char *name;
    int64_t value;
  } numbers[] = {{"n", b->n},
                 {"heads", b->heads},
                 {"kv_heads", b->kv_heads},
                 {"d", b->d},
                 {"d_v", b->d_v},
                 {"batch", b->batch},
                 {"threads", b->threads},
                 {"data_seed", b->data_seed},
                 {"seed", view->run->seed}};
  if (strcmp(name, "variant") == 0) return view->run->variant;
  if (strcmp(name, "causal") == 0) return config_yes_no_names[b->causal];
  if (strcmp(name, "dtype") == 0) return config_dtype_names[b->dtype];
  char *buffer = *view->buffer;
  if (strcmp(name, "dataset") == 0) {
    snprintf(buffer, 256, "%.*s", (int)strcspn(b->dataset, ":"), b->dataset);
    return buffer;
  }
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    if (strcmp(numbers[i].name, name) != 0) continue;
    snprintf(buffer, 256, "%" PRId64, numbers[i].value);
    return buffer;
  }
  return print_param(view->spec, name, buffer);
}

static bool has_run(const grid_block *block, const char *spec) {
  for (size_t i = 0; i < block->count; i++)
    if (strcmp(block->runs[i].spec, spec) == 0) return true;
  return false;
}

/* Adds a run unless it is excluded or there already. */
static attn_status add_run(const config *c, grid_block *block, const char *variant, const char *text,
                           const attn_spec *spec, int64_t seed) {
  char buffer[256];
  grid_run run = {.variant = strdup(variant), .spec = strdup(text), .seed = seed};
  const run_view view = {block, &run, spec, &buffer};
  const bool ready = run.variant && run.spec;
  const bool wanted = ready && !has_run(block, text) && !config_excludes(c, look_up, &view);
  if (wanted) {
    run.key = make_key(block, text);
    grid_run *runs = realloc(block->runs, (block->count + 1) * sizeof *runs);
    if (runs) block->runs = runs;
    if (runs && run.key) {
      runs[block->count++] = run;
      return ATTN_OK;
    }
  }
  free_run(&run);
  return ready && !wanted ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the run %s", text);
}

static int64_t own_seed(const attn_spec *spec, int64_t otherwise) {
  for (const attn_param *p = spec->variant->params; p && p->name; p++)
    if (strcmp(p->name, "seed") == 0) return (int64_t)attn_param_number(p, spec->params);
  return otherwise;
}

static attn_status add_spec(const config *c, grid_block *block, const char *text) {
  attn_spec *spec = NULL;
  attn_status status = attn_spec_parse(&spec, text);
  if (status == ATTN_OK)
    status = add_run(c, block, spec->variant->name, spec->text, spec, own_seed(spec, block->data_seed));
  attn_spec_destroy(spec);
  return status;
}

static attn_status add_seeds(const config *c, grid_block *block, const char *text) {
  attn_status status = ATTN_OK;
  const size_t size = strlen(text) + 32;
  char *seeded = malloc(size);
  if (!seeded) return attn_fail(ATTN_ENOMEM, "no memory for the run %s", text);
  for (size_t i = 0; status == ATTN_OK && i < c->seed.count; i++) {
    snprintf(seeded, size, "%s%sseed=%" PRId64, text, strchr(text, ':') ? "," : ":", c->seed.items[i]);
    status = add_spec(c, block, seeded);
  }
  free(seeded);
  return status;
}

static attn_status add_runs(const config *c, grid_block *block) {
  attn_status status = ATTN_OK;
  for (size_t i = 0; status == ATTN_OK && i < c->variants.count; i++) {
    const config_spec *spec = &c->variants.items[i];
    status = spec->takes_seed ? add_seeds(c, block, spec->text) : add_spec(c, block, spec->text);
  }
  /* Baselines give errors a scale; where every variant is excluded there is nothing to scale. */
  if (!c->nulls || block->count == 0) return status;
  for (const null_baseline *null = null_baselines; status == ATTN_OK && null->name; null++)
    status = add_run(c, block, null->name, null->spec, NULL, block->data_seed);
  return status;
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
  if (status == ATTN_OK) status = add_runs(c, &block);
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

static attn_status expand_dataset(const config *c, const char *dataset, const char *isa, int threads,
                                  grid *g) {
  const struct {
    const value_ints *values;
    size_t offset;
  } axes[] = {{&c->data_seed, offsetof(grid_block, data_seed)},
              {&c->dtype, offsetof(grid_block, dtype)},
              {&c->causal, offsetof(grid_block, causal)},
              {&c->batch, offsetof(grid_block, batch)},
              {&c->heads, offsetof(grid_block, heads)},
              {&c->kv_heads, offsetof(grid_block, kv_heads)},
              {&c->d, offsetof(grid_block, d)},
              {&c->d_v, offsetof(grid_block, d_v)},
              {&c->n, offsetof(grid_block, n)},
              {&c->threads, offsetof(grid_block, threads)}};
  enum { AXES = sizeof axes / sizeof *axes };
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
      *(int64_t *)((char *)&point + axes[a].offset) = axes[a].values->items[digit[a]];
    if (point.kv_heads == 0) point.kv_heads = point.heads;
    if (point.d_v == 0) point.d_v = point.d;
    if (point.threads == 0) point.threads = threads;
    /* A dataset that draws nothing is the same for every seed. */
    if (source->random || digit[0] == 0) status = add_block(c, &point, dataset, isa, g);
    if (status != ATTN_OK) return status;
    for (carry = 0; carry < AXES && ++digit[AXES - 1 - carry] == axes[AXES - 1 - carry].values->count;
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
  const value_ints *axes[] = {&c->data_seed, &c->dtype, &c->causal, &c->batch,   &c->heads, &c->kv_heads,
                              &c->d,         &c->d_v,   &c->n,      &c->threads, &c->seed};
  double runs = (double)c->datasets.count * (double)c->variants.count;
  for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) runs *= (double)axes[i]->count;
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
    free_run(run);
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

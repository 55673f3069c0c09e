/* generator.c - see generator.h. */
#include "experiments/evidence/generator.h"

#include <stdlib.h>
#include <string.h>

static bool read(const evidence *e, const char *name, int64_t *out) {
  double number = 0;
  if (!plan_param(e->plan, name, &number, NULL, 0)) return false;
  *out = (int64_t)number;
  return true;
}

static const attn_int_list *read_list(const evidence *e, const char *name) {
  const attn_param *row = attn_plan_variant(e->plan)->params;
  for (; row && row->name; row++)
    if (row->type == ATTN_INT_LIST && strcmp(row->name, name) == 0)
      return (const attn_int_list *)(const void *)((const char *)attn_plan_context(e->plan)->params +
                                                   row->offset);
  return NULL;
}

bool generator_read(const evidence *e, generator *out) {
  generator g = {.step = 1, .n = e->problem->n_kv, .causal = e->problem->causal};
  int64_t window = 0, seed = 0;
  if (!e->view->pattern || !read(e, "window", &window) || !read(e, "global", &g.global)) return false;
  g.side = window / 2;
  g.blocks = read(e, "block", &g.block) && read(e, "random", &g.random) && read(e, "seed", &seed);
  g.listed = read_list(e, "global_at");
  if (!g.blocks && !(read(e, "dilation", &g.step) && g.listed)) return false;
  *out = g;
  return true;
}

static bool is_global(const generator *g, int64_t position) {
  if (position / (g->blocks ? g->block : 1) < g->global) return true;
  for (int64_t l = 0; g->listed && l < g->listed->count; l++)
    if (g->listed->items[l] == position) return true;
  return false;
}

bool generator_fixed(const generator *g, int64_t position, int64_t key) {
  if (is_global(g, position) || is_global(g, key)) return true;
  if (g->blocks) return llabs(position / g->block - key / g->block) <= g->side;
  int64_t distance = llabs(position - key);
  return distance % g->step == 0 && distance / g->step <= g->side;
}

bool generator_candidate(const generator *g, int64_t position, int64_t block) {
  int64_t own = position / g->block;
  return own >= g->global && block >= g->global && llabs(own - block) > g->side &&
         !(g->causal && block > own);
}

int64_t generator_blocks(const generator *g) { return g->blocks ? (g->n - 1) / g->block + 1 : 0; }

int64_t generator_candidates(const generator *g, int64_t position) {
  int64_t count = 0;
  for (int64_t b = 0; b < generator_blocks(g); b++) count += generator_candidate(g, position, b);
  return count;
}

/* A block is drawn whole or not at all. */
static int64_t draw_mismatch(const generator *g, int64_t position, const bool *inside) {
  int64_t wrong = 0, drawn = 0, candidates = generator_candidates(g, position);
  for (int64_t b = 0; b < generator_blocks(g); b++) {
    int64_t first = b * g->block, end = first + g->block < g->n ? first + g->block : g->n, seen = 0;
    if (generator_fixed(g, position, first)) continue;
    for (int64_t j = first; j < end; j++) seen += inside[j];
    if (!generator_candidate(g, position, b))
      wrong += seen;
    else if (seen > 0)
      wrong += end - first - seen, drawn++;
  }
  return wrong + llabs(drawn - (g->random < candidates ? g->random : candidates));
}

int64_t generator_mismatch(const generator *g, const evidence *e, int64_t head, int64_t i, attn_run *runs,
                           bool *inside) {
  int64_t position = i + e->problem->n_kv - e->problem->n_q, wrong = 0;
  int64_t found = attn_pattern_row(e->view->pattern, e->problem, head, i, runs);
  memset(inside, 0, (size_t)g->n * sizeof *inside);
  for (int64_t r = 0; r < found; r++)
    for (int64_t c = 0; c < runs[r].count; c++) {
      bool *key = &inside[runs[r].first + c * runs[r].step];
      wrong += *key;
      *key = true;
    }
  for (int64_t j = 0; j < g->n; j++) {
    bool fixed = generator_fixed(g, position, j) && !(g->causal && j > position);
    if (fixed || !g->blocks) wrong += inside[j] != fixed;
  }
  return g->blocks ? wrong + draw_mismatch(g, position, inside) : wrong;
}

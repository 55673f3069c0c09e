/* grid_refuse.c - runs whose parameters contradict each other, whatever the problem is: one such line of a
 * product does not stop the others. */
#include "experiments/grid/grid_runs.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/evidence/null.h"

static attn_status add_refusal(grid *g, const grid_run *run) {
  const char *reason = run->unknown ? run->unknown : "";
  for (size_t i = 0; i < g->refusal_count; i++)
    if (strcmp(g->refusals[i].reason, reason) == 0) {
      g->refusals[i].runs++;
      return ATTN_OK;
    }
  grid_refusal *refusals = realloc(g->refusals, (g->refusal_count + 1) * sizeof *refusals);
  if (refusals) g->refusals = refusals;
  grid_refusal one = {.spec = strdup(grid_run_text(run)), .reason = strdup(reason), .runs = 1};
  if (refusals && one.spec && one.reason) {
    refusals[g->refusal_count++] = one;
    return ATTN_OK;
  }
  free(one.spec);
  free(one.reason);
  return attn_fail(ATTN_ENOMEM, "no memory for the refusal of %s", run->key);
}

/* Is there something that a baseline would give a scale? */
static bool has_variant(const grid_block *block) {
  for (size_t i = 0; i < block->count; i++)
    if (!block->runs[i].refused && !null_find(block->runs[i].variant)) return true;
  return false;
}

static bool is_kept(const grid_block *block, const grid_run *run, void *context) {
  (void)block, (void)context;
  return !run->refused;
}

attn_status grid_refuse(grid *g) {
  attn_status status = ATTN_OK;
  for (size_t b = 0; b < g->count; b++) {
    grid_block *block = &g->blocks[b];
    for (size_t r = 0; !status && r < block->count; r++)
      if (block->runs[r].refused) status = add_refusal(g, &block->runs[r]);
    const bool whole = !has_variant(block);
    for (size_t r = 0; whole && r < block->count; r++) block->runs[r].refused = true;
  }
  if (status || !g->refusal_count) return status;
  grid_filter(g, is_kept, NULL);
  return g->count ? ATTN_OK : attn_fail(ATTN_EINVAL, "every run is refused: %s", g->refusals[0].reason);
}

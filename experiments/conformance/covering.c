/* covering.c - see covering.h. Greedy, after AETG (Cohen et al. 1997, IEEE TSE 23:437): each row begins with
 * levels that have not met, and of several completions the one is kept in which the most levels meet for the
 * first time. */
#include "experiments/conformance/covering.h"

#include <stdlib.h>
#include <string.h>

enum { COMPLETIONS = 6, OPEN = -1 };
static const uint64_t purpose = 0x636f766572; /* "cover" */

/* Two or three factors, and where what is known of their levels begins. */
typedef struct group {
  int factor[3], count;
  size_t first;
} group;

typedef struct builder {
  const covering_plan *plan;
  group *groups;
  int group_count, pair_groups;
  bool *met; /* of each group, by levels */
  size_t tuples;
  int *order; /* groups of each factor: [factors][group_count], -1 ends them */
  attn_rng rng;
} builder;

static void add_group(builder *b, int x, int y, int z) {
  const int *levels = b->plan->levels;
  group *g = &b->groups[b->group_count++];
  *g = (group){.factor = {x, y, z}, .count = z < 0 ? 2 : 3, .first = b->tuples};
  b->tuples += (size_t)levels[x] * (size_t)levels[y] * (size_t)(z < 0 ? 1 : levels[z]);
}

static attn_status builder_make(const covering_plan *plan, uint64_t seed, builder *b) {
  const int n = plan->factors, t = plan->triples < n ? plan->triples : n;
  const size_t most = (size_t)n * (size_t)n + (size_t)t * (size_t)t * (size_t)t;
  *b = (builder){.plan = plan};
  attn_rng_init(&b->rng, seed, purpose, 0);
  b->groups = calloc(most, sizeof *b->groups);
  if (!b->groups) return attn_fail(ATTN_ENOMEM, "no memory for a covering array");
  for (int x = 0; x < n; x++)
    for (int y = x + 1; y < n; y++) add_group(b, x, y, -1);
  b->pair_groups = b->group_count;
  for (int x = 0; x < t; x++)
    for (int y = x + 1; y < t; y++)
      for (int z = y + 1; z < t; z++) add_group(b, x, y, z);
  b->met = calloc(b->tuples + 1, sizeof *b->met);
  b->order = malloc((size_t)n * (size_t)(b->group_count + 1) * sizeof *b->order);
  if (!b->met || !b->order) return attn_fail(ATTN_ENOMEM, "no memory for a covering array");
  for (int f = 0; f < n; f++) {
    int *to = b->order + (size_t)f * (size_t)(b->group_count + 1);
    for (int g = 0; g < b->group_count; g++)
      for (int i = 0; i < b->groups[g].count; i++)
        if (b->groups[g].factor[i] == f) *to++ = g;
    *to = -1;
  }
  return ATTN_OK;
}

static void builder_free(builder *b) {
  free(b->groups);
  free(b->met);
  free(b->order);
}

/* The place of the row's levels in a group; SIZE_MAX while one is open. */
static size_t place(const builder *b, const group *g, const int *row) {
  size_t at = 0;
  for (int i = 0; i < g->count; i++) {
    if (row[g->factor[i]] == OPEN) return SIZE_MAX;
    at = at * (size_t)b->plan->levels[g->factor[i]] + (size_t)row[g->factor[i]];
  }
  return g->first + at;
}

static bool may_be(const builder *b, const int *row) { return b->plan->allowed(b->plan->context, row); }

/* How many tuples would meet for the first time by this factor's level, among those that are set. */
static int gain_of(const builder *b, int factor, const int *row) {
  int gain = 0;
  for (const int *g = b->order + (size_t)factor * (size_t)(b->group_count + 1); *g >= 0; g++) {
    const size_t at = place(b, &b->groups[*g], row);
    gain += at != SIZE_MAX && !b->met[at];
  }
  return gain;
}

/* Sets a factor to the allowed level of the largest gain, ties at random. Returns the gain, or -1: none is
 * allowed. */
static int choose(builder *b, int factor, int *row) {
  int best = -1, level = OPEN, ties = 0;
  for (int l = 0; l < b->plan->levels[factor]; l++) {
    row[factor] = l;
    if (!may_be(b, row)) continue;
    const int gain = gain_of(b, factor, row);
    if (gain < best) continue;
    ties = gain > best ? 1 : ties + 1;
    if (gain > best || attn_rng_below(&b->rng, ties) == 0) level = l;
    best = gain;
  }
  row[factor] = level;
  return best;
}

/* Completes a row in a random order of its open factors. Returns the tuples gained, -1: it could not be. */
static int complete(builder *b, int *row) {
  int order[COVERING_FACTORS], open = 0, gain = 0;
  for (int f = 0; f < b->plan->factors; f++)
    if (row[f] == OPEN) order[open++] = f;
  for (int i = open; i > 0; i--) {
    const int at = (int)attn_rng_below(&b->rng, i), factor = order[at];
    order[at] = order[i - 1];
    const int more = choose(b, factor, row);
    if (more < 0) return -1;
    gain += more;
  }
  return gain;
}

static void set_levels(const builder *b, const group *g, size_t tuple, int *row) {
  size_t at = tuple - g->first;
  for (int f = 0; f < COVERING_FACTORS; f++) row[f] = OPEN;
  for (int i = g->count - 1; i >= 0; i--) {
    const size_t levels = (size_t)b->plan->levels[g->factor[i]];
    row[g->factor[i]] = (int)(at % levels);
    at /= levels;
  }
}

/* The best of some rows that have the tuple; false: no allowed one was found. */
static bool make_row(builder *b, const group *g, size_t tuple, int *out) {
  int best = -1, row[COVERING_FACTORS];
  for (int c = 0; c < COMPLETIONS; c++) {
    set_levels(b, g, tuple, row);
    if (!may_be(b, row)) return false;
    const int gain = complete(b, row);
    if (gain <= best) continue;
    best = gain;
    memcpy(out, row, sizeof row);
  }
  return best >= 0;
}

static void mark(const builder *b, const int *row) {
  for (int g = 0; g < b->group_count; g++) b->met[place(b, &b->groups[g], row)] = true;
}

static size_t common_divisor(size_t x, size_t y) {
  while (y) {
    const size_t rest = x % y;
    x = y;
    y = rest;
  }
  return x;
}

/* A stride that visits all tuples in an order of the seed. */
static size_t stride_of(builder *b, size_t tuples) {
  size_t stride = 1 + (size_t)attn_rng_below(&b->rng, (int64_t)tuples);
  while (common_divisor(stride, tuples) != 1) stride++;
  return stride;
}

/* Rows until every tuple of the groups has met, or cannot. */
static attn_status cover(builder *b, int from, int to, int **rows, int64_t *count, int64_t *room) {
  const int n = b->plan->factors;
  const size_t first = b->groups[from].first,
               tuples = (to < b->group_count ? b->groups[to].first : b->tuples) - first,
               stride = stride_of(b, tuples);
  for (size_t k = 0, at = 0; k < tuples; k++, at = (at + stride) % tuples) {
    const size_t tuple = first + at;
    int g = from, row[COVERING_FACTORS];
    if (b->met[tuple]) continue;
    while (g + 1 < to && b->groups[g + 1].first <= tuple) g++;
    if (!make_row(b, &b->groups[g], tuple, row)) continue;
    if (*count == *room) {
      const int64_t more = *room ? 2 * *room : 64;
      int *larger = realloc(*rows, (size_t)(more * n) * sizeof *larger);
      if (!larger) return attn_fail(ATTN_ENOMEM, "no memory for a covering array");
      *rows = larger;
      *room = more;
    }
    memcpy(*rows + *count * n, row, (size_t)n * sizeof *row);
    ++*count;
    mark(b, row);
  }
  return ATTN_OK;
}

attn_status covering_make(const covering_plan *plan, uint64_t seed, int **rows, int64_t *count) {
  builder b;
  int *made = NULL;
  int64_t made_count = 0, room = 0;
  attn_status status = builder_make(plan, seed, &b);
  if (!status) status = cover(&b, 0, b.pair_groups, &made, &made_count, &room);
  if (!status && b.group_count > b.pair_groups)
    status = cover(&b, b.pair_groups, b.group_count, &made, &made_count, &room);
  builder_free(&b);
  if (status) {
    free(made);
    return status;
  }
  *rows = made;
  *count = made_count;
  return ATTN_OK;
}

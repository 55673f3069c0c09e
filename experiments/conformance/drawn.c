/* drawn.c - which problems are drawn. Sizes are those that kernels have special cases for, and their neighbours: one
 * query over many keys, a part of a prompt, head widths of models, multiples of the usual blocks, one key head for all. */
#include "experiments/conformance/drawn.h"

#include <stdlib.h>

#include "experiments/conformance/covering.h"
#include "experiments/properties/layout.h"

/* Triples of the first five are covered. */
enum {
  LENGTHS,
  WIDTH,
  VALUE_WIDTH,
  HEADS,
  BATCH,
  TRIPLES,
  CAUSAL = TRIPLES,
  PADDING,
  DTYPE,
  ISA,
  THREADS,
  LSE,
  WATCHED,
  LATER,
  LAYOUT,
  SCORE,
  MASK,
  SCALE,
  FACTORS
};

/* A size of 0 is another in each problem, up to the most. */
static const int64_t crossed[][2] = {{1, 1},     {1, 7},     {1, 64},   {1, 128}, {1, 193}, {1, 4099},
                                     {5, 3},     {33, 97},   {17, 530}, {64, 64}, {65, 65}, {128, 128},
                                     {130, 130}, {521, 521}, {4100, 2}, {0, 0}};
static const int64_t alone[][2] = {{1, 1},     {3, 3},     {17, 17},   {64, 64},   {65, 65},   {96, 96},
                                   {128, 128}, {130, 130}, {197, 197}, {256, 256}, {521, 521}, {0, 0}};
static const int64_t widths[] = {1, 3, 17, 64, 80, 128, 256, 0};
static const int64_t heads[][2] = {{1, 1}, {2, 2}, {3, 1}, {5, 5}, {6, 2}, {8, 1}, {12, 3}, {0, 0}};
static const int64_t length_most = 200, width_most = 256, group_most = 6, kv_heads_most = 4;
static const uint64_t purpose = 0x6f74686572; /* "other" */
static const int64_t threads[] = {1, 2, 4, 9};
enum { BATCHES = 5 };

/* Multiply-adds of a problem, and 16 for each exponential, at most; elements of its tensors. */
static const int64_t work_most = 5000000, elements_most = 1200000;

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

typedef struct lists {
  const int64_t (*lengths)[2];
} lists;

/* A size in a list, the least of it while it is open. */
static int64_t at_least(int64_t listed, int level, int64_t least, int64_t most) {
  return level < 0 ? least : listed ? listed : most;
}

/* Is the problem small enough, with the least of what is open? */
static bool affordable(const void *opaque, const int *row) {
  const lists *l = opaque;
  const int n = row[LENGTHS], h = row[HEADS];
  const int64_t n_q = at_least(n < 0 ? 0 : l->lengths[n][0], n, 1, length_most),
                n_kv = at_least(n < 0 ? 0 : l->lengths[n][1], n, 1, length_most),
                d = at_least(row[WIDTH] < 0 ? 0 : widths[row[WIDTH]], row[WIDTH], 1, width_most),
                d_v = at_least(row[VALUE_WIDTH] < 0 ? 0 : widths[row[VALUE_WIDTH]], row[VALUE_WIDTH], 1,
                               width_most),
                every = at_least(h < 0 ? 0 : heads[h][0], h, 1, kv_heads_most * group_most),
                kv = at_least(h < 0 ? 0 : heads[h][1], h, 1, kv_heads_most),
                b = row[BATCH] < 0 ? 1 : row[BATCH] + 1;
  return n_q * n_kv * every * b * (d + d_v + 16) <= work_most &&
         b * (every * n_q + kv * n_kv) * (d + d_v) <= elements_most;
}

/* Every second one a multiple of 8, as the widths of models are. */
static int64_t draw_width(attn_rng *rng) {
  const int64_t by = attn_rng_below(rng, 2) ? 8 : 1;
  return by * (1 + attn_rng_below(rng, width_most / by));
}

/* The sizes that a list leaves open. */
static void draw_others(uint64_t seed, int64_t place, bool crosses, problem *p) {
  int64_t *v = p->value;
  attn_rng rng;
  attn_rng_init(&rng, seed, purpose, (uint64_t)place);
  if (!v[FIELD_N_KV]) {
    v[FIELD_N_Q] = v[FIELD_N_KV] = 1 + attn_rng_below(&rng, length_most);
    if (crosses) v[FIELD_N_Q] = 1 + attn_rng_below(&rng, length_most);
  }
  if (!v[FIELD_D]) v[FIELD_D] = draw_width(&rng);
  if (!v[FIELD_D_V]) v[FIELD_D_V] = draw_width(&rng);
  if (v[FIELD_HEADS]) return;
  v[FIELD_KV_HEADS] = 1 + attn_rng_below(&rng, kv_heads_most);
  v[FIELD_HEADS] = v[FIELD_KV_HEADS] * (1 + attn_rng_below(&rng, group_most));
}

static problem problem_of(const lists *l, const int *row) {
  problem p = problem_plain();
  int64_t *v = p.value;
  v[FIELD_N_Q] = l->lengths[row[LENGTHS]][0];
  v[FIELD_N_KV] = l->lengths[row[LENGTHS]][1];
  v[FIELD_D] = widths[row[WIDTH]];
  v[FIELD_D_V] = widths[row[VALUE_WIDTH]];
  v[FIELD_HEADS] = heads[row[HEADS]][0];
  v[FIELD_KV_HEADS] = heads[row[HEADS]][1];
  v[FIELD_BATCH] = row[BATCH] + 1;
  v[FIELD_CAUSAL] = row[CAUSAL];
  v[FIELD_PADDING] = row[PADDING];
  v[FIELD_DTYPE] = row[DTYPE];
  v[FIELD_ISA] = row[ISA];
  v[FIELD_THREADS] = threads[row[THREADS]];
  v[FIELD_LSE] = row[LSE];
  v[FIELD_WATCHED] = row[WATCHED];
  v[FIELD_LATER] = row[LATER];
  v[FIELD_LAYOUT] = row[LAYOUT];
  v[FIELD_SCORE] = row[SCORE];
  v[FIELD_MASK] = row[MASK];
  v[FIELD_SCALE] = row[SCALE];
  return p;
}

static covering_plan plan_of(uint32_t caps, const lists *l) {
  int isas = 0;
  while (attn_isa_list()[isas] && isas < COVERING_LEVELS) isas++;
  return (covering_plan){.factors = FACTORS,
                         .triples = TRIPLES,
                         .levels = {[LENGTHS] = l->lengths == crossed ? COUNT(crossed) : COUNT(alone),
                                    [WIDTH] = COUNT(widths),
                                    [VALUE_WIDTH] = COUNT(widths),
                                    [HEADS] = COUNT(heads),
                                    [BATCH] = BATCHES,
                                    [CAUSAL] = caps & ATTN_CAP_CAUSAL ? 2 : 1,
                                    [PADDING] = caps & ATTN_CAP_PADDING ? PADDINGS : 1,
                                    [DTYPE] = 2,
                                    [ISA] = isas,
                                    [THREADS] = COUNT(threads),
                                    [LSE] = caps & ATTN_CAP_LSE ? 2 : 1,
                                    [WATCHED] = 2,
                                    [LATER] = 2,
                                    [LAYOUT] = LAYOUTS,
                                    [SCORE] = caps & ATTN_CAP_SCORE ? SCORES : 1,
                                    [MASK] = caps & ATTN_CAP_MASK ? ATTN_MASK_PATTERN + 1 : 1,
                                    [SCALE] = SCALES},
                         .allowed = affordable,
                         .context = l};
}

/* Narrow sequences of more positions than any other problem has. */
static void add_long(uint32_t caps, problem *to) {
  for (int i = 0; i < 2; i++) {
    to[i] = problem_plain();
    to[i].value[FIELD_N_Q] = to[i].value[FIELD_N_KV] = i ? 3072 : 4099;
    to[i].value[FIELD_D] = 1 + 2 * i;
    to[i].value[FIELD_DTYPE] = i ? ATTN_F64 : ATTN_F32;
    to[i].value[FIELD_CAUSAL] = !i && caps & ATTN_CAP_CAUSAL;
  }
}

attn_status drawn_problems(uint32_t caps, uint64_t seed, problem **out, int64_t *count) {
  const lists l = {.lengths = caps & ATTN_CAP_CROSS ? crossed : alone};
  const covering_plan plan = plan_of(caps, &l);
  int *rows = NULL;
  int64_t made = 0;
  attn_status status = covering_make(&plan, seed, &rows, &made);
  if (status) return status;
  problem *list = malloc((size_t)(made + 2) * sizeof *list);
  if (!list) status = attn_fail(ATTN_ENOMEM, "no memory for %lld problems", (long long)made);
  for (int64_t r = 0; list && r < made; r++) {
    list[r] = problem_of(&l, rows + r * FACTORS);
    draw_others(seed, r, l.lengths == crossed, &list[r]);
    list[r].value[FIELD_SEED] = (int64_t)(seed % 1000000) * 10000 + r;
  }
  free(rows);
  if (status) return status;
  add_long(caps, list + made);
  *out = list;
  *count = made + 2;
  return ATTN_OK;
}

/* drawn.c - which problems are drawn. Sizes are those that kernels have special cases for, and their
 * neighbours: one query over many keys, a part of a prompt, head widths of models, multiples of the usual
 * blocks, one key head for all. */
#include "experiments/conformance/drawn.h"

#include <stdlib.h>

#include "experiments/conformance/covering.h"
#include "experiments/properties/placement.h"

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
  VALUES_SIZE,
  FACTORS
};
_Static_assert((int)FACTORS <= (int)COVERING_FACTORS, "a row has room for all");

/* A size of 0 is another in each problem, most of them such as kernels and models have. */
static const int64_t crossed[][2] = {{1, 1},     {1, 7},     {1, 64},   {1, 128}, {1, 0},   {1, 4099},
                                     {5, 3},     {33, 97},   {17, 530}, {64, 64}, {65, 65}, {128, 128},
                                     {130, 130}, {521, 521}, {4100, 2}, {0, 0}};
static const int64_t alone[][2] = {{1, 1},     {3, 3},     {17, 17},   {64, 64},   {65, 65},   {96, 96},
                                   {128, 128}, {130, 130}, {197, 197}, {256, 256}, {521, 521}, {0, 0}};
static const int64_t widths[] = {1, 3, 17, 64, 80, 128, 256, 0};
static const int64_t heads[][2] = {{1, 1}, {2, 2}, {3, 1}, {5, 5}, {6, 2}, {8, 1}, {12, 3}, {32, 8}, {0, 0}};
static const int64_t usual_lengths[] = {
    2,    3,    4,    6,    8,    9,    12,   15,   16,   17,   20,   24,   31,   32,  33,
    40,   47,   48,   49,   50,   56,   63,   64,   65,   72,   80,   95,   96,   97,  100,
    112,  127,  128,  129,  144,  160,  191,  192,  193,  200,  255,  256,  257,  300, 320,
    383,  384,  385,  400,  511,  512,  513,  640,  767,  768,  769,  896,  960,  999, 1000,
    1023, 1024, 1025, 1280, 1536, 2000, 2047, 2048, 2049, 3072, 4000, 4095, 4096, 4097};
static const int64_t usual_widths[] = {2,  4,   8,   16,  24,  32,  40,  48,  56,  72,
                                       96, 112, 120, 160, 192, 224, 320, 384, 512, 576};
/* Of what is open, in a problem of which nothing usual is affordable. */
static const int64_t length_most = 200, width_most = 256, group_most = 6, kv_heads_most = 4;
static const int64_t usual_groups = 8, usual_kv_heads = 8;
enum { TRIES = 12 };
static const uint64_t purpose = 0x6f74686572; /* "other" */
static const int64_t threads[] = {1, 2, 3, 4, 9, 16}, batches[] = {1, 2, 3, 5, 9};

/* Multiply-adds of a problem, and 16 for each exponential, at most; elements of its tensors. */
static const int64_t work_most = 5000000, elements_most = 1200000;

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

typedef struct lists {
  const int64_t (*lengths)[2];
  const drawn_scope *scope;
} lists;

static bool is_small(int64_t n_q, int64_t n_kv, int64_t heads_of, int64_t kv, int64_t batch, int64_t d,
                     int64_t d_v) {
  return n_q * n_kv * heads_of * batch * (d + d_v + 16) <= work_most &&
         batch * (heads_of * n_q + kv * n_kv) * (d + d_v) <= elements_most;
}

/* A size in a list, the least of it while it is open. */
static int64_t at_least(int64_t listed, int level, int64_t least, int64_t most) {
  return level < 0 ? least : listed ? listed : most;
}

/* Is the problem small enough, with the least of what is open? */
static bool affordable(const void *opaque, const int *row) {
  const lists *l = opaque;
  const int n = row[LENGTHS], h = row[HEADS];
  if (!l->scope->groups && h >= 0 && heads[h][0] != heads[h][1]) return false;
  if (!l->scope->widths && row[WIDTH] >= 0 && row[VALUE_WIDTH] >= 0 && row[WIDTH] != row[VALUE_WIDTH])
    return false;
  if (!l->scope->keyless && row[CAUSAL] > 0 && n >= 0 && l->lengths[n][0] > l->lengths[n][1]) return false;
  const int64_t n_q = at_least(n < 0 ? 0 : l->lengths[n][0], n, 1, length_most),
                n_kv = at_least(n < 0 ? 0 : l->lengths[n][1], n, 1, length_most),
                d = at_least(row[WIDTH] < 0 ? 0 : widths[row[WIDTH]], row[WIDTH], 1, width_most),
                d_v = at_least(row[VALUE_WIDTH] < 0 ? 0 : widths[row[VALUE_WIDTH]], row[VALUE_WIDTH], 1,
                               width_most),
                every = at_least(h < 0 ? 0 : heads[h][0], h, 1, kv_heads_most * group_most),
                kv = at_least(h < 0 ? 0 : heads[h][1], h, 1, kv_heads_most),
                b = row[BATCH] < 0 ? 1 : batches[row[BATCH]];
  return is_small(n_q, n_kv, every, kv, b, d, d_v);
}

/* What the problems so far have taken of the usual sizes, so that each is taken. */
typedef struct turns {
  int64_t length, width;
} turns;

static int64_t take_turn(const int64_t *sizes, int64_t count, int64_t *turn) {
  return sizes[(*turn)++ % count];
}

/* usual: of such sizes, and others; else of any up to the most. */
static int64_t draw_width(attn_rng *rng, bool usual, turns *t) {
  if (usual && attn_rng_below(rng, 3)) return take_turn(usual_widths, COUNT(usual_widths), &t->width);
  const int64_t by = attn_rng_below(rng, 2) ? 8 : 1;
  return by * (1 + attn_rng_below(rng, width_most / by));
}

static int64_t draw_length(attn_rng *rng, bool usual) {
  if (usual && attn_rng_below(rng, 3)) return usual_lengths[attn_rng_below(rng, COUNT(usual_lengths))];
  return 1 + attn_rng_below(rng, length_most);
}

static problem draw_open(const problem *of, const lists *l, bool usual, attn_rng *rng, turns *t) {
  const bool crosses = l->lengths == crossed && (l->scope->keyless || !of->value[FIELD_CAUSAL]);
  problem p = *of;
  int64_t *v = p.value;
  if (!v[FIELD_D]) v[FIELD_D] = draw_width(rng, usual, t);
  if (!v[FIELD_D_V]) v[FIELD_D_V] = l->scope->widths ? draw_width(rng, usual, t) : v[FIELD_D];
  if (!v[FIELD_HEADS]) {
    v[FIELD_KV_HEADS] = 1 + attn_rng_below(rng, usual ? usual_kv_heads : kv_heads_most);
    v[FIELD_HEADS] = v[FIELD_KV_HEADS];
    if (l->scope->groups) v[FIELD_HEADS] *= 1 + attn_rng_below(rng, usual ? usual_groups : group_most);
  }
  if (!v[FIELD_N_KV])
    v[FIELD_N_KV] =
        usual ? take_turn(usual_lengths, COUNT(usual_lengths), &t->length) : draw_length(rng, false);
  if (!v[FIELD_N_Q]) v[FIELD_N_Q] = crosses ? draw_length(rng, usual) : v[FIELD_N_KV];
  return p;
}

/* The sizes that a list leaves open: usual ones, if they are affordable. */
static void draw_others(attn_rng *rng, const lists *l, turns *t, problem *p) {
  const problem open = *p;
  const int64_t *v = p->value;
  for (int i = 0; i <= TRIES; i++) {
    turns after = *t;
    *p = draw_open(&open, l, i < TRIES, rng, &after);
    if (!is_small(v[FIELD_N_Q], v[FIELD_N_KV], v[FIELD_HEADS], v[FIELD_KV_HEADS], v[FIELD_BATCH], v[FIELD_D],
                  v[FIELD_D_V]))
      continue;
    if (i < TRIES) *t = after;
    return;
  }
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
  v[FIELD_BATCH] = batches[row[BATCH]];
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
  v[FIELD_VALUES] = row[VALUES_SIZE];
  return p;
}

/* dressed: with masks and transforms of the scores, and of pairs alone; else plain, and of triples, too. */
static covering_plan plan_of(const lists *l, bool dressed) {
  const uint32_t caps = l->scope->caps;
  const bool in_turn = l->scope->in_turn;
  int isas = 0;
  while (attn_isa_list()[isas] && !(in_turn && isas)) isas++;
  return (covering_plan){.factors = FACTORS,
                         .triples = dressed || in_turn ? 0 : TRIPLES,
                         .levels = {[LENGTHS] = l->lengths == crossed ? COUNT(crossed) : COUNT(alone),
                                    [WIDTH] = COUNT(widths),
                                    [VALUE_WIDTH] = COUNT(widths),
                                    [HEADS] = COUNT(heads),
                                    [BATCH] = COUNT(batches),
                                    [CAUSAL] = caps & ATTN_CAP_CAUSAL ? 2 : 1,
                                    [PADDING] = caps & ATTN_CAP_PADDING ? PADDINGS : 1,
                                    [DTYPE] = 2,
                                    [ISA] = isas,
                                    [THREADS] = in_turn ? 1 : COUNT(threads),
                                    [LSE] = caps & ATTN_CAP_LSE ? 2 : 1,
                                    [WATCHED] = in_turn ? 1 : 2,
                                    [LATER] = 2,
                                    [LAYOUT] = in_turn ? 1 : LAYOUTS,
                                    [SCORE] = dressed && caps & ATTN_CAP_SCORE ? SCORES : 1,
                                    [MASK] = dressed && caps & ATTN_CAP_MASK ? ATTN_MASK_PATTERN + 1 : 1,
                                    [SCALE] = SCALES,
                                    [VALUES_SIZE] = VALUES},
                         .allowed = affordable,
                         .context = l};
}

/* Each usual length of a prompt, of the keys of one query and of those of a few, and each usual width; narrow
 * and short otherwise. */
static int64_t add_usual(const drawn_scope *scope, problem *to) {
  const uint32_t caps = scope->caps;
  int64_t count = 0;
  for (int i = 0; i < COUNT(usual_lengths); i++)
    for (int way = 0; way < (caps & ATTN_CAP_CROSS ? 3 : 1); way++) {
      const int64_t few[] = {2, 3, 4, 8, 16, 32, 64}, n = usual_lengths[i];
      problem p = problem_plain();
      int64_t *v = p.value;
      v[FIELD_N_KV] = n;
      v[FIELD_N_Q] = way == 0 ? n : way == 1 ? 1 : few[i % COUNT(few)];
      v[FIELD_HEADS] = 1 + (way == 1);
      if (!scope->groups) v[FIELD_KV_HEADS] = v[FIELD_HEADS];
      v[FIELD_DTYPE] = i % 2 ? ATTN_F64 : ATTN_F32;
      v[FIELD_CAUSAL] = i / 2 % 2 && caps & ATTN_CAP_CAUSAL && (scope->keyless || v[FIELD_N_Q] <= n);
      for (int64_t d = 8; d >= 1; d -= 7) {
        v[FIELD_D] = v[FIELD_D_V] = d;
        if (!is_small(v[FIELD_N_Q], n, v[FIELD_HEADS], 1, 1, d, d)) continue;
        to[count++] = p;
        break;
      }
    }
  for (int i = 0; i < COUNT(usual_widths); i++) {
    to[count] = problem_plain();
    to[count].value[FIELD_N_Q] = to[count].value[FIELD_N_KV] = 5;
    to[count].value[FIELD_D] = to[count].value[FIELD_D_V] = usual_widths[i];
    to[count++].value[FIELD_DTYPE] = i % 2 ? ATTN_F64 : ATTN_F32;
  }
  return count;
}
enum { USUAL_MOST = 3 * COUNT(usual_lengths) + COUNT(usual_widths) };

/* Narrow problems of more positions and keys than any other has. What computes n_kv numbers for each query
 * takes the longest ones, and has few queries there. */
static const struct {
  int64_t n_q, n_kv, d;
  attn_dtype dtype;
  bool causal;
} longest[] = {{4099, 4099, 1, ATTN_F32, true}, {3072, 3072, 3, ATTN_F64, false},
               {1, 70001, 1, ATTN_F32, false},  {3, 70001, 2, ATTN_F64, true},
               {70001, 2, 1, ATTN_F32, false},  {1, 9001, 3, ATTN_F32, true}};

static int64_t add_long(const drawn_scope *scope, problem *to) {
  const uint32_t caps = scope->caps;
  const bool any_keys = caps & ATTN_CAP_MASK || (scope->in_turn && caps & ATTN_CAP_EXACT),
             all = caps & ATTN_CAP_CROSS && any_keys && !(caps & ATTN_CAP_DATA);
  const int count = all ? COUNT(longest) : 2;
  for (int i = 0; i < count; i++) {
    to[i] = problem_plain();
    to[i].value[FIELD_N_Q] = longest[i].n_q;
    to[i].value[FIELD_N_KV] = longest[i].n_kv;
    to[i].value[FIELD_D] = longest[i].d;
    if (!scope->widths) to[i].value[FIELD_D_V] = longest[i].d;
    to[i].value[FIELD_DTYPE] = longest[i].dtype;
    to[i].value[FIELD_CAUSAL] = longest[i].causal && caps & ATTN_CAP_CAUSAL;
  }
  return count;
}

/* Masks and transforms for every second problem of those that have none. */
static void dress(uint32_t caps, attn_rng *rng, problem *p) {
  if (attn_rng_below(rng, 2)) return;
  if (caps & ATTN_CAP_SCORE) p->value[FIELD_SCORE] = attn_rng_below(rng, SCORES);
  if (caps & ATTN_CAP_MASK) p->value[FIELD_MASK] = attn_rng_below(rng, ATTN_MASK_PATTERN + 1);
}

/* Does the variant take a plain problem of two heads and 8 keys in which this is changed? */
static bool is_taken(const attn_spec *spec, int64_t kv_heads, int64_t d_v, int64_t keys) {
  attn_problem p = attn_problem_make(1, 2, 8, 4);
  p.kv_heads = kv_heads;
  p.d_v = d_v;
  p.n_kv = keys;
  p.causal = keys < p.n_q;
  return !attn_estimate_spec(&p, spec, NULL, NULL, NULL);
}

drawn_scope drawn_scope_of(const attn_spec *spec) {
  drawn_scope s = drawn_scope_all(spec->variant->caps);
  s.in_turn = attn_exempt(spec->variant->exempt, ATTN_EXEMPT_BITS);
  if (!s.in_turn) return s;
  s.groups = is_taken(spec, 1, 4, 8);
  s.widths = is_taken(spec, 2, 3, 8);
  s.keyless = is_taken(spec, 2, 4, 7);
  return s;
}

attn_status drawn_problems(const drawn_scope *scope, uint64_t seed, problem **out, int64_t *count) {
  const uint32_t caps = scope->caps;
  const lists l = {caps & ATTN_CAP_CROSS ? crossed : alone, scope};
  const covering_plan dressed = plan_of(&l, true), plain = plan_of(&l, false);
  int *first = NULL, *second = NULL;
  int64_t firsts = 0, seconds = 0;
  problem *list = NULL;
  attn_rng rng;
  turns t = {0, 0};
  attn_status status = ATTN_OK;
  attn_rng_init(&rng, seed, purpose, 0);
  if (caps & (ATTN_CAP_SCORE | ATTN_CAP_MASK)) status = covering_make(&dressed, seed, &first, &firsts);
  if (!status) status = covering_make(&plain, seed, &second, &seconds);
  const int64_t made = firsts + seconds;
  if (!status && !(list = malloc((size_t)(DRAWN_SMALL + USUAL_MOST + made + COUNT(longest)) * sizeof *list)))
    status = attn_fail(ATTN_ENOMEM, "no memory for %lld problems", (long long)made);
  const int64_t small = status ? 0 : drawn_small(scope, list),
                usual = status ? 0 : add_usual(scope, list + small);
  problem *drawn = list ? list + small + usual : NULL;
  for (int64_t r = 0; !status && r < made; r++) {
    problem *p = &drawn[r];
    *p = problem_of(&l, r < firsts ? first + r * FACTORS : second + (r - firsts) * FACTORS);
    if (r >= firsts) dress(caps, &rng, p);
    draw_others(&rng, &l, &t, p);
  }
  free(first);
  free(second);
  if (status) return status;
  *count = small + usual + made + add_long(scope, drawn + made);
  for (int64_t i = 0; i < *count; i++) list[i].value[FIELD_SEED] = (int64_t)(seed % 1000000) * 10000 + i;
  *out = list;
  return ATTN_OK;
}

/* hyper - attention to the block of sorted keys beside the sorted query, and to keys drawn for the whole
 * head.
 *
 * A hash has `bits` bits, bit b of x is w_b.x > 0, w_b of d draws N(0, 1), rounded to fp32, of the stream
 * (hash_seed, 0x4197e, b). The n keys of a kv head that exist, sorted by (place of the hash in the reflected
 * Gray code, position), are cut into B = ceil(n / block) blocks: block t has the places floor(t n / B) ...
 * floor((t + 1) n / B) - 1. The queries of a head, sorted alike, are cut into tiles of R = min(block, 64);
 * the tile of places f ... f + c - 1 takes the block of its middle, t = floor((2 f + c) B / (2 n_q)): for n_q
 * = n, R dividing the blocks, that of the same places. Besides, m = sample keys are drawn of all n with
 * replacement, stream (seed, 0x4197d, head), for all queries of a head: uniformly (pi_j = 1 / n), or with
 * pi_j proportional to |v'_j| / |V'|_2 + 1 / n, v' = (v, 1). With c_j the times that key j is drawn, A_j =
 *   e^s_j, and H the query's block, D~ = sum_H A_j + sum_(j not in H) c_j A_j / (m pi_j),   N~ alike of A_j
 *   v_j,   o = N~ / D~,
 * and N~ and D~ are unbiased over seeds (hashes have a seed of their own). exclude=no lets j run over H
 * again, as the authors' code for GPUs does: E D~ = D + sum_H A_j. If n <= exact_below or n <= block, H is
 * all keys and nothing is drawn.
 *
 * HyperAttention, Han et al. 2023 (arXiv:2310.05869); pi: KDEformer, Zandieh et al. 2023 (arXiv:2302.02451).
 * Cost n d bits for hashing, n (block + sample) pairs. Bounds: SP-1, the laws of weights. Deviations: n need
 * not be a multiple of block; tiles may lie across query blocks. KDEformer's code divides by what the power
 * method finds for V'^T V', the square of |V'|_2; here it is |V'|_2, by 32 steps from (0, ..., 0, 1). Causal:
 * dyadic(hyper), HyperAttention's recursion. */
#include "attn_variant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum { UNIFORM, VALUES } sampling_kind;
typedef struct params {
  int64_t bits, block, sample, exact_below, hash_seed, seed;
  int sampling, exclude;
} params;
static const char *const samplings[] = {"uniform", "values", NULL};
static const char *const no_yes[] = {"no", "yes", NULL};

static const attn_param table[] = {
    {"bits", ATTN_INT, offsetof(params, bits), 1, 24, "7", NULL, "hyperplanes of the hash"},
    {"block", ATTN_INT, offsetof(params, block), 1, 1 << 20, "256", NULL, "sorted keys that a query sees"},
    {"sample", ATTN_INT, offsetof(params, sample), 1, 1 << 20, "256", NULL, "keys drawn for a head"},
    {"sampling", ATTN_CHOICE, offsetof(params, sampling), 0, 1, "uniform", samplings,
     "how they are drawn; values: by |v| (KDEformer)"},
    {"exact_below", ATTN_INT, offsetof(params, exact_below), 0, 1 << 30, "4096", NULL,
     "use exact attention up to this many keys"},
    {"exclude", ATTN_CHOICE, offsetof(params, exclude), 0, 1, "yes", no_yes,
     "no: drawn keys of the query's own block count twice, as published"},
    {"hash_seed", ATTN_INT, offsetof(params, hash_seed), 0, 1e15, "0", NULL, "seed of the hyperplanes"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the drawn keys"},
    {.name = NULL},
};

enum { STEPS = 32, PLANES = 0x4197e, DRAWS = 0x4197d };

typedef struct state {
  params p;
  int64_t rows; /* of a tile */
  const attn_sign_order *hash;
} state;

/* The number of blocks of `keys` keys. */
static int64_t blocks_of(const params *x, int64_t keys) {
  return keys <= x->exact_below ? 1 : attn_max(1, (keys + x->block - 1) / x->block);
}
static int64_t begin_of(int64_t block, int64_t blocks, int64_t keys) { return block * keys / blocks; }
/* The block of the tile that begins at a place among the queries. */
static int64_t block_of(int64_t first, int64_t count, int64_t queries, int64_t blocks) {
  return (2 * first + count) * blocks / (2 * queries);
}

/* ---- sorting ----------------------------------------------------------------------------------------- */

/* A thread's. */
typedef struct room {
  void *sorting;
  int64_t *next;       /* a place in each block of keys */
  uint32_t *times;     /* that each key is drawn */
  double *mass, *gram; /* of keys, running sums; [3 + d_v][d_v + 1] */
} room;

static room lay_out(const attn_context *c, attn_carver *carver) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  const int64_t values = x->sampling == VALUES;
  return (room){.sorting =
                    attn_carve(carver, 1, 1, attn_sign_order_scratch(c, x->bits, attn_max(p->n_q, p->n_kv))),
                .next = attn_carve(carver, blocks_of(x, p->n_kv), 1, sizeof(int64_t)),
                .times = attn_carve(carver, p->n_kv, 1, sizeof(uint32_t)),
                .mass = attn_carve(carver, values * p->n_kv, 1, sizeof(double)),
                .gram = attn_carve(carver, values * (p->d_v + 3), p->d_v + 1, sizeof(double))};
}

/* What is made of a kv head. */
typedef struct prepared_head {
  int64_t *order;   /* [group][n_q] sorted queries */
  int64_t *members; /* the keys of block 0, of block 1, ..., ascending in each */
  int32_t *block;   /* of each key */
  int64_t *drawn;   /* [group][sample] ascending, each once */
  double *weight;   /* [group][sample] its logarithm */
  int64_t *count;   /* [group] */
} prepared_head;

static prepared_head head_of(const attn_context *c, attn_carver *carver) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  const int64_t group = p->heads / p->kv_heads;
  return (prepared_head){.order = attn_carve(carver, group, p->n_q, sizeof(int64_t)),
                         .members = attn_carve(carver, p->n_kv, 1, sizeof(int64_t)),
                         .block = attn_carve(carver, p->n_kv, 1, sizeof(int32_t)),
                         .drawn = attn_carve(carver, group, x->sample, sizeof(int64_t)),
                         .weight = attn_carve(carver, group, x->sample, sizeof(double)),
                         .count = attn_carve(carver, group, 1, sizeof(int64_t))};
}

static void sort_keys(const state *s, const attn_call *call, int64_t batch, int64_t kv_head, const room *w,
                      const prepared_head *out) {
  const attn_problem *p = call->context->problem;
  const int64_t keys = attn_call_keys(call, batch), blocks = blocks_of(&s->p, keys);
  attn_sign_order_sort(s->hash, call->context, attn_rows(call->k, p->k, batch, kv_head, p->dtype), p->k, keys,
                       out->members, w->sorting);
  for (int64_t t = 0; t < blocks; t++) {
    w->next[t] = begin_of(t, blocks, keys);
    for (int64_t at = w->next[t]; at < begin_of(t + 1, blocks, keys); at++)
      out->block[out->members[at]] = (int32_t)t;
  }
  /* Within a block keys are met in ascending order. */
  for (int64_t j = 0; j < keys; j++) out->members[w->next[out->block[j]]++] = j;
}

/* ---- drawing ----------------------------------------------------------------------------------------- */

static double length_of(const void *v, const attn_problem *p) {
  double sum = 1;
  for (int64_t l = 0; l < p->d_v; l++) {
    const double x = attn_get(v, l, attn_stored(p->v, p->dtype));
    sum += x * x;
  }
  return sqrt(sum);
}

/* |V'|_2 by the power method. gram: [3 + d_v][d_v + 1]. */
static double norm_of(const attn_problem *p, const void *v, int64_t keys, double *gram) {
  const attn_dtype t = attn_stored(p->v, p->dtype);
  const int64_t columns = p->d_v + 1;
  double *row = gram + columns * columns, *x = row + columns, size = 0;
  memset(gram, 0, (size_t)((columns + 2) * columns) * sizeof *gram);
  row[p->d_v] = x[p->d_v] = 1;
  for (int64_t j = 0; j < keys; j++) {
    for (int64_t l = 0; l < p->d_v; l++) row[l] = attn_get(v, j * p->v.row + l, t);
    for (int64_t a = 0; a < columns; a++) {
      double *restrict to = gram + a * columns;
      const double own = row[a];
      for (int64_t b = 0; b <= a; b++) to[b] += own * row[b];
    }
  }
  for (int64_t a = 0; a < columns; a++)
    for (int64_t b = 0; b < a; b++) gram[b * columns + a] = gram[a * columns + b];
  for (int step = 0; step < STEPS; step++) {
    size = 0;
    for (int64_t a = 0; a < columns; a++) {
      row[a] = 0;
      for (int64_t b = 0; b < columns; b++) row[a] += gram[a * columns + b] * x[b];
      size += row[a] * row[a];
    }
    size = sqrt(size);
    for (int64_t a = 0; a < columns; a++) x[a] = row[a] / size;
  }
  return sqrt(size);
}

/* Running sums of what pi is proportional to; false: it has no finite sum, and pi is uniform. */
static bool masses(const attn_problem *p, const void *v, int64_t keys, double *gram, double *mass) {
  const double norm = norm_of(p, v, keys, gram);
  double sum = 0;
  for (int64_t j = 0; j < keys; j++)
    mass[j] = sum += length_of(attn_row_behind(v, p->v, j, p->dtype), p) / norm + 1 / (double)keys;
  return isfinite(sum);
}

/* The first key up to which the running sum is more than x. */
static int64_t key_at(const double *mass, int64_t keys, double x) {
  int64_t low = 0, high = keys - 1;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (mass[middle] > x)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* The keys of head `at` of a group. mass: running sums, NULL: uniformly. */
static void draw(const state *s, int64_t head, int64_t at, int64_t keys, const double *mass, const room *w,
                 const prepared_head *out) {
  const int64_t m = s->p.sample;
  int64_t *drawn = out->drawn + at * m, count = 0;
  double *weight = out->weight + at * m;
  attn_rng rng;
  attn_rng_init(&rng, (uint64_t)s->p.seed, DRAWS, (uint64_t)head);
  memset(w->times, 0, (size_t)keys * sizeof *w->times);
  for (int64_t i = 0; i < m; i++)
    w->times[mass ? key_at(mass, keys, mass[keys - 1] * attn_rng_uniform(&rng))
                  : attn_rng_below(&rng, keys)]++;
  for (int64_t key = 0; key < keys; key++) {
    if (!w->times[key]) continue;
    const double pi = mass ? (mass[key] - (key ? mass[key - 1] : 0)) / mass[keys - 1] : 1 / (double)keys;
    drawn[count] = key;
    weight[count++] = log((double)w->times[key]) - log((double)m * pi);
  }
  out->count[at] = count;
}

static void prepare(const void *state_, const attn_call *call, int64_t batch, int64_t kv_head, void *prepared,
                    void *scratch) {
  const state *s = state_;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const int64_t group = p->heads / p->kv_heads, keys = attn_call_keys(call, batch);
  attn_carver carver = {.base = scratch}, own = {.base = prepared};
  const room w = lay_out(c, &carver);
  const prepared_head out = head_of(c, &own);
  const bool some = blocks_of(&s->p, keys) > 1,
             weighed = some && s->p.sampling == VALUES &&
                       masses(p, attn_rows(call->v, p->v, batch, kv_head, p->dtype), keys, w.gram, w.mass);
  sort_keys(s, call, batch, kv_head, &w, &out);
  for (int64_t at = 0; at < group; at++) {
    const int64_t head = kv_head * group + at;
    attn_sign_order_sort(s->hash, c, attn_rows(call->q, p->q, batch, head, p->dtype), p->q, p->n_q,
                         out.order + at * p->n_q, w.sorting);
    out.count[at] = 0;
    if (some) draw(s, head, at, keys, weighed ? w.mass : NULL, &w, &out);
  }
}

static const int64_t *order(const void *unused, const attn_call *call, const void *prepared, int64_t head) {
  const attn_problem *p = call->context->problem;
  attn_carver own = {.base = (char *)(uintptr_t)prepared};
  (void)unused;
  return head_of(call->context, &own).order + head % (p->heads / p->kv_heads) * p->n_q;
}

/* ---- selecting --------------------------------------------------------------------------------------- */

static void add(attn_picks *picks, int64_t key, double weight) {
  attn_picks_add(picks, 0, key, key + 1, weight);
}

static void select(const void *state_, const attn_call *call, const attn_block *b, const void *prepared,
                   attn_picks *picks, void *scratch) {
  const state *s = state_;
  const attn_problem *p = call->context->problem;
  attn_carver own = {.base = (char *)(uintptr_t)prepared};
  const prepared_head in = head_of(call->context, &own);
  const int64_t keys = attn_call_keys(call, b->batch), blocks = blocks_of(&s->p, keys),
                t = block_of(b->first, b->count, p->n_q, blocks), end = begin_of(t + 1, blocks, keys),
                group = p->heads / p->kv_heads, at = b->head % group, count = in.count[at],
                *drawn = in.drawn + at * s->p.sample;
  const double *weight = in.weight + at * s->p.sample;
  int64_t member = begin_of(t, blocks, keys);
  (void)scratch;
  picks->counts[0] = 0;
  for (int64_t d = 0; d < count; d++) {
    const bool inside = in.block[drawn[d]] == t;
    for (; member < end && in.members[member] < drawn[d]; member++) add(picks, in.members[member], 0);
    if (!inside)
      add(picks, drawn[d], weight[d]);
    else if (!s->p.exclude)
      add(picks, in.members[member++], log1p(exp(weight[d])));
  }
  for (; member < end; member++) add(picks, in.members[member], 0);
}

/* ---- the law: places are counted, nothing is sorted -------------------------------------------------- */

/* The Gray places of the head's queries, and behind them those of its keys. NULL without memory. */
static uint32_t *gray_places(const state *s, const attn_query *x, int64_t keys) {
  const attn_problem *p = x->call->context->problem;
  const void *q = attn_rows(x->call->q, p->q, x->batch, x->head, p->dtype),
             *k = attn_rows(x->call->k, p->k, x->batch, x->head / (p->heads / p->kv_heads), p->dtype);
  uint32_t *out = malloc((size_t)(p->n_q + keys) * sizeof *out);
  for (int64_t i = 0; out && i < p->n_q; i++)
    out[i] =
        attn_sign_order_place(s->hash, p, attn_row_behind(q, p->q, i, p->dtype), attn_stored(p->q, p->dtype));
  for (int64_t j = 0; out && j < keys; j++)
    out[p->n_q + j] =
        attn_sign_order_place(s->hash, p, attn_row_behind(k, p->k, j, p->dtype), attn_stored(p->k, p->dtype));
  return out;
}

static int64_t place_among(const uint32_t *gray, int64_t count, int64_t i) {
  int64_t before = 0;
  for (int64_t j = 0; j < count; j++) before += gray[j] < gray[i] || (gray[j] == gray[i] && j < i);
  return before;
}

static bool in_own_block(const state *s, const attn_query *x, int64_t keys, const uint32_t *gray,
                         int64_t key) {
  const int64_t n_q = x->call->context->problem->n_q, blocks = blocks_of(&s->p, keys),
                first = place_among(gray, n_q, x->i) / s->rows * s->rows,
                own = block_of(first, attn_min(s->rows, n_q - first), n_q, blocks),
                place = place_among(gray + n_q, keys, key);
  return place >= begin_of(own, blocks, keys) && place < begin_of(own + 1, blocks, keys);
}

/* pi of each key. NULL without memory. */
static double *chances(const state *s, const attn_query *x, int64_t keys) {
  const attn_problem *p = x->call->context->problem;
  const int64_t columns = p->d_v + 1;
  const void *v = attn_rows(x->call->v, p->v, x->batch, x->head / (p->heads / p->kv_heads), p->dtype);
  double *pi = malloc((size_t)(keys + (columns + 2) * columns) * sizeof *pi);
  if (!pi) return NULL;
  double sum = 0;
  const double norm = s->p.sampling == VALUES ? norm_of(p, v, keys, pi + keys) : (double)INFINITY;
  for (int64_t j = 0; j < keys; j++)
    sum += pi[j] = length_of(attn_row_behind(v, p->v, j, p->dtype), p) / norm + 1 / (double)keys;
  for (int64_t j = 0; j < keys; j++)
    pi[j] = isfinite(sum) && s->p.sampling == VALUES ? pi[j] / sum : 1 / (double)keys;
  return pi;
}

static double log_weight(const void *state_, const attn_query *x, int64_t key) {
  const state *s = state_;
  double *pi = chances(s, x, attn_call_keys(x->call, x->batch));
  const double weight = pi ? -log((double)s->p.sample * pi[key]) : (double)NAN;
  free(pi);
  return weight;
}

/* Of m draws with replacement: E c_j c_l = m (m - 1) pi_j pi_l, and m pi_j more for j = l. */
static void moments(const void *state_, const attn_query *x, const int64_t *keys, int64_t count, double *m) {
  const state *s = state_;
  const int64_t n = attn_call_keys(x->call, x->batch);
  const double drawn = (double)s->p.sample;
  uint32_t *gray = gray_places(s, x, n);
  double *pi = chances(s, x, n);
  bool *own = malloc((size_t)count * sizeof *own);
  const bool known = gray && pi && own;
  for (int64_t a = 0; known && a < count; a++)
    own[a] = blocks_of(&s->p, n) == 1 || in_own_block(s, x, n, gray, keys[a]);
  for (int64_t a = 0; a < count; a++)
    for (int64_t b = 0; b < count; b++)
      m[a * count + b] = !known             ? (double)NAN
                         : own[a] || own[b] ? 1
                                            : (drawn - 1 + (a == b ? 1 / pi[keys[a]] : 0)) / drawn;
  free(gray);
  free(pi);
  free(own);
}

/* ---- planning ---------------------------------------------------------------------------------------- */

static attn_status applicable(const attn_context *c) {
  if (c->problem->n_kv > INT32_MAX || c->problem->n_q > INT32_MAX)
    return attn_fail(ATTN_EUNSUPPORTED, "variant hyper: more than 2^31 - 1 queries or keys");
  return ATTN_OK;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  static const attn_exemption of_values[] = {
      {ATTN_EXEMPT_ROWS, "the queries of a head are sorted together"},
      {ATTN_EXEMPT_VALUES, "sampling=values draws keys by their values"},
      {.reason = NULL}};
  attn_carver prepared = {0}, scratch = {0};
  const params *x = c->params;
  const attn_problem *p = c->problem;
  const bool lawful = x->exclude;
  state *s = b ? attn_builder_alloc(b, 1, sizeof *s) : NULL;
  if (b && !s) return ATTN_ENOMEM;
  if (s) *s = (state){.p = *x, .rows = attn_min(ATTN_TILE, x->block)};
  if (x->sampling == VALUES) out->exempt = of_values;
  head_of(c, &prepared);
  lay_out(c, &scratch);
  out->selector =
      (attn_selector){.state = s,
                      .share = ATTN_SHARE_TILE,
                      .rows = attn_min(ATTN_TILE, x->block),
                      .max_runs = attn_min(p->n_kv, x->block + x->sample),
                      .max_keys = attn_min(p->n_kv, attn_max(x->exact_below, x->block + x->sample)),
                      .every = blocks_of(x, p->n_kv) == 1,
                      .weighted = true,
                      .prepared_bytes = prepared.used,
                      .prepare = prepare,
                      .scratch_bytes = scratch.used,
                      .select = select,
                      .order = order,
                      .moments = lawful ? moments : NULL,
                      .log_weight = lawful ? log_weight : NULL,
                      .repeats = lawful};
  return s ? attn_sign_order_plan(b, x->bits, (uint64_t)x->hash_seed, PLANES, &s->hash) : ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  const params *x = c->params;
  const attn_problem *p = c->problem;
  const double keys = (double)p->n_kv, blocks = (double)blocks_of(x, p->n_kv),
               drawn = keys * (1 - exp((double)x->sample * log1p(-1 / keys))), columns = (double)(p->d_v + 1);
  if (blocks <= 1) return attn_softmax_cost(c, attn_visible_pairs(p));
  attn_cost result = attn_softmax_cost(c, (double)p->n_q * (keys / blocks + drawn * (1 - 1 / blocks)));
  result.mul_add +=
      (double)(p->batch * p->d_qk) * (double)(p->heads * p->n_q + p->kv_heads * p->n_kv) * (double)x->bits;
  if (x->sampling == VALUES) result.mul_add += (double)(p->batch * p->kv_heads) * keys * columns * columns;
  return result;
}

static const attn_exemption of_sorting[] = {{ATTN_EXEMPT_ROWS, "the queries of a head are sorted together"},
                                            {.reason = NULL}};

ATTN_VARIANT(hyper, .summary = "sorted blocks of queries and keys, and keys drawn for a head",
             .formula = "keys of the query's block after sorting both by hash, and `sample` keys drawn for a "
                        "head, weighted 1 / (sample pi_j); O(n (block + sample) d)",
             .cite = "Han et al. 2023, arXiv:2310.05869",
             .caps = (ATTN_CAP_SOFTMAX & ~(ATTN_CAP_CAUSAL | ATTN_CAP_SHIFT | ATTN_CAP_MASK)) | ATTN_CAP_LSE |
                     ATTN_CAP_DATA,
             .params = table, .params_size = sizeof(params), .seed = "seed",
             .budget = {.parameter = "sample"}, .exempt = of_sorting, .applicable = applicable,
             .describe = describe, .cost = cost)

/* kv_cache.c - caches of keys and values: which keys every policy holds on a whole sequence, by definitions
 * written here; sinks, prompts, memory that is not there, refusals. That a cache is that plan, whatever the
 * splits, lengths, stores and copies, is for CACHE-1 ... CACHE-5 (experiments/checks/caches). */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_kv_cache.h"
#include "attn_variant.h"

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, GROUP = HEADS / KV_HEADS, N = 90, D = 8, D_V = 5 };

typedef struct inputs {
  float q[BATCH][HEADS][N][D], k[BATCH][KV_HEADS][N][D], v[BATCH][KV_HEADS][N][D_V];
} inputs;

/* The last is no cache's. */
enum { RANDOM, STREAMING, KNORM, KEYDIFF, TOVA, H2O, H2O_MEAN, SNAPKV, LAGKV, EXPECTED, QFILTER, EXACT };
enum { CACHED = EXACT, NAMES };
static const char *const names[NAMES] = {"random",   "streaming", "knorm", "keydiff",  "tova",    "h2o",
                                         "h2o_mean", "snapkv",    "lagkv", "expected", "qfilter", "exact"};

static void draw(float *x, size_t count, uint64_t seed) {
  attn_rng rng;
  attn_rng_init(&rng, seed, 1, 0);
  for (size_t i = 0; i < count; i++) x[i] = (float)attn_rng_normal(&rng);
}

static double filter(int h, int l) { return sin(1 + 3 * h + l); }

/* The file "f" has them, "g" those of a head too many. */
static attn_status read_filters(const char *path, int64_t *rows, int64_t *columns, double **values) {
  *rows = KV_HEADS + (*path == 'g');
  *columns = D;
  *values = malloc((size_t)(*rows * D) * sizeof **values);
  for (int i = 0; i < *rows * D; i++) (*values)[i] = filter(i / D, i % D);
  return ATTN_OK;
}

static inputs *inputs_make(void) {
  inputs *x = malloc(sizeof *x);
  attn_matrix_reader_set(read_filters);
  draw(&x->q[0][0][0][0], sizeof x->q / sizeof(float), 1);
  draw(&x->k[0][0][0][0], sizeof x->k / sizeof(float), 2);
  draw(&x->v[0][0][0][0], sizeof x->v / sizeof(float), 3);
  return x;
}

static attn_problem problem_of(int64_t n_q) {
  attn_problem p = attn_problem_make(BATCH, HEADS, N, D);
  p.n_q = n_q;
  p.kv_heads = KV_HEADS;
  p.d_v = D_V;
  p.causal = true;
  return p;
}

static attn_kv_cache *cache_make(const char *spec) {
  attn_kv_cache *c = NULL;
  const attn_problem p = problem_of(1);
  const attn_options two = {.threads = 2, .blocks.key = 24}; /* whatever the store, steps are the same */
  cr_assert_eq(attn_kv_cache_create(&c, &p, spec, &two), ATTN_OK, "%s: %s", spec, attn_last_error());
  return c;
}

/* Positions first ... first + n - 1 of a tensor of all, as one of n. */
static float *slice(const float *x, int64_t heads, int64_t d, int64_t first, int64_t n) {
  float *out = malloc((size_t)(BATCH * heads * n * d) * sizeof *out);
  for (int64_t line = 0; line < BATCH * heads; line++)
    memcpy(out + line * n * d, x + (line * N + first) * d, (size_t)(n * d) * sizeof *out);
  return out;
}

static attn_status append(attn_kv_cache *c, const inputs *x, int64_t first, int64_t n,
                          const int64_t *length) {
  float *q = slice(&x->q[0][0][0][0], HEADS, D, first, n),
        *k = slice(&x->k[0][0][0][0], KV_HEADS, D, first, n),
        *v = slice(&x->v[0][0][0][0], KV_HEADS, D_V, first, n);
  const attn_status status = attn_kv_cache_append(c, n, length, q, k, v);
  free(q);
  free(k);
  free(v);
  return status;
}

/* Of the last query of each sequence, at position `at`. */
static void attend(attn_kv_cache *c, const inputs *x, int64_t at, float o[BATCH][HEADS][D_V]) {
  float *q = slice(&x->q[0][0][0][0], HEADS, D, at, 1);
  cr_assert_eq(attn_kv_cache_attend(c, 1, q, o, NULL), ATTN_OK, "%s", attn_last_error());
  free(q);
}

/* ---- definitions --------------------------------------------------------------------------------------- */

typedef struct rule {
  int score;
  int64_t budget, recent, prompt, every, chunk;
} rule;

/* Held keys before each position: held[t][j], the keys that query t sees. */
typedef bool history[N][N];

static double dot(const float *a, const float *b) {
  double sum = 0;
  for (int l = 0; l < D; l++) sum += (double)a[l] * (double)b[l];
  return sum;
}

/* The weight of key j for query t among the held keys, or all, a mean over the heads that share it. */
static double weight(const inputs *x, const history held, int b, int h, int64_t t, int64_t j) {
  double mean = 0;
  for (int g = 0; g < GROUP; g++) {
    double sum = 0;
    const float *q = x->q[b][h * GROUP + g][t];
    for (int64_t i = 0; i <= t; i++)
      if (!held || held[t][i]) sum += exp(dot(q, x->k[b][h][i]) / sqrt(D));
    if (!held || held[t][j]) mean += exp(dot(q, x->k[b][h][j]) / sqrt(D)) / sum / GROUP;
  }
  return mean;
}

static double cosine_sum(const inputs *x, const bool *held, int b, int h, int64_t t, int64_t j) {
  double sum = 0;
  for (int64_t i = 0; i < t; i++)
    if (held[i])
      sum += dot(x->k[b][h][i], x->k[b][h][j]) /
             sqrt(dot(x->k[b][h][i], x->k[b][h][i]) * dot(x->k[b][h][j], x->k[b][h][j]));
  return sum;
}

/* Of row list[at] among the `lag` that begin with list[first], whose components are taken in the ranges of
 * the next `lag`: its share in the softmax of standard deviations. */
static double lag_share(const float *rows, int d, const int64_t *list, int64_t first, int64_t lag,
                        int64_t at) {
  double sum = 0, own = 0;
  for (int64_t i = first; i < first + lag; i++) {
    double z[D], mean = 0, square = 0;
    for (int l = 0; l < d; l++) {
      double low = (double)INFINITY, high = -low;
      for (int64_t o = first + lag; o < first + 2 * lag; o++) {
        low = fmin(low, (double)rows[list[o] * d + l]);
        high = fmax(high, (double)rows[list[o] * d + l]);
      }
      z[l] = high > low ? ((double)rows[list[i] * d + l] - low) / (high - low) : 0;
      mean += z[l] / d;
    }
    for (int l = 0; l < d; l++) square += (z[l] - mean) * (z[l] - mean);
    sum += exp(sqrt(square / (d - 1)));
    if (i == at) own = exp(sqrt(square / (d - 1)));
  }
  return own / sum;
}

static double lag_score(const inputs *x, const bool *before, int64_t lag, int b, int h, int64_t t,
                        int64_t j) {
  int64_t list[N], count = 0, at = 0;
  for (int64_t i = 0; i < t; i++) {
    if (i == j) at = count;
    if (before[i]) list[count++] = i;
  }
  const int64_t first = 4 + (at - 4) / lag * lag;
  return at < 4                    ? (double)INFINITY
         : first + 2 * lag > count ? (double)(2 + j)
                                   : lag_share(&x->k[b][h][0][0], D, list, first, lag, at) +
                                         lag_share(&x->v[b][h][0][0], D_V, list, first, lag, at);
}

/* Of the keys list[i] the logarithm of the mean weight under normal queries of the moments of the last 64,
 * times the norm of the value. */
static void expected_scores(const inputs *x, int b, int h, int64_t t, const int64_t *list, int64_t count,
                            double *own) {
  const int64_t first = t > 64 ? t - 64 : 0;
  double z[N];
  for (int64_t i = 0; i < count; i++) own[i] = 0;
  for (int g = 0; g < GROUP; g++) {
    const float(*q)[D] = x->q[b][h * GROUP + g];
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
      const float *k = x->k[b][h][list[i]];
      double mean = 0, square = 0;
      for (int64_t u = first; u < t; u++) {
        mean += dot(q[u], k) / sqrt(D) / (double)(t - first);
        square += dot(q[u], k) * dot(q[u], k) / D / (double)(t - first);
      }
      sum += z[i] = exp(mean + (square - mean * mean) / 2);
    }
    for (int64_t i = 0; i < count; i++) own[i] += z[i] / sum / GROUP;
  }
  for (int64_t i = 0; i < count; i++) {
    double square = 0;
    for (int l = 0; l < D_V; l++) square += pow((double)x->v[b][h][list[i]][l], 2);
    own[i] = log(own[i] * sqrt(square));
  }
}

static double all_weights[N][N]; /* of EXACT: the weights of all keys in the head at hand */

/* The score of key j before position t, where before[] are held. */
static double score(const inputs *x, const history held, const bool *before, const rule *r, int b, int h,
                    int64_t t, int64_t j) {
  double sum = 0;
  int64_t seen = 0;
  attn_rng rng;
  switch (r->score) {
  case RANDOM:
    attn_rng_init(&rng, 7, (uint64_t)h, (uint64_t)j);
    return attn_rng_uniform(&rng);
  case STREAMING:
    return j < 4 ? (double)INFINITY : (double)j;
  case KNORM:
    return -sqrt(dot(x->k[b][h][j], x->k[b][h][j]));
  case KEYDIFF:
    return -cosine_sum(x, before, b, h, t, j);
  case QFILTER:
    for (int l = 0; l < D; l++) sum -= filter(h, l) * (double)x->k[b][h][j][l];
    return sum;
  case LAGKV:
    return lag_score(x, before, r->recent, b, h, t, j);
  case TOVA:
    return weight(x, held, b, h, t - 1, j);
  case EXACT:
    for (int64_t u = t; u < N; u++) sum += all_weights[u][j];
    return sum;
  case SNAPKV:
    for (int64_t u = t - 64 > 0 ? t - 64 : 0; u < t; u++) sum += weight(x, held, b, h, u, j);
    return sum;
  default:
    for (int64_t u = j; u < t; u++, seen++) sum += weight(x, held, b, h, u, j);
    return r->score == H2O ? sum : sum / (double)seen;
  }
}

/* Gives up the worst of the chunks before `edge`, of which own[] has the scores, until `stay` are left. */
static void give_up(const rule *r, const double *own, int64_t edge, int64_t stay, bool *now) {
  for (;;) {
    int64_t least = 0, chunks = 0;
    double worst = 0;
    for (int64_t u = 0; u < edge; u++) {
      double mean = 0;
      if (!now[u * r->chunk]) continue;
      for (int64_t l = 0; l < r->chunk; l++) mean += own[u * r->chunk + l] / (double)r->chunk;
      if (!chunks++ || mean <= worst) worst = mean, least = u;
    }
    if (chunks <= stay) return;
    for (int64_t l = 0; l < r->chunk; l++) now[least * r->chunk + l] = false;
  }
}

static void hold(const inputs *x, const rule *r, int b, int h, history held) {
  double own[N], pooled[N];
  bool now[N] = {false};
  for (int64_t t = 0; t < N && r->score == EXACT; t++)
    for (int64_t j = 0; j <= t; j++) all_weights[t][j] = weight(x, NULL, b, h, t, j);
  memset(held, 0, sizeof(history));
  for (int64_t t = 0; t < N; t++) {
    int64_t at = 0, list[N];
    for (int64_t j = 0; j < t; j++)
      if (now[j]) list[at++] = j;
    if (t >= r->prompt && at >= r->budget) {
      if (r->score == EXPECTED) expected_scores(x, b, h, t, list, at, own);
      for (int64_t i = 0; i < at && r->score != EXPECTED; i++)
        own[i] = score(x, held, now, r, b, h, t, list[i]);
      for (int64_t i = 0; i < at; i++) {
        pooled[list[i]] = own[i];
        for (int64_t o = 1; r->score == SNAPKV && o <= 2; o++)
          pooled[list[i]] += (i >= o ? own[i - o] : 0) + (i + o < at ? own[i + o] : 0);
      }
      give_up(r, pooled, (t - r->recent + 1) / r->chunk,
              (r->budget - r->recent + 1) / r->chunk - (r->every + r->chunk - 1) / r->chunk, now);
    }
    now[t] = true;
    memcpy(held[t], now, sizeof now);
  }
}

/* ---- tests ------------------------------------------------------------------------------------------- */

static void check_row(const inputs *x, const bool *held, int b, int head, int64_t t, const float *o) {
  double sum = 0, value[D_V] = {0};
  for (int64_t j = 0; j <= t; j++) {
    const double own = held[j] ? exp(dot(x->q[b][head][t], x->k[b][head / GROUP][j]) / sqrt(D)) : 0;
    sum += own;
    for (int l = 0; l < D_V; l++) value[l] += own * (double)x->v[b][head / GROUP][j][l];
  }
  for (int l = 0; l < D_V; l++)
    cr_expect(fabs((double)o[l] - value[l] / sum) < 1e-5, "entry %d head %d row %d", b, head, (int)t);
}

static const rule rules[] = {{0, 20, 6, 0, 1, 1},   {0, 20, 1, 40, 1, 1}, {0, 1, 1, 0, 1, 1},
                             {0, 33, 33, 50, 1, 1}, {0, 20, 6, 0, 5, 1},  {0, 33, 5, 50, 7, 3}};

static void spec_of(const rule *r, char *out, size_t size) {
  snprintf(out, size, "evict:score=%s,budget=%d,recent=%d,prompt=%d,every=%d,chunk=%d%s", names[r->score],
           (int)r->budget, (int)r->recent, (int)r->prompt, (int)r->every, (int)r->chunk,
           r->score == RANDOM    ? ",seed=7"
           : r->score == QFILTER ? ",filters=f"
                                 : "");
}

static float *run_plan(const inputs *x, const char *spec) {
  const attn_problem p = problem_of(N);
  float *o = malloc((size_t)(BATCH * HEADS * N * D_V) * sizeof *o);
  attn_plan *plan = NULL;
  cr_assert_eq(attn_plan_create(&plan, &p, spec, NULL), ATTN_OK, "%s", attn_last_error());
  void *work = malloc(attn_plan_work_size(plan) + 1);
  cr_assert_eq(attn_plan_execute(plan, x->q, x->k, x->v, NULL, o, work), ATTN_OK, "%s", attn_last_error());
  free(work);
  attn_plan_destroy(plan);
  return o;
}

/* The variant is the definition of the cache on the whole sequence. */
Test(core_kv_cache, is_the_plan_on_the_whole_sequence) {
  inputs *x = inputs_make();
  static history held;
  for (size_t i = 0; i < sizeof rules / sizeof *rules * NAMES; i++) {
    rule r = rules[i / NAMES];
    char spec[120];
    r.score = (int)(i % NAMES);
    spec_of(&r, spec, sizeof spec);
    float *o = run_plan(x, spec);
    for (int b = 0; b < BATCH; b++)
      for (int head = 0; head < HEADS; head++) {
        if (head % GROUP == 0) hold(x, &r, b, head / GROUP, held);
        for (int64_t t = 0; t < N; t++) {
          bool seen[N];
          for (int64_t j = 0; j < N; j++) seen[j] = held[t][j] || (t < r.prompt && j <= t);
          check_row(x, seen, b, head, t, o + ((b * HEADS + head) * N + t) * D_V);
        }
      }
    free(o);
  }
  free(x);
}

Test(core_kv_cache, the_score_streaming_is_the_variant_streaming) {
  inputs *x = inputs_make();
  float *held = run_plan(x, "evict:score=streaming,budget=20,recent=5"),
        *seen = run_plan(x, "streaming:sink=4,window=16");
  for (int64_t i = 0; i < BATCH * HEADS * N * D_V; i++)
    cr_assert(fabs((double)held[i] - (double)seen[i]) < 1e-5, "element %d", (int)i);
  free(held);
  free(seen);
  free(x);
}

/* Closed forms against counting: keys at a position, and query-key pairs of the last queries. */
static void check_counts(const inputs *x, const rule *r) {
  static history held;
  const attn_kv_rule own = {.score = attn_kv_score_at(r->score),
                            .budget = r->budget,
                            .recent = r->recent,
                            .prompt = r->prompt,
                            .every = r->every,
                            .chunk = r->chunk};
  char spec[120];
  int64_t count[N] = {0};
  hold(x, r, 0, 0, held);
  spec_of(r, spec, sizeof spec);
  for (int64_t t = 0; t < N; t++) {
    for (int64_t j = 0; j <= t; j++) count[t] += held[t][j];
    cr_assert_eq(attn_kv_count(&own, t), count[t], "%s: position %d", spec, (int)t);
  }
  for (int64_t n = 1; n <= N; n++) {
    const attn_problem p = problem_of(n);
    attn_cost cost;
    size_t work;
    int64_t pairs = 0;
    for (int64_t t = N - n; t < N; t++) pairs += count[t];
    cr_assert_eq(attn_estimate(&p, spec, NULL, &work, &cost), ATTN_OK, "%s", attn_last_error());
    cr_assert_eq(cost.mul_add, (double)(BATCH * HEADS * pairs * (D + D_V)), "%s: %d queries", spec, (int)n);
  }
}

Test(core_kv_cache, counts_keys_and_pairs_in_closed_form) {
  inputs *x = inputs_make();
  int count = 0;
  for (int64_t i = 0; i < 2 * 2 * 3 * 3 * 3; i++) {
    static const int64_t budgets[] = {9, 22}, recents[] = {1, 5}, prompts[] = {0, 14, 40},
                         every[] = {1, 3, 7}, chunks[] = {1, 4, 5};
    const rule r = {KNORM,         budgets[i % 2], recents[i / 2 % 2], prompts[i / 4 % 3], every[i / 12 % 3],
                    chunks[i / 36]};
    if (r.recent - 1 + (r.every + r.chunk - 1) / r.chunk * r.chunk > r.budget) continue;
    check_counts(x, &r);
    count++;
  }
  cr_expect_gt(count, 80);
  free(x);
}

/* Which checks of caches cannot make: they have no file. */
Test(core_kv_cache, a_copy_has_filters_when_the_cache_is_gone) {
  static const char spec[] = "evict:score=qfilter,filters=f,budget=20,recent=4";
  inputs *x = inputs_make();
  attn_kv_cache *c = cache_make(spec), *copy = NULL, *never = cache_make(spec);
  float a[BATCH][HEADS][D_V], b[BATCH][HEADS][D_V];
  cr_assert_eq(append(c, x, 0, 40, NULL), ATTN_OK);
  cr_assert_eq(attn_kv_cache_copy(c, &copy), ATTN_OK, "%s", attn_last_error());
  attn_kv_cache_destroy(c);
  cr_assert(!append(copy, x, 40, 40, NULL) && !append(never, x, 0, 80, NULL));
  attend(copy, x, 79, a);
  attend(never, x, 79, b);
  cr_expect_eq(memcmp(a, b, sizeof a), 0);
  attn_kv_cache_destroy(copy);
  attn_kv_cache_destroy(never);
  free(x);
}

/* The arrays of the problem are the caller's again when the cache is made. */
Test(core_kv_cache, keeps_the_sinks_that_it_was_given) {
  inputs *x = inputs_make();
  double sink[HEADS] = {0.5, 1, 1.5, 2};
  attn_problem p = problem_of(1);
  float want[BATCH][HEADS][D_V], o[BATCH][HEADS][D_V];
  p.score.sink = sink;
  for (int spoilt = 0; spoilt < 2; spoilt++) {
    attn_kv_cache *c = NULL, *copy = NULL;
    cr_assert_eq(attn_kv_cache_create(&c, &p, "evict:score=h2o,budget=20,recent=4", NULL), ATTN_OK);
    for (int h = 0; h < HEADS && spoilt; h++) sink[h] = 50;
    cr_assert_eq(append(c, x, 0, N, NULL), ATTN_OK);
    cr_assert_eq(attn_kv_cache_copy(c, &copy), ATTN_OK);
    attend(c, x, N - 1, spoilt ? o : want);
    attn_kv_cache_destroy(c);
    if (spoilt) cr_expect_eq(memcmp(want, o, sizeof o), 0);
    attend(copy, x, N - 1, o);
    cr_expect_eq(memcmp(want, o, sizeof o), 0, "a copy outlives the cache");
    attn_kv_cache_destroy(copy);
  }
  free(x);
}

/* Several queries at a time, as of a prompt. */
Test(core_kv_cache, a_prompt_is_attended_to_at_once) {
  inputs *x = inputs_make();
  static float o[BATCH][HEADS][40][D_V];
  static bool all[N];
  float *q = slice(&x->q[0][0][0][0], HEADS, D, 0, 40);
  attn_kv_cache *c = cache_make("evict:score=h2o,budget=20,recent=4,prompt=40");
  memset(all, true, sizeof all);
  cr_assert_eq(append(c, x, 0, 40, NULL), ATTN_OK);
  cr_assert_eq(attn_kv_cache_attend(c, 40, q, o, NULL), ATTN_OK, "%s", attn_last_error());
  for (int b = 0; b < BATCH; b++)
    for (int head = 0; head < HEADS; head++)
      for (int64_t t = 0; t < 40; t++) check_row(x, all, b, head, t, o[b][head][t]);
  cr_assert_eq(append(c, x, 40, 1, NULL), ATTN_OK);
  cr_expect_eq(attn_kv_cache_attend(c, 2, q, o, NULL), ATTN_EUNSUPPORTED, "keys that query 39 saw are gone");
  attn_kv_cache_destroy(c);
  free(q);
  free(x);
}

/* ---- memory and refusals ------------------------------------------------------------------------------- */

typedef struct counted {
  size_t bytes;
  int64_t left; /* allocations that succeed */
} counted;

static void *counted_alloc(void *context, size_t bytes) {
  counted *c = context;
  if (c->left-- <= 0) return NULL;
  c->bytes += bytes;
  return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void counted_release(void *context, void *at, size_t bytes) {
  ((counted *)context)->bytes -= bytes;
  free(at);
}

/* A cache holds codes of types, and what a scheme decodes is no code. */
Test(core_kv_cache, refuses_a_store_that_is_no_type) {
  static const char *const specs[] = {"turbo:of=k",       "turbo:of=v", "qjl",
                                      "topk:k=8 | turbo", "rotated",    "kivi"};
  const attn_problem p = problem_of(1);
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    attn_kv_cache *c = NULL;
    cr_expect_eq(attn_kv_cache_create(&c, &p, specs[i], NULL), ATTN_EUNSUPPORTED, "%s", specs[i]);
    cr_expect(strstr(attn_last_error(), "it holds number types") && strstr(attn_last_error(), specs[i]), "%s",
              attn_last_error());
  }
}

Test(core_kv_cache, is_as_it_was_where_there_is_no_memory) {
  inputs *x = inputs_make();
  for (int64_t left = 0; left < 40; left++) {
    counted memory = {.left = left};
    const attn_allocator allocator = {counted_alloc, counted_release, &memory};
    const attn_options options = {.allocator = &allocator};
    const attn_problem p = problem_of(1);
    attn_kv_cache *c = NULL;
    attn_status status = attn_kv_cache_create(&c, &p, "evict:score=keydiff,budget=80 | store", &options);
    if (!status) status = append(c, x, 0, 30, NULL);
    if (!status && (status = append(c, x, 30, 60, NULL))) {
      attn_kv_cache_view view;
      float o[BATCH][HEADS][D_V], *q = slice(&x->q[0][0][0][0], HEADS, D, 29, 1);
      cr_expect(attn_kv_cache_look(c, 0, 0, &view) == ATTN_OK && view.length == 30 && view.held == 30);
      memory.left = 1000;
      cr_expect_eq(attn_kv_cache_attend(c, 1, q, o, NULL), ATTN_OK);
      free(q);
    }
    cr_expect(!status || status == ATTN_ENOMEM, "%d: %s", (int)left, attn_last_error());
    attn_kv_cache_destroy(c);
    cr_expect_eq(memory.bytes, 0);
  }
  free(x);
}

Test(core_kv_cache, refuses_what_it_cannot_do) {
  inputs *x = inputs_make();
  attn_kv_cache *c = NULL;
  attn_kv_cache_view view;
  attn_problem p = problem_of(1);
  float o[BATCH][HEADS][D_V];
  const int64_t longer[BATCH] = {20, 20}, shorter[BATCH] = {5, 5};
  cr_expect_eq(attn_kv_cache_create(&c, &p, "evict:budget=8,recent=9", NULL), ATTN_EINVAL);
  cr_expect_eq(attn_kv_cache_create(&c, &p, "evict:budget=14,recent=9,every=4,chunk=3", NULL), ATTN_OK);
  attn_kv_cache_destroy(c);
  cr_expect_eq(attn_kv_cache_create(&c, &p, "evict:budget=13,recent=9,every=4,chunk=3", NULL), ATTN_EINVAL);
  cr_expect(strstr(attn_last_error(), "at least recent - 1 and every = 4 in chunks of 3: 14"), "%s",
            attn_last_error());
  cr_expect_eq(attn_kv_cache_create(&c, &p, "evict:score=exact", NULL), ATTN_EUNSUPPORTED);
  cr_expect(strstr(attn_last_error(), "score=exact ranks by queries that are still to come"), "%s",
            attn_last_error());
  cr_expect_eq(attn_kv_cache_create(&c, &p, "evict:score=qfilter", NULL), ATTN_EINVAL);
  cr_expect(strstr(attn_last_error(), "score=qfilter needs filters=FILE"), "%s", attn_last_error());
  cr_expect_eq(attn_kv_cache_create(&c, &p, "evict:score=h2o,filters=f", NULL), ATTN_EINVAL);
  cr_expect_eq(attn_kv_cache_create(&c, &p, "evict:score=qfilter,filters=g", NULL), ATTN_EINVAL);
  cr_expect(strstr(attn_last_error(), "g is 3 x 8, expected 2 kv heads x 8"), "%s", attn_last_error());
  cr_expect_eq(attn_kv_cache_create(&c, &p, "linformer", NULL), ATTN_EUNSUPPORTED, "it is never causal");
  cr_expect_eq(attn_kv_cache_create(&c, &p, "hyper", NULL), ATTN_EUNSUPPORTED, "it takes no positions");
  cr_expect_eq(attn_kv_cache_create(&c, &p, "bigbird:tail=uniform", NULL), ATTN_EUNSUPPORTED, "nor so");
  cr_expect_eq(attn_kv_cache_create(&c, &p, "no_such", NULL), ATTN_ENOTFOUND);
  p.causal = false;
  cr_expect_eq(attn_kv_cache_create(&c, &p, "tiled", NULL), ATTN_EUNSUPPORTED);
  cr_expect(!c);
  c = cache_make("evict:score=h2o,budget=8,recent=2");
  cr_expect_eq(attn_kv_cache_append(c, 1, NULL, NULL, x->k, x->v), ATTN_EINVAL, "h2o looks at queries");
  cr_expect_eq(attn_kv_cache_append(c, 0, NULL, x->q, x->k, x->v), ATTN_EINVAL);
  cr_expect_eq(append(c, x, 0, 10, longer), ATTN_EINVAL);
  cr_expect_eq(attn_kv_cache_attend(c, 1, x->q, o, NULL), ATTN_EINVAL, "there is no position");
  cr_assert_eq(append(c, x, 0, 10, NULL), ATTN_OK);
  cr_expect_eq(append(c, x, 0, 85, NULL), ATTN_EINVAL, "more than 90 positions");
  cr_expect_eq(attn_kv_cache_truncate(c, longer), ATTN_EINVAL);
  cr_expect_eq(attn_kv_cache_truncate(c, shorter), ATTN_EUNSUPPORTED);
  cr_expect_eq(attn_kv_cache_look(c, 0, KV_HEADS, &view), ATTN_EINVAL);
  cr_assert_eq(attn_kv_cache_look(c, 1, 1, &view), ATTN_OK);
  cr_expect(view.length == 10 && view.held == 8);
  attn_kv_cache_destroy(c);
  attn_kv_cache_destroy(NULL);
  free(x);
}

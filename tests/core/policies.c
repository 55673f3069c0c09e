/* policies.c - which keys every policy holds on a whole sequence, by definitions written here, and how many.
 * That a cache is that plan is for CACHE-1 (experiments/checks/caches). */
#include <stdio.h>
#include <string.h>

#include "tests/support/kv_inputs.h"

enum { RANDOM, STREAMING, KNORM, KEYDIFF, TOVA, H2O, H2O_MEAN, SNAPKV, LAGKV, EXPECTED, QFILTER, EXACT };
enum { NAMES = EXACT + 1 };
static const char *const names[NAMES] = {"random",   "streaming", "knorm", "keydiff",  "tova",    "h2o",
                                         "h2o_mean", "snapkv",    "lagkv", "expected", "qfilter", "exact"};

typedef struct rule {
  int score;
  int64_t budget, recent, prompt, every, chunk;
} rule;

/* Held keys before each position: held[t][j], the keys that query t sees. */
typedef bool history[N][N];

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
Test(core_policies, is_the_plan_on_the_whole_sequence) {
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

Test(core_policies, the_score_streaming_is_the_variant_streaming) {
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

Test(core_policies, counts_keys_and_pairs_in_closed_form) {
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

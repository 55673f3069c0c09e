/* kv_scores.c - scores by which caches of keys and values give up keys (attn_eviction.h). The largest
 * stay.
 *
 *   random      an independent uniform draw for each key: the end of every comparison
 *   streaming   infinite at the first 4 positions, else the position. Xiao et al. 2023 (arXiv:2309.17453)
 *   knorm       -|k|. Devoto et al. 2024 (arXiv:2406.11430): keys of small norm draw much attention
 *   keydiff     -cos(k, mean of k / |k| over the held keys). Park et al. 2025 (arXiv:2504.15364)
 *   tova        the weight that the last query gave it. Oren et al. 2024 (arXiv:2401.06104); there a mean
 *               over the heads of a layer, here over those of a kv head
 *   h2o         the sum of the weights that all queries gave it, each a softmax over the keys that were held.
 *               Zhang et al. 2023 (arXiv:2306.14048)
 *   h2o_mean    the same, divided by the number of queries that saw the key
 *   snapkv      the mean of the weights of the last 64 queries, averaged over 5 neighbours among the held
 *               keys. Li et al. 2024 (arXiv:2404.14469)
 *   lagkv       of the keys after the first 4, which stay, in chunks of `recent`: the standard deviation
 *               over components of (k - low) / (high - low), with the least and the largest k of the next
 *               chunk in each component (0 where these are equal), as a softmax over the chunk, and the same
 *               of values, added. Liang et al. 2025 (arXiv:2504.04704). There every chunk gives up the same
 *               share, once; here chunks are counted among the keys that are held, and the least of all goes.
 *               Keys without a whole chunk behind theirs stay before all others, the newest first
 *   expected    of the last 64 queries of each head the mean m and the covariance S: with z = m.k + k'S k / 2
 *               of queries that are times the scale, exp(z) as a softmax over the held keys, a mean over the
 *               heads, times |v|; the score is its logarithm, of a chunk the mean of these. Devoto et al.
 *               2025 (arXiv:2510.00636): the mean weight if queries were normal. There m and S are of all
 *               queries of the prompt, turned by the mean rotary embedding of the positions to come, and
 *               the first 4 keys stay; here of queries as they are given, without what a bias or softcap does
 *   qfilter     -f.k, with a vector f of each kv head from a file: the first right singular vector of the
 *               head's queries over a calibration text. Godey et al. 2025 (arXiv:2503.02812), whose kvpress
 *               files have the sign that is assumed here: keys of the least f.k stay
 *   exact       the sum of the weights that the queries from the arriving position on will give it, each a
 *               softmax over all keys: the other end of every comparison. It needs the whole sequence */
#include "attn_variant.h"

#include <math.h>
#include <stdlib.h>

enum { SINKS = 4, SNAP_QUERIES = 64, SNAP_POOL = 5, PART = 64 /* components of a mean at a time */ };

static int64_t row(const attn_kv_held *h, int64_t j) { return h->row ? h->row[j] : j; }
static const double *key(const attn_kv_held *h, int64_t j) { return h->keys + row(h, j) * h->d; }

static double norm(const double *x, int64_t d) {
  double square = 0;
  for (int64_t l = 0; l < d; l++) square += x[l] * x[l];
  return sqrt(square);
}

static void by_draw(const attn_kv_held *h, double *score) {
  for (int64_t j = 0; j < h->count; j++) {
    attn_rng rng;
    attn_rng_init(&rng, h->seed, (uint64_t)h->kv_head, (uint64_t)h->position[j]);
    score[j] = attn_rng_uniform(&rng);
  }
}

static void by_place(const attn_kv_held *h, double *score) {
  for (int64_t j = 0; j < h->count; j++)
    score[j] = h->position[j] < SINKS ? (double)INFINITY : (double)h->position[j];
}

static void by_norm(const attn_kv_held *h, double *score) {
  for (int64_t j = 0; j < h->count; j++) score[j] = -norm(key(h, j), h->d);
}

static void by_filter(const attn_kv_held *h, double *score) {
  for (int64_t j = 0; j < h->count; j++) {
    score[j] = 0;
    for (int64_t l = 0; l < h->d; l++) score[j] -= h->filter[l] * key(h, j)[l];
  }
}

/* sum over held keys of cos(k, k_i), a factor apart that all have. */
static void by_difference(const attn_kv_held *h, double *score) {
  for (int64_t j = 0; j < h->count; j++) score[j] = 0;
  for (int64_t first = 0; first < h->d; first += PART) {
    const int64_t part = h->d - first < PART ? h->d - first : PART;
    double mean[PART] = {0};
    for (int64_t j = 0; j < h->count; j++) {
      const double length = norm(key(h, j), h->d);
      for (int64_t l = 0; l < part; l++) mean[l] += key(h, j)[first + l] / length;
    }
    for (int64_t j = 0; j < h->count; j++)
      for (int64_t l = 0; l < part; l++) score[j] -= key(h, j)[first + l] * mean[l];
  }
  for (int64_t j = 0; j < h->count; j++) score[j] /= norm(key(h, j), h->d);
}

static void by_last(const attn_kv_held *h, double *score) {
  for (int64_t j = 0; j < h->count; j++) score[j] = h->queries ? attn_kv_weights(h, 0)[j] : 0;
}

static void by_sum(const attn_kv_held *h, double *score) {
  for (int64_t j = 0; j < h->count; j++) score[j] = h->sum[j];
}

static void by_mean(const attn_kv_held *h, double *score) {
  for (int64_t j = 0; j < h->count; j++) score[j] = h->seen[j] ? h->sum[j] / (double)h->seen[j] : 0;
}

static double window_mean(const attn_kv_held *h, int64_t j) {
  double sum = 0;
  for (int64_t q = 0; q < h->queries; q++) sum += attn_kv_weights(h, q)[j];
  return sum;
}

/* Neighbours beyond the ends count as 0. */
static void by_window(const attn_kv_held *h, double *score) {
  for (int64_t j = 0; j < h->count; j++) score[j] = 0;
  for (int64_t j = 0; j < h->count; j++) {
    const double own = window_mean(h, j);
    for (int64_t i = j - SNAP_POOL / 2; i <= j + SNAP_POOL / 2; i++)
      if (i >= 0 && i < h->count) score[i] += own;
  }
}

/* Deviations of the rows of the chunk that begins with `first`, in the ranges of the next. */
static void deviations(const attn_kv_held *h, const double *rows, int64_t d, int64_t first, double *out) {
  for (int64_t i = 0; i < h->recent; i += PART) {
    const int64_t part = h->recent - i < PART ? h->recent - i : PART, next = first + h->recent;
    double mean[PART] = {0}, square[PART] = {0};
    for (int64_t l = 0; l < d; l++) {
      double low = (double)INFINITY, high = -low;
      for (int64_t j = next; j < next + h->recent; j++) {
        low = fmin(low, rows[row(h, j) * d + l]);
        high = fmax(high, rows[row(h, j) * d + l]);
      }
      for (int64_t j = 0; j < part; j++) {
        const double x = high > low ? (rows[row(h, first + i + j) * d + l] - low) / (high - low) : 0,
                     step = x - mean[j];
        mean[j] += step / (double)(l + 1);
        square[j] += step * (x - mean[j]);
      }
    }
    for (int64_t j = 0; j < part; j++) out[i + j] = d > 1 ? sqrt(square[j] / (double)(d - 1)) : 0;
  }
}

static void softmax(double *x, int64_t n) {
  double most = -(double)INFINITY, sum = 0;
  for (int64_t j = 0; j < n; j++) most = fmax(most, x[j]);
  for (int64_t j = 0; j < n; j++) sum += x[j] = exp(x[j] - most);
  for (int64_t j = 0; j < n; j++) x[j] /= sum;
}

static void by_lag(const attn_kv_held *h, double *score) {
  const int64_t lag = h->recent;
  int64_t first = SINKS;
  for (; first + 2 * lag <= h->count; first += lag) {
    double *next = score + first + lag; /* room until that chunk is scored */
    deviations(h, h->keys, h->d, first, score + first);
    deviations(h, h->values, h->d_v, first, next);
    softmax(score + first, lag);
    softmax(next, lag);
    for (int64_t j = 0; j < lag; j++) score[first + j] += next[j];
  }
  for (int64_t j = 0; j < SINKS && j < h->count; j++) score[j] = (double)INFINITY;
  for (int64_t j = first; j < h->count; j++) score[j] = (double)(2 + h->position[j]);
}

/* z of `count` held keys, k'S k as the variance of the products. */
static void expect(const attn_kv_held *h, int64_t head, int64_t first, int64_t count, double *z) {
  double square[PART] = {0};
  for (int64_t j = 0; j < count; j++) z[j] = 0;
  for (int64_t q = 0; q < h->queries; q++)
    for (int64_t j = 0; j < count; j++)
      z[j] += attn_kv_query_products(h, q, head)[first + j] / (double)h->queries;
  for (int64_t q = 0; q < h->queries; q++)
    for (int64_t j = 0; j < count; j++) {
      const double off = attn_kv_query_products(h, q, head)[first + j] - z[j];
      square[j] += off * off / (double)h->queries;
    }
  for (int64_t j = 0; j < count; j++) z[j] += square[j] / 2;
}

/* log(exp(a) + exp(b)). */
static double add_logs(double a, double b) {
  return fmax(a, b) == -(double)INFINITY ? a : fmax(a, b) + log1p(exp(-fabs(a - b)));
}

static void by_expectation(const attn_kv_held *h, double *score) {
  double z[PART], all;
  for (int64_t j = 0; j < h->count; j++) score[j] = -(double)INFINITY;
  for (int64_t head = 0; head < h->heads; head++) {
    all = -(double)INFINITY;
    for (int pass = 0; pass < 2; pass++)
      for (int64_t first = 0; first < h->count; first += PART) {
        const int64_t count = h->count - first < PART ? h->count - first : PART;
        expect(h, head, first, count, z);
        for (int64_t j = 0; j < count; j++)
          if (pass)
            score[first + j] = add_logs(score[first + j], z[j] - all);
          else
            all = add_logs(all, z[j]);
      }
  }
  for (int64_t j = 0; j < h->count; j++) score[j] += log(norm(h->values + row(h, j) * h->d_v, h->d_v));
}

static void by_future(const attn_kv_held *h, double *score) {
  for (int64_t j = 0; j < h->count; j++) score[j] = h->later[h->position[j]];
}

/* ---- laws -------------------------------------------------------------------------------------------- */

static double draw_law(const attn_kv_history *h, int64_t t, int64_t j) {
  attn_rng rng;
  (void)t;
  attn_rng_init(&rng, h->seed, (uint64_t)h->kv_head, (uint64_t)j);
  return attn_rng_uniform(&rng);
}

static double place_law(const attn_kv_history *h, int64_t t, int64_t j) {
  (void)h, (void)t;
  return j < 4 ? (double)INFINITY : (double)j;
}

static double product(const attn_kv_history *h, int64_t i, int64_t j) {
  double sum = 0;
  const double *a = attn_kv_key(h, i), *b = attn_kv_key(h, j);
  for (int64_t l = 0; l < h->d; l++) sum += a[l] * b[l];
  return sum;
}

static double norm_law(const attn_kv_history *h, int64_t t, int64_t j) {
  (void)t;
  return -sqrt(product(h, j, j));
}

static double filter_law(const attn_kv_history *h, int64_t t, int64_t j) {
  double sum = 0;
  (void)t;
  for (int64_t l = 0; l < h->d; l++) sum += h->filter[l] * attn_kv_key(h, j)[l];
  return -sum;
}

static double difference_law(const attn_kv_history *h, int64_t t, int64_t j) {
  double sum = 0;
  for (int64_t i = 0; i < t; i++)
    if (h->held[(t - 1) * h->n + i]) sum += product(h, i, j) / sqrt(product(h, i, i) * product(h, j, j));
  return -sum;
}

/* What the queries first ... t - 1 gave the key. */
static double given(const attn_kv_history *h, int64_t first, int64_t t, int64_t j) {
  double sum = 0;
  for (int64_t u = first > j ? first : j; u < t; u++) sum += h->weights[u * h->n + j];
  return sum;
}

static double last_law(const attn_kv_history *h, int64_t t, int64_t j) { return given(h, t - 1, t, j); }
static double sum_law(const attn_kv_history *h, int64_t t, int64_t j) { return given(h, 0, t, j); }
static double mean_law(const attn_kv_history *h, int64_t t, int64_t j) {
  return given(h, 0, t, j) / (double)(t - j);
}

static double window_law(const attn_kv_history *h, int64_t t, int64_t j) {
  const bool *held = h->held + (t - 1) * h->n;
  double sum = given(h, t - SNAP_QUERIES, t, j);
  for (int64_t i = j - 1, left = SNAP_POOL / 2; i >= 0 && left; i--)
    if (held[i]) sum += given(h, t - SNAP_QUERIES, t, i), left--;
  for (int64_t i = j + 1, left = SNAP_POOL / 2; i < t && left; i++)
    if (held[i]) sum += given(h, t - SNAP_QUERIES, t, i), left--;
  return sum;
}

/* Of row j, in the chunk of held rows before which `before` others are held: its share of the chunk. */
static double lag_share(const attn_kv_history *h, const bool *held, const double *rows, int64_t d,
                        int64_t before, int64_t j) {
  double *low = malloc(2 * (size_t)d * sizeof *low), *high = low + d, own = 0, all = 0;
  if (!low) return (double)NAN;
  for (int64_t l = 0; l < d; l++) low[l] = (double)INFINITY, high[l] = -low[l];
  for (int64_t i = 0, at = 0; at < before + 2 * h->recent; at += held[i++])
    for (int64_t l = 0; l < d && held[i] && at >= before + h->recent; l++) {
      low[l] = fmin(low[l], rows[i * d + l]);
      high[l] = fmax(high[l], rows[i * d + l]);
    }
  for (int pass = 0; pass < 2; pass++)
    for (int64_t i = 0, at = 0; at < before + h->recent; at += held[i++]) {
      double mean = 0, square = 0;
      if (!held[i] || at < before || (!pass && i != j)) continue;
      for (int64_t l = 0; l < d; l++)
        if (high[l] > low[l]) mean += (rows[i * d + l] - low[l]) / (high[l] - low[l]) / (double)d;
      for (int64_t l = 0; l < d; l++) {
        const double x = high[l] > low[l] ? (rows[i * d + l] - low[l]) / (high[l] - low[l]) : 0;
        square += (x - mean) * (x - mean);
      }
      square = d > 1 ? sqrt(square / (double)(d - 1)) : 0;
      if (pass)
        all += exp(square - own);
      else
        own = square;
    }
  free(low);
  return 1 / all;
}

static double lag_law(const attn_kv_history *h, int64_t t, int64_t j) {
  const bool *held = h->held + (t - 1) * h->n;
  int64_t before = 0, count = 0;
  for (int64_t i = 0; i < t; i++) {
    before += held[i] && i < j;
    count += held[i];
  }
  if (before < 4) return (double)INFINITY;
  before -= (before - 4) % h->recent;
  return before + 2 * h->recent > count ? (double)(2 + j)
                                        : lag_share(h, held, h->keys, h->d, before, j) +
                                              lag_share(h, held, h->values, h->d_v, before, j);
}

/* The mean of exp(scale q.k), if its logarithm were normal, as a logarithm. */
static double expected_product(const attn_kv_history *h, int64_t head, int64_t t, int64_t j) {
  const int64_t first = t > SNAP_QUERIES ? t - SNAP_QUERIES : 0;
  const double *at = h->products + head * h->n * h->n + j, n = (double)(t - first);
  double sum = 0, square = 0;
  for (int64_t u = first; u < t; u++) sum += at[u * h->n];
  for (int64_t u = first; u < t; u++) square += (at[u * h->n] - sum / n) * (at[u * h->n] - sum / n);
  return sum / n + square / (2 * n);
}

/* sum exp(most) takes exp(z). */
static void take_log(double z, double *most, double *sum) {
  *sum = z > *most ? *sum * exp(*most - z) + 1 : *sum + exp(z - *most);
  *most = fmax(*most, z);
}

static double expected_law(const attn_kv_history *h, int64_t t, int64_t j) {
  double most = -(double)INFINITY, mean = 0, square = 0;
  for (int64_t head = 0; head < h->heads; head++) {
    double top = -(double)INFINITY, all = 0;
    for (int64_t i = 0; i < t; i++)
      if (h->held[(t - 1) * h->n + i]) take_log(expected_product(h, head, t, i), &top, &all);
    take_log(expected_product(h, head, t, j) - top - log(all), &most, &mean);
  }
  for (int64_t l = 0; l < h->d_v; l++) square += h->values[j * h->d_v + l] * h->values[j * h->d_v + l];
  return most + log(mean) + log(square) / 2;
}

static double future_law(const attn_kv_history *h, int64_t t, int64_t j) { return h->later[t * h->n + j]; }

#define SCORES(S)                                                                                           \
  S(random, "keys that are drawn", "", by_draw, draw_law, .fixed = true)                                    \
  S(streaming, "the first and the newest keys", "Xiao et al. 2023, arXiv:2309.17453", by_place, place_law,  \
    .fixed = true)                                                                                          \
  S(knorm, "keys of small norm", "Devoto et al. 2024, arXiv:2406.11430", by_norm, norm_law, .fixed = true)  \
  S(keydiff, "keys unlike the others", "Park et al. 2025, arXiv:2504.15364", by_difference, difference_law, \
    .fixed = false)                                                                                         \
  S(tova, "keys of large weight for the last query", "Oren et al. 2024, arXiv:2401.06104", by_last,         \
    last_law, .window = 1)                                                                                  \
  S(h2o, "keys of a large sum of weights", "Zhang et al. 2023, arXiv:2306.14048", by_sum, sum_law,          \
    .sums = true)                                                                                           \
  S(h2o_mean, "keys of a large mean weight", "Zhang et al. 2023, arXiv:2306.14048", by_mean, mean_law,      \
    .sums = true)                                                                                           \
  S(snapkv, "keys of large weight for the last 64 queries", "Li et al. 2024, arXiv:2404.14469", by_window,  \
    window_law, .window = SNAP_QUERIES)                                                                     \
  S(lagkv, "keys and values unlike those after them", "Liang et al. 2025, arXiv:2504.04704", by_lag,        \
    lag_law, .values = true)                                                                                \
  S(expected, "keys of large expected weight, times the norm of the value",                                 \
    "Devoto et al. 2025, arXiv:2510.00636", by_expectation, expected_law, .window = SNAP_QUERIES,           \
    .products = true, .values = true)                                                                       \
  S(qfilter, "keys against a direction of queries", "Godey et al. 2025, arXiv:2503.02812", by_filter,       \
    filter_law, .fixed = true, .filters = true)                                                             \
  S(exact, "keys of large weight for later queries", "", by_future, future_law, .future = true)

#define SCORE(id, about, paper, ranks, defines, ...) \
  {.name = #id, .summary = about, .cite = paper, .score = ranks, .law = defines, __VA_ARGS__},
#define NAME(id, ...) #id,
static const attn_kv_score scores[] = {SCORES(SCORE)};
const char *const attn_kv_score_names[] = {SCORES(NAME) NULL};

_Static_assert(sizeof scores / sizeof *scores == ATTN_KV_SCORES, "attn_kv_score_at tells how many there are");

const attn_kv_score *attn_kv_score_at(int64_t index) {
  return index >= 0 && index < ATTN_KV_SCORES ? &scores[index] : NULL;
}

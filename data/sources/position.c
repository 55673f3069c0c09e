/* position.c - datasets with positions. Query i stands at position i + n_kv - n_q, key j at j.
 *
 * needle  keys N(0, 1); the query at position p is std * g, corrected along one key, the one at (p -
 *         distance) mod n_kv, so that its score q . k / sqrt(d) with that key is exactly `strength`. With
 *         causality a target that wraps round lies in the future.
 *
 *         With a gap the keys are scaled to length sqrt(d), so that none reaches beyond another, and the
 *         correction is the least that makes the key's score exceed all other keys' by `gap` nats, the best
 *         of them exactly: with keys k, target t and x = std * g it is max_j (gap sqrt(d) - x . (k_t - k_j))
 *         / (k_t . (k_t - k_j)). This costs n_kv products a query. Power for checks of selections: a budget
 *         that covers all keys hides a wrong one, a needle outside the window and the sinks does not.
 *
 * rope    content (fresh normal rows, or one normal row a head) with rotary positions, or with sinusoidal
 *         ones added. With constant content and rope the scores depend on p - j alone. */
#include "data/sources/sources.h"

#include <math.h>

#include "data/llama/rope.h"

/* -- needle -- */

typedef struct needle {
  int64_t distance;
  double strength, gap, std;
} needle;

static const attn_param needle_params[] = {
    {"distance", ATTN_INT, offsetof(needle, distance), 0, 9e15, "128", NULL,
     "positions back to the key, below n_kv"},
    {"strength", ATTN_REAL, offsetof(needle, strength), -1e4, 1e4, "12", NULL,
     "score of that key, q.k/sqrt(d_qk), if gap is 0"},
    {"gap", ATTN_REAL, offsetof(needle, gap), 0, 1e4, "0", NULL,
     "nats by which its score exceeds that of the best other key; 0: strength says the score"},
    {"std", ATTN_REAL, offsetof(needle, std), 0, 1e6, "1", NULL,
     "standard deviation of the queries' other part"},
    {0}};

/* The multiple of key t that gives x the lead of `gap` nats over every other key. */
static double step_to_gap(const draw_head *h, double gap, const double *x, int64_t t) {
  double most = -(double)INFINITY;
  for (int64_t j = 0; j < h->request->n_kv; j++) {
    double missing = gap * sqrt((double)h->d), gain = 0;
    for (int64_t l = 0; l < h->d; l++) {
      const double k = draw_made(h, DRAW_K, t, l), ahead = k - draw_made(h, DRAW_K, j, l);
      missing -= x[l] * ahead;
      gain += k * ahead;
    }
    if (j != t) most = fmax(most, missing / gain);
  }
  return most;
}

static double step_to_strength(const draw_head *h, double strength, const double *x, int64_t t) {
  double dot = 0, norm = 0;
  for (int64_t l = 0; l < h->d; l++) {
    const double k = draw_made(h, DRAW_K, t, l);
    dot += x[l] * k;
    norm += k * k;
  }
  return (strength * sqrt((double)h->d) - dot) / norm;
}

static void needle_row(draw_head *h, int64_t i, double *x) {
  const needle *p = h->params;
  draw_normal(&h->rng, h->tensor == DRAW_Q ? p->std : 1, h->d, x);
  if (h->tensor == DRAW_K && p->gap > 0) {
    double square = 0;
    for (int64_t l = 0; l < h->d; l++) square += x[l] * x[l];
    for (int64_t l = 0; l < h->d; l++) x[l] *= sqrt((double)h->d / square);
  }
  if (h->tensor != DRAW_Q) return;
  const int64_t t = draw_wrapped(draw_position(h, i) - p->distance, h->request->n_kv);
  const double step = p->gap > 0 ? step_to_gap(h, p->gap, x, t) : step_to_strength(h, p->strength, x, t);
  for (int64_t l = 0; l < h->d; l++) x[l] += step * draw_made(h, DRAW_K, t, l);
}

static attn_status needle_fits(const void *params, const data_request *r) {
  enum { ROOM = 8 /* channels in which no two of many directions meet */ };
  const needle *p = params;
  if (p->distance >= r->n_kv)
    return attn_fail(ATTN_EUNSUPPORTED, "dataset needle: distance=%lld is not below n_kv=%lld",
                     (long long)p->distance, (long long)r->n_kv);
  if (p->gap > 0 && (r->n_kv < 2 || r->d_qk < ROOM))
    return attn_fail(ATTN_EUNSUPPORTED,
                     "dataset needle: a gap needs n_kv of 2 and d_qk of %d or more, not %lld and %lld", ROOM,
                     (long long)r->n_kv, (long long)r->d_qk);
  return ATTN_OK;
}

static attn_status needle_generate(const void *params, const data_request *r, data_qkv *out) {
  return draw_all(&(draw_plan){.row = needle_row}, params, r, out);
}

const data_source source_needle = {"needle",      "one key a query matches strongly, at a given distance",
                                   needle_params, sizeof(needle),
                                   true,          needle_generate,
                                   NULL,          0,
                                   needle_fits};

/* -- rope -- */

typedef struct rope {
  int content, position;
  double theta, std;
} rope;

enum { CONTENT_GAUSSIAN, CONTENT_CONSTANT };
enum { POSITION_ROPE, POSITION_SINUSOIDAL };

static const attn_param rope_params[] = {
    {"content", ATTN_CHOICE, offsetof(rope, content), 0, 0, "gaussian",
     (const char *const[]){"gaussian", "constant", NULL},
     "fresh normal rows, or one normal row for all positions of a head"},
    {"position", ATTN_CHOICE, offsetof(rope, position), 0, 0, "rope",
     (const char *const[]){"rope", "sinusoidal", NULL},
     "rotate by the position, or add the sinusoidal encoding"},
    {"theta", ATTN_REAL, offsetof(rope, theta), 1, 1e12, "10000", NULL,
     "base of the frequencies theta^(-2i/d)"},
    {"std", ATTN_REAL, offsetof(rope, std), 0, 1e6, "1", NULL, "standard deviation of the content"},
    {0}};

static void rope_share(const void *params, const data_request *r, attn_rng *rng, double *table) {
  (void)rng;
  rope_frequencies(r->d_qk, ((const rope *)params)->theta, table);
}

static void rope_row(draw_head *h, int64_t i, double *x) {
  const rope *p = h->params;
  if (h->tensor == DRAW_V) {
    draw_normal(&h->rng, 1, h->d, x);
    return;
  }
  if (p->content == CONTENT_CONSTANT) h->rng = h->start;
  draw_normal(&h->rng, p->std, h->d, x);
  if (p->position == POSITION_ROPE)
    rope_rotate(h->d, h->shared, draw_position(h, i), x);
  else
    rope_add_sinusoid(h->d, h->shared, draw_position(h, i), x);
}

static attn_status rope_fits(const void *params, const data_request *r) {
  (void)params;
  if (r->d_qk % 2 == 0) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED, "dataset rope: positions need an even d_qk, not %lld",
                   (long long)r->d_qk);
}

static attn_status rope_generate(const void *params, const data_request *r, data_qkv *out) {
  return draw_all(&(draw_plan){r->d_qk / 2, rope_share, rope_row}, params, r, out);
}

const data_source source_rope = {
    "rope",      "normal or constant content with rotary or sinusoidal positions",
    rope_params, sizeof(rope),
    true,        rope_generate,
    NULL,        0,
    rope_fits};

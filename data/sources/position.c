/* position.c - datasets with positions. Query i stands at position i + n_kv - n_q, key j at j.
 *
 * needle  keys N(0, 1); the query at position p is std * g, corrected along one key, the one at (p -
 * distance) mod n_kv, so that its score q . k / sqrt(d) with that key is exactly `strength`. With causality a
 * target that wraps round lies in the future. rope    content (fresh normal rows, or one normal row a head)
 * with rotary positions, or with sinusoidal ones added. With constant content and rope the scores depend on p
 * - j alone. */
#include "data/sources/sources.h"

#include <math.h>

#include "data/llama/rope.h"

static int64_t position_of(const draw_head *h, int64_t i) {
  return h->tensor == DRAW_Q ? i + h->request->n_kv - h->request->n_q : i;
}

/* -- needle -- */

typedef struct needle {
  int64_t distance;
  double strength, std;
} needle;

static const attn_param needle_params[] = {{"distance", ATTN_INT, offsetof(needle, distance), 0, 9e15, "128",
                                            NULL, "positions back to the key, below n_kv"},
                                           {"strength", ATTN_REAL, offsetof(needle, strength), -1e4, 1e4,
                                            "12", NULL, "score of that key, q.k/sqrt(d_qk)"},
                                           {"std", ATTN_REAL, offsetof(needle, std), 0, 1e6, "1", NULL,
                                            "standard deviation of the queries' other part"},
                                           {0}};

static void needle_row(draw_head *h, int64_t i, double *x) {
  const needle *p = h->params;
  const data_request *r = h->request;
  draw_normal(&h->rng, h->tensor == DRAW_Q ? p->std : 1, h->d, x);
  if (h->tensor != DRAW_Q) return;
  int64_t target = (position_of(h, i) - p->distance) % r->n_kv;
  if (target < 0) target += r->n_kv;
  int64_t first = ((h->batch * r->kv_heads + h->kv_head) * r->n_kv + target) * h->d;
  const float *narrow = r->dtype == ATTN_F32 ? (const float *)h->made->k + first : NULL;
  const double *wide = r->dtype == ATTN_F64 ? (const double *)h->made->k + first : NULL;
  double dot = 0, norm = 0;
  for (int64_t j = 0; j < h->d; j++) {
    double k = wide ? wide[j] : (double)narrow[j];
    dot += x[j] * k;
    norm += k * k;
  }
  double step = (p->strength * sqrt((double)h->d) - dot) / norm;
  for (int64_t j = 0; j < h->d; j++) x[j] += step * (wide ? wide[j] : (double)narrow[j]);
}

static attn_status needle_generate(const void *params, const data_request *r, data_qkv *out) {
  const needle *p = params;
  if (p->distance >= r->n_kv)
    return attn_fail(ATTN_EUNSUPPORTED, "dataset needle: distance=%lld is not below n_kv=%lld",
                     (long long)p->distance, (long long)r->n_kv);
  return draw_all(&(draw_plan){.row = needle_row}, params, r, out);
}

const data_source source_needle = {"needle",      "one key a query matches strongly, at a given distance",
                                   needle_params, sizeof(needle),
                                   true,          needle_generate};

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
    rope_rotate(h->d, h->shared, position_of(h, i), x);
  else
    rope_add_sinusoid(h->d, h->shared, position_of(h, i), x);
}

static attn_status rope_generate(const void *params, const data_request *r, data_qkv *out) {
  if (r->d_qk % 2 != 0)
    return attn_fail(ATTN_EUNSUPPORTED, "dataset rope: positions need an even d_qk, not %lld",
                     (long long)r->d_qk);
  return draw_all(&(draw_plan){r->d_qk / 2, rope_share, rope_row}, params, r, out);
}

const data_source source_rope = {
    "rope",      "normal or constant content with rotary or sinusoidal positions",
    rope_params, sizeof(rope),
    true,        rope_generate};

/* rng.c - random numbers that are the same everywhere: xoshiro256** streams (Blackman and Vigna 2021), each
 * seeded through splitmix64 from (seed, purpose, index), so that a draw depends on what it is for and never
 * on the order in which heads, columns or trials are visited. */
#include "attn_variant.h"

#include <math.h>

static uint64_t splitmix(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void attn_rng_init(attn_rng *r, uint64_t seed, uint64_t purpose, uint64_t index) {
  if (!r) return;
  /* Each word is mixed in after the last one has passed the generator: nearby triples give unrelated
   * states. */
  uint64_t s = seed;
  s = splitmix(&s) ^ purpose;
  s = splitmix(&s) ^ index;
  for (int i = 0; i < 4; i++) r->state[i] = splitmix(&s);
}

static uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

uint64_t attn_rng_bits(attn_rng *r) {
  if (!r) return 0;
  uint64_t *s = r->state, result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotate(s[3], 45);
  return result;
}

double attn_rng_uniform(attn_rng *r) {
  return r ? ((double)(attn_rng_bits(r) >> 11) + 0.5) * 0x1p-53 : (double)NAN;
}

/* The ziggurat (Marsaglia and Tsang 2000, in Doornik's form): the half density e^(-x^2/2) is covered by
 * LAYERS layers of equal area, layer i reaching to edge[i]; the lowest includes the tail beyond edge[1] and
 * so has another width. The edges are rounded to fp32 and written out, so that a library function decides
 * only the rare draws beside the edges. Rounding them changes the density by less than 2^-22 of itself. */
enum { LAYERS = 128 };
static const float edge[LAYERS + 1] = {0x1.db4668p1f,  0x1.b8a7c4p1f,  0x1.9c8e0cp1f,
                                       0x1.8aa73ep1f,  0x1.7d45ecp1f,  0x1.7279dep1f,
                                       0x1.695c2cp1f,  0x1.616ep1f,    0x1.5a61eep1f,
                                       0x1.54052p1f,   0x1.4e3456p1f,  0x1.48d618p1f,
                                       0x1.43d75cp1f,  0x1.3f2984p1f,  0x1.3ac11cp1f,
                                       0x1.3694f4p1f,  0x1.329d98p1f,  0x1.2ed4ep1f,
                                       0x1.2b35aap1f,  0x1.27bba2p1f,  0x1.246318p1f,
                                       0x1.2128dep1f,  0x1.1e0a34p1f,  0x1.1b04b8p1f,
                                       0x1.18164cp1f,  0x1.153d16p1f,  0x1.127772p1f,
                                       0x1.0fc3e4p1f,  0x1.0d211ep1f,  0x1.0a8deep1f,
                                       0x1.08094p1f,   0x1.05921ep1f,  0x1.0327a2p1f,
                                       0x1.00c8fep1f,  0x1.fceaecp0f,  0x1.f858bp0f,
                                       0x1.f3da0ap0f,  0x1.ef6dcep0f,  0x1.eb12eap0f,
                                       0x1.e6c85ap0f,  0x1.e28d34p0f,  0x1.de6094p0f,
                                       0x1.da41aap0f,  0x1.d62fb6p0f,  0x1.d229fap0f,
                                       0x1.ce2fccp0f,  0x1.ca4084p0f,  0x1.c65b8cp0f,
                                       0x1.c2804ep0f,  0x1.beae3cp0f,  0x1.bae4d4p0f,
                                       0x1.b72396p0f,  0x1.b36a08p0f,  0x1.afb7b4p0f,
                                       0x1.ac0c2cp0f,  0x1.a86704p0f,  0x1.a4c7d4p0f,
                                       0x1.a12e38p0f,  0x1.9d99cep0f,  0x1.9a0a38p0f,
                                       0x1.967f1ap0f,  0x1.92f81ap0f,  0x1.8f74e2p0f,
                                       0x1.8bf51cp0f,  0x1.887872p0f,  0x1.84fe94p0f,
                                       0x1.81873p0f,   0x1.7e11f4p0f,  0x1.7a9e9p0f,
                                       0x1.772cb6p0f,  0x1.73bc14p0f,  0x1.704c5ep0f,
                                       0x1.6cdd44p0f,  0x1.696e76p0f,  0x1.65ffa2p0f,
                                       0x1.62907ap0f,  0x1.5f20aap0f,  0x1.5bafe2p0f,
                                       0x1.583dc8p0f,  0x1.54ca0cp0f,  0x1.51545p0f,
                                       0x1.4ddc3ep0f,  0x1.4a6176p0f,  0x1.46e398p0f,
                                       0x1.43624p0f,   0x1.3fdd0ap0f,  0x1.3c5386p0f,
                                       0x1.38c548p0f,  0x1.3531d8p0f,  0x1.3198bap0f,
                                       0x1.2df97p0f,   0x1.2a537p0f,   0x1.26a628p0f,
                                       0x1.22f1p0f,    0x1.1f3354p0f,  0x1.1b6c74p0f,
                                       0x1.179ba8p0f,  0x1.13c024p0f,  0x1.0fd912p0f,
                                       0x1.0be584p0f,  0x1.07e47ep0f,  0x1.03d4e8p0f,
                                       0x1.ff6b22p-1f, 0x1.f70a58p-1f, 0x1.ee848ep-1f,
                                       0x1.e5d69p-1f,  0x1.dcfcccp-1f, 0x1.d3f34p-1f,
                                       0x1.cab56ap-1f, 0x1.c13e2cp-1f, 0x1.b787a8p-1f,
                                       0x1.ad8b26p-1f, 0x1.a340d2p-1f, 0x1.989f86p-1f,
                                       0x1.8d9c6ap-1f, 0x1.822a86p-1f, 0x1.763a16p-1f,
                                       0x1.69b7b2p-1f, 0x1.5c8afep-1f, 0x1.4e94cp-1f,
                                       0x1.3fabeep-1f, 0x1.2f98d6p-1f, 0x1.1e0ce6p-1f,
                                       0x1.0a936ep-1f, 0x1.e8e576p-2f, 0x1.b4c8fep-2f,
                                       0x1.739492p-2f, 0x1.16db48p-2f, 0};

double attn_rng_normal(attn_rng *r) {
  if (!r) return (double)NAN;
  for (;;) {
    uint64_t bits = attn_rng_bits(r);
    int64_t i = (int64_t)(bits % LAYERS);
    double u = (double)(bits >> 11) * 0x1p-52 - 1 + 0x1p-53, x = u * (double)edge[i],
           next = (double)edge[i + 1];
    if (fabs(x) < next) return x;
    if (i) {
      /* Between the curve's heights at the layer's two edges. */
      double width = (double)edge[i], top = exp((x * x - next * next) / 2),
             bottom = exp((x * x - width * width) / 2);
      if (bottom + attn_rng_uniform(r) * (top - bottom) < 1) return x;
      continue;
    }
    double from = (double)edge[1], beyond, height;
    do {
      beyond = -log(attn_rng_uniform(r)) / from;
      height = -log(attn_rng_uniform(r));
    } while (2 * height < beyond * beyond);
    return u < 0 ? -from - beyond : from + beyond;
  }
}

int64_t attn_rng_below(attn_rng *r, int64_t bound) {
  if (!r || bound < 1) return 0;
  uint64_t n = (uint64_t)bound, limit = UINT64_MAX - UINT64_MAX % n;
  for (;;) {
    uint64_t x = attn_rng_bits(r);
    if (x < limit) return (int64_t)(x % n);
  }
}

void attn_rng_normals(attn_rng *r, int64_t count, attn_dtype t, void *x, int64_t at, int64_t step) {
  for (int64_t i = 0; r && x && i < count; i++)
    attn_set(x, at + i * step, t, (double)(float)attn_rng_normal(r));
}

/* kv_codes.c - codes of rows by their direction and norm (attn_kv_law): coordinates of the rotated unit
 * vector in few bits, and signs of Gaussian products of what these leave.
 *
 * A coordinate t of a uniform unit vector of R^d has the density (1 - t^2)^((d-3)/2). Its levels are Lloyd's
 * and Max's (1957, 1960): a bound is the mean of its two levels, a level the mean of its cell,
 *   (cos^(d-1) a - cos^(d-1) b) / ((d - 1) (I(b) - I(a))),   t = sin,   I(a) = int_0^a cos^(d-2),
 * the integral by a recurrence over the exponent. The density is log-concave, so there is one such set
 * (Fleischer 1964), and steps from bounds to levels and back converge to it. */
#include "core/internal.h"

#include <math.h>

enum { HALF_LEVELS = 8, STEPS_MOST = 5000 };

typedef struct codes {
  attn_kv_law law;
  int64_t levels;                                /* above 0; their negatives are the others */
  double level[HALF_LEVELS], bound[HALF_LEVELS]; /* bound[k]: from which on a magnitude is level[k] */
} codes;

static double cosine_integral(double sine, double cosine, int64_t power) {
  double sum = power % 2 ? sine : asin(sine), raised = power % 2 ? cosine * cosine : cosine;
  for (int64_t n = power % 2 ? 3 : 2; n <= power; n += 2, raised *= cosine * cosine)
    sum = raised * sine / (double)n + (double)(n - 1) / (double)n * sum;
  return sum;
}

/* Steps are 0.97 of those before at the slowest, so that levels end within 2^-39 of their size. */
static void make_levels(codes *c, int64_t d) {
  const double reach = fmin(1, 3 / sqrt((double)d));
  double moved = 1;
  c->levels = (int64_t)1 << (c->law.bits - 1);
  for (int64_t k = 0; k < c->levels; k++) c->level[k] = reach * ((double)k + 0.5) / (double)c->levels;
  c->bound[0] = 0;
  for (int step = 0; step < STEPS_MOST && moved > 0x1p-44 * reach; step++) {
    double above = 1, under = 0; /* cos^(d-1) and I at a cell's lower bound */
    moved = 0;
    for (int64_t k = 0; k < c->levels; k++) {
      const bool last = k + 1 == c->levels;
      const double sine = last ? 1 : (c->level[k] + c->level[k + 1]) / 2, cosine = sqrt(1 - sine * sine),
                   top = pow(cosine, (double)(d - 1)), whole = cosine_integral(sine, cosine, d - 2),
                   level = (above - top) / ((double)(d - 1) * (whole - under));
      moved = fmax(moved, fabs(level - c->level[k]));
      c->level[k] = level;
      if (!last) c->bound[k + 1] = sine;
      above = top;
      under = whole;
    }
  }
}

static double inner_product(int64_t d, const double *a, const double *b) {
  double sum[8] = {0};
  int64_t l = 0;
  for (; l + 8 <= d; l += 8)
    for (int i = 0; i < 8; i++) sum[i] += a[l + i] * b[l + i];
  for (; l < d; l++) sum[l % 8] += a[l] * b[l];
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static void add_multiple(int64_t d, double a, const double *x, double *y) {
  for (int64_t l = 0; l < d; l++) y[l] += a * x[l];
}

static double nearest_level(const codes *c, double t) {
  int64_t k = 0;
  while (k + 1 < c->levels && fabs(t) >= c->bound[k + 1]) k++;
  return copysign(c->level[k], t);
}

static void decode(const void *state, int64_t d, double *x, double *kept) {
  const codes *c = state;
  const attn_kv_law *law = &c->law;
  const double norm = sqrt(inner_product(d, x, x)), size = attn_rounded(norm, ATTN_F16);
  double rest = 1;
  for (int64_t l = 0; l < d; l++) {
    kept[l] = isfinite(size) ? 0 : (double)NAN;
    x[l] /= norm;
  }
  if (!isfinite(size) || !(norm > 0)) return;
  for (int64_t r = 0; r < d && law->bits; r++) {
    const double *axis = law->rotation + r * d;
    add_multiple(d, nearest_level(c, inner_product(d, axis, x)), axis, kept);
  }
  if (law->bits) {
    for (int64_t l = 0; l < d; l++) x[l] -= kept[l];
    rest = attn_rounded(sqrt(inner_product(d, x, x)), ATTN_F16);
  }
  const double part = rest * sqrt(acos(0)) / (double)law->signs;
  for (int64_t r = 0; r < law->signs; r++) {
    const double *axis = law->vectors + r * d;
    add_multiple(d, copysign(part, inner_product(d, axis, x)), axis, kept);
  }
  for (int64_t l = 0; l < d; l++) kept[l] *= size;
}

static double *draw_normals(attn_builder *b, int64_t count, int64_t d, uint64_t seed, uint64_t purpose,
                            uint64_t index, bool for_good) {
  double *x = for_good ? attn_builder_alloc(b, count, (size_t)d * sizeof *x)
                       : attn_builder_scratch(b, count, (size_t)d * sizeof *x);
  attn_rng rng;
  attn_rng_init(&rng, seed, purpose, index);
  for (int64_t i = 0; i < (x ? count * d : 0); i++) x[i] = attn_rng_normal(&rng);
  return x;
}

attn_status attn_kv_codes(attn_builder *b, int64_t d, int64_t bits, int64_t signs, uint64_t seed,
                          uint64_t purpose, attn_kv_scheme *out) {
  if (!out) return attn_null("codes of rows", "scheme");
  if (bits < 0 || bits > 4 || signs < 0 || d < (bits ? 3 : 1))
    return attn_fail(
        ATTN_EINVAL,
        "codes of rows: %lld bits and %lld signs of %lld elements, expected 0 ... 4, at least 0, "
        "and at least 3 elements where there are bits",
        (long long)bits, (long long)signs, (long long)d);
  codes *c = b ? attn_builder_alloc(b, 1, sizeof *c) : NULL;
  *out = (attn_kv_scheme){.state = c,
                          .decode = decode,
                          .bits = (double)(16 + bits * d + signs + (bits && signs ? 16 : 0)),
                          .law = {.bits = bits, .signs = signs}};
  if (!b) return ATTN_OK;
  if (!c) return ATTN_ENOMEM;
  if (bits) {
    double *a = draw_normals(b, d, d, seed, purpose, 0, false),
           *scratch = attn_builder_scratch(b, d, sizeof *scratch),
           *rotation = attn_builder_alloc(b, d, (size_t)d * sizeof *rotation);
    if (!a || !scratch || !rotation) return ATTN_ENOMEM;
    const attn_status status = attn_orthogonalise(d, a, scratch, rotation);
    if (status) return status;
    out->law.rotation = rotation;
  }
  if (signs && !(out->law.vectors = draw_normals(b, signs, d, seed, purpose, 1, true))) return ATTN_ENOMEM;
  *c = (codes){.law = out->law};
  if (bits) make_levels(c, d);
  return ATTN_OK;
}

double attn_kv_products(const attn_problem *p, const attn_kv_store *s) {
  const struct {
    const attn_kv_law *law;
    int64_t d;
  } sides[] = {{&s->k_scheme.law, p->d_qk}, {&s->v_scheme.law, p->d_v}};
  double sum = 0;
  for (int i = 0; i < 2; i++)
    sum += 2 * (double)sides[i].d * (double)((sides[i].law->bits ? sides[i].d : 0) + sides[i].law->signs);
  return sum * (double)(p->batch * p->kv_heads) * (double)p->n_kv;
}

attn_cost attn_kv_store_cost(const attn_context *c) {
  if (!c) return (attn_cost){0};
  attn_cost cost = attn_softmax_cost(c, attn_visible_pairs(c->problem));
  attn_parts parts = {.caps = 0};
  if (!c->variant->describe(NULL, c, &parts)) cost.mul_add += attn_kv_products(c->problem, &parts.store);
  return cost;
}

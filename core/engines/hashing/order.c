/* order.c - rows in the order of their hashes. A hash is the signs w_b.x > 0 of products with Gaussian vectors, and its place
 * that of its bits in the reflected Gray code, in which neighbours differ in one of them: rows that lie next to each other
 * are near to each other. Cost: n d bits for the products of n rows, and a sort by digits. */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { CHUNK = 64, DIGIT = 12, MOST_BITS = 32 };

struct attn_sign_order {
  int64_t bits;
  void *vectors; /* [bits][d] */
  double *doubt; /* [bits]: of a row of length 1, how far a computed product may be off */
};

typedef struct room {
  void *products, *gemm;
  uint32_t *place; /* [rows] */
  int64_t *spare, *digits;
} room;

static room lay_out(const attn_context *c, int64_t bits, int64_t rows, attn_carver *carver) {
  return (room){.products = attn_carve(carver, CHUNK, bits, attn_dtype_size(c->problem->dtype)),
                .gemm = attn_carve(carver, 1, 1, attn_gemm_scratch(c->kernels)),
                .digits = attn_carve(carver, (1 << DIGIT) + 1, 1, sizeof(int64_t)),
                .place = attn_carve(carver, rows, 1, sizeof(uint32_t)),
                .spare = attn_carve(carver, rows, 1, sizeof(int64_t))};
}

size_t attn_sign_order_scratch(const attn_context *c, int64_t bits, int64_t rows) {
  if (!c) return SIZE_MAX;
  attn_carver counter = {0};
  lay_out(c, bits, rows, &counter);
  return counter.used;
}

attn_status attn_sign_order_plan(attn_builder *b, int64_t bits, uint64_t seed, uint64_t purpose,
                                 const attn_sign_order **out) {
  if (!b) return attn_null("sign order", "builder");
  if (!out) return attn_null("sign order", "result");
  if (bits < 1 || bits > MOST_BITS)
    return attn_fail(ATTN_EINVAL, "sign order: %lld bits, expected 1 ... %d", (long long)bits, MOST_BITS);
  const attn_problem *p = b->context.problem;
  const double unit = p->dtype == ATTN_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
  attn_sign_order *x = attn_builder_alloc(b, 1, sizeof *x);
  if (!x) return ATTN_ENOMEM;
  *x = (attn_sign_order){.bits = bits,
                         .vectors = attn_builder_alloc(b, bits * p->d_qk, attn_dtype_size(p->dtype)),
                         .doubt = attn_builder_alloc(b, bits, sizeof *x->doubt)};
  if (!x->vectors || !x->doubt) return ATTN_ENOMEM;
  for (int64_t bit = 0; bit < bits; bit++) {
    attn_rng rng;
    double square = 0;
    attn_rng_init(&rng, seed, purpose, (uint64_t)bit);
    attn_rng_normals(&rng, p->d_qk, p->dtype, x->vectors, bit * p->d_qk, 1);
    for (int64_t l = 0; l < p->d_qk; l++) {
      const double w = attn_get(x->vectors, bit * p->d_qk + l, p->dtype);
      square += w * w;
    }
    x->doubt[bit] = (double)(p->d_qk + 2) * unit * sqrt(square);
  }
  *out = x;
  return ATTN_OK;
}

static double product(const attn_sign_order *x, const attn_problem *p, const void *row, int64_t bit) {
  double sum = 0;
  for (int64_t l = 0; l < p->d_qk; l++)
    sum += attn_get(row, l, p->dtype) * attn_get(x->vectors, bit * p->d_qk + l, p->dtype);
  return sum;
}

/* Where rounding might decide, the sign is that of a product in fp64: one row elsewhere would shift all that follow. */
static void find_places(const attn_sign_order *x, const attn_context *c, const void *from, int64_t stride,
                        int64_t count, const room *w) {
  const attn_problem *p = c->problem;
  const double tiny = (double)p->d_qk * (p->dtype == ATTN_F64 ? DBL_TRUE_MIN : (double)FLT_TRUE_MIN);
  for (int64_t first = 0; first < count; first += CHUNK) {
    const int64_t rows = attn_min(CHUNK, count - first), bits = x->bits;
    attn_gemm(c->kernels, rows, bits, p->d_qk,
              (attn_matrix){attn_at(from, first * stride, p->dtype), stride, 1},
              (attn_matrix){x->vectors, 1, p->d_qk}, false, w->products, bits, w->gemm);
    for (int64_t i = 0; i < rows; i++) {
      const void *row = attn_at(from, (first + i) * stride, p->dtype);
      const double length = sqrt(attn_square_row(c->kernels, p->d_qk, row));
      uint32_t code = 0;
      for (int64_t b = 0; b < bits; b++) {
        double y = attn_get(w->products, i * bits + b, p->dtype);
        if (!(fabs(y) > x->doubt[b] * length + tiny)) y = product(x, p, row, b);
        code |= (uint32_t)(y > 0) << b;
      }
      for (int shift = 1; shift < 32; shift *= 2) code ^= code >> shift;
      w->place[first + i] = code;
    }
  }
}

void attn_sign_order_sort(const attn_sign_order *x, const attn_context *c, const void *from, int64_t stride,
                          int64_t count, int64_t *order, void *scratch) {
  if (!x || !c || !from || !order || !scratch) return;
  attn_carver carver = {.base = scratch};
  const room w = lay_out(c, x->bits, count, &carver);
  const int64_t passes = (x->bits + DIGIT - 1) / DIGIT, mask = (1 << DIGIT) - 1;
  const int64_t *sorted = NULL;
  find_places(x, c, from, stride, count, &w);
  for (int64_t pass = 0; pass < passes; pass++) {
    int64_t *to = (passes - pass) % 2 ? order : w.spare;
    const int64_t shift = pass * DIGIT;
    memset(w.digits, 0, ((1 << DIGIT) + 1) * sizeof *w.digits);
    for (int64_t i = 0; i < count; i++) w.digits[(w.place[i] >> shift & mask) + 1]++;
    for (int64_t d = 0; d < mask; d++) w.digits[d + 1] += w.digits[d];
    for (int64_t i = 0; i < count; i++) {
      const int64_t at = sorted ? sorted[i] : i;
      to[w.digits[w.place[at] >> shift & mask]++] = at;
    }
    sorted = to;
  }
}

uint32_t attn_sign_order_place(const attn_sign_order *x, const attn_problem *p, const void *row) {
  uint32_t place = 0, above = 0;
  if (!x || !p || !row) return 0;
  for (int64_t b = x->bits - 1; b >= 0; b--) {
    above ^= product(x, p, row, b) > 0;
    place |= above << b;
  }
  return place;
}

/* order.c - rows in the order of their hashes. A hash is the signs w_b.x > 0 of products with Gaussian
 * vectors, and its place that of its bits in the reflected Gray code, in which neighbours differ in one of
 * them: rows that lie next to each other are near to each other. Cost: n d bits for the products of n rows,
 * and a sort by digits. */
#include "core/internal.h"

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
  void *rows;      /* of a tensor that is stored in another type */
  uint32_t *place; /* [rows] */
  int64_t *spare, *digits;
} room;

static room lay_out(const attn_context *c, int64_t bits, int64_t rows, attn_carver *carver) {
  return (room){.products = attn_carve(carver, CHUNK, bits, attn_dtype_size(c->problem->dtype)),
                .gemm = attn_carve(carver, 1, 1, attn_gemm_scratch(c->kernels)),
                .rows = attn_carve(carver, c->problem->q.stored || c->problem->k.stored ? CHUNK : 0,
                                   c->problem->d_qk, attn_dtype_size(c->problem->dtype)),
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
  const double unit = 2 * attn_numbers[p->dtype].unit;
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

static double product(const attn_sign_order *x, const attn_problem *p, const void *row, attn_dtype t,
                      int64_t bit) {
  double sum = 0;
  for (int64_t l = 0; l < p->d_qk; l++)
    sum += attn_get(row, l, t) * attn_get(x->vectors, bit * p->d_qk + l, p->dtype);
  return sum;
}

/* Where rounding might decide, the sign is that of a product in fp64: one row elsewhere would shift all that
 * follow. */
static void find_places(const attn_sign_order *x, const attn_context *c, const void *from, attn_stride stride,
                        int64_t count, const room *w) {
  const attn_problem *p = c->problem;
  const double tiny = (double)p->d_qk * attn_numbers[p->dtype].subnormal;
  for (int64_t first = 0; first < count; first += CHUNK) {
    const int64_t rows = attn_min(CHUNK, count - first), bits = x->bits;
    const attn_matrix own =
        attn_load_rows(c->kernels, attn_stored(stride, p->dtype),
                       attn_row_behind(from, stride, first, p->dtype), stride.row, rows, p->d_qk, w->rows);
    attn_gemm(c->kernels, rows, bits, p->d_qk, own, (attn_matrix){x->vectors, 1, p->d_qk}, false, w->products,
              bits, w->gemm);
    for (int64_t i = 0; i < rows; i++) {
      const void *row = attn_at(own.at, i * own.row, p->dtype);
      const double length = sqrt(attn_square_row(c->kernels, p->d_qk, row));
      uint32_t code = 0;
      for (int64_t b = 0; b < bits; b++) {
        double y = attn_get(w->products, i * bits + b, p->dtype);
        if (!(fabs(y) > x->doubt[b] * length + tiny)) y = product(x, p, row, p->dtype, b);
        code |= (uint32_t)(y > 0) << b;
      }
      for (int shift = 1; shift < 32; shift *= 2) code ^= code >> shift;
      w->place[first + i] = code;
    }
  }
}

void attn_sign_order_sort(const attn_sign_order *x, const attn_context *c, const void *from,
                          attn_stride stride, int64_t count, int64_t *order, void *scratch) {
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

uint32_t attn_sign_order_place(const attn_sign_order *x, const attn_problem *p, const void *row,
                               attn_dtype t) {
  uint32_t place = 0, above = 0;
  if (!x || !p || !row) return 0;
  for (int64_t b = x->bits - 1; b >= 0; b--) {
    above ^= product(x, p, row, t, b) > 0;
    place |= above << b;
  }
  return place;
}

/* tables.c - hash tables of keys by the signs of random products: a vector's word in table t is the signs of
 * x G_t, G_t Gaussian, and a table has the keys in the order of their words' lowest bits, which name buckets;
 * the other bits are compared. Products are of a group of tables at once, packed when the plan is made.
 *
 * Cost: n d l k for the words of n vectors; a query looks up its bucket in each table, and reads the keys
 * there. */
#include "core/internal.h"

#include <string.h>

enum { CHUNK = 64, GROUP = 16, MOST_BITS = 16, MOST_SIGNS = 32, MOST_TABLES = 1024 };

struct attn_sign_tables {
  int64_t k, l;
  int64_t bits; /* of a word that name its bucket */
  attn_packed packed[MOST_TABLES / GROUP];
};

/* Of a kv head. Within a bucket keys ascend. */
typedef struct filled {
  int32_t *starts; /* [l][2^bits + 1] */
  int32_t *keys;   /* [l][n_kv] */
  uint32_t *rest;  /* [l][n_kv] the bits of their words that name no bucket; NULL: there are none */
} filled;

/* A thread's. */
typedef struct room {
  void *rows, *products, *gemm; /* [CHUNK][d]; [CHUNK][GROUP * k] */
  uint32_t *column;             /* [GROUP][n_kv] words of keys */
  int32_t *span;                /* [l][2] where a query's bucket begins and ends */
} room;

/* Buckets of one key or so are fine enough. */
static int64_t bucket_bits(const attn_context *c, int64_t k) {
  int64_t bits = 1;
  while (bits < MOST_BITS && INT64_C(1) << bits < c->problem->n_kv) bits++;
  return attn_min(bits, k);
}

static filled lay_tables(const attn_context *c, int64_t k, int64_t l, attn_carver *carver) {
  const int64_t n = c->problem->n_kv, bits = bucket_bits(c, k);
  return (filled){.starts = attn_carve(carver, l, (INT64_C(1) << bits) + 1, sizeof(int32_t)),
                  .keys = attn_carve(carver, l, n, sizeof(int32_t)),
                  .rest = k > bits ? attn_carve(carver, l, n, sizeof(uint32_t)) : NULL};
}

static room lay_out(const attn_context *c, int64_t k, int64_t l, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const size_t e = attn_dtype_size(p->dtype);
  return (room){.rows = attn_carve(carver, CHUNK, p->d_qk, e),
                .products = attn_carve(carver, CHUNK, GROUP * k, e),
                .gemm = attn_carve(carver, 1, 1, attn_gemm_scratch(c->kernels)),
                .column = attn_carve(carver, GROUP, p->n_kv, sizeof(uint32_t)),
                .span = attn_carve(carver, l, 2, sizeof(int32_t))};
}

size_t attn_sign_tables_bytes(const attn_context *c, int64_t k, int64_t l) {
  if (!c) return SIZE_MAX;
  attn_carver counter = {0};
  lay_tables(c, k, l, &counter);
  return counter.used;
}

size_t attn_sign_tables_scratch(const attn_context *c, int64_t k, int64_t l) {
  if (!c) return SIZE_MAX;
  attn_carver counter = {0};
  lay_out(c, k, l, &counter);
  return counter.used;
}

/* G of a group of tables, packed for products. */
static attn_status draw_group(attn_builder *b, attn_sign_tables *x, uint64_t seed, uint64_t purpose,
                              int64_t first, void *g) {
  const attn_context *c = attn_builder_context(b);
  const attn_problem *p = c->problem;
  const int64_t columns = attn_min(GROUP, x->l - first) * x->k;
  for (int64_t at = 0; at < columns; at++) {
    attn_rng rng;
    attn_rng_init(&rng, seed, purpose, (uint64_t)((first + at / x->k) << 32 | at % x->k));
    attn_rng_normals(&rng, p->d_qk, p->dtype, g, at, columns);
  }
  void *packed = attn_builder_alloc(b, 1, attn_gemm_packed_bytes(c->kernels, p->d_qk, columns));
  if (!packed) return ATTN_ENOMEM;
  x->packed[first / GROUP] =
      attn_gemm_pack(c->kernels, p->d_qk, columns, (attn_matrix){g, columns, 1}, packed);
  return ATTN_OK;
}

attn_status attn_sign_tables_plan(attn_builder *b, int64_t k, int64_t l, uint64_t seed, uint64_t purpose,
                                  const attn_sign_tables **out) {
  if (!b) return attn_null("sign tables", "builder");
  if (!out) return attn_null("sign tables", "result");
  if (k < 0 || k > MOST_SIGNS || l < 1 || l > MOST_TABLES)
    return attn_fail(ATTN_EINVAL, "sign tables: k = %lld, l = %lld, expected 0 ... %d and 1 ... %d",
                     (long long)k, (long long)l, MOST_SIGNS, MOST_TABLES);
  const attn_context *c = attn_builder_context(b);
  attn_status status = ATTN_OK;
  attn_sign_tables *x = attn_builder_alloc(b, 1, sizeof *x);
  void *g =
      attn_builder_scratch(b, c->problem->d_qk * GROUP * MOST_SIGNS, attn_dtype_size(c->problem->dtype));
  if (!x || !g) return ATTN_ENOMEM;
  *x = (attn_sign_tables){.k = k, .l = l, .bits = bucket_bits(c, k)};
  for (int64_t first = 0; !status && k && first < l; first += GROUP)
    status = draw_group(b, x, seed, purpose, first, g);
  if (!status) *out = x;
  return status;
}

/* The signs of the products at ..., + first. */
static uint32_t signs(const attn_kernels *kernels, const void *products, int64_t at, int64_t k) {
  /* What is not below 0 is above the number before it. */
  return (uint32_t)kernels->above(k, attn_at(products, at, kernels->dtype),
                                  -attn_numbers[kernels->dtype].subnormal);
}

/* Words of `count` <= CHUNK vectors in table first + t of a group, at word[t * table_step + i * row_step]. */
static void hash(const attn_sign_tables *x, const attn_context *c, const double *vectors, int64_t count,
                 int64_t first, const room *w, uint32_t *word, int64_t table_step, int64_t row_step) {
  const attn_problem *p = c->problem;
  const int64_t d = p->d_qk, k = x->k, all = attn_min(GROUP, x->l - first);
  for (int64_t i = 0; i < count * d; i++) attn_set(w->rows, i, p->dtype, vectors[i]);
  if (k)
    attn_gemm_packed(c->kernels, count, all * k, d, (attn_matrix){w->rows, d, 1}, x->packed[first / GROUP],
                     false, w->products, all * k, w->gemm);
  for (int64_t i = 0; i < count; i++)
    for (int64_t t = 0; t < all; t++)
      word[t * table_step + i * row_step] = signs(c->kernels, w->products, (i * all + t) * k, k);
}

/* Sorts the keys of a table by bucket. */
static void fill_table(const attn_sign_tables *x, int64_t keys, const uint32_t *word, int32_t *starts,
                       int32_t *order, uint32_t *rest) {
  const int64_t buckets = INT64_C(1) << x->bits;
  const uint32_t mask = (uint32_t)buckets - 1;
  memset(starts, 0, (size_t)(buckets + 1) * sizeof *starts);
  for (int64_t j = 0; j < keys; j++) starts[(word[j] & mask) + 1]++;
  for (int64_t b = 0; b < buckets; b++) starts[b + 1] += starts[b];
  for (int64_t j = 0; j < keys; j++) {
    const int32_t at = starts[word[j] & mask]++;
    order[at] = (int32_t)j;
    if (rest) rest[at] = word[j] >> x->bits;
  }
  memmove(starts + 1, starts, (size_t)buckets * sizeof *starts);
  starts[0] = 0;
}

void attn_sign_tables_fill(const attn_sign_tables *x, const attn_context *c, int64_t keys,
                           const double *vectors, void *tables, void *scratch) {
  if (!x || !c || !vectors || !tables || !scratch) return;
  attn_carver carver = {.base = tables}, own = {.base = scratch};
  const filled to = lay_tables(c, x->k, x->l, &carver);
  const room w = lay_out(c, x->k, x->l, &own);
  const int64_t n = c->problem->n_kv;
  for (int64_t first = 0; first < x->l; first += GROUP) {
    for (int64_t j = 0; j < keys; j += CHUNK)
      hash(x, c, vectors + j * c->problem->d_qk, attn_min(CHUNK, keys - j), first, &w, w.column + j, n, 1);
    for (int64_t t = 0; t < attn_min(GROUP, x->l - first); t++)
      fill_table(x, keys, w.column + t * n, to.starts + (first + t) * ((INT64_C(1) << x->bits) + 1),
                 to.keys + (first + t) * n, to.rest ? to.rest + (first + t) * n : NULL);
  }
}

void attn_sign_tables_words(const attn_sign_tables *x, const attn_context *c, int64_t count,
                            const double *vectors, uint32_t *words, void *scratch) {
  if (!x || !c || !vectors || !words || !scratch) return;
  attn_carver own = {.base = scratch};
  const room w = lay_out(c, x->k, x->l, &own);
  for (int64_t t = 0; t < x->l; t += GROUP) hash(x, c, vectors, count, t, &w, words + t, 1, x->l);
}

/* Buckets of all tables are on their way from memory before the first is read. */
void attn_sign_tables_count(const attn_sign_tables *x, const attn_context *c, const void *tables,
                            const uint32_t *word, int64_t most, int64_t first, int64_t end, uint8_t *hits,
                            void *scratch) {
  if (!x || !c || !tables || !word || !hits || !scratch) return;
  attn_carver carver = {.base = (char *)(uintptr_t)tables}, own = {.base = scratch};
  const filled of = lay_tables(c, x->k, x->l, &carver);
  const room w = lay_out(c, x->k, x->l, &own);
  const int64_t n = c->problem->n_kv, buckets = INT64_C(1) << x->bits;
  memset(hits + first, 0, (size_t)(end - first));
  for (int64_t t = 0; t < x->l; t++) {
    const int32_t *starts = of.starts + t * (buckets + 1) + (word[t] & (uint32_t)(buckets - 1));
    w.span[2 * t] = starts[0];
    w.span[2 * t + 1] = starts[1];
    attn_prefetch_row(of.keys + t * n + starts[0], 1, ATTN_F32);
  }
  for (int64_t t = 0; t < x->l; t++) {
    const int32_t *keys = of.keys + t * n;
    const uint32_t *rest = of.rest ? of.rest + t * n : NULL, wanted = rest ? word[t] >> x->bits : 0;
    for (int64_t at = w.span[2 * t]; at < w.span[2 * t + 1] && keys[at] < end; at++)
      if (keys[at] >= first && (!rest || rest[at] == wanted) && hits[keys[at]] < most) hits[keys[at]]++;
  }
}

/* rotated - exact attention to keys and values that are turned by a Hadamard matrix before they are stored.
 *
 *   x^ = H dec(enc(H x)),   H = B^(-1/2) (-1)^(number of ones of i and j in common), on B elements at a time
 *
 * B is the largest power of two that divides d, enc and dec those of `store`'s types: H spreads the few
 * large components of keys, so that a block's scale is not theirs alone. llama.cpp turns quantised caches
 * so since its pull request 21038 (2026); QuaRot: Ashkboos et al. 2024, arXiv:2404.00456.
 *
 * Bits are those of the type. Cost: that of tiled, and d log2 B additions a row, twice. Bounds: QNT-0 ...
 * QNT-2. What is read is a decoded copy (core/engines/stored). */
#include "attn_variant.h"

#include <math.h>

typedef struct params {
  int k, v;
} params;

enum { CHUNK = 32 }; /* a block of every type */

static const attn_dtype types[] = {ATTN_F32, ATTN_Q8_0, ATTN_Q4_0, ATTN_INT4, ATTN_INT3, ATTN_INT2};
static const char *const names[] = {"f32", "q8_0", "q4_0", "int4", "int3", "int2", NULL};

static const attn_param table[] = {
    {"k", ATTN_CHOICE, offsetof(params, k), 0, 5, "q4_0", names, "how turned keys are stored; f32: as given"},
    {"v", ATTN_CHOICE, offsetof(params, v), 0, 5, "q4_0", names, "how turned values are stored"},
    {.name = NULL},
};

typedef struct code {
  attn_dtype type;
  const attn_kernels *kernels; /* of fp64 */
} code;

static void turn(const code *c, int64_t d, double *x) {
  const int64_t block = d & -d;
  for (int64_t at = 0; at < d; at += block) attn_wht(c->kernels, block, 1, x + at);
  for (int64_t l = 0; l < d; l++) x[l] /= sqrt((double)block);
}

static void decode(const void *state, int64_t d, double *x, double *kept) {
  const code *c = state;
  turn(c, d, x);
  for (int64_t at = 0; at < d; at += CHUNK) {
    const int64_t count = d - at < CHUNK ? d - at : CHUNK;
    float single[CHUNK];
    double codes[CHUNK];
    attn_convert(x + at, ATTN_F64, count, ATTN_F32, single);
    attn_convert(single, ATTN_F32, count, c->type, codes);
    attn_convert(codes, c->type, count, ATTN_F64, kept + at);
  }
  turn(c, d, kept);
}

static attn_status scheme(attn_builder *b, const attn_context *c, int choice, int64_t d,
                          attn_kv_scheme *out) {
  const code own = {types[choice], attn_kernels_f64(c->kernels)};
  const void *kept = NULL;
  if (!choice) return ATTN_OK;
  const attn_status status = attn_builder_keep(b, &own, sizeof own, &kept);
  *out = (attn_kv_scheme){.state = kept,
                          .decode = decode,
                          .bits = 8 * (double)attn_row_bytes(d, own.type),
                          .law = {.turned = own.type}};
  return status;
}

static attn_status applicable(const attn_context *c) {
  const params *x = c->params;
  return x->k || x->v
             ? ATTN_OK
             : attn_fail(ATTN_EINVAL, "variant rotated: k=f32 and v=f32 change nothing, which is tiled");
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *x = c->params;
  const attn_status status = scheme(b, c, x->k, c->problem->d_qk, &out->store.k_scheme);
  return status ? status : scheme(b, c, x->v, c->problem->d_v, &out->store.v_scheme);
}

ATTN_VARIANT(rotated, .summary = "exact attention to keys and values stored in few bits behind a rotation",
             .formula = "softmax over H dec(enc(H x)) of keys and values x; O(n^2 d)",
             .cite = "Ashkboos et al. 2024, arXiv:2404.00456; llama.cpp", .caps = ATTN_CAP_KV_STORE,
             .params = table, .params_size = sizeof(params), .applicable = applicable, .describe = describe,
             .cost = attn_kv_store_cost)

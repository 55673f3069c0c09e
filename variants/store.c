/* store - exact attention to keys and values as a cache stores them, in few bits.
 *
 *   o_i = softmax_j(c q_i . k^_j + ...) v^_j,   k^ = dec(enc(k)), v^ = dec(enc(v))
 *
 * Each row is converted by itself, in blocks of 32 of its elements, so that a key's code is the same
 * whatever comes before or after it. The types (core/kernels/codes.h has the codes): f32, which leaves a
 * tensor as it is; f16, bf16; fp8, e4m3 without a scale; q8_0 and q4_0, llama.cpp's; int1 ... int8,
 * asymmetric, with a scale and a least value in f16 for 32 elements (KIVI's codes of values, along the
 * channels of a token).
 *
 * Bytes of a cache: bits of a code, and 16 or 32 bits for 32 elements: q8_0 8.5 bits an element, q4_0 4.5,
 * int<b> b + 1. Cost: that of tiled; codes are decoded tile by tile. Bounds: QNT-0, the output is exact
 * attention to the rows that the definitions of the types give; QNT-1, these are within a step of the given
 * ones; QNT-2, the error that follows. */
#include "attn_variant.h"

typedef struct params {
  int k, v;
} params;

/* In the order of attn_dtype, without f64. */
static const char *const types[] = {"f32",  "f16",  "bf16", "fp8",  "q8_0", "q4_0", "int1", "int2",
                                    "int3", "int4", "int5", "int6", "int7", "int8", NULL};

static const attn_param table[] = {
    {"k", ATTN_CHOICE, offsetof(params, k), 0, ATTN_STORES - 2, "q8_0", types, "how keys are stored"},
    {"v", ATTN_CHOICE, offsetof(params, v), 0, ATTN_STORES - 2, "q8_0", types, "how values are stored"},
    {.name = NULL},
};

static attn_dtype type_of(int choice) { return choice ? (attn_dtype)(choice + 1) : ATTN_F32; }

static attn_status applicable(const attn_context *c) {
  const params *x = c->params;
  if (!x->k && !x->v)
    return attn_fail(ATTN_EINVAL, "variant store: k=f32 and v=f32 change nothing, which is tiled");
  if (attn_dtype_size(c->problem->dtype) != sizeof(float))
    return attn_fail(ATTN_EUNSUPPORTED, "variant store: its codes are of fp32 and 16-bit tensors");
  return ATTN_OK;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *x = c->params;
  (void)b;
  out->store = (attn_kv_store){.k = type_of(x->k), .v = type_of(x->v)};
  return ATTN_OK;
}

ATTN_VARIANT(
    store, .summary = "exact attention to keys and values stored in few bits",
    .formula = "softmax over codes of K and V, blocks of 32 elements of a row with a scale; O(n^2 d)",
    .cite = "Liu et al. 2024, arXiv:2402.02750; Micikevicius et al. 2022, arXiv:2209.05433; "
            "llama.cpp's q8_0 and q4_0",
    .caps = ATTN_CAP_KV_STORE, .params = table, .params_size = sizeof(params), .applicable = applicable,
    .describe = describe, .cost = attn_kv_store_cost)

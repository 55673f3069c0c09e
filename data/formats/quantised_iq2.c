/* quantised_iq2.c - IQ2_XXS (core/kernels/iq2_xxs.h) as f32. d, 2 w + 1 and the length have 11, 5 and 6 bits:
 * every element is exact. */
#include "core/kernels/iq2_xxs.h"
#include "data/formats/quantised.h"

static void widen_iq2_xxs(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++, at += 66)
    for (int g = 0; g < 8; g++, out += 32) {
      uint64_t codes[4];
      const float scale = tensor_f16_to_f32(at) * iq2_group(at + 2 + 8 * g, codes);
      for (int e = 0; e < 32; e++) out[e] = scale * (float)(int8_t)(codes[e / 8] >> e % 8 * 8);
    }
}

const tensor_format tensor_iq2_xxs = {"IQ2_XXS", 256, 66, widen_iq2_xxs, ATTN_WEIGHT_IQ2_XXS};

/* weight_formats.h - how rows of a model's weights are stored (attn_weight_format): elements, or blocks
 * of codes of few bits as GGUF files hold them (https://github.com/ggml-org/ggml; data/formats/ has each
 * definition). */
#ifndef ATTN_CORE_KERNELS_WEIGHT_FORMATS_H
#define ATTN_CORE_KERNELS_WEIGHT_FORMATS_H

#include "core/kernels/half.h"
#include "core/kernels/iq2_xxs.h"

/* The formats (attn_arithmetic.h), with the elements of a block and its bytes; those without blocks by 32. */
#define WEIGHT_FORMATS(X) \
  X(F32, f32, 32, 128)    \
  X(F16, f16, 32, 64)     \
  X(BF16, bf16, 32, 64)   \
  X(Q8_0, q8_0, 32, 34)   \
  X(Q4_0, q4_0, 32, 18)   \
  X(Q4_1, q4_1, 32, 20)   \
  X(Q2_K, q2_k, 256, 84)  \
  X(Q3_K, q3_k, 256, 110) \
  X(Q4_K, q4_k, 256, 144) \
  X(Q5_K, q5_k, 256, 176) \
  X(Q6_K, q6_k, 256, 210) \
  X(IQ2_XXS, iq2_xxs, 256, 66)

/* What the weights of a block of 256 share: of each group of 16 or 32 a factor and what is added. codes: the
 * elements of IQ2_XXS, a signed byte each. */
typedef struct weight_head {
  float scale[16], least[16];
  uint64_t codes[32];
} weight_head;

static inline uint32_t weights_word(const uint8_t *at) {
  uint32_t word;
  memcpy(&word, at, sizeof word);
  return word;
}

#endif

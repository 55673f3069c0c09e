/* tensor.c - elements of a tensor as numbers: IEEE 754 binary16 and bfloat16 widened exactly, binary64
 * rounded to f32. */
#include "data/formats/tensor.h"

#include <string.h>

static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t load16(const uint8_t *at) { return (uint32_t)(at[0] | at[1] << 8); }

float tensor_f16_to_f32(const uint8_t *at) {
  uint32_t half = load16(at), sign = (half & 0x8000) << 16, exponent = half >> 10 & 31,
           fraction = half & 1023;
  if (exponent == 31) return from_bits(sign | 0x7f800000 | fraction << 13);
  if (exponent > 0) return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
  /* Subnormal: fraction * 2^-24, exact in f32. */
  float value = (float)fraction * 0x1p-24f;
  return sign ? -value : value;
}

static void widen_f32(const uint8_t *at, int64_t count, float *out) { memcpy(out, at, (size_t)count * 4); }

static void widen_f16(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++) out[i] = tensor_f16_to_f32(at + 2 * i);
}

static void widen_bf16(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++) out[i] = from_bits(load16(at + 2 * i) << 16);
}

static void widen_f64(const uint8_t *at, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++) {
    double value;
    memcpy(&value, at + 8 * i, sizeof value);
    out[i] = (float)value;
  }
}

const tensor_format tensor_f32 = {"F32", 1, 4, widen_f32, ATTN_WEIGHT_F32},
                    tensor_f16 = {"F16", 1, 2, widen_f16, ATTN_WEIGHT_F16},
                    tensor_bf16 = {"BF16", 1, 2, widen_bf16, ATTN_WEIGHT_BF16},
                    tensor_f64 = {"F64", 1, 8, widen_f64, ATTN_WEIGHT_NONE};

attn_status tensor_to_f32(const tensor *t, int64_t first, int64_t count, float *out) {
  const tensor_format *f = t->format;
  if (!f->widen)
    return attn_fail(ATTN_EUNSUPPORTED, "%s: tensor %s is %s; expected a format of floating point", t->file,
                     t->name, f->name);
  if (first % f->block != 0 || count % f->block != 0)
    return attn_fail(ATTN_EINVAL, "%s: tensor %s: %lld elements from %lld on are not whole blocks of %lld",
                     t->file, t->name, (long long)count, (long long)first, (long long)f->block);
  f->widen(t->at + first / f->block * f->bytes, count / f->block, out);
  return ATTN_OK;
}

attn_status tensor_to_array(const tensor *t, data_array *out) {
  data_array made = {0};
  bool wide = t->format == &tensor_f64;
  if (t->rank < 1 || t->rank > DATA_RANK_MAX || t->count == 0)
    return attn_fail(ATTN_EINVAL, "%s: tensor %s has %d axes and %lld elements; expected 1 to %d axes",
                     t->file, t->name, t->rank, (long long)t->count, DATA_RANK_MAX);
  attn_status status = data_array_make(wide ? ATTN_F64 : ATTN_F32, t->rank, t->shape, &made);
  if (status) return status;
  if (wide)
    memcpy(made.at, t->at, (size_t)t->count * 8);
  else
    status = tensor_to_f32(t, 0, t->count, made.at);
  if (!status)
    *out = made;
  else
    data_array_free(&made);
  return status;
}

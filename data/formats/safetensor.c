/* safetensor.c - elements of a safetensor as numbers: IEEE 754 binary16 and bfloat16 widened exactly,
 * binary64 rounded to f32. */
#include <math.h>
#include <string.h>

#include "data/formats/safetensors.h"

static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static float from_f16(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 31) return from_bits(sign | 0x7f800000 | fraction << 13);
  if (exponent > 0) return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
  /* Subnormal: fraction * 2^-24, exact in f32. */
  float value = (float)fraction * 0x1p-24f;
  return sign ? -value : value;
}

static uint16_t load16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }

attn_status safetensor_to_f32(const safetensor *t, int64_t first, int64_t count, float *out) {
  const uint8_t *at = t->at;
  switch (t->type) {
  case ST_F32:
    memcpy(out, at + 4 * first, (size_t)count * 4);
    return ATTN_OK;
  case ST_F16:
    for (int64_t i = 0; i < count; i++) out[i] = from_f16(load16(at + 2 * (first + i)));
    return ATTN_OK;
  case ST_BF16:
    for (int64_t i = 0; i < count; i++) out[i] = from_bits((uint32_t)load16(at + 2 * (first + i)) << 16);
    return ATTN_OK;
  case ST_F64:
    for (int64_t i = 0; i < count; i++) {
      double value;
      memcpy(&value, at + 8 * (first + i), sizeof value);
      out[i] = (float)value;
    }
    return ATTN_OK;
  case ST_OTHER:
    break;
  }
  return attn_fail(ATTN_EUNSUPPORTED, "%s: tensor %s is %s; F32, F16, BF16 or F64 was expected", t->file,
                   t->name, t->type_name);
}

attn_status safetensor_to_array(const safetensor *t, data_array *out) {
  data_array made = {0};
  bool wide = t->type == ST_F64;
  if (t->rank < 1 || t->rank > DATA_RANK_MAX || t->count == 0)
    return attn_fail(ATTN_EINVAL, "%s: tensor %s has %d axes and %lld elements; 1 to %d axes were expected",
                     t->file, t->name, t->rank, (long long)t->count, DATA_RANK_MAX);
  attn_status status = data_array_make(wide ? ATTN_F64 : ATTN_F32, t->rank, t->shape, &made);
  if (status) return status;
  if (wide)
    memcpy(made.at, t->at, (size_t)t->count * 8);
  else
    status = safetensor_to_f32(t, 0, t->count, made.at);
  if (!status)
    *out = made;
  else
    data_array_free(&made);
  return status;
}

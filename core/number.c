/* number.c - the table of number types: how tensors are stored, and in which arithmetic they are computed
 * with; codes of keys and values follow the types of tensors. */
#include "core/kernels/codes.h"
#include "core/kernels/kernels.h"

#include "attn_arithmetic.h"

#include <float.h>

static inline double from_f32(float x) { return (double)x; }
static inline double from_f64(double x) { return x; }
static inline double from_f16(uint16_t x) { return (double)half_from_f16(x); }
static inline double from_bf16(uint16_t x) { return (double)half_from_bf16(x); }
static inline float to_f32(double x) { return (float)x; }
static inline double to_f64(double x) { return x; }
static inline uint16_t to_f16(double x) { return half_to_f16(half_odd(x)); }
static inline uint16_t to_bf16(double x) { return half_to_bf16(half_odd(x)); }

/* The exponent of Inf and NaN is all ones: one more carries into the sign bit. Rows are added four at a time:
 * each is converted to fp64, which costs more than to add it, and eight columns are vectors. */
#define FUNCTIONS(t, element, bits, exponent)                                                                \
  static void load_##t(const void *x_, int64_t count, double *to) {                                          \
    const element *x = x_;                                                                                   \
    for (int64_t i = 0; i < count; i++) to[i] = from_##t(x[i]);                                              \
  }                                                                                                          \
  static void store_##t(const double *x, int64_t count, void *to_) {                                         \
    element *to = to_;                                                                                       \
    for (int64_t i = 0; i < count; i++) to[i] = to_##t(x[i]);                                                \
  }                                                                                                          \
  static bool finite_##t(const void *x_, int64_t count) {                                                    \
    const char *x = x_;                                                                                      \
    bits carry = 0, own;                                                                                     \
    for (int64_t i = 0; i < count; i++) {                                                                    \
      memcpy(&own, x + i * (int64_t)sizeof own, sizeof own);                                                 \
      carry = (bits)(carry | ((own & (bits)(exponent)) + ((exponent) & -(exponent))));                       \
    }                                                                                                        \
    return !(carry >> (8 * sizeof carry - 1));                                                               \
  }                                                                                                          \
  static void add_##t(const void *x_, int64_t row, int64_t count, int64_t d, double *to) {                   \
    enum { ROWS = 4, COLUMNS = 8 };                                                                          \
    const element *x = x_;                                                                                   \
    for (; count >= ROWS; count -= ROWS, x += ROWS * row) {                                                  \
      int64_t l = 0;                                                                                         \
      for (; l + COLUMNS <= d; l += COLUMNS)                                                                 \
        for (int64_t c = l; c < l + COLUMNS; c++)                                                            \
          to[c] +=                                                                                           \
              from_##t(x[c]) + from_##t(x[row + c]) + (from_##t(x[2 * row + c]) + from_##t(x[3 * row + c])); \
      for (; l < d; l++)                                                                                     \
        for (int64_t r = 0; r < ROWS; r++) to[l] += from_##t(x[r * row + l]);                                \
    }                                                                                                        \
    for (; count; count--, x += row)                                                                         \
      for (int64_t l = 0; l < d; l++) to[l] += from_##t(x[l]);                                               \
  }

FUNCTIONS(f32, float, uint32_t, UINT32_C(0x7f800000))
FUNCTIONS(f64, double, uint64_t, UINT64_C(0x7ff0000000000000))
FUNCTIONS(f16, uint16_t, uint16_t, 0x7c00)
FUNCTIONS(bf16, uint16_t, uint16_t, 0x7f80)

/* Codes: blocks of fp32, the last of a row perhaps in part. */
static int64_t part_of_block(int64_t count) { return count < CODES_BLOCK ? count : CODES_BLOCK; }

#define CODE_FUNCTIONS(T, t, size)                                                                 \
  static void load_##t(const void *x_, int64_t count, double *to) {                                \
    float own[CODES_BLOCK];                                                                        \
    for (const uint8_t *x = x_; count > 0; count -= CODES_BLOCK, x += (size), to += CODES_BLOCK) { \
      attn_kernels_scalar_f32.load[ATTN_##T](1, part_of_block(count), x, 0, NULL, own, 0);         \
      for (int64_t i = 0; i < part_of_block(count); i++) to[i] = (double)own[i];                   \
    }                                                                                              \
  }                                                                                                \
  static void store_##t(const double *x, int64_t count, void *to_) {                               \
    for (uint8_t *to = to_; count > 0; count -= CODES_BLOCK, x += CODES_BLOCK, to += (size)) {     \
      float own[CODES_BLOCK] = {0};                                                                \
      for (int64_t i = 0; i < part_of_block(count); i++) own[i] = (float)x[i];                     \
      codes_to_##t(own, to);                                                                       \
    }                                                                                              \
  }                                                                                                \
  static bool finite_##t(const void *x_, int64_t count) {                                          \
    double own[CODES_BLOCK];                                                                       \
    bool finite = true;                                                                            \
    for (const uint8_t *x = x_; count > 0; count -= CODES_BLOCK, x += (size)) {                    \
      load_##t(x, part_of_block(count), own);                                                      \
      for (int64_t i = 0; i < part_of_block(count); i++) finite = finite && isfinite(own[i]);      \
    }                                                                                              \
    return finite;                                                                                 \
  }                                                                                                \
  static void add_##t(const void *x_, int64_t row, int64_t count, int64_t d, double *to) {         \
    double own[CODES_BLOCK];                                                                       \
    for (const uint8_t *x = x_; count > 0; count--, x += row / CODES_BLOCK * (size))               \
      for (int64_t l = 0; l < d; l += CODES_BLOCK) {                                               \
        load_##t(x + l / CODES_BLOCK * (size), part_of_block(d - l), own);                         \
        for (int64_t i = 0; i < part_of_block(d - l); i++) to[l + i] += own[i];                    \
      }                                                                                            \
  }
CODES_OF(CODE_FUNCTIONS)

#define NUMBER(t, size, kernels, u, most, least, tiny)                                             \
  {                                                                                                \
    .name = #t, .bytes = size, .arithmetic = kernels, .unit = u, .largest = most, .normal = least, \
    .subnormal = tiny, .load = load_##t, .store = store_##t, .finite = finite_##t, .add = add_##t  \
  }

#define CODE(T, t, size)   \
  {.name = #t,             \
   .bytes = size,          \
   .shift = 5,             \
   .arithmetic = ATTN_F32, \
   .load = load_##t,       \
   .store = store_##t,     \
   .finite = finite_##t,   \
   .add = add_##t},

const attn_number attn_numbers[ATTN_STORES] = {
    [ATTN_F32] = NUMBER(f32, 4, ATTN_F32, 0x1p-24, (double)FLT_MAX, (double)FLT_MIN, 0x1p-149),
    [ATTN_F64] = NUMBER(f64, 8, ATTN_F64, 0x1p-53, DBL_MAX, DBL_MIN, 0x1p-1074),
    [ATTN_F16] = NUMBER(f16, 2, ATTN_F32, 0x1p-11, 65504, 0x1p-14, 0x1p-24),
    [ATTN_BF16] = NUMBER(bf16, 2, ATTN_F32, 0x1p-8, 0x1.fep127, 0x1p-126, 0x1p-133),
    CODES_OF(CODE)};

bool attn_dtype_find(const char *name, attn_dtype *out) {
  for (int t = 0; name && out && t < ATTN_DTYPES; t++)
    if (!strcmp(name, attn_numbers[t].name)) {
      *out = (attn_dtype)t;
      return true;
    }
  return false;
}

void attn_convert(const void *x, attn_dtype from, int64_t count, attn_dtype to, void *y) {
  enum { AT_A_TIME = 256 }; /* whole blocks */
  double wide[AT_A_TIME];
  if (!x || !y) return;
  if (from == to) memcpy(y, x, attn_row_bytes(count, to));
  for (int64_t i = 0; from != to && i < count; i += AT_A_TIME) {
    const int64_t part = count - i < AT_A_TIME ? count - i : AT_A_TIME;
    attn_numbers[from].load(attn_at(x, i, from), part, wide);
    attn_numbers[to].store(wide, part, attn_at(y, i, to));
  }
}

/* blocks.c - quantised formats against their definitions: one element at a time, in fp64. */
#include "tests/support/data_fixture.h"

#include "attn_variant.h"
#include "data/formats/quantised.h"

enum { BLOCKS = 64, NONE = -2 };

/* ---- the definitions ----------------------------------------------------------------------------------- */

static double half_at(const unsigned char *at) {
  int bits = at[0] | at[1] << 8, e = bits >> 10 & 31;
  return ldexp((bits & 1023) + (e ? 1024 : 0), (e ? e : 1) - 25) * (bits & 0x8000 ? -1 : 1);
}

static double signed_at(const unsigned char *at) { return *at < 128 ? *at : *at - 256; }

/* Bits first ... first+count-1 of bytes that lie one after another. */
static int bits_at(const unsigned char *at, int first, int count) {
  int value = 0;
  for (int i = 0; i < count; i++) value |= (at[(first + i) / 8] >> (first + i) % 8 & 1) << i;
  return value;
}

static double q8_0(const unsigned char *b, int e) { return half_at(b) * signed_at(b + 2 + e); }

static double q4_0(const unsigned char *b, int e) {
  return half_at(b) * (bits_at(b + 2 + e % 16, e / 16 * 4, 4) - 8);
}

static double q2_k(const unsigned char *b, int e) {
  int part = e / 128, plane = e / 32 % 4, lane = e % 32;
  int code = bits_at(b + 16 + 32 * part + lane, 2 * plane, 2);
  const unsigned char *s = b + e / 16;
  return half_at(b + 80) * bits_at(s, 0, 4) * code - half_at(b + 82) * bits_at(s, 4, 4);
}

/* d s c - m t of the group g of 32; p is 12 bytes. */
static double with_scales(const unsigned char *b, const unsigned char *p, int g, int code) {
  int s, t;
  if (g < 4) {
    s = bits_at(p + g, 0, 6);
    t = bits_at(p + 4 + g, 0, 6);
  } else {
    s = bits_at(p + 4 + g, 0, 4) + 16 * bits_at(p + g - 4, 6, 2);
    t = bits_at(p + 4 + g, 4, 4) + 16 * bits_at(p + g, 6, 2);
  }
  return half_at(b) * s * code - half_at(b + 2) * t;
}

static double q4_k(const unsigned char *b, int e) {
  int code = bits_at(b + 16 + e / 64 * 32 + e % 32, e / 32 % 2 * 4, 4);
  return with_scales(b, b + 4, e / 32, code);
}

static double q5_k(const unsigned char *b, int e) {
  int code = bits_at(b + 48 + e / 64 * 32 + e % 32, e / 32 % 2 * 4, 4);
  return with_scales(b, b + 4, e / 32, code + 16 * bits_at(b + 16 + e % 32, e / 32, 1));
}

static double q6_k(const unsigned char *b, int e) {
  int part = e / 128, plane = e / 32 % 4, lane = e % 32;
  int low = bits_at(b + 64 * part + lane + (plane % 2 ? 32 : 0), plane < 2 ? 0 : 4, 4);
  int high = bits_at(b + 128 + 32 * part + lane, 2 * plane, 2);
  return half_at(b + 208) * signed_at(b + 192 + e / 16) * (low + 16 * high - 32);
}

static double q4_1(const unsigned char *b, int e) {
  return half_at(b) * bits_at(b + 4 + e % 16, e / 16 * 4, 4) + half_at(b + 2);
}

static double q5_0(const unsigned char *b, int e) {
  return half_at(b) * (bits_at(b + 6 + e % 16, e / 16 * 4, 4) + 16 * bits_at(b + 2, e, 1) - 16);
}

static double q5_1(const unsigned char *b, int e) {
  return half_at(b) * (bits_at(b + 8 + e % 16, e / 16 * 4, 4) + 16 * bits_at(b + 4, e, 1)) + half_at(b + 2);
}

static double q3_k(const unsigned char *b, int e) {
  const unsigned char *p = b + 96;
  int part = e / 128, plane = e / 32 % 4, lane = e % 32, g = e / 16;
  int s = bits_at(p + g % 8, g < 8 ? 0 : 4, 4) + 16 * bits_at(p + 8 + g % 4, g / 4 * 2, 2);
  int code = bits_at(b + 32 + 32 * part + lane, 2 * plane, 2) - (bits_at(b + lane, e / 32, 1) ? 0 : 4);
  return half_at(b + 108) * (s - 32) * code;
}

static double uneven(int code) {
  static const double values[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return values[code];
}

static double iq4_nl(const unsigned char *b, int e) {
  return half_at(b) * uneven(bits_at(b + 2 + e % 16, e / 16 * 4, 4));
}

static double iq4_xs(const unsigned char *b, int e) {
  int g = e / 32, s = bits_at(b + 4, 4 * g, 4) + 16 * bits_at(b + 2, 2 * g, 2);
  return half_at(b) * (s - 32) * uneven(bits_at(b + 8 + 16 * g + e % 16, e / 16 % 2 * 4, 4));
}

/* The bits of E2M1, and of the power of two before it. */
static double mxfp4(const unsigned char *b, int e) {
  int code = bits_at(b + 1 + e % 16, e / 16 * 4, 4), power = code >> 1 & 3, half = code & 1;
  double x = power ? ldexp(1 + half / 2.0, power - 1) : half / 2.0;
  return ldexp(code & 8 ? 0 - x : x, *b - 127); /* no negative zero */
}

/* Digit k, the largest first, of the number below 3^5 that the byte is 256/243 times. */
static double ternary(int byte, int k) {
  int all = byte * 243 / 256;
  for (int i = k; i < 4; i++) all /= 3;
  return all % 3 - 1;
}

static double tq1_0(const unsigned char *b, int e) {
  double d = half_at(b + 52);
  if (e < 160) return d * ternary(b[e % 32], e / 32);
  if (e < 240) return d * ternary(b[32 + e % 16], (e - 160) / 16);
  return d * ternary(b[48 + e % 4], (e - 240) / 4);
}

static double tq2_0(const unsigned char *b, int e) {
  return half_at(b + 64) * (bits_at(b + 32 * (e / 128) + e % 32, e / 32 % 4 * 2, 2) - 1);
}

static double e4m3(const unsigned char *b, int e) {
  int power = *b >> 3 & 15;
  double x = ldexp((power ? 1 : 0) + (*b & 7) / 8.0, (power ? power : 1) - 7);
  (void)e;
  return *b & 128 ? -x : x;
}

static double e5m2(const unsigned char *b, int e) {
  int power = *b >> 2 & 31;
  double x = ldexp((power ? 1 : 0) + (*b & 3) / 4.0, (power ? power : 1) - 15);
  (void)e;
  return *b & 128 ? -x : x;
}

/* The 256 rows of eight lengths, read off blocks whose d (w + 1/2) / 4 is 1 and which have no signs. */
static unsigned char lengths[256][8];

static void read_lengths(void) {
  unsigned char block[66] = {0, 0x48}; /* 8 */
  float x[256];
  const tensor t = {.name = "t", .file = "f", .format = &tensor_iq2_xxs, .count = 256, .at = block};
  for (int first = 0; first < 256; first += 32) {
    for (int i = 0; i < 32; i++) block[2 + i / 4 * 8 + i % 4] = (unsigned char)(first + i);
    assert_ok(tensor_to_f32(&t, 0, 256, x));
    for (int i = 0; i < 256; i++) {
      cr_assert(x[i] >= 8 && x[i] <= 43);
      lengths[first + i / 8][i % 8] = (unsigned char)x[i];
    }
  }
}

static double iq2_xxs(const unsigned char *b, int e) {
  const unsigned char *group = b + 2 + e / 32 * 8, *w = group + 4;
  int eighth = e % 32 / 8, k = e % 8, ones = 0;
  for (int i = 0; i < 7; i++) ones += bits_at(w, 7 * eighth + i, 1);
  int negative = k < 7 ? bits_at(w, 7 * eighth + k, 1) : ones % 2;
  double x = half_at(b) * (bits_at(w, 28, 4) + 0.5) / 4 * lengths[group[eighth]][k];
  return negative ? -x : x;
}

/* ---- the tests ----------------------------------------------------------------------------------------- */

static const struct {
  const tensor_format *format;
  double (*element)(const unsigned char *block, int e);
  int halves[2]; /* where the block has binary16 numbers; -1: the upper byte alone, of any exponent */
} formats[] = {{&tensor_q8_0, q8_0, {0, NONE}},       {&tensor_q4_0, q4_0, {0, NONE}},
               {&tensor_q2_k, q2_k, {80, 82}},        {&tensor_q4_k, q4_k, {0, 2}},
               {&tensor_q5_k, q5_k, {0, 2}},          {&tensor_q6_k, q6_k, {208, NONE}},
               {&tensor_iq2_xxs, iq2_xxs, {0, NONE}}, {&tensor_q4_1, q4_1, {0, 2}},
               {&tensor_q5_0, q5_0, {0, NONE}},       {&tensor_q5_1, q5_1, {0, 2}},
               {&tensor_q3_k, q3_k, {108, NONE}},     {&tensor_iq4_nl, iq4_nl, {0, NONE}},
               {&tensor_iq4_xs, iq4_xs, {0, NONE}},   {&tensor_mxfp4, mxfp4, {-1, NONE}},
               {&tensor_tq1_0, tq1_0, {52, NONE}},    {&tensor_tq2_0, tq2_0, {64, NONE}},
               {&tensor_e4m3, e4m3, {-1, NONE}},      {&tensor_e5m2, e5m2, {-1, NONE}}};

/* Random bytes that encode no infinite number or NaN. */
static unsigned char *random_blocks(size_t f, int64_t count) {
  const int64_t bytes = formats[f].format->bytes;
  unsigned char *at = malloc((size_t)(count * bytes));
  attn_rng rng = rng_of(5, f, 0);
  for (int64_t i = 0; i < count * bytes; i++) at[i] = (unsigned char)attn_rng_below(&rng, 256);
  for (int64_t i = 0; i < count; i++)
    for (int h = 0; h < 2; h++) {
      unsigned char *high = at + i * bytes + formats[f].halves[h] + 1;
      if (formats[f].halves[h] > NONE && (*high & 0x7c) == 0x7c) *high ^= 0x40;
    }
  return at;
}

Test(data_blocks, every_element_is_its_definition_rounded_once) {
  read_lengths();
  for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
    const tensor_format *format = formats[f].format;
    const int64_t block = format->block, count = BLOCKS * block;
    unsigned char *at = random_blocks(f, BLOCKS);
    float *x = malloc((size_t)count * sizeof *x);
    const tensor t = {.name = "t", .file = "f", .format = format, .count = count, .at = at};
    assert_ok(tensor_to_f32(&t, 0, count, x));
    for (int64_t i = 0; i < count; i++) {
      /* Exact in fp64: all terms are multiples of 2^-24 below 2^28. */
      float wanted = (float)formats[f].element(at + i / block * format->bytes, (int)(i % block));
      cr_assert(memcmp(&x[i], &wanted, 4) == 0, "%s block %d element %d: %.9g, not %.9g", format->name,
                (int)(i / block), (int)(i % block), (double)x[i], (double)wanted);
    }
    free(at), free(x);
  }
}

Test(data_blocks, a_slice_is_whole_blocks) {
  for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
    const int64_t block = formats[f].format->block;
    unsigned char *at = random_blocks(f, 4);
    float *all = malloc((size_t)(4 * block) * sizeof *all),
          *part = malloc((size_t)(4 * block) * sizeof *part);
    const tensor t = {.name = "w", .file = "f", .format = formats[f].format, .count = 4 * block, .at = at};
    assert_ok(tensor_to_f32(&t, 0, 4 * block, all));
    assert_ok(tensor_to_f32(&t, block, 2 * block, part));
    cr_assert_arr_eq(part, all + block, (size_t)(2 * block) * sizeof *part);
    if (block > 1) assert_refused(tensor_to_f32(&t, 1, block, part), ATTN_EINVAL, "tensor w");
    if (block > 1) assert_refused(tensor_to_f32(&t, block, block / 2, part), ATTN_EINVAL, "whole blocks");
    free(at);
    free(all);
    free(part);
  }
}

Test(data_blocks, the_rows_of_lengths_are_those_of_the_format) {
  /* SHA-256 of iq2xxs_grid of ggml-common.h, 256 little-endian words of eight bytes. */
  char hex[65];
  read_lengths();
  data_sha256(lengths, sizeof lengths, hex);
  cr_assert_str_eq(hex, "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54");
}

Test(data_blocks, numbers_of_eight_bits_end_where_their_formats_do) {
  const unsigned char at[] = {0x7e, 0x7f, 0xff, 0x80}, wider[] = {0x7b, 0x7c, 0xfe, 0x80};
  float x[4];
  assert_ok(tensor_to_f32(&(tensor){.format = &tensor_e4m3, .at = at}, 0, 4, x));
  cr_assert(fabsf(x[0] - 448) <= 0 && isnan(x[1]) && isnan(x[2]) && fabsf(x[3]) <= 0 && signbit(x[3]));
  assert_ok(tensor_to_f32(&(tensor){.format = &tensor_e5m2, .at = wider}, 0, 4, x));
  cr_assert(fabsf(x[0] - 57344) <= 0 && isinf(x[1]) && isnan(x[2]) && fabsf(x[3]) <= 0 && signbit(x[3]));
}

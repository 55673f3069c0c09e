/* number.c - the table of number types: every f16 and every bf16 there and back, and roundings at the places
 * where a conversion goes wrong: ties, overflow, subnormals, NaN, and fp64 that must not be rounded twice. */
#include "tests/support/core.h"

/* The value by its definition: sign, exponent and fraction. */
static double defined(uint16_t x, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1,
            top = (1 << exponent_bits) - 1, e = x >> fraction_bits & top, f = x & ((1 << fraction_bits) - 1);
  const double sign = x >> 15 ? -1 : 1;
  if (e == top) return f ? (double)NAN : sign * (double)INFINITY;
  return sign *
         (e ? ldexp(f + (1 << fraction_bits), e - bias - fraction_bits) : ldexp(f, 1 - bias - fraction_bits));
}

static int exponent_bits(attn_dtype t) { return t == (attn_dtype)ATTN_F16 ? 5 : 8; }

static bool alike(double a, double b) {
  return isnan(a) ? isnan(b) : !(a < b) && !(a > b) && signbit(a) == signbit(b);
}

static uint16_t stored(attn_dtype t, double x) {
  uint16_t out = 0;
  attn_numbers[t].store(&x, 1, &out);
  return out;
}

static double loaded(attn_dtype t, const uint16_t *x) {
  double out = 0;
  attn_numbers[t].load(x, 1, &out);
  return out;
}

static const attn_dtype halves[] = {ATTN_F16, ATTN_BF16};

Test(core_number, every_half_there_and_back) {
  for (int h = 0; h < 2; h++)
    for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
      const uint16_t x = (uint16_t)bits;
      const double want = defined(x, exponent_bits(halves[h])), got = loaded(halves[h], &x);
      if (!alike(got, want)) note_failure("%s %04x: %a, not %a", attn_numbers[halves[h]].name, x, got, want);
      if (isnan(want) ? !isnan(attn_rounded(want, halves[h])) : stored(halves[h], want) != x)
        note_failure("%s %04x does not come back", attn_numbers[halves[h]].name, x);
      EXPECT(attn_all_finite(&x, 1, 1, 1, halves[h]) == isfinite(want));
    }
}

/* Between neighbours a < b: below the middle a, above b, the middle itself the even one, whether fp32 holds
 * it or not. */
Test(core_number, roundings_are_to_nearest_and_even) {
  for (int h = 0; h < 2; h++)
    for (uint16_t x = 0; isfinite(defined((uint16_t)(x + 1), exponent_bits(halves[h]))); x++) {
      const double a = defined(x, exponent_bits(halves[h])),
                   b = defined((uint16_t)(x + 1), exponent_bits(halves[h])), middle = a / 2 + b / 2;
      const uint16_t even = x % 2 ? (uint16_t)(x + 1) : x;
      if (stored(halves[h], middle) != even || stored(halves[h], nextafter(middle, 0)) != x ||
          stored(halves[h], nextafter(middle, b)) != x + 1 || stored(halves[h], -middle) != (even | 0x8000))
        note_failure("%s: a number between %a and %a", attn_numbers[halves[h]].name, a, b);
    }
}

Test(core_number, what_is_too_large_is_infinite) {
  for (int h = 0; h < 2; h++) {
    const attn_number *n = &attn_numbers[halves[h]];
    const double limit = n->largest * (1 + n->unit / (2 - 2 * n->unit)); /* half a unit above */
    EXPECT(attn_rounded(nextafter(limit, 0), halves[h]) <= n->largest);
    EXPECT(isinf(attn_rounded(limit, halves[h])) && isinf(attn_rounded(1e300, halves[h])));
    EXPECT(attn_rounded(-1e300, halves[h]) < 0);
    EXPECT(attn_rounded(n->subnormal / 2, halves[h]) <= 0);
    EXPECT(attn_rounded(nextafter(n->subnormal / 2, 1), halves[h]) > 0);
    EXPECT(attn_rounded(1e-320, halves[h]) <= 0 && signbit(attn_rounded(-1e-320, halves[h])));
  }
}

/* The members of the table, from the numbers themselves. */
Test(core_number, table) {
  for (attn_dtype t = ATTN_F32; (int)t < ATTN_DTYPES; t++) {
    const attn_number *n = &attn_numbers[t];
    attn_dtype found = ATTN_F32;
    EXPECT(attn_dtype_find(n->name, &found) && found == t);
    EXPECT(n->bytes == attn_dtype_size(t) && attn_numbers[n->arithmetic].arithmetic == n->arithmetic);
    EXPECT(attn_rounded(1 + n->unit, t) <= 1 && attn_rounded(1 + 2 * n->unit, t) > 1);
    EXPECT(isfinite(attn_rounded(n->largest, t)) && !(attn_rounded(n->largest, t) < n->largest) &&
           isinf(attn_rounded(n->largest * (1 + 2 * n->unit), t)));
    EXPECT(attn_rounded(n->subnormal, t) > 0 && !(n->normal * n->unit * 2 > n->subnormal));
  }
  attn_dtype none = ATTN_F64;
  EXPECT(!attn_dtype_find("f8", &none) && none == (attn_dtype)ATTN_F64);
}

/* Rows of kernels are those of the table, for lengths beside those of vectors, and nothing beside them is
 * touched. */
Test(core_number, rows_of_kernels) {
  enum { MOST = 67 };
  for (const char *const *isa = isas_under_test(); *isa; isa++) {
    const attn_problem p = attn_problem_make(1, 1, 4, 4);
    attn_view view;
    attn_plan *plan = plan_inspected(&p, "tiled", &(attn_options){.isa = *isa}, &view);
    const attn_kernels *kernels = attn_plan_context(plan)->kernels;
    for (int h = 0; h < 2; h++)
      for (uint32_t first = 0; first <= UINT16_MAX; first += MOST) {
        const int64_t count = first / MOST % MOST + 1;
        uint16_t x[MOST], back[MOST + 1];
        float wide[MOST + 1];
        for (int64_t i = 0; i < count; i++) x[i] = (uint16_t)(first + (uint32_t)i);
        wide[count] = 7;
        back[count] = 7;
        attn_load_row(kernels, halves[h], count, x, wide);
        attn_store_row(kernels, halves[h], count, wide, back);
        EXPECT(wide[count] >= 7 && wide[count] <= 7 && back[count] == 7);
        for (int64_t i = 0; i < count; i++) {
          const double want = loaded(halves[h], x + i);
          if (!alike((double)wide[i], want) ||
              (isnan(want) ? !isnan(loaded(halves[h], back + i)) : back[i] != x[i]))
            note_failure("%s %s %04x: %a", *isa, attn_numbers[halves[h]].name, x[i], (double)wide[i]);
        }
        /* Numbers that have to be rounded: the last bits of fp32 are set. */
        for (int64_t i = 0; i < count; i++) wide[i] *= 1 + 0x1p-9f + 0x1p-12f + (float)i * 0x1p-20f;
        attn_store_row(kernels, halves[h], count, wide, back);
        for (int64_t i = 0; i < count; i++)
          if (!isnan(wide[i]) && back[i] != stored(halves[h], (double)wide[i]))
            note_failure("%s %s: %a is stored as %04x", *isa, attn_numbers[halves[h]].name, (double)wide[i],
                         back[i]);
      }
    attn_plan_destroy(plan);
  }
}

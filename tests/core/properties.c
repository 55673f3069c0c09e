/* properties.c - every property over every registered variant; the bitwise ones under every
 * instruction set, the real ones (whose mathematics is the same) under the best, and the oracle under all. */
#include "tests/support/core.h"
#include "tests/support/properties.h"

#include <criterion/parameterized.h>

enum { VARIANTS_MAX = 128 };

/* An emulator is left to what differs between instruction sets. */
#ifdef EMULATED
enum { REAL_ISAS = 0 };
#else
enum { REAL_ISAS = 1 };
#endif

static int indices[VARIANTS_MAX];

static struct criterion_test_params variant_params(void) {
  size_t count = attn_variant_count() < VARIANTS_MAX ? attn_variant_count() : VARIANTS_MAX;
  for (size_t k = 0; k < count; k++) indices[k] = (int)k;
  return cr_make_param_array(int, indices, count);
}

static void run(const property *table, int variant, const char *isa) {
  int applied[PROPERTIES_MAX] = {0};
  property_suite_run(table, attn_variant_at((size_t)variant), isa, false, applied);
}

ParameterizedTestParameters(core_properties, exact) { return variant_params(); }

ParameterizedTest(int *variant, core_properties, exact) {
  for (const char *const *isa = isas_under_test(); *isa; isa++) run(properties_exact, *variant, *isa);
}

ParameterizedTestParameters(core_properties, real) { return variant_params(); }

ParameterizedTest(int *variant, core_properties, real) {
  if (REAL_ISAS) run(properties_real, *variant, isas_under_test()[0]);
}

ParameterizedTestParameters(core_properties, oracle_of_every_isa) { return variant_params(); }

ParameterizedTest(int *variant, core_properties, oracle_of_every_isa) {
  property only[2] = {{.name = NULL}, {.name = NULL}};
  for (const property *p = properties_real; p->name; p++)
    if (strcmp(p->name, "oracle") == 0) only[0] = *p;
  cr_assert_not_null(only[0].name);
  for (const char *const *isa = isas_under_test() + REAL_ISAS; *isa; isa++) run(only, *variant, *isa);
}

/* No gate is so narrow that a property tests nothing. */
static void expect_all_applied(const property *table) {
  int applied[PROPERTIES_MAX] = {0};
  for (size_t v = 0; v < attn_variant_count(); v++)
    property_suite_run(table, attn_variant_at(v), NULL, true, applied);
  for (int k = 0; table[k].name; k++) cr_assert(applied[k] > 0, "%s applied to nothing", table[k].name);
}

Test(core_properties, each_applies_somewhere) {
  cr_assert(attn_variant_count() >= 6 && attn_variant_count() <= VARIANTS_MAX);
  cr_assert_not_null(isas_under_test()[0]);
  expect_all_applied(properties_exact);
  expect_all_applied(properties_real);
}

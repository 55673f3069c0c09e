/* test_core_properties.c - every property over every registered variant; the real ones under every
 * instruction set. */
#include "properties.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

enum { EXACT_COUNT = 13, REAL_COUNT = 6 };

static int indices[EXACT_COUNT + REAL_COUNT];

static struct criterion_test_params index_params(int count) {
  for (int k = 0; k < count; k++) indices[k] = k;
  return cr_make_param_array(int, indices, (size_t)count);
}

static void expect_applied(const property *p, const char *isa) {
  int applied = property_run(p, isa);
  cr_assert(applied > 0, "%s applied to nothing", p->name);
  cr_assert(failures_noted() == 0, "%s: %d failures", p->name, failures_noted());
}

Test(core_properties, tables_are_covered) {
  cr_assert_null(properties_exact[EXACT_COUNT].name);
  cr_assert_null(properties_real[REAL_COUNT].name);
  for (int k = 0; k < EXACT_COUNT; k++) cr_assert_not_null(properties_exact[k].name);
  for (int k = 0; k < REAL_COUNT; k++) cr_assert_not_null(properties_real[k].name);
}

ParameterizedTestParameters(core_properties, exact) { return index_params(EXACT_COUNT); }

ParameterizedTest(int *index, core_properties, exact) { expect_applied(&properties_exact[*index], NULL); }

ParameterizedTestParameters(core_properties, real) { return index_params(REAL_COUNT); }

ParameterizedTest(int *index, core_properties, real) { expect_applied(&properties_real[*index], NULL); }

/* The best instruction set is the one above. */
ParameterizedTestParameters(core_properties, every_isa) { return index_params(REAL_COUNT); }

ParameterizedTest(int *index, core_properties, every_isa) {
  const char *const *isa = attn_isa_list();
  cr_assert_not_null(isa[0]);
  for (int k = 1; isa[k]; k++) expect_applied(&properties_real[*index], isa[k]);
}

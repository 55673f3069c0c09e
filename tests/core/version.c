/* version.c - the version, ABI and struct sizes that callers in other languages compare with their own. */
#include "attn_variant.h"

#include <criterion/criterion.h>
#include <stdio.h>

Test(core_version, sizes_are_those_of_the_header) {
  static const struct {
    const char *name;
    size_t bytes;
  } known[] = {{"problem", sizeof(attn_problem)},
               {"options", sizeof(attn_options)},
               {"cost", sizeof(attn_cost)},
               {"stride", sizeof(attn_stride)},
               {"view", sizeof(attn_view)},
               {"variant", sizeof(attn_variant)},
               {"context", sizeof(attn_context)},
               {"call", sizeof(attn_call)},
               {"param", sizeof(attn_param)},
               {"feature_law", sizeof(attn_feature_law)},
               {"budget", sizeof(attn_budget)},
               {"attn_problem", 0},
               {"problems", 0},
               {"", 0}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    cr_expect(attn_sizeof(known[i].name) == known[i].bytes, "%s: %zu", known[i].name,
              attn_sizeof(known[i].name));
}

Test(core_version, names_itself) {
  cr_expect(attn_abi() == ATTN_ABI);
  int parts[3], end = 0;
  cr_expect(sscanf(attn_version(), "%d.%d.%d%n", &parts[0], &parts[1], &parts[2], &end) == 3 &&
                !attn_version()[end],
            "%s", attn_version());
}

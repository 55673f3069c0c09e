/* specs.c - labels of settings, and the specs of a configuration. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "experiments/grid/grid.h"
#include "experiments/support/label.h"
#include "tests/support/spec.h"

static void expect_text(attn_status status, char **got, const char *expected) {
  cr_expect_eq(status, ATTN_OK, "%s", attn_last_error());
  cr_expect_str_eq(*got, expected);
  free(*got);
}

Test(specs, labels) {
  const attn_spec *spec = spec_of("streaming:sink=2,window=512 + lsh:rounds=3,seed=5"),
                  *one = spec_of("lsh:seed=7"), *budget = spec_of("lsh");
  char *label = NULL, *with_budget = NULL;
  expect_text(label_make(spec, false, &label), &label, "streaming:sink=2,window=512 + lsh:rounds=3");
  expect_text(label_make(spec, true, &label), &label, "streaming:sink=2,window=512 + lsh:rounds=3,seed=5");
  cr_assert_eq(label_make(budget, false, &with_budget), ATTN_OK);
  cr_expect(strncmp(with_budget, "lsh:rounds=", 11) == 0, "the budget stays: %s", with_budget);
  expect_text(label_make(one, false, &label), &label, with_budget);
  expect_text(label_method(with_budget, "lsh", &label), &label, "lsh");
  free(with_budget);
  expect_text(label_method("topk:k=1,by=hash,r=3", "topk", &label), &label, "topk:by=hash,r=3");
  expect_text(label_method("lsh:gone=1,rounds=2,b=3", "lsh", &label), &label, "lsh:gone=1,b=3");
  expect_text(label_method("gone:rounds=1,k=2", "gone", &label), &label, "gone:rounds=1,k=2");
  expect_text(label_of_text("gone:a=1", &label), &label, "gone:a=1");
  expect_text(label_of_text("lsh:rounds=3,seed=0", &label), &label, "lsh:rounds=3");
  /* Parameters of streaming, then those of lsh. */
  expect_text(label_without(spec, 0, &label), &label, "streaming:window=512 + lsh:rounds=3,seed=5");
  expect_text(label_without(spec, 1, &label), &label, "streaming:sink=2 + lsh:rounds=3,seed=5");
  cr_expect(label_without(spec, 1000, &label) == ATTN_OK && !label);
}

/* -- in a configuration -- */

Test(specs, expressions_in_a_configuration) {
  static const char text[] = "schema: 1\n"
                             "grid: {n: [64, 128], d: 8, causal: yes, seed: [3, 4]}\n"
                             "variants:\n"
                             "  - streaming:sink=4 + lsh:rounds=2\n"
                             "  - 0.5*tiled + 0.5*topk:k=8\n"
                             "  - tiled + bigbird:seed=9\n"
                             "datasets: [gaussian]\n"
                             "exclude: [{variant: \"0.5*tiled+.5*topk:k=8\", n: 128}]\n"
                             "nulls: no\n";
  config *c = NULL;
  grid g = {0};
  cr_assert_eq(config_parse("x.yaml", text, strlen(text), NULL, 0, &c), ATTN_OK, "%s", attn_last_error());
  cr_assert_eq(grid_expand(c, "scalar", 1, &g), ATTN_OK, "%s", attn_last_error());
  cr_assert_eq(g.count, 2);
  size_t runs = 0, seeded = 0, sums = 0, fixed = 0;
  for (size_t b = 0; b < g.count; b++)
    for (size_t r = 0; r < g.blocks[b].count; r++, runs++) {
      const grid_run *run = &g.blocks[b].runs[r];
      seeded += !strcmp(run->variant, "streaming + lsh:rounds=2") && (run->seed == 3 || run->seed == 4) &&
                (int64_t)attn_spec_number(run->spec, "seed") == run->seed;
      sums += !strcmp(run->variant, "0.5*tiled + 0.5*topk:k=8") && g.blocks[b].n == 64;
      fixed += !strcmp(run->variant, "tiled + bigbird") && run->seed == 9;
    }
  cr_expect_eq(runs, 7);
  cr_expect_eq(seeded, 4);
  cr_expect_eq(sums, 1);
  cr_expect_eq(fixed, 2);
  grid_free(&g);
  config_free(c);
}

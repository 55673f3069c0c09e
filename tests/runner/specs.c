/* specs.c - parameters in the texts of specs: of one variant, and of every term of an expression. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "experiments/grid/grid.h"
#include "experiments/support/spec.h"

static char *canonical(const char *text) {
  attn_spec *spec = NULL;
  cr_assert_eq(attn_spec_parse(&spec, text), ATTN_OK, "%s", attn_last_error());
  char *copy = strdup(spec->text);
  attn_spec_destroy(spec);
  cr_assert_not_null(copy);
  return copy;
}

static void expect_text(attn_status status, char *got, const char *expected) {
  char *same = canonical(expected);
  cr_assert_eq(status, ATTN_OK, "%s", attn_last_error());
  char *whole = canonical(got);
  cr_expect_str_eq(whole, same);
  free(whole);
  free(same);
  free(got);
}

Test(specs, a_parameter_of_every_term_that_has_it) {
  static const char *const texts[] =
      {"lsh:rounds=3,seed=5", "streaming:sink=2 + lsh:rounds=3,seed=5",
       "0.5*(bigbird:seed=5 + lsh:seed=5) - 2*dyadic(lsh:rounds=1,seed=5,base=64)"},
                           *const seeded[] = {"lsh:rounds=3,seed=9", "streaming:sink=2 + lsh:rounds=3,seed=9",
                                              ("0.5*(bigbird:seed=9 + lsh:seed=9) - "
                                               "2*dyadic(lsh:rounds=1,seed=9,base=64)")},
                           *const bare[] = {"lsh:rounds=3", "streaming:sink=2 + lsh:rounds=3",
                                            "0.5*(bigbird + lsh) - 2*dyadic(lsh:rounds=1,base=64)"};
  for (int i = 0; i < 3; i++) {
    char *spec = canonical(texts[i]), *out = NULL;
    attn_status status;
    cr_expect_eq(spec_number(spec, "seed"), 5);
    cr_expect(spec_names(spec, "seed") && !spec_names(spec, "features"));
    status = spec_with(spec, "seed", 9, &out);
    expect_text(status, out, seeded[i]);
    status = spec_without(spec, "seed", &out);
    expect_text(status, out, bare[i]);
    cr_expect_eq(spec_with(spec, "features", 9, &out), ATTN_EINVAL);
    cr_expect_eq(spec_with(spec, NULL, 9, &out), ATTN_EINVAL);
    status = spec_without(spec, NULL, &out);
    expect_text(status, out, texts[i]);
    cr_expect_eq(spec_value(spec, "rounds", &out), ATTN_OK);
    free(out);
    cr_expect_eq(spec_value(spec, "features", &out), ATTN_EINVAL);
    free(spec);
  }
}

/* Seeds beyond the last begin again; a parameter of another name in a term is its own. */
Test(specs, seeds_go_round) {
  static const char last[] = "1000000000000000";
  static const char *const texts[] = {"lsh:seed=%s", "streaming:sink=2 + lsh:seed=%s", "magicpig:seed=%s"};
  for (int i = 0; i < 3; i++)
    for (int step = 0; step < 3; step++) {
      char text[96], want[96], *out = NULL;
      snprintf(text, sizeof text, texts[i], last);
      snprintf(want, sizeof want, texts[i], step == 0 ? last : step == 1 ? "0" : "7918");
      char *spec = canonical(text);
      const attn_status status =
          spec_seed(spec, "seed", spec_number(spec, "seed") + (step == 2 ? 7919 : step), &out);
      expect_text(status, out, want);
      free(spec);
    }
  char *out = NULL;
  cr_expect_eq(spec_seed("lsh", NULL, 1, &out), ATTN_EINVAL);
}

Test(specs, what_a_text_names_before_it_is_canonical) {
  cr_expect(!spec_names("streaming:sink=4 + lsh:rounds=2", "seed"));
  cr_expect(spec_names("streaming:sink=4+lsh:rounds=2,seed=3", "seed"));
  cr_expect(spec_names("lsh:seed=3 + topk", "seed"));
}

Test(specs, short_texts_of_expressions) {
  char *spec = canonical("streaming:sink=2,window=512 + lsh:rounds=3,seed=5"), *bare = NULL, *label = NULL;
  cr_assert_eq(spec_without(spec, "seed", &bare), ATTN_OK);
  cr_assert_eq(spec_short(bare, &label), ATTN_OK);
  cr_expect_str_eq(label, "streaming:sink=2,window=512 + lsh:rounds=3");
  free(label);
  free(bare);
  free(spec);
}

typedef struct seen {
  int count;
  char names[100];
} seen;
static attn_status see(void *context, const attn_spec *atom) {
  seen *x = context;
  x->count++;
  strcat(x->names, atom->variant->name);
  return x->count == 3 ? attn_fail(ATTN_EFOREIGN, "enough") : ATTN_OK;
}

Test(specs, the_variants_of_a_spec) {
  attn_spec *spec = NULL;
  seen x = {0};
  cr_assert_eq(attn_spec_parse(&spec, "0.5*(streaming + lsh) + 0.5*dyadic(tiled)"), ATTN_OK);
  cr_expect_eq(spec_each(spec, see, &x), ATTN_EFOREIGN);
  cr_expect_str_eq(x.names, "streaminglshtiled");
  attn_spec_destroy(spec);
  x = (seen){0};
  cr_assert_eq(attn_spec_parse(&spec, "lsh"), ATTN_OK);
  cr_expect_eq(spec_each(spec, see, &x), ATTN_OK);
  cr_expect_str_eq(x.names, "lsh");
  attn_spec_destroy(spec);
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
                spec_number(run->spec, "seed") == run->seed;
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

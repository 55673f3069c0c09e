/* config.c - YAML configurations: what is read, and what is no text. Where others are refused is in
 * tests/cli/cases/errors_yaml.txt. */
#include <sys/resource.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "experiments/grid/config.h"
#include "experiments/results/row.h"
#include "tests/support/basics/kept.h"
#include "tests/support/basics/text.h"

#define HEAD "schema: 1\ngrid: {n: 64}\n"
#define TAIL "variants: full\ndatasets: gaussian\n"

static void release_config(void *kept) { config_free(*(config **)kept); }

/* Kept, as what is loaded. */
static config *parse(const char *text, const char *const *overrides, size_t count) {
  config *c = NULL;
  const attn_status status = config_parse("x.yaml", text, strlen(text), overrides, count, &c);
  cr_assert_eq(status, ATTN_OK, "%s", attn_last_error());
  keep_copy(&c, sizeof c, release_config);
  return c;
}

static void expect_ints(const value_ints *list, const int64_t *expected, size_t count) {
  cr_assert_eq(list->count, count);
  for (size_t i = 0; i < count; i++) cr_expect_eq(list->items[i], expected[i], "item %zu", i);
}

#define EXPECT_INTS(list, ...)                         \
  expect_ints(&(list), (const int64_t[]){__VA_ARGS__}, \
              sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

Test(config, presets) {
  config *c = parse(HEAD TAIL, NULL, 0);
  EXPECT_INTS(c->n, 64);
  EXPECT_INTS(c->heads, 4);
  EXPECT_INTS(c->kv_heads, 0);
  EXPECT_INTS(c->d, 64);
  EXPECT_INTS(c->seed, 0);
  EXPECT_INTS(c->data_seed, 0);
  EXPECT_INTS(c->causal, 0);
  EXPECT_INTS(c->dtype, ATTN_F32);
  EXPECT_INTS(c->threads, 0);
  EXPECT_INTS(c->cache, CACHE_WARM);
  cr_expect(c->nulls);
  cr_expect_eq(c->maps, 0);
  cr_expect_eq(c->budget_time, 60);
  cr_expect_eq(c->budget_memory, INT64_C(8) << 30);
  cr_expect_eq(c->variants.count, 1);
  cr_expect_str_eq(c->variants.items[0].text, "full");
  cr_expect_null(c->variants.items[0].seed);
  cr_expect_str_eq(c->text, HEAD TAIL);
}

Test(config, ranges_lists_and_suffixes) {
  config *c =
      parse("schema: 1\n"
            "grid: {n: [512:8Ki:x2, 100], heads: 1:7:3, seed: 0:3, causal: [no, yes], dtype: [f64, f32]}\n"
            "budget: {time: 2.5, memory: 3Mi}\nthreads: [1, 2]\nnulls: no\nmaps: 1Ki\n"
            "timing: {min_time: 0.01, max_time: 0.5, samples: 7}\n" TAIL,
            NULL, 0);
  EXPECT_INTS(c->n, 512, 1024, 2048, 4096, 8192, 100);
  EXPECT_INTS(c->heads, 1, 4, 7);
  EXPECT_INTS(c->seed, 0, 1, 2, 3);
  EXPECT_INTS(c->causal, 0, 1);
  EXPECT_INTS(c->dtype, ATTN_F64, ATTN_F32);
  EXPECT_INTS(c->threads, 1, 2);
  cr_expect_not(c->nulls);
  cr_expect_eq(c->maps, 1024);
  cr_expect_eq(c->budget_time, 2.5);
  cr_expect_eq(c->budget_memory, 3 << 20);
  cr_expect_eq(c->timing.min_time, 0.01);
  cr_expect_eq(c->timing.max_time, 0.5);
  cr_expect_eq(c->timing.samples, 7);
  cr_expect_eq(c->timing.rounds, timing_defaults().rounds);
}

Test(config, a_range_that_misses_its_end_stops_before_it) {
  config *c = parse("schema: 1\ngrid: {n: [5:12:3, 3:20:x2]}\n" TAIL, NULL, 0);
  EXPECT_INTS(c->n, 5, 8, 11, 3, 6, 12);
}

Test(config, parameters_make_a_cross_product) {
  config *c =
      parse(HEAD "variants:\n  - full\n  - tiled: {block_q: [16, 32], block_k: 64:128:x2}\n  - tiled\n"
                 "datasets:\n  - gaussian: {std_q: [0.5:1:0.25, 0.1:0.3:0.1, 2:32:x4]}\n  - gaussian:\n",
            NULL, 0);
  static const char *const variants[] = {"full",
                                         "tiled:block_q=16,block_k=64",
                                         "tiled:block_q=16,block_k=128",
                                         "tiled:block_q=32,block_k=64",
                                         "tiled:block_q=32,block_k=128",
                                         "tiled"};
  static const char *const deviations[] = {"0.5", "0.75", "1", "0.1", "0.2", "0.3", "2", "8", "32"};
  cr_assert_eq(c->variants.count, 6);
  for (size_t i = 0; i < 6; i++) cr_expect_str_eq(c->variants.items[i].text, variants[i]);
  cr_assert_eq(c->datasets.count, 10);
  for (size_t i = 0; i < 9; i++)
    cr_expect_str_eq(c->datasets.items[i].text, text_of("gaussian:std_q=%s", deviations[i]));
  cr_expect_str_eq(c->datasets.items[9].text, "gaussian");
}

Test(config, overrides) {
  const char *const overrides[] = {"grid.n=1Ki,2Ki", "budget.time=5", "variants=full,tiled", "grid.heads=2"};
  config *c = parse(HEAD TAIL, overrides, 4);
  EXPECT_INTS(c->n, 1024, 2048);
  EXPECT_INTS(c->heads, 2);
  cr_expect_eq(c->budget_time, 5);
  cr_expect_eq(c->variants.count, 2);
  cr_expect(strstr(c->text, TAIL "# --set grid.n=1Ki,2Ki\n# --set budget.time=5\n") != NULL);
}

static int64_t count_of(const config_specs *specs, const char *name) {
  int64_t count = 0;
  const size_t length = strlen(name);
  for (size_t i = 0; i < specs->count; i++)
    count += strncmp(specs->items[i].text, name, length) == 0 &&
             (specs->items[i].text[length] == ':' || !specs->items[i].text[length]);
  return count;
}

static config *load(const char *name) {
  config *c = NULL;
  cr_assert_eq(config_load(text_of(TEST_SOURCE_DIR "/experiments/configs/%s.yaml", name), NULL, 0, &c),
               ATTN_OK, "%s", attn_last_error());
  keep_copy(&c, sizeof c, release_config);
  return c;
}

/* A curve for each method that has a parameter to buy accuracy with, on the text of two layers. */
Test(config, the_default_sweep_has_five_settings_of_each_approximation) {
  config *c = load("default");
  int64_t methods = 0, settings = 0;
  EXPECT_INTS(c->n, 1024, 4096);
  cr_expect_eq(c->causal.items[0], 1, "causal attention comes first");
  cr_expect_eq(count_of(&c->datasets, "captured"), 2);
  cr_expect_eq(c->datasets.count, 3, "and one on which the errors of features have a bound");
  for (size_t v = 0; v < attn_variant_count(); v++) {
    const attn_variant *variant = attn_variant_at(v);
    const int64_t count = count_of(&c->variants, variant->name);
    const int64_t each = variant->budget.parameter ? 5 : 1; /* of a method; pages is two */
    cr_expect_eq(count % each, 0, "%s: %lld settings", variant->name, (long long)count);
    methods += count / each;
    settings += count;
  }
  cr_expect(methods >= 16 && methods <= 24, "%lld methods", (long long)methods);
  cr_expect_eq((size_t)settings, c->variants.count);
}

Test(config, the_atlas_and_the_small_sweep_leave_out_no_variant) {
  static const char *const names[] = {"atlas", "small"};
  for (int i = 0; i < 2; i++) {
    config *c = load(names[i]);
    for (size_t v = 0; v < attn_variant_count(); v++)
      cr_expect(count_of(&c->variants, attn_variant_at(v)->name) > 0, "%s.yaml lacks %s", names[i],
                attn_variant_at(v)->name);
  }
}

Test(config, bytes_that_are_not_text) {
  config *c = NULL;
  static const char nul[] = "schema: \"1\\0\"\n", raw[] = "schema: 1\n\0", utf[] = "schema: \xff\xfe\n";
  cr_expect_eq(config_parse("x", "", 0, NULL, 0, &c), ATTN_EINVAL);
  cr_expect_eq(config_parse("x", nul, sizeof nul - 1, NULL, 0, &c), ATTN_EINVAL);
  cr_expect_eq(config_parse("x", raw, sizeof raw - 1, NULL, 0, &c), ATTN_EINVAL);
  cr_expect_eq(config_parse("x", utf, sizeof utf - 1, NULL, 0, &c), ATTN_EINVAL);
  char *large = calloc(1, TREE_BYTES + 1);
  cr_expect_eq(config_parse("x", large, TREE_BYTES + 1, NULL, 0, &c), ATTN_EINVAL);
  free(large);
}

/* Every prefix of a valid file is read or refused, never a crash. */
Test(config, truncations) {
  static const char text[] =
      "schema: 1\ngrid: {n: [512:8Ki:x2], causal: [no, yes]}\nvariants:\n  - tiled: {block_q: [16, 32]}\n"
      "datasets: [gaussian: {std_q: 0.5:1:0.25}]\nexclude:\n  - {variant: tiled, block_q: 16, n: 512}\n";
  for (size_t length = 0; length < sizeof text; length++) {
    config *c = NULL;
    if (!config_parse("x.yaml", text, length, NULL, 0, &c)) config_free(c);
  }
}

Test(config, files) {
  config *c = NULL;
  cr_expect_eq(config_load("/nonexistent/x.yaml", NULL, 0, &c), ATTN_EFOREIGN);
  cr_expect(strstr(attn_last_error(), "/nonexistent/x.yaml") != NULL);
  cr_expect_eq(config_load("/", NULL, 0, &c), ATTN_EINVAL);
}

/* A megabyte of text may not stand for gigabytes of values, nor for hours of comparing keys. */
Test(config, counts_are_limited, .timeout = 20) {
  static const char *const lists[] = {"grid: {n: [", "variants: [longformer: {window: [",
                                      "datasets: [gaussian: {std_q: [", "exclude: [{n: ["};
  static const char *const ends[] = {"2]}", "2]}]", "2]}]", "2]}]"};
  char *text = malloc(1 << 20);
  config *c = NULL;
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    size_t used = (size_t)sprintf(text, "schema: 1\n%s", lists[i]);
    for (int k = 0; k < 4000; k++) used += (size_t)sprintf(text + used, "2:4096, ");
    used += (size_t)sprintf(text + used, "%s\n", ends[i]);
    used += (size_t)sprintf(text + used, "%s%s%s", i != 0 ? "grid: {n: 16}\n" : "",
                            i != 1 ? "variants: [longformer]\n" : "", i != 2 ? "datasets: [gaussian]\n" : "");
    cr_expect_eq(config_parse("x.yaml", text, used, NULL, 0, &c), ATTN_EINVAL, "%s", lists[i]);
    cr_expect(strstr(attn_last_error(), "more than 4096 values in all"), "%s", attn_last_error());
  }
  size_t used = 0;
  for (int k = 0; k < 80000; k++) used += (size_t)sprintf(text + used, "key%d: 1\n", k);
  cr_expect_eq(config_parse("x.yaml", text, used, NULL, 0, &c), ATTN_EINVAL);
  cr_expect(strstr(attn_last_error(), "more than 4096 entries"), "%s", attn_last_error());
  free(text);
#ifndef __SANITIZE_ADDRESS__ /* which keeps for long what was freed */
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  cr_expect(usage.ru_maxrss < 300000, "%ld KiB", usage.ru_maxrss);
#endif
}

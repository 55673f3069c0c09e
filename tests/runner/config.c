/* config.c - YAML configurations: what is read, and what is refused at which place. */
#include <sys/resource.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "experiments/grid/config.h"
#include "experiments/results/row.h"

#define HEAD "schema: 1\ngrid: {n: 64}\n"
#define TAIL "variants: full\ndatasets: gaussian\n"

static config *parse(const char *text, const char *const *overrides, size_t count) {
  config *c = NULL;
  const attn_status status = config_parse("x.yaml", text, strlen(text), overrides, count, &c);
  cr_assert_eq(status, ATTN_OK, "%s", attn_last_error());
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
  config_free(c);
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
  cr_expect_eq(c->timing.samples, 7);
  cr_expect_eq(c->timing.rounds, timing_defaults().rounds);
  config_free(c);
}

Test(config, a_range_that_misses_its_end_stops_before_it) {
  config *c = parse("schema: 1\ngrid: {n: [5:12:3, 3:20:x2]}\n" TAIL, NULL, 0);
  EXPECT_INTS(c->n, 5, 8, 11, 3, 6, 12);
  config_free(c);
}

Test(config, parameters_make_a_cross_product) {
  config *c =
      parse(HEAD "variants:\n  - full\n  - tiled: {block_q: [16, 32], block_k: 64:128:x2}\n  - tiled\n"
                 "datasets:\n  - gaussian: {std_q: 0.5:1:0.25}\n  - gaussian:\n",
            NULL, 0);
  static const char *const variants[] = {"full",
                                         "tiled:block_q=16,block_k=64",
                                         "tiled:block_q=16,block_k=128",
                                         "tiled:block_q=32,block_k=64",
                                         "tiled:block_q=32,block_k=128",
                                         "tiled"};
  static const char *const datasets[] = {"gaussian:std_q=0.5", "gaussian:std_q=0.75", "gaussian:std_q=1",
                                         "gaussian"};
  cr_assert_eq(c->variants.count, 6);
  for (size_t i = 0; i < 6; i++) cr_expect_str_eq(c->variants.items[i].text, variants[i]);
  cr_assert_eq(c->datasets.count, 4);
  for (size_t i = 0; i < 4; i++) cr_expect_str_eq(c->datasets.items[i].text, datasets[i]);
  config_free(c);
}

Test(config, overrides) {
  const char *const overrides[] = {"grid.n=1Ki,2Ki", "budget.time=5", "variants=full,tiled", "grid.heads=2"};
  config *c = parse(HEAD TAIL, overrides, 4);
  EXPECT_INTS(c->n, 1024, 2048);
  EXPECT_INTS(c->heads, 2);
  cr_expect_eq(c->budget_time, 5);
  cr_expect_eq(c->variants.count, 2);
  cr_expect(strstr(c->text, "# --set grid.n=1Ki,2Ki\n") != NULL);
  config_free(c);
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
  char path[512];
  config *c = NULL;
  snprintf(path, sizeof path, TEST_SOURCE_DIR "/experiments/configs/%s.yaml", name);
  cr_assert_eq(config_load(path, NULL, 0, &c), ATTN_OK, "%s", attn_last_error());
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
  config_free(c);
}

Test(config, the_atlas_and_the_small_sweep_leave_out_no_variant) {
  static const char *const names[] = {"atlas", "small"};
  for (int i = 0; i < 2; i++) {
    config *c = load(names[i]);
    for (size_t v = 0; v < attn_variant_count(); v++)
      cr_expect(count_of(&c->variants, attn_variant_at(v)->name) > 0, "%s.yaml lacks %s", names[i],
                attn_variant_at(v)->name);
    config_free(c);
  }
}

static const struct bad {
  const char *text, *place, *about;
} bad[] = {
    {"", "x.yaml:1:1:", "empty"},
    {"# nothing\n", "x.yaml:2:1:", "empty"},
    {"schema: 1\ngrid: {n: [64\n", "x.yaml:3:1:", ""},
    {"just a text", "x.yaml:1:1:", "map"},
    {"- schema: 1", "x.yaml:1:1:", "map"},
    {"grid: {n: 64}\n" TAIL, "x.yaml:1:1:", "schema"},
    {"schema: 2\n", "x.yaml:1:9:", "newer"},
    {"schema: one\n", "x.yaml:1:9:", "expected 1"},
    {"schema: [1]\n", "x.yaml:1:9:", "expected 1"},
    {HEAD "variant: full\n" TAIL, "x.yaml:3:1:", "unknown key 'variant'"},
    {"schema: 1\ngrid: {n: 64,\n  m: 3}\n" TAIL, "x.yaml:3:3:", "unknown key 'm' in grid"},
    {HEAD HEAD TAIL, "x.yaml:3:1:", "duplicate key 'schema'"},
    {"schema: 1\ngrid: {n: 1, n: 2}\n" TAIL, "x.yaml:2:14:", "duplicate key 'n'"},
    {"schema: 1\ngrid: {heads: 2}\n" TAIL, "x.yaml:2:7:", "'grid.n' is missing"},
    {"schema: 1\n" TAIL, "x.yaml:1:1:", "'grid.n' is missing"},
    {"schema: 1\ngrid: 64\n" TAIL, "x.yaml:2:7:", "grid"},
    {HEAD "variants: full\n", "x.yaml:1:1:", "'datasets' is missing"},
    {HEAD "datasets: gaussian\n", "x.yaml:1:1:", "'variants' is missing"},
    {"schema: 1\ngrid: {n: &a 64, d: *a}\n" TAIL, "x.yaml:2:11:", "anchor"},
    {"schema: 1\ngrid: {n: 64, d: *a}\n" TAIL, "x.yaml:2:18:", "alias"},
    {"schema: !!int 1\n", "x.yaml:1:9:", "tag"},
    {"schema: 1\ngrid: {[n]: 64}\n" TAIL, "x.yaml:2:8:", "key"},
    {HEAD TAIL "---\nschema: 1\n", "x.yaml:5:1:", "second document"},
    {"schema: 1\ngrid: {n: [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}\n" TAIL, "x.yaml:2:", "deep"},
    {"schema: 1\ngrid: {n: [[64]]}\n" TAIL, "x.yaml:2:12:", "single value"},
    {"schema: 1\ngrid: {n: []}\n" TAIL, "x.yaml:2:11:", "n"},
    {"schema: 1\ngrid: {n: {a: 1}}\n" TAIL, "x.yaml:2:11:", "n"},
    {"schema: 1\ngrid: {n: 0}\n" TAIL, "x.yaml:2:11:", "out of range"},
    {"schema: 1\ngrid: {n: 64x}\n" TAIL, "x.yaml:2:11:", "not an integer"},
    {"schema: 1\ngrid: {n: ''}\n" TAIL, "x.yaml:2:11:", "not an integer"},
    {"schema: 1\ngrid: {n: 6.5}\n" TAIL, "x.yaml:2:11:", "not an integer"},
    {"schema: 1\ngrid: {n: 99999999999999999999}\n" TAIL, "x.yaml:2:11:", "not an integer"},
    {"schema: 1\ngrid: {n: 9999999999Gi}\n" TAIL, "x.yaml:2:11:", "not an integer"},
    {"schema: 1\ngrid: {n: [64, 8:4]}\n" TAIL, "x.yaml:2:16:", "range"},
    {"schema: 1\ngrid: {n: 4:8:x1}\n" TAIL, "x.yaml:2:11:", "range"},
    {"schema: 1\ngrid: {n: 4:8:0}\n" TAIL, "x.yaml:2:11:", "range"},
    {"schema: 1\ngrid: {n: 4:8:2:2}\n" TAIL, "x.yaml:2:11:", "range"},
    {"schema: 1\ngrid: {n: 1:1Mi}\n" TAIL, "x.yaml:2:11:", "4096"},
    {"schema: 1\ngrid: {n: 64, causal: maybe}\n" TAIL, "x.yaml:2:23:", "no, yes"},
    {"schema: 1\ngrid: {n: 64, dtype: f8}\n" TAIL, "x.yaml:2:22:", "f32, f64, f16, bf16"},
    {HEAD "maps: 4097\n" TAIL, "x.yaml:3:7:", "4096"},
    {HEAD "nulls: [yes, no]\n" TAIL, "x.yaml:3:8:", "yes or no"},
    {HEAD "budget: {time: -1}\n" TAIL, "x.yaml:3:16:", "time"},
    {HEAD "budget: {time: nan}\n" TAIL, "x.yaml:3:16:", "time"},
    {HEAD "budget: {memory: 8GB}\n" TAIL, "x.yaml:3:18:", "memory"},
    {HEAD "timing: {min_time: 3, max_time: 2}\n" TAIL, "x.yaml:3:9:", "min_time"},
    {HEAD "timing: {rounds: 0}\n" TAIL, "x.yaml:3:18:", "rounds"},
    {HEAD "variants: []\ndatasets: gaussian\n", "x.yaml:3:11:", "variant"},
    {HEAD "variants: [ful]\ndatasets: gaussian\n", "x.yaml:3:12:", "ful"},
    {HEAD "variants: [[full]]\ndatasets: gaussian\n", "x.yaml:3:12:", "variant"},
    {HEAD "variants: [tiled: {blokc: 3}]\ndatasets: gaussian\n", "x.yaml:3:20:", "blokc"},
    {HEAD "variants: [tiled: {block_q: [16, many]}]\ndatasets: gaussian\n", "x.yaml:3:34:", "many"},
    {HEAD "variants: [tiled: {block_q: -5}]\ndatasets: gaussian\n", "x.yaml:3:29:", "block_q"},
    {HEAD "variants: full\ndatasets: [rope: {content: f99}]\n", "x.yaml:4:28:", "f99"},
    {HEAD "variants: [tiled: {block_q: '3,block_k=3'}]\ndatasets: gaussian\n", "x.yaml:3:29:", "comma"},
    {HEAD "variants: [tiled: 3]\ndatasets: gaussian\n", "x.yaml:3:19:", "tiled"},
    {HEAD "variants: [{tiled: {}, full: {}}]\ndatasets: gaussian\n", "x.yaml:3:12:", "one variant"},
    {HEAD "variants: ['tiled:block_q=x']\ndatasets: gaussian\n", "x.yaml:3:12:", "block_q"},
    {HEAD "variants: full\ndatasets: [gausian]\n", "x.yaml:4:12:", "gausian"},
    {HEAD "variants: full\ndatasets: [gaussian: {std: 1}]\n", "x.yaml:4:23:", "std"},
    {HEAD "variants: full\ndatasets: [gaussian: {std_q: -1}]\n", "x.yaml:4:30:", "std_q"},
    {HEAD "variants: full\ndatasets: [gaussian: {std_q: 1:0:1}]\n", "x.yaml:4:30:", "range"},
    {HEAD TAIL "exclude: {n: 3}\n", "x.yaml:5:10:", "list"},
    {HEAD TAIL "exclude: [{}]\n", "x.yaml:5:11:", "partial row"},
    {HEAD TAIL "exclude: [{variant: ful}]\n", "x.yaml:5:21:", "ful"},
    {HEAD TAIL "exclude: [{block_q: 3}]\n", "x.yaml:5:12:", "block_q"},
    {HEAD TAIL "exclude: [{variant: full, block_q: 3}]\n", "x.yaml:5:27:", "block_q"},
    {HEAD TAIL "exclude: [{dataset: nope}]\n", "x.yaml:5:21:", "nope"},
    {HEAD TAIL "cache: hot\n", "x.yaml:5:8:", "cold"},
    {HEAD TAIL "exclude: [{cache: hot}]\n", "x.yaml:5:19:", "cold"},
    {HEAD TAIL "exclude: [{n: many}]\n", "x.yaml:5:15:", "many"},
};

Test(config, malformed_content_names_its_place) {
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    config *c = NULL;
    const attn_status status = config_parse("x.yaml", bad[i].text, strlen(bad[i].text), NULL, 0, &c);
    cr_expect_eq(status, ATTN_EINVAL, "accepted: %s", bad[i].text);
    cr_expect_null(c);
    cr_expect_eq(strncmp(attn_last_error(), bad[i].place, strlen(bad[i].place)), 0,
                 "expected %s, got: %s\n%s", bad[i].place, attn_last_error(), bad[i].text);
    cr_expect(strstr(attn_last_error(), bad[i].about) != NULL, "expected '%s' in: %s", bad[i].about,
              attn_last_error());
    cr_expect_null(strchr(attn_last_error(), '\n'));
  }
}

Test(config, malformed_overrides_name_themselves) {
  static const char *const wrong[] = {"grid.n",    "=3",       "grid.=3",   "grid.n.x=3", "grid.n=[",
                                      "grid.nn=3", "grid.n=a", "variants=", "schema=2",   "x.y.z=1"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    config *c = NULL;
    const attn_status status = config_parse("x.yaml", HEAD TAIL, strlen(HEAD TAIL), &wrong[i], 1, &c);
    cr_expect_eq(status, ATTN_EINVAL, "accepted: %s", wrong[i]);
    cr_expect(strstr(attn_last_error(), "--set ") != NULL, "%s: %s", wrong[i], attn_last_error());
  }
}

Test(config, bytes_that_are_not_text) {
  config *c = NULL;
  static const char nul[] = "schema: \"1\\0\"\n", raw[] = "schema: 1\n\0", utf[] = "schema: \xff\xfe\n";
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

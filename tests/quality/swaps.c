/* swaps.c - the heads of a model that are replaced, and by what. */
#include "experiments/quality/swaps.h"

#include "experiments/quality/configuration.h"
#include "tests/support/data_fixture.h"

static const data_llama_config config = {.layers = 4, .heads = 3};
static const double one = 1;

static attn_status make(const char *const *specs, int count, const char *layers, const char *heads,
                        const char *phase, swap_list *l) {
  const swap_request request = {specs, count, layers, heads, phase, &one, 1, 10, NULL, 0, 0};
  return swap_list_make(&request, &config, l);
}

static void release_swaps(void *of) { swap_list_free(of); }

/* Kept. */
static swap_list swaps(const char *layers, const char *heads, const char *phase) {
  static const char *const specs[] = {"tiled", "streaming:window=5"};
  swap_list l;
  assert_ok(make(specs, 2, layers, heads, phase, &l));
  keep_copy(&l, sizeof l, release_swaps);
  return l;
}

/* Budgets of the layers, and the prompt of all. */
static void expect_pyramid(const char *spec, int64_t n, const double *budget, double prompt) {
  swap_list l;
  int layer = 0;
  assert_ok(
      swap_list_make(&(swap_request){NULL, 0, "all", "all", "both", &one, 1, n, &spec, 1, 7}, &config, &l));
  cr_assert_eq(l.count, 1);
  cr_expect_str_eq(strrchr(l.runs[0].spec, '@'), strrchr(spec, '@'));
  for (const data_llama_swap *part = &l.runs[0].swap; part; part = part->next, layer++) {
    cr_expect_eq(attn_spec_number(part->spec, "budget"), budget[layer], "%s: %s", spec, part->spec->text);
    cr_expect_eq(attn_spec_number(part->spec, "prompt"), prompt, "%s", part->spec->text);
    for (int i = 0; i < 12; i++) cr_expect_eq(part->where[i], i / 3 == layer, "%d of layer %d", i, layer);
  }
  cr_expect_eq(layer, 4);
  swap_list_free(&l);
}

/* Of 40 keys besides 8 recent ones the last of 4 layers has 40 / 5, the first 80 - 8, and those between are
 * on a line; of 20 positions no layer can hold more than 12 besides. */
Test(quality_swaps, a_pyramid_has_the_same_mean) {
  expect_pyramid("evict:budget=48,recent=8@pyramid=5", 1000, (double[]){80, 59, 37, 16}, 7);
  expect_pyramid("evict:budget=48,recent=8,prompt=3 | store:k=int4@pyramid=1", 1000,
                 (double[]){48, 48, 48, 48}, 3);
  expect_pyramid("evict:budget=18,recent=8@pyramid=20", 20, (double[]){20, 19, 17, 16}, 7);
  expect_pyramid("evict:budget=48,recent=8@pyramid=20", 20, (double[]){48, 48, 48, 48}, 7);
}

static void expect_where(const swap_run *r, const char *wanted) {
  for (int i = 0; i < 12; i++)
    cr_expect_eq(r->swap.where[i], wanted[i] - '0', "%s %s: %d", r->layers, r->heads, i);
}

static quality_configuration *load(const char *more) {
  quality_configuration *c;
  const char *yaml = text_of("schema: 1\nvariants: [tiled]\neval:\n  model: m\n  text: t\n%s", more);
  fixture_write(fixture_path("x.yaml"), yaml, strlen(yaml));
  assert_ok(quality_configuration_load(fixture_path("x.yaml"), &c));
  return c;
}

/* What `attnlab help config' names as the default of a key is what is asked without the key, and its example
 * of layers are layers. */
Test(quality_swaps, defaults_of_a_configuration_are_those_of_its_help) {
  const char *given = "", *spec = "tiled";
  char *help = NULL, name[16], value[16], layers[16] = "";
  size_t size, count = 0;
  quality_request r[2];
  swap_list l;
  fixture_begin();
  FILE *out = open_memstream(&help, &size);
  quality_configuration_print_help(out);
  cr_assert_eq(fclose(out), 0);
  for (const char *at = help; sscanf(at, "  %15s %15s", name, value) == 2; at = strchr(at, '\n') + 1)
    if (strcmp(value, "(needed)") != 0 && strcmp(name, "bos") != 0) {
      given = text_of("%s  %s: %s\n", given, name, value);
      count++;
    }
  quality_configuration *c[] = {load(""), load(given)};
  for (int i = 0; i < 2; i++) quality_configuration_request(c[i], 0, &r[i]);
  cr_expect(count == 10 && r[0].n.count == 1 && r[0].mix_count == 1 && r[0].task_count == 1, "%s", given);
  cr_expect_str_eq(r[0].tasks[0], r[1].tasks[0]);
  cr_expect_str_eq(r[0].layers, r[1].layers);
  cr_expect_str_eq(r[0].heads, r[1].heads);
  cr_expect_str_eq(r[0].phase, r[1].phase);
  cr_expect(r[0].n.items[0] == r[1].n.items[0] && r[0].seed == r[1].seed && r[0].windows == r[1].windows);
  cr_expect(r[0].mixes[0] == r[1].mixes[0] && r[0].margin == r[1].margin && r[0].kl_budget == r[1].kl_budget);
  cr_assert_eq(sscanf(strstr(help, "all, each, "), "all, each, %15s", layers), 1);
  assert_ok(make(&spec, 1, layers, "all", "both", &l));
  swap_list_free(&l), free(help);
  for (int i = 0; i < 2; i++) quality_configuration_free(c[i]);
  fixture_end();
}

Test(quality_swaps, sets_of_layers_and_heads) {
  swap_list l = swaps("all", "all", "both");
  cr_expect_eq(l.count, 2);
  expect_where(&l.runs[0], "111111111111");
  cr_expect_str_eq(l.runs[1].spec, "streaming:sink=4,window=5");
  l = swaps("0,2-3", "1", "prefill:8");
  cr_expect_eq(l.count, 2);
  expect_where(&l.runs[1], "010000010010");
  cr_expect(l.runs[1].swap.phase == DATA_LLAMA_PREFILL && l.runs[1].swap.decode == 8);
  l = swaps("each", "each", "decode:1");
  cr_expect_eq(l.count, 24);
  expect_where(&l.runs[12 + 7], "000000010000");
  cr_expect_str_eq(l.runs[12 + 7].layers, "2");
  cr_expect_str_eq(l.runs[12 + 7].heads, "1");
}

Test(quality_swaps, variants_with_layers_of_their_own) {
  const char *specs[] = {"topk:k=4@0,2;streaming:window=5@3", "topk:k=4@1-2"};
  swap_list l;
  assert_ok(make(specs, 2, "all", "0,2", "both", &l));
  cr_assert_eq(l.count, 2);
  cr_expect(strncmp(l.runs[0].spec, "topk:k=4,", 9) == 0 &&
                strstr(l.runs[0].spec, "@0,2;streaming:sink=4,window=5@3"),
            "%s", l.runs[0].spec);
  expect_where(&l.runs[0], "101000101000");
  cr_assert(l.runs[0].swap.next && !l.runs[0].swap.next->next && !l.runs[1].swap.next);
  cr_expect_str_eq(l.runs[0].swap.next->spec->text, "streaming:sink=4,window=5");
  for (int i = 0; i < 12; i++) cr_expect_eq(l.runs[0].swap.next->where[i], i == 9 || i == 11, "%d", i);
  expect_where(&l.runs[1], "000101101000");
  swap_list_free(&l);
  static const struct {
    const char *spec, *says;
  } bad[] = {{"evict@pyramid=0.5", "at least 1 after pyramid="},
             {"evict@pyramid=x", "at least 1 after pyramid="},
             {"full@pyramid=2", "has no budget"},
             {"evict:recent=8,budget=4@pyramid=20", "fewer keys than recent=8"},
             {"topk:k=2@pyramid=5", "k=0 is out of range"},
             {"topk@0-1;streaming@1", "layer 1 is named twice"},
             {"topk@4", "from 0 to 3"},
             {"topk@0;", ""},
             {"topk;topk", "layer 0 is named twice"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const attn_status status = make(&bad[i].spec, 1, "all", "all", "both", &l);
    cr_expect(status != ATTN_OK && strstr(attn_last_error(), bad[i].says), "%s: %s", bad[i].spec,
              attn_last_error());
  }
}

Test(quality_swaps, sets_that_do_not_exist) {
  static const char *const bad[] = {
      "", "4", "0,", ",0", "2-1", "0-4", "-1", "a", "0 1", "all,0", "99999999999999999999"};
  const char *spec = "tiled", *typo = "tilde";
  swap_list l;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_refused(make(&spec, 1, bad[i], "all", "both", &l), ATTN_EINVAL,
                   "expected all, each, or numbers and ranges from 0 to 3");
  static const char *const phases[] = {"",          "decode",    "decode:",   "decode:0",
                                       "prefill:x", "decode:3x", "decode:10", "after:3"};
  for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
    assert_refused(make(&spec, 1, "all", "all", phases[i], &l), ATTN_EINVAL,
                   "expected both, prefill:M or decode:M, M from 1 to 9");
  assert_refused(make(&typo, 1, "all", "all", "both", &l), ATTN_ENOTFOUND, "tilde");
}

/* A spec from a file is what its line says; more than a line is none. */
Test(quality_swaps, a_spec_from_a_file) {
  static const struct {
    const char *text;
    size_t bytes;
    const char *says;
  } cases[] = {{"topk:k=3@0,2;tiled@1\n", 21, NULL},
               {"topk:k=3@0,2;tiled@1", 21, "one line"}, /* a byte of 0 at its end */
               {"tiled@0\ntiled@1\n", 16, "one line"},
               {"\n", 1, "one line"},
               {"", 0, "empty"},
               {"topk:k=3@9\n", 11, "layers '9'"}};
  fixture_begin();
  const char *spec = text_of("@%s", fixture_path("spec.txt"));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *const given = spec;
    swap_list l;
    fixture_write(spec + 1, cases[i].text, cases[i].bytes);
    if (cases[i].says) {
      assert_refused(make(&given, 1, "all", "all", "both", &l), ATTN_EINVAL, cases[i].says);
      continue;
    }
    assert_ok(make(&given, 1, "all", "all", "both", &l));
    cr_expect(strstr(l.runs[0].spec, "@0,2;tiled:") && strstr(l.runs[0].spec, "topk:k=3,"), "%s",
              l.runs[0].spec);
    cr_expect(l.runs[0].swap.where[0] && !l.runs[0].swap.where[3] && l.runs[0].swap.next->where[3]);
    swap_list_free(&l);
  }
  fixture_end();
}

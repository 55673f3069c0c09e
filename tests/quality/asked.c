/* asked.c - what a model is asked: windows, tasks, and which heads are replaced. */
#include "experiments/quality/configuration.h"
#include "experiments/quality/swaps.h"
#include "experiments/quality/tasks/tasks.h"
#include "tests/support/data_fixture.h"

enum { LENGTH = 400, VOCAB = 1000, N = 60, W = 5 };

static int64_t text[LENGTH];

static void begin(void) {
  for (int64_t i = 0; i < LENGTH; i++) text[i] = i + 100;
}
TestSuite(quality_asked, .init = begin);

static quality_windows fill_of(const char *spec, int64_t n, const task_input *in) {
  quality_windows w;
  char *canonical = NULL;
  assert_ok(quality_windows_make(W, n, &w));
  assert_ok(task_fill(spec, in, &w, &canonical));
  cr_expect(strncmp(canonical, spec, strcspn(spec, ":")) == 0);
  free(canonical);
  return w;
}

static quality_windows fill(const char *spec, int64_t bos, uint64_t seed) {
  return fill_of(spec, N,
                 &(task_input){.text = text, .length = LENGTH, .vocab = VOCAB, .bos = bos, .seed = seed});
}

Test(quality_asked, windows_of_a_text_follow_one_another_and_do_not_overlap) {
  bool moved = false;
  for (uint64_t seed = 0; seed < 20; seed++) {
    const int64_t bos = seed % 2 ? 1 : -1;
    quality_windows w = fill("text:skip=7", bos, seed);
    int64_t before = 99;
    for (int64_t i = 0; i < W; i++) {
      const int64_t *t = w.tokens + i * N;
      cr_expect(w.first[i] == 7 && (bos < 0 || t[0] == 1));
      for (int64_t j = bos >= 0; j < N; j++) {
        cr_expect(t[j] == before + 1 || (j == (bos >= 0) && t[j] > before), "seed %d window %d token %d",
                  (int)seed, (int)i, (int)j);
        before = t[j];
      }
    }
    moved = moved || w.tokens[1] != 100 + (bos < 0);
    cr_expect(before < 100 + LENGTH);
    quality_windows_free(&w);
  }
  cr_expect(moved, "every seed takes the text's beginning");
}

Test(quality_asked, a_copy_is_a_copy) {
  for (int gap = -1; gap <= 12; gap += 13) {
    char spec[64];
    snprintf(spec, sizeof spec, "copy:length=10,alphabet=5,gap=%d", gap);
    quality_windows w = fill(spec, 1, 3);
    bool alike = true;
    for (int64_t i = 0; i < W; i++) {
      const int64_t *t = w.tokens + i * N, *second = t + N - 10, *first = gap < 0 ? t + 1 : second - gap - 10;
      bool drawn[VOCAB] = {false};
      int kinds = 0;
      cr_expect(w.first[i] == N - 10 && t[0] == 1);
      cr_expect_arr_eq(first, second, 10 * sizeof *first);
      for (int j = 0; j < 10; j++) {
        cr_expect(second[j] >= 3 && second[j] < VOCAB);
        kinds += !drawn[second[j]];
        drawn[second[j]] = true;
      }
      cr_expect(kinds <= 5);
      alike = alike && memcmp(second, w.tokens + N - 10, 10 * sizeof *second) == 0;
    }
    cr_expect(!alike, "windows have strings of their own");
    quality_windows_free(&w);
  }
}

static void read_window(const quality_windows *w, int64_t window, char *out) {
  for (int64_t j = 0; j < w->n; j++) out[j] = (char)w->tokens[window * w->n + j];
  out[w->n] = '\0';
}

enum { LONG_TEXT = 1200 };

static quality_windows fill_bytes(const char *spec) {
  static int64_t blanks[LONG_TEXT * W];
  for (int i = 0; i < LONG_TEXT * W; i++) blanks[i] = '_';
  return fill_of(spec, LONG_TEXT,
                 &(task_input){.text = blanks, .length = LONG_TEXT * W, .vocab = 256, .bos = -1, .seed = 4});
}

/* Following the assignments from the value that is asked for gives the answer, whatever else is assigned. */
Test(quality_asked, variables_are_tracked_through_their_chain) {
  for (int chains = 1; chains <= 4; chains += 3) {
    char spec[64], window[LONG_TEXT + 1];
    snprintf(spec, sizeof spec, "track:chains=%d,hops=3", chains);
    quality_windows w = fill_bytes(spec);
    for (int64_t i = 0; i < W; i++) {
      char value[16], wanted[64] = "", sentence[32], *at, *to;
      int found = 0;
      read_window(&w, i, window);
      const char *question = strstr(window, "\nQuestion: which variables are ");
      cr_assert(question && sscanf(question, "\nQuestion: which variables are %15[0-9]?", value) == 1, "%s",
                window);
      for (int hop = 0; hop <= 3; hop++) {
        snprintf(sentence, sizeof sentence, " = %s.", value);
        cr_assert((at = strstr(window, sentence)) && at < question, "%s", window);
        cr_expect(!strstr(at + 1, sentence), "%s: of two chains", sentence);
        memcpy(value, at - 5, 5);
        value[5] = '\0';
        cr_expect(strncmp(at - 10, " VAR ", 5) == 0);
        snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), " %s", value);
      }
      to = window + w.first[i] + 1;
      cr_expect_str_eq(to, wanted);
      for (at = window; (at = strstr(at, " VAR ")) && at < question; at++) found++;
      cr_expect_eq(found, 4 * chains);
    }
    quality_windows_free(&w);
  }
}

Test(quality_asked, the_answer_is_the_most_frequent_words) {
  quality_windows w = fill_bytes("frequent:alpha=2,words=60");
  for (int64_t i = 0; i < W; i++) {
    char window[LONG_TEXT + 1], *words[80], answer[32] = "", *question;
    int count = 0, often[80] = {0};
    read_window(&w, i, window);
    cr_assert((question = strstr(window, "\nQuestion: ")));
    snprintf(answer, sizeof answer, "%s", window + w.first[i] + 1);
    *question = '\0';
    for (char *word = strtok(strchr(window, ' '), " "); word && count < 80; word = strtok(NULL, " ")) {
      int known = 0;
      while (known < count && strcmp(words[known], word) != 0) known++;
      if (known == count) words[count++] = word;
      often[known]++;
    }
    for (int place = 0; place < 3; place++) {
      int most = 0;
      for (int k = 0; k < count; k++) most = often[k] > often[most] ? k : most;
      cr_expect(strncmp(answer + 7 * place + 1, words[most], 6) == 0, "%s: %s is more frequent", answer,
                words[most]);
      cr_expect(often[most] > 2);
      often[most] = 0;
    }
  }
  quality_windows_free(&w);
}

/* Bytes for tokens: the sentences can be read. */
Test(quality_asked, a_number_is_recalled_from_where_it_stands) {
  double places = 0;
  for (int pairs = 1; pairs <= 3; pairs += 2)
    for (double depth = -1; depth <= 1; depth += depth < 0 ? 1 : 0.5) {
      char spec[64], window[LONG_TEXT + 1], sentence[64], word[32], number[8];
      snprintf(spec, sizeof spec, "recall:pairs=%d,digits=4,depth=%g", pairs, depth);
      quality_windows w = fill_bytes(spec);
      for (int64_t i = 0; i < W; i++) {
        int found = 0;
        read_window(&w, i, window);
        const char *question = strstr(window, "\nQuestion: what is the number of ");
        cr_assert(question && sscanf(question, "\nQuestion: what is the number of %31[a-z]?", word) == 1,
                  "%s", window);
        cr_assert(sscanf(window + w.first[i], "s %7[0-9]", number) == 1 && strlen(number) == 4, "%s",
                  window + w.first[i]);
        snprintf(sentence, sizeof sentence, " The number of %s is %s.", word, number);
        const char *at = strstr(window, sentence);
        cr_assert(at && at < question);
        for (const char *s = window; (s = strstr(s, " The number of ")) && s < question; s++) found++;
        cr_expect_eq(found, pairs);
        const double place = (double)(at - window) / (double)(question - window - (long)strlen(sentence));
        if (depth >= 0) cr_expect(fabs(place - depth) < 0.08, "%g at %g", depth, place);
        places += depth < 0 ? place : 0;
      }
      quality_windows_free(&w);
    }
  cr_expect(places > 0.15 * 2 * W && places < 0.85 * 2 * W, "anywhere: %g on average", places / (2 * W));
}

/* With as many words as there are, each has one sentence. */
Test(quality_asked, words_are_drawn_without_replacement) {
  quality_windows w = fill_bytes("recall:pairs=32,digits=1");
  char window[LONG_TEXT + 1];
  read_window(&w, W - 1, window);
  *strstr(window, "\nQuestion: ") = '\0';
  int found = 0;
  for (const char *at = window; (at = strstr(at, " The number of ")); at++, found++) {
    char start[40] = "";
    memcpy(start, at, (size_t)(strstr(at, " is ") - at));
    cr_expect(!strstr(at + 1, start), "%s, twice", start);
  }
  cr_expect_eq(found, 32);
  quality_windows_free(&w);
}

/* The numbers of every word that is asked for, word by word, in the order of the text. */
Test(quality_asked, several_numbers_of_several_words) {
  quality_windows w = fill_bytes("recall:pairs=4,values=3,queries=2,digits=3,depth=0.5");
  bool turned = false;
  for (int64_t i = 0; i < W; i++) {
    char window[LONG_TEXT + 1], word[2][32], start[64], wanted[64] = "";
    int found = 0;
    read_window(&w, i, window);
    const char *question = strstr(window, "\nQuestion: "), *first = question;
    cr_assert(question && sscanf(question, "\nQuestion: what are the numbers of %31[a-z] and %31[a-z]?",
                                 word[0], word[1]) == 2,
              "%s", window);
    for (int k = 0; k < 2; k++) {
      snprintf(start, sizeof start, " The number of %s is ", word[k]);
      for (const char *at = window; (at = strstr(at, start)) && at < question; at++) {
        if (k == 0 && at < first) first = at;
        snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), " %.3s", at + strlen(start));
        cr_expect_eq(at[strlen(start) + 3], '.');
      }
    }
    cr_expect_str_eq(window + w.first[i] + 1, wanted);
    for (const char *s = window; (s = strstr(s, " The number of ")) && s < question; s++) found++;
    cr_expect_eq(found, 12);
    cr_expect(first - window > LONG_TEXT / 4 && first - window < LONG_TEXT / 2, "%td", first - window);
    turned = turned || strcmp(word[0], word[1]) > 0;
    cr_expect(turned || i + 1 < W, "words are always in order");
  }
  quality_windows_free(&w);
}

/* A cache is cut at the first token of an answer, or else before anything of a question has arrived. */
Test(quality_asked, a_cache_is_cut_after_the_question_or_before_it) {
  static const char *const specs[] = {"recall:pairs=3,queries=3,aware=%s", "track:aware=%s",
                                      "frequent:words=60,aware=%s"};
  for (int s = 0; s < 3; s++)
    for (int aware = 0; aware < 2; aware++) {
      char spec[64], window[LONG_TEXT + 1];
      int64_t wanted = LONG_TEXT;
      snprintf(spec, sizeof spec, specs[s], aware ? "yes" : "no");
      quality_windows w = fill_bytes(spec);
      for (int64_t i = 0; i < W; i++) {
        read_window(&w, i, window);
        const int64_t question = strstr(window, "\nQuestion: ") - window, at = aware ? w.first[i] : question;
        wanted = at < wanted ? at : wanted;
      }
      cr_expect_eq(quality_windows_prompt(&w), wanted, "%s: %d", spec, (int)quality_windows_prompt(&w));
      quality_windows_free(&w);
    }
}

static attn_status ask(const char *spec, int64_t length, quality_windows *w) {
  char *canonical = NULL;
  return task_fill(spec, &(task_input){.text = text, .length = length, .vocab = VOCAB, .bos = -1}, w,
                   &canonical);
}

Test(quality_asked, refusals) {
  static const struct {
    const char *spec, *says;
  } cases[] = {{"riddle", "task 'riddle': expected"},
               {"copy:length=1", "length=1 is out of range"},
               {"copy:length=40", "more than a window of 60"},
               {"copy:length=10,gap=50", "more than a window of 60"},
               {"copy:alphabet=998,length=2", "alphabet=998, expected at most 997"},
               {"recall:pairs=40", "pairs=40 is out of range"},
               {"recall:depth=-0.5", "expected -1 or a number from 0 to 1"},
               {"recall:pairs=2,queries=3", "queries=3, expected at most the words, pairs=2"},
               {"track:aware=perhaps", "aware"},
               {"track:hops=17", "hops=17 is out of range"},
               {"frequent:alpha=8,words=16", "stand 16, 0, 0 and 0 times"},
               {"frequent:alpha=1,words=16", "no three are the most frequent"},
               {"sample:prompt=0", "prompt=0 without a first token"},
               {"sample:skip=59", "nothing is scored"},
               {"sample:temperature=-1", "temperature=-1 is out of range"},
               {"text:skip=59", "nothing is scored"}};
  quality_windows w;
  assert_ok(quality_windows_make(W, N, &w));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_refused(ask(cases[i].spec, LENGTH, &w), ATTN_EINVAL, cases[i].says);
  assert_refused(ask("copy:aware=no", LENGTH, &w), ATTN_ENOTFOUND, "task copy: unknown parameter 'aware'");
  assert_refused(ask("text", W * N - 1, &w), ATTN_EINVAL, "nothing is scored");
  assert_refused(ask("text:skip=0", W * N - 1, &w), ATTN_EINVAL,
                 "299 tokens, fewer than the 300 of 5 windows of 60");
  quality_windows_free(&w);
  assert_refused(quality_windows_make(0, N, &w), ATTN_EINVAL, "at least one");
  assert_refused(quality_windows_make(INT64_MAX / 4, N, &w), ATTN_EINVAL, "windows");
}

/* At temperature 0 the model's own greedy text, at others texts that differ with the seed and agree with
 * it. */
Test(quality_asked, a_sample_is_drawn_from_the_model) {
  enum { SHORT = 24 };
  data_llama *llama;
  int64_t ids[SHORT * 2];
  float logits[SHORT * 256];
  assert_ok(data_llama_open(TEST_SOURCE_DIR "/data/bytelm", &llama));
  for (int i = 0; i < SHORT * 2; i++) ids[i] = "In the beginning there was "[i % 27];
  quality_windows w[4];
  static const char *const specs[] = {"sample:temperature=0,prompt=3,skip=0", "sample:skip=5",
                                      "sample:skip=5", "sample:skip=5"};
  for (int i = 0; i < 4; i++) {
    char *canonical = NULL;
    assert_ok(quality_windows_make(2, SHORT, &w[i]));
    assert_ok(task_fill(
        specs[i],
        &(task_input){
            .text = ids, .length = SHORT * 2, .vocab = 256, .bos = -1, .seed = i == 3, .model = llama},
        &w[i], &canonical));
    cr_expect_eq(w[i].drawn, i > 0);
    free(canonical);
  }
  cr_expect(w[0].first[0] == 2 && w[1].first[0] == 5);
  cr_expect_arr_eq(w[1].tokens, w[2].tokens, 2 * SHORT * sizeof *ids);
  cr_expect(memcmp(w[1].tokens, w[3].tokens, 2 * SHORT * sizeof *ids) != 0);
  cr_expect(memcmp(w[1].tokens + 1, w[1].tokens + SHORT + 1, (SHORT - 1) * sizeof *ids) != 0);
  assert_ok(data_llama_logits(llama, w[0].tokens, SHORT, logits));
  for (int i = 2; i + 1 < SHORT; i++) {
    int top = 0;
    for (int t = 0; t < 256; t++) top = logits[i * 256 + t] > logits[i * 256 + top] ? t : top;
    cr_expect_eq(w[0].tokens[i + 1], top, "token %d", i + 1);
  }
  for (int i = 0; i < 4; i++) quality_windows_free(&w[i]);
  data_llama_close(llama);
}

/* Tokens after one prompt are independent: their mean surprise is the entropy of softmax(z / temperature),
 * within five standard errors. */
Test(quality_asked, a_temperature_divides_logits) {
  enum { PROMPT = 3, DRAWS = 1500, LONG = PROMPT + 1, TEMPERATURE = 2 };
  static int64_t ids[DRAWS * LONG];
  float z[PROMPT * 256], *last = z + (PROMPT - 1) * 256;
  double log_p[256], sum = 0, entropy = 0, square = 0, mean = 0;
  char *canonical = NULL;
  quality_windows w;
  data_llama *llama;
  assert_ok(data_llama_open(TEST_SOURCE_DIR "/data/bytelm", &llama));
  for (int i = 0; i < DRAWS * LONG; i++) ids[i] = "the "[i % LONG];
  assert_ok(quality_windows_make(DRAWS, LONG, &w));
  assert_ok(task_fill("sample:temperature=2,prompt=3,skip=0",
                      &(task_input){ids, DRAWS * LONG, 256, -1, 7, NULL, llama, NULL}, &w, &canonical));
  assert_ok(data_llama_logits(llama, ids, PROMPT, z));
  for (int t = 0; t < 256; t++) sum += exp((double)last[t] / TEMPERATURE);
  for (int t = 0; t < 256; t++) {
    log_p[t] = (double)last[t] / TEMPERATURE - log(sum);
    entropy -= exp(log_p[t]) * log_p[t];
    square += exp(log_p[t]) * log_p[t] * log_p[t];
  }
  for (int i = 0; i < DRAWS; i++) mean -= log_p[w.tokens[i * LONG + PROMPT]] / DRAWS;
  cr_expect(fabs(mean - entropy) <= 5 * sqrt((square - entropy * entropy) / DRAWS), "%g, not %g", mean,
            entropy);
  free(canonical), quality_windows_free(&w);
  data_llama_close(llama);
}

/* -- swaps -- */

static const data_llama_config config = {.layers = 4, .heads = 3};
static const double one = 1;

static attn_status make(const char *const *specs, int count, const char *layers, const char *heads,
                        const char *phase, swap_list *l) {
  const swap_request request = {specs, count, layers, heads, phase, &one, 1, 10, NULL, 0, 0};
  return swap_list_make(&request, &config, l);
}

static swap_list swaps(const char *layers, const char *heads, const char *phase) {
  static const char *const specs[] = {"tiled", "streaming:window=5"};
  swap_list l;
  assert_ok(make(specs, 2, layers, heads, phase, &l));
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
Test(quality_asked, a_pyramid_has_the_same_mean) {
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
  char yaml[1024];
  quality_configuration *c;
  snprintf(yaml, sizeof yaml, "schema: 1\nvariants: [tiled]\neval:\n  model: m\n  text: t\n%s", more);
  fixture_write(fixture_path("x.yaml"), yaml, strlen(yaml));
  assert_ok(quality_configuration_load(fixture_path("x.yaml"), &c));
  return c;
}

/* What `attnlab help config' names as the default of a key is what is asked without the key, and its example
 * of layers are layers. */
Test(quality_asked, defaults_of_a_configuration_are_those_of_its_help) {
  char *help = NULL, given[512] = "", name[16], value[16], layers[16] = "";
  size_t size, count = 0;
  quality_request r[2];
  swap_list l;
  const char *spec = "tiled";
  fixture_begin();
  FILE *out = open_memstream(&help, &size);
  quality_configuration_print_help(out);
  cr_assert_eq(fclose(out), 0);
  for (const char *at = help; sscanf(at, "  %15s %15s", name, value) == 2; at = strchr(at, '\n') + 1)
    if (strcmp(value, "(needed)") != 0 && strcmp(name, "bos") != 0) {
      snprintf(given + strlen(given), sizeof given - strlen(given), "  %s: %s\n", name, value);
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

Test(quality_asked, sets_of_layers_and_heads) {
  swap_list l = swaps("all", "all", "both");
  cr_expect_eq(l.count, 2);
  expect_where(&l.runs[0], "111111111111");
  cr_expect_str_eq(l.runs[1].spec, "streaming:sink=4,window=5");
  swap_list_free(&l);
  l = swaps("0,2-3", "1", "prefill:8");
  cr_expect_eq(l.count, 2);
  expect_where(&l.runs[1], "010000010010");
  cr_expect(l.runs[1].swap.phase == DATA_LLAMA_PREFILL && l.runs[1].swap.decode == 8);
  swap_list_free(&l);
  l = swaps("each", "each", "decode:1");
  cr_expect_eq(l.count, 24);
  expect_where(&l.runs[12 + 7], "000000010000");
  cr_expect_str_eq(l.runs[12 + 7].layers, "2");
  cr_expect_str_eq(l.runs[12 + 7].heads, "1");
  swap_list_free(&l);
}

Test(quality_asked, variants_with_layers_of_their_own) {
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

Test(quality_asked, sets_that_do_not_exist) {
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
Test(quality_asked, a_spec_from_a_file) {
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
  char spec[512];
  snprintf(spec, sizeof spec, "@%s", fixture_path("spec.txt"));
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

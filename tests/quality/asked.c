/* asked.c - what a model is asked: windows of a text, and tasks. */
#include "experiments/quality/tasks/tasks.h"
#include "tests/support/basics/kept.h"
#include "tests/support/data_fixture.h"

enum { LENGTH = 400, VOCAB = 1000, N = 60, W = 5 };

static int64_t text[LENGTH];

static void begin(void) {
  for (int64_t i = 0; i < LENGTH; i++) text[i] = i + 100;
}
TestSuite(quality_asked, .init = begin);

static void release_windows(void *of) { quality_windows_free(of); }

/* Kept. */
static quality_windows fill_of(const char *spec, int64_t count, int64_t n, const task_input *in) {
  quality_windows w;
  char *canonical = NULL;
  assert_ok(quality_windows_make(count, n, &w));
  assert_ok(task_fill(spec, in, &w, &canonical));
  cr_expect(strncmp(canonical, spec, strcspn(spec, ":")) == 0);
  free(canonical);
  keep_copy(&w, sizeof w, release_windows);
  return w;
}

static quality_windows fill(const char *spec, int64_t bos, uint64_t seed) {
  return fill_of(spec, W, N,
                 &(task_input){.text = text, .length = LENGTH, .vocab = VOCAB, .bos = bos, .seed = seed});
}

Test(quality_asked, windows_of_a_text_follow_one_another_and_do_not_overlap) {
  bool moved = false, ended = false;
  for (uint64_t seed = 0; seed < 200; seed++) {
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
    ended = ended || before == 99 + LENGTH;
  }
  cr_expect(moved, "every seed takes the text's beginning");
  cr_expect(ended, "no seed takes the text's end");
}

Test(quality_asked, a_copy_is_a_copy) {
  for (int gap = -1; gap <= 12; gap += 13) {
    quality_windows w = fill(text_of("copy:length=10,alphabet=5,gap=%d", gap), 1, 3);
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
  return fill_of(spec, W, LONG_TEXT,
                 &(task_input){.text = blanks, .length = LONG_TEXT * W, .vocab = 256, .bos = -1, .seed = 4});
}

/* Following the assignments from the value that is asked for gives the answer, whatever else is assigned. */
Test(quality_asked, variables_are_tracked_through_their_chain) {
  for (int chains = 1; chains <= 4; chains += 3) {
    char window[LONG_TEXT + 1];
    quality_windows w = fill_bytes(text_of("track:chains=%d,hops=3", chains));
    for (int64_t i = 0; i < W; i++) {
      const char *wanted = "";
      char value[16], *at, *to;
      int found = 0;
      read_window(&w, i, window);
      const char *question = strstr(window, "\nQuestion: which variables are ");
      cr_assert(question && sscanf(question, "\nQuestion: which variables are %15[0-9]?", value) == 1, "%s",
                window);
      for (int hop = 0; hop <= 3; hop++) {
        const char *sentence = text_of(" = %s.", value);
        cr_assert((at = strstr(window, sentence)) && at < question, "%s", window);
        cr_expect(!strstr(at + 1, sentence), "%s: of two chains", sentence);
        memcpy(value, at - 5, 5);
        value[5] = '\0';
        cr_expect(strncmp(at - 10, " VAR ", 5) == 0);
        wanted = text_of("%s %s", wanted, value);
      }
      to = window + w.first[i] + 1;
      cr_expect_str_eq(to, wanted);
      for (at = window; (at = strstr(at, " VAR ")) && at < question; at++) found++;
      cr_expect_eq(found, 4 * chains);
    }
  }
}

Test(quality_asked, the_answer_is_the_most_frequent_words) {
  quality_windows w = fill_bytes("frequent:alpha=2,words=60");
  int ends_often = 0;
  for (int64_t i = 0; i < W; i++) {
    char window[LONG_TEXT + 1], *words[80], *question;
    int count = 0, last = 0, often[80] = {0};
    read_window(&w, i, window);
    cr_assert((question = strstr(window, "\nQuestion: ")));
    const char *answer = text_of("%s", window + w.first[i] + 1);
    *question = '\0';
    for (char *word = strtok(strchr(window, ' '), " "); word && count < 80; word = strtok(NULL, " ")) {
      int known = 0;
      while (known < count && strcmp(words[known], word) != 0) known++;
      if (known == count) words[count++] = word;
      often[known]++;
      last = known;
    }
    ends_often += often[last] > 1;
    for (int place = 0; place < 3; place++) {
      int most = 0;
      for (int k = 0; k < count; k++) most = often[k] > often[most] ? k : most;
      cr_expect(strncmp(answer + 7 * place + 1, words[most], 6) == 0, "%s: %s is more frequent", answer,
                words[most]);
      cr_expect(often[most] > 2);
      often[most] = 0;
    }
  }
  cr_expect(ends_often > 0, "a rare word is always the last");
}

/* Bytes for tokens: the sentences can be read. */
Test(quality_asked, a_number_is_recalled_from_where_it_stands) {
  double places = 0;
  for (int pairs = 1; pairs <= 3; pairs += 2)
    for (double depth = -1; depth <= 1; depth += depth < 0 ? 1 : 0.5) {
      char window[LONG_TEXT + 1], word[32], number[8];
      quality_windows w = fill_bytes(text_of("recall:pairs=%d,digits=4,depth=%g", pairs, depth));
      for (int64_t i = 0; i < W; i++) {
        int found = 0;
        read_window(&w, i, window);
        const char *question = strstr(window, "\nQuestion: what is the number of ");
        cr_assert(question && sscanf(question, "\nQuestion: what is the number of %31[a-z]?", word) == 1,
                  "%s", window);
        cr_assert(sscanf(window + w.first[i], "s %7[0-9]", number) == 1 && strlen(number) == 4, "%s",
                  window + w.first[i]);
        const char *sentence = text_of(" The number of %s is %s.", word, number);
        const char *at = strstr(window, sentence);
        cr_assert(at && at < question);
        for (const char *s = window; (s = strstr(s, " The number of ")) && s < question; s++) found++;
        cr_expect_eq(found, pairs);
        const double place = (double)(at - window) / (double)(question - window - (long)strlen(sentence));
        if (depth >= 0) cr_expect(fabs(place - depth) < 0.08, "%g at %g", depth, place);
        places += depth < 0 ? place : 0;
      }
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
}

/* The numbers of the words that are asked for, in the order of the text; the first word alone has a depth. */
Test(quality_asked, several_numbers_of_several_words) {
  quality_windows w = fill_bytes("recall:pairs=4,values=3,queries=2,digits=3,depth=0.5");
  bool turned = false, apart = false;
  for (int64_t i = 0; i < W; i++) {
    char window[LONG_TEXT + 1], word[2][32];
    const char *wanted = "";
    int found = 0;
    read_window(&w, i, window);
    const char *question = strstr(window, "\nQuestion: "), *first = question;
    cr_assert(question && sscanf(question, "\nQuestion: what are the numbers of %31[a-z] and %31[a-z]?",
                                 word[0], word[1]) == 2,
              "%s", window);
    for (int k = 0; k < 2; k++) {
      const char *start = text_of(" The number of %s is ", word[k]);
      for (const char *at = window; (at = strstr(at, start)) && at < question; at++) {
        if (k == 0 && at < first) first = at;
        wanted = text_of("%s %.3s", wanted, at + strlen(start));
        cr_expect_eq(at[strlen(start) + 3], '.');
      }
    }
    cr_expect_str_eq(window + w.first[i] + 1, wanted);
    for (const char *s = window; (s = strstr(s, " The number of ")) && s < question; s++) found++;
    cr_expect_eq(found, 12);
    cr_expect(first - window > LONG_TEXT / 4 && first - window < LONG_TEXT / 2, "%td", first - window);
    apart = apart || strstr(window, " The number of ") + 150 < first;
    turned = turned || strcmp(word[0], word[1]) > 0;
    cr_expect((turned && apart) || i + 1 < W, "words are always in order, or all at one depth");
  }
}

/* A cache is cut at the first token of an answer, or else before anything of a question has arrived. */
Test(quality_asked, a_cache_is_cut_after_the_question_or_before_it) {
  static const char *const specs[] = {"recall:pairs=3,values=3,queries=3,aware=%s", "track:aware=%s",
                                      "frequent:words=60,aware=%s"};
  for (int s = 0; s < 3; s++)
    for (int aware = 0; aware < 2; aware++) {
      char window[LONG_TEXT + 1];
      int64_t wanted = LONG_TEXT;
      const char *spec = text_of(specs[s], aware ? "yes" : "no");
      quality_windows w = fill_bytes(spec);
      for (int64_t i = 0; i < W; i++) {
        read_window(&w, i, window);
        const int64_t question = strstr(window, "\nQuestion: ") - window, at = aware ? w.first[i] : question;
        wanted = at < wanted ? at : wanted;
        cr_expect(s > 0 || strstr(window, "what are the numbers of "), "%s", window + question);
      }
      cr_expect_eq(quality_windows_prompt(&w), wanted, "%s: %d", spec, (int)quality_windows_prompt(&w));
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
               {"frequent:alpha=1,words=24", "stand 19, 2, 1 and 1 times"},
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
  for (int i = 0; i < 4; i++) {
    w[i] = fill_of(i ? "sample:skip=5" : "sample:temperature=0,prompt=3,skip=0", 2, SHORT,
                   &(task_input){ids, SHORT * 2, 256, -1, i == 3, NULL, llama, NULL});
    cr_expect_eq(w[i].drawn, i > 0);
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
  data_llama_close(llama);
}

/* Tokens after one prompt are independent: their mean surprise is the entropy of softmax(z / temperature),
 * within five standard errors. */
Test(quality_asked, a_temperature_divides_logits) {
  enum { PROMPT = 3, DRAWS = 1500, LONG = PROMPT + 1, TEMPERATURE = 2 };
  static int64_t ids[DRAWS * LONG];
  float z[PROMPT * 256], *last = z + (PROMPT - 1) * 256;
  double log_p[256], sum = 0, entropy = 0, square = 0, mean = 0;
  data_llama *llama;
  assert_ok(data_llama_open(TEST_SOURCE_DIR "/data/bytelm", &llama));
  for (int i = 0; i < DRAWS * LONG; i++) ids[i] = "the "[i % LONG];
  const quality_windows w = fill_of("sample:temperature=2,prompt=3,skip=0", DRAWS, LONG,
                                    &(task_input){ids, DRAWS * LONG, 256, -1, 7, NULL, llama, NULL});
  assert_ok(data_llama_logits(llama, ids, PROMPT, z));
  for (int t = 0; t < 256; t++) sum += exp((double)last[t] / TEMPERATURE);
  for (int t = 0; t < 256; t++) {
    log_p[t] = (double)last[t] / TEMPERATURE - log(sum);
    entropy -= exp(log_p[t]) * log_p[t];
    square += exp(log_p[t]) * log_p[t] * log_p[t];
  }
  for (int i = 0; i < DRAWS; i++) mean -= log_p[w.tokens[i * LONG + PROMPT]] / DRAWS;
  cr_expect_float_eq(mean, entropy, 5 * sqrt((square - entropy * entropy) / DRAWS), "%g", mean);
  data_llama_close(llama);
}

/* asked.c - what a model is asked: windows, tasks, and which heads are replaced. */
#include "experiments/quality/swaps.h"
#include "experiments/quality/tasks.h"
#include "tests/support/data_fixture.h"

enum { LENGTH = 400, VOCAB = 1000, N = 60, W = 5 };

static int64_t text[LENGTH];

static void begin(void) {
  for (int64_t i = 0; i < LENGTH; i++) text[i] = i + 100;
}
TestSuite(asked, .init = begin);

static quality_windows fill(const char *spec, int64_t bos, uint64_t seed) {
  quality_windows w;
  char *canonical = NULL;
  assert_ok(quality_windows_make(W, N, &w));
  assert_ok(task_fill(spec, &(task_input){text, LENGTH, VOCAB, bos, seed, NULL}, &w, &canonical));
  cr_expect(strncmp(canonical, spec, strcspn(spec, ":")) == 0);
  free(canonical);
  return w;
}

Test(asked, windows_of_a_text_follow_one_another_and_do_not_overlap) {
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

Test(asked, a_copy_is_a_copy) {
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

/* Bytes for tokens: the sentences can be read. */
Test(asked, a_number_is_recalled_from_where_it_stands) {
  enum { LONG = 600 };
  int64_t blanks[LONG * W];
  double places = 0;
  for (int i = 0; i < LONG * W; i++) blanks[i] = '_';
  for (int pairs = 1; pairs <= 3; pairs += 2)
    for (double depth = -1; depth <= 1; depth += 0.5) {
      char spec[64], *canonical;
      quality_windows w;
      snprintf(spec, sizeof spec, "recall:pairs=%d,digits=4,depth=%g", pairs, depth);
      assert_ok(quality_windows_make(W, LONG, &w));
      if (depth < 0 && depth > -1) {
        assert_refused(task_fill(spec, &(task_input){blanks, LONG * W, 256, -1, 0, NULL}, &w, &canonical),
                       ATTN_EINVAL, "expected -1 or a number from 0 to 1");
        quality_windows_free(&w);
        continue;
      }
      assert_ok(
          task_fill(spec, &(task_input){blanks, LONG * W, 256, -1, (uint64_t)pairs, NULL}, &w, &canonical));
      for (int64_t i = 0; i < W; i++) {
        char window[LONG + 1] = "", sentence[64], word[32], number[8];
        int found = 0;
        for (int64_t j = 0; j < LONG; j++) window[j] = (char)w.tokens[i * LONG + j];
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
        if (depth >= 0) cr_expect(fabs(place - depth) < 0.16, "%g at %g", depth, place);
        places += depth < 0 ? place : 0;
      }
      free(canonical);
      quality_windows_free(&w);
    }
  cr_expect(places > 0.15 * 2 * W && places < 0.85 * 2 * W, "anywhere: %g on average", places / (2 * W));
}

Test(asked, refusals) {
  static const struct {
    const char *spec, *says;
  } cases[] = {{"riddle", "task 'riddle': expected"},
               {"copy:length=1", "length=1 is out of range"},
               {"copy:length=40", "more than a window of 60"},
               {"copy:length=10,gap=50", "more than a window of 60"},
               {"copy:alphabet=998,length=2", "alphabet=998, expected at most 997"},
               {"recall:pairs=40", "pairs=40 is out of range"},
               {"text:skip=59", "nothing is scored"}};
  quality_windows w;
  char *canonical = NULL;
  assert_ok(quality_windows_make(W, N, &w));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_refused(task_fill(cases[i].spec, &(task_input){text, LENGTH, VOCAB, -1, 0, NULL}, &w, &canonical),
                   ATTN_EINVAL, cases[i].says);
  assert_refused(task_fill("text", &(task_input){text, W * N - 1, VOCAB, -1, 0, NULL}, &w, &canonical),
                 ATTN_EINVAL, "nothing is scored");
  assert_refused(task_fill("text:skip=0", &(task_input){text, W * N - 1, VOCAB, -1, 0, NULL}, &w, &canonical),
                 ATTN_EINVAL, "299 tokens, fewer than the 300 of 5 windows of 60");
  quality_windows_free(&w);
  assert_refused(quality_windows_make(0, N, &w), ATTN_EINVAL, "at least one");
  assert_refused(quality_windows_make(INT64_MAX / 4, N, &w), ATTN_EINVAL, "windows");
}

/* -- swaps -- */

static const data_llama_config config = {.layers = 4, .heads = 3};

static swap_list swaps(const char *layers, const char *heads, const char *phase) {
  const char *specs[] = {"tiled", "streaming:window=5"};
  swap_list l;
  assert_ok(swap_list_make(&(swap_request){specs, 2, layers, heads, phase, 1, 10}, &config, &l));
  return l;
}

static void expect_where(const swap_run *r, const char *wanted) {
  for (int i = 0; i < 12; i++)
    cr_expect_eq(r->swap.where[i], wanted[i] - '0', "%s %s: %d", r->layers, r->heads, i);
}

Test(asked, sets_of_layers_and_heads) {
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

Test(asked, sets_that_do_not_exist) {
  static const char *const bad[] = {
      "", "4", "0,", ",0", "2-1", "0-4", "-1", "a", "0 1", "all,0", "99999999999999999999"};
  const char *spec = "tiled", *typo = "tilde";
  swap_list l;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_refused(swap_list_make(&(swap_request){&spec, 1, bad[i], "all", "both", 1, 10}, &config, &l),
                   ATTN_EINVAL, "expected all, each, or numbers and ranges from 0 to 3");
  static const char *const phases[] = {"",          "decode",    "decode:",   "decode:0",
                                       "prefill:x", "decode:3x", "decode:10", "after:3"};
  for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
    assert_refused(swap_list_make(&(swap_request){&spec, 1, "all", "all", phases[i], 1, 10}, &config, &l),
                   ATTN_EINVAL, "expected both, prefill:M or decode:M, M from 1 to 9");
  assert_refused(swap_list_make(&(swap_request){&typo, 1, "all", "all", "both", 1, 10}, &config, &l),
                 ATTN_ENOTFOUND, "tilde");
}

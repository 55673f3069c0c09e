/* patterns.c - what longformer and bigbird see, key by key, against their definitions. */
#include "tests/support/core.h"

/* -- longformer -- */

typedef struct window {
  int64_t width, dilation, global;
  int64_t listed[3]; /* -1: none */
} window;

static bool is_global(const window *w, int64_t position) {
  bool listed = false;
  for (int k = 0; k < 3; k++) listed |= position == w->listed[k];
  return listed || position < w->global;
}

static bool longformer_sees(const window *w, int64_t i, int64_t j) {
  int64_t distance = i > j ? i - j : j - i;
  return (distance <= w->width / 2 * w->dilation && distance % w->dilation == 0) || is_global(w, i) ||
         is_global(w, j);
}

static void check_longformer(window w, int64_t n_q, int64_t n_kv, bool causal) {
  char spec[200], list[64] = "";
  if (w.listed[0] >= 0)
    snprintf(list, sizeof list, ",global_at=%d+%d+%d", (int)w.listed[0], (int)w.listed[1], (int)w.listed[2]);
  snprintf(spec, sizeof spec, "longformer:window=%d,dilation=%d,global=%d%s", (int)w.width, (int)w.dilation,
           (int)w.global, list);
  seen_pattern s = open_pattern(spec, 1, n_q, n_kv, causal);
  unsigned char *marks = malloc((size_t)n_kv);
  cr_assert_not_null(marks);
  for (int64_t i = 0; i < n_q; i++) {
    int64_t position = i + n_kv - n_q;
    mark_row(&s, 0, i, marks);
    for (int64_t j = 0; j < n_kv; j++) {
      bool want = longformer_sees(&w, position, j) && (!causal || j <= position);
      if (want != (marks[j] != 0)) {
        note_failure("position %d key %d: %s, expected %s", (int)position, (int)j,
                     marks[j] ? "seen" : "not seen", want ? "seen" : "not seen");
        j = n_kv;
      }
    }
  }
  free(marks);
  attn_plan_destroy(s.plan);
}

Test(core_patterns, longformer) {
  static const window windows[] = {
      {2, 1, 0, {-1, -1, -1}},  {8, 1, 0, {-1, -1, -1}}, {6, 3, 0, {-1, -1, -1}},   {4, 7, 2, {-1, -1, -1}},
      {10, 2, 5, {-1, -1, -1}}, {4, 1, 0, {0, 9, 40}},   {6, 2, 0, {3, 17, 18}},    {2, 5, 0, {1, 2, 40}},
      {80, 1, 1, {-1, -1, -1}}, {400, 1, 0, {0, 1, 2}},  {40, 50, 0, {-1, -1, -1}}, {2, 1, 100, {-1, -1, -1}},
  };
  for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) {
    check_longformer(windows[k], 41, 41, false);
    check_longformer(windows[k], 41, 41, true);
    check_longformer(windows[k], 13, 41, k % 2);
    check_longformer(windows[k], 130, 130, k % 2);
  }
}

/* -- bigbird -- */

typedef struct blocks {
  int64_t block, window, random, global;
} blocks;

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* A row sees whole blocks: those of the window and the global ones, and as many drawn ones as there are to
 * draw. */
static void check_bigbird_row(const blocks *p, const seen_pattern *s, int64_t i, const unsigned char *marks) {
  int64_t n = s->problem.n_kv, position = i + n - s->problem.n_q, count = (n + p->block - 1) / p->block,
          drawn = 0;
  int64_t own = position / p->block, side = p->window / 2, global = smaller(p->global, count), candidates = 0;
  for (int64_t c = 0; c < count; c++) {
    bool fixed = c < global || own < global || (c >= own - side && c <= own + side);
    int64_t end = smaller((c + 1) * p->block, n), visible = 0, marked = 0;
    for (int64_t j = c * p->block; j < end; j++) {
      bool allowed = !s->problem.causal || j <= position;
      visible += allowed;
      marked += marks[j];
      if (marks[j] && !allowed) note_failure("row %d sees key %d of its future", (int)i, (int)j);
    }
    if (marked != 0 && marked != visible) note_failure("row %d sees a part of block %d", (int)i, (int)c);
    if (fixed && visible && !marked) note_failure("row %d does not see block %d", (int)i, (int)c);
    bool candidate = !fixed && (!s->problem.causal || c < own - side);
    candidates += candidate;
    if (!fixed && marked && !candidate) note_failure("row %d drew block %d of its future", (int)i, (int)c);
    drawn += !fixed && marked;
  }
  if (drawn != smaller(p->random, candidates))
    note_failure("row %d drew %d blocks of %d, expected %d", (int)i, (int)drawn, (int)candidates,
                 (int)smaller(p->random, candidates));
}

static void check_bigbird(blocks p, int64_t n_q, int64_t n_kv, bool causal) {
  char spec[200];
  snprintf(spec, sizeof spec, "bigbird:block=%d,window=%d,random=%d,global=%d,seed=5", (int)p.block,
           (int)p.window, (int)p.random, (int)p.global);
  seen_pattern s = open_pattern(spec, 3, n_q, n_kv, causal);
  unsigned char *marks = malloc((size_t)n_kv), *first = calloc((size_t)n_kv, 1);
  cr_assert(marks && first);
  for (int64_t head = 0; head < 3; head++)
    for (int64_t i = 0; i < n_q; i++) {
      int64_t position = i + n_kv - n_q;
      mark_row(&s, head, i, marks);
      check_bigbird_row(&p, &s, i, marks);
      /* All queries of a block share its draw. */
      if (i == 0 || position % p.block == 0)
        memcpy(first, marks, (size_t)n_kv);
      else if (!causal && memcmp(first, marks, (size_t)n_kv) != 0)
        note_failure("row %d differs within its block", (int)i);
    }
  free(marks);
  free(first);
  attn_plan_destroy(s.plan);
}

Test(core_patterns, bigbird) {
  static const blocks settings[] = {{8, 3, 3, 2},  {8, 1, 0, 0},   {8, 1, 2, 0},  {7, 3, 1, 1}, {1, 5, 4, 3},
                                    {64, 3, 3, 2}, {16, 3, 50, 1}, {5, 99, 2, 0}, {5, 3, 2, 99}};
  for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
    check_bigbird(settings[k], 100, 100, false);
    check_bigbird(settings[k], 100, 100, true);
    check_bigbird(settings[k], 33, 100, k % 2);
  }
}

/* Heads and seeds draw apart, the same seed draws the same. Uniform: every candidate is drawn equally often;
 * the count of each over T independent draws is binomial, and 6 deviations of the largest of 200 are a chance
 * of 4e-7. */
Test(core_patterns, bigbird_draws) {
  enum { N = 128, BLOCK = 4, BLOCKS = N / BLOCK, SEEDS = 400 };
  unsigned char marks[N], other[N];
  int counts[BLOCKS] = {0}, differ = 0;
  for (int seed = 0; seed < SEEDS; seed++) {
    char spec[64];
    snprintf(spec, sizeof spec, "bigbird:block=4,window=3,random=3,global=2,seed=%d", seed);
    seen_pattern s = open_pattern(spec, 2, N, N, false);
    mark_row(&s, 0, 64, marks);
    mark_row(&s, 1, 64, other);
    differ += memcmp(marks, other, N) != 0;
    for (int c = 0; c < BLOCKS; c++) counts[c] += marks[c * BLOCK];
    attn_plan_destroy(s.plan);
    seen_pattern again = open_pattern(spec, 2, N, N, false);
    mark_row(&again, 0, 64, other);
    EXPECT(memcmp(marks, other, N) == 0);
    attn_plan_destroy(again.plan);
  }
  EXPECT(differ > SEEDS / 2);
  double p = 3.0 / (BLOCKS - 5), mean = SEEDS * p, deviation = 6 * 6 * SEEDS * p * (1 - p);
  for (int c = 2; c < BLOCKS; c++) {
    if (c >= 15 && c <= 17) continue; /* the window of block 16 */
    if (!((counts[c] - mean) * (counts[c] - mean) <= deviation))
      note_failure("block %d drawn %d times, expected about %g", c, counts[c], mean);
  }
}

/* -- what comes later -- */

/* With some parameters a variant may be a selection. */
static bool is_pattern(const attn_problem *p, const char *spec) {
  attn_plan *plan = plan_or_note(p, spec, NULL);
  attn_view view = {.pattern = NULL};
  if (plan) attn_plan_inspect(plan, &view);
  const bool found = view.pattern;
  attn_plan_destroy(plan);
  return found;
}

/* Under the causal mask a row sees the same keys however long the sequence is, random ones among them. */
static void check_prefix(const char *spec, int64_t n, int64_t longer) {
  attn_problem p = attn_problem_make(1, 2, longer, 4);
  p.causal = true;
  if (attn_estimate(&p, spec, NULL, NULL, NULL) || !is_pattern(&p, spec)) return;
  seen_pattern s = open_pattern(spec, 2, n, n, true), more = open_pattern(spec, 2, longer, longer, true);
  unsigned char *marks = malloc((size_t)n), *other = malloc((size_t)longer);
  cr_assert(marks && other);
  for (int64_t head = 0; head < 2; head++)
    for (int64_t i = 0; i < n; i++) {
      mark_row(&s, head, i, marks);
      mark_row(&more, head, i, other);
      if (memcmp(marks, other, (size_t)n) != 0)
        note_failure("head %d, row %d: sees other keys if the sequence is %d long", (int)head, (int)i,
                     (int)longer);
    }
  free(marks);
  free(other);
  attn_plan_destroy(s.plan);
  attn_plan_destroy(more.plan);
}

static bool has_pattern(const char *name) {
  attn_problem p = attn_problem_make(1, 2, 64, 4);
  attn_plan *plan = NULL;
  attn_view view = {0};
  p.causal = true;
  if (!attn_plan_create(&plan, &p, name, NULL)) EXPECT_STATUS(attn_plan_inspect(plan, &view), ATTN_OK);
  const bool found = view.pattern;
  attn_plan_destroy(plan);
  return found;
}

Test(core_patterns, causal_rows_do_not_depend_on_the_length) {
  attn_problem p = attn_problem_make(1, 2, 100, 4);
  p.causal = true;
  int compared = 0;
  for (size_t v = 0; v < attn_variant_count(); v++) {
    if (!has_pattern(attn_variant_at(v)->name)) continue;
    spec_list specs = specs_for(attn_variant_at(v), &p, 64);
    for (int s = 0; s < specs.count; s++, compared++) {
      check_prefix(specs.text[s], 100, 101);
      check_prefix(specs.text[s], 100, 347);
    }
    spec_list_free(&specs);
  }
  EXPECT(compared > 4);
}

/* -- causal pairs -- */

Test(core_patterns, pairs_under_the_causal_mask) {
  static const int64_t sizes[] = {1, 2, 5, 17};
  for (int a = 0; a < 4; a++)
    for (int b = 0; b < 4; b++) {
      attn_problem p = attn_problem_make(1, 1, sizes[a], 2);
      p.n_q = sizes[b];
      p.causal = true;
      int64_t pairs = 0;
      for (int64_t i = 0; i < p.n_q; i++) pairs += larger(0, smaller(p.n_kv, i + p.n_kv - p.n_q + 1));
      note_context("n %dx%d", (int)p.n_q, (int)p.n_kv);
      EXPECT(attn_visible_pairs(&p) <= (double)pairs && attn_visible_pairs(&p) >= (double)pairs);
    }
}

/* patterns.c - what bigbird sees, block by block; rows of patterns however long the sequence is. That they
 * are those of their laws is for SP-0, that draws are even and apart for SP-4 (experiments/checks). */
#include "tests/support/core.h"

typedef struct blocks {
  int64_t block, window, random, global;
} blocks;

/* A row sees whole blocks: those of the window and the global ones, and as many drawn ones as there are to
 * draw. */
static void check_bigbird_row(const blocks *p, const seen_pattern *s, int64_t i, const unsigned char *marks) {
  int64_t n = s->problem.n_kv, position = i + n - s->problem.n_q, count = (n + p->block - 1) / p->block,
          drawn = 0;
  int64_t own = position / p->block, side = p->window / 2, global = attn_min(p->global, count),
          candidates = 0;
  for (int64_t c = 0; c < count; c++) {
    bool fixed = c < global || own < global || (c >= own - side && c <= own + side);
    int64_t end = attn_min((c + 1) * p->block, n), visible = 0, marked = 0;
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
  if (drawn != attn_min(p->random, candidates))
    note_failure("row %d drew %d blocks of %d, expected %d", (int)i, (int)drawn, (int)candidates,
                 (int)attn_min(p->random, candidates));
}

static void check_bigbird(blocks p, int64_t n_q, int64_t n_kv, bool causal) {
  const char *spec = text_of("bigbird:block=%d,window=%d,random=%d,global=%d,seed=5", (int)p.block,
                             (int)p.window, (int)p.random, (int)p.global);
  seen_pattern s = open_pattern(spec, 3, n_q, n_kv, causal);
  unsigned char *marks = kept_memory(malloc((size_t)n_kv)), *first = kept_memory(calloc((size_t)n_kv, 1));
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

/* -- what comes later -- */

/* With some parameters a variant may be a selection, or not admit the problem. */
static bool is_pattern(const attn_problem *p, const char *spec) {
  attn_plan *plan = attn_estimate(p, spec, NULL, NULL, NULL) ? NULL : plan_or_note(p, spec, NULL);
  attn_view view = {.pattern = NULL};
  if (plan) EXPECT_STATUS(attn_plan_inspect(plan, &view), ATTN_OK);
  const bool found = view.pattern;
  attn_plan_destroy(plan);
  return found;
}

/* Under the causal mask a row sees the same keys however long the sequence is, random ones among them. */
static void check_prefix(const char *spec, int64_t n, int64_t longer) {
  attn_problem p = attn_problem_make(1, 2, longer, 4);
  p.causal = true;
  if (!is_pattern(&p, spec)) return;
  seen_pattern s = open_pattern(spec, 2, n, n, true), more = open_pattern(spec, 2, longer, longer, true);
  unsigned char *marks = kept_memory(malloc((size_t)n)), *other = kept_memory(malloc((size_t)longer));
  cr_assert(marks && other);
  for (int64_t head = 0; head < 2; head++)
    for (int64_t i = 0; i < n; i++) {
      mark_row(&s, head, i, marks);
      mark_row(&more, head, i, other);
      if (memcmp(marks, other, (size_t)n) != 0)
        note_failure("head %d, row %d: sees other keys if the sequence is %d long", (int)head, (int)i,
                     (int)longer);
    }
}

Test(core_patterns, causal_rows_do_not_depend_on_the_length) {
  attn_problem p = attn_problem_make(1, 2, 100, 4);
  p.causal = true;
  int compared = 0;
  for (size_t v = 0; v < attn_variant_count(); v++) {
    if (!is_pattern(&p, attn_variant_at(v)->name)) continue;
    spec_list specs = specs_for(attn_variant_at(v), &p, 64);
    for (int s = 0; s < specs.count; s++, compared++) {
      check_prefix(specs.text[s], 100, 101);
      check_prefix(specs.text[s], 100, 347);
    }
    spec_list_free(&specs);
  }
  EXPECT(compared > 4);
}

/* causal_patterns.c - what streaming and sparse_transformer see, key by key, against their definitions; the
 * settings at which they see everything, or what another variant sees; their cost, pair by pair. */
#include "tests/support/core.h"

typedef struct definition {
  const char *name; /* of the variant */
  int64_t a, b;     /* sink, window; stride, summary (0: strided) */
} definition;

static bool defined(const definition *d, int64_t i, int64_t j) {
  if (j > i) return false;
  if (strcmp(d->name, "streaming") == 0) return j < d->a || i - j < d->b;
  if (d->b) return i / d->a == j / d->a || j % d->a >= d->a - d->b;
  return i - j <= d->a || (i - j) % d->a == 0;
}

static void print_spec(const definition *d, char spec[128]) {
  if (strcmp(d->name, "streaming") == 0)
    snprintf(spec, 128, "streaming:sink=%d,window=%d", (int)d->a, (int)d->b);
  else if (d->b)
    snprintf(spec, 128, "sparse_transformer:mode=fixed,stride=%d,summary=%d", (int)d->a, (int)d->b);
  else
    snprintf(spec, 128, "sparse_transformer:stride=%d", (int)d->a);
}

/* Every pair, and their number against the cost: d_qk + d_v multiply-adds each. */
static void check_definition(const definition *d, int64_t n_q, int64_t n_kv) {
  char spec[128];
  print_spec(d, spec);
  seen_pattern s = open_pattern(spec, 1, n_q, n_kv, true);
  unsigned char *marks = kept_memory(malloc((size_t)n_kv));
  cr_assert_not_null(marks);
  double pairs = 0;
  for (int64_t i = 0; i < n_q; i++) {
    int64_t position = i + n_kv - n_q;
    mark_row(&s, 0, i, marks);
    for (int64_t j = 0; j < n_kv; j++) {
      bool want = defined(d, position, j);
      pairs += want;
      if (want != (marks[j] != 0))
        note_failure("position %d key %d: %s, expected %s", (int)position, (int)j,
                     marks[j] ? "seen" : "not seen", want ? "seen" : "not seen");
      if (position >= 0 &&
          want != (s.view.pattern->sees(s.view.pattern->state, 0, position, j) && j <= position))
        note_failure("position %d key %d: the law says otherwise", (int)position, (int)j);
    }
  }
  expect_pairs(&s, pairs);
}

static void check_definitions(const definition *all, size_t count) {
  for (size_t k = 0; k < count; k++) {
    check_definition(&all[k], 41, 41);
    check_definition(&all[k], 13, 41);
    check_definition(&all[k], 130, 130);
    check_definition(&all[k], 30, 19);
    check_definition(&all[k], 1, 1);
  }
}

Test(core_causal_patterns, streaming) {
  static const definition settings[] = {{"streaming", 4, 8},   {"streaming", 0, 1},  {"streaming", 0, 7},
                                        {"streaming", 1, 1},   {"streaming", 9, 40}, {"streaming", 200, 3},
                                        {"streaming", 4, 130}, {"streaming", 4, 512}};
  check_definitions(settings, sizeof settings / sizeof *settings);
}

Test(core_causal_patterns, sparse_transformer) {
  static const definition settings[] = {
      {"sparse_transformer", 1, 0},   {"sparse_transformer", 2, 0},  {"sparse_transformer", 7, 0},
      {"sparse_transformer", 12, 0},  {"sparse_transformer", 41, 0}, {"sparse_transformer", 500, 0},
      {"sparse_transformer", 1, 1},   {"sparse_transformer", 2, 1},  {"sparse_transformer", 7, 3},
      {"sparse_transformer", 12, 12}, {"sparse_transformer", 41, 5}, {"sparse_transformer", 500, 8}};
  check_definitions(settings, sizeof settings / sizeof *settings);
}

/* -- what equals what, bitwise -- */

static void expect_alike(const char *spec, const char *other, int64_t n_q, int64_t n_kv) {
  for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++)
    for (const char *const *isa = isas_under_test(); *isa; isa++) {
      inputs in = inputs_shaped((case_shape){2, 4, 2, n_q, n_kv, 9, 6, true, true}, dtype, 31, 1);
      attn_options options = {.isa = *isa, .blocks = {ATTN_TILE, 32}};
      note_context("%s, %s, %s", spec, other, *isa);
      expect_same_outputs(&in.problem, run_spec(spec, &options, &in), run_spec(other, &options, &in),
                          "not the same");
      inputs_free(&in);
    }
}

Test(core_causal_patterns, what_covers_everything_is_tiled) {
  const char *specs =
      "streaming:sink=0,window=131 streaming:sink=4,window=131 streaming:sink=131,window=1 "
      "streaming:sink=100,window=31 sparse_transformer:stride=130 sparse_transformer:stride=1 "
      "sparse_transformer:mode=fixed,stride=131 "
      "sparse_transformer:mode=fixed,stride=7,summary=7";
  char spec[80];
  for (int size; sscanf(specs, "%79s%n", spec, &size) == 1; specs += size) {
    expect_alike(spec, "tiled", 131, 131);
    expect_alike(spec, "tiled", 70, 131);
  }
}

/* Whose leading tokens see everything is cut into other tiles: rows are the same where a step holds all
 * keys. */
Test(core_causal_patterns, streaming_is_a_causal_longformer) {
  expect_alike("streaming:sink=0,window=17", "longformer:window=32", 131, 131);
  expect_alike("streaming:sink=0,window=2", "longformer:window=2", 70, 131);
  seen_pattern s = open_pattern("streaming:sink=5,window=9", 1, 131, 131, true),
               other = open_pattern("longformer:window=16,global=5", 1, 131, 131, true);
  unsigned char marks[131], wanted[131];
  for (int64_t i = 0; i < 131; i++) {
    mark_row(&s, 0, i, marks);
    mark_row(&other, 0, i, wanted);
    if (memcmp(marks, wanted, sizeof marks) != 0) note_failure("row %d sees other keys", (int)i);
  }
}

Test(core_causal_patterns, refusals) {
  attn_problem p = attn_problem_make(1, 1, 64, 8);
  expect_no_plan(&p, "streaming", ATTN_EUNSUPPORTED, "streaming: only causal");
  expect_no_plan(&p, "sparse_transformer", ATTN_EUNSUPPORTED, "sparse_transformer: only causal");
  p.causal = true;
  expect_no_plan(&p, "sparse_transformer:mode=fixed,stride=4,summary=5", ATTN_EINVAL, "summary=5");
}

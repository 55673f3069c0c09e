/* score.c - what a problem does to its scores, and its masks: every variant that takes them against the
 * definitions in long double, the identities of sinks, tables against published values, and what is
 * refused. */
#include "tests/support/core.h"

enum { HEADS = 4, N_Q = 70, N_KV = 91, SPAN = 40 };

static double table[HEADS * SPAN], sinks[HEADS];
static float bias[HEADS * N_Q * (N_KV + 3)];
static const int64_t documents[] = {0, 1, 30, 31, 64, N_KV};

static void fill(void) {
  uint64_t state = 5;
  for (int i = 0; i < HEADS * SPAN; i++) table[i] = 2 * normal_draw(&state);
  for (int h = 0; h < HEADS; h++) sinks[h] = h == 1 ? 100 : normal_draw(&state); /* one that all is beside */
  for (int i = 0; i < HEADS * N_Q * (N_KV + 3); i++)
    bias[i] = uniform_draw(&state) < 0.2 ? -INFINITY : (float)normal_draw(&state);
  for (int j = 0; j < N_KV; j++) bias[11 * (N_KV + 3) + j] = -INFINITY; /* a row that sees nothing */
}

/* A graph of two runs a row that depends on the head. */
static int64_t graph_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state;
  int64_t first = (position * 7 + head * 3) % 50;
  runs[0] = (attn_run){first, 5 + position % 9, 1};
  runs[1] = (attn_run){first + 20, 13, 1};
  return position % 17 == 3 ? 0 : 2;
}
static const attn_pattern graph = {.row = graph_row, .max_runs = 2, .per_head = true};

enum { SOFTCAP = 1, LEAKY = 2, RELATIVE = 4, SHARED = 8, DENSE = 16, SINK = 32, ALIBI = 64 };
enum { A = SOFTCAP | ALIBI | SINK, B = LEAKY | RELATIVE | DENSE, C = SOFTCAP | SHARED | DENSE | SINK };

static attn_score score_of(int what) {
  static double alibi[HEADS * (2 * N_KV - 1)];
  attn_score s = {.softcap = what & SOFTCAP ? 1.5 : 0, .leaky = what & LEAKY ? 0.2 : 0};
  if (what & RELATIVE) s.relative = table, s.relative_heads = HEADS, s.span = SPAN, s.zero = 13;
  if (what & SHARED) s.relative = table, s.relative_heads = 1, s.span = SPAN, s.zero = 0;
  if (what & ALIBI) {
    cr_assert_eq(attn_alibi(HEADS, N_KV, alibi), ATTN_OK);
    s.relative = alibi, s.relative_heads = HEADS, s.span = 2 * N_KV - 1, s.zero = N_KV - 1;
  }
  if (what & DENSE)
    s.dense = (attn_bias){.at = bias, .dtype = ATTN_F32, .head = N_Q * (N_KV + 3), .row = N_KV + 3};
  if (what & SINK) s.sink = sinks;
  return s;
}

static attn_mask mask_of(attn_mask_kind kind) {
  attn_mask m = {.kind = kind, .size = 13};
  if (kind == ATTN_MASK_DOCUMENTS) m.offsets = documents, m.count = 5;
  if (kind == ATTN_MASK_PATTERN) m.pattern = &graph;
  return m;
}

static void check(const char *spec, int what, attn_mask_kind mask, bool causal, attn_dtype dtype, int64_t n_q,
                  double std) {
  attn_problem p = shape_problem((case_shape){2, HEADS, 2, n_q, N_KV, 17, 9, causal, true}, dtype);
  p.score = score_of(what);
  p.mask = mask_of(mask);
  note_context("%s score %d mask %d%s %s n_q %d", spec, what, (int)mask, causal ? " causal" : "",
               dtype == ATTN_F64 ? "f64" : "f32", (int)n_q);
  inputs in = inputs_make(&p, true, 77, std);
  for (const char *const *isa = isas_under_test(); *isa; isa++)
    expect_spec_within(spec, &(attn_options){.isa = *isa, .threads = 2}, &in, *isa);
}

/* An emulator is left to the kernels: of a setting and a score it has one type, by turns. */
#ifdef EMULATED
enum { TYPES = 1 };
#else
enum { TYPES = 2 };
#endif

static const int scores[] = {SOFTCAP, LEAKY, RELATIVE, SHARED, DENSE, SINK, ALIBI, A, B, C};
enum { SCORES = sizeof scores / sizeof *scores };
static const char *const specs[] = {"full",
                                    "tiled",
                                    "tiled:block_q=16,block_k=24",
                                    "longformer:window=16,global=2",
                                    "longformer:window=12,dilation=3",
                                    "bigbird:block=8",
                                    "svd:r=91"};
enum { SPECS = sizeof specs / sizeof *specs };

Test(core_score, transforms_are_what_they_say) {
  fill();
  for (int s = 0; s < SPECS; s++)
    for (int i = 0; i < SCORES; i++)
      for (int k = 0; k < TYPES; k++) {
        const attn_dtype t = (s + i + k) % 2 ? ATTN_F64 : ATTN_F32;
        check(specs[s], scores[i], ATTN_MASK_NONE, i % 2, t, N_Q, 1.5);
        check(specs[s], scores[i], ATTN_MASK_NONE, true, t, 3, 8);
      }
}

Test(core_score, masks_are_what_they_say) {
  fill();
  for (int s = 0; s < SPECS; s++)
    for (attn_mask_kind m = ATTN_MASK_PREFIX; m <= ATTN_MASK_PATTERN; m++)
      for (int causal = 0; causal <= 1; causal++)
        for (int k = 0; k < TYPES; k++) {
          const attn_dtype t = (s + (int)m + causal + k) % 2 ? ATTN_F64 : ATTN_F32;
          check(specs[s], 0, m, causal, t, N_Q, 1);
          check(specs[s], SOFTCAP | RELATIVE | DENSE | SINK, m, causal, t, 5, 1);
        }
}

Test(core_score, products_of_tiles_take_them_too) {
  fill();
  for (int i = 0; i < SCORES; i++) {
    check("tiled:path=split", scores[i], ATTN_MASK_DOCUMENTS, true, ATTN_F32, N_Q, 1.5);
    check("tiled:precision=bf16", scores[i], ATTN_MASK_NONE, false, ATTN_F32, N_Q, 1.5);
  }
}

/* What a query sees, summed up; of a graph by heads, what those of the first head see. */
Test(core_score, pairs_are_what_queries_see) {
  static const int64_t queries[] = {1, N_Q, N_KV, N_KV + 9};
  for (attn_mask_kind m = ATTN_MASK_NONE; m <= ATTN_MASK_PATTERN; m++)
    for (int k = 0; k < 8; k++) {
      const case_shape shape = {1, HEADS, 2, queries[k / 2], N_KV, 3, 3, k % 2, false};
      attn_problem p = shape_problem(shape, ATTN_F32);
      p.mask = mask_of(m);
      inputs in = inputs_make(&p, false, 1, 1);
      double pairs = 0, scratch[N_KV];
      for (int64_t i = 0; i < p.n_q; i++)
        pairs += (double)attn_reference_row(&p, NULL, in.q, in.k, in.v, NULL, 0, 0, i, NULL, NULL, scratch);
      note_context("mask %d, %d queries%s: %g pairs", (int)m, (int)p.n_q, k % 2 ? ", causal" : "", pairs);
      EXPECT(fabs(attn_visible_pairs(&p) - pairs) < 0.5);
      inputs_free(&in);
    }
}

/* ---- sinks ------------------------------------------------------------------------------------------- */

static void execute_lse(const attn_problem *p, const inputs *in, double *o, double *lse) {
  attn_plan *plan = plan_kept(p, "tiled", NULL);
  attn_tensors x = tensors_of(in);
  x.o = o;
  x.lse = lse;
  EXPECT_STATUS(run_tensors(plan, x), ATTN_OK);
}

/* o_sink = sigmoid(lse - z) o and lse_sink = log(e^lse + e^z), also where no key is seen. */
Test(core_score, a_sink_is_a_sigmoid) {
  fill();
  attn_problem p = shape_problem((case_shape){2, HEADS, 2, N_Q, N_KV, 17, 9, true, true}, ATTN_F64), with = p;
  with.score.sink = sinks;
  inputs in = inputs_make(&p, true, 3, 2);
  const size_t rows = (size_t)(2 * HEADS * N_Q);
  double *o = kept_memory(calloc(9 * rows, sizeof *o)), *sunk = kept_memory(calloc(9 * rows, sizeof *sunk)),
         *lse = kept_memory(calloc(rows, sizeof *lse)), *joined = kept_memory(calloc(rows, sizeof *joined));
  execute_lse(&p, &in, o, lse);
  execute_lse(&with, &in, sunk, joined);
  for (size_t r = 0; r < rows; r++) {
    const double z = sinks[r / N_Q % HEADS], share = 1 / (1 + exp(z - lse[r]));
    const double want = lse[r] > z ? lse[r] + log1p(exp(z - lse[r])) : z + log1p(exp(lse[r] - z));
    EXPECT(fabs(joined[r] - want) <= 1e-13 * (1 + fabs(want)));
    for (size_t l = 9 * r; l < 9 * r + 9; l++) EXPECT(fabs(sunk[l] - share * o[l]) <= 1e-13);
  }
}

/* ---- tables ------------------------------------------------------------------------------------------ */

Test(core_score, slopes_of_alibi) {
  static const double less[] = {1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5}; /* as powers of 1/2 */
  double made[12 * 5];
  for (int heads = 8; heads <= 12; heads++) {
    cr_assert_eq(attn_alibi(heads, 3, made), ATTN_OK);
    for (int h = 0; h < heads; h++)
      for (int at = 0; at < 5; at++) EXPECT(fabs(made[5 * h + at] + exp2(-less[h]) * abs(at - 2)) <= 1e-15);
  }
  EXPECT_STATUS(attn_alibi(0, 3, made), ATTN_EINVAL);
  EXPECT_STATUS(attn_alibi(2, 0, made), ATTN_EINVAL);
}

/* relative_position_bucket of the T5 code takes key - query. */
Test(core_score, buckets_of_t5) {
  static const int both[][2] = {{-300, 15}, {-128, 15}, {-16, 10}, {-8, 8},  {-7, 7},  {0, 0},
                                {1, 17},    {7, 23},    {8, 24},   {16, 26}, {127, 31}};
  static const int causal[][2] = {{-17, 16}, {-15, 15}, {-128, 31}, {0, 0}, {5, 0}};
  int64_t bucket = -1;
  for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
    EXPECT_STATUS(attn_t5_bucket(-both[i][0], true, 32, 128, &bucket), ATTN_OK);
    if (bucket != both[i][1]) note_failure("distance %d: bucket %d", both[i][0], (int)bucket);
  }
  for (size_t i = 0; i < sizeof causal / sizeof *causal; i++) {
    EXPECT_STATUS(attn_t5_bucket(-causal[i][0], false, 32, 128, &bucket), ATTN_OK);
    if (bucket != causal[i][1]) note_failure("causal distance %d: bucket %d", causal[i][0], (int)bucket);
  }
  EXPECT_STATUS(attn_t5_bucket(INT64_MIN, true, 32, 128, &bucket), ATTN_OK);
  EXPECT(bucket == 31);
  EXPECT_STATUS(attn_t5_bucket(1, true, 7, 128, &bucket), ATTN_EINVAL);
  EXPECT_STATUS(attn_t5_bucket(1, true, 32, 8, &bucket), ATTN_EINVAL);
}

/* What no plan takes, no estimate does. */
Test(core_score, estimates_refuse_what_plans_do) {
  static const double sink[] = {0, (double)NAN};
  attn_problem p = attn_problem_make(1, 2, 8, 4);
  p.score.sink = sink;
  EXPECT_STATUS(attn_estimate(&p, "tiled", NULL, NULL, NULL), ATTN_EINVAL);
}

/* ---- refusals ---------------------------------------------------------------------------------------- */

#define REFUSED(status, text, spec, ...)                                                                 \
  do {                                                                                                   \
    attn_problem p = shape_problem((case_shape){1, HEADS, 2, N_Q, N_KV, 17, 9, false, false}, ATTN_F32); \
    __VA_ARGS__;                                                                                         \
    expect_no_plan(&p, spec, status, text);                                                              \
  } while (0)

Test(core_score, what_is_wrong_is_named) {
  fill();
  double bad[HEADS * SPAN];
  memcpy(bad, table, sizeof bad);
  bad[7] = (double)NAN;
  int64_t offsets[] = {0, 5, 5, N_KV};
  attn_pattern strided = graph;
  strided.row = NULL;
  REFUSED(ATTN_EINVAL, "softcap", "tiled", p.score.softcap = -1);
  REFUSED(ATTN_EINVAL, "softcap", "tiled", p.score.softcap = (double)NAN);
  REFUSED(ATTN_EINVAL, "softcap", "tiled", p.dtype = ATTN_F32, p.score.softcap = 2.4e38);
  REFUSED(ATTN_EINVAL, "scale", "tiled", p.dtype = ATTN_F32, p.scale = -2.4e38);
  REFUSED(ATTN_EINVAL, "leaky", "tiled", p.score.leaky = 1);
  REFUSED(ATTN_EINVAL, "not both", "tiled", p.score.leaky = 0.5, p.score.softcap = 3);
  REFUSED(ATTN_EINVAL, "relative_heads", "tiled", p.score = score_of(RELATIVE), p.score.relative_heads = 2);
  REFUSED(ATTN_EINVAL, "span", "tiled", p.score = score_of(RELATIVE), p.score.span = 0);
  REFUSED(ATTN_EINVAL, "zero", "tiled", p.score = score_of(RELATIVE), p.score.zero = SPAN);
  REFUSED(ATTN_EINVAL, "relative[7]", "tiled", p.score = score_of(RELATIVE), p.score.relative = bad);
  REFUSED(ATTN_EINVAL, "sink[7]", "tiled", p.heads = p.kv_heads = 8, p.score.sink = bad);
  REFUSED(ATTN_EINVAL, "row stride", "tiled", p.score = score_of(DENSE), p.score.dense.row = N_KV - 1);
  REFUSED(ATTN_EINVAL, "dense: unknown dtype 4", "tiled", p.score = score_of(DENSE), p.score.dense.dtype = 4);
  REFUSED(ATTN_EINVAL, "dense: negative stride", "tiled", p.score = score_of(DENSE), p.score.dense.head = -1);
  REFUSED(ATTN_EINVAL, "dense: size", "tiled", p.score = score_of(DENSE), p.score.dense.row = INT64_MAX / 8);
  REFUSED(ATTN_EINVAL, "prefix", "tiled", p.mask = mask_of(ATTN_MASK_PREFIX), p.mask.size = -1);
  REFUSED(ATTN_EINVAL, "blocks", "tiled", p.mask = mask_of(ATTN_MASK_BLOCK_CAUSAL), p.mask.size = 0);
  REFUSED(ATTN_EINVAL, "offsets[2] = 5", "tiled", p.mask = mask_of(ATTN_MASK_DOCUMENTS),
          p.mask.offsets = offsets, p.mask.count = 3);
  REFUSED(ATTN_EINVAL, "offsets", "tiled", p.mask = mask_of(ATTN_MASK_DOCUMENTS), p.mask.offsets = NULL);
  REFUSED(ATTN_EINVAL, "pattern", "tiled", p.mask = mask_of(ATTN_MASK_PATTERN), p.mask.pattern = &strided);
  REFUSED(ATTN_EINVAL, "no such kind", "tiled", p.mask.kind = (attn_mask_kind)9);
}

Test(core_score, engines_that_cannot_say_so) {
  fill();
  static const char *const cannot[] = {"performer", "linformer:k=8"};
  for (int i = 0; i < 2; i++) {
    REFUSED(ATTN_EUNSUPPORTED, "soft cap", cannot[i], p.score.softcap = 30);
    REFUSED(ATTN_EUNSUPPORTED, "leaky", cannot[i], p.score.leaky = 0.2);
    REFUSED(ATTN_EUNSUPPORTED, "distance", cannot[i], p.score = score_of(RELATIVE));
    REFUSED(ATTN_EUNSUPPORTED, "bias of the scores", cannot[i], p.score = score_of(DENSE));
    REFUSED(ATTN_EUNSUPPORTED, "sink", cannot[i], p.score = score_of(SINK));
    REFUSED(ATTN_EUNSUPPORTED, "mask", cannot[i], p.mask = mask_of(ATTN_MASK_PREFIX));
  }
}

/* skip.c - steps of keys that tiled passes over: what is visited, against the rule replayed on scores in
 * fp64; the output, against exact attention to what is visited; and when it is tiled to the bit. */
#include "tests/support/core.h"

enum { HEADS = 4, N_Q = 150, N_KV = 211, D = 16, D_V = 5 };

typedef enum { FORWARD, DIAGONAL, SINK_FIRST } order;
static const char *const orders[] = {"forward", "diagonal", "sink_first"};

typedef struct setting {
  order order;
  int64_t block_q, block_k;
  bool causal;
  attn_mask_kind mask;
  bool scores;
  attn_dtype dtype;
  int64_t n_q;
} setting;

static const double skip = 0.02;
static double sinks[HEADS];
static const int64_t documents[] = {0, 40, 130, N_KV};
static int64_t passed; /* steps, in all replays */

/* -- the rule -- */

typedef struct replay {
  const inputs *in;
  const setting *s;
  int64_t b, h;
  double *score; /* [n_q][n_kv], NaN: not seen */
} replay;

static void fill_scores(replay *r) {
  const attn_problem *p = &r->in->problem;
  int64_t keys[N_KV];
  for (int64_t at = 0; at < p->n_q * N_KV; at++) r->score[at] = (double)NAN;
  for (int64_t i = 0; i < p->n_q; i++) {
    const int64_t count = oracle_keys(r->in, NULL, r->b, r->h, i, keys);
    for (int64_t a = 0; a < count; a++) {
      double sum = 0;
      for (int64_t l = 0; l < D; l++)
        sum += inputs_get(r->in, TENSOR_Q, r->b, r->h, i, l) *
               inputs_get(r->in, TENSOR_K, r->b, r->h * p->kv_heads / p->heads, keys[a], l);
      r->score[i * N_KV + keys[a]] = attn_score_of(p, r->b, r->h, i, keys[a], sum * p->scale);
    }
  }
}

/* Is there a score among these that is not below its row's maximum by more than the rule lets it? */
static bool reaches(const replay *r, const double *most, int64_t row0, int64_t rows, int64_t from,
                    int64_t to) {
  bool taken = false;
  for (int64_t i = row0; i < row0 + rows; i++)
    for (int64_t j = from; j < to; j++) {
      const double x = r->score[i * N_KV + j], limit = most[i - row0] + log(skip);
      if (isnan(x)) continue;
      if (fabs(x - limit) < 1e-9 * fabs(limit)) note_failure("a score at the limit: take another seed");
      taken |= !(x < limit);
    }
  return taken;
}

/* Marks the keys that rows row0 ... visit, of the tile from tile0 on. */
static void mark_visited(const replay *r, int64_t tile0, int64_t tile_rows, int64_t row0, int64_t rows,
                         bool *visited) {
  const attn_problem *p = &r->in->problem;
  const int64_t keys = r->s->block_k, exist = inputs_keys(r->in, r->b), last = tile0 + tile_rows - 1;
  int64_t low = N_KV, high = 0;
  double most[64];
  bool done[N_KV] = {false};
  memset(visited, 0, N_KV * sizeof *visited);
  for (int64_t i = tile0; i <= last; i++) {
    int64_t first, end;
    attn_visible_span(p, i, &first, &end);
    if (first < end && first < low) low = first;
    if (first < end && end > high) high = end;
  }
  for (int64_t i = 0; i < rows; i++) most[i] = p->score.sink ? p->score.sink[r->h] : -(double)INFINITY;
  const int64_t steps = high > low ? (high - low + keys - 1) / keys : 0,
                place = last + p->n_kv - p->n_q - low,
                diagonal = r->s->order == FORWARD ? -1 : attn_min(place < 0 ? 0 : place / keys, steps - 1);
  for (int64_t turn = 0; turn < steps; turn++) {
    /* The step of this turn: the first, the one on the diagonal, or the next one towards the beginning that
     * was not yet. */
    int64_t step = diagonal;
    if (r->s->order == SINK_FIRST && turn == 0) step = 0;
    while (step >= 0 && done[step]) step--;
    if (step < 0)
      for (step = 0; done[step];) step++;
    done[step] = true;
    const int64_t from = low + step * keys, to = attn_min(attn_min(from + keys, high), exist);
    if (!reaches(r, most, row0, rows, from, to)) {
      for (int64_t i = row0; i < row0 + rows; i++)
        for (int64_t j = from; j < to; j++) passed += !isnan(r->score[i * N_KV + j]);
      continue;
    }
    for (int64_t j = from; j < to; j++) visited[j] = true;
    for (int64_t i = row0; i < row0 + rows; i++)
      for (int64_t j = from; j < to; j++) most[i - row0] = fmax(most[i - row0], r->score[i * N_KV + j]);
  }
}

/* -- what is visited, as the plan tells it -- */

static unsigned char kept[HEADS][N_Q][N_KV]; /* of one batch entry */

static int64_t kept_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  const attn_problem *p = state;
  const unsigned char *own = kept[head][position - (p->n_kv - p->n_q)];
  int64_t count = 0;
  for (int64_t j = 0; j < N_KV; j++) {
    if (!own[j]) continue;
    if (!count || runs[count - 1].first + runs[count - 1].count < j) runs[count++] = (attn_run){j, 0, 1};
    runs[count - 1].count++;
  }
  return count;
}

static void ask(const attn_plan *plan, const inputs *in, int64_t b, int64_t h) {
  const attn_problem *p = &in->problem;
  attn_view view;
  int64_t rows[N_Q], counts[N_Q];
  cr_assert_eq(attn_plan_inspect(plan, &view), ATTN_OK);
  cr_assert_not_null(view.selector);
  cr_assert(view.selector->least >= skip && view.selector->least <= skip);
  attn_run *runs = calloc((size_t)(p->n_q * view.selector->max_runs), sizeof *runs);
  for (int64_t i = 0; i < p->n_q; i++) rows[i] = i;
  const attn_row_set set = {b, h, p->n_q, rows};
  attn_picks picks = {.max_runs = view.selector->max_runs, .runs = runs, .counts = counts};
  EXPECT_STATUS(
      attn_plan_select(
          plan, &(attn_tensors){.q = in->q, .k = in->k, .v = in->v, .kv_len = in->padded ? in->kv_len : NULL},
          &set, &picks),
      ATTN_OK);
  memset(kept[h], 0, sizeof kept[h]);
  for (int64_t i = 0; i < p->n_q; i++)
    for (int64_t r = 0; r < counts[i]; r++)
      for (int64_t j = 0; j < runs[i * view.selector->max_runs + r].count; j++)
        kept[h][i][runs[i * view.selector->max_runs + r].first + j] = 1;
  free(runs);
}

/* The rule, and the plan's own account without what the rows do not see. */
static void compare(const replay *r) {
  const int64_t n_q = r->in->problem.n_q, tile = r->s->block_q, unit = attn_min(tile, ATTN_TILE);
  bool visited[N_KV];
  int64_t wrong = 0;
  for (int64_t row0 = 0; row0 < n_q; row0 += unit) {
    const int64_t tile0 = row0 / tile * tile, rows = attn_min(unit, n_q - row0);
    mark_visited(r, tile0, attn_min(tile, n_q - tile0), row0, rows, visited);
    for (int64_t i = row0; i < row0 + rows; i++)
      for (int64_t j = 0; j < N_KV; j++) {
        const bool sees = !isnan(r->score[i * N_KV + j]);
        wrong += sees && kept[r->h][i][j] != visited[j];
        if (!sees) kept[r->h][i][j] = 0;
      }
  }
  if (wrong) note_failure("head %d: %d pairs against the rule", (int)r->h, (int)wrong);
}

/* Of batch entry 0 the output must be exact attention to the kept keys alone. */
static void judge_output(const attn_plan *plan, const inputs *in) {
  inputs alone = inputs_copy(in);
  const attn_pattern graph = {
      .state = &alone.problem, .row = kept_row, .max_runs = N_KV / 2 + 1, .per_head = true};
  alone.problem.mask = (attn_mask){.kind = ATTN_MASK_PATTERN, .pattern = &graph};
  attn_plan *exact = plan_kept(&alone.problem, "tiled", NULL);
  oracle expected = oracle_of(exact, &alone);
  void *o = run_plain(plan, in);
  expect_within(&in->problem, o, &expected, "attention to what is visited");
  free(o);
  oracle_free(&expected);
}

static void check(setting s, const char *isa, bool padded) {
  attn_problem p =
      shape_problem((case_shape){padded ? 2 : 1, HEADS, 2, s.n_q, N_KV, D, D_V, s.causal, false}, s.dtype);
  double alibi[HEADS * (2 * N_KV - 1)];
  if (s.mask == ATTN_MASK_DOCUMENTS)
    p.mask = (attn_mask){.kind = s.mask, .offsets = documents, .count = 3};
  else
    p.mask = (attn_mask){.kind = s.mask, .size = 33};
  if (s.scores) {
    cr_assert_eq(attn_alibi(HEADS, N_KV, alibi), ATTN_OK);
    p.score = (attn_score){.softcap = 20,
                           .relative = alibi,
                           .relative_heads = HEADS,
                           .span = 2 * N_KV - 1,
                           .zero = N_KV - 1,
                           .sink = sinks};
  }
  const char *spec = text_of("tiled:skip=0.02,order=%s,block_q=%d,block_k=%d", orders[s.order],
                             (int)s.block_q, (int)s.block_k);
  note_context("%s%s mask %d%s %s n_q %d %s", spec, s.causal ? " causal" : "", (int)s.mask,
               s.scores ? " scores" : "", s.dtype == ATTN_F64 ? "f64" : "f32", (int)s.n_q, isa);
  inputs in = inputs_make(&p, padded, 5, 2.2);
  attn_plan *plan = plan_kept(&in.problem, spec, &(attn_options){.isa = isa, .threads = 2});
  replay r = {.in = &in, .s = &s, .score = malloc((size_t)(s.n_q * N_KV) * sizeof(double))};
  cr_assert_not_null(r.score);
  for (r.h = 0; r.h < HEADS; r.h++) {
    fill_scores(&r);
    ask(plan, &in, 0, r.h);
    compare(&r);
  }
  if (!padded) judge_output(plan, &in);
  free(r.score);
}

Test(core_skip, visits_what_the_rule_says) {
  const char *const *isas = isas_under_test();
  for (int h = 0; h < HEADS; h++) sinks[h] = h - 1;
  for (order o = FORWARD; o <= SINK_FIRST; o++)
    for (int causal = 0; causal <= 1; causal++)
      for (const char *const *isa = isas; *isa; isa++) {
        check((setting){o, 64, 16, causal, ATTN_MASK_NONE, false, ATTN_F64, N_Q}, *isa, false);
        check((setting){o, 128, 12, causal, ATTN_MASK_NONE, false, ATTN_F32, N_Q}, *isa, false);
        check((setting){o, 10, 7, causal, ATTN_MASK_NONE, false, ATTN_F64, N_Q}, *isa, true);
        check((setting){o, 16, 9, causal, ATTN_MASK_DOCUMENTS, true, ATTN_F64, N_Q}, *isa, false);
        check((setting){o, 64, 8, causal, ATTN_MASK_PREFIX, true, ATTN_F32, 60}, *isa, true);
        check((setting){o, 64, 16, causal, ATTN_MASK_BLOCK_CAUSAL, false, ATTN_F32, 3}, *isa, false);
      }
  cr_expect_gt(passed, 10000, "%d pairs passed over: the inputs show nothing", (int)passed);
}

/* Hidden pairs are not recorded, and a key that no query of a tile sees is not visited. */
Test(core_skip, what_a_bias_hides_is_not_visited) {
  static float bias[N_Q * N_KV];
  attn_problem p = shape_problem((case_shape){1, HEADS, HEADS, N_Q, N_KV, D, D_V, false, false}, ATTN_F32);
  for (int64_t at = 0; at < N_Q * N_KV; at++) bias[at] = at % N_KV % 2 ? -INFINITY : 0;
  p.score.dense = (attn_bias){.at = bias, .dtype = ATTN_F32, .row = N_KV};
  inputs in = inputs_make(&p, false, 5, 2);
  attn_plan *plan = plan_kept(&in.problem, "tiled:skip=0.02,block_k=16", NULL);
  ask(plan, &in, 0, 1);
  for (int64_t i = 0; i < N_Q; i++)
    for (int64_t j = 1; j < N_KV; j += 2) cr_assert(!kept[1][i][j], "query %d, key %d", (int)i, (int)j);
}

static void expect_equal(const inputs *in, const char *spec, const char *other, const char *isa) {
  const attn_options options = {.isa = isa};
  expect_same_outputs(&in->problem, run_spec(spec, &options, in), run_spec(other, &options, in), spec);
}

/* Where nothing is passed over in ascending order, every sum is the same; and the order says nothing without
 * skip. */
Test(core_skip, what_passes_nothing_over_is_tiled) {
  for (const char *const *isa = isas_under_test(); *isa; isa++)
    for (int causal = 0; causal <= 1; causal++) {
      inputs in =
          inputs_shaped((case_shape){2, HEADS, HEADS, N_Q, N_KV, D, D_V, causal, true}, ATTN_F32, 5, 1);
      note_context("%s%s", *isa, causal ? " causal" : "");
      expect_equal(&in, "tiled:skip=1e-30,path=fma,block_q=64,block_k=24",
                   "tiled:path=fma,block_q=64,block_k=24", *isa);
      expect_equal(&in, "tiled:order=diagonal", "tiled", *isa);
      inputs_free(&in);
    }
}

/* A query that sees none of the first hundred keys stands between queries that do: it does not ask for what
 * it does not see, under any width of vectors. */
Test(core_skip, who_sees_nothing_asks_for_nothing) {
  static float bias[64 * N_KV];
  attn_problem p = shape_problem((case_shape){1, 1, 1, 64, N_KV, D, D_V, false, false}, ATTN_F32);
  for (int64_t j = 0; j < 100; j++) bias[N_KV + j] = -INFINITY;
  p.score.dense = (attn_bias){.at = bias, .dtype = ATTN_F32, .row = N_KV};
  inputs in = inputs_make(&p, false, 5, 1);
  for (int64_t i = 0; i < 64; i++) inputs_set(&in, TENSOR_Q, 0, 0, i, 0, 10);
  inputs_set(&in, TENSOR_K, 0, 0, 0, 0, 40); /* a score of 100, where others have 10 */
  attn_plan *plan = plan_kept(&in.problem, "tiled:skip=0.02,block_q=64,block_k=8", NULL);
  ask(plan, &in, 0, 0);
  cr_expect(kept[0][0][7] && !kept[0][0][8] && !kept[0][0][95] && kept[0][1][100]);
}

/* A NaN is not below anything: its row must be NaN, where all else is passed over. */
Test(core_skip, a_nan_is_never_passed_over) {
  inputs in = inputs_shaped((case_shape){1, 1, 1, 64, N_KV, D, D_V, false, false}, ATTN_F32, 5, 1);
  for (int64_t i = 0; i < 64; i++) inputs_set(&in, TENSOR_Q, 0, 0, i, 0, 10);
  inputs_set(&in, TENSOR_K, 0, 0, 0, 0, 40); /* a score of 100, where others have 10 */
  inputs_set(&in, TENSOR_K, 0, 0, 200, 3, (double)NAN);
  attn_plan *plan = plan_kept(&in.problem, "tiled:skip=0.02,block_k=8", NULL);
  ask(plan, &in, 0, 0);
  cr_expect(kept[0][0][7] && !kept[0][0][8] && kept[0][0][200] && !kept[0][0][208]);
}

/* What the parameters of tiled do not let through. */
static attn_tiling given;
static attn_status tiling_of(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b, (void)c;
  out->tiling = given;
  return ATTN_OK;
}
ATTN_VARIANT(toy_tiling, TOY, .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_EXACT, .describe = tiling_of,
             .cost = no_cost)

Test(core_skip, refusals) {
  static const attn_pattern graph = {.row = kept_row, .max_runs = 1};
  attn_problem p = attn_problem_make(1, 2, 70, 8);
  expect_no_plan(&p, "tiled:skip=2", ATTN_EINVAL, "skip=2");
  expect_no_plan(&p, "tiled:skip=-1", ATTN_EINVAL, "skip=-1");
  expect_no_plan(&p, "tiled:skip=0.1,block_q=100", ATTN_EINVAL, "a multiple of it");
  expect_no_plan(&p, "tiled:skip=0.1,path=split", ATTN_EINVAL, "path=fma");
  expect_no_plan(&p, "tiled:skip=0.1,precision=bf16", ATTN_EINVAL, "path=fma");
  expect_no_plan(&p, "tiled:skip=0.1,order=random", ATTN_EINVAL, "order=random");
  p.mask = (attn_mask){.kind = ATTN_MASK_PATTERN, .pattern = &graph};
  expect_no_plan(&p, "tiled:skip=0.1", ATTN_EUNSUPPORTED, "user's graph");
  const struct {
    attn_tiling tiling;
    const char *said;
  } refused[] = {{{.skip = -0.5}, "tiling.skip = -0.5"},
                 {{.skip = 1.5}, "tiling.skip = 1.5"},
                 {{.order = (attn_order)-1}, "tiling.order = -1"},
                 {{.order = ATTN_ORDER_SINK_FIRST + 1}, "no such order"},
                 {{.path = ATTN_PATH_BF16 + 1}, "no such path"},
                 {{.blocks = {-1, 8}}, "tiling of -1 queries and 8 keys"},
                 {{.blocks = {8, -1}}, "tiling of 8 queries and -1 keys"},
                 {{.blocks = {ATTN_BLOCK_MAX + 1, 8}}, "and 8 keys, expected 0"},
                 {{.blocks = {8, ATTN_BLOCK_MAX + 1}}, "tiling of 8 queries"},
                 {{.path = ATTN_PATH_BF16}, "needs fp32 tensors"}};
  p = attn_problem_make(1, 2, 70, 8);
  cr_assert_eq(attn_variant_register(&attn_variant_toy_tiling), ATTN_OK, "%s", attn_last_error());
  given =
      (attn_tiling){.blocks = {ATTN_BLOCK_MAX, ATTN_BLOCK_MAX}, .skip = 1, .order = ATTN_ORDER_SINK_FIRST};
  attn_plan_destroy(plan_or_note(&p, "toy_tiling", NULL));
  p.dtype = ATTN_F64;
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    given = refused[i].tiling;
    expect_no_plan(&p, "toy_tiling", i == 9 ? ATTN_EUNSUPPORTED : ATTN_EINVAL, refused[i].said);
  }
}

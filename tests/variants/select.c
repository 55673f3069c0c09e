/* select.c - keys that are selected from Q and K: topk against a full ranking in long double, what an execution attends
 * to, selections that cover everything, and selectors that break their contract. */
#include "tests/support/core.h"

enum { HEADS = 4, N_Q = 75, N_KV = 90, D = 16, D_V = 7 };

static inputs make(attn_dtype t, bool causal, double std) {
  attn_problem p = shape_problem((case_shape){2, HEADS, 2, N_Q, N_KV, D, D_V, causal, true}, t);
  return inputs_make(&p, true, 11, std);
}

typedef struct picks {
  attn_plan *plan;
  attn_view view;
  attn_run *runs;
  int64_t *counts;
} picks;

static picks pick(const char *spec, const inputs *in) {
  picks x = {.plan = plan_or_note(&in->problem, spec, NULL)};
  cr_assert_not_null(x.plan);
  cr_assert_eq(attn_plan_inspect(x.plan, &x.view), ATTN_OK);
  cr_assert_not_null(x.view.selector);
  const size_t rows = (size_t)(in->problem.batch * in->problem.heads * in->problem.n_q);
  x.runs = calloc(rows * (size_t)x.view.selector->max_runs, sizeof *x.runs);
  x.counts = calloc(rows, sizeof *x.counts);
  int64_t all[N_Q];
  for (int64_t i = 0; i < N_Q; i++) all[i] = i;
  for (int64_t line = 0; line < in->problem.batch * HEADS; line++) {
    const attn_row_set set = {line / HEADS, line % HEADS, N_Q, all};
    EXPECT_STATUS(attn_plan_select(x.plan, in->q, in->k, in->v, in->padded ? in->kv_len : NULL, &set,
                                   x.runs + line * N_Q * x.view.selector->max_runs, x.counts + line * N_Q),
                  ATTN_OK);
  }
  return x;
}

static void picks_free(picks *x) {
  free(x->runs);
  free(x->counts);
  attn_plan_destroy(x->plan);
}

static bool picked(const picks *x, int64_t line, int64_t key) {
  const attn_run *runs = x->runs + line * x->view.selector->max_runs;
  for (int64_t r = 0; r < x->counts[line]; r++)
    if (key >= runs[r].first && key < runs[r].first + runs[r].count) return true;
  return false;
}

/* Scores are multiples of 1/64 so that they are exact, and many are equal. */
static long double exact_score(const inputs *in, int64_t b, int64_t h, int64_t i, int64_t j) {
  long double s = 0;
  for (int64_t l = 0; l < D; l++)
    s += (long double)inputs_get(in, TENSOR_Q, b, h, i, l) *
         (long double)inputs_get(in, TENSOR_K, b, h / (in->problem.heads / in->problem.kv_heads), j, l);
  return s * (long double)in->problem.scale;
}

/* A visible key is picked iff fewer than k visible keys come before it. */
static void check_ranks(const char *spec, int64_t k, int64_t sink, int64_t window, attn_dtype t,
                        bool causal) {
  inputs in = make(t, causal, 1);
  inputs_quantise(&in, TENSOR_Q, 1);
  inputs_quantise(&in, TENSOR_K, 1);
  note_context("%s%s %s", spec, causal ? " causal" : "", t == ATTN_F64 ? "f64" : "f32");
  picks x = pick(spec, &in);
  int64_t keys[N_KV], wrong = 0;
  for (int64_t b = 0; b < 2; b++)
    for (int64_t h = 0; h < HEADS; h++)
      for (int64_t i = 0; i < N_Q; i++) {
        const int64_t count = oracle_keys(&in, NULL, b, h, i, keys);
        for (int64_t a = 0; a < count; a++) {
          const bool kept = a < sink || a >= count - window;
          const long double own = exact_score(&in, b, h, i, keys[a]);
          int64_t ahead = 0;
          for (int64_t c = sink; c < count - window && !kept; c++) {
            const long double other = exact_score(&in, b, h, i, keys[c]);
            ahead += other > own || (!(other < own) && c < a);
          }
          wrong += picked(&x, (b * HEADS + h) * N_Q + i, keys[a]) != (kept || ahead < k);
        }
      }
  if (wrong) note_failure("%d keys", (int)wrong);
  picks_free(&x);
  inputs_free(&in);
}

Test(variants_select, topk_ranks_all_keys) {
  for (attn_dtype t = ATTN_F32; t <= ATTN_F64; t++)
    for (int causal = 0; causal <= 1; causal++) {
      check_ranks("topk:k=7", 7, 0, 0, t, causal);
      check_ranks("topk:k=1", 1, 0, 0, t, causal);
      check_ranks("topk:k=9,sink=3,window=5", 9, 3, 5, t, causal);
    }
}

/* The pattern of one batch entry's selection. */
typedef struct recorded {
  const picks *x;
  int64_t batch;
} recorded;

static int64_t recorded_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  const recorded *r = state;
  const int64_t line = (r->batch * HEADS + head) * N_Q + position - (N_KV - N_Q),
                most = r->x->view.selector->max_runs;
  memcpy(runs, r->x->runs + line * most, (size_t)r->x->counts[line] * sizeof *runs);
  return r->x->counts[line];
}

static void check_attended(const char *spec, attn_dtype t, bool causal, double softcap) {
  inputs in = make(t, causal, 2);
  in.problem.score.softcap = softcap;
  picks x = pick(spec, &in);
  const attn_problem *p = &in.problem;
  void *o = run_plain(x.plan, &in);
  note_context("%s%s %s", spec, causal ? " causal" : "", t == ATTN_F64 ? "f64" : "f32");
  double want[D_V], bound[D_V];
  int64_t keys[N_KV], wrong = 0;
  for (int64_t b = 0; b < 2; b++)
    for (int64_t h = 0; h < HEADS; h++)
      for (int64_t i = 0; i < N_Q; i++) {
        const recorded state = {&x, b};
        const attn_pattern pattern = {
            .state = &state, .row = recorded_row, .max_runs = x.view.selector->max_runs};
        const int64_t count = oracle_keys(&in, &pattern, b, h, i, keys);
        oracle_row(&in, &x.view.rounding, NULL, b, h, i, keys, count, false, want, bound);
        for (int64_t l = 0; l < D_V; l++)
          wrong += !(fabs(output_get(p, o, b, h, i, l) - want[l]) <= bound[l]);
      }
  if (wrong) note_failure("%d outputs", (int)wrong);
  free(o);
  picks_free(&x);
  inputs_free(&in);
}

Test(variants_select, what_is_selected_is_attended_to) {
  static const char *const specs[] = {"topk:k=9", "topk:k=5,window=4", "topk:k=200"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
    for (attn_dtype t = ATTN_F32; t <= ATTN_F64; t++)
      for (int causal = 0; causal <= 1; causal++) {
        check_attended(specs[i], t, causal, 0);
        check_attended(specs[i], t, causal, 3);
      }
}

/* ---- a selector of this test's own ---------------------------------------------------------------------- */

/* Pages of 8 keys, two in three, turned by the head, the batch entry and the row or block. `fault`: one selection that
 * breaks the contract. */
enum { PAGE = 8, PAGES = (N_KV + PAGE - 1) / PAGE, TOY_ROWS = 20 };
typedef enum { SOUND, TOO_MANY, DESCENDING, BEYOND, STRIDED, NO_KEYS } toy_fault;
static attn_share toy_share;
static toy_fault toy_fault_now;

static int64_t toy_pick(int64_t turn, attn_run *runs) {
  int64_t count = 0;
  for (int64_t page = 0; page < PAGES; page++)
    if ((page + turn) % 3) {
      const int64_t first = page * PAGE;
      runs[count++] = (attn_run){first, N_KV - first < PAGE ? N_KV - first : PAGE, 1};
    }
  return count;
}

static void toy_break(attn_run *runs, int64_t *count) {
  if (toy_fault_now == TOO_MANY) *count = PAGES + 1;
  if (toy_fault_now == DESCENDING) runs[1].first = runs[0].first;
  if (toy_fault_now == BEYOND) runs[*count - 1].count = N_KV;
  if (toy_fault_now == STRIDED) runs[0].step = 2;
  if (toy_fault_now == NO_KEYS) runs[0].count = 0;
}

static void toy_select(const void *state, const attn_call *call, const attn_block *b, const void *prepared,
                       attn_run *runs, int64_t *counts, void *scratch) {
  (void)state, (void)call, (void)prepared, (void)scratch;
  for (int64_t i = 0; i < (toy_share == ATTN_SHARE_TILE ? 1 : b->count); i++) {
    counts[i] = toy_pick(b->batch + 2 * b->head + (b->first + i) / 4, runs + i * PAGES);
    if (b->first + i == 40) toy_break(runs + i * PAGES, &counts[i]);
  }
}

static attn_selector toy_selector(void) {
  return (attn_selector){.share = toy_share, .rows = TOY_ROWS, .max_runs = PAGES, .select = toy_select};
}
static attn_status toy_plan(attn_builder *b, void **state) {
  const attn_selector selector = toy_selector();
  return attn_selection_plan(b, &selector, state);
}
static size_t toy_work_size(const attn_context *c) {
  const attn_selector selector = toy_selector();
  return attn_selection_work_size(c, &selector);
}
static attn_cost toy_cost(const attn_context *c) {
  return attn_softmax_cost(c, attn_visible_pairs(c->problem));
}
static const attn_param toy_table[] = {{.name = NULL}};
static const attn_variant toy = {.abi = ATTN_ABI,
                                 .size = sizeof(attn_variant),
                                 .name = "toy",
                                 .summary = "pages by turns",
                                 .cite = "none",
                                 .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_LSE | ATTN_CAP_DATA,
                                 .params = toy_table,
                                 .work_size = toy_work_size,
                                 .cost = toy_cost,
                                 .plan = toy_plan,
                                 .execute = attn_selection_execute,
                                 .inspect = attn_selection_inspect};

Test(variants_select, every_way_of_sharing) {
  cr_assert_eq(attn_variant_register(&toy), ATTN_OK);
  for (toy_share = ATTN_SHARE_ROW; toy_share <= ATTN_SHARE_TILE; toy_share++)
    for (attn_dtype t = ATTN_F32; t <= ATTN_F64; t++)
      for (int causal = 0; causal <= 1; causal++) {
        check_attended("toy", t, causal, 0);
        check_attended("toy", t, causal, 3);
      }
}

static void expect_broken(toy_fault fault, const char *text) {
  inputs in = make(ATTN_F32, false, 1);
  attn_plan *plan = plan_or_note(&in.problem, "toy", NULL);
  void *work = malloc(attn_plan_work_size(plan)), *o = malloc(tensor_bytes(&in.problem, TENSOR_O));
  toy_fault_now = fault;
  note_context("fault %d share %d", (int)fault, (int)toy_share);
  EXPECT_STATUS(attn_plan_execute(plan, in.q, in.k, in.v, in.kv_len, o, work), ATTN_EINVAL);
  if (!strstr(attn_last_error(), text) || !strstr(attn_last_error(), "query 40"))
    note_failure("\"%s\"", attn_last_error());
  toy_fault_now = SOUND;
  free(o);
  free(work);
  attn_plan_destroy(plan);
  inputs_free(&in);
}

Test(variants_select, a_broken_selection_is_named) {
  cr_assert_eq(attn_variant_register(&toy), ATTN_OK);
  for (toy_share = ATTN_SHARE_ROW; toy_share <= ATTN_SHARE_TILE; toy_share++) {
    expect_broken(TOO_MANY, "max_runs");
    expect_broken(DESCENDING, "overlap or do not ascend");
    expect_broken(BEYOND, "beyond the last key");
    expect_broken(STRIDED, "step");
    expect_broken(NO_KEYS, "no keys");
  }
}

Test(variants_select, a_graph_as_a_mask_is_refused) {
  static const attn_pattern graph = {.row = recorded_row, .max_runs = 1};
  attn_problem p = shape_problem((case_shape){1, 1, 1, 9, 9, 4, 4, false, false}, ATTN_F32);
  attn_plan *plan = NULL;
  p.mask = (attn_mask){.kind = ATTN_MASK_PATTERN, .pattern = &graph};
  EXPECT_STATUS(attn_plan_create(&plan, &p, "topk", NULL), ATTN_EUNSUPPORTED);
  EXPECT(strstr(attn_last_error(), "graph"));
}

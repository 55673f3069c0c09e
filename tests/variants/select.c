/* select.c - keys that are selected from Q and K: topk against a full ranking in long double, every way of
 * sharing a selection, and selectors that break their contract. */
#include "tests/variants/picks.h"

enum { HEADS = 4, N_Q = 75, N_KV = 90, D = 16, D_V = 7 };

static inputs make(attn_dtype t, bool causal, double std) {
  attn_problem p = shape_problem((case_shape){2, HEADS, 2, N_Q, N_KV, D, D_V, causal, true}, t);
  return inputs_make(&p, true, 11, std);
}

/* Scores are multiples of 1/64 so that they are exact, and many are equal. */
static long double exact_score(const inputs *in, int64_t b, int64_t h, int64_t i, int64_t j, int64_t r) {
  long double s = 0;
  for (int64_t l = 0; l < D; l++) {
    int64_t longer = 0;
    for (int64_t m = 0; m < D; m++) {
      const double own = fabs(inputs_get(in, TENSOR_Q, b, h, i, l)),
                   other = fabs(inputs_get(in, TENSOR_Q, b, h, i, m));
      longer += other > own || (!(other < own) && m < l);
    }
    if (longer >= r) continue;
    s += (long double)inputs_get(in, TENSOR_Q, b, h, i, l) *
         (long double)inputs_get(in, TENSOR_K, b, h / (in->problem.heads / in->problem.kv_heads), j, l);
  }
  return s * (long double)in->problem.scale;
}

/* A visible key is picked iff fewer than k visible keys come before it. */
typedef struct ranked {
  int64_t k, sink, window, r, heads; /* coordinates of a product; heads that share a ranking */
} ranked;

static long double rank_score(const inputs *in, const ranked *x, int64_t b, int64_t h, int64_t i, int64_t j) {
  long double best = -(long double)INFINITY;
  for (int64_t g = h / x->heads * x->heads, end = g + x->heads; g < end; g++)
    best = fmaxl(best, exact_score(in, b, g, i, j, x->r));
  return best;
}

static void check_ranks(const char *spec, ranked want, attn_dtype t, bool causal) {
  const int64_t sink = want.sink, window = want.window;
  inputs in = make(t, causal, 1);
  inputs_quantise(&in, TENSOR_Q, 1);
  inputs_quantise(&in, TENSOR_K, 1);
  note_context("%s%s %s", spec, causal ? " causal" : "", t == ATTN_F64 ? "f64" : "f32");
  picks x = picks_of(spec, &in);
  int64_t keys[N_KV], wrong = 0;
  for (int64_t b = 0; b < 2; b++)
    for (int64_t h = 0; h < HEADS; h++)
      for (int64_t i = 0; i < N_Q; i++) {
        const int64_t count = oracle_keys(&in, NULL, b, h, i, keys);
        long double score[N_KV];
        for (int64_t a = 0; a < count; a++) score[a] = rank_score(&in, &want, b, h, i, keys[a]);
        for (int64_t a = 0; a < count; a++) {
          const bool kept = a < sink || a >= count - window;
          int64_t ahead = 0;
          for (int64_t c = sink; c < count - window && !kept; c++)
            ahead += score[c] > score[a] || (!(score[c] < score[a]) && c < a);
          wrong += picks_has(&x, (b * HEADS + h) * N_Q + i, keys[a]) != (kept || ahead < want.k);
        }
      }
  if (wrong) note_failure("%d keys", (int)wrong);
}

Test(variants_select, topk_ranks_all_keys) {
  for (attn_dtype t = ATTN_F32; t <= ATTN_F64; t++)
    for (int causal = 0; causal <= 1; causal++) {
      check_ranks("topk:k=7", (ranked){7, 0, 0, D, 1}, t, causal);
      check_ranks("topk:k=1", (ranked){1, 0, 0, D, 1}, t, causal);
      check_ranks("topk:k=9,sink=3,window=5", (ranked){9, 3, 5, D, 1}, t, causal);
      check_ranks("topk:k=7,by=sparq,r=5", (ranked){7, 0, 0, 5, 1}, t, causal);
      check_ranks("topk:k=7,share=group", (ranked){7, 0, 0, D, 2}, t, causal);
    }
}

/* An orthonormal basis of the r leading eigenvectors of the second moment of a kv head's keys, by iteration
 * of a subspace. */
static void leading(const inputs *in, int64_t b, int64_t kv_head, int64_t r, long double basis[][D]) {
  enum { ROUNDS = 3000 };
  long double moment[D][D] = {{0}};
  for (int64_t j = 0; j < inputs_keys(in, b); j++)
    for (int64_t l = 0; l < D; l++)
      for (int64_t m = 0; m < D; m++)
        moment[l][m] += (long double)inputs_get(in, TENSOR_K, b, kv_head, j, l) *
                        (long double)inputs_get(in, TENSOR_K, b, kv_head, j, m);
  for (int64_t a = 0; a < r; a++)
    for (int64_t l = 0; l < D; l++) basis[a][l] = (long double)((a * 7 + l * 5 + a * l * l) % 11 - 5);
  for (int64_t round = 0; round < ROUNDS; round++)
    for (int64_t a = 0; a < r; a++) {
      long double next[D] = {0}, norm = 0;
      for (int64_t l = 0; l < D; l++)
        for (int64_t m = 0; m < D; m++) next[l] += moment[l][m] * basis[a][m];
      for (int64_t c = 0; c < a; c++) {
        long double along = 0;
        for (int64_t l = 0; l < D; l++) along += next[l] * basis[c][l];
        for (int64_t l = 0; l < D; l++) next[l] -= along * basis[c][l];
      }
      for (int64_t l = 0; l < D; l++) norm += next[l] * next[l];
      for (int64_t l = 0; l < D; l++) basis[a][l] = norm > 0 ? next[l] / sqrtl(norm) : 0;
    }
}

static void check_loki(attn_dtype t, bool causal) {
  enum { K = 9, R = 5 };
  inputs in = make(t, causal, 1);
  note_context("loki%s %s", causal ? " causal" : "", t == ATTN_F64 ? "f64" : "f32");
  picks x = picks_of("topk:k=9,by=loki,r=5", &in);
  const long double margin = t == ATTN_F64 ? 1e-11L : 1e-4L;
  int64_t keys[N_KV], wrong = 0;
  for (int64_t b = 0; b < 2; b++)
    for (int64_t h = 0; h < HEADS; h++) {
      long double basis[R][D];
      leading(&in, b, h / 2, R, basis);
      for (int64_t i = 0; i < N_Q; i++) {
        const int64_t count = oracle_keys(&in, NULL, b, h, i, keys);
        long double least = (long double)INFINITY, most = -(long double)INFINITY;
        int64_t kept = 0;
        for (int64_t a = 0; a < count; a++) {
          long double s = 0;
          for (int64_t e = 0; e < R; e++) {
            long double q = 0, k = 0;
            for (int64_t l = 0; l < D; l++) {
              q += basis[e][l] * (long double)inputs_get(&in, TENSOR_Q, b, h, i, l);
              k += basis[e][l] * (long double)inputs_get(&in, TENSOR_K, b, h / 2, keys[a], l);
            }
            s += q * k;
          }
          const bool has = picks_has(&x, (b * HEADS + h) * N_Q + i, keys[a]);
          kept += has;
          if (has) least = fminl(least, s);
          if (!has) most = fmaxl(most, s);
        }
        wrong += kept != (count < K ? count : K) || !(least >= most - margin);
      }
    }
  if (wrong) note_failure("%d rows", (int)wrong);
}

Test(variants_select, loki_ranks_by_the_leading_directions_of_the_keys) {
  for (attn_dtype t = ATTN_F32; t <= ATTN_F64; t++)
    for (int causal = 0; causal <= 1; causal++) check_loki(t, causal);
}

/* Each key about as often as any other, from the seed alone. */
Test(variants_select, random_keys_are_drawn_evenly) {
  enum { N = 256, KEPT = 16 };
  attn_problem p = attn_problem_make(1, 8, N, D);
  inputs in = inputs_make(&p, false, 5, 1);
  picks one = picks_of("topk:k=16,by=random,seed=1", &in),
        other = picks_of("topk:k=16,by=random,seed=2", &in);
  int64_t often[N] = {0}, same = 0;
  double deviation = 0;
  for (int64_t line = 0; line < 8 * N; line++)
    for (int64_t j = 0; j < N; j++) {
      often[j] += picks_has(&one, line, j);
      same += picks_has(&one, line, j) && picks_has(&other, line, j);
    }
  for (int64_t j = 0; j < N; j++) {
    const double mean = 8.0 * KEPT, variance = mean * (1 - (double)KEPT / N);
    deviation += ((double)often[j] - mean) * ((double)often[j] - mean) / variance;
  }
  /* Chi-squared of 255 degrees of freedom: 22.6 on either side is one standard deviation. */
  EXPECT(fabs(deviation - 255) < 6 * 22.6);
  EXPECT(fabs((double)same - 8.0 * KEPT * KEPT) < 6 * 45);
}

/* Also of queries before the first key, of attention that is not causal, whose positions are below 0. */
Test(variants_select, random_keys_are_each_heads_own) {
  enum { KEYS = 6, QUERIES = 13 };
  attn_problem p = attn_problem_make(1, 2, KEYS, D);
  p.n_q = QUERIES;
  inputs in = inputs_make(&p, false, 7, 1);
  picks x = picks_of("topk:k=3,by=random", &in);
  int early = 0;
  for (int64_t i = 0; i < QUERIES - KEYS; i++) {
    bool alike = true;
    for (int64_t j = 0; j < KEYS; j++) alike = alike && picks_has(&x, i, j) == picks_has(&x, QUERIES + i, j);
    early += alike;
  }
  EXPECT(early < KEYS / 2); /* each with probability 1 / 20 */
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
  picks x = picks_of(spec, &in);
  const attn_problem *p = &in.problem;
  void *o = kept_memory(run_plain(x.plan, &in));
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
}

/* ---- a selector of this test's own ------------------------------------------------------------------- */

/* Pages of 8 keys, two in three, turned by the head, the batch entry and the row or block. `fault`: one
 * selection that breaks the contract. */
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
                       attn_picks *out, void *scratch) {
  (void)state, (void)call, (void)prepared, (void)scratch;
  for (int64_t i = 0; i < (toy_share == ATTN_SHARE_TILE ? 1 : b->count); i++) {
    out->counts[i] = toy_pick(b->batch + 2 * b->head + (b->first + i) / 4, out->runs + i * PAGES);
    if (b->first + i == 40) toy_break(out->runs + i * PAGES, &out->counts[i]);
  }
}

static attn_status toy_describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b, (void)c;
  out->selector =
      (attn_selector){.share = toy_share, .rows = TOY_ROWS, .max_runs = PAGES, .select = toy_select};
  return ATTN_OK;
}
static attn_cost toy_cost(const attn_context *c) {
  return attn_softmax_cost(c, attn_visible_pairs(c->problem));
}
ATTN_VARIANT(toy, TOY, .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_LSE | ATTN_CAP_DATA, .describe = toy_describe,
             .cost = toy_cost)

Test(variants_select, every_way_of_sharing) {
  cr_assert_eq(attn_variant_register(&attn_variant_toy), ATTN_OK);
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
  attn_tensors x = tensors_of(&in);
  x.o = malloc(tensor_bytes(&in.problem, TENSOR_O));
  toy_fault_now = fault;
  note_context("fault %d share %d", (int)fault, (int)toy_share);
  EXPECT_STATUS(run_tensors(plan, x), ATTN_EINVAL);
  if (!strstr(attn_last_error(), text) || !strstr(attn_last_error(), "query 40"))
    note_failure("\"%s\"", attn_last_error());
  toy_fault_now = SOUND;
  free(x.o);
  attn_plan_destroy(plan);
}

Test(variants_select, a_broken_selection_is_named) {
  cr_assert_eq(attn_variant_register(&attn_variant_toy), ATTN_OK);
  for (toy_share = ATTN_SHARE_ROW; toy_share <= ATTN_SHARE_TILE; toy_share++) {
    expect_broken(TOO_MANY, "max_runs");
    expect_broken(DESCENDING, "overlap or do not ascend");
    expect_broken(BEYOND, "beyond the last key");
    expect_broken(STRIDED, "step");
    expect_broken(NO_KEYS, "no keys");
  }
}

Test(variants_select, a_graph_of_several_runs_is_refused_as_a_mask) {
  static const attn_pattern graphs[] = {{.row = recorded_row, .max_runs = 2},
                                        {.row = recorded_row, .max_runs = 1, .per_head = true}};
  attn_problem p = shape_problem((case_shape){1, 1, 1, 9, 9, 4, 4, false, false}, ATTN_F32);
  for (int g = 0; g < 2; g++) {
    p.mask = (attn_mask){.kind = ATTN_MASK_PATTERN, .pattern = &graphs[g]};
    expect_no_plan(&p, "topk", ATTN_EUNSUPPORTED, "graph");
  }
}

/* weighted.c - selected keys with weights of their own: the same as attention with their logarithms as
 * biases, for every way of sharing, beside biases of the problem and in any order of the queries. */
#include "tests/variants/picks.h"

enum { HEADS = 4, N_Q = 75, N_KV = 90, D = 16, D_V = 7, MOST = N_KV };

typedef struct toy_plan_state {
  int64_t order[N_Q]; /* what the selector returns of any head */
} toy_plan_state;

static attn_share share;
static int64_t rows = 20; /* of a block */
static bool turned, spoiled;

/* Every key but one in `turn % 4 + 2`, each with its own weight. */
static bool takes(int64_t turn, int64_t key) { return key % (turn % 4 + 2) != turn % 2; }
static double log_weight(int64_t turn, int64_t key) {
  return log(1 + (double)((7 * key + 3 * turn) % 11)) - (double)(key % 3);
}
/* Of a block or of a query of a call. */
static int64_t turn_of(int64_t batch, int64_t head, int64_t at) { return batch + 2 * head + at; }

static void select_keys(const void *state, const attn_call *call, const attn_block *b, const void *prepared,
                        attn_picks *out, void *scratch) {
  (void)state, (void)prepared, (void)scratch;
  const int64_t keys = attn_call_keys(call, b->batch), group = call->context->problem->heads / 2;
  for (int64_t i = 0; i < (share == ATTN_SHARE_TILE ? 1 : b->count); i++) {
    const int64_t head = share == ATTN_SHARE_GROUP ? b->head / group : b->head,
                  turn = turn_of(b->batch, head, share == ATTN_SHARE_TILE ? b->first / rows : b->first + i);
    int64_t *count = &out->counts[i];
    *count = 0;
    for (int64_t j = 0; j < keys; j++) {
      if (!takes(turn, j)) continue;
      out->log_weights[i * out->max_runs + *count] = spoiled && j > 40 ? (double)NAN : log_weight(turn, j);
      out->runs[i * out->max_runs + (*count)++] = (attn_run){j, 1, 1};
    }
  }
}

static const int64_t *order_of(const void *state, const attn_call *call, const void *prepared, int64_t head) {
  (void)call, (void)prepared, (void)head;
  return ((const toy_plan_state *)state)->order;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  toy_plan_state s;
  (void)c;
  for (int64_t i = 0; i < N_Q; i++) s.order[i] = (i * 31 + 5) % N_Q;
  out->selector = (attn_selector){.share = share,
                                  .rows = rows,
                                  .max_runs = MOST,
                                  .select = select_keys,
                                  .weighted = true,
                                  .order = turned ? order_of : NULL};
  return attn_builder_keep(b, &s, sizeof s, &out->selector.state);
}
static attn_cost cost(const attn_context *c) { return attn_softmax_cost(c, attn_visible_pairs(c->problem)); }
ATTN_VARIANT(toy_weighted, TOY, .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_LSE | ATTN_CAP_DATA, .describe = describe,
             .cost = cost)

static inputs make(attn_dtype t, bool causal) {
  attn_problem p = shape_problem((case_shape){2, HEADS, 2, N_Q, N_KV, D, D_V, causal, true}, t);
  return inputs_make(&p, true, 11, 1);
}

/* The turn by which query i of a head selects. */
static int64_t turn_at(int64_t b, int64_t h, int64_t i) {
  int64_t place = i;
  for (int64_t at = 0; turned && at < N_Q; at++)
    if ((at * 31 + 5) % N_Q == i) place = at;
  return turn_of(b, share == ATTN_SHARE_GROUP ? h / 2 : h, share == ATTN_SHARE_TILE ? place / rows : i);
}

static double biases[2][HEADS][N_Q][N_KV];

static void check(attn_dtype t, bool causal, bool relative) {
  inputs in = make(t, causal);
  double distance[N_Q + N_KV];
  for (int64_t i = 0; i < N_Q + N_KV; i++) distance[i] = sin((double)i);
  if (relative) {
    in.problem.score.relative = distance;
    in.problem.score.relative_heads = 1;
    in.problem.score.span = N_Q + N_KV;
    in.problem.score.zero = N_KV;
  }
  picks x = picks_of("toy_weighted", &in);
  void *o = kept_memory(run_plain(x.plan, &in));
  note_context("share %d%s%s%s %s", (int)share, turned ? " turned" : "", causal ? " causal" : "",
               relative ? " relative" : "", t == ATTN_F64 ? "f64" : "f32");
  for (int64_t b = 0; b < 2; b++)
    for (int64_t h = 0; h < HEADS; h++)
      for (int64_t i = 0; i < N_Q; i++)
        for (int64_t j = 0; j < N_KV; j++) biases[b][h][i][j] = log_weight(turn_at(b, h, i), j);
  /* The oracle is of the problem that has the logarithms as biases. */
  in.problem.score.dense = (attn_bias){.at = biases,
                                       .dtype = ATTN_F64,
                                       .batch = (int64_t)HEADS * N_Q * N_KV,
                                       .head = (int64_t)N_Q * N_KV,
                                       .row = N_KV};
  double want[D_V], bound[D_V];
  int64_t keys[N_KV], wrong = 0, unlike = 0;
  for (int64_t b = 0; b < 2; b++)
    for (int64_t h = 0; h < HEADS; h++)
      for (int64_t i = 0; i < N_Q; i++) {
        int64_t count = oracle_keys(&in, NULL, b, h, i, keys), taken = 0;
        for (int64_t a = 0; a < count; a++) {
          const bool own = takes(turn_at(b, h, i), keys[a]);
          unlike += own != picks_has(&x, (b * HEADS + h) * N_Q + i, keys[a]);
          if (own) keys[taken++] = keys[a];
        }
        oracle_row(&in, &x.view.rounding, NULL, b, h, i, keys, taken, false, want, bound);
        for (int64_t l = 0; l < D_V; l++)
          wrong += !(fabs(output_get(&in.problem, o, b, h, i, l) - want[l]) <= bound[l]);
      }
  if (wrong || unlike) note_failure("%d outputs, %d picks", (int)wrong, (int)unlike);
}

Test(variants_weighted, weights_are_biases) {
  cr_assert_eq(attn_variant_register(&attn_variant_toy_weighted), ATTN_OK);
  for (share = ATTN_SHARE_ROW; share <= ATTN_SHARE_TILE; share++)
    for (attn_dtype t = ATTN_F32; t <= ATTN_F64; t++)
      for (int variant = 0; variant < 4; variant++) check(t, variant & 1, variant & 2);
  turned = true;
  share = ATTN_SHARE_TILE;
  for (int causal = 0; causal <= 1; causal++) check(ATTN_F32, causal, causal);
  rows = 3;
  for (int causal = 0; causal <= 1; causal++) check(ATTN_F32, causal, causal);
}

Test(variants_weighted, a_weight_that_is_no_number_is_named) {
  cr_assert_eq(attn_variant_register(&attn_variant_toy_weighted), ATTN_OK);
  inputs in = make(ATTN_F32, false);
  attn_plan *made = plan_or_note(&in.problem, "toy_weighted", NULL);
  attn_tensors x = tensors_of(&in);
  x.o = malloc(tensor_bytes(&in.problem, TENSOR_O));
  spoiled = true;
  EXPECT_STATUS(run_tensors(made, x), ATTN_EINVAL);
  EXPECT(strstr(attn_last_error(), "has a weight that is not finite"));
  spoiled = false;
  free(x.o);
  attn_plan_destroy(made);
}

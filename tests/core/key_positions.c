/* key_positions.c - where the keys of a call stand (k_position): keys that are left of a sequence are the
 * sequence with a bias of -Inf on the others; and which positions are refused. */
#include "tests/support/call_positions.h"

/* What is left of a sequence: of each batch entry and kv head `keys` of the N_KV positions. */
typedef struct kept {
  int64_t keys[BATCH], position[BATCH][KV_HEADS][N_KV];
} kept;

static kept keep(int64_t n_q, bool heads_apart, const int64_t *q_position) {
  kept x = {.keys = {30, 60, N_KV}};
  uint64_t state = 11;
  for (int64_t b = 0; b < BATCH; b++)
    for (int64_t h = 0; h < KV_HEADS; h++) {
      bool stays[N_KV] = {false};
      int64_t count = 0, left = x.keys[b];
      for (int64_t i = 0; i < n_q; i++) stays[q_position[b] + i] = true, left--;
      while (left > 0) {
        const int64_t j = (int64_t)(uniform_draw(&state) * N_KV);
        left -= !stays[j];
        stays[j] = true;
      }
      for (int64_t j = 0; j < N_KV; j++)
        if (stays[j]) x.position[b][h][count++] = j;
      if (h && !heads_apart) memcpy(x.position[b][h], x.position[b][0], sizeof x.position[b][h]);
    }
  return x;
}

/* The keys that are left, side by side; NaN behind them. */
static inputs compact(const inputs *all, const kept *k) {
  inputs in = inputs_copy(all);
  for (int64_t b = 0; b < BATCH; b++)
    for (int64_t h = 0; h < KV_HEADS; h++)
      for (int64_t j = 0; j < N_KV; j++)
        for (int64_t l = 0; l < D; l++) {
          const bool left = j < k->keys[b];
          const int64_t from = left ? k->position[b][h][j] : 0;
          inputs_set(&in, TENSOR_K, b, h, j, l,
                     left ? inputs_get(all, TENSOR_K, b, h, from, l) : (double)NAN);
          if (l < D_V)
            inputs_set(&in, TENSOR_V, b, h, j, l,
                       left ? inputs_get(all, TENSOR_V, b, h, from, l) : (double)NAN);
        }
  return in;
}

/* The bias that hides what is gone, [BATCH][HEADS][n_q][N_KV]. */
static float *hide(int64_t n_q, const kept *k) {
  float *bias = malloc((size_t)(BATCH * HEADS * n_q * N_KV) * sizeof *bias);
  cr_assert_not_null(bias);
  for (int64_t row = 0; row < BATCH * HEADS * n_q; row++) {
    const int64_t b = row / n_q / HEADS, h = row / n_q % HEADS / (HEADS / KV_HEADS);
    for (int64_t j = 0; j < N_KV; j++) bias[row * N_KV + j] = -(float)INFINITY;
    for (int64_t j = 0; j < k->keys[b]; j++) bias[row * N_KV + k->position[b][h][j]] = 0;
  }
  return bias;
}

static void expect_reference(const attn_plan *plan, const inputs *in, const kept *k,
                             const int64_t *q_position, const output *x) {
  attn_view view;
  double o[D_V], scratch[N_KV];
  const attn_problem *p = &in->problem;
  cr_assert_eq(attn_plan_inspect(plan, &view), ATTN_OK);
  if (view.selector || view.expression) return;
  for (int64_t row = 0; row < BATCH * HEADS * p->n_q; row++) {
    const int64_t b = row / p->n_q / HEADS, h = row / p->n_q % HEADS, i = row % p->n_q;
    attn_problem placed = *p;
    placed.positions = (attn_positions){.shift = q_position[b] - (N_KV - p->n_q),
                                        .key = k->position[b][h / (HEADS / KV_HEADS)],
                                        .keys = k->keys[b]};
    EXPECT(attn_reference_row(&placed, view.pattern, in->q, in->k, in->v, k->keys, b, h, i, NULL, o,
                              scratch) >= 0);
    for (int64_t l = 0; l < D_V; l++)
      if (!near(output_get(p, x->o, b, h, i, l), o[l], tolerance(p->dtype, 4)))
        note_failure("reference: entry %d head %d query %d: %.9g, not %.9g", (int)b, (int)h, (int)i, o[l],
                     output_get(p, x->o, b, h, i, l));
  }
}

static void check_kept(const char *spec, const attn_problem *p, const int64_t *q_position, bool apart) {
  const kept k = keep(p->n_q, apart, q_position);
  inputs all = inputs_make(p, false, 5, 1), in = compact(&all, &k);
  float *bias = hide(p->n_q, &k);
  attn_problem hidden = all.problem;
  hidden.score.dense = (attn_bias){
      .at = bias, .dtype = ATTN_F32, .batch = HEADS * p->n_q * N_KV, .head = p->n_q * N_KV, .row = N_KV};
  for (const char *const *isa = isas_under_test(); *isa && (isa == isas_under_test() || p->n_q == 3); isa++) {
    const attn_options options = {.isa = *isa, .threads = 3};
    note_context("%s %s n_q %d %s%s%s", spec, *isa, (int)p->n_q, p->dtype == ATTN_F64 ? "f64" : "f32",
                 p->causal ? " causal" : "", apart ? " heads apart" : "");
    attn_plan *plan = plan_or_note(&in.problem, spec, &options),
              *whole = plan_or_note(&hidden, spec, &options);
    if (!plan || !whole) break;
    output x = output_make(p, gives_lse(plan)), expected = output_make(p, x.lse);
    const attn_key_positions where = {
        .at = k.position[0][0], .batch = KV_HEADS * N_KV, .head = apart ? N_KV : 0};
    EXPECT_STATUS(run(plan,
                      &(attn_tensors){.q = in.q,
                                      .k = in.k,
                                      .v = in.v,
                                      .kv_len = k.keys,
                                      .q_position = q_position,
                                      .k_position = where},
                      &x),
                  ATTN_OK);
    EXPECT_STATUS(
        run(whole, &(attn_tensors){.q = all.q, .k = all.k, .v = all.v, .q_position = q_position}, &expected),
        ATTN_OK);
    for (int64_t b = 0; b < BATCH; b++) {
      const size_t row = (size_t)(HEADS * p->n_q);
      output one = {.o = (char *)expected.o + (size_t)b * row * D_V * attn_dtype_size(p->dtype),
                    .lse = x.lse ? expected.lse + (size_t)b * row : NULL};
      expect_entry(p, &x, &one, b);
    }
    expect_reference(plan, &in, &k, q_position, &x);
    attn_plan_destroy(plan), attn_plan_destroy(whole);
  }
  free(bias);
}

Test(core_key_positions, keys_that_are_left) {
  char specs[] = "full;latent;tiled;tiled:block_k=7;tiled:skip=1e-30,order=diagonal,block_k=8;"
                 "streaming:sink=2,window=9;longformer:window=12,global=3;"
                 "longformer:window=24,dilation=3,global=2;sparse_transformer:stride=7;"
                 "sparse_transformer:mode=fixed,stride=8,summary=2;"
                 "bigbird:block=4,window=3,random=2,global=1;graph:kind=documents,size=20;topk:k=6;"
                 "topk:k=6,share=group;lsh:rounds=2,buckets=4,window=3;"
                 "streaming:sink=2,window=5 + topk:k=4;longformer:window=12,dilation=3 + topk:k=4;"
                 "0.5*tiled + 0.5*streaming:sink=1,window=7";
  for (const char *spec = strtok(specs, ";"); spec; spec = strtok(NULL, ";"))
    for (size_t n = 0; n < sizeof queries / sizeof *queries; n++) {
      const int64_t last[BATCH] = {N_KV - queries[n], 60, 40}; /* some queries do not come last */
      attn_problem p = problem_of(queries[n], n % 2 ? ATTN_F32 : ATTN_F64, true);
      check_kept(spec, &p, last, true);
      p.score = alibi();
      check_kept(spec, &p, last, false);
    }
}

Test(core_key_positions, keys_that_are_left_without_causality) {
  static const char *const specs[] = {"full",
                                      "tiled:block_k=8",
                                      "longformer:window=12,dilation=3,global=2",
                                      "bigbird:block=4,window=3,random=2,global=1",
                                      "graph:kind=natten,kernel=5,width=7",
                                      "topk:k=6"};
  static const int64_t offsets[] = {0, 1, 30, 31, 64, N_KV}, position[BATCH] = {10, 60, N_KV - 4};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int kind = ATTN_MASK_NONE; kind <= ATTN_MASK_DOCUMENTS; kind++) {
      attn_problem p = problem_of(4, kind % 2 ? ATTN_F32 : ATTN_F64, false);
      p.mask = (attn_mask){.kind = (attn_mask_kind)kind, .size = 13};
      if (kind == ATTN_MASK_DOCUMENTS) p.mask.offsets = offsets, p.mask.count = 5;
      p.score = alibi();
      check_kept(specs[s], &p, position, true);
    }
}

static int64_t odd_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state;
  runs[0] = (attn_run){head, 1 + position / 2, 1};
  runs[1] = (attn_run){position / 2 + 20, 5, 1};
  return position / 2 + 25 <= N_KV ? 2 : 1;
}
static const attn_pattern odd = {.row = odd_row, .max_runs = 2, .per_head = true};

Test(core_key_positions, graph_of_the_user) {
  static const int64_t position[BATCH] = {10, 60, N_KV - 4};
  static const char *const specs[] = {"full", "tiled"};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
    attn_problem p = problem_of(4, ATTN_F64, s);
    p.mask = (attn_mask){.kind = ATTN_MASK_PATTERN, .pattern = &odd};
    check_kept(specs[s], &p, position, true);
  }
}

/* ---- what is refused --------------------------------------------------------------------------------- */

static void expect_run(const char *spec, const attn_problem *p, const attn_tensors *positions,
                       attn_status expected, const char *message) {
  inputs in = inputs_make(p, false, 1, 1);
  attn_tensors x = *positions;
  note_context("%s, '%s'", spec, message);
  attn_plan *plan = plan_kept(&in.problem, spec, NULL);
  output o = output_make(&in.problem, false);
  x.q = in.q, x.k = in.k, x.v = in.v;
  EXPECT_STATUS(run(plan, &x, &o), expected);
  EXPECT(strstr(attn_last_error(), message));
}

Test(core_key_positions, refused) {
  static const int64_t some[BATCH] = {1, 2, 3}, negative[BATCH] = {0, -1, 0}, late[BATCH] = {0, 0, N_KV - 3};
  static int64_t ascending[N_KV], level[N_KV], beyond[N_KV];
  for (int64_t j = 0; j < N_KV; j++) ascending[j] = j, level[j] = j - (j > 40), beyond[j] = j + 1;
  const attn_tensors queries_at = {.q_position = some}, keys_at = {.k_position = {ascending, 0, 0}};
  const attn_problem p = problem_of(4, ATTN_F32, false), causal = problem_of(4, ATTN_F32, true);
  static const char *const without[] = {"nystrom", "linformer:k=8", "hyper:block=16",
                                        "svd",     "vslash",        "longnet"};
  for (size_t s = 0; s < sizeof without / sizeof *without; s++) {
    expect_run(without[s], &p, &queries_at, ATTN_EUNSUPPORTED, "positions of queries and keys");
    expect_run(without[s], &p, &keys_at, ATTN_EUNSUPPORTED, "positions of queries and keys");
  }
  expect_run("bigbird:tail=uniform", &causal, &queries_at, ATTN_EUNSUPPORTED, "with these parameters");
  expect_run("0.5*tiled + 0.5*bigbird:tail=uniform", &causal, &queries_at, ATTN_EUNSUPPORTED, "positions");
  expect_run("dyadic(hyper)", &causal, &queries_at, ATTN_EUNSUPPORTED, "positions");
  attn_problem graph = causal;
  graph.mask = (attn_mask){.kind = ATTN_MASK_PATTERN, .pattern = &odd};
  expect_run("streaming", &graph, &queries_at, ATTN_EUNSUPPORTED, "and this mask");
  expect_run("linear", &causal, &keys_at, ATTN_EUNSUPPORTED, "k_position");
  expect_run("streaming + performer", &causal, &keys_at, ATTN_EUNSUPPORTED, "k_position");
  expect_run("tiled", &p, &(attn_tensors){.q_position = negative}, ATTN_EINVAL, "q_position[1] = -1");
  expect_run("tiled", &p, &(attn_tensors){.q_position = late}, ATTN_EINVAL, "q_position[2] = 88");
  expect_run("tiled", &p, &(attn_tensors){.k_position = {level, 0, 0}}, ATTN_EINVAL, "key 41");
  expect_run("tiled", &p, &(attn_tensors){.k_position = {beyond, 0, 0}}, ATTN_EINVAL, "key 90");
  expect_run("tiled", &p, &(attn_tensors){.k_position = {ascending, -1, 0}}, ATTN_EINVAL, "stride");
  attn_problem longer = problem_of(N_KV + 1, ATTN_F32, false);
  expect_run("tiled", &longer, &queries_at, ATTN_EINVAL, "q_position[0]");
}

Test(core_key_positions, none_in_a_plan) {
  attn_problem p = problem_of(4, ATTN_F32, true);
  p.positions.shift = -1;
  expect_no_plan(&p, "tiled", ATTN_EINVAL, "");
  p.positions = (attn_positions){.key = (const int64_t[N_KV]){0}, .keys = N_KV};
  expect_no_plan(&p, "tiled", ATTN_EINVAL, "");
}

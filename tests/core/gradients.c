/* gradients.c - attn_plan_backward: what it writes, reads and leaves alone. Inputs lie between forbidden
 * pages and cannot be written, padding has no memory, results and work memory begin as NaN and end where
 * such a page begins. That the numbers are right: gradient_values.c, tests/python/gradients_test.py. */
#include "tests/support/core.h"
#include "tests/support/fence.h"

enum { OF_Q, OF_K, OF_V, RESULTS, NOT_A_NUMBER = 0xFF };
enum { OF_SINK, OF_RELATIVE, OF_DENSE, OF_SCORE };

typedef struct gradients {
  void *of[RESULTS];    /* contiguous */
  double *by[OF_SCORE]; /* of a bias that all heads and entries share */
} gradients;

static int64_t rows_of(const attn_problem *p, int which) {
  return which == OF_Q ? p->batch * p->heads * p->n_q : p->batch * p->kv_heads * p->n_kv;
}
static int64_t count_of(const attn_problem *p, int which) {
  return rows_of(p, which) * (which == OF_V ? p->d_v : p->d_qk);
}
static int64_t score_count(const attn_problem *p, int which) {
  const attn_score *s = &p->score;
  const int64_t counts[OF_SCORE] = {p->heads, s->relative_heads * s->span,
                                    s->dense.at ? p->n_q * p->n_kv : 0};
  return counts[which];
}
static size_t row_bytes(const attn_problem *p, int which) {
  return (size_t)(which == OF_V ? p->d_v : p->d_qk) * attn_dtype_size(p->dtype);
}

static void gradients_free(void *of) {
  gradients *g = of;
  for (int which = 0; which < RESULTS; which++) free(g->of[which]);
  for (int which = 0; which < OF_SCORE; which++) free(g->by[which]);
}

typedef struct setting {
  const char *spec;
  attn_options options;
  const inputs *in, *up; /* up: the gradient by the output is its V */
  bool one_row;          /* ... of which each head has its first for all */
  attn_key_positions k_position;
  const double *dlse;
  const char *left_out; /* letters of q, k and v */
  int rounding;         /* of all threads meanwhile; 0: FE_TONEAREST */
} setting;

/* The gradient by the output, [batch, heads, n_q, d_v]. */
static inputs upstream_of(const inputs *in) {
  attn_problem p = in->problem;
  p.kv_heads = p.heads;
  p.n_kv = p.n_q;
  p.q = p.k = p.v = p.o = (attn_stride){0};
  p.score = (attn_score){0};
  return inputs_make(&p, false, 3, 1);
}

/* Executes and differentiates. */
static gradients differentiate(const setting *s) {
  attn_problem p = s->in->problem;
  const placing end = {.at_end = true}, apart = {.at_end = true, .gap = 3};
  const size_t lines = (size_t)rows_of(&p, OF_Q);
  int64_t queries[MAX_BATCH], keys[MAX_BATCH];
  for (int64_t b = 0; b < p.batch; b++) queries[b] = p.n_q, keys[b] = inputs_keys(s->in, b);
  enum { UP = TENSOR_O + 1, TENSORS };
  fence t[TENSORS] = {
      fence_make(&p, TENSOR_Q, queries, end, NOT_A_NUMBER), fence_make(&p, TENSOR_K, keys, end, NOT_A_NUMBER),
      fence_make(&p, TENSOR_V, keys, end, NOT_A_NUMBER), fence_make(&p, TENSOR_O, queries, end, NOT_A_NUMBER),
      fence_make(&s->up->problem, TENSOR_V, queries, apart, NOT_A_NUMBER)};
  for (tensor each = TENSOR_Q; each <= TENSOR_V; each++) fence_load(&t[each], s->in, each);
  fence_load(&t[UP], s->up, TENSOR_V);
  p.q = t[TENSOR_Q].stride, p.k = t[TENSOR_K].stride, p.v = t[TENSOR_V].stride, p.o = t[TENSOR_O].stride;
  attn_plan *plan = plan_kept(&p, s->spec, &s->options);
  size_t size = 0;
  EXPECT_STATUS(attn_plan_backward_size(plan, &size), ATTN_OK);
  enum { WORK = RESULTS + OF_SCORE, LSE, MADE };
  const size_t sizes[MADE] = {row_bytes(&p, OF_Q) * lines,
                              row_bytes(&p, OF_K) * (size_t)rows_of(&p, OF_K),
                              row_bytes(&p, OF_V) * (size_t)rows_of(&p, OF_V),
                              (size_t)score_count(&p, OF_SINK) * sizeof(double),
                              (size_t)score_count(&p, OF_RELATIVE) * sizeof(double),
                              (size_t)score_count(&p, OF_DENSE) * sizeof(double),
                              size,
                              lines * sizeof(double)};
  fence made[MADE], work = fence_block(attn_plan_work_size(plan), end, NOT_A_NUMBER);
  for (int each = 0; each < MADE; each++) made[each] = fence_block(sizes[each], end, NOT_A_NUMBER);
  attn_tensors x = {.kv_len = s->in->padded ? s->in->kv_len : NULL, .k_position = s->k_position};
  x.q = t[TENSOR_Q].at, x.k = t[TENSOR_K].at, x.v = t[TENSOR_V].at, x.o = t[TENSOR_O].at;
  if (attn_plan_variant(plan)->caps & ATTN_CAP_LSE) x.lse = (double *)(void *)made[LSE].at;
  x.work = work.at;
  attn_gradients g = {.d_o = t[UP].at, .d_o_at = t[UP].stride, .dlse = x.lse ? s->dlse : NULL};
  if (s->one_row) g.d_o_at.row = 0;
  for (int which = 0; which < RESULTS; which++)
    if (!s->left_out || !strchr(s->left_out, "qkv"[which]))
      *(void **[]){&g.dq, &g.dk, &g.dv}[which] = made[which].at;
  for (int which = 0; which < OF_SCORE; which++)
    if (score_count(&p, which))
      *(double **[]){&g.dsink, &g.drelative, &g.ddense}[which] = (double *)(void *)made[RESULTS + which].at;
  EXPECT(!turn_rounding(s->options.threads, FE_TONEAREST, s->rounding));
  EXPECT_STATUS(attn_plan_run(plan, &x), ATTN_OK);
  void *o = fence_gather(&t[TENSOR_O]), *lse = fence_gather(&made[LSE]);
  x.work = made[WORK].at;
  EXPECT_STATUS(attn_plan_backward(plan, &x, &g), ATTN_OK);
  EXPECT(!turn_rounding(s->options.threads, s->rounding, FE_TONEAREST));
  void *after = fence_gather(&t[TENSOR_O]);
  EXPECT(!memcmp(o, after, lines * row_bytes(&p, OF_V)) && !memcmp(lse, made[LSE].at, sizes[LSE]));
  gradients result = {.by = {NULL}};
  for (int each = 0; each < MADE; each++) {
    EXPECT(fence_intact(&made[each], NOT_A_NUMBER));
    if (each < RESULTS) result.of[each] = fence_gather(&made[each]);
    if (each >= RESULTS && each < WORK) result.by[each - RESULTS] = fence_gather(&made[each]);
    fence_free(&made[each]);
  }
  EXPECT(fence_intact(&t[TENSOR_O], NOT_A_NUMBER));
  for (int each = 0; each < TENSORS; each++) fence_free(&t[each]);
  fence_free(&work);
  free(o);
  free(after);
  free(lse);
  return *(gradients *)keep_copy(&result, sizeof result, gradients_free);
}

static const void *row_at(const attn_problem *p, const gradients *g, int which, int64_t line) {
  return (const char *)g->of[which] + (size_t)line * row_bytes(p, which);
}

static bool row_is_nan(const attn_problem *p, const gradients *g, int which, int64_t line) {
  int64_t numbers = 0, width = which == OF_V ? p->d_v : p->d_qk;
  for (int64_t l = 0; l < width; l++) numbers += !isnan(attn_get(row_at(p, g, which, line), l, p->dtype));
  return !numbers;
}

/* a is `times` b, each number within `off`; 1 and 0: the same bits. */
static void expect_times(const attn_problem *p, const gradients *a, double times, const gradients *b,
                         double off, const char *what) {
  int64_t bad = 0;
  for (int which = 0; which < RESULTS; which++)
    for (int64_t i = 0; i < count_of(p, which); i++)
      bad +=
          !(fabs(attn_get(a->of[which], i, p->dtype) - times * attn_get(b->of[which], i, p->dtype)) <= off);
  for (int which = 0; which < OF_SCORE; which++)
    for (int64_t i = 0; i < score_count(p, which); i++)
      bad +=
          !(fabs(a->by[which][i] - times * b->by[which][i]) <= off * (double)(p->batch * p->heads * p->n_q));
  if (bad) note_failure("%s: %d numbers are not %g times what they were", what, (int)bad, times);
}

static const char *const specs[] = {"tiled",
                                    "tiled:block_q=16,block_k=16",
                                    "longformer:window=12,global=2",
                                    "longformer:window=24,dilation=3",
                                    "bigbird:block=8,window=3,random=2,global=1",
                                    "sparse_transformer:stride=7",
                                    "topk:k=6",
                                    "topk:k=5,share=group",
                                    "lsh:rounds=2,buckets=4,window=3",
                                    "streaming:sink=2,window=5 + topk:k=4",
                                    "lsh_tail:k=4,l=20"};
enum { SPECS = sizeof specs / sizeof *specs, PATTERNS = 6 /* the first */, N_Q = 70, N_KV = 75 };
static const case_shape ordinary = {2, 4, 2, N_Q, N_KV, 17, 9, true, false};
static float bias[N_Q * N_KV]; /* hides a tenth of the pairs */

static void try_spec(const char *spec, const attn_problem *p, bool padded, const double *dlse,
                     void (*test)(setting *)) {
  inputs in = inputs_make(p, padded, 9, 1), up = upstream_of(&in);
  note_context("%s %s", spec, p->dtype == ATTN_F64 ? "f64" : "f32");
  test(&(setting){.spec = spec, .options = {.threads = 2}, .in = &in, .up = &up, .dlse = dlse});
}

/* The first specs in either type, with gradients by the log-sum-exp, some with sinks, some with biases. */
static void each_spec(case_shape shape, int count, void (*test)(setting *)) {
  static const double sinks[] = {0.5, -1, 2, 0.1}, tables[4 * 9] = {0.5, 1, -1, [20] = 2};
  static double dlse[8 * N_Q];
  uint64_t random = 5;
  for (int i = 0; i < N_Q * N_KV; i++)
    bias[i] = uniform_draw(&random) < 0.1 ? -INFINITY : (float)normal_draw(&random);
  for (int line = 0; line < 8 * N_Q; line++) dlse[line] = sin(line);
  for (int i = 0; i < 2 * count; i++) {
    attn_problem p = shape_problem(shape, i % 2 ? ATTN_F64 : ATTN_F32);
    if (i % 3 == 0) p.score.sink = sinks;
    if (i % 5 < 3) p.score.relative = tables, p.score.relative_heads = i % 2 ? 4 : 1, p.score.span = 9;
    if (i % 4 < 2) p.score.dense = (attn_bias){.at = bias, .dtype = ATTN_F32, .row = N_KV};
    try_spec(specs[i / 2], &p, shape.padded, dlse, test);
  }
}

/* The first sums of features, which have no log-sum-exp; the last without a denominator. */
static const char *const maps[] = {"linear", "performer:features=24",
                                   "performer:features=24,kernel=hyperbolic,eps=0.01",
                                   "linear:feature=taylor,normalise=no"};
enum { MAPS = sizeof maps / sizeof *maps };

static void each_map(case_shape shape, int count, void (*test)(setting *)) {
  for (int i = 0; i < 2 * count; i++) {
    const attn_problem p = shape_problem(shape, i % 2 ? ATTN_F64 : ATTN_F32);
    try_spec(maps[i / 2], &p, shape.padded, NULL, test);
  }
}

/* Recurrences, over several segments of keys; pooled keys, and weights of other functions. */
static void each_recurrence(bool padded, void (*test)(setting *)) {
  const char *rules = "recurrent:decay=constant,read=before recurrent:rule=kda recurrent:rule=gated_delta2 "
                      "recurrent:rule=mamba3 pooled:block=5,overlap=2,window=7 pooled:block=4,window=0 "
                      "normaliser:kind=entmax15 nsa dyadic(tiled,base=16)";
  const case_shape shape = {2, 4, 2, 140, 150, 6, 9, true, padded};
  char spec[80];
  for (int size; sscanf(rules, "%79s%n", spec, &size) == 1; rules += size)
    for (attn_dtype t = ATTN_F32; t <= ATTN_F64; t++) {
      const attn_problem p = shape_problem(shape, t);
      try_spec(spec, &p, padded, NULL, test);
    }
}

/* What fp64 may be off. A term of dk is at most |dP - D| |q|, of d_v products of numbers within 4, and its
 * rounding grows with the chains; a state of a recurrence, and its gradient, is a sum of n_kv such terms,
 * rounded once a key. */
static double tolerance(const attn_problem *p) {
  return 0x1p-53 * 128.0 * (double)(2 * p->d_v + 1) * (double)(p->n_kv + p->n_q * 2 + 64 * (p->d_qk + 8)) *
         (double)p->n_q;
}

static void repeat(setting *s) {
  const attn_problem *p = &s->in->problem;
  gradients first = {.by = {NULL}};
  for (const char *const *isa = isas_under_test(); *isa; isa++) {
    s->options = (attn_options){.isa = *isa, .threads = 1, .blocks = {64, 64}};
    gradients one = differentiate(s);
    for (int threads = 2; threads <= 7; threads += threads == 3 ? 4 : 1) {
      s->options.threads = threads;
      s->rounding = threads == 3 ? FE_UPWARD : FE_TONEAREST;
      gradients other = differentiate(s);
      expect_times(p, &other, 1, &one, 0, "another number of threads");
    }
    if (first.of[0] && p->dtype == ATTN_F64) expect_times(p, &one, 1, &first, tolerance(p), *isa);
    if (!first.of[0]) first = one;
  }
}

Test(core_gradients, threads_and_instruction_sets) {
  each_spec(ordinary, SPECS, repeat);
  each_map(ordinary, MAPS, repeat);
}
Test(core_gradients, threads_of_recurrences) { each_recurrence(true, repeat); }

/* An entry without keys has gradients of 0, and the other those that it had. */
static void keyless(setting *s) {
  const attn_problem *p = &s->in->problem;
  inputs without = inputs_copy(s->in);
  setting other = *s;
  other.in = &without;
  without.kv_len[0] = inputs_keys(s->in, 0);
  without.kv_len[1] = 0;
  without.padded = true;
  gradients all = differentiate(s), none = differentiate(&other);
  for (int which = 0; which < RESULTS; which++)
    for (int64_t i = 0, half = count_of(p, which) / 2; i < 2 * half; i++)
      EXPECT(attn_get(none.of[which], i, p->dtype) == (i < half ? attn_get(all.of[which], i, p->dtype) : 0));
}

/* One alone is what it is with the others; twice the upstream gradient is twice all, and none is zeros; rows
 * of it that are one, of stride 0, are those that are equal. */
static void linear(setting *s) {
  const attn_problem *p = &s->in->problem;
  keyless(s);
  gradients all = differentiate(s);
  setting other = *s;
  for (int which = 0; which < RESULTS; which++) {
    other.left_out = (const char *[]){"kv", "qv", "qk"}[which];
    gradients one = differentiate(&other);
    EXPECT(!memcmp(one.of[which], all.of[which], row_bytes(p, which) * (size_t)rows_of(p, which)));
  }
  double dlse[8 * N_Q];
  inputs up = inputs_copy(s->up);
  other = (setting){
      .spec = s->spec, .options = s->options, .in = s->in, .up = &up, .dlse = s->dlse ? dlse : NULL};
  for (int times = 2; times >= 0; times -= 2) {
    for (int64_t line = 0; s->dlse && line < rows_of(p, OF_Q); line++) dlse[line] = times * s->dlse[line];
    for (int64_t i = 0; i < rows_of(p, OF_Q) * p->d_v; i++)
      attn_set(up.v, i, p->dtype, times * attn_get(s->up->v, i, p->dtype));
    gradients more = differentiate(&other);
    expect_times(p, &more, times, &all, 0, "the upstream gradient");
  }
  for (int64_t i = 0; i < rows_of(p, OF_Q) * p->d_v; i++)
    attn_set(up.v, i, p->dtype, attn_get(s->up->v, i - i % (p->n_q * p->d_v) + i % p->d_v, p->dtype));
  gradients rows = differentiate(&other);
  other.one_row = true;
  gradients one = differentiate(&other);
  expect_times(p, &one, 1, &rows, 0, "a stride of 0");
}

Test(core_gradients, alone_doubled_and_none) {
  case_shape padded = ordinary;
  each_spec(ordinary, SPECS, linear);
  padded.padded = true;
  each_spec(padded, PATTERNS, linear);
  each_map(padded, MAPS, linear);
  each_recurrence(false, linear);
}

enum { HEAD = 1, QUERY = 41, KEY = 44 }; /* of entry 0; kv head 0 */

/* Which keys the queries of entry 0 see of a pattern, [heads, n_q, n_kv]; free it. */
static bool *seen_by(const setting *s) {
  const attn_problem *p = &s->in->problem;
  attn_view view;
  attn_plan *plan = plan_inspected(p, s->spec, &s->options, &view);
  bool *seen = calloc((size_t)(p->heads * p->n_q * p->n_kv), 1);
  int64_t keys[N_KV];
  cr_assert_not_null(seen);
  for (int64_t line = 0; line < p->heads * p->n_q; line++) {
    const int64_t i = line % p->n_q, count = oracle_keys(s->in, view.pattern, 0, line / p->n_q, i, keys);
    for (int64_t j = 0; j < count; j++)
      seen[line * N_KV + keys[j]] = !p->score.dense.at || isfinite(bias[i * N_KV + keys[j]]);
  }
  attn_plan_destroy(plan);
  return seen;
}

/* NaN in a row reaches what depends on it; NaN or an infinity leaves the rest as it is, bit for bit. */
static void spoiled(const setting *s, const gradients *before, const bool *seen, tensor where, double value,
                    bool whole) {
  const attn_problem *p = &s->in->problem;
  const bool by_query = where == TENSOR_Q || where == TENSOR_O;
  bool rows[8 * N_Q] = {false}, keys[N_KV] = {false};
  inputs in = inputs_copy(s->in), up = inputs_copy(s->up);
  setting other = *s;
  other.in = &in;
  other.up = &up;
  for (int64_t l = 0; l < (!whole ? 1 : where < TENSOR_V ? p->d_qk : p->d_v); l++)
    inputs_set(where == TENSOR_O ? &up : &in, where == TENSOR_O ? TENSOR_V : where, 0, by_query ? HEAD : 0,
               by_query ? QUERY : KEY, l, value);
  for (int64_t line = 0; line < p->heads / p->kv_heads * p->n_q; line++) {
    rows[line] = by_query ? line == HEAD * p->n_q + QUERY : seen[line * N_KV + KEY];
    for (int64_t j = 0; rows[line] && j < N_KV; j++) keys[j] = keys[j] || seen[line * N_KV + j];
  }
  gradients after = differentiate(&other);
  for (int which = 0; which < RESULTS; which++)
    for (int64_t line = 0; line < rows_of(p, which); line++) {
      const bool reached =
          which == OF_Q ? rows[line] : line < N_KV && keys[line] && !(which == OF_V && where == TENSOR_V);
      const bool met = where == TENSOR_K && which == OF_Q; /* a gradient times the key: its first component */
      if (reached
              ? (whole && !row_is_nan(p, &after, which, line)) ||
                    (met && isfinite(attn_get(row_at(p, &after, which, line), 0, p->dtype)))
              : memcmp(row_at(p, before, which, line), row_at(p, &after, which, line), row_bytes(p, which)))
        note_failure("%g in %c %s row %d of d%c", value, "qkvo"[where],
                     reached ? "does not reach" : "reaches", (int)line, "qkv"[which]);
    }
}

static void spoil(setting *s) {
  bool *seen = seen_by(s);
  gradients before = differentiate(s);
  for (tensor where = TENSOR_Q; where <= TENSOR_O; where++) {
    spoiled(s, &before, seen, where, (double)NAN, true);
    spoiled(s, &before, seen, where, (double)NAN, false);
    spoiled(s, &before, seen, where, (double)INFINITY, false);
  }
  free(seen);
}

Test(core_gradients, special_numbers) {
  case_shape all = ordinary;
  each_spec(all, PATTERNS, spoil);
  each_map(all, MAPS - 1, spoil);
  all.causal = false;
  each_map(all, MAPS - 1, spoil);
  each_spec(all, PATTERNS - 1, spoil); /* the last is causal only */
}

/* From Q to Q A and K to K A^-T, all A, nothing changes: q.dq of the queries of a kv head add up to k.dk of
 * its keys, where scores are q.k; and v.dv to o.d_o, since outputs are linear in V. */
static void balance(setting *s) {
  const bool inner = !strstr(s->spec, "recurrent:");
  const attn_problem *p = &s->in->problem;
  const int64_t group = p->heads / p->kv_heads;
  gradients g = differentiate(s);
  char *o = run_spec(s->spec, &s->options, s->in);
  for (int64_t line = 0; p->dtype == ATTN_F64 && line < p->batch * p->kv_heads; line++) {
    const int64_t batch = line / p->kv_heads, kv_head = line % p->kv_heads, keys = inputs_keys(s->in, batch);
    double scores = 0, values = 0, most = 0;
    for (int64_t i = 0; i < group * p->n_q; i++)
      for (int64_t l = 0; l < p->d_qk + p->d_v; l++) {
        const int64_t head = kv_head * group + i / p->n_q, row = i % p->n_q, v = l - p->d_qk;
        const double x = v < 0 ? inputs_get(s->in, TENSOR_Q, batch, head, row, l)
                               : inputs_get(s->up, TENSOR_V, batch, head, row, v);
        most += fabs(x);
        if (v < 0)
          scores +=
              x * attn_get(g.of[OF_Q], ((batch * p->heads + head) * p->n_q + row) * p->d_qk + l, p->dtype);
        else
          values += x * output_get(p, o, batch, head, row, v);
      }
    for (int64_t j = 0; j < keys; j++)
      for (int64_t l = 0; l < p->d_qk + p->d_v; l++) {
        const int64_t v = l - p->d_qk, at = line * p->n_kv + j;
        const double x = v < 0 ? inputs_get(s->in, TENSOR_K, batch, kv_head, j, l)
                               : inputs_get(s->in, TENSOR_V, batch, kv_head, j, v);
        most += fabs(x);
        if (v < 0)
          scores -= x * attn_get(g.of[OF_K], at * p->d_qk + l, p->dtype);
        else
          values -= x * attn_get(g.of[OF_V], at * p->d_v + v, p->dtype);
      }
    if (!((!inner || fabs(scores) <= tolerance(p) * most) && fabs(values) <= tolerance(p) * most))
      note_failure("kv head %d: %g of scores and %g of values are left", (int)line, scores, values);
  }
  free(o);
}

/* Queries of the last meet queries. */
static const char *const few[] = {"linformer:k=12",
                                  "linformer:k=12,projection=rademacher,share=none,share_heads=no",
                                  "linformer:k=12,projection=srht,share=none",
                                  "linformer:k=13,projection=dct",
                                  "linformer:k=12,projection=pool",
                                  "nystrom:landmarks=9",
                                  "nystrom:landmarks=9,middle=pinv,rcond=0.1",
                                  "nystrom:landmarks=9,middle=agents,by=sample"};
enum { FEW = sizeof few / sizeof *few };

static void each_few(const case_shape *shape, int count, void (*test)(setting *)) {
  static double dlse[8 * N_Q];
  for (int line = 0; line < 8 * N_Q; line++) dlse[line] = sin(line);
  for (int i = 0; i < 2 * count; i++) {
    const attn_problem p = shape_problem(*shape, i % 2 ? ATTN_F64 : ATTN_F32);
    try_spec(few[i / 2], &p, shape->padded, dlse, test);
  }
}

/* Slots and landmarks; of the longer sequence projections take parts of several slabs. */
Test(core_gradients, few_rows_for_all) {
  const case_shape short_one = {2, 4, 2, N_Q, N_KV, 17, 9, false, true},
                   longer = {2, 8, 8, 12, 700, 9, 5, false, true};
  each_few(&short_one, FEW, repeat);
  each_few(&short_one, FEW, linear);
  each_few(&short_one, FEW - 1, balance);
  each_few(&longer, FEW, repeat);
  each_few(&longer, FEW - 1, balance);
  each_recurrence(true, balance);
}

/* Keys that are left of a sequence have the gradients that they have where a bias hides the others. */
Test(core_gradients, keys_that_are_left) {
  static const char *const placed[] = {"tiled", "longformer:window=12,global=2", "topk:k=6"};
  attn_problem p = shape_problem((case_shape){2, 4, 2, 20, N_KV, 17, 17, true, false}, ATTN_F64);
  inputs in = inputs_make(&p, false, 9, 1), left = inputs_copy(&in), up = upstream_of(&in);
  int64_t at[N_KV], place[N_KV], keys = 0;
  for (int64_t j = 0; j < N_KV; j++) {
    const bool gone = j % 3 == 1 && j < N_KV - 20;
    for (int64_t i = 0; i < p.n_q; i++) bias[i * N_KV + j] = gone ? -INFINITY : 0;
    for (int64_t line = 0; !gone && line < 4; line++)
      for (int64_t i = 0; i < 2 * p.d_qk; i++) {
        const tensor which = i % 2 ? TENSOR_K : TENSOR_V;
        inputs_set(&left, which, line / 2, line % 2, keys, i / 2,
                   inputs_get(&in, which, line / 2, line % 2, j, i / 2));
      }
    place[j] = gone ? -1 : keys;
    if (!gone) at[keys++] = j;
  }
  in.problem.score.dense = (attn_bias){.at = bias, .dtype = ATTN_F32, .row = N_KV};
  left.padded = true;
  left.kv_len[0] = left.kv_len[1] = keys;
  for (size_t k = 0; k < sizeof placed / sizeof *placed; k++) {
    setting s = {.spec = placed[k], .options = {.threads = 2}, .in = &in, .up = &up};
    gradients all = differentiate(&s);
    s.in = &left;
    s.k_position.at = at;
    gradients some = differentiate(&s);
    note_context("%s", placed[k]);
    for (int which = 0; which < RESULTS; which++)
      for (int64_t i = 0; i < count_of(&p, which); i++) {
        const int64_t j = i / p.d_qk % N_KV, moved = which == OF_Q ? 0 : place[j] - j,
                      from = which != OF_Q && place[j] < 0 ? -1 : i + moved * p.d_qk;
        EXPECT(fabs((from < 0 ? 0 : attn_get(some.of[which], from, ATTN_F64)) -
                    attn_get(all.of[which], i, ATTN_F64)) <= tolerance(&p));
      }
  }
}

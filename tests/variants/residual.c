/* residual.c - a head of exact keys joined with the features of all others: against the definition in fp64
 * with the library's own features, its degenerate cases, threads, and what it refuses. */
#include "tests/support/core.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the toy joins: parts of other plans. */
static attn_residual parts;

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b, (void)c;
  if (parts.pattern) out->pattern = *parts.pattern;
  if (parts.selector) out->selector = *parts.selector;
  if (parts.features) out->features = *parts.features;
  return ATTN_OK;
}
static attn_cost cost(const attn_context *c) { return attn_residual_cost(c, parts.features, 1); }
static const attn_param table[] = {{.name = NULL}};
static const attn_variant toy = {.abi = ATTN_ABI,
                                 .size = sizeof(attn_variant),
                                 .name = "toy_residual",
                                 .summary = "a head and features",
                                 .cite = "none",
                                 .caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING |
                                         ATTN_CAP_STOCHASTIC | ATTN_CAP_LSE,
                                 .params = table,
                                 .describe = describe,
                                 .cost = cost};

/* A selector looks into the call's context, where it finds its variant's parameters. */
typedef struct guest {
  const attn_selector *selector;
  const attn_context *context;
} guest;

static attn_call at_home(const guest *g, const attn_call *call) {
  attn_call own = *call;
  own.context = g->context;
  return own;
}
static void guest_prepare(const void *state, const attn_call *call, int64_t batch, int64_t head,
                          void *prepared, void *scratch) {
  const guest *g = state;
  const attn_call own = at_home(g, call);
  g->selector->prepare(g->selector->state, &own, batch, head, prepared, scratch);
}
static void guest_select(const void *state, const attn_call *call, const attn_block *block,
                         const void *prepared, attn_picks *picks, void *scratch) {
  const guest *g = state;
  const attn_call own = at_home(g, call);
  g->selector->select(g->selector->state, &own, block, prepared, picks, scratch);
}
static attn_selector invite(const guest *g) {
  const attn_selector *x = g->selector;
  return (attn_selector){.state = g,
                         .share = x->share,
                         .rows = x->rows,
                         .max_runs = x->max_runs,
                         .max_keys = x->max_keys,
                         .every = x->every,
                         .prepared_bytes = x->prepared_bytes,
                         .prepare = x->prepare ? guest_prepare : NULL,
                         .scratch_bytes = x->scratch_bytes,
                         .select = guest_select};
}

/* The plans of a head and of features, for a problem; the toy joins them from now on. */
typedef struct joined {
  attn_plan *head, *features, *plan;
  attn_view head_view, view;
} joined;

static joined join(const inputs *in, const char *head, const char *features, const attn_options *options) {
  joined j = {.head = plan_or_note(&in->problem, head, options),
              .features = plan_or_note(&in->problem, features, options)};
  attn_view view;
  cr_assert(j.head && j.features);
  cr_assert_eq(attn_plan_inspect(j.head, &j.head_view), ATTN_OK);
  cr_assert_eq(attn_plan_inspect(j.features, &view), ATTN_OK);
  static guest visitor;
  static attn_selector selector;
  if (j.head_view.selector) {
    visitor = (guest){j.head_view.selector, attn_plan_context(j.head)};
    selector = invite(&visitor);
  }
  parts = (attn_residual){.pattern = j.head_view.pattern,
                          .selector = j.head_view.pattern ? NULL : &selector,
                          .features = view.features};
  j.plan = plan_or_note(&in->problem, "toy_residual", options);
  cr_assert(j.plan && attn_plan_inspect(j.plan, &j.view) == ATTN_OK);
  return j;
}

static void part(joined *j) {
  attn_plan_destroy(j->plan);
  attn_plan_destroy(j->features);
  attn_plan_destroy(j->head);
}

static inputs make(case_shape shape, attn_dtype t, double std) {
  attn_problem p = shape_problem(shape, t);
  return inputs_make(&p, shape.padded, 5, std);
}

/* -- the definition -- */

/* Features of a row times e^scale. */
static void features_of(const joined *j, const inputs *in, attn_side side, int64_t b, int64_t head, int64_t i,
                        double *f) {
  const attn_problem *p = &in->problem;
  const attn_feature_map *map = j->view.residual->features;
  const attn_stride stride = side == ATTN_QUERY ? p->q : p->k;
  const int64_t row = attn_padded(map->columns, p->dtype),
                kv = side == ATTN_QUERY ? head / (p->heads / p->kv_heads) : head;
  void *to = aligned_alloc(64, (size_t)(row * 8 + 63) / 64 * 64);
  double scale = 0;
  const void *x = attn_at(attn_rows(side == ATTN_QUERY ? in->q : in->k, stride, b, head, p->dtype),
                          i * stride.row, p->dtype);
  map->map(map->state, attn_plan_context(j->features),
           &(attn_feature_rows){kv, side, x, stride.row, side == ATTN_QUERY ? i + p->n_kv - p->n_q : i, 1},
           to, row, &scale);
  for (int64_t c = 0; c < map->columns; c++) f[c] = exp(scale) * attn_get(to, c, p->dtype);
  free(to);
}

/* Whether the head has the key, of a query that sees it. */
static bool has(const attn_run *runs, int64_t count, int64_t key) {
  for (int64_t r = 0; r < count; r++) {
    const int64_t at = key - runs[r].first;
    if (at >= 0 && at % runs[r].step == 0 && at / runs[r].step < runs[r].count) return true;
  }
  return false;
}

typedef struct tally {
  int64_t wrong, rows, mixed;
  double worst; /* error by its bound */
} tally;

static void check_row(const joined *j, const inputs *in, const void *o, const double *lse, const double *keys,
                      int64_t b, int64_t h, int64_t i, tally *t) {
  const attn_problem *p = &in->problem;
  const attn_feature_map *map = j->view.residual->features;
  const int64_t columns = map->columns, kv = h / (p->heads / p->kv_heads), exist = inputs_keys(in, b),
                seen =
                    p->causal ? (exist < i + p->n_kv - p->n_q + 1 ? exist : i + p->n_kv - p->n_q + 1) : exist;
  const double unit = p->dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24,
               gain = map->law.kind == ATTN_FEATURES_FIXED ? 1 : 1 / (double)map->law.vectors;
  double *query = malloc((size_t)columns * sizeof *query), *sum = calloc((size_t)p->d_v, sizeof *sum),
         all = 0, exact = 0, taken = 0, off = 0, v_max = 0;
  const int64_t most =
      j->head_view.pattern ? j->head_view.pattern->max_runs : j->head_view.selector->max_runs;
  attn_run *runs = malloc((size_t)most * sizeof *runs);
  int64_t count = 0, in_head = 0;
  if (j->head_view.pattern) {
    count = attn_pattern_row(j->head_view.pattern, p, h, i, runs);
  } else {
    attn_picks picks = {most, runs, &count, NULL, NULL};
    cr_assert_eq(attn_plan_select(j->head, in->q, in->k, in->v, in->padded ? in->kv_len : NULL,
                                  &(attn_row_set){b, h, 1, &i}, &picks),
                 ATTN_OK);
  }
  features_of(j, in, ATTN_QUERY, b, h, i, query);
  for (int64_t key = 0; key < seen; key++) {
    double score = 0, size = 0, weight = 0, magnitude = 0;
    for (int64_t l = 0; l < p->d_qk; l++) {
      const double x = inputs_get(in, TENSOR_Q, b, h, i, l) * inputs_get(in, TENSOR_K, b, kv, key, l);
      score += p->scale * x;
      size += fabs(p->scale * x);
    }
    for (int64_t c = 0; c < columns; c++) {
      weight += gain * query[c] * keys[key * columns + c];
      magnitude += gain * fabs(query[c] * keys[key * columns + c]);
    }
    all += magnitude;
    if (has(runs, count, key)) {
      taken += magnitude;
      in_head++;
      weight = exp(score);
      /* of the score, and of its exponential in either arithmetic */
      off += weight * unit * ((double)(p->d_qk + 4) * (size + 1) + 16);
    }
    exact += weight;
    for (int64_t l = 0; l < p->d_v; l++) {
      const double v = inputs_get(in, TENSOR_V, b, kv, key, l);
      sum[l] += weight * v;
      v_max = fmax(v_max, fabs(v));
    }
  }
  /* Chains of the sums, of the features' product, and of scales that are rounded in units of themselves. */
  const double chain = (double)(p->n_kv + columns + 200) * unit;
  off += chain * (all + taken + exact);
  t->rows++;
  t->mixed += in_head && in_head < seen;
  const double sum_found = lse[(b * p->heads + h) * p->n_q + i], sum_bound = 2 * off / (exact - off);
  if (exact > off && !(fabs(sum_found - log(exact)) <= sum_bound) && !t->wrong++)
    note_failure("b %d h %d row %d: log-sum-exp %g, expected %g within %g", (int)b, (int)h, (int)i, sum_found,
                 log(exact), sum_bound);
  if (!seen && !(sum_found < -DBL_MAX))
    note_failure("row %d sees nothing, and has the log-sum-exp %g", (int)i, sum_found);
  for (int64_t l = 0; l < p->d_v; l++) {
    const double want = seen ? sum[l] / exact : 0, bound = 2 * off * v_max / (exact - off) + unit * v_max,
                 error = fabs(output_get(p, o, b, h, i, l) - want);
    if (exact > off) t->worst = fmax(t->worst, seen ? error / bound : 0);
    if (exact > off && !(error <= bound) && !t->wrong++)
      note_failure("b %d h %d row %d: %g, expected %g within %g", (int)b, (int)h, (int)i,
                   output_get(p, o, b, h, i, l), want, bound);
  }
  free(query), free(sum), free(runs);
}

static void check(case_shape shape, attn_dtype t, const char *head, const char *features) {
  inputs in = make(shape, t, 0.5);
  const attn_problem *p = &in.problem;
  joined j = join(&in, head, features, NULL);
  const int64_t *kv_len = in.padded ? in.kv_len : NULL;
  void *o = run_plain(j.plan, &in), *other = malloc(tensor_bytes(p, TENSOR_O)),
       *work = aligned_alloc(64, (attn_plan_verify_size(j.plan) + 63) / 64 * 64);
  double *lse = malloc((size_t)(p->batch * p->heads * p->n_q) * sizeof *lse);
  EXPECT(attn_plan_execute_lse(j.plan, in.q, in.k, in.v, kv_len, other, lse, work) == ATTN_OK);
  EXPECT(memcmp(o, other, tensor_bytes(p, TENSOR_O)) == 0);
  if (attn_plan_verify(j.plan, in.q, in.k, in.v, kv_len, other, NULL, work))
    note_failure("%s", attn_last_error());
  tally all = {0};
  note_context("%s + %s, %s%s", head, features, p->causal ? "causal " : "", t == ATTN_F64 ? "f64" : "f32");
  double *keys = malloc((size_t)(p->n_kv * j.view.residual->features->columns) * sizeof *keys);
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++) {
      const int64_t group = p->heads / p->kv_heads;
      for (int64_t key = 0; h % group == 0 && key < p->n_kv; key++)
        features_of(&j, &in, ATTN_KEY, b, h / group, key, keys + key * j.view.residual->features->columns);
      for (int64_t i = h % 3; i < p->n_q; i += 7) check_row(&j, &in, o, lse, keys, b, h, i, &all);
    }
  if (!all.mixed || all.wrong)
    note_failure("%d wrong, %d of %d rows have both", (int)all.wrong, (int)all.mixed, (int)all.rows);
  free(keys), free(o), free(other), free(work), free(lse);
  part(&j);
  inputs_free(&in);
}

static const char performer[] = "performer:features=48,seed=3";

Test(variants_residual, is_the_definition) {
  cr_assert_eq(attn_variant_register(&toy), ATTN_OK);
  const case_shape plain = {1, 2, 2, 1001, 1001, 16, 32, false, false},
                   causal = {1, 2, 2, 1001, 1001, 16, 32, true, false},
                   odd = {2, 4, 2, 150, 230, 12, 7, false, true},
                   odd_causal = {2, 4, 2, 150, 230, 12, 7, true, true};
  const char *const heads[] = {"longformer:window=20",         "longformer:window=12,dilation=5",
                               "longformer:window=8,global=3", "longformer:window=8,global_at=9+140",
                               "sparse_transformer",           "topk:k=9"};
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
    if (strcmp(heads[i], "sparse_transformer") != 0) {
      check(plain, ATTN_F32, heads[i], performer);
      check(odd, ATTN_F64, heads[i], performer);
    }
    check(causal, ATTN_F32, heads[i], performer);
    check(odd_causal, ATTN_F64, heads[i], performer);
    check(odd_causal, ATTN_F32, heads[i], performer);
  }
  check(causal, ATTN_F32, "streaming:sink=4,window=128", performer);
  check(causal, ATTN_F32, "lsh", performer);
  check(plain, ATTN_F32, "longformer:window=20", "performer:features=48,kernel=trig");
  check(causal, ATTN_F32, "longformer:window=20", "performer:features=48,kernel=trig");
  check(causal, ATTN_F32, "longformer:window=20", "performer:features=48,kernel=optimal");
  check(causal, ATTN_F32, "longformer:window=20", "performer:features=48,share_heads=no");
  check(odd_causal, ATTN_F32, "longformer:window=20", "linear:feature=taylor");
  check(odd, ATTN_F32, "longformer:window=20", "linear");
}

/* -- degenerate heads -- */

static int64_t no_runs(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state, (void)head, (void)position, (void)runs;
  return 0;
}

Test(variants_residual, without_a_head_it_is_the_features) {
  cr_assert_eq(attn_variant_register(&toy), ATTN_OK);
  const attn_pattern none = {.row = no_runs, .max_runs = 1};
  for (int causal = 0; causal <= 1; causal++) {
    inputs in = make((case_shape){2, 4, 2, 300, 411, 16, 16, causal, true}, ATTN_F32, 1);
    joined j = join(&in, "longformer", performer, NULL);
    attn_plan_destroy(j.plan);
    parts.pattern = &none;
    j.plan = plan_or_note(&in.problem, "toy_residual", NULL);
    void *o = run_plain(j.plan, &in), *want = run_plain(j.features, &in);
    expect_same(&in.problem, o, want, "no head");
    free(o), free(want);
    part(&j);
    inputs_free(&in);
  }
}

Test(variants_residual, with_every_key_it_is_the_head) {
  cr_assert_eq(attn_variant_register(&toy), ATTN_OK);
  for (int causal = 0; causal <= 1; causal++) {
    inputs in = make((case_shape){2, 4, 2, 300, 411, 16, 16, causal, true}, ATTN_F32, 1);
    joined j = join(&in, "longformer:window=1000", performer, NULL);
    void *o = run_plain(j.plan, &in), *want = run_plain(j.head, &in);
    expect_same(&in.problem, o, want, "every key");
    free(o), free(want);
    part(&j);
    inputs_free(&in);
  }
}

Test(variants_residual, weights_sum_to_one) {
  cr_assert_eq(attn_variant_register(&toy), ATTN_OK);
  for (int causal = 0; causal <= 1; causal++) {
    inputs in = make((case_shape){1, 2, 1, 500, 500, 16, 16, causal, false}, ATTN_F32, 0.5);
    for (int64_t i = 0; i < 500; i++) inputs_set_row(&in, TENSOR_V, 0, 0, i, 1);
    joined j = join(&in, "longformer:window=32", performer, NULL);
    void *o = run_plain(j.plan, &in);
    double worst = 0;
    for (int64_t i = 0; i < 500; i++) worst = fmax(worst, fabs(output_get(&in.problem, o, 0, 1, i, 3) - 1));
    /* All features are positive: the sums of both sides have a chain of at most n + columns + 200, and the
     * head's share of them is below one half. */
    if (!(worst <= 6 * 0x1p-24 * (500 + 48 + 200))) note_failure("1 becomes 1 + %g", worst);
    free(o);
    part(&j);
    inputs_free(&in);
  }
}

Test(variants_residual, threads_change_no_bit) {
  cr_assert_eq(attn_variant_register(&toy), ATTN_OK);
  for (int causal = 0; causal <= 1; causal++)
    for (int ranks = 0; ranks <= 1; ranks++) {
      inputs in = make((case_shape){2, 2, 1, 4500, 4500, 8, 8, causal, true}, ATTN_F32, 0.5);
      void *first = NULL;
      for (int threads = 1; threads <= 3; threads++) {
        const attn_options options = {.threads = threads, .blocks = {64, 96}};
        joined j = join(&in, ranks ? "topk:k=4" : "longformer:window=40,global=1", "performer:features=16",
                        &options);
        void *o = run_plain(j.plan, &in);
        if (first) expect_same(&in.problem, first, o, "threads");
        free(threads > 1 ? o : NULL);
        if (threads == 1) first = o;
        part(&j);
      }
      free(first);
      inputs_free(&in);
    }
}

/* -- rows whose denominator is lost -- */

/* One feature: 1, but 1e5 of the first key. */
static void steep(const void *state, const attn_context *c, const attn_feature_rows *x, void *f,
                  int64_t f_row, double *scale) {
  (void)state;
  for (int64_t i = 0; i < x->rows; i++) {
    const bool tall = x->side == ATTN_KEY && x->first + i == 0;
    attn_set(f, i * f_row, c->problem->dtype, tall ? 1e5 : 1e-4);
    if (scale) scale[i] = 0;
  }
}

Test(variants_residual, a_lost_denominator_is_no_number) {
  cr_assert_eq(attn_variant_register(&toy), ATTN_OK);
  const attn_feature_map map = {.columns = 1, .map = steep};
  for (attn_dtype t = ATTN_F32; t <= ATTN_F64; t++) {
    inputs in = make((case_shape){1, 1, 1, 90, 200, 8, 8, false, false}, t, 0);
    joined j = join(&in, "longformer:window=2,global=1", performer, NULL);
    attn_plan_destroy(j.plan);
    parts.features = &map;
    j.plan = plan_or_note(&in.problem, "toy_residual", NULL);
    void *o = run_plain(j.plan, &in);
    /* A_j = 1 of the head; of the rest 200 times 1e-8, lost beside 10 in fp32 if the head were nothing. */
    for (int64_t i = 1; i < 90; i++) EXPECT(isfinite(output_get(&in.problem, o, 0, 0, i, 0)));
    free(o);
    /* Scores of -40: the head is nothing. */
    for (int64_t i = 0; i < 90; i++) inputs_set_row(&in, TENSOR_Q, 0, 0, i, -20);
    for (int64_t i = 0; i < 200; i++) inputs_set_row(&in, TENSOR_K, 0, 0, i, 1);
    o = run_plain(j.plan, &in);
    for (int64_t i = 1; i < 90; i++) EXPECT(isnan(output_get(&in.problem, o, 0, 0, i, 0)) == (t == ATTN_F32));
    free(o);
    part(&j);
    inputs_free(&in);
  }
}

Test(variants_residual, what_cannot_be_joined_is_named) {
  cr_assert_eq(attn_variant_register(&toy), ATTN_OK);
  inputs in = make((case_shape){1, 1, 1, 50, 50, 8, 8, false, false}, ATTN_F32, 1);
  joined j = join(&in, "topk:k=4", performer, NULL);
  attn_selector weighted = *parts.selector;
  attn_feature_map map = *parts.features;
  attn_plan *made = NULL;
  const attn_residual sound = parts;
  weighted.weighted = true;
  parts.selector = &weighted;
  EXPECT_STATUS(attn_plan_create(&made, &in.problem, "toy_residual", NULL), ATTN_EINVAL);
  EXPECT(strstr(attn_last_error(), "weighted keys already represent the rest"));
  parts = sound;
  map.eps = 0.5;
  parts.features = &map;
  EXPECT_STATUS(attn_plan_create(&made, &in.problem, "toy_residual", NULL), ATTN_EINVAL);
  EXPECT(strstr(attn_last_error(), "eps = 0.5"));
  parts = sound;
  parts.pattern = &(attn_pattern){.row = no_runs, .max_runs = 1};
  EXPECT_STATUS(attn_plan_create(&made, &in.problem, "toy_residual", NULL), ATTN_EUNSUPPORTED);
  EXPECT(strstr(attn_last_error(), "no engine takes its parts together"));
  part(&j);
  inputs_free(&in);
}

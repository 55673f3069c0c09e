/* join.c - joins: which keys they take, with which weights, against the terms' own, key by key; and that
 * attention to what a term owns is not attended to twice. */
#include "tests/support/core.h"
#include "tests/support/spec.h"

#include "attn_expression.h"

enum { N = 150, HEADS = 4, RUNS = 200, TOY_RUNS = N };

static attn_problem problem_of(bool causal, int64_t n_q) {
  attn_problem p = attn_problem_make(2, HEADS, N, 16);
  p.kv_heads = 2;
  p.n_q = n_q;
  p.causal = causal;
  return p;
}

/* The keys that a query attends to, as what is added to their scores; NaN: it does not. */
typedef struct picked {
  double weight[N];
} picked;

static void clear(picked *x) {
  for (int64_t j = 0; j < N; j++) x->weight[j] = (double)NAN;
}

static void pick(const attn_plan *plan, const inputs *in, int64_t batch, int64_t head, int64_t i,
                 picked *out) {
  const attn_problem *p = &in->problem;
  const attn_row_set set = {batch, head, 1, &i};
  attn_view view;
  int64_t count = 0, first, end;
  const int64_t keys = inputs_keys(in, batch);
  cr_assert_eq(attn_plan_inspect(plan, &view), ATTN_OK);
  clear(out);
  attn_visible_span(p, i, &first, &end);
  if (end > keys) end = keys;
  if (view.selector) {
    static attn_run runs[N + 1];
    static double weights[N + 1];
    attn_picks picks = {
        .max_runs = view.selector->max_runs, .runs = runs, .counts = &count, .log_weights = weights};
    cr_assert_leq(picks.max_runs, N);
    EXPECT_STATUS(
        attn_plan_select(
            plan,
            &(attn_tensors){.q = in->q, .k = in->k, .v = in->v, .kv_len = in->padded ? in->kv_len : NULL},
            &set, &picks),
        ATTN_OK);
    for (int64_t r = 0; r < count; r++)
      for (int64_t j = runs[r].first; j < runs[r].first + runs[r].count; j++)
        if (j >= first && j < end)
          out->weight[j] = weights[r];
        else if (view.selector->share != ATTN_SHARE_TILE)
          note_failure("query %d selects key %d, which it does not see", (int)i, (int)j);
    return;
  }
  static attn_run runs[RUNS];
  if (view.pattern) {
    cr_assert_leq(view.pattern->max_runs, RUNS);
    count = attn_pattern_row(view.pattern, p, head, i, runs);
  } else {
    count = 1;
    runs[0] = (attn_run){0, N, 1};
  }
  for (int64_t r = 0; r < count; r++)
    for (int64_t t = 0; t < runs[r].count; t++) {
      const int64_t j = runs[r].first + t * runs[r].step;
      if (j >= first && j < end) out->weight[j] = 0;
    }
}

static bool same(const picked *a, const picked *b) {
  for (int64_t j = 0; j < N; j++) {
    if (isnan(a->weight[j]) != isnan(b->weight[j])) return false;
    if (a->weight[j] < b->weight[j] || a->weight[j] > b->weight[j]) return false;
  }
  return true;
}

/* So many keys as its terms select at most, if each of them says how many. */
static void expect_limit(const attn_plan *plan, attn_plan *const *terms, int64_t count) {
  attn_view view, own;
  int64_t most = 0;
  bool limited = true;
  cr_assert_eq(attn_plan_inspect(plan, &view), ATTN_OK);
  for (int64_t t = 0; t < count; t++) {
    cr_assert_eq(attn_plan_inspect(terms[t], &own), ATTN_OK);
    limited = limited && own.selector && own.selector->max_keys;
    most += limited ? attn_min(own.selector->max_keys, N) : 0;
  }
  EXPECT(view.selector && view.selector->max_keys == (limited ? most : 0));
}

/* Of terms that mind nothing, the keys of a join are those of all; spec: NULL for these terms. */
static void expect_union(const char *spec, const char *const *terms) {
  char all[200] = "";
  for (int t = 0; terms[t]; t++) strcat(strcat(all, t ? " + " : ""), terms[t]);
  if (!spec) spec = all;
  for (int k = 0; k < 8; k++) {
    const attn_problem p = problem_of(k & 1 || strstr(spec, "streaming"), k & 2 ? 90 : N);
    inputs in = inputs_make(&p, k & 4, 3, 1);
    attn_plan *plan = plan_kept(&p, spec, NULL), *own[4] = {NULL};
    int64_t count = 0;
    note_context("%s%s%s", spec, k & 1 ? " causal" : "", k & 4 ? " padded" : "");
    for (; terms[count]; count++) own[count] = plan_kept(&p, terms[count], NULL);
    if (strcmp(terms[0], "tiled") != 0) expect_limit(plan, own, count);
    for (int64_t x = 0; x < p.batch * HEADS * p.n_q; x += 7) {
      const int64_t batch = x / p.n_q / HEADS, head = x / p.n_q % HEADS, i = x % p.n_q;
      picked got, expected, one;
      pick(plan, &in, batch, head, i, &got);
      clear(&expected);
      for (int64_t t = 0; t < count; t++) {
        pick(own[t], &in, batch, head, i, &one);
        for (int64_t j = 0; j < N; j++)
          if (!isnan(one.weight[j])) expected.weight[j] = 0;
      }
      if (!same(&got, &expected)) {
        note_failure("batch %d, head %d, query %d", (int)batch, (int)head, (int)i);
        break;
      }
    }
    inputs_free(&in);
  }
}

#define UNION(...) expect_union(NULL, (const char *const[]){__VA_ARGS__, NULL})
Test(expression_join, takes_the_keys_of_all_terms) {
  static const char window[] = "streaming:sink=3,window=9", tile[] = "pages:page=8,budget=24,share=tile";
  UNION(window, "topk:k=5");
  UNION("topk:k=5", window);
  UNION("longformer:window=12,dilation=3,global_at=2+77", "lsh:rounds=2");
  UNION("longformer:window=4,dilation=5,global=2", "longformer:window=6,dilation=4");
  UNION("bigbird:block=16", window, "topk:k=3,share=group");
  UNION("topk:k=3,share=group", "longformer:window=4");
  UNION(tile, "streaming:sink=1,window=2");
  UNION("pages:page=8,budget=16", tile, "lsh:rounds=1");
  UNION(tile, tile);
  UNION("topk:k=3", "topk:k=20", "topk:k=4");
  /* A sample of every key has no weights. */
  expect_union("streaming:sink=3,window=9 + sample:count=150", (const char *const[]){"tiled", NULL});
}

/* What the law of a selector says of each unit to a query, and once of all. */
static void law_of(const attn_plan *plan, const inputs *in, double law[N + 1][5]) {
  double low[N] = {0}, high[N] = {0}, error = 0;
  attn_view view;
  cr_assert_eq(attn_plan_inspect(plan, &view), ATTN_OK);
  const attn_selector none = {.grain = 0}, *x = view.selector ? view.selector : &none;
  const attn_call call = {
      .context = attn_plan_context(plan), .q = in->q, .k = in->k, .v = in->v, .kv_len = in->kv_len};
  const attn_query query = {.call = &call, .head = 2, .i = 77};
  const int64_t units = x->grain ? N / x->grain : 0;
  if (x->enclose) x->enclose(x->state, &query, units, low, high);
  for (int64_t u = 0; u < units; u++) {
    const double score = x->score ? x->score(x->state, &query, u, &error) : 0,
                 always = x->always ? 1 + x->always(x->state, &query, u) : 0,
                 own[5] = {always, score, error, low[u], high[u]};
    memcpy(law[u], own, sizeof own);
  }
  const double all[5] = {(double)x->grain, (double)x->kept, (double)x->hashes, (double)x->buckets, x->mass};
  memcpy(law[N], all, sizeof all);
}

static void expect_same_bits(const char *a, const char *b, bool causal) {
  const attn_problem p = problem_of(causal, N);
  note_context("%s against %s", a, b);
  inputs in = inputs_make(&p, true, 5, 1);
  attn_plan *one = plan_kept(&p, a, NULL), *other = plan_kept(&p, b, NULL);
  void *x = kept_memory(run_plain(one, &in)), *y = kept_memory(run_plain(other, &in));
  if (x && y) expect_same(&p, x, y, "bitwise");
  double law[2][N + 1][5] = {{{0}}};
  law_of(one, &in, law[0]), law_of(other, &in, law[1]);
  EXPECT(!memcmp(law[0], law[1], sizeof law[0]));
}

Test(expression_join, of_everything_is_exact_attention) {
  attn_view view;
  const attn_problem p = problem_of(true, N);
  keep_object(plan_inspected(&p, "streaming + tiled", NULL, &view), destroy_plan);
  EXPECT(view.caps & ATTN_CAP_EXACT && view.selector && view.selector->every);
}

/* -- a term that minds what others own, with weights -- */

/* Every third of the visible keys that remain, weighted 3. */
static bool mind = true;
static attn_share share = ATTN_SHARE_ROW;
static void select_thirds(const void *state, const attn_call *call, const attn_block *block,
                          const void *prepared, attn_picks *picks, void *scratch) {
  (void)state, (void)prepared, (void)scratch;
  for (int64_t i = 0; i < block->count; i++) {
    int64_t first, end, seen = 0, count = 0;
    attn_visible_span(call->context->problem, block->first + i, &first, &end);
    if (end > attn_call_keys(call, block->batch)) end = attn_call_keys(call, block->batch);
    for (int64_t j = first; j < end; j++) {
      bool owned = false;
      for (int64_t r = 0; picks->owned && r < picks->owned->counts[i]; r++) {
        const attn_run run = picks->owned->runs[i * picks->owned->max_runs + r];
        owned = owned || (j >= run.first && j < run.first + run.count);
      }
      if (owned || seen++ % 3) continue;
      picks->runs[i * picks->max_runs + count] = (attn_run){j, 1, 1};
      picks->log_weights[i * picks->max_runs + count++] = log(3);
    }
    picks->counts[i] = count;
  }
}
/* Law: as if keys that remain were each kept with probability 1/3, apart from each other. */
static double weight_of_thirds(const void *state, const attn_query *query, int64_t key) {
  (void)state, (void)query, (void)key;
  return log(3);
}
static void moments_of_thirds(const void *state, const attn_query *query, const int64_t *keys, int64_t count,
                              double *m) {
  (void)state;
  EXPECT(query->owned && query->call->context->variant &&
         !strcmp(query->call->context->variant->name, "thirds"));
  for (int64_t a = 0; a < count; a++)
    for (int64_t b = 0; b < count; b++) m[a * count + b] = keys[a] == keys[b] ? 3 : 1;
}
static attn_status thirds_of(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b;
  out->selector = (attn_selector){.share = share,
                                  .rows = 4,
                                  .max_runs = c->problem->n_kv,
                                  .weighted = true,
                                  .restricts = mind,
                                  .select = select_thirds,
                                  .moments = moments_of_thirds,
                                  .log_weight = weight_of_thirds};
  return ATTN_OK;
}
ATTN_VARIANT(thirds, TOY, .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_LSE | ATTN_CAP_DATA, .describe = thirds_of,
             .cost = no_cost)

static void use(const attn_variant *v) {
  cr_assert_eq(attn_variant_register(v), ATTN_OK, "%s", attn_last_error());
}

Test(expression_join, weights_stay_with_their_keys) {
  use(&attn_variant_thirds);
  static const char *const heads[] = {"streaming:sink=3,window=9", "longformer:window=4,dilation=2",
                                      "topk:k=5"};
  for (int h = 0; h < 3; h++)
    for (int causal = 0; causal < 2; causal++) {
      const char *spec = text_of("%s + thirds", heads[h]);
      note_context("%s", spec);
      const attn_problem p = problem_of(causal || h == 0, N);
      inputs in = inputs_make(&p, true, 3, 1);
      attn_plan *plan = plan_kept(&p, spec, NULL), *head = plan_kept(&p, heads[h], NULL);
      for (int64_t x = 0; x < p.batch * HEADS * N; x += 11) {
        const int64_t batch = x / N / HEADS, line = x / N % HEADS, i = x % N, keys = inputs_keys(&in, batch);
        int64_t seen = 0, first, end;
        picked got, expected;
        pick(plan, &in, batch, line, i, &got);
        pick(head, &in, batch, line, i, &expected);
        attn_visible_span(&p, i, &first, &end);
        for (int64_t j = first; j < end && j < keys; j++)
          if (isnan(expected.weight[j]) && seen++ % 3 == 0) expected.weight[j] = log(3);
        if (!same(&got, &expected))
          note_failure("batch %d, head %d, query %d", (int)batch, (int)line, (int)i);
      }
      free(run_plain(plan, &in));
    }
}

Test(expression_join, law_of_weights) {
  use(&attn_variant_thirds);
  const attn_problem p = problem_of(true, N);
  inputs in = inputs_make(&p, false, 3, 1);
  attn_view view;
  attn_plan *plan = plan_inspected(&p, "streaming:sink=3,window=9 + topk:k=2 + thirds", NULL, &view);
  attn_plan *head = plan_or_note(&p, "streaming:sink=3,window=9 + topk:k=2", NULL);
  cr_assert(head && view.selector && view.selector->weighted && view.selector->moments);
  const attn_call call = {.context = attn_plan_context(plan), .q = in.q, .k = in.k, .v = in.v};
  const attn_query query = {.call = &call, .batch = 1, .head = 2, .i = 140};
  int64_t keys[N];
  double *m = kept_memory(malloc(N * N * sizeof *m));
  picked owned;
  cr_assert_not_null(m);
  pick(head, &in, 1, 2, 140, &owned);
  for (int64_t j = 0; j < N; j++) keys[j] = j;
  view.selector->moments(view.selector->state, &query, keys, 141, m);
  for (int64_t a = 0; a < 141; a++) {
    for (int64_t b = 0; b < 141; b++) {
      const double expected = a == b && isnan(owned.weight[a]) ? 3 : 1;
      EXPECT(fabs(m[a * 141 + b] - expected) < 1e-15);
    }
    const double w = view.selector->log_weight(view.selector->state, &query, a);
    EXPECT(fabs(w - (isnan(owned.weight[a]) ? log(3) : 0)) < 1e-15);
  }
  attn_plan_destroy(plan), attn_plan_destroy(head);
}

static void expect_unjoined(const char *spec, const char *place, const char *reason) {
  const attn_problem p = problem_of(true, N);
  expect_no_plan(&p, spec, ATTN_EINVAL, place);
  EXPECT(strstr(attn_last_error(), reason));
}

Test(expression_join, terms_that_cannot_be_joined) {
  use(&attn_variant_thirds);
  expect_unjoined("streaming + thirds + topk", "at 22 (\"topk:", "nothing remains");
  expect_unjoined("thirds + tiled", "at 10 (\"tiled:", "nothing remains");
  expect_unjoined("topk + tiled:skip=0.5", "at 8 (\"tiled:", "cannot restrict itself");
  mind = false;
  expect_unjoined("topk + thirds", "at 8 (\"thirds\")", "cannot draw among those that remain");
  mind = true;
  share = ATTN_SHARE_TILE;
  expect_unjoined("pages:page=8,budget=24,share=tile + thirds", "at 37 (\"thirds\")", "by other blocks");
}

/* -- names for expressions -- */

typedef struct duo_params {
  int64_t sink, k;
} duo_params;
static const attn_param duo_table[] = {
    {"sink", ATTN_INT, offsetof(duo_params, sink), 0, 100, "3", NULL, "first keys"},
    {"k", ATTN_INT, offsetof(duo_params, k), 1, 100, "5", NULL, "best keys"},
    {.name = NULL}};
static attn_variant duo = {.abi = ATTN_ABI,
                           .size = sizeof(attn_variant),
                           .name = "duo",
                           .summary = "a name",
                           .cite = "none",
                           .caps = (ATTN_CAP_SOFTMAX & ~ATTN_CAP_SHIFT) | ATTN_CAP_LSE | ATTN_CAP_DATA,
                           .params = duo_table,
                           .params_size = sizeof(duo_params),
                           .budget = {.parameter = "k"},
                           ATTN_EXPRESSION("streaming:sink={sink},window=9 + topk:k={k}")};

Test(expression_join, names_for_expressions) {
  use(&duo);
  expect_same_bits("duo:sink=2,k=7", "streaming:sink=2,window=9 + topk:k=7", true);
  expect_same_bits("duo + lsh", "streaming:sink=3,window=9 + topk:k=5 + lsh", true);
  expect_same_bits("0.5*duo + 0.5*duo", "duo", true);
  expect_same_bits("duo + duo + duo + duo + duo + duo + duo + duo", "duo", true); /* 16 terms */
  const attn_problem p = problem_of(true, N);
  expect_no_plan(&p, "duo + duo + duo + duo + duo + duo + duo + duo + lsh", ATTN_EUNSUPPORTED, "16 terms");
  attn_spec *spec = NULL, *seven = spec_of("duo:k=7");
  EXPECT(seven->variant == &duo && seven->expression && !strcmp(seven->text, "duo:sink=3,k=7"));
  EXPECT(!attn_spec_is_expression(seven));
  static const char *const refused[][2] = {
      {"streaming:sink={sinks} + topk", "{sinks}, which is not a parameter"},
      {"duo + topk", "within each other"},
      {"streaming:sink={sink} + linformer", "in 'streaming:sink=3 + linformer'"},
      {"lsh", "it states ATTN_CAP_EXACT, ATTN_CAP_PERMUTATION, which its expression does not keep"}};
  for (int i = 0; i < 4; i++) {
    if (i == 3) duo.caps |= ATTN_CAP_PERMUTATION | ATTN_CAP_EXACT;
    duo.expression = refused[i][0];
    EXPECT_STATUS(attn_spec_parse(&spec, "duo"), i == 2 ? ATTN_EUNSUPPORTED : ATTN_EINVAL);
    EXPECT(!spec && strstr(attn_last_error(), refused[i][1]) && strstr(attn_last_error(), "variant duo: "));
  }
  static const char *const named[][2] = {
      {"lsh:rounds={k}", "lsh:rounds=9"},
      {"topk:p=0.9,window={k}", "topk:p=0.9,window=9"},
      {"pages:page=3,budget={k},score=ball", "pages:page=3,budget=9,score=ball"},
      {"hyper:exact_below=0,block={k}", "hyper:exact_below=0,block=9"},
      {"performer:features={k}", "performer:features=9"}}; /* which is no term of a join */
  for (int i = 0; i < 5; i++) {
    duo.caps = spec_of(named[i][1])->variant->caps;
    duo.expression = named[i][0];
    expect_same_bits("duo:k=9", named[i][1], duo.caps & ATTN_CAP_CAUSAL);
  }
}

/* patterns.c - GR-1, STR-0 and TK-1: patterns and proxies of the library keep them, and rows, edges, caches
 * and intervals that are a little others are told apart. */
#include "tests/support/checks_fake.h"

#include "data/data.h"

#include <stdio.h>
#include <unistd.h>

static void expect_pass(const char *spec, attn_problem p, const int64_t *kv_len) {
  run_case *c = case_lengths(spec, p, 1.5, kv_len);
  expect_verdict(&c->e, "GR-1", VERDICT_PASS, spec);
  if (c->view.pattern->cache) expect_verdict(&c->e, "STR-0", VERDICT_PASS, spec);
}

Test(checks_patterns, those_of_the_library) {
  char specs[] = "longformer:window=8,global=2;longformer:window=6,dilation=3,global_at=3+50;"
                 "bigbird:block=8,random=2;streaming:sink=3,window=10;streaming:sink=0,window=1;"
                 "streaming:sink=100,window=5;sparse_transformer:stride=8;"
                 "sparse_transformer:mode=fixed,stride=8,summary=2;graph:size=20;"
                 "graph:kind=natten,width=9,kernel=3";
  static const int64_t kv_len[2] = {61, 90};
  for (const char *spec = strtok(specs, ";"); spec; spec = strtok(NULL, ";"))
    for (int i = 0; i < 4; i++) {
      attn_problem p = case_problem(2, 4, 2, 90, 12, 5, i & 1, i & 2 ? ATTN_F64 : ATTN_F32);
      if (!(i & 1) && (strncmp(spec, "str", 3) == 0 || strncmp(spec, "sparse", 6) == 0)) continue;
      expect_pass(spec, p, i == 3 ? kv_len : NULL);
    }
}

Test(checks_patterns, fewer_and_more_queries_than_keys) {
  for (int64_t n_q = 1; n_q < 200; n_q += 66) {
    attn_problem p = case_problem(1, 2, 1, 90, 12, 5, true, ATTN_F32);
    p.n_q = n_q;
    expect_pass("streaming:sink=3,window=10", p, NULL);
    if (n_q > p.n_kv)
      expect_gaussian("streaming:sink=3,window=10", p, 1.5, "SP-6", VERDICT_PASS, "more queries");
  }
}

static attn_status some_filters(const char *path, int64_t *rows, int64_t *columns, double **values) {
  (void)path;
  *rows = 2, *columns = 70;
  *values = malloc(140 * sizeof **values);
  for (int i = 0; *values && i < 140; i++) (*values)[i] = cos(i);
  return *values ? ATTN_OK : ATTN_ENOMEM;
}

/* What a decoding holds refers to its plan, which goes last. Sanitizers see it, and what SP-6 reads above.
 * Keys are longer than what scores take at a time, and queries are more than their windows. What a score adds
 * to all keys alike shows only where a least one is asked for. */
Test(checks_patterns, caches_of_latents_and_policies) {
  static const char every[] = "every=2,chunk=3", shared[] = "prompt=70,shared=0.5";
  static const char *const rules[] = {every,       shared,     "admit=-12.5",        "admit=-1",
                                      shared,      every,      "admit=0.03",         shared,
                                      "admit=0.1", "admit=-2", "filters=f,admit=-5", "admit=0.1"};
  const attn_problem p = case_problem(2, 4, 2, 90, 70, 5, true, ATTN_F32);
  attn_matrix_reader_set(some_filters);
  expect_gaussian("latent:rank=5,shared=2,prompt=7", p, 1.5, "CACHE-1", VERDICT_PASS, "latents");
  for (int i = 0; attn_kv_score_names[i]; i++) {
    const char *spec = text_of("evict:score=%s,budget=24,recent=4,%s", attn_kv_score_names[i], rules[i]);
    expect_gaussian(spec, p, 1.5, "EVICT-2", VERDICT_PASS, spec);
    if (!strstr(spec, "exact")) expect_gaussian(spec, p, 1.5, "CACHE-1", VERDICT_PASS, spec);
  }
}

/* A graph in a file is of 70 queries, and no probe of 64 can be made of it. */
Test(checks_patterns, a_graph_of_more_queries_than_keys) {
  enum { QUERIES = 70, KEYS = 32 };
  const char *path = "graph_of_more_queries.npy";
  FILE *file = fopen(path, "wb");
  cr_assert_not_null(file);
  fprintf(file, "%s%c%c%c%c%-117s\n", "\x93NUMPY", 1, 0, 118, 0,
          "{'descr': '|u1', 'fortran_order': False, 'shape': (70, 32), }");
  for (int i = 0; i < QUERIES; i++)
    for (int j = 0; j < KEYS; j++) fputc((i + j) % 3 != 0, file);
  cr_assert_eq(fclose(file), 0);
  attn_problem p = case_problem(2, 4, 2, KEYS, 12, 5, true, ATTN_F32);
  p.n_q = QUERIES;
  attn_graph_reader_set(data_graph_read);
  expect_pass("graph:kind=file,file=graph_of_more_queries.npy", p, NULL);
  unlink(path);
}

/* -- GR-1: an algorithm that loses a key, or takes one that no edge leads to -- */

static int64_t six_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state, (void)head;
  const int64_t first = position < 5 ? 0 : position - 5;
  runs[0] = (attn_run){first, position - first + 1, 1};
  return 1;
}

static const attn_pattern six_keys = {.row = six_row, .max_runs = 1};

static double weight_six(int64_t i, int64_t j, double score) { return j <= i && j > i - 6 ? exp(score) : 0; }
static double weight_short(int64_t i, int64_t j, double score) {
  return j <= i && j > i - 5 ? exp(score) : 0;
}
static double weight_behind(int64_t i, int64_t j, double score) {
  return j <= i + 1 && j > i - 6 ? exp(score) : 0;
}
static double weight_transposed(int64_t i, int64_t j, double score) {
  return j >= i && j < i + 6 ? exp(score) : 0;
}

static void expect_fake(double (*weight)(int64_t, int64_t, double), check_verdict want, const char *what) {
  fake_reset(weight);
  fake.view.pattern = &six_keys;
  expect_gaussian("fake", case_problem(1, 2, 1, 64, 8, 6, false, ATTN_F32), 1, "GR-1", want, what);
}

Test(checks_patterns, edges_that_are_lost_or_made_up) {
  expect_fake(weight_six, VERDICT_PASS, "the pattern");
  expect_fake(weight_short, VERDICT_VIOLATED, "a key short");
  expect_fake(weight_behind, VERDICT_VIOLATED, "a key behind the last");
  expect_fake(weight_transposed, VERDICT_VIOLATED, "the transpose");
}

/* -- STR-0: patterns that are no cache of the size that they state -- */

static int64_t rolling_kind;

/* Two sinks and a window of 6 keys, with a fault. */
static int64_t rolling_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  const int64_t window = rolling_kind == 1   ? 7
                         : rolling_kind == 2 ? 5
                         : rolling_kind == 5 ? 6 - position % 2
                                             : 6;
  int64_t first = position - window + 1, count = 0;
  (void)state, (void)head;
  if (rolling_kind != 3 || first < 2) runs[count++] = (attn_run){0, 2, 1};
  if (rolling_kind == 4 && position > 40 && position % 3 == 0)
    runs[0].first = 10; /* keys that were thrown out */
  if (first < 2) first = 2;
  if (first <= position) runs[count++] = (attn_run){first, position - first + 1, 1};
  return count;
}

Test(checks_patterns, caches_that_do_not_decode) {
  static const attn_pattern rolling = {.row = rolling_row, .max_runs = 2, .cache = 8};
  static const char *const what[] = {
      "the pattern",       "a window with one key more", "one key less",
      "sinks are evicted", "evicted keys are asked for", "a window that breathes"};
  for (rolling_kind = 0; rolling_kind < 6; rolling_kind++) {
    fake_reset(weight_equal);
    fake.view.pattern = &rolling;
    run_case *c = case_gaussian("fake", case_problem(1, 2, 1, 64, 8, 6, true, ATTN_F32), 1);
    expect_verdict(&c->e, "STR-0", rolling_kind ? VERDICT_VIOLATED : VERDICT_PASS, what[rolling_kind]);
    const result_bound b = case_check(&c->e, "STR-0");
    if (rolling_kind == 4) cr_expect_not_null(strstr(b.message, "thrown out"), "%s", b.message);
    case_free(c);
  }
}

/* -- TK-1 -- */

Test(checks_patterns, proxies_of_the_library) {
  static const char *const specs[] = {"topk:k=8,by=sparq,r=4", "topk:k=8,by=sparq,r=4,share=group",
                                      "pages:page=8,budget=24", "pages:page=8,budget=24,score=ball",
                                      "pages:page=13,budget=26,score=ball,share=tile"};
  static const int64_t kv_len[2] = {61, 90};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int i = 0; i < 4; i++) {
      attn_problem p = case_problem(2, 4, 2, 90, 12, 5, i & 1, i & 2 ? ATTN_F64 : ATTN_F32);
      run_case *c = case_lengths(specs[s], p, 3, i & 1 ? kv_len : NULL);
      expect_verdict(&c->e, "TK-1", VERDICT_PASS, specs[s]);
      case_free(c);
    }
}

/* With one coordinate left out the intervals are narrow, and prove most keys not to be among the best. */
Test(checks_patterns, what_a_proxy_proves) {
  const result_bound b =
      case_judge("topk:k=8,by=sparq,r=11", case_problem(1, 2, 2, 200, 12, 5, false, ATTN_F64), 3, "TK-1");
  double percent = 0;
  cr_expect(sscanf(b.message, "proves %lf", &percent) == 1 && percent > 50, "%s", b.message);
  run_case *c = case_gaussian("topk:k=8", case_problem(1, 1, 1, 40, 8, 5, false, ATTN_F64), 1);
  cr_expect_not(check_find("TK-1")->of->holds(&c->view), "exact scores have no proxy");
}

static double widened;

/* Intervals round the true products, of which one side is too near. */
static void enclose_badly(const void *state, const attn_query *x, int64_t units, double *low, double *high) {
  const attn_problem *p = x->call->context->problem;
  (void)state;
  for (int64_t j = 0; j < units; j++) {
    const void *q = attn_rows(x->call->q, p->q, x->batch, x->head, p->dtype),
               *k = attn_rows(x->call->k, p->k, x->batch, x->head / (p->heads / p->kv_heads), p->dtype);
    double t = 0;
    for (int64_t l = 0; l < p->d_qk; l++)
      t += p->scale * attn_get(q, x->i * p->q.row + l, p->dtype) * attn_get(k, j * p->k.row + l, p->dtype);
    low[j] = t + (widened > 0 ? widened : -1);
    high[j] = t + (widened < 0 ? widened : 1);
  }
}

static const attn_variant *ranking;

static attn_status describe_badly(attn_builder *b, const attn_context *c, attn_parts *out) {
  const attn_status status = ranking->describe(b, c, out);
  out->selector.enclose = enclose_badly;
  return status;
}

Test(checks_patterns, proxies_that_say_too_much) {
  ranking = variant_described("topk", "telling", describe_badly);
  for (int side = -1; side < 2; side++) {
    widened = 1e-3 * side;
    expect_gaussian("telling:k=8", case_problem(1, 2, 1, 40, 8, 5, false, ATTN_F32), 1, "TK-1",
                    side ? VERDICT_VIOLATED : VERDICT_PASS, side < 0 ? "too low" : "too high");
  }
}

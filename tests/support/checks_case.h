/* checks_case.h - one run, ready to be judged: inputs, plan, output, exact rows, evidence. */
#ifndef TESTS_SUPPORT_CHECKS_CASE_H
#define TESTS_SUPPORT_CHECKS_CASE_H

#include <criterion/criterion.h>
#include <gsl/gsl_errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/checks/check.h"
#include "tests/support/basics/kept.h"
#include "tests/support/basics/rng.h"
#include "tests/support/basics/text.h"

typedef struct run_case {
  attn_problem problem;
  attn_plan *plan;
  attn_view view;
  void *q, *k, *v, *o, *work;
  int64_t kv_len[8];
  exact_rows *exact;
  evidence e;
} run_case;

static int case_threads = 2; /* of the plans that are made */

static inline int64_t case_count_q(const attn_problem *p) { return p->batch * p->heads * p->n_q * p->d_qk; }
static inline int64_t case_count_k(const attn_problem *p) {
  return p->batch * p->kv_heads * p->n_kv * p->d_qk;
}
static inline int64_t case_count_v(const attn_problem *p) {
  return p->batch * p->kv_heads * p->n_kv * p->d_v;
}
static inline int64_t case_count_o(const attn_problem *p) { return p->batch * p->heads * p->n_q * p->d_v; }

static inline double case_get(const run_case *c, const void *at, int64_t i) {
  return attn_get(at, i, c->problem.dtype);
}

static inline void case_set(const run_case *c, void *at, int64_t i, double x) {
  attn_set(at, i, c->problem.dtype, x);
}

static inline void case_normals(const run_case *c, void *at, int64_t count, double std, uint64_t seed) {
  attn_rng rng = rng_of(seed, 1, 0);
  for (int64_t i = 0; i < count; i++) case_set(c, at, i, std * attn_rng_normal(&rng));
}

/* Batch, heads, key heads, tokens, widths; scale 1/sqrt(d_qk), contiguous. */
static inline attn_problem case_problem(int64_t batch, int64_t heads, int64_t kv_heads, int64_t n,
                                        int64_t d_qk, int64_t d_v, bool causal, attn_dtype dtype) {
  attn_problem p = attn_problem_make(batch, heads, n, d_qk);
  p.kv_heads = kv_heads;
  p.d_v = d_v;
  p.causal = causal;
  p.dtype = dtype;
  return p;
}

static inline void case_end(void *c);

/* Gaussian Q, K, V of the given standard deviation for Q and K; nothing is run yet. Kept to the end, or to
 * case_free. */
static inline run_case *case_make(attn_problem p, double std, uint64_t seed) {
  run_case *c = keep_object(calloc(1, sizeof *c), case_end);
  gsl_set_error_handler_off();
  c->problem = p;
  size_t size = attn_dtype_size(p.dtype);
  c->q = malloc((size_t)case_count_q(&p) * size);
  c->k = malloc((size_t)case_count_k(&p) * size);
  c->v = malloc((size_t)case_count_v(&p) * size);
  c->o = malloc((size_t)case_count_o(&p) * size);
  case_normals(c, c->q, case_count_q(&p), std, seed + 1);
  case_normals(c, c->k, case_count_k(&p), std, seed + 2);
  case_normals(c, c->v, case_count_v(&p), 1, seed + 3);
  return c;
}

/* Runs the spec on the case, and gathers the evidence. */
static inline void case_run(run_case *c, const char *spec, const int64_t *kv_len) {
  attn_options options = {.threads = case_threads};
  cr_assert_eq(attn_plan_create(&c->plan, &c->problem, spec, &options), ATTN_OK, "%s: %s", spec,
               attn_last_error());
  cr_assert_eq(attn_plan_inspect(c->plan, &c->view), ATTN_OK, "%s: %s", spec, attn_last_error());
  c->work = malloc(attn_plan_work_size(c->plan) + 1);
  cr_assert_eq(attn_plan_execute(c->plan, c->q, c->k, c->v, kv_len, c->o, c->work), ATTN_OK);
  cr_assert_eq(exact_rows_compute(&c->problem, c->q, c->k, c->v, kv_len, 7, &c->exact), ATTN_OK, "%s",
               attn_last_error());
  c->e = (evidence){.plan = c->plan,
                    .problem = attn_plan_problem(c->plan),
                    .view = &c->view,
                    .q = c->q,
                    .k = c->k,
                    .v = c->v,
                    .kv_len = kv_len,
                    .o = c->o,
                    .exact = c->exact,
                    .cache = block_cache_create(),
                    .seed = 11};
}

/* kv_len: in place for as long as the case, or NULL. */
static inline run_case *case_lengths(const char *spec, attn_problem p, double std, const int64_t *kv_len) {
  run_case *c = case_make(p, std, 100);
  case_run(c, spec, kv_len);
  return c;
}

static inline run_case *case_gaussian(const char *spec, attn_problem p, double std) {
  return case_lengths(spec, p, std, NULL);
}

static inline result_row row_empty(void) {
  result_row row;
  result_row_init(&row);
  return row;
}

static inline void row_end(void *row) { result_row_free(row); }

/* The bounds of every check on the case; kept. */
static inline result_row case_checks(const run_case *c) {
  result_row row = row_empty();
  cr_assert_eq(checks_run(&c->e, &row), ATTN_OK, "%s", attn_last_error());
  return *(result_row *)keep_copy(&row, sizeof row, row_end);
}

/* Undoes case_run, so that another spec can be run on the same inputs. */
static inline void case_forget(run_case *c) {
  attn_plan_destroy(c->plan);
  exact_rows_free(c->exact);
  block_cache_free(c->e.cache);
  free(c->work);
  c->plan = NULL;
  c->exact = NULL;
  c->e.cache = NULL;
  c->work = NULL;
}

static inline void case_end(void *at) {
  run_case *c = at;
  case_forget(c);
  free(c->q);
  free(c->k);
  free(c->v);
  free(c->o);
  free(c);
}

static inline void case_free(run_case *c) { let_object_go(c); }

/* Errors, shares and their bounds are none below 0, but by rounding, and a probability lies in 0 ... 1. */
static inline void expect_in_range(const result_bound *b, const char *what) {
  cr_expect(!(b->measured < -1e-30) && !(b->value < 0) && !(b->p_value < 0) && !(b->p_value > 1),
            "%s, %s: measured %g, value %g, p %g", b->name, what, b->measured, b->value, b->p_value);
}

/* One check on the evidence, with a fresh cache. */
static inline result_bound case_check(const evidence *e, const char *name) {
  evidence own = *e;
  result_bound bound;
  const check *found = check_find(name);
  cr_assert_not_null(found, "no check %s", name);
  own.cache = block_cache_create();
  check_evaluate(found, &own, &bound);
  block_cache_free(own.cache);
  expect_in_range(&bound, attn_plan_spec(e->plan));
  return bound;
}

static inline void expect_verdict(const evidence *e, const char *name, check_verdict want, const char *what) {
  result_bound b = case_check(e, name);
  cr_expect(want >= VERDICT_VIOLATED || !isnan(b.measured), "%s, %s: measured nothing", name, what);
  cr_expect_eq(b.verdict, want, "%s, %s: verdict %d, measured %g, value %g, %s", name, what, (int)b.verdict,
               b.measured, b.value, b.message);
}

/* The same of a run of case_gaussian alone. */
static inline result_bound case_judge(const char *spec, attn_problem p, double std, const char *name) {
  run_case *c = case_gaussian(spec, p, std);
  const result_bound bound = case_check(&c->e, name);
  case_free(c);
  return bound;
}

static inline void expect_gaussian(const char *spec, attn_problem p, double std, const char *name,
                                   check_verdict want, const char *what) {
  run_case *c = case_gaussian(spec, p, std);
  expect_verdict(&c->e, name, want, what);
  case_free(c);
}

static inline double case_score(const run_case *c, int64_t i, int64_t j) {
  const attn_problem *p = c->e.problem;
  double sum = 0;
  for (int64_t l = 0; l < p->d_qk; l++)
    sum += p->scale * case_get(c, c->q, i * p->d_qk + l) * case_get(c, c->k, j * p->d_qk + l);
  return sum;
}

/* Of one head without a mask: the largest |o~ - o| over tanh(L/4) Delta_V, o~ of weights of these logarithms
 * [n_q, n_kv], L the range of what these are more than scores. */
static inline double case_hull_margin(const run_case *c, const double *log_weights) {
  const attn_problem *p = c->e.problem;
  double far = 0, margin = 0;
  for (int64_t j = 0; j < p->n_kv; j++) {
    double square = 0;
    for (int64_t l = 0; l < p->d_v; l++) {
      double mean = 0;
      for (int64_t t = 0; t < p->n_kv; t++) mean += case_get(c, c->v, t * p->d_v + l) / (double)p->n_kv;
      square += pow(case_get(c, c->v, j * p->d_v + l) - mean, 2);
    }
    far = fmax(far, sqrt(square));
  }
  for (int64_t i = 0; i < p->n_q; i++) {
    double low = (double)INFINITY, high = -low, sum = 0, square = 0, o[16] = {0};
    for (int64_t j = 0; j < p->n_kv; j++) {
      const double log_weight = log_weights[i * p->n_kv + j], more = log_weight - case_score(c, i, j);
      low = fmin(low, more);
      high = fmax(high, more);
      sum += exp(log_weight);
      for (int64_t l = 0; l < p->d_v; l++) o[l] += exp(log_weight) * case_get(c, c->v, j * p->d_v + l);
    }
    for (int64_t l = 0; l < p->d_v; l++) square += pow(o[l] / sum - c->exact->o[i * p->d_v + l], 2);
    margin = fmax(margin, sqrt(square) / (tanh((high - low) / 4) * 2 * far));
  }
  return margin;
}

/* Registers a variant as `name` with another description, for as long as the program runs. Returns it. */
static inline const attn_variant *
variant_described(const char *of, const char *name,
                  attn_status (*describe)(attn_builder *, const attn_context *, attn_parts *)) {
  const attn_variant *real;
  attn_variant *own = malloc(sizeof *own);
  cr_assert_eq(attn_variant_find(of, &real), ATTN_OK, "%s", attn_last_error());
  *own = *real;
  own->name = name;
  own->describe = describe;
  cr_assert_eq(attn_variant_register(own), ATTN_OK, "%s", attn_last_error());
  return real;
}

/* It holds, whether its bound is vacuous or not. */
static inline void expect_holds(const evidence *e, const char *name, const char *what) {
  result_bound b = case_check(e, name);
  const bool vacuous = b.verdict == VERDICT_UNCERTIFIABLE && strncmp(b.message, "vacuous: ", 9) == 0;
  cr_expect((b.verdict == VERDICT_PASS || vacuous) && b.measured <= b.value,
            "%s, %s: verdict %d, measured %g, value %g, %s", name, what, (int)b.verdict, b.measured, b.value,
            b.message);
}

#endif

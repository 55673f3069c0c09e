/* census.c - exact attention on all rows: against the textbook within the derived bound, for any number of
 * threads, with inputs that are not finite, and with outputs that are wrong. */
#include "tests/support/checks_case.h"

#include "data/data.h"
#include "experiments/evidence/columns.h"
#include "experiments/reference/census.h"
#include "experiments/reference/weigh.h"

#include <omp.h>

typedef struct shape {
  int64_t batch, heads, kv_heads, n_q, n_kv, d, d_v;
  bool causal;
} shape;

/* Blocks have 192 rows, steps 256 keys and slabs 4096. */
static const shape shapes[] = {
    {1, 1, 1, 1, 1, 1, 1, false},      {2, 4, 2, 50, 60, 16, 5, true},      {1, 2, 1, 97, 33, 3, 17, true},
    {1, 1, 1, 193, 1100, 9, 70, true}, {2, 3, 3, 5, 513, 64, 64, false},    {1, 2, 2, 3, 4100, 5, 3, true},
    {3, 6, 2, 192, 256, 8, 1, false},  {1, 1, 1, 30, 16500, 2, 130, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static attn_problem problem_of(const shape *s, attn_dtype dtype) {
  attn_problem p = case_problem(s->batch, s->heads, s->kv_heads, s->n_kv, s->d, s->d_v, s->causal, dtype);
  p.n_q = s->n_q;
  cr_assert_eq(attn_problem_resolve(&p), ATTN_OK, "%s", attn_last_error());
  return p;
}

static exact_rows *rows_of(run_case *c, const attn_problem *p, const int64_t *kv_len) {
  exact_rows_free(c->exact);
  cr_assert(!exact_rows_compute(p, c->q, c->k, c->v, kv_len, 3, &c->exact), "%s", attn_last_error());
  return c->exact;
}

/* Into the case, and its rows with them. */
static double *census_of(run_case *c, const attn_problem *p, const int64_t *kv_len) {
  double *o = c->o = realloc(c->o, (size_t)case_count_o(p) * sizeof *o);
  for (int64_t i = 0; i < case_count_o(p); i++) o[i] = 77;
  cr_assert_eq(census_compute(p, c->q, c->k, c->v, kv_len, o), ATTN_OK, "%s", attn_last_error());
  rows_of(c, p, kv_len);
  return o;
}

static attn_status checked(const run_case *c, const attn_problem *p, const int64_t *kv_len) {
  return census_check(p, c->q, c->k, c->v, kv_len, c->exact, c->o);
}

static void expect_textbook(const attn_problem *p, double std, const int64_t *kv_len, const char *what) {
  run_case *c = case_make(*p, std, 5);
  census_of(c, p, kv_len);
  cr_expect(c->exact->complete);
  cr_expect_eq(checked(c, p, kv_len), ATTN_OK, "%s: %s", what, attn_last_error());
}

Test(reference_census, rows_are_those_of_the_textbook) {
  for (int s = 0; s < SHAPES; s++)
    for (int kind = 0; kind < 4; kind++) {
      const attn_problem p = problem_of(&shapes[s], kind & 1 ? ATTN_F64 : ATTN_F32);
      const int64_t some[] = {p.n_kv - p.n_kv / 3, 1, 0};
      const char *what = text_of("shape %d, kind %d", s, kind);
      expect_textbook(&p, kind & 2 ? 3 : 0.5, kind & 2 ? some : NULL, what);
    }
}

Test(reference_census, scores_and_masks_are_those_of_the_problem) {
  static const char *const targets[][2] = {
      {"softcap=1.5", ""},
      {"leaky=0.2", ""},
      {"alibi", ""},
      {"sink=0.7", ""},
      {"alibi,sink=6", ""},
      {"t5=0.5", ""},
      {"", "prefix:20"},
      {"", "block_causal:16"},
      {"", "documents:0+10+37"},
      {"sink=900", ""},
      {"sink=0", "documents:24"},
      {"sink=-800", ""},
      {"softcap=3,alibi,sink=-1", "prefix:11"},
  };
  for (size_t t = 0; t < sizeof targets / sizeof *targets; t++)
    for (int s = 0; s < SHAPES; s++) {
      data_target *made = NULL;
      attn_problem p = problem_of(&shapes[s], s & 1 ? ATTN_F64 : ATTN_F32);
      if (*targets[t][1]) p.causal = p.causal && strncmp(targets[t][1], "documents", 9) == 0;
      if (data_target_make(targets[t][0], targets[t][1], &p, &made)) continue; /* not of this shape */
      expect_textbook(&p, 1, NULL, text_of("%s %s, shape %d", targets[t][0], targets[t][1], s));
      data_target_free(made);
    }
}

/* Dense biases hide keys, in some rows all of them, with a sink and without. */
Test(reference_census, rows_without_keys_are_zero) {
  static const double sink[] = {0.5, -2};
  attn_problem p = problem_of(&(shape){1, 2, 1, 110, 700, 8, 6, false}, ATTN_F32);
  float *bias = kept_memory(malloc((size_t)(p.n_q * p.n_kv) * sizeof *bias));
  attn_rng rng = rng_of(1, 1, 0);
  for (int64_t i = 0; i < p.n_q * p.n_kv; i++)
    bias[i] = i / p.n_kv % 7 == 3 || attn_rng_below(&rng, 3) ? -INFINITY : (float)attn_rng_normal(&rng);
  p.score.dense = (attn_bias){.at = bias, .dtype = ATTN_F32, .row = p.n_kv};
  for (int kind = 0; kind < 2; kind++) {
    p.score.sink = kind ? sink : NULL;
    expect_textbook(&p, 1, NULL, kind ? "sink" : "no sink");
  }
  run_case *c = case_make(p, 1, 5);
  double *o = census_of(c, &p, NULL);
  for (int64_t l = 0; l < p.d_v; l++) cr_expect(o[3 * p.d_v + l] == 0 && o[4 * p.d_v + l] != 0);
}

Test(reference_census, strides_are_the_problems) {
  attn_problem p = problem_of(&(shape){2, 3, 3, 60, 60, 4, 4, true}, ATTN_F32), turned = p;
  turned.q = turned.k = turned.v = (attn_stride){.batch = 60 * 3 * 4, .head = 4, .row = 3 * 4};
  run_case *c = case_make(p, 1, 5);
  census_of(c, &turned, NULL);
  cr_expect_eq(checked(c, &turned, NULL), ATTN_OK, "%s", attn_last_error());
  rows_of(c, &p, NULL);
  cr_expect_eq(checked(c, &p, NULL), ATTN_ENUMERIC);
}

/* What is not finite spreads as by the textbook, and no further. */
Test(reference_census, what_is_not_finite_stays_in_its_rows) {
  static const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
  for (int kind = 0; kind < 9; kind++) {
    const attn_problem p = problem_of(&(shape){1, 2, 1, 300, 600, 8, 6, true}, ATTN_F32);
    run_case *c = case_make(p, 1, 5);
    void *at = kind % 3 == 0 ? c->q : kind % 3 == 1 ? c->k : c->v;
    case_set(c, at, (kind % 3 == 0 ? 130 : 430) * (kind % 3 == 2 ? 6 : 8) + 2, odd[kind / 3]);
    if (kind % 3 == 2) case_set(c, at, 433 * 6 + 2, -odd[kind / 3]);
    double *o = census_of(c, &p, NULL);
    const exact_rows *x = c->exact;
    int64_t finite = 0;
    for (int64_t r = 0; r < x->count; r++)
      for (int64_t l = 0; l < 6; l++) {
        const sample_row *row = &x->rows[r];
        const double a = o[((row->head * p.n_q) + row->i) * 6 + l], b = x->o[r * 6 + l];
        finite += isfinite(a);
        cr_expect(isnan(a)   ? isnan(b)
                  : isinf(a) ? a == b
                             : fabs(a - b) < 1e-12,
                  "kind %d, head %lld, row %lld, element %lld: %g, %g", kind, (long long)row->head,
                  (long long)row->i, (long long)l, a, b);
      }
    cr_expect(finite > 0 && finite < x->count * 6, "kind %d: %lld", kind, (long long)finite);
    cr_expect_eq(checked(c, &p, NULL), ATTN_OK);
    case_free(c);
  }
}

/* A key that a bias hides from a row has weight 0 there, and no part in it: by the textbook, by blocks, and
 * row by row. */
Test(reference_census, hidden_values_reach_no_row) {
  enum { KEYS = 600, ROWS = 300, ODD = 430, D_V = 6 };
  attn_problem p = problem_of(&(shape){1, 1, 1, ROWS, KEYS, 8, D_V, false}, ATTN_F32);
  float *bias = kept_memory(calloc((size_t)ROWS * KEYS, sizeof *bias));
  for (int64_t i = 0; i < ROWS; i += 2) bias[i * KEYS + ODD] = -INFINITY;
  p.score.dense = (attn_bias){.at = bias, .dtype = ATTN_F32, .row = KEYS};
  run_case *c = case_make(p, 1, 5);
  case_set(c, c->v, ODD * D_V + 2, (double)NAN);
  double *o = census_of(c, &p, NULL), row[D_V], scratch[KEYS];
  const exact_rows *x = c->exact;
  cr_assert_eq(x->count, ROWS);
  for (int64_t i = 0; i < ROWS; i++) {
    attn_reference_row(&p, NULL, c->q, c->k, c->v, NULL, 0, 0, i, NULL, row, scratch);
    for (int64_t l = 0; l < D_V; l++) {
      const bool reached = i % 2 == 1 && l == 2;
      cr_expect(isnan(row[l]) == reached && isnan(o[i * D_V + l]) == reached &&
                    isnan(x->o[i * D_V + l]) == reached,
                "row %lld, element %lld: %g, %g, %g", (long long)i, (long long)l, row[l], o[i * D_V + l],
                x->o[i * D_V + l]);
    }
  }
}

Test(reference_census, bits_do_not_depend_on_threads) {
  const attn_problem p = problem_of(&(shape){1, 4, 2, 300, 8300, 16, 9, true}, ATTN_F32);
  run_case *c = case_make(p, 1, 5);
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  double *one = kept_memory(census_of(c, &p, NULL));
  c->o = NULL;
  for (int threads = 2; threads < 6; threads++) {
    omp_set_num_threads(threads);
    const double *o = census_of(c, &p, NULL);
    cr_expect(memcmp(one, o, (size_t)case_count_o(&p) * sizeof *o) == 0, "%d threads", threads);
  }
  omp_set_num_threads(before);
}

/* An element that is off by a little more than rounding, and the same with inputs that leave no bound. */
Test(reference_census, a_wrong_row_is_named) {
  const attn_problem p = problem_of(&(shape){2, 4, 2, 900, 2000, 64, 8, true}, ATTN_F32);
  run_case *c = case_make(p, 1, 5);
  double *o = census_of(c, &p, NULL);
  const exact_rows *x = c->exact;
  cr_assert(!x->complete);
  cr_expect_eq(checked(c, &p, NULL), ATTN_OK, "%s", attn_last_error());
  for (int64_t r = 0; r < x->judged; r += x->judged / 7) {
    const sample_row *row = &x->rows[r];
    double *at = o + ((row->batch * p.heads + row->head) * p.n_q + row->i) * p.d_v + 5, right = *at;
    const char *want = text_of("batch %lld, head %lld, row %lld: element 5 ", (long long)row->batch,
                               (long long)row->head, (long long)row->i);
    *at = right + 1e-10;
    cr_expect_eq(checked(c, &p, NULL), ATTN_ENUMERIC);
    cr_expect(strstr(attn_last_error(), want), "%s: %s", want, attn_last_error());
    *at = (double)NAN;
    cr_expect_eq(checked(c, &p, NULL), ATTN_ENUMERIC);
    *at = right;
  }
  case_set(c, c->k, 7, 1e20);
  cr_expect_eq(checked(c, &p, NULL), ATTN_OK); /* its head has no bound */
}

static void expect_weights(weigh *weights, const char *what) {
  enum { COUNT = 4099 };
  double x[COUNT], from[COUNT], worst = 0, sum = 0;
  attn_rng rng = rng_of(3, 1, 0);
  for (int64_t scale = 1; scale < 1000; scale *= 3) {
    weigh_row row = {-(double)INFINITY, 0};
    for (int j = 0; j < COUNT; j++) x[j] = from[j] = j ? -(double)scale * attn_rng_uniform(&rng) : 0;
    cr_expect(weights(COUNT, x, &row) == 0 && row.max == 0);
    sum = 0;
    for (int j = 0; j < COUNT; j++) {
      const long double want = expl((long double)from[j]);
      sum += x[j];
      if (from[j] > -708) worst = fmax(worst, (double)fabsl(((long double)x[j] - want) / want));
      cr_expect(from[j] > -708 || (x[j] >= 0 && x[j] < 0x1p-1020));
    }
    cr_expect_float_eq(row.sum, sum, 1e-12 * sum);
  }
  cr_expect_leq(worst, WEIGH_ERROR, "%s: %g", what, worst);
  cr_expect_geq(worst, WEIGH_ERROR / 4, "%s: %g", what, worst);
}

Test(reference_census, weights_keep_their_error) {
  attn_plan *plan = NULL;
  const attn_problem p = attn_problem_make(1, 1, 1, 1);
  cr_assert_eq(attn_plan_create(&plan, &p, "full", NULL), ATTN_OK);
  expect_weights(weigh_of("scalar"), "scalar");
  expect_weights(weigh_of(attn_plan_isa(plan)), attn_plan_isa(plan));
  attn_plan_destroy(plan);
}

Test(reference_census, blocks_of_weights_go_together) {
  weigh *weights = weigh_of("scalar");
  double x[] = {1, -(double)INFINITY, 3}, y[] = {-(double)INFINITY, -(double)INFINITY}, z[] = {5, 5},
         nan[] = {0, (double)NAN};
  weigh_row row = {-(double)INFINITY, 0};
  cr_expect_eq(weights(2, y, &row), 0);
  cr_expect(row.sum == 0 && isinf(row.max) && y[0] == 0);
  cr_expect_eq(weights(3, x, &row), 0);
  cr_expect(row.max == 3 && x[1] == 0 && x[2] == 1);
  cr_expect_float_eq(row.sum, 1 + exp(-2), 1e-15);
  const double factor = weights(2, z, &row);
  cr_expect_float_eq(factor, exp(-2), 1e-15);
  cr_expect_float_eq(row.sum, 2 + exp(-2) + exp(-4), 1e-15);
  weights(2, nan, &row);
  cr_expect(isnan(row.sum) && isnan(nan[1]) && row.max == 5);
}

/* -- errors of all rows -- */

static const result_row no_row;

static result_row errors_of(const evidence *e) {
  result_row row = no_row;
  result_row_init(&row);
  cr_assert_eq(evidence_errors(e, &row), ATTN_OK);
  return row;
}

/* A row that no sample holds has its share in the error, and there is no interval. */
Test(reference_census, errors_are_of_all_rows) {
  const attn_problem p = problem_of(&(shape){1, 2, 2, 2500, 2500, 4, 3, true}, ATTN_F64);
  run_case *c = case_make(p, 1, 5);
  double *o = c->o, above = 0, below = 0;
  cr_assert_eq(exact_rows_compute(&p, c->q, c->k, c->v, NULL, 3, &c->exact), ATTN_OK);
  cr_assert_eq(census_take(&p, c->q, c->k, c->v, NULL, c->exact), ATTN_OK, "%s", attn_last_error());
  const exact_rows *x = c->exact;
  int64_t hidden = 2500;
  for (bool taken = true; taken; hidden += taken) {
    taken = false;
    for (int64_t r = 0; r < x->judged; r++) taken |= x->rows[r].head == 1 && x->rows[r].i == hidden - 2500;
  }
  for (int64_t i = 0; i < case_count_o(&p); i++) {
    o[i] = x->all[i] + (i / 3 == hidden ? 0.5 : 1e-3);
    above += (o[i] - x->all[i]) * (o[i] - x->all[i]);
    below += x->all[i] * x->all[i];
  }
  const result_row row = errors_of(&(evidence){.problem = &p, .v = c->v, .o = o, .exact = x});
  cr_expect_eq(row.rows_sampled, 5000);
  cr_expect_float_eq(row.err_rel_fro, sqrt(above / below), 1e-12);
  cr_expect(row.err_rel_fro_lo == row.err_rel_fro && row.err_rel_fro_hi == row.err_rel_fro);
  cr_expect(row.err_rel_fro_cert_lo == row.err_rel_fro && row.err_rel_fro_cert_hi == row.err_rel_fro);
  cr_expect(row.err_rel_l2_mean_lo == row.err_rel_l2_mean && row.err_max_tail == 0);
  cr_expect_float_eq(row.err_max_abs, 0.5, 1e-12);
  cr_expect_float_eq(row.profile_max[(hidden - 2500) * RESULT_PROFILE_BINS / 2500], 0.5, 1e-12);
  cr_expect_float_eq(row.profile_max[RESULT_PROFILE_BINS - 1], 1e-3, 1e-12);
}

/* What auto means: the same on every machine. */
Test(reference_census, time_is_counted) {
  const shape longer[] = {{1, 4, 4, 16384, 16384, 64, 64, false},
                          {1, 1, 1, 32768, 32768, 64, 64, true},
                          {1, 4, 4, 32768, 32768, 64, 64, true},
                          {1, 1, 1, 65536, 65536, 64, 64, true}};
  for (int i = 0; i < 4; i++) {
    attn_problem p = problem_of(&longer[i], ATTN_F32);
    cr_expect_eq(census_seconds(&p) <= 10, i < 2, "%d: %g", i, census_seconds(&p));
  }
  attn_problem p = problem_of(&longer[0], ATTN_F32);
  cr_expect_eq(census_seconds(&p), 4.0 * 16384 * 16384 * (128 + 24) / 17179869184.0);
  cr_expect(census_affordable(&p, 8 * 4.0 * 16384 * 64 * 8) &&
            !census_affordable(&p, 8 * 4.0 * 16384 * 64 * 8 - 1));
  p.score.softcap = 30;
  cr_expect(census_seconds(&p) > 20 && !census_affordable(&p, 0x1p40));
}

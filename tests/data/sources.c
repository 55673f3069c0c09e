/* sources.c - synthetic datasets: specs, streams, and the property that each one promises. */
#include "tests/support/data_fixture.h"

#include <gsl/gsl_linalg.h>
#include <omp.h>

TestSuite(data_sources, .init = fixture_begin, .fini = fixture_end);

#define NEEDLES "needle:distance=3", "needle:distance=3,gap=5"
#define ROPES "rope", "rope:content=constant,position=sinusoidal"
static const char *const synthetic[] = {
    "gaussian",           "clustered", "lowrank", "heavytailed", "flat", "peaked", "duplicate:distinct=3",
    "outlier:channels=2", "hopfield",  "gat",     NEEDLES,       ROPES};
enum { SYNTHETIC = sizeof synthetic / sizeof *synthetic };

/* Scores of independent normal rows: (q.k)^2 / d has mean 1 and variance 2 + 6/d, whatever d: what 1/sqrt(d)
 * is for. */
Test(data_sources, scores_have_unit_variance) {
  enum { ROWS = 2048, HEADS = 4 };
  for (int64_t d = 4; d <= 64; d *= 4) {
    const data_request r = source_request(HEADS, HEADS, ROWS, d);
    data_qkv m = source_make("gaussian", &r);
    double sum = 0;
    for (int64_t head = 0; head < HEADS; head++)
      for (int64_t i = 0; i < ROWS; i++) {
        const double score =
            source_dot(source_row(m.q, ROWS, d, head, i), source_row(m.k, ROWS, d, head, i), d);
        sum += score * score / (double)d;
      }
    const double error = sum / (ROWS * HEADS) - 1, deviation = sqrt((2 + 6 / (double)d) / (ROWS * HEADS));
    cr_expect(fabs(error) <= 4 * deviation, "d = %d: %g +- %g", (int)d, error, deviation);
  }
}

Test(data_sources, the_table_is_listed_and_found) {
  const data_source *s = NULL;
  cr_assert_null(data_source_at(data_source_count()));
  for (size_t i = 0; i < data_source_count(); i++) {
    char *canonical = NULL, *again = NULL;
    assert_ok(data_source_find(data_source_at(i)->name, &s));
    cr_assert_eq(s, data_source_at(i), "%s is not the only one of its name", s->name);
    cr_assert(*s->help && s->generate);
    /* Canonical text is a fixed point and names every parameter, or those that a source always names. */
    assert_ok(data_source_parse(s->name, NULL, &canonical));
    assert_ok(data_source_parse(canonical, NULL, &again));
    cr_assert_str_eq(canonical, again);
    for (int p = 0; s->params[p].name && (!s->named || p < s->named); p++)
      cr_assert_not_null(strstr(canonical, s->params[p].name));
    free(canonical), free(again);
  }
}

Test(data_sources, a_wrong_spec_is_refused_by_name) {
  static const struct {
    const char *spec;
    attn_status status;
    const char *says;
    int64_t heads, kv_heads, n_q, d_qk, d_v;
  } cases[] = {{"gausian", ATTN_ENOTFOUND, "gausian", 1, 1, 8, 4, 4},
               {"gausian", ATTN_ENOTFOUND, "gaussian", 1, 1, 8, 4, 4}, /* the known ones are listed */
               {"", ATTN_ENOTFOUND, "dataset", 1, 1, 8, 4, 4},
               {"gaussian:std=1", ATTN_ENOTFOUND, "std", 1, 1, 8, 4, 4},
               {"gaussian:std_q=-1", ATTN_EINVAL, "std_q", 1, 1, 8, 4, 4},
               {"gaussian:std_q=nan", ATTN_EINVAL, "std_q", 1, 1, 8, 4, 4},
               {"rope:content=random", ATTN_EINVAL, "content", 1, 1, 8, 4, 4},
               {"lowrank:rank=5", ATTN_EUNSUPPORTED, "rank=5", 1, 1, 8, 4, 4},
               {"needle:distance=8", ATTN_EUNSUPPORTED, "distance=8", 1, 1, 8, 4, 4},
               {"needle:distance=1,gap=1", ATTN_EUNSUPPORTED, "8 or more", 1, 1, 8, 7, 7},
               {"needle:distance=1,gap=1", ATTN_OK, NULL, 1, 1, 8, 8, 8},
               {"duplicate:distinct=8", ATTN_EUNSUPPORTED, "distinct=8", 1, 1, 8, 4, 4},
               {"duplicate:distinct=0", ATTN_EINVAL, "distinct", 1, 1, 8, 4, 4},
               {"outlier:channels=5", ATTN_EUNSUPPORTED, "channels=5", 1, 1, 8, 4, 4},
               {"outlier:channels=4", ATTN_OK, NULL, 1, 1, 8, 4, 4},
               {"outlier:factor=0", ATTN_EINVAL, "factor", 1, 1, 8, 4, 4},
               {"peaked:std=-1", ATTN_EINVAL, "std", 1, 1, 8, 4, 4},
               {"hopfield", ATTN_EUNSUPPORTED, "d_v=5", 1, 1, 8, 4, 5},
               {"gat", ATTN_EUNSUPPORTED, "not 1", 1, 1, 8, 1, 4},
               {"rope", ATTN_EUNSUPPORTED, "even", 1, 1, 8, 5, 5},
               {"gaussian", ATTN_EINVAL, "kv_heads", 4, 3, 8, 4, 4},
               {"gaussian", ATTN_EINVAL, "n_q", 1, 1, 0, 4, 4}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const data_request r = {
        1, cases[c].heads, cases[c].kv_heads, cases[c].n_q, 8, cases[c].d_qk, cases[c].d_v, ATTN_F32, 7};
    data_qkv m = {.rank = 77};
    const attn_status status = data_source_make(cases[c].spec, &r, &m, NULL);
    cr_expect_eq(status, cases[c].status, "%s", cases[c].spec);
    cr_expect(status ? m.rank == 77 && !m.q && strstr(attn_last_error(), cases[c].says) : m.q != NULL,
              "%s: %s", cases[c].spec, attn_last_error());
    if (!status) data_qkv_free(&m);
  }
}

Test(data_sources, both_dtypes_and_any_number_of_threads_see_the_same_numbers) {
  for (int s = 0; s < SYNTHETIC; s++) {
    const int64_t d_v = strcmp(synthetic[s], "hopfield") == 0 ? 8 : 6; /* its keys are its values */
    data_request r = {2, 4, 2, 5, 9, 8, d_v, ATTN_F32, 7};
    omp_set_num_threads(1);
    data_qkv a = source_make(synthetic[s], &r);
    omp_set_num_threads(3);
    data_qkv b = {0};
    assert_ok(data_source_make(synthetic[s], &r, &b, NULL));
    r.dtype = ATTN_F64;
    data_qkv c = source_make(synthetic[s], &r);
    cr_assert(a.batch == 2 && a.heads == 4 && a.kv_heads == 2 && a.n_q == 5 && a.n_kv == 9 && a.d_qk == 8 &&
              a.d_v == d_v);
    cr_assert_arr_eq(a.q, b.q, 2 * 4 * 5 * 8 * 4, "%s", synthetic[s]);
    cr_assert_arr_eq(a.k, b.k, 2 * 2 * 9 * 8 * 4, "%s", synthetic[s]);
    cr_assert_arr_eq(a.v, b.v, (size_t)(2 * 2 * 9 * d_v * 4), "%s", synthetic[s]);
    assert_ok(data_qkv_convert(&b, ATTN_F64));
    cr_assert_arr_eq(c.q, b.q, 2 * 4 * 5 * 8 * 8, "%s", synthetic[s]);
    cr_assert_arr_eq(c.k, b.k, 2 * 2 * 9 * 8 * 8, "%s", synthetic[s]);
    cr_assert_arr_eq(c.v, b.v, (size_t)(2 * 2 * 9 * d_v * 8), "%s", synthetic[s]);
    assert_ok(data_qkv_check_finite(&c));
    data_qkv_free(&b);
  }
}

Test(data_sources, seeds_tensors_batches_and_heads_have_streams_of_their_own) {
  enum { ROWS = 16 }; /* the queries of peaked have 8 values only */
  for (int s = 0; s < SYNTHETIC; s++) {
    data_request r = {2, 2, 2, ROWS, ROWS, 8, 8, ATTN_F32, 7};
    data_qkv a = source_make(synthetic[s], &r);
    r.seed = 8;
    data_qkv b = source_make(synthetic[s], &r);
    const bool lookup = strcmp(synthetic[s], "hopfield") == 0;
    const void *block[24];
    for (int i = 0; i < 4; i++) {
      const void *six[] = {a.q, a.k, a.v, b.q, b.k, b.v};
      for (int t = 0; t < 6; t++) block[6 * i + t] = source_row(six[t], ROWS, 8, i, 0);
    }
    for (int i = 0; i < 24; i++)
      for (int j = 0; j < i; j++) {
        const bool same = lookup && i % 3 == 2 && j == i - 1; /* keys are the values */
        cr_assert((memcmp(block[i], block[j], ROWS * 32) == 0) == same, "%s: %d %d", synthetic[s], i, j);
      }
  }
}

Test(data_sources, a_shorter_request_is_the_beginning_of_a_longer_one) {
  for (int s = 0; s < SYNTHETIC; s++) {
    if (!strncmp(synthetic[s], "needle", 6)) continue; /* its targets wrap at n_kv */
    data_request longer = source_request(2, 1, 20, 8), shorter = source_request(2, 1, 6, 8);
    data_qkv a = source_make(synthetic[s], &longer), b = source_make(synthetic[s], &shorter);
    for (int h = 0; h < 2; h++)
      cr_assert_arr_eq(source_row(b.q, 6, 8, h, 0), source_row(a.q, 20, 8, h, 0), 6 * 8 * 4, "%s",
                       synthetic[s]);
    cr_assert_arr_eq(b.k, a.k, 6 * 8 * 4, "%s", synthetic[s]);
    cr_assert_arr_eq(b.v, a.v, 6 * 8 * 4, "%s", synthetic[s]);
  }
}

/* The first queries then stand before all keys. */
Test(data_sources, more_queries_than_keys_are_drawn_too) {
  for (int s = 0; s < SYNTHETIC; s++) {
    const data_request r = {2, 4, 2, 19, 5, 8, 8, ATTN_F32, 7};
    data_qkv m = source_make(synthetic[s], &r);
    assert_ok(data_qkv_check_finite(&m));
    for (int64_t i = 1; i < 2 * 4 * 19; i++) {
      double square = 0;
      for (int64_t l = 0; l < 8; l++) square += pow((double)((float *)m.q)[i * 8 + l], 2);
      cr_assert(square > 0, "%s: query %d is zero", synthetic[s], (int)i);
    }
  }
}

/* Mean and variance of count normal numbers of standard deviation std, each within five of their standard
 * errors. */
static void check_normal(const void *at, int64_t count, double std) {
  double sum = 0, square = 0, n = (double)count;
  for (int64_t i = 0; i < count; i++) {
    double x = (double)((const float *)at)[i] / std;
    sum += x;
    square += x * x;
  }
  cr_assert(fabs(sum / n) <= 5 / sqrt(n), "mean %g", sum / n);
  cr_assert(fabs(square / n - 1) <= 5 * sqrt(2 / n), "variance %g", square / n);
}

Test(data_sources, gaussian_has_the_standard_deviations_asked_for) {
  const data_request r = source_request(2, 2, 1024, 32);
  data_qkv m = source_make("gaussian:std_q=3,std_k=0.5,std_v=2", &r);
  check_normal(m.q, 65536, 3);
  check_normal(m.k, 65536, 0.5);
  check_normal(m.v, 65536, 2);
}

Test(data_sources, clustered_rows_stand_at_common_centres) {
  /* Without spread a row is its centre: queries and keys together have 3 different rows, up to the factor
   * 2. */
  const data_request r = source_request(2, 1, 64, 8);
  data_qkv m = source_make("clustered:clusters=3,spread=0,std=2", &r);
  const float *centre[4];
  int count = 0, seen[3] = {0};
  for (int i = 0; i < 192; i++) {
    const float *x = i < 64 ? source_row(m.k, 64, 8, 0, i) : source_row(m.q, 64, 8, 0, i - 64);
    int c = 0;
    while (c < count && memcmp(centre[c], x, 32) != 0) c++;
    cr_assert(c < 3, "a fourth centre");
    if (c == count) centre[count++] = x;
    seen[c]++;
  }
  cr_assert_eq(count, 3);
  /* 192 uniform draws over 3: five deviations of a binomial round 64. */
  for (int c = 0; c < 3; c++) cr_assert(abs(seen[c] - 64) <= 5 * 6.54);
}

Test(data_sources, lowrank_rows_span_a_subspace) {
  enum { N = 40, D = 16, RANK = 5 };
  const data_request r = source_request(1, 1, N, D);
  data_qkv m = source_make("lowrank:rank=5", &r);
  gsl_matrix *a = gsl_matrix_alloc(2 * N, D), *v = gsl_matrix_alloc(D, D);
  gsl_vector *s = gsl_vector_alloc(D), *work = gsl_vector_alloc(D);
  double norm = 0;
  for (int i = 0; i < 2 * N; i++)
    for (int j = 0; j < D; j++) {
      double x = (double)(i < N ? source_row(m.q, N, D, 0, i) : source_row(m.k, N, D, 0, i - N))[j];
      gsl_matrix_set(a, (size_t)i, (size_t)j, x);
      norm += x * x;
    }
  /* Entries have mean square 1: chi-square of 2N RANK numbers, scaled; five deviations. */
  cr_assert(fabs(norm / (2 * N * D) - 1) <= 5 * sqrt(2.0 / (2 * N * RANK)));
  cr_assert_eq(gsl_linalg_SV_decomp(a, v, s, work), 0);
  /* Weyl: rounding to f32 moves a singular value by at most 2^-24 times the Frobenius norm; twice that for
   * the SVD. */
  cr_assert(gsl_vector_get(s, RANK) <= 0x1p-23 * sqrt(norm), "%g", gsl_vector_get(s, RANK));
  cr_assert(gsl_vector_get(s, RANK - 1) > 0.1 * gsl_vector_get(s, 0));
  gsl_matrix_free(a);
  gsl_matrix_free(v);
  gsl_vector_free(s);
  gsl_vector_free(work);
}

Test(data_sources, heavytailed_has_the_quartiles_of_student_t) {
  /* |t| has median 1 for Cauchy, sqrt(2/3) for 2 degrees and 0.764892 for 3; a count of N within five
   * deviations. */
  static const struct {
    char spec[40];
    double median;
  } cases[] = {
      {"heavytailed:dof=1", 1}, {"heavytailed:dof=2,scale=1", 0.81649658}, {"heavytailed:dof=3", 0.76489233}};
  const data_request r = source_request(1, 1, 1024, 32);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    data_qkv m = source_make(cases[c].spec, &r);
    double below = 0;
    for (int i = 0; i < 32768; i++) below += fabs((double)((float *)m.k)[i]) < cases[c].median;
    cr_assert(fabs(below - 16384) <= 5 * sqrt(32768 * 0.25), "%s: %g", cases[c].spec, below);
    check_normal(m.v, 32768, 1);
  }
  data_qkv m = source_make("heavytailed:dof=1e6,scale=2", &r);
  check_normal(m.q, 32768, 2); /* all but normal: the variance is 1 + 2e-6 */
}

Test(data_sources, the_needle_is_where_it_should_be_with_the_score_asked_for) {
  enum { HEADS = 4, D = 64, N_Q = 100, N_KV = 130, DISTANCE = 17 };
  for (int wide = 0; wide < 2; wide++) {
    const data_request r = {1, HEADS, 2, N_Q, N_KV, D, D, wide ? ATTN_F64 : ATTN_F32, 3};
    data_qkv m = {0};
    assert_ok(data_source_make("needle:distance=17,strength=12", &r, &m, NULL));
    assert_ok(data_qkv_convert(&m, ATTN_F32)); /* exact: every draw is an f32 */
    for (int h = 0; h < HEADS; h++)
      for (int i = 0; i < N_Q; i++) {
        int best = 0, target = (i + N_KV - N_Q - DISTANCE + N_KV) % N_KV;
        const float *q = source_row(m.q, N_Q, D, h, i);
        for (int j = 1; j < N_KV; j++)
          if (source_dot(q, source_row(m.k, N_KV, D, h / 2, j), D) >
              source_dot(q, source_row(m.k, N_KV, D, h / 2, best), D))
            best = j;
        cr_assert_eq(best, target);
        /* Rounding q to f32 moves the score by at most 2^-24 |q||k| / sqrt(d). */
        const float *k = source_row(m.k, N_KV, D, h / 2, target);
        cr_assert(fabs(source_dot(q, k, D) / 8 - 12) <=
                  0x1p-23 * sqrt(source_dot(q, q, D) * source_dot(k, k, D)) / 8);
      }
    data_qkv_free(&m);
  }
}

/* Generators mean numbers, whatever their parameters, also of one channel and few keys. */
Test(data_sources, extreme_parameters_give_finite_numbers) {
  static const char *const specs[] = {"needle:distance=0,strength=-12",
                                      "needle:distance=1,strength=-1e4,std=1e6",
                                      "needle:distance=1,gap=1e4,std=1e6",
                                      "heavytailed:dof=1,scale=1e6",
                                      "gaussian:std_q=1e6,std_k=1e6",
                                      "peaked:std=1e6",
                                      "outlier:factor=1e6",
                                      "hopfield:beta=1e6,noise=1e6",
                                      "gat:std=1e6",
                                      "rope:theta=1e12,std=1e6"};
  static const int64_t widths[] = {1, 2, 8, 17}, lengths[] = {2, 40, 131};
  int made = 0;
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int w = 0; w < 4; w++)
      for (int l = 0; l < 3; l++) {
        const data_request r = {1, 2, 1, lengths[l], lengths[(l + 1) % 3], widths[w], widths[w], ATTN_F32, 5};
        data_qkv x = {0};
        const attn_status status = data_source_make(specs[s], &r, &x, NULL);
        if (status == ATTN_EUNSUPPORTED) continue;
        assert_ok(status);
        cr_expect_eq(data_qkv_check_finite(&x), ATTN_OK, "%s, d = %d, n = %d: %s", specs[s], (int)widths[w],
                     (int)lengths[l], attn_last_error());
        data_qkv_free(&x);
        made++;
      }
  cr_expect(made > 60, "%d", made);
}

Test(data_sources, rotated_constant_content_gives_scores_of_the_distance) {
  enum { N = 48, D = 16 };
  data_request r = source_request(1, 1, N, D);
  data_qkv m = source_make("rope:content=constant", &r);
  const float *q = m.q, *k = m.k;
  /* Rounding of both rows to f32. */
  double tolerance = 2 * 0x1p-23 * sqrt(source_dot(q, q, D) * source_dot(k, k, D));
  for (int i = 0; i < N; i++) {
    cr_assert(fabs(source_dot(q + i * D, q + i * D, D) - source_dot(q, q, D)) <=
              0x1p-22 * source_dot(q, q, D));
    for (int j = 0; j < N; j++) {
      int a = i > j ? i - j : 0, b = i > j ? 0 : j - i;
      cr_assert(fabs(source_dot(q + i * D, k + j * D, D) - source_dot(q + a * D, k + b * D, D)) <= tolerance);
    }
  }
  /* Scores do depend on the distance. */
  cr_assert(fabs(source_dot(q + 9 * D, k, D) - source_dot(q, k, D)) > 1e3 * tolerance);
  /* Fewer queries stand at the end. */
  r.n_q = 5;
  data_qkv cross = source_make("rope:content=constant", &r);
  cr_assert_arr_eq(cross.q, q + (N - 5) * D, 5 * D * 4);
}

Test(data_sources, the_sinusoidal_encoding_is_that_of_the_paper) {
  enum { N = 300, D = 8 };
  const data_request r = source_request(1, 1, N, D);
  data_qkv m = source_make("rope:position=sinusoidal,std=0,theta=100", &r);
  for (int p = 0; p < N; p++)
    for (int i = 0; i < D / 2; i++) {
      double angle = p / pow(100, 2.0 * i / D);
      const float *x = source_row(m.k, N, D, 0, p);
      /* Half an ulp of a number up to 1, and an angle good to 2^-52 of 300. */
      cr_assert(fabs((double)x[2 * i] - sin(angle)) <= 0x1p-24 &&
                fabs((double)x[2 * i + 1] - cos(angle)) <= 0x1p-24);
    }
}

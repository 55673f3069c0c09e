/* toeplitz.c - features with a bias of the distance, against the quadratic sum in fp64: tables of heads and
 * of all, ALiBi, padding, heads that share keys, queries behind a prompt, blocks and transforms. */
#include "tests/support/core.h"

#include <math.h>
#include <stdlib.h>

enum { N = 70, D = 6, D_V = 5, SPAN = 41, ZERO = 17 };

static double elu(double x) { return x > 0 ? x + 1 : exp(x); }

/* T5's and ALiBi's: any numbers, the ends of the table for all distances beyond it. */
static double table[4 * SPAN];
static attn_score biased(int64_t heads) {
  for (int64_t at = 0; at < heads * SPAN; at++) table[at] = sin(1.7 * (double)at) - 0.1;
  return (attn_score){.relative = table, .relative_heads = heads, .span = SPAN, .zero = ZERO};
}

static double bias(const attn_problem *p, int64_t head, int64_t distance, double slope) {
  const int64_t at = distance + ZERO < 0 ? 0 : distance + ZERO >= SPAN ? SPAN - 1 : distance + ZERO;
  if (!p->score.relative) return -slope * fabs((double)distance);
  return p->score.relative[(p->score.relative_heads > 1 ? head : 0) * SPAN + at];
}

/* Component l of row i; *most: what rounding is relative to: norms of features, of all keys, at the largest
 * factor, which transforms mix. A row that sees no key is 0. */
static double quadratic(const inputs *in, int64_t b, int64_t h, int64_t i, int64_t l, double slope,
                        double *most) {
  const attn_problem *p = &in->problem;
  const int64_t position = i + p->n_kv - p->n_q, kv_head = h / (p->heads / p->kv_heads);
  double above = 0, below = 0, q_square = 0, norms = 0;
  for (int64_t c = 0; c < D; c++) q_square += pow(elu(inputs_get(in, TENSOR_Q, b, h, i, c)), 2);
  for (int64_t j = 0; j < inputs_keys(in, b); j++) {
    double product = 0, square = 0;
    for (int64_t c = 0; c < D; c++) {
      const double k = elu(inputs_get(in, TENSOR_K, b, kv_head, j, c));
      product += elu(inputs_get(in, TENSOR_Q, b, h, i, c)) * k;
      square += k * k;
    }
    norms += sqrt(square);
    if (p->causal && j > position) continue;
    const double w = exp(bias(p, h, position - j, slope)) * product;
    above += w * inputs_get(in, TENSOR_V, b, kv_head, j, l);
    below += w;
  }
  *most = below > 0 ? sqrt(q_square) * norms * exp(1) / below : 0;
  return below > 0 ? above / below : 0;
}

static void compare(const char *spec, const inputs *in, double slope) {
  const attn_problem *p = &in->problem;
  attn_plan *plan = plan_kept(p, spec, NULL);
  void *o = kept_memory(run_plain(plan, in));
  for (int64_t x = 0; x < p->batch * p->heads * p->n_q * D_V; x++) {
    const int64_t l = x % D_V, i = x / D_V % p->n_q, h = x / D_V / p->n_q % p->heads,
                  b = x / D_V / p->n_q / p->heads;
    double most, values = 0;
    for (int64_t j = 0; j < p->n_kv; j++)
      values = fmax(values, fabs(inputs_get(in, TENSOR_V, b, h / (p->heads / p->kv_heads), j, l)));
    const double want = quadratic(in, b, h, i, l, slope, &most), got = output_get(p, o, b, h, i, l);
    /* Features, products and the quotient in the type; transforms of up to 2 N in fp64, of four levels. */
    const double tolerance = 2 * values *
                             ((2 * D + D + 64) * attn_numbers[p->dtype].unit +
                              4 * (10 * log2(2 * N) + 4 + 2 * N) * 0x1p-53 * most);
    if (!(fabs(got - want) <= tolerance))
      note_failure("%s%s: batch %d head %d row %d: %.9g, not %.9g", spec, p->causal ? " causal" : "", (int)b,
                   (int)h, (int)i, got, want);
  }
}

Test(variants_toeplitz, outputs_are_quadratic_sums) {
  for (int causal = 0; causal < 2; causal++)
    for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++)
      for (int64_t n_q = 1; n_q <= N; n_q += n_q == 1 ? 32 : 37)
        for (int64_t heads = 0; heads <= 4; heads += heads ? 3 : 1) {
          inputs in = inputs_shaped((case_shape){3, 4, 2, n_q, N, D, D_V, causal, true}, dtype, 7, 1);
          if (heads) in.problem.score = biased(heads);
          compare(heads ? "toeplitz:block=8" : "toeplitz:block=8,slope=0.05", &in, 0.05);
          compare(heads ? "toeplitz" : "toeplitz:slope=0.05", &in, 0.05);
          inputs_free(&in);
        }
}

/* ALiBi's slopes are those of its table, and a table of zeros leaves linear. */
Test(variants_toeplitz, slopes_are_alibis_and_zeros_are_linear) {
  static double zero[1], alibi[6 * (2 * N - 1)];
  cr_assert_eq(attn_alibi(6, N, alibi), ATTN_OK);
  attn_problem p = shape_problem((case_shape){1, 6, 6, N, N, D, D_V, true, false}, ATTN_F64), q = p;
  q.score = (attn_score){.relative = alibi, .relative_heads = 6, .span = 2 * N - 1, .zero = N - 1};
  inputs in = inputs_make(&p, false, 3, 1);
  const struct {
    attn_problem problem;
    const char *spec;
  } sides[2][2] = {{{p, "toeplitz:block=16"}, {q, "toeplitz:block=16"}},
                   {{p, "toeplitz:block=16"}, {p, "linear"}}};
  for (int pair = 0; pair < 2; pair++) {
    void *o[2];
    for (int side = 0; side < 2; side++) {
      attn_problem x = sides[pair][side].problem;
      if (pair == 1 && side == 0) x.score = (attn_score){.relative = zero, .relative_heads = 1, .span = 1};
      attn_plan *plan = plan_made(&x, sides[pair][side].spec, NULL);
      o[side] = run_plain(plan, &in);
      attn_plan_destroy(plan);
    }
    for (int64_t at = 0; at < 6 * N * D_V; at++) {
      const double a = attn_get(o[0], at, ATTN_F64), b = attn_get(o[1], at, ATTN_F64);
      if (!(fabs(a - b) <= (pair ? 1e-12 : 0))) note_failure("%d: %.17g, not %.17g", pair, a, b);
    }
    free(o[0]), free(o[1]);
  }
}

/* Queries see no further than one position, and the keys of the second half have no features, or short ones:
 * there a transform, of 144 numbers, leaves its rounding to divide by, and three keys as much as its bound
 * times 0.9 or 1.1. The last row has two. */
Test(variants_toeplitz, a_denominator_of_rounding_is_nan) {
  static const double near[] = {-800, 0, 0, 0, -800}, times[] = {[2] = 0.9, [3] = 1.1};
  const double f = 1.1 * 0x1p-53 * (10 * log2(144) + 4),
               bound = D * f * (2 * 3 * sqrt(N / 2) + sqrt(3) * N / 2);
  for (int k = 0; k < 4; k++) {
    const attn_dtype t = k < 2 ? ATTN_F32 : ATTN_F64;
    inputs in = inputs_shaped((case_shape){1, 1, 1, N, N, D, D_V, k == 1, false}, t, 5, 1);
    in.problem.score = (attn_score){.relative = near, .relative_heads = 1, .span = 5, .zero = 2};
    for (int64_t at = 0; at < N * D; at++) {
      const double early = k < 2 ? 1 + (double)(at % 7) : 1, late = k < 2 ? -1 : times[k] * bound / (3 * D);
      attn_set(in.q, at, t, 1);
      attn_set(in.k, at, t, at < N / 2 * D ? early : late);
    }
    void *o = run_spec("toeplitz:feature=relu,block=8", NULL, &in);
    cr_assert_not_null(o);
    for (int64_t i = 0; i < N; i++)
      for (int64_t l = 0; l < D_V && i != N / 2; l++)
        cr_expect_eq(isnan(output_get(&in.problem, o, 0, 0, i, l)) != 0, i > N / 2 && (k < 3 || i == N - 1));
    free(o);
    inputs_free(&in);
  }
}

Test(variants_toeplitz, what_it_cannot_is_refused) {
  attn_problem p = shape_problem((case_shape){1, 2, 2, N, N, D, D_V, false, false}, ATTN_F32), soft = p,
               with = p;
  soft.score.softcap = 3;
  with.score = biased(2);
  expect_no_plan(&soft, "toeplitz", ATTN_EUNSUPPORTED, "a soft cap of the scores");
  expect_no_plan(&p, "toeplitz:feature=exp", ATTN_EINVAL, "its sums are unbounded");
  expect_no_plan(&p, "toeplitz:rows=3", ATTN_EINVAL, "no weights are given");
  expect_no_plan(&with, "toeplitz:slope=0.5", ATTN_EINVAL, "the problem has a bias of the distance");
  expect_no_plan(&with, "linear", ATTN_EUNSUPPORTED, "a bias of the distance is not supported");
}

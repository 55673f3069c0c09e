/* normaliser.c - weights of other functions than softmax against those of sorted scores, where thresholds are
 * hard to find: long rows, scores that halve, large ones, ties; and what is refused. */
#include "tests/support/core.h"

enum { LONG = 5000 };

/* sparsemax (power 1) or entmax with 1.5 (2) by their definition: of the k largest z = s / power, descending,
 * the threshold at which their weights sum to 1, for the largest k whose k-th is above it. */
static void weigh_sorted(int power, int64_t n, const long double *z, double *w) {
  long double sum = 0, squares = 0, tau = 0;
  for (int64_t k = 1; k <= n; k++) {
    sum += z[k - 1];
    squares += z[k - 1] * z[k - 1];
    const long double mean = sum / k, spread = squares - k * mean * mean;
    const long double next = power == 1 ? (sum - 1) / k : mean - sqrtl((1 - spread) / k);
    if ((power == 2 && spread > 1) || !(z[k - 1] > next)) break;
    tau = next;
  }
  for (int64_t j = 0; j < n; j++) {
    const long double d = z[j] > tau ? z[j] - tau : 0;
    w[j] = (double)(power == 1 ? d : d * d);
  }
}

/* The weights of one query for scores: values are 1 for a key at a time, and for all. */
static void expect_weights(const char *spec, int power, int64_t n, const double *scores, const double *want) {
  attn_problem p = attn_problem_make(1, 1, n, 1);
  p.n_q = 1;
  p.d_v = 8;
  p.scale = 1;
  p.dtype = ATTN_F64;
  inputs in = inputs_make(&p, false, 1, 1);
  attn_plan *plan = plan_kept(&p, spec, NULL);
  inputs_set(&in, TENSOR_Q, 0, 0, 0, 0, power);
  for (int64_t j = 0; j < n; j++) {
    inputs_set(&in, TENSOR_K, 0, 0, j, 0, scores[j] / power);
    for (int64_t l = 0; l < 8; l++) inputs_set(&in, TENSOR_V, 0, 0, j, l, l == 7 || j == l * l);
  }
  void *o = kept_memory(run_plain(plan, &in));
  for (int64_t l = 0; l < 7 && l * l < n; l++) {
    const double w = output_get(&p, o, 0, 0, 0, l), slack = (double)(4 * n + 64) * 0x1p-53;
    if (!(fabs(w - want[l * l]) <= slack))
      note_failure("%s of %d: weight %d is %.17g, not %.17g", spec, (int)n, (int)(l * l), w, want[l * l]);
  }
  const double sum = output_get(&p, o, 0, 0, 0, 7);
  if (!(fabs(sum - 1) <= (double)(8 * n + 128) * 0x1p-53))
    note_failure("%s of %d: weights sum to %.17g", spec, (int)n, sum);
}

static const char *const sparse[] = {"normaliser:kind=sparsemax", "normaliser:kind=entmax15"};

/* Descending scores: near each other, of all sizes, halving, rising by powers, alike. */
Test(variants_normaliser, weights_are_those_of_sorted_scores) {
  static double scores[LONG], want[LONG];
  static long double z[LONG];
  for (int power = 1; power <= 2; power++)
    for (int64_t n = 1; n <= LONG; n = n < 8 ? n + 1 : n == 8 ? 333 : n == 333 ? LONG : LONG + 1)
      for (int shape = 0; shape < 5; shape++) {
        const double at[] = {1e-3, 0.3, 2, 20, 0};
        for (int64_t j = 0; j < n; j++) {
          const double x = (double)j / (double)n;
          scores[j] = shape == 2   ? ldexp(2, -(int)(j < 60 ? j : 60)) - 2
                      : shape == 3 ? -pow(x, 8) * at[shape]
                                   : -at[shape] * x;
          z[j] = (long double)scores[j] / power;
        }
        weigh_sorted(power, n, z, want);
        expect_weights(sparse[power - 1], power, n, scores, want);
      }
}

/* Beyond what a double tells apart of the largest, the largest alone, or ties, have all. */
Test(variants_normaliser, large_scores_and_ties) {
  static const double sizes[] = {1e30, 1e100, 1e-30};
  for (int power = 1; power <= 2; power++)
    for (size_t x = 0; x < sizeof sizes / sizeof *sizes; x++) {
      const double scores[] = {sizes[x], sizes[x], -sizes[x], 0, -1e3, -sizes[x]};
      const double want[] = {0.5, 0.5, 0, 0, 0, 0}, alike[] = {0.2, 0.2, 0.2, 0.2, 0, 0.2};
      expect_weights(sparse[power - 1], power, 6, scores, sizes[x] > 1 ? want : alike);
    }
}

/* The sum of the weights of 3 keys of scores 0, 1 and -2, each of value 1. */
static double sum_of(const char *spec, bool causal) {
  attn_problem p = attn_problem_make(1, 1, 3, 1);
  p.scale = 1;
  p.causal = causal;
  p.dtype = ATTN_F64;
  inputs in = inputs_make(&p, false, 1, 1);
  for (int64_t j = 0; j < 3; j++) {
    inputs_set(&in, TENSOR_Q, 0, 0, j, 0, 1);
    inputs_set(&in, TENSOR_K, 0, 0, j, 0, j < 2 ? (double)j : -2);
    inputs_set(&in, TENSOR_V, 0, 0, j, 0, 1);
  }
  void *o = kept_memory(run_spec(spec, NULL, &in));
  cr_assert_not_null(o);
  const double sum = output_get(&p, o, 0, 0, 1, 0);
  return sum;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

Test(variants_normaliser, weights_that_need_not_sum_to_one) {
  const struct {
    const char *spec;
    bool causal;
    double sum;
  } cases[] = {{"normaliser", false, sigmoid(-log(3)) + sigmoid(1 - log(3)) + sigmoid(-2 - log(3))},
               {"normaliser", true, sigmoid(-log(2)) + sigmoid(1 - log(2))},
               {"normaliser:by=one,bias=0.5", true, sigmoid(0.5) + sigmoid(1.5)},
               {"normaliser:kind=relu", false, 1.0 / 3},
               {"normaliser:kind=relu", true, 0.5},
               {"normaliser:kind=relu,power=3,by=one", true, 1}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const double sum = sum_of(cases[c].spec, cases[c].causal);
    if (!(fabs(sum - cases[c].sum) <= 1e-15))
      note_failure("%s%s: %.17g, not %.17g", cases[c].spec, cases[c].causal ? " causal" : "", sum,
                   cases[c].sum);
  }
}

/* Row i of forget for gates [heads, n], summed from the query back, in long double. */
static double forgets(const inputs *in, const double *g, int64_t h, int64_t i, int64_t l) {
  const attn_problem *p = &in->problem;
  const int64_t kv_head = h / (p->heads / p->kv_heads);
  long double gates = 0, above = 0, below = 0;
  for (int64_t j = i; j >= 0; j--) {
    long double s = 0;
    for (int64_t c = 0; c < p->d_qk; c++)
      s += (long double)(inputs_get(in, TENSOR_Q, 0, h, i, c) * inputs_get(in, TENSOR_K, 0, kv_head, j, c));
    const long double w = expl((long double)p->scale * s + gates);
    above += w * (long double)inputs_get(in, TENSOR_V, 0, kv_head, j, l);
    below += w;
    gates += (long double)g[h * p->n_kv + j];
  }
  return (double)(above / below);
}

/* Gates near 1, of e^-40 a key, that forget all, and mixed. Scores of 8 products are off by less than 1e-6 in
 * fp32. */
Test(variants_normaliser, gates_dim_keys_whatever_they_sum_to) {
  enum { N = 90, HEADS = 4, D_V = 3 };
  static double g[HEADS * N], o[HEADS * N * D_V];
  for (int64_t at = 0; at < HEADS * N; at++) {
    const double of[HEADS] = {-1e-3, -40, at % 9 ? -0.1 : -1e30, at % 2 ? -40 : -0.01};
    g[at] = of[at / N];
  }
  for (attn_dtype t = ATTN_F32; t <= ATTN_F64; t++) {
    inputs in = inputs_shaped((case_shape){1, HEADS, 2, N, N, 8, D_V, true, false}, t, 2, 1);
    attn_plan *plan = plan_made(&in.problem, "forget", NULL);
    attn_extra decay = {"decay", ATTN_F64, g, 1, HEADS, N, 1};
    const attn_tensors x = {.q = in.q, .k = in.k, .v = in.v, .o = o, .extra = &decay, .extras = 1};
    EXPECT_STATUS(run_tensors(plan, x), ATTN_OK);
    for (int64_t at = 0; at < HEADS * N * D_V; at++) {
      const double got = attn_get(o, at, t), want = forgets(&in, g, at / D_V / N, at / D_V % N, at % D_V);
      if (!(fabs(got - want) <= (t == ATTN_F64 ? 1e-14 : 1e-5)))
        note_failure("head %d row %d: %.9g, not %.9g", (int)(at / D_V / N), (int)(at / D_V % N), got, want);
    }
    g[7] = -g[7];
    EXPECT_STATUS(run_tensors(plan, x), ATTN_EINVAL);
    g[7] = -g[7];
    decay.columns = 8;
    decay.heads = 1;
    decay.at = in.q; /* of 8 columns, whatever they are */
    decay.dtype = t;
    EXPECT_STATUS(run_tensors(plan, x), ATTN_EINVAL);
    attn_plan_destroy(plan);
    inputs_free(&in);
  }
}

Test(variants_normaliser, what_it_cannot_is_refused) {
  attn_problem p = attn_problem_make(1, 2, 9, 4), sink = p;
  static const double none[2] = {0, 0};
  sink.score.sink = none;
  expect_no_plan(&sink, "normaliser", ATTN_EUNSUPPORTED, "no sink is added to its sums");
  expect_no_plan(&p, "normaliser:power=0", ATTN_EINVAL, "power");
  expect_no_plan(&p, "forget", ATTN_EUNSUPPORTED, "only causal attention");
  expect_no_plan(&p, "normaliser:kind=entmax", ATTN_EINVAL, "kind");
  expect_no_plan(&p, "normaliser + topk:k=2", ATTN_EUNSUPPORTED, "normaliser");
}

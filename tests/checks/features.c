/* features.c - the Performer checks: draws, hull bound, eps mixing. */
#include "tests/support/checks_fake.h"

static attn_problem shape(bool causal, attn_dtype type) {
  return case_problem(1, 2, 2, 150, 16, 9, causal, type);
}

static const char *const specs[] = {"performer:features=48",
                                    "performer:features=40,norm=sqrt_d",
                                    "performer:features=9,share_heads=no",
                                    "performer:features=40,kernel=hyperbolic,eps=1e-4",
                                    "performer:features=48,eps=1e-2",
                                    "performer:features=48,kernel=relu",
                                    "performer:features=48,kernel=trig",
                                    "performer:features=40,orthogonal=no"};

Test(checks_features, correct_performers_pass) {
  static const char *const names[] = {"FAV-3", "FAV-5", "FAV-6"};
  /* c consistent (lengths are random), p pass, n not applicable */
  static const char want[][4] = {"cpp", "cpp", "cpp", "cpp", "cpp", "cnp", "cnp", "cpp"};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int causal = 0; causal < 2; causal++)
      for (int type = 0; type < 2; type++) {
        run_case *c = case_make(shape(causal, type ? ATTN_F64 : ATTN_F32), 0.7, 100);
        c->kv_len[0] = 131;
        case_run(c, specs[s], type ? c->kv_len : NULL);
        expect_verdict(&c->e, "FP-6", VERDICT_PASS, specs[s]);
        for (size_t i = 0; i < 3; i++)
          expect_verdict(&c->e, names[i],
                         want[s][i] == 'p'   ? VERDICT_PASS
                         : want[s][i] == 'c' ? VERDICT_CONSISTENT
                                             : VERDICT_NOT_APPLICABLE,
                         specs[s]);
        case_free(c);
      }
}

/* The one check that sees the run's output: it rejects the nulls, and an error of a few thousand
 * roundings. */
Test(checks_features, wrong_outputs_fail) {
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int wrong = 0; wrong < 4; wrong++) {
      run_case *c = case_gaussian(specs[s], shape(false, ATTN_F32), 0.7);
      if (wrong == 0) null_zeros(c);
      if (wrong == 1) null_mean(c);
      if (wrong == 2) null_random(c, 48);
      for (int64_t i = 0; wrong == 3 && i < case_count_o(&c->problem); i++)
        case_set(c, c->o, i, case_get(c, c->o, i) + 0.1);
      expect_verdict(&c->e, "FP-6", VERDICT_VIOLATED, specs[s]);
      case_free(c);
    }
}

/* The bound is neither vacuous nor just attained. */
Test(checks_features, the_rounding_bound_is_small) {
  run_case *c = case_gaussian("performer:features=256", attn_problem_make(1, 2, 512, 64), 0.5);
  result_bound b = case_check(&c->e, "FP-6");
  cr_expect(b.verdict == VERDICT_PASS && b.value < 2e-3 && b.measured > 0 && b.margin < 0.1);
  case_free(c);
}

/* Features of one sign or not, orders of magnitude apart, long rows: the bound holds on hostile inputs. */
Test(checks_features, hostile_inputs_stay_inside) {
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (double std = 0.001; std < 20; std *= 5)
      for (int causal = 0; causal < 2; causal++) {
        attn_problem p = shape(causal, ATTN_F32);
        p.n_kv = 700;
        run_case *c = case_gaussian(specs[s], p, std);
        result_bound b = case_check(&c->e, "FP-6");
        cr_expect(b.verdict == VERDICT_PASS || (b.verdict == VERDICT_UNCERTIFIABLE && std > 0.2),
                  "%s %g: %g %g %s", specs[s], std, b.measured, b.value, b.message);
        case_free(c);
      }
}

/* Inputs at the ends of the range of fp32: nothing is violated, whatever overflows, underflows or is NaN. */
Test(checks_features, ends_of_the_range) {
  static const char *const others[] = {"performer:features=12",
                                       "performer:features=12,kernel=hyperbolic",
                                       "performer:features=12,kernel=trig",
                                       "performer:features=12,kernel=relu",
                                       "performer:features=12,eps=1e-6",
                                       "linformer:k=8,projection=pool"};
  static const char *const names[] = {"FAV-4a", "FAV-5", "FAV-6", "FAV-9", "FAV-10", "FP-6"};
  static const double sizes[] = {0, 1e-30, 1, 1e15, 1e37}, v_sizes[] = {1e-42, 1, 1e37};
  for (size_t s = 0; s < 6; s++)
    for (int i = 0; i < 5; i++)
      for (int values = 0; values < 3; values++) {
        run_case *c = case_make(case_problem(1, 1, 1, 20, 3, 3, s % 2 == 0, ATTN_F32), sizes[i], 100);
        for (int64_t l = 0; l < case_count_v(&c->problem); l++)
          case_set(c, c->v, l, case_get(c, c->v, l) * v_sizes[values]);
        case_run(c, others[s], NULL);
        for (int n = s < 5 ? 0 : 5; n < 6; n++) {
          result_bound b = case_check(&c->e, names[n]);
          cr_expect(b.verdict != VERDICT_VIOLATED && b.verdict != VERDICT_ERROR &&
                        !(b.kind == KIND_PROB && b.p_value < 1e-4),
                    "%s, queries %g, values %g, %s: verdict %d, p %g, %g of %g %s", others[s], sizes[i],
                    v_sizes[values], names[n], (int)b.verdict, b.p_value, b.measured, b.value, b.message);
        }
        case_free(c);
      }
}

Test(checks_features, others_have_no_features) {
  run_case *c = case_gaussian("tiled", shape(false, ATTN_F32), 1);
  expect_verdict(&c->e, "FAV-3", VERDICT_NOT_APPLICABLE, "tiled");
  expect_verdict(&c->e, "FAV-5", VERDICT_NOT_APPLICABLE, "tiled");
  expect_verdict(&c->e, "FAV-6", VERDICT_NOT_APPLICABLE, "tiled");
  case_free(c);
}

/* Over seeds the p-value of the lengths is not small: it is an upper bound of a uniform variable. */
Test(checks_features, lengths_of_real_draws_are_not_rejected) {
  double least = 1;
  for (int seed = 0; seed < 10; seed++) {
    char spec[64];
    snprintf(spec, sizeof spec, "performer:features=64,seed=%d", seed);
    run_case *c = case_gaussian(spec, attn_problem_make(1, 1, 20, 16), 0.5);
    result_bound b = case_check(&c->e, "FAV-3");
    cr_expect_eq(b.verdict, VERDICT_CONSISTENT);
    least = fmin(least, b.p_value);
    case_free(c);
  }
  cr_expect_gt(least, 1e-4); /* 10 draws: fails by chance less than once in 1000 */
}

/* -- a fake with positive features on other vectors -- */

enum { M = 48, D = 16 };
static double vectors[M * D];

static void fake_map(const void *state, const attn_context *c, const attn_feature_rows *given, void *f_,
                     int64_t f_row, double *scale) {
  const double *x = given->x;
  const int64_t rows = given->rows, stride = given->stride;
  double *f = f_, root = sqrt(c->problem->scale);
  (void)state;
  for (int64_t i = 0; i < rows; i++) {
    double square = 0;
    scale[i] = -(double)INFINITY;
    for (int64_t l = 0; l < D; l++) square += x[i * stride + l] * x[i * stride + l];
    for (int64_t r = 0; r < M; r++) {
      double t = 0;
      for (int64_t l = 0; l < D; l++) t += root * vectors[r * D + l] * x[i * stride + l];
      f[i * f_row + r] = t;
      scale[i] = fmax(scale[i], t);
    }
    for (int64_t r = 0; r < M; r++) f[i * f_row + r] = exp(f[i * f_row + r] - scale[i]);
    scale[i] -= c->problem->scale * square / 2;
  }
}

static attn_feature_map fake_features = {
    .columns = M,
    .map = fake_map,
    .law = {.kind = ATTN_FEATURES_POSITIVE, .vectors = M, .orthogonal = true, .softmax = true}};

/* Orthogonal blocks by Gram and Schmidt. */
static void draw_vectors(void) {
  attn_rng rng;
  attn_rng_init(&rng, 3, 3, 3);
  for (int64_t r = 0; r < M; r++) {
    double *w = vectors + r * D;
    for (int64_t l = 0; l < D; l++) w[l] = attn_rng_normal(&rng);
    for (int64_t s = r / D * D; s < r; s++) {
      double *other = vectors + s * D, dot = 0, square = 0;
      for (int64_t l = 0; l < D; l++) dot += w[l] * other[l], square += other[l] * other[l];
      for (int64_t l = 0; l < D; l++) w[l] -= dot / square * other[l];
    }
  }
}

/* The features' own quadratic form, which a correct engine computes. */
static double estimate(const attn_call *c, int64_t i, int64_t j, double eps) {
  const attn_problem *p = c->context->problem;
  double q[D], k[D], fq[M], fk[M], sq, sk, sum = 0, top = -(double)INFINITY;
  attn_problem wide = *p;
  attn_context context = {.problem = &wide};
  for (int64_t l = 0; l < D; l++) {
    q[l] = fake_element(p, c->q, i * D + l);
    k[l] = fake_element(p, c->k, j * D + l);
  }
  fake_map(NULL, &context, &(attn_feature_rows){0, ATTN_QUERY, q, D, 0, 1}, fq, M, &sq);
  fake_map(NULL, &context, &(attn_feature_rows){0, ATTN_KEY, k, D, 0, 1}, fk, M, &sk);
  for (int64_t t = 0; t < p->n_kv && eps > 0; t++) {
    double other[D], f[M], scale;
    for (int64_t l = 0; l < D; l++) other[l] = fake_element(p, c->k, t * D + l);
    fake_map(NULL, &context, &(attn_feature_rows){0, ATTN_KEY, other, D, 0, 1}, f, M, &scale);
    top = fmax(top, scale);
  }
  for (int64_t r = 0; r < M; r++) sum += (fq[r] + eps) * (fk[r] * exp(eps > 0 ? sk - top : sk) + eps);
  return sum;
}

static double engine_eps, engine_tilt;
static void (*engine_null)(double *w, int64_t n);

static void engine_execute(const attn_call *c) {
  const attn_problem *p = c->context->problem;
  double *w = malloc((size_t)p->n_kv * sizeof *w);
  for (int64_t i = 0; i < p->batch * p->heads * p->n_q; i++) {
    double total = 0;
    for (int64_t j = 0; j < p->n_kv; j++)
      w[j] = p->dtype == ATTN_F64 ? estimate(c, i, j, engine_eps) * (1 + engine_tilt * (double)(j == 7)) : 1;
    if (engine_null) engine_null(w, p->n_kv);
    for (int64_t j = 0; j < p->n_kv; j++) total += w[j];
    for (int64_t l = 0; l < p->d_v; l++) {
      double o = 0;
      for (int64_t j = 0; j < p->n_kv; j++) o += w[j] * fake_element(p, c->v, j * p->d_v + l);
      if (p->dtype == ATTN_F64)
        ((double *)c->o)[i * p->d_v + l] = total != 0 ? o / total : 0;
      else
        ((float *)c->o)[i * p->d_v + l] = (float)o;
    }
  }
  free(w);
}

static void all_zeros(double *w, int64_t n) { memset(w, 0, (size_t)n * sizeof *w); }

static void all_equal(double *w, int64_t n) {
  for (int64_t j = 0; j < n; j++) w[j] = 1;
}

static void some_random(double *w, int64_t n) {
  for (int64_t j = 0; j < n; j++) w[j] *= random_key(0, j);
}

/* Run in fp32 first (its output is not looked at), then by the probe in fp64. */
static run_case *engine_case(double std) {
  fake_reset(NULL);
  draw_vectors();
  fake.execute = engine_execute;
  fake.view.features = &fake_features;
  attn_problem p = attn_problem_make(1, 1, 60, D);
  p.d_v = 5;
  return case_gaussian("fake", p, std);
}

static void expect_engine(double std, check_verdict hull, check_verdict mixing, const char *what) {
  run_case *c = engine_case(std);
  expect_verdict(&c->e, "FAV-5", hull, what);
  expect_verdict(&c->e, "FAV-6", mixing, what);
  case_free(c);
}

Test(checks_features, identities_hold_and_perturbed_weights_fail) {
  engine_tilt = engine_eps = 0;
  engine_null = NULL;
  expect_engine(0.7, VERDICT_PASS, VERDICT_PASS, "correct");
  engine_tilt = 1e-6;
  expect_engine(0.7, VERDICT_PASS, VERDICT_VIOLATED, "one weight tilted");
}

/* The mixing identity to fp64 accuracy, with an eps that matters. */
Test(checks_features, eps_mixes_as_stated) {
  for (double eps = 1e-6; eps < 1; eps *= 10) {
    engine_tilt = 0;
    engine_null = NULL;
    engine_eps = fake_features.eps = eps;
    run_case *c = engine_case(0.7);
    result_bound b = case_check(&c->e, "FAV-6");
    cr_expect_eq(b.verdict, VERDICT_PASS, "%g: %g %g", eps, b.measured, b.value);
    cr_expect(strncmp(b.message, "lambda up to ", 13) == 0 && atof(b.message + 13) > 0);
    case_free(c);
    engine_eps = 1.01 * eps; /* another eps than the view says */
    c = engine_case(0.7);
    expect_verdict(&c->e, "FAV-6", VERDICT_VIOLATED, "eps");
    case_free(c);
  }
  fake_features.eps = 0;
}

/* On Gaussian inputs FAV-6 rejects the nulls, and FAV-5 is blind to them. */
Test(checks_features, nulls_on_gaussian_inputs) {
  void (*const nulls[])(double *, int64_t) = {all_zeros, all_equal, some_random};
  engine_tilt = engine_eps = 0;
  for (int null = 0; null < 3; null++) {
    engine_null = nulls[null];
    expect_engine(1, VERDICT_PASS, VERDICT_VIOLATED, "Gaussian");
  }
}

/* With many features FAV-5 rejects the nulls too. */
static void judge_hull(const evidence *e, int null) {
  expect_verdict(e, "FAV-5", null ? VERDICT_VIOLATED : VERDICT_PASS, "two kinds of keys");
}

Test(checks_features, nulls_on_two_kinds_of_keys) {
  fake_two_kinds("performer:features=32768", attn_problem_make(1, 1, 64, 4), 1, 1.4, 0, judge_hull);
}

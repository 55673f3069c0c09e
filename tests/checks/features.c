/* features.c - the Performer checks: draws, hull bound, eps mixing, rounding. */
#include "tests/support/checks_case.h"

#include "experiments/evidence/support_row.h"

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
  static const char *const names[] = {"FP-6", "FAV-3", "FAV-5", "FAV-6"};
  /* c consistent (lengths are random), p pass, n not applicable */
  static const char want[][5] = {"pcpp", "pcpp", "pcpp", "pcpp", "pcpp", "pcnp", "pcnp", "pcpp"};
  const int64_t keys = 131;
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int causal = 0; causal < 2; causal++)
      for (int type = 0; type < 2; type++) {
        run_case *c =
            case_lengths(specs[s], shape(causal, type ? ATTN_F64 : ATTN_F32), 0.7, type ? &keys : NULL);
        for (size_t i = 0; i < 4; i++)
          expect_verdict(&c->e, names[i],
                         want[s][i] == 'p'   ? VERDICT_PASS
                         : want[s][i] == 'c' ? VERDICT_CONSISTENT
                                             : VERDICT_NOT_APPLICABLE,
                         specs[s]);
        /* The one check that sees the run's output rejects an error of a few thousand roundings. */
        for (int64_t i = 0; i < case_count_o(&c->problem); i++)
          case_set(c, c->o, i, case_get(c, c->o, i) + 0.1);
        expect_verdict(&c->e, "FP-6", VERDICT_VIOLATED, specs[s]);
        case_free(c);
      }
}

/* Of few features, which the map gives. */
Test(checks_features, the_hull_bound_is_that_of_its_formula) {
  enum { N = 20, D = 4, QUERIES = 8, FEATURES = 6 };
  attn_problem p = case_problem(1, 1, 1, N, D, 3, false, ATTN_F64);
  double q[QUERIES * FEATURES], k[N * FEATURES], scale[QUERIES], k_scale[N], logs[QUERIES * N];
  p.n_q = QUERIES;
  run_case *c = case_gaussian("performer:features=6,eps=0", p, 1);
  const attn_feature_map *map = c->view.features;
  map->map(map->state, attn_plan_context(c->plan), &(attn_feature_rows){0, ATTN_QUERY, c->q, D, 0, QUERIES},
           q, FEATURES, scale);
  map->map(map->state, attn_plan_context(c->plan), &(attn_feature_rows){0, ATTN_KEY, c->k, D, 0, N}, k,
           FEATURES, k_scale);
  for (int i = 0; i < QUERIES * N; i++) {
    double product = 0;
    for (int r = 0; r < FEATURES; r++) product += q[i / N * FEATURES + r] * k[i % N * FEATURES + r];
    logs[i] = log(product) + k_scale[i % N];
  }
  const double margin = case_hull_margin(c, logs);
  cr_expect_float_eq(case_check(&c->e, "FAV-5").margin, margin, 1e-9, "%.12g", margin);
}

/* Values of 1, and queries, keys and random vectors of one length each: a weight of positive features is off
 * by the same share of itself whichever it is, and so is the denominator. */
Test(checks_features, the_bound_on_rounding_is_that_of_its_formula) {
  static const char *const positive[] = {"performer:features=24,norm=sqrt_d",
                                         "performer:features=24,norm=sqrt_d,kernel=hyperbolic",
                                         "performer:features=24,norm=sqrt_d,kernel=optimal,z=8"};
  enum { N = 30, D = 16 };
  const double u = 0x1p-24, length[] = {5, 2};
  for (size_t s = 0; s < sizeof positive / sizeof *positive; s++) {
    run_case *c = case_make(attn_problem_make(1, 1, N, D), 1, 100);
    double off[2];
    for (int64_t i = 0; i < N * D; i++) case_set(c, c->v, i, 1);
    for (int side = 0; side < 2; side++)
      for (int64_t i = 0; i < N * D; i += D) {
        void *x = side ? c->k : c->q;
        double norm = 0;
        for (int64_t l = 0; l < D; l++) norm = hypot(norm, case_get(c, x, i + l));
        for (int64_t l = 0; l < D; l++) case_set(c, x, i + l, case_get(c, x, i + l) * length[side] / norm);
      }
    case_run(c, positive[s], NULL);
    const attn_feature_map *map = c->view.features;
    const double sums = gamma_of(2 * N + map->columns + 64, u), of_norms = fabs(map->law.a) * D;
    for (int side = 0; side < 2; side++) {
      const double product = length[side] * sqrt(1 - 4 * map->law.a) * 2 + of_norms, /* |w|^2 / sqrt(D) = 4 */
          eta = gamma_of(D + 2, u) * product + 6 * u * (1 - log(0x1p-126));
      off[side] = eta + eta * eta;
    }
    const double all = off[0] + off[1] + off[0] * off[1] + sums * (1 + off[0]) * (1 + off[1]),
                 value = case_check(&c->e, "FP-6").value;
    cr_expect(fabs(value / (2 * all / (1 - all)) - 1) < 1e-4, "%s: %.9g, not %.9g", positive[s], value,
              2 * all / (1 - all));
    case_free(c);
  }
}

/* Features of one sign or not, orders of magnitude apart, long rows: the bound holds on hostile inputs. */
Test(checks_features, hostile_inputs_stay_inside) {
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (double std = 0.001; std < 20; std *= 5)
      for (int causal = 0; causal < 2; causal++) {
        attn_problem p = shape(causal, ATTN_F32);
        p.n_kv = 700;
        const result_bound b = case_judge(specs[s], p, std, "FP-6");
        cr_expect(b.verdict == VERDICT_PASS || (b.verdict == VERDICT_UNCERTIFIABLE && std > 0.2),
                  "%s %g: %g %g %s", specs[s], std, b.measured, b.value, b.message);
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

/* What would need more features of all keys than are held is uncertifiable. */
Test(checks_features, too_many_are_not_held) {
  static const char *const names[] = {"FP-6", "FAV-5", "FAV-6", "PROP-HULL", "PROP-PERM"};
  attn_problem p = case_problem(1, 1, 1, 1024, 4, 4, false, ATTN_F32);
  p.n_q = 2;
  run_case *c = case_gaussian("performer:features=16384", p, 1);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const result_bound b = case_check(&c->e, names[i]);
    cr_expect(b.verdict == VERDICT_UNCERTIFIABLE && strstr(b.message, "exceed 2^24 numbers"), "%s: %s",
              names[i], b.message);
  }
}

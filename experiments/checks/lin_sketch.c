/* lin_sketch.c - LIN-1 and LIN-2: the error of a random projection on a product of weights and values.
 *
 * LIN-1 projects the same few rows of weights and columns of values by DRAWS fresh projections of the variant
 * and by as many of the law (mathematics/drawn_projection.h): under the law their squared errors are two
 * samples of one distribution, of exact mean, and the test of Kolmogorov and Smirnov for two samples has
 * exact p-values, for errors that are too large as for those that are too small. LIN-2 looks at the
 * projection of the run. Neither looks at an output. */
#include "experiments/checks/check_table.h"

#include "experiments/checks/lin_matrix.h"
#include "experiments/evidence/moments.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/drawn_projection.h"
#include "experiments/mathematics/statistics.h"
#include "experiments/mathematics/vector.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>

static const double alpha = 1e-3;

enum { DRAWS = 64, ROWS = 4, SLOTS = 16, PURPOSE = 0x11171 };
static const int64_t entries_max = INT64_C(1) << 18; /* of a fresh projection */

/* Fresh projections, and the product that they estimate. */
typedef struct trial {
  const evidence *e;
  attn_problem problem;     /* n_kv keys of width ROWS */
  int64_t slots, resized;   /* resized: the budget that gives `slots` slots, or 0 */
  double *weights, *values; /* [ROWS, n], [n, ROWS] */
  double *columns;          /* [n, ROWS] the weights as keys are projected */
  double *room;             /* [2 slots, n] */
  sketch s;
} trial;

/* A plan with another seed. EUNSUPPORTED: not of the law and slots of the trial. */
static attn_status fresh_projection(const trial *t, int64_t seed, projector *out) {
  const attn_view *view = t->e->view;
  attn_spec *seeded = NULL, *spec = NULL;
  *out = (projector){.plan = NULL};
  attn_status status = attn_spec_with_seed(attn_plan_parsed_spec(t->e->plan), view->seed, seed, &seeded);
  if (!status && t->resized) status = attn_spec_with_int(seeded, view->budget.parameter, t->resized, &spec);
  if (!status) status = projector_make(t->e, spec ? spec : seeded, &t->problem, out);
  if (!status &&
      (out->view.projection->slots != t->slots || out->view.projection->law != view->projection->law))
    status = attn_fail(ATTN_EUNSUPPORTED, "no fresh projection of the same law and size");
  attn_spec_destroy(seeded);
  attn_spec_destroy(spec);
  return status;
}

/* Few slots of few keys, where the budget's parameter buys slots and leaves the law. */
static void trial_size(trial *t) {
  const attn_view *view = t->e->view;
  projector p;
  t->problem = *t->e->problem;
  t->problem.batch = t->problem.heads = t->problem.kv_heads = t->problem.n_q = 1;
  t->problem.d_qk = t->problem.d_v = ROWS;
  t->slots = SLOTS;
  t->problem.n_kv = 3 * SLOTS;
  if (view->budget.parameter && view->projection->slots > SLOTS) {
    t->resized = view->budget.value ? view->budget.value(attn_plan_context(t->e->plan), SLOTS) : SLOTS;
    attn_status status = t->resized ? fresh_projection(t, 0, &p) : ATTN_EUNSUPPORTED;
    if (t->resized) projector_free(&p);
    if (!status) return;
  }
  t->resized = 0;
  t->slots = view->projection->slots;
  t->problem.n_kv = 3 * SLOTS > t->slots + t->slots / 2 ? 3 * SLOTS : t->slots + t->slots / 2;
}

static attn_status trial_fill(trial *t) {
  int64_t n = t->problem.n_kv;
  attn_rng rng;
  attn_rng_init(&rng, t->e->seed, PURPOSE, 0);
  region *memory = t->e->memory;
  t->weights = region_take(memory, ROWS * n, sizeof(double));
  t->values = region_take(memory, ROWS * n, sizeof(double));
  t->columns = region_take(memory, ROWS * n, sizeof(double));
  t->room = region_take(memory, 2 * t->slots * n, sizeof(double));
  t->s = (sketch){.law = t->e->view->projection->law,
                  .shared = t->e->view->projection->shared,
                  .rows = ROWS,
                  .n = n,
                  .keys = n,
                  .d_v = ROWS,
                  .v = t->values,
                  .product = region_zeros(memory, ROWS * ROWS, sizeof(double))};
  if (region_status(memory, "for a product of weights and values")) return ATTN_ENOMEM;
  for (int64_t i = 0; i < ROWS * n; i++) t->values[i] = attn_rng_normal(&rng);
  for (int64_t r = 0; r < ROWS; r++) {
    double sum = 0, *a = t->weights + r * n;
    for (int64_t j = 0; j < n; j++) sum += a[j] = exp(attn_rng_normal(&rng));
    t->s.a[r] = a;
    for (int64_t j = 0; j < n; j++) {
      t->columns[j * ROWS + r] = a[j] /= sum;
      for (int64_t l = 0; l < ROWS; l++) t->s.product[r * ROWS + l] += a[j] * t->values[j * ROWS + l];
    }
  }
  return sketch_measure(&t->s);
}

/* |A E^T F B - A B|^2 of projected weights and values, [slots, ROWS] each. */
static double square_error(const trial *t, const double *ea, const double *fv) {
  double sum = 0;
  for (int64_t r = 0; r < ROWS; r++)
    for (int64_t l = 0; l < ROWS; l++) {
      double x = -t->s.product[r * ROWS + l];
      for (int64_t s = 0; s < t->slots; s++) x += ea[s * ROWS + r] * fv[s * ROWS + l];
      sum += x * x;
    }
  return sum;
}

static void project_by(const double *e, int64_t slots, int64_t n, const double *x, double *y) {
  for (int64_t s = 0; s < slots; s++)
    for (int64_t l = 0; l < ROWS; l++) {
      y[s * ROWS + l] = 0;
      for (int64_t j = 0; j < n; j++) y[s * ROWS + l] += e[s * n + j] * x[j * ROWS + l];
    }
}

/* Errors of the variant's draws and of the law's. */
static attn_status trial_draw(const trial *t, double *own, double *law) {
  int64_t n = t->problem.n_kv, used, size = t->slots * ROWS, first = evidence_seed(t->e);
  double *ea = region_take(t->e->memory, 2 * size, sizeof *ea), *fv = ea + size;
  attn_rng seeds, rng;
  attn_rng_init(&seeds, (uint64_t)first, PURPOSE, t->e->seed);
  attn_rng_init(&rng, t->e->seed, PURPOSE, 1 + (uint64_t)first);
  attn_status status = region_status(t->e->memory, "for projected weights");
  for (int64_t i = 0; i < DRAWS && !status; i++) {
    projector p;
    status = fresh_projection(t, attn_rng_below(&seeds, INT64_C(1000000000000000)), &p);
    if (!status) status = projector_apply(&p, 0, ATTN_KEY, t->columns, n, ROWS, false, ea, &used);
    if (!status) status = projector_apply(&p, 0, ATTN_VALUE, t->values, n, ROWS, false, fv, &used);
    if (!status) own[i] = square_error(t, ea, fv);
    projector_free(&p);
    if (status) break;
    double *e = t->room, *f = t->s.shared ? e : e + t->slots * n;
    drawn_sample(t->s.law, t->slots, n, &rng, e);
    if (f != e) drawn_sample(t->s.law, t->slots, n, &rng, f);
    project_by(e, t->slots, n, t->columns, ea);
    project_by(f, t->slots, n, t->values, fv);
    law[i] = square_error(t, ea, fv);
  }
  return status;
}

static attn_status mean_evaluate(const evidence *e, result_bound *bound) {
  const char *why = sketch_missing(e->view->projection);
  if (!why && !e->view->seed) why = "the variant names no seed: there are no fresh draws";
  if (why) return bound_not_applicable(bound, why);
  trial t = {.e = e};
  double own[DRAWS], law[DRAWS], mean = 0;
  trial_size(&t);
  if (t.slots > entries_max / t.problem.n_kv)
    return bound_uncertifiable(bound, "more than 2^18 entries of each fresh projection");
  attn_status status = trial_fill(&t);
  if (!status) status = trial_draw(&t, own, law);
  for (int i = 0; i < DRAWS && !status; i++) mean += own[i] / DRAWS;
  if (!status) bound_prob(bound, mean, sketch_mean(&t.s, (double)t.slots), samples_p_value(own, law, DRAWS));
  if (status != ATTN_EUNSUPPORTED) return status;
  return bound_uncertifiable(bound, attn_last_error());
}

/* P(| |Ru|^2 / |u|^2 - 1 | >= t) of a Gaussian R of k rows, for u = a + b and u = a - b: 4 a.b = |a+b|^2 -
 * |a-b|^2, and |a+b|^2 + |a-b|^2 = 4 for unit a and b, so that |aR'Rb - a.b| >= t needs one of them. */
static double product_tail(int64_t k, double t) {
  double n = (double)k, above = gsl_cdf_chisq_Q(n * (1 + t), n);
  return 2 * (above + (t < 1 ? gsl_cdf_chisq_P(n * (1 - t), n) : 0));
}

static void products_judge(const sketch *s, int64_t k, const double *error, result_bound *bound) {
  double worst = 0, count = (double)(s->rows * s->d_v);
  for (int64_t r = 0; r < s->rows; r++) {
    double a = 0;
    for (int64_t i = 0; i < s->n; i++) a += s->a[r][i] * s->a[r][i];
    for (int64_t l = 0; l < s->d_v; l++) {
      double b = 0;
      for (int64_t i = 0; i < s->n; i++) b += s->v[i * s->d_v + l] * s->v[i * s->d_v + l];
      double off = fabs(error[r * s->d_v + l]) / sqrt(a * b);
      if (!(off <= worst) && a * b > 0) worst = off;
    }
  }
  double low = 0, high = 64;
  for (int step = 0; step < 60; step++) {
    double t = (low + high) / 2;
    if (count * product_tail(k, t) > alpha)
      low = t;
    else
      high = t;
  }
  bound_prob(bound, worst, high, isnan(worst) ? 0 : fmin(1, count * product_tail(k, worst)));
}

static attn_status products_evaluate(const evidence *e, result_bound *bound) {
  sketch s;
  const char *why = sketch_missing(e->view->projection);
  if (!why && (e->view->projection->law != ATTN_PROJECTION_GAUSSIAN || !e->view->projection->shared))
    why = "no Gaussian projection that keys and values share";
  if (why) return bound_not_applicable(bound, why);
  probe *p;
  attn_status status = probe_get(e, &p);
  if (status) return status;
  if (!p->head.finite) return bound_uncertifiable(bound, row_reason(ROW_INFINITE));
  if ((status = sketch_of_run(e, p, &s))) return status;
  double *error = region_take(e->memory, s.rows * s.d_v, sizeof *error);
  status = region_status(e->memory, "for the errors of a sketch");
  if (!status) status = projected_error(p, &s, error);
  if (!status) products_judge(&s, p->view.projection->slots, error, bound);
  sketch_free(&s);
  return status;
}

const check check_lin1 = {
    .name = "LIN-1",
    .of = &of_projections,
    .kind = KIND_PROB,
    .statement = "over fresh draws the squared error of the projected product has the distribution, and so "
                 "the exact mean, of its law",
    .source = "derived: Isserlis, sign pairings, finite-population variance; Gnedenko and Korolyuk 1951",
    .formula =
        "For weights A and values B, E and F of k rows, X = sum_i |A_:i|^2 |B_i:|^2, the mean of |A E' F B - "
        "A B|^2 is: F = E gaussian: (|A|^2 |B|^2 + |AB|^2) / k; rademacher: less 2X / k; srht of order N: "
        "(N-k) / (k (N-1)) times (|A|^2 |B|^2 + |AB|^2 - 2X); dct: (n-k) / (k (n-1)) (n tau - |AB|^2), tau = "
        "sum over rows a of A and columns b of B of a2' G b2 + 2 (ab)' G (ab) - 2 sum_i G_ii a_i^2 b_i^2, "
        "elementwise, G_ij = (n-1)/n^2 + ([i=j] + [j=n-1-i]) / 2n. E and F apart: gaussian and rademacher "
        "|AB|^2 + |A|^2 |B|^2 / k; srht and dct |AB|^2 + (|A|^2 |B|^2 + (k-1) sum_i |A_:i|^2 g_i sum_i "
        "|B_i:|^2 g_i) / k, g_i = ((sum_r T_ri)^2 - 1) / (order - 1) of the transform T. measured: the mean "
        "of 64 fresh draws, value: the exact one. p: two-sided, of the largest distance between the "
        "distributions of these errors and of 64 of the law itself.",
    .assumes = "A random projection whose law is known (gaussian, rademacher, srht, dct), and a seed. On a "
               "product of the check's own: of 16 slots where a parameter buys them.",
    .nulls =
        CHECK_BLIND("the projected product is computed from the projection itself; no output is looked at"),
    .evaluate = mean_evaluate,
};

const check check_lin2 = {
    .name = "LIN-2",
    .of = &of_projections,
    .kind = KIND_PROB,
    .statement = "no projected product of a row of weights and a column of values is further off than a "
                 "Gaussian projection of k rows allows",
    .source = "Johnson-Lindenstrauss by polarisation; Dasgupta and Gupta 2003 bound the same tail",
    .formula = "For one pair, |a R'R b - a.b| > t |a| |b| has probability at most 2 P(|chi^2_k / k - 1| > t) "
               "<= 4 exp(-k (t^2/4 - t^3/6)). measured = the largest over rows of exact weights and columns "
               "of V, value its limit at alpha = 1e-3, p = the number of pairs times the probability. "
               "Required: k >= ln(4 n d_v / alpha) / (t^2/4 - t^3/6) for all n rows. Linformer's own Lemma "
               "1, t |a.b| on the right, is false for a orthogonal to b.",
    .assumes = "A Gaussian projection that keys and values share; the product itself is projected, not the "
               "scores. Not causal.",
    .nulls =
        CHECK_BLIND("the projected product is computed from the projection itself; no output is looked at"),
    .evaluate = products_evaluate,
};

/* fav_uniform.c - FAV-7: trigonometric features, uniformly over the keys of a row.
 *
 * g^_j = (1/m) sum_r cos w_r.(x - y_j) is a mean of terms in [-1, 1] of mean g_j = exp(-|x - y_j|^2 / 2), and
 * A^_j - A_j = exp((|x|^2 + |y_j|^2) / 2) (g^_j - g_j). If all |g^_j - g_j| <= t then |o~ - o| <= t S_v / (D
 * - t S), S = sum_j exp((|x|^2 + |y_j|^2) / 2) and S_v the same sum of |v_j - o| times that; an error e of
 * the output therefore needs t >= e D / (S_v + e S). In fp64 on a probe. Zeros, the mean of V and random keys
 * are rejected where scores are small and features many. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/probe.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/feature_law.h"

#include <math.h>

#include "experiments/mathematics/vector.h"

static const double alpha = 1e-3;
enum { ROWS = 8 };

typedef struct uniform_row {
  double seen;            /* the largest |g^ - g|, and at least what the output's error needs */
  double share, distance; /* S / D, S_v / D */
  double keys;
  const char *why;
} uniform_row;

typedef struct uniform {
  const probe *p;
  feature_law law;
  uniform_row found[ROWS];
} uniform;

static void uniform_visit(void *context, int64_t place, int64_t r, row_space *s) {
  uniform *u = context;
  const probe *p = u->p;
  const attn_problem *x = &p->problem;
  uniform_row *out = &u->found[place];
  row_verdict verdict = probe_bound(p, &p->head, NULL, r, s);
  if (verdict != ROW_OK) {
    out->why = row_reason(verdict);
    return;
  }
  if (s->count == 0) return;
  double rounding = vector_norm(s->bound, x->d_v), sum = 0, top = -(double)INFINITY;
  if (attn_reference_row(x, NULL, p->q, p->k, p->v, p->e.kv_len, 0, 0, r, NULL, s->o, s->score) < 0) {
    out->why = row_reason(ROW_REFUSED);
    return;
  }
  for (int64_t a = 0; a < s->count; a++) {
    const double *k = p->head.k + s->index[a] * x->d_qk,
                 *f = p->features.key + s->index[a] * p->features.columns;
    double gap = x->scale * pow(vector_distance(s->q, k, x->d_qk), 2),
           estimate = vector_dot(p->features.query + r * p->features.columns, f, p->features.columns);
    s->score[a] = x->scale * vector_dot(s->q, k, x->d_qk);
    s->slack[a] = s->score[a] + gap / 2; /* (|x|^2 + |y|^2) / 2 */
    out->seen = fmax(out->seen, fabs(estimate / (double)u->law.m - exp(-gap / 2)));
    top = fmax(top, s->score[a]);
  }
  for (int64_t a = 0; a < s->count; a++) {
    const double *v = p->head.v + s->index[a] * x->d_v;
    double weight = exp(s->slack[a] - top);
    sum += exp(s->score[a] - top);
    out->share += weight;
    out->distance += weight * vector_distance(v, s->o, x->d_v);
  }
  out->share /= sum;
  out->distance /= sum;
  out->keys = (double)s->count;
  double error = vector_distance(s->given, s->o, x->d_v) - rounding;
  if (isnan(error)) error = (double)INFINITY;
  if (error > 0) out->seen = fmax(out->seen, isinf(error) ? 2 : error / (out->distance + error * out->share));
}

static attn_status uniform_evaluate(const evidence *e, result_bound *bound) {
  uniform u = {.p = NULL};
  const char *why = feature_law_of(e->view->features, e->problem->d_qk, &u.law);
  if (!why && u.law.constant) why = "vectors of length sqrt(d) are not Gaussian";
  if (why) return bound_not_applicable(bound, why);
  probe *p;
  attn_status status = probe_get(e, &p);
  if (!status) status = probe_map(p);
  if (status == ATTN_EUNSUPPORTED) return bound_uncertifiable(bound, attn_last_error());
  if (status) return status;
  int64_t n = p->problem.n_q, count = n < ROWS ? n : ROWS, rows[ROWS];
  for (int64_t r = 0; r < count; r++) rows[r] = (2 * r + 1) * n / (2 * count);
  u.p = p;
  status = probe_rows(p, rows, count, uniform_visit, &u);
  if (status) return status;
  double pairs = 0, seen = 0, certified = 0;
  for (int64_t r = 0; r < count; r++) {
    if (u.found[r].why) return bound_uncertifiable(bound, u.found[r].why);
    pairs += u.found[r].keys;
    seen = fmax(seen, u.found[r].seen);
  }
  if (pairs == 0) return bound_uncertifiable(bound, "no row that is looked at sees a key");
  double limit = sqrt(2 * log(2 * pairs / alpha) / u.law.blocks);
  for (int64_t r = 0; r < count; r++) {
    double left = 1 - limit * u.found[r].share;
    certified = fmax(certified, left > 0 ? limit * u.found[r].distance / left : (double)INFINITY);
  }
  bound_prob(bound, seen, limit, fmin(1, 2 * pairs * exp(-u.law.blocks * seen * seen / 2)));
  if (isfinite(certified))
    bound_say(bound, "certifies |o~ - o| <= %.3g", certified);
  else
    bound_say(bound, "certifies no output: the normaliser may vanish");
  return ATTN_OK;
}

const check check_fav7 = {
    .name = "FAV-7",
    .of = &of_trig_features,
    .kind = KIND_PROB,
    .statement = "trigonometric features estimate exp(-|x-y|^2/2) uniformly to sqrt(2 ln(2 N / alpha) / "
                 "m), and the output accordingly",
    .source =
        "derived: Hoeffding, for a theorem with unspecified constants (Choromanski et al. 2021, Theorem 4)",
    .formula = "P(max over N pairs |g^ - g| >= t) <= 2 N exp(-m t^2 / 2). Then |A^_j - A_j| <= a_j = "
               "exp((|x|^2 + |y_j|^2) / 2) t, and if sum_j a_j < D: |o~ - o| <= sum_j a_j |v_j - o| / (D - "
               "sum_j a_j). measured: the largest of |g^ - g| and of the t that the output's error needs, "
               "over up to 8 rows; value: t at alpha = 1e-3. Orthogonal blocks of s_b vectors: m^2 / sum "
               "s_b^2 in place of m. The message has the output's bound.",
    .assumes = "Vectors that are Gaussian one by one, a normaliser not lost to "
               "cancellation; in fp64 on a probe with the run's draws.",
    .nulls =
        CHECK_REJECTS_ALL("two kinds of keys told apart by their values, 4096 features, d = 4; blind where "
                          "|x|^2 is large, since the factors exp((|x|^2 + |y|^2) / 2) then are"),
    .evaluate = uniform_evaluate,
};

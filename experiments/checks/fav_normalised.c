/* fav_normalised.c - FAV-4b: rows of a run of Performer against the exact second moments of what they
 * average.
 *
 * With W_j, Y, D, rho and v^2 of pair_moments.h, and bars for means over the m random vectors, o~ - o = W/Y
 * (barred), where W has mean zero exactly. It runs in fp64 on a probe, for vectors that are Gaussian one by
 * one: m_i = `independent` of the law takes the place of m where blocks are orthogonal. Zeros and the mean of
 * V have W = Y (n - o) for a fixed n: they are rejected where m_i |n - o|^2 is far above v^2, and pass
 * elsewhere. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/moments.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdio.h>

static const double alpha = 1e-3;

/* Statistics of one row under the run's draws. */
typedef struct estimate {
  double error;    /* |o~ - o| beyond rounding */
  const char *why; /* nothing can be said */
} estimate;

typedef struct normalised {
  const probe *p;
  feature_law law;
  const moment_entry *moments;
  estimate found[MOMENT_ROWS];
} normalised;

static void estimate_row(void *context, int64_t place, int64_t r, row_space *s) {
  normalised *n = context;
  const attn_problem *x = &n->p->problem;
  estimate *out = &n->found[place];
  row_verdict verdict = probe_bound(n->p, &n->p->head, NULL, r, s);
  if (verdict != ROW_OK) {
    out->why = row_reason(verdict);
    return;
  }
  if (s->count == 0) return;
  if (attn_reference_row(x, NULL, n->p->q, n->p->k, n->p->v, n->p->e.kv_len, 0, 0, r, NULL, s->o, s->score) <
      0) {
    out->why = row_reason(ROW_REFUSED);
    return;
  }
  const double error = vector_distance(s->given, s->o, x->d_v);
  /* A NaN counts as an infinite error. */
  out->error = isnan(error) ? (double)INFINITY : fmax(0, error - vector_norm(s->bound, x->d_v));
}

/* False: the bound says why there is nothing to judge, or *status is an error. */
static bool prepare(const evidence *e, normalised *n, result_bound *bound, attn_status *status) {
  probe *p;
  *n = (normalised){.p = NULL};
  *status = ATTN_OK;
  const char *why = feature_law_of(e->view->features, e->problem->d_qk, &n->law);
  if (!why && !feature_law_is_favor(&n->law)) why = "no random features of the softmax kernel";
  if (why)
    bound_not_applicable(bound, why);
  else if (n->law.constant)
    bound_not_applicable(bound, "vectors of length sqrt(d) are not Gaussian: the features are biased");
  else if (e->view->features->eps > 0)
    bound_not_applicable(bound, "eps > 0 mixes in an average: FAV-6");
  else
    *status = probe_get(e, &p);
  if (bound->message[0] || *status) return false;
  *status = probe_map(p);
  if (!*status) *status = row_moments(e, p, &n->law, row_moments_work, &n->moments);
  if (*status == ATTN_EUNSUPPORTED) {
    bound_uncertifiable(bound, attn_last_error());
    *status = ATTN_OK;
    return false;
  }
  if (*status) return false;
  n->p = p;
  int64_t rows[MOMENT_ROWS] = {0};
  for (int64_t r = 0; r < n->moments->count; r++) rows[r] = n->moments->row[r];
  *status = probe_rows(p, rows, n->moments->count, estimate_row, n);
  for (int64_t r = 0; r < n->moments->count && !*status; r++) {
    const row_moment *at = &n->moments->rows[r];
    if (!n->found[r].why && !(isfinite(at->rho) && isfinite(at->spread)))
      n->found[r].why = "the second moment of the features overflows";
    if (n->found[r].why) {
      bound_uncertifiable(bound, n->found[r].why);
      return false;
    }
  }
  return !*status;
}

/* Y >= D / 2 except with probability moment_collapse, |W|^2 <= 2 D^2 v^2 / (m alpha) except with
 * probability alpha / 2, and |o~ - o| = |W| / Y <= 2 v sqrt(2 / (m alpha)). */

static attn_status error_bound_evaluate(const evidence *e, result_bound *bound) {
  normalised n;
  attn_status status;
  if (!prepare(e, &n, bound, &status)) return status;
  double rows = (double)n.moments->count, each = alpha / rows, least = 1;
  const row_moment *judged = &n.moments->rows[0], *worst = judged;
  int64_t place = 0;
  for (int64_t r = 0; r < n.moments->count; r++) {
    const row_moment *at = &n.moments->rows[r];
    if (at->rho > worst->rho) worst = at;
    double error = n.found[r].error;
    /* The smallest alpha at which the bound of this row fails. */
    double p = error > 0 ? 8 * fmax(at->spread, 0) / (n.law.independent * error * error) : 1;
    p = fmin(1, fmax(p, 2 * moment_collapse(&n.law, at)));
    if (r > 0 && p >= least) continue;
    least = p;
    judged = at;
    place = r;
  }
  if (moment_collapse(&n.law, worst) > each / 2) {
    char text[128];
    double rest = worst->rho - 1, x = 1 / (2 * rest), needed = 8 * rest / each;
    if (n.law.kind != ATTN_FEATURES_TRIG)
      needed = fmin(needed, log(2 / each) / (rest * ((1 + x) * log1p(x) - x)));
    snprintf(text, sizeof text,
             "rho up to %.3g: the normaliser may collapse; %.3g independent features would do", worst->rho,
             needed);
    return bound_uncertifiable(bound, text);
  }
  double value = 2 * sqrt(fmax(judged->spread, 0) * 2 / (n.law.independent * each));
  return bound_prob(bound, n.found[place].error, value, fmin(1, rows * least));
}

const check check_fav4b = {
    .name = "FAV-4b",
    .of = &of_random_features,
    .kind = KIND_PROB,
    .statement = "with probability 1 - alpha a row is within 2 v sqrt(2 / (m alpha)) of exact attention, if "
                 "there are enough features for its normaliser",
    .source = "derived: Markov on |W|^2; Bennett 1962 on the normaliser",
    .formula =
        "With V = (rho - 1) / M, rho = 1 + sum_ij p_i p_j (h(a_i, a_j) - 1), and b the largest share of a "
        "block (1/m if all are independent): P(Y < D/2) <= min(4 V, exp(-V/b^2 ((1+x) ln(1+x) - x))), x = "
        "b/(2V); for trig features 4 V. v^2, M, h and a as in FAV-4a, of the run; except with the "
        "probability of that and alpha / 2, |o~ - o| <= 2 v sqrt(2 / (M alpha)). value: the bound of the "
        "worst row at alpha = 1e-3 over all "
        "judged; p = the smallest alpha at which a row's bound fails, times rows.",
    .assumes = "Softmax features, eps = 0, vectors that are Gaussian one by one (iid, or norm=chi); up to "
               "some 4096 keys; in fp64 on a probe with the run's draws; enough features for alpha = 1e-3 "
               "over the rows judged, else uncertifiable, and the message says how many it asks for.",
    .nulls = CHECK_REJECTS_ALL(
        "two kinds of keys told apart by their values, 2^18 features, d = 4 (zeros, mean of V and random "
        "keys off by more than 250 v / sqrt(m)); blind wherever v / sqrt(m) is larger"),
    .evaluate = error_bound_evaluate,
};

/* fav_map.c - FAV-9: the feature map at the run's own queries and keys is what its law says.
 *
 * FAV-5, FAV-6 and FP-6 take the map's features as they are, and FAV-1 looks at points of |x+y|^2 <= 1; this
 * ties them to the definition. The vectors are read off the map near zero, where nothing overflows. It judges
 * the features and never sees an output: blind to zeros, the mean of V and random keys. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/feature_draws.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/feature_maps.h"
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>

enum { QUERIES = 8, KEYS = 62, TIMES = 3 };

typedef struct map_case {
  const probe *p;
  feature_law law;
  const double *w;
  double *x, *scaled, *f, *want, *error; /* [d] twice, [columns] thrice */
  outcome worst;
  double square; /* |x|^2 of the worst */
  int64_t points;
} map_case;

/* One point, a row of the run or a multiple of it. */
static void judge_point(map_case *c, attn_side side, const double *row, double times) {
  const probe *p = c->p;
  const attn_feature_map *map = p->view.features;
  int64_t d = c->law.d;
  double scale = 0;
  for (int64_t l = 0; l < d; l++) {
    c->x[l] = times * row[l];
    c->scaled[l] = sqrt(p->problem.scale) * c->x[l];
  }
  map->map(map->state, attn_plan_context(p->plan), &(attn_feature_rows){p->kv_head, side, c->x, d, 0, 1},
           c->f, map->columns, &scale);
  const bool known = isfinite(scale);
  /* Only a point that can be computed needs a scale. */
  if (!features_fill(&c->law, c->w, c->scaled, known ? scale : 0, c->want, c->error)) return;
  const outcome before = c->worst;
  outcome_worsen(&c->worst, known ? outcome_components(c->f, c->want, c->error, map->columns)
                                  : (outcome){(double)INFINITY, 0, NULL});
  if (c->points++ == 0 || c->worst.measured != before.measured || c->worst.value != before.value)
    c->square = vector_dot(c->scaled, c->scaled, d);
}

static void judge_row(map_case *c, attn_side side, const double *row) {
  judge_point(c, side, row, 1);
  judge_point(c, side, row, TIMES);
}

/* Queries and keys evenly spaced, and the shortest and the longest key. */
static void judge_rows(map_case *c) {
  const probe *p = c->p;
  int64_t d = c->law.d, n = p->problem.n_q, keys = p->head.keys, shortest = 0, longest = 0;
  int64_t rows = n < QUERIES ? n : QUERIES, some = keys < KEYS ? keys : KEYS;
  for (int64_t r = 0; r < rows; r++)
    judge_row(c, ATTN_QUERY, (const double *)p->q + (2 * r + 1) * n / (2 * rows) * d);
  for (int64_t r = 0; r < some; r++) judge_row(c, ATTN_KEY, p->head.k + (2 * r + 1) * keys / (2 * some) * d);
  for (int64_t j = 1; j < keys; j++) {
    double norm = vector_norm(p->head.k + j * d, d);
    if (norm < vector_norm(p->head.k + shortest * d, d)) shortest = j;
    if (norm > vector_norm(p->head.k + longest * d, d)) longest = j;
  }
  if (keys == 0) return;
  judge_row(c, ATTN_KEY, p->head.k + shortest * d);
  judge_row(c, ATTN_KEY, p->head.k + longest * d);
}

static attn_status map_judge(const map_case *c, result_bound *bound) {
  if (c->points == 0)
    return bound_uncertifiable(bound, "products w.x are too large for their rounding to be small");
  outcome_to_verdict(&c->worst, bound);
  bound_say(bound, "worst at |x|^2 = %.3g, of %lld points", c->square, (long long)c->points);
  return ATTN_OK;
}

static attn_status map_evaluate(const evidence *e, result_bound *bound) {
  probe *p;
  map_case c = {.square = 0};
  const char *why = feature_law_of(e->view->features, e->problem->d_qk, &c.law);
  if (!why && c.law.kind == ATTN_FEATURES_OTHER) why = "random vectors cannot be read off these features";
  if (why) return bound_not_applicable(bound, why);
  attn_status status = probe_get(e, &p);
  if (status) return status;
  if (!p->head.finite) return bound_uncertifiable(bound, row_reason(ROW_INFINITE));
  draws w = {.m = c.law.m, .d = c.law.d};
  const int64_t columns = p->view.features->columns, d = c.law.d;
  c.p = p;
  c.x = region_take(e->memory, 2 * d, sizeof *c.x);
  c.f = region_take(e->memory, 3 * columns, sizeof *c.f);
  status = region_status(e->memory, "for features");
  if (!status) status = draws_read(p, &c.law, &w);
  if (!status) {
    c.w = w.w;
    c.scaled = c.x + d;
    c.want = c.f + columns;
    c.error = c.want + columns;
    judge_rows(&c);
    map_judge(&c, bound);
  }
  free(w.w);
  return status == ATTN_EUNSUPPORTED ? bound_uncertifiable(bound, attn_last_error()) : status;
}

const check check_fav9 = {
    .name = "FAV-9",
    .of = &of_random_features,
    .kind = KIND_HARD,
    .statement =
        "the features of the run's queries and keys are those that the law names, of the vectors drawn",
    .source = "definition of the features (Choromanski et al. 2021, Lemma 1; Cho and Saul 2009)",
    .formula =
        "|f_c - e^(-scale) phi_c(x)| <= rounding for every column c, phi(x) = exp(+-w.x - |x|^2/2) "
        "(positive, hyperbolic), (1-4a)^(d/4) exp(a |w|^2 + sqrt(1-4a) w.x - |x|^2/2) (positive with weights "
        "of a), exp(|x|^2/2) cos w.x and sin w.x (trig), max(w.x, 0) (relu), x = "
        "sqrt(c) q or sqrt(c) k and three times that, w as the map shows it at +-a e_l: a factor, a norm "
        "term or an exponential that is wrong at the run's |x|, whatever the draw. Up to 8 queries and 64 "
        "keys, the shortest and the longest among them; what rounding may do is gamma of d + 8 terms in "
        "w.x and |x|^2/2, and 2^-46 (1 + |w|) in each component of w.",
    .assumes = "Vectors can be read off the feature map; in fp64 on a probe with the run's draws, which FP-6 "
               "compares with the run. Points whose products exceed some 1e10 say nothing.",
    .nulls = CHECK_BLIND("the features are the map's; no output is looked at"),
    .evaluate = map_evaluate,
};

/* draws.c - fresh draws are made in parallel over plans.
 *
 * Vectors are read off the feature map, at +-a e_l in fp64: positive features are exp(scale) f = exp(w.x -
 * |x|^2/2), so w_l = (ln phi(a e_l) - ln phi(-a e_l)) / 2a; cosine and sine give the angle; rectified
 * features their difference. */
#include "experiments/evidence/draws.h"

#include "experiments/mathematics/statistics.h"
#include "experiments/support/spec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double read_component(attn_features_kind kind, const double *f, double scale, const double *g,
                             double other, int64_t m, double a) {
  if (kind == ATTN_FEATURES_TRIG) return atan2(f[m], f[0]) / a;
  if (kind == ATTN_FEATURES_RELU) return (f[0] - g[0]) / a;
  return (log(f[0]) + scale - log(g[0]) - other) / (2 * a);
}

attn_status draws_read(const probe *p, attn_features_kind kind, draws *out) {
  const attn_feature_map *map = p->view.features;
  const attn_context *c = attn_plan_context(p->plan);
  int64_t d = out->d, m = out->m, columns = map->columns;
  /* A quarter of the scale of the keys' own units: angles stay far below pi, exponentials near 1. */
  double a = 0.25 / sqrt(p->problem.scale);
  double *f = malloc((size_t)(2 * columns) * sizeof *f), *x = calloc((size_t)(2 * d), sizeof *x), scale[2];
  attn_status status = ATTN_OK;
  out->w = malloc((size_t)(m * d) * sizeof *out->w);
  if (!f || !x || !out->w) {
    status = attn_fail(ATTN_ENOMEM, "no memory for the random vectors of a feature map");
    goto out;
  }
  for (int64_t l = 0; l < d; l++) {
    x[l] = a;
    x[d + l] = -a;
    map->map(map->state, c, p->kv_head, ATTN_KEY, x, d, 2, f, columns, scale);
    x[l] = x[d + l] = 0;
    for (int64_t r = 0; r < m; r++)
      out->w[r * d + l] =
          read_component(kind, f + r, scale[0], f + columns + r, scale[1], m, a * sqrt(p->problem.scale));
  }
out:
  free(f);
  free(x);
  return status;
}

static const double work = 0x1p28; /* multiply-adds of all draws */
enum { WIDTH_MAX = 128, GROUP_MAX = 64, PURPOSE = 0x6e4e };

void fresh_draws_free(fresh_draws *g) {
  if (!g) return;
  free(g->w);
  for (int i = 0; i < FRESH_POINTS; i++) free(g->product[i]);
  free(g);
}

/* The spec of the probe's plan with so many vectors, drawn by another seed. */
static attn_status fresh_spec(const probe *from, int64_t vectors, int64_t seed, char **spec) {
  const attn_view *view = &from->view;
  char *sized = NULL;
  attn_status status = spec_with(attn_plan_spec(from->plan), view->seed, seed, spec);
  if (status || vectors == view->features->law.vectors) return status;
  const attn_budget *buys = &view->budget;
  sized = *spec;
  status = spec_with(sized, buys->parameter,
                     buys->value ? buys->value(attn_plan_context(from->plan), vectors) : vectors, spec);
  free(sized);
  return status;
}

/* A plan for one position. It draws m vectors by the probe's law; EUNSUPPORTED: by another. */
static attn_status fresh_plan(const probe *from, attn_features_kind kind, int64_t m, int64_t seed,
                              probe *out) {
  char *spec = NULL;
  feature_law law;
  attn_options options = {.threads = 1, .isa = attn_plan_isa(from->plan)};
  *out = (probe){.problem = from->problem};
  out->problem.n_q = out->problem.n_kv = 1;
  out->problem.q = out->problem.k = out->problem.v = out->problem.o = (attn_stride){0, 0, 0};
  attn_status status = fresh_spec(from, m, seed, &spec);
  if (!status) status = attn_plan_create(&out->plan, &out->problem, spec, &options);
  if (!status) status = attn_plan_inspect(out->plan, &out->view);
  if (!status &&
      (feature_law_of(out->view.features, from->problem.d_qk, &law) || law.kind != kind || law.m != m))
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: not %lld vectors by the same law", spec, (long long)m);
  free(spec);
  if (status) attn_plan_destroy(out->plan);
  return status;
}

/* x = a u, y = a (u + sqrt(3) u') / 2 with u = (1, 1, ...), u' = (1, -1, 1, ...), both of norm 1: the sum of
 * components shows a generator whose vectors lean to one side. Fills [2, d]. */
static void point_make(int64_t d, double sum_square, double *xy, fresh_point *out) {
  double unit = 1 / sqrt((double)d), sum = 0, dot[3] = {0};
  for (int64_t l = 0; l < d; l++) {
    xy[l] = unit;
    xy[d + l] = unit * (l % 2 ? 1 - sqrt(3) : 1 + sqrt(3)) / 2;
    sum += (xy[l] + xy[d + l]) * (xy[l] + xy[d + l]);
  }
  for (int64_t l = 0; l < 2 * d; l++) xy[l] *= sqrt(sum_square / sum);
  for (int64_t l = 0; l < d; l++) {
    dot[0] += xy[l] * xy[l];
    dot[1] += xy[d + l] * xy[d + l];
    dot[2] += xy[l] * xy[d + l];
  }
  *out = (fresh_point){dot[0], dot[1], dot[2]};
}

/* The products of one plan at one point; xy in units of the map. f: [2, columns]. */
static void products_fill(const probe *p, const fresh_draws *g, int point, const double *xy, double *f,
                          double *out) {
  const attn_feature_map *map = p->view.features;
  const attn_context *c = attn_plan_context(p->plan);
  int64_t d = g->law.d, m = g->law.m, columns = map->columns;
  double scale[2], norms = (g->point[point].x_square + g->point[point].y_square) / 2;
  map->map(map->state, c, 0, ATTN_QUERY, xy, d, 1, f, columns, &scale[0]);
  map->map(map->state, c, 0, ATTN_KEY, xy + d, d, 1, f + columns, columns, &scale[1]);
  double factor = scale[0] + scale[1];
  attn_features_kind kind = g->law.kind;
  if (kind == ATTN_FEATURES_TRIG) factor -= norms;
  if (kind == ATTN_FEATURES_POSITIVE || kind == ATTN_FEATURES_HYPERBOLIC) factor += norms;
  factor = exp(factor) / (kind == ATTN_FEATURES_HYPERBOLIC ? 2 : 1);
  memset(out, 0, (size_t)m * sizeof *out);
  for (int64_t i = 0; i < columns; i++) out[i % m] += factor * f[i] * f[columns + i];
}

static attn_status draw_plan(const probe *from, fresh_draws *g, int64_t at, int64_t seed) {
  probe p;
  int64_t d = g->law.d, m = g->law.m;
  attn_status status = fresh_plan(from, g->law.kind, m, seed, &p);
  if (status) return status;
  draws w = {.m = m, .d = d};
  double *f = NULL, *xy = NULL;
  if (g->law.kind != ATTN_FEATURES_OTHER) {
    status = draws_read(&p, g->law.kind, &w);
    if (!status) memcpy(g->w + at * m * d, w.w, (size_t)(m * d) * sizeof *g->w);
  }
  if (!status) {
    f = malloc((size_t)(2 * p.view.features->columns) * sizeof *f);
    xy = malloc((size_t)(2 * d) * sizeof *xy);
    if (!f || !xy) status = attn_fail(ATTN_ENOMEM, "no memory for fresh random features");
  }
  for (int i = 0; i < FRESH_POINTS && !status; i++) {
    fresh_point same;
    point_make(d, i == 0 ? 1 : 0.25, xy, &same);
    for (int64_t l = 0; l < 2 * d; l++) xy[l] /= sqrt(p.problem.scale);
    products_fill(&p, g, i, xy, f, g->product[i] + at * m);
  }
  free(f);
  free(xy);
  free(w.w);
  attn_plan_destroy(p.plan);
  return status;
}

static attn_status fresh_fill(const evidence *e, const probe *p, fresh_draws *g) {
  double point[2 * WIDTH_MAX];
  attn_status failed = ATTN_OK;
  attn_rng rng;
  int64_t *seeds = malloc((size_t)g->plans * sizeof *seeds);
  int64_t size = g->plans * g->law.m;
  g->w = malloc((size_t)(size * g->law.d) * sizeof *g->w);
  bool memory = seeds && g->w;
  for (int i = 0; i < FRESH_POINTS; i++) {
    point_make(g->law.d, i == 0 ? 1 : 0.25, point, &g->point[i]);
    g->product[i] = malloc((size_t)size * sizeof(double));
    memory = memory && g->product[i];
  }
  if (!memory) {
    free(seeds);
    return attn_fail(ATTN_ENOMEM, "no memory for fresh random features");
  }
  attn_rng_init(&rng, (uint64_t)spec_number(attn_plan_spec(e->plan), e->view->seed), PURPOSE, e->seed);
  for (int64_t t = 0; t < g->plans; t++) seeds[t] = attn_rng_below(&rng, INT64_C(1000000000000000));
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t t = 0; t < g->plans; t++) {
    attn_status status = draw_plan(p, g, t, seeds[t]);
    if (status) {
#pragma omp atomic write
      failed = status;
    }
  }
  free(seeds);
  return failed ? attn_fail(failed, "fresh random features could not be drawn by the same law") : ATTN_OK;
}

attn_status fresh_draws_get(const evidence *e, probe *p, const feature_law *law, const fresh_draws **out) {
  double d = (double)law->d;
  if (p->fresh) {
    *out = p->fresh;
    return ATTN_OK;
  }
  if (law->d > WIDTH_MAX)
    return attn_fail(ATTN_EUNSUPPORTED, "random vectors of more than 128 components: fresh draws cost d^3");
  if (!e->view->seed)
    return attn_fail(ATTN_EUNSUPPORTED, "the variant names no seed: there are no fresh draws");
  fresh_draws *g = calloc(1, sizeof *g);
  if (!g) return attn_fail(ATTN_ENOMEM, "no memory for fresh random features");
  g->law = *law;
  /* Fewer vectors cost less, where the parameter buys vectors and leaves the law. */
  probe few;
  if (e->view->budget.parameter && law->m > 2 * law->d && !fresh_plan(p, law->kind, 2 * law->d, 0, &few)) {
    attn_plan_destroy(few.plan);
    feature_law_resize(&g->law, 2 * law->d);
  }
  /* A QR factorisation for each block, and 2 d evaluations of the map. */
  double m = (double)g->law.m, each = (law->orthogonal ? 4 * ceil(m / d) * d * d * d : 0) + 2 * m * d * d;
  g->plans = MEAN_GROUPS * (int64_t)fmax(1, fmin(GROUP_MAX, work / each / MEAN_GROUPS));
  attn_status status = fresh_fill(e, p, g);
  if (status) {
    fresh_draws_free(g);
    return status;
  }
  *out = p->fresh = g;
  return ATTN_OK;
}

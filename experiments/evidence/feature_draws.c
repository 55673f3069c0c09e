/* feature_draws.c - fresh draws are made in parallel over plans.
 *
 * Vectors are read off the feature map, at +-a e_l in fp64: positive features are exp(scale) f = exp(w.x -
 * |x|^2/2), so w_l = (ln phi(a e_l) - ln phi(-a e_l)) / 2a (with the law's
 * weights: that times 1 / sqrt(1 - 4a)); cosine and sine give the angle; rectified
 * features their difference. */
#include "experiments/evidence/feature_draws.h"

#include "experiments/mathematics/entries.h"
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double read_component(attn_features_kind kind, const double *f, double scale, const double *g,
                             double other, int64_t m, double a) {
  if (kind == ATTN_FEATURES_TRIG) return atan2(f[m], f[0]) / a;
  if (kind == ATTN_FEATURES_RELU) return (f[0] - g[0]) / a;
  return (log(f[0]) + scale - log(g[0]) - other) / (2 * a);
}

attn_status draws_read(const probe *p, const feature_law *law, draws *out) {
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
  for (int64_t l = 0; l < d && !status; l++) {
    x[l] = a;
    x[d + l] = -a;
    map->map(map->state, c, &(attn_feature_rows){p->kv_head, ATTN_KEY, x, d, 0, 2}, f, columns, scale);
    x[l] = x[d + l] = 0;
    for (int64_t r = 0; r < m && law->a != 0; r++)
      if (!(f[r] > 0 && f[columns + r] > 0))
        status = attn_fail(ATTN_EUNSUPPORTED,
                           "weights exp(a |w|^2) of a = %g leave features of 0, whose vectors cannot be read",
                           law->a);
    for (int64_t r = 0; r < m && !status; r++)
      out->w[r * d + l] = read_component(law->kind, f + r, scale[0], f + columns + r, scale[1], m,
                                         a * sqrt(p->problem.scale)) /
                          sqrt(1 - 4 * law->a);
  }
out:
  free(f);
  free(x);
  return status;
}

static const double work = 0x1p27;     /* multiply-adds of all draws */
static const double overhead = 0x1p15; /* those that a plan is worth */
static const double resolved = 0.02 / 7;
enum { WIDTH_MAX = 128, PLANS_MIN = 31, PLANS_MAX = 1000, OUTPUTS_MAX = 64, PURPOSE = 0x6e4e };

void fresh_draws_free(fresh_draws *g) {
  if (!g) return;
  region_free(&g->memory);
  estimator_free(g->small);
  free(g);
}

/* The spec of the probe's plan with `vectors` vectors, drawn by `seed`. */
static attn_status fresh_spec(const probe *from, int64_t vectors, int64_t seed, attn_spec **spec) {
  const attn_view *view = &from->view;
  attn_status status = attn_spec_with_seed(attn_plan_parsed_spec(from->plan), view->seed, seed, spec);
  if (status || vectors == view->features->law.vectors) return status;
  const attn_budget *buys = &view->budget;
  const int64_t value = buys->value ? buys->value(attn_plan_context(from->plan), vectors) : vectors;
  attn_spec *seeded = *spec;
  *spec = NULL;
  status = attn_spec_with_int(seeded, buys->parameter, value, spec);
  attn_spec_destroy(seeded);
  return status;
}

/* A plan for the small problem. It draws m vectors by this law; EUNSUPPORTED: by another. */
static attn_status fresh_plan(const probe *from, const feature_law *of, int64_t m, int64_t seed, probe *out) {
  attn_spec *spec = NULL;
  feature_law law;
  attn_options options = {.threads = 1, .isa = attn_plan_isa(from->plan)};
  *out = (probe){.problem = from->problem};
  out->problem.n_q = out->problem.n_kv = ESTIMATOR_TOKENS;
  out->problem.d_v = ESTIMATOR_VALUES;
  out->problem.q = out->problem.k = out->problem.v = out->problem.o = (attn_stride){0};
  attn_status status = fresh_spec(from, m, seed, &spec);
  if (!status) status = attn_plan_create_spec(&out->plan, &out->problem, spec, &options);
  if (!status) status = attn_plan_inspect(out->plan, &out->view);
  if (!status && (feature_law_of(out->view.features, from->problem.d_qk, &law) || law.kind != of->kind ||
                  law.a != of->a || law.m != m))
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: not %lld vectors by the same law", spec->text, (long long)m);
  attn_spec_destroy(spec);
  if (status) attn_plan_destroy(out->plan);
  return status;
}

/* What the products of a plan are computed in. */
typedef struct room {
  double *x, *y, *scale, *f_x, *f_y; /* [turns, d] twice, [2, turns], [turns, columns] twice */
  double *product;                   /* [turns, m] */
  region memory;                     /* of all */
} room;

static attn_status room_make(const fresh_draws *g, int64_t columns, room *r) {
  const int64_t turns = g->turns, d = g->law.d, m = g->law.m;
  r->x = region_take(&r->memory, turns * d, sizeof(double));
  r->y = region_take(&r->memory, turns * d, sizeof(double));
  r->scale = region_take(&r->memory, 2 * turns, sizeof(double));
  r->f_x = region_take(&r->memory, turns * columns, sizeof(double));
  r->f_y = region_take(&r->memory, turns * columns, sizeof(double));
  r->product = region_take(&r->memory, turns * m, sizeof(double));
  return region_status(&r->memory, "for fresh random features");
}

/* The products of one plan at all turns of a point. */
static void products_fill(const probe *p, const fresh_draws *g, double z, room *r) {
  const attn_feature_map *map = p->view.features;
  const attn_context *c = attn_plan_context(p->plan);
  attn_features_kind kind = g->law.kind;
  int64_t d = g->law.d, m = g->law.m, columns = map->columns;
  entry_point at;
  entry_point_make(d, g->turns, z, r->x, r->y, &at);
  for (int64_t i = 0; i < g->turns * d; i++) {
    r->x[i] /= sqrt(p->problem.scale);
    r->y[i] /= sqrt(p->problem.scale);
  }
  map->map(map->state, c, &(attn_feature_rows){0, ATTN_QUERY, r->x, d, 0, g->turns}, r->f_x, columns,
           r->scale);
  map->map(map->state, c, &(attn_feature_rows){0, ATTN_KEY, r->y, d, 0, g->turns}, r->f_y, columns,
           r->scale + g->turns);
  double norms = (at.x_square + at.y_square) / 2;
  if (kind == ATTN_FEATURES_TRIG) norms = -norms;
  if (!feature_law_is_favor(&g->law)) norms = 0;
  memset(r->product, 0, (size_t)(g->turns * m) * sizeof *r->product);
  for (int64_t k = 0; k < g->turns; k++) {
    double factor =
        exp(r->scale[k] + r->scale[g->turns + k] + norms) / (kind == ATTN_FEATURES_HYPERBOLIC ? 2 : 1);
    for (int64_t i = 0; i < columns; i++)
      r->product[k * m + i % m] += factor * r->f_x[k * columns + i] * r->f_y[k * columns + i];
  }
}

static double mean_of(const double *x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += x[i];
  return sum / (double)count;
}

static double mean_square(const double *x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += x[i] * x[i];
  return sum / (double)count;
}

/* Over disjoint pairs of neighbours within a block of d; 0 if there are none. */
static double mean_pair(const feature_law *law, int64_t turns, const double *x) {
  double sum = 0, count = 0;
  for (int64_t k = 0; k < turns; k++)
    for (int64_t r = 0; r + 1 < law->m; r += 2) {
      if (r % law->d + 1 == law->d && ++r + 1 >= law->m) break;
      sum += x[k * law->m + r] * x[k * law->m + r + 1];
      count++;
    }
  return count > 0 ? sum / count : 0;
}

/* Y / D of a row of the small problem by the plan's features: those of the row, and of the keys. */
static double share_of(const estimator *s, int64_t r, int64_t columns, const double *f, double scale,
                       const double *keys, const double *key_scale) {
  double sum = 0, vectors = (double)s->law.m * (s->law.kind == ATTN_FEATURES_HYPERBOLIC ? 2 : 1);
  for (int64_t j = 0; j < s->seen[r]; j++)
    sum += exp(scale + key_scale[j]) * vector_dot_fast(f, keys + j * columns, columns);
  return sum / (vectors * s->sum[r]);
}

static attn_status output_judge(const probe *p, const estimator *s, estimate_error *out) {
  const attn_feature_map *map = p->view.features;
  const attn_context *c = attn_plan_context(p->plan);
  int64_t n = ESTIMATOR_TOKENS, d = s->law.d, columns = map->columns;
  double scale[2 * ESTIMATOR_TOKENS], share[ESTIMATOR_ROWS], o[ESTIMATOR_TOKENS * ESTIMATOR_VALUES];
  double *q = malloc((size_t)(2 * n * (d + columns)) * sizeof *q);
  void *memory = malloc(attn_plan_work_size(p->plan) + 1);
  attn_status status = q && memory ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for fresh random features");
  if (!status) {
    double *k = q + n * d, *f_q = k + n * d, *f_k = f_q + n * columns;
    for (int64_t i = 0; i < n * d; i++) {
      q[i] = s->x[i] / sqrt(p->problem.scale);
      k[i] = s->y[i] / sqrt(p->problem.scale);
    }
    status = attn_plan_execute(p->plan, q, k, s->v, NULL, o, memory);
    map->map(map->state, c, &(attn_feature_rows){0, ATTN_QUERY, q, d, 0, n}, f_q, columns, scale);
    map->map(map->state, c, &(attn_feature_rows){0, ATTN_KEY, k, d, 0, n}, f_k, columns, scale + n);
    for (int64_t r = 0; r < ESTIMATOR_ROWS; r++)
      share[r] = share_of(s, r, columns, f_q + s->row[r] * columns, scale[s->row[r]], f_k, scale + n);
  }
  if (!status) *out = estimator_judge(s, o, share);
  free(q);
  free(memory);
  return status;
}

static attn_status draw_plan(const probe *from, fresh_draws *g, int64_t at, int64_t seed) {
  probe p;
  int64_t d = g->law.d, m = g->law.m;
  attn_status status = fresh_plan(from, &g->law, m, seed, &p);
  if (status) return status;
  draws w = {.m = m, .d = d};
  room r = {.x = NULL};
  if (g->law.kind != ATTN_FEATURES_OTHER) {
    status = draws_read(&p, &g->law, &w);
    if (!status) memcpy(g->w + at * m * d, w.w, (size_t)(m * d) * sizeof *g->w);
  }
  if (!status) status = room_make(g, p.view.features->columns, &r);
  if (!status) {
    products_fill(&p, g, 1, &r);
    g->along[at] = mean_of(r.product, m);
    g->mean[at] = mean_of(r.product, g->turns * m);
    products_fill(&p, g, 0.25, &r);
    g->square[at] = mean_square(r.product, g->turns * m);
    g->pair[at] = mean_pair(&g->law, g->turns, r.product);
    if (at < g->outputs) status = output_judge(&p, g->small, &g->errors[at]);
  }
  region_free(&r.memory);
  free(w.w);
  attn_plan_destroy(p.plan);
  return status;
}

static attn_status fresh_fill(const evidence *e, const probe *p, fresh_draws *g) {
  const int64_t plans = g->plans;
  attn_status failed = ATTN_OK;
  attn_rng rng;
  int64_t *seeds = region_take(&g->memory, plans, sizeof *seeds);
  g->w = region_take(&g->memory, plans * g->law.m * g->law.d, sizeof *g->w);
  g->along = region_take(&g->memory, plans, sizeof *g->along);
  g->mean = region_take(&g->memory, plans, sizeof *g->mean);
  g->square = region_take(&g->memory, plans, sizeof *g->square);
  g->pair = region_take(&g->memory, plans, sizeof *g->pair);
  g->errors = region_take(&g->memory, g->outputs, sizeof *g->errors);
  if (g->outputs) {
    attn_rng_init(&rng, e->seed, PURPOSE, 1);
    g->small = estimator_make(&g->law, p->problem.causal, &rng);
  }
  if (g->memory.refused || !g->small != !g->outputs)
    return attn_fail(ATTN_ENOMEM, "no memory for fresh random features");
  attn_rng_init(&rng, (uint64_t)attn_spec_number(attn_plan_parsed_spec(e->plan), e->view->seed), PURPOSE,
                e->seed);
  for (int64_t t = 0; t < g->plans; t++) seeds[t] = attn_rng_below(&rng, INT64_C(1000000000000000));
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t t = 0; t < g->plans; t++) {
    attn_status status = draw_plan(p, g, t, seeds[t]);
    if (status) {
#pragma omp atomic write
      failed = status;
    }
  }
  return failed ? attn_fail(failed, "fresh random features could not be drawn by the same law") : ATTN_OK;
}

/* The variance of a plan's mean product over the square of its mean. */
static double spread_of(const attn_feature_law *given, const void *state, const fresh_draws *g) {
  const entry_point *at = &g->far;
  double mean, square;
  if (feature_law_is_favor(&g->law)) {
    double s = entry_exponent(&g->law, at->x_square + at->y_square, at->inner);
    mean = entry_single(&g->law, s);
    return entry_mean_spread(&g->law, s, g->turns) / (mean * mean);
  }
  if (g->law.kind == ATTN_FEATURES_RELU) {
    entry_rectified(&g->law, at->x_square, at->y_square, at->inner, &mean, &square);
  } else {
    if (!given->mean || !given->square) return 0;
    mean = given->mean(state, at->x_square, at->y_square, at->inner);
    square = given->square(state, at->x_square, at->y_square, at->inner);
  }
  return (square / (mean * mean) - 1) / g->law.independent;
}

/* A plan costs a QR factorisation for each block, the evaluations of the map at 2 d points to read the
 * vectors and at 4 more for each turn. */
static int64_t plans_count(const fresh_draws *g, double spread) {
  const feature_law *law = &g->law;
  double m = (double)law->m, d = (double)law->d, wanted = spread / (resolved * resolved);
  double each =
      overhead + (law->orthogonal ? 4 * ceil(m / d) * d * d * d : 0) + m * d * (2 * d + 4 * (double)g->turns);
  return (int64_t)fmax(PLANS_MIN, fmin(fmin(PLANS_MAX, work / each), ceil(wanted)));
}

attn_status fresh_draws_get(const evidence *e, probe *p, const feature_law *law, const fresh_draws **out) {
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
  if (e->view->budget.parameter && law->m > 2 * law->d && !fresh_plan(p, law, 2 * law->d, 0, &few)) {
    attn_plan_destroy(few.plan);
    feature_law_resize(&g->law, 2 * law->d);
  }
  double x[WIDTH_MAX], y[WIDTH_MAX];
  g->turns = feature_law_is_favor(law) ? law->d : 1;
  entry_point_make(law->d, 1, 1, x, y, &g->far);
  entry_point_make(law->d, 1, 0.25, x, y, &g->near);
  g->plans = plans_count(g, spread_of(&e->view->features->law, e->view->features->state, g));
  if (feature_law_is_favor(law) && !law->constant && !(e->view->features->eps > 0))
    g->outputs = g->plans < OUTPUTS_MAX ? g->plans : OUTPUTS_MAX;
  attn_status status = fresh_fill(e, p, g);
  if (status) {
    fresh_draws_free(g);
    return status;
  }
  *out = p->fresh = g;
  return ATTN_OK;
}

/* facts.c - what the checks of a run need to know of its rows, computed in one pass over the keys of each.
 *
 * Of a pattern S, T the other keys, p exact weights, t = sum of p over T: the exact row is (1 - t) o_S + t
 * o_T, so that o_S = o + t (o_S - o_T) (SP-1); identity is the right side, with t o_S and t o_T from the
 * exact weights. A row's sink is a key of S, of value 0. Where a selection gives its keys weights w_j,
 * identity is o_S = sum w_j p_j v_j / sum w_j p_j, and of what is left out nothing follows from p alone. A
 * block b of keys with centroid k_b and radius r_b has q.k_j <= q.k_b + |q| r_b, hence (SP-3)
 *   Z_T = sum over T of e^s_j <= Z = sum over blocks of |b in T| e^(c q.k_b + |c||q| r_b),  t <= Z / (Z_S +
 *   Z). */
#include "experiments/evidence/rows.h"

#include "experiments/evidence/cache.h"
#include "experiments/reference/seen.h"
#include "experiments/mathematics/vector.h"
#include "experiments/reference/transform.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double work = 0x1p26; /* multiply-adds, roughly */
static const uint64_t purpose_direction = 0x64697265;
enum { VECTORS = 9, EXPONENTIALS = 32 };

struct run_facts {
  region memory;
  /* What they are of, so that those of another run are not taken for them. */
  const exact_rows *exact;
  const void *sees; /* its pattern or selector */
  attn_rounding rounding;
  uint64_t seed;
  int64_t count;
  row_facts *rows; /* of the rows taken */
  int64_t *place;  /* [judged] among them, or -1 */
  double *vectors; /* [count, VECTORS, d_v] */
  seen_keys seen;
};

void facts_forget(struct block_cache *c) {
  if (!c || !c->facts) return;
  region_free(&c->facts->memory);
  seen_free(&c->facts->seen);
  free(c->facts);
  c->facts = NULL;
}

double row_direction(const evidence *e, int t, int64_t l) {
  attn_rng rng;
  attn_rng_init(&rng, e->seed, purpose_direction, (uint64_t)(l * ROW_DIRECTIONS + t));
  return attn_rng_normal(&rng);
}

/* N chains of roundings in the run: with probability 1 - alpha none exceeds the model's growth, if roundings
 * are independent with mean 0 (Hoeffding on sum delta_i; |ln(1 + delta) - delta| <= u^2 / (1 - u) for the
 * rest). */
double row_lambda(const evidence *e) {
  const attn_problem *p = e->problem;
  const double alpha = 1e-6, rows = (double)(p->batch * p->heads * p->n_q);
  return sqrt(2 * log(2 * rows * (double)p->n_kv * (double)(p->d_v + 1) / alpha)) /
         (1 - e->view->rounding.unit);
}

/* -- a (batch, head) -- */

typedef struct facts_walk {
  const evidence *e;
  struct run_facts *facts;
  double *along[ROW_DIRECTIONS]; /* [n_kv] values of the head along a direction */
  int64_t block;                 /* keys of a block of SP-3; 0: no pattern */
  double *center, *radius;       /* [blocks, d_qk], [blocks] */
  bool weighted;                 /* selections have weights */
  double lambda;                 /* 0: the model says nothing */
} facts_walk;

static void measure_blocks(const head_data *h, facts_walk *w) {
  int64_t d = h->problem->d_qk;
  for (int64_t b = 0, first = 0; first < h->keys; b++, first += w->block) {
    int64_t end = first + w->block < h->keys ? first + w->block : h->keys;
    double *center = w->center + b * d, far = 0;
    memset(center, 0, (size_t)d * sizeof *center);
    for (int64_t j = first; j < end; j++)
      for (int64_t l = 0; l < d; l++) center[l] += h->k[j * d + l];
    for (int64_t l = 0; l < d; l++) center[l] /= (double)(end - first);
    for (int64_t j = first; j < end; j++) far = fmax(far, vector_distance(h->k + j * d, center, d));
    w->radius[b] = far;
  }
}

static attn_status head_prepare(void *context, const head_data *h) {
  facts_walk *w = context;
  int64_t d_v = h->problem->d_v;
  double *g = malloc((size_t)d_v * sizeof *g);
  if (!g) return attn_fail(ATTN_ENOMEM, "no memory for a direction");
  for (int t = 0; t < ROW_DIRECTIONS && w->along[t]; t++) {
    for (int64_t l = 0; l < d_v; l++) g[l] = row_direction(w->e, t, l);
    for (int64_t j = 0; j < h->keys; j++) w->along[t][j] = vector_dot_fast(g, h->v + j * d_v, d_v);
  }
  free(g);
  if (w->block > 0) measure_blocks(h, w);
  return ATTN_OK;
}

/* -- a row -- */

static void hull(const facts_walk *w, const head_data *h, const row_space *s, double bias, row_facts *f) {
  int64_t d_v = h->problem->d_v;
  const bool sink = h->problem->score.sink;
  prior x;
  f->hulled =
      row_apriori_bound(h, &w->e->view->rounding, vector_norm(s->q, h->problem->d_qk), bias, s->count, &x);
  for (int64_t l = 0; l < d_v; l++) {
    f->slack[l] = x.growth * fmax(fabs(h->low[l]), fabs(h->high[l])) + x.floor;
    f->low[l] = s->count == h->keys ? h->low[l] : (double)INFINITY;
    f->high[l] = s->count == h->keys ? h->high[l] : -(double)INFINITY;
    if (sink) f->low[l] = fmin(f->low[l], 0);
    if (sink) f->high[l] = fmax(f->high[l], 0);
  }
  for (int64_t a = 0; a < s->count && s->count < h->keys; a++) {
    const double *v = h->v + s->index[a] * d_v;
    for (int64_t l = 0; l < d_v; l++) {
      f->low[l] = v[l] < f->low[l] ? v[l] : f->low[l];
      f->high[l] = v[l] > f->high[l] ? v[l] : f->high[l];
    }
  }
  for (int t = 0; t < ROW_DIRECTIONS; t++) {
    f->least[t] = sink ? 0 : (double)INFINITY;
    f->most[t] = sink ? 0 : -(double)INFINITY;
    for (int64_t a = 0; a < s->count; a++) {
      double x_a = w->along[t][s->index[a]];
      f->least[t] = x_a < f->least[t] ? x_a : f->least[t];
      f->most[t] = x_a > f->most[t] ? x_a : f->most[t];
    }
  }
}

/* ln of the sum over blocks of keys left out; -inf if there are none. scratch: a double a block. */
static double log_left(const facts_walk *w, const row_case *c, double *scratch) {
  const attn_problem *p = c->e->problem;
  const row_space *s = c->space;
  int64_t used = 0;
  double top = -(double)INFINITY, sum = 0, q_norm = vector_norm(s->q, p->d_qk);
  for (int64_t b = 0, first = 0; first < c->keys; b++, first += w->block) {
    int64_t end = first + w->block < c->keys ? first + w->block : c->keys, left = 0;
    for (int64_t j = first; j < end; j++) left += !s->inside[j];
    if (left == 0) continue;
    double score = vector_dot(s->q, w->center + b * p->d_qk, p->d_qk);
    scratch[used] = p->scale * score + fabs(p->scale) * q_norm * w->radius[b] + log((double)left);
    top = fmax(top, scratch[used++]);
  }
  for (int64_t b = 0; b < used; b++) sum += exp(scratch[b] - top);
  return used ? top + log(sum) : top;
}

/* The divergence of the weights on the support (s->weight) from the exact ones. room: fp64's error of a
 * score. */
static void divergence_facts(const row_case *c, double room, row_facts *f) {
  const row_space *s = c->space;
  double sum = 0;
  for (int64_t a = 0; a < s->count; a++)
    if (s->weight[a] > 1e-290) /* less adds nothing, and p may be 0; infinite where the kept mass is */
      sum += s->weight[a] * log(s->weight[a] / c->p[s->index[a]]);
  f->divergence = s->count ? fabs(f->mass + expm1(-sum)) : 0;
  f->divergence_room = 8 * room + (double)(c->keys + 64) * 0x1p-50;
}

/* t, o + t (o_S - o_T), the distance of what is left out, and the bound on t. */
static void pattern_facts(const facts_walk *w, const row_case *c, double top, row_facts *f) {
  const attn_problem *p = c->e->problem;
  const head_data *h = c->head;
  row_space *s = c->space;
  int64_t d_v = p->d_v;
  double kept = 0, most = 0;
  f->mass = f->far = 0;
  /* Relative to the largest factor of a weight. */
  for (int64_t a = 0; a < s->count; a++) most = fmax(most, s->log_weight[a]);
  double inside = c->sink * exp(-most);
  for (int64_t a = 0; a < s->count; a++) inside += c->p[s->index[a]] * exp(s->log_weight[a] - most);
  memset(s->kept, 0, (size_t)d_v * sizeof *s->kept);
  memset(s->left, 0, (size_t)d_v * sizeof *s->left);
  for (int64_t a = 0; a < s->count; a++) {
    double weight = c->p[s->index[a]] * exp(s->log_weight[a] - most) / inside;
    for (int64_t l = 0; l < d_v; l++) s->kept[l] += weight * h->v[s->index[a] * d_v + l];
  }
  /* Where the kept weights are too small to be normal numbers, o_S is that of the support. */
  if (!(inside > 1e-200)) memcpy(s->kept, f->o, (size_t)d_v * sizeof *s->kept);
  for (int64_t j = 0; j < c->keys; j++) {
    if (s->inside[j] || !(c->p[j] > 0)) continue;
    const double *v = h->v + j * d_v;
    f->mass += c->p[j];
    for (int64_t l = 0; l < d_v; l++) s->left[l] += c->p[j] * v[l];
    f->far = fmax(f->far, vector_distance(v, f->o, d_v));
  }
  for (int64_t l = 0; l < d_v; l++)
    f->identity[l] = w->weighted ? s->kept[l] : c->o[l] + (f->mass * s->kept[l] - s->left[l]);
  f->certified = 1;
  if (w->weighted) return;
  /* The fp64 error of scores on either side; and masses below the least normal number are not known to any
   * accuracy. */
  double score =
      gamma_of(2 * p->d_qk + w->block + 8, 0x1p-53) * fabs(p->scale) * vector_norm(s->q, p->d_qk) * h->k_max;
  divergence_facts(c, score, f);
  for (int64_t a = 0; a < s->count; a++) kept += exp(s->score[a] - top);
  if (s->count > 0)
    f->certified =
        1 / (1 + exp(top + log(kept) - log_left(w, c, s->slack) - 4 * score)) + (double)c->keys * DBL_MIN;
}

static void row_visit(void *context, int64_t r, const row_case *c) {
  facts_walk *w = context;
  const attn_view *view = w->e->view;
  const head_data *h = c->head;
  row_space *s = c->space;
  row_facts *f = &w->facts->rows[w->facts->place[r]];
  int64_t d_v = h->problem->d_v;
  double norm = vector_norm(s->q, h->problem->d_qk);
  row_extremes scores;
  f->keys = c->keys;
  f->diameter = h->diameter;
  f->size = h->v_max;
  row_see(h, &w->facts->seen, c->row->i, s);
  f->support = s->count;
  f->bounded = f->modelled = row_attend(h, NULL, s, &scores);
  memcpy(f->o, s->o, (size_t)d_v * sizeof *f->o);
  /* Steps begin at the first key that the problem leaves, which is no multiple of them. */
  bool ordered = view->pattern == NULL && view->selector == NULL && h->problem->mask.kind == ATTN_MASK_NONE &&
                 !h->problem->score.dense.at;
  const double bias = fmax(transform_most(h->problem, h->batch, h->head, c->row->i), scores.bias);
  if (f->bounded == ROW_OK) {
    f->bounded = row_error(h, &view->rounding, ordered, NULL, 0, &scores, s, f->bound);
    if (w->lambda > 0)
      f->modelled = row_error(h, &view->rounding, ordered, NULL, w->lambda, &scores, s, f->model);
  }
  const attn_rounding own = row_reference_rounding(h->problem, c->keys);
  prior reference = {0, 0, 0}, bound = {0, 0, 0};
  f->reference = row_apriori_bound(h, &own, norm, bias, c->keys, &reference);
  f->known = row_apriori_bound(h, &view->rounding, norm, bias, c->keys, &bound);
  for (int64_t l = 0; l < d_v; l++) {
    double range = row_range(h, l), size = fmax(fabs(h->low[l]), fabs(h->high[l]));
    f->exact_error[l] = reference.spread * range + reference.growth * size + reference.floor;
    f->prior[l] = f->exact_error[l] + bound.spread * range + bound.growth * size + bound.floor;
  }
  if (w->along[0]) hull(w, h, s, bias, f);
  if (w->block > 0 && f->bounded == ROW_OK) pattern_facts(w, c, scores.top, f);
}

/* -- a run -- */

static const void *sees_some(const attn_view *view) {
  return view->pattern ? (const void *)view->pattern : (const void *)view->selector;
}

static double row_work(const evidence *e) {
  const attn_problem *p = e->problem;
  double support = row_cost(e) / (double)(p->d_qk + p->d_v), d_v = (double)p->d_v;
  double left = sees_some(e->view) ? (double)p->n_kv * (2 * d_v + 4) : 0;
  return support * ((double)p->d_qk + 3 * d_v + EXPONENTIALS) + left;
}

static attn_status facts_alloc(const evidence *e, const bool *take, struct run_facts *f) {
  size_t d_v = (size_t)e->problem->d_v, judged = (size_t)e->exact->judged;
  *f = (struct run_facts){
      .exact = e->exact, .sees = sees_some(e->view), .rounding = e->view->rounding, .seed = e->seed};
  f->place = region_take(&f->memory, (int64_t)judged, sizeof *f->place);
  for (size_t r = 0; f->place && r < judged; r++) f->place[r] = take[r] ? f->count++ : -1;
  f->rows = region_zeros(&f->memory, f->count, sizeof *f->rows);
  f->vectors = region_zeros(&f->memory, f->count * VECTORS * e->problem->d_v, sizeof *f->vectors);
  if (region_status(&f->memory, "for what is known of rows")) return ATTN_ENOMEM;
  for (size_t r = 0; r < judged; r++) {
    if (!take[r]) continue;
    row_facts *x = &f->rows[f->place[r]];
    double *at = f->vectors + (size_t)f->place[r] * VECTORS * d_v;
    double **const vectors[VECTORS] = {&x->o,   &x->bound, &x->model, &x->exact_error, &x->prior,
                                       &x->low, &x->high,  &x->slack, &x->identity};
    for (int v = 0; v < VECTORS; v++) *vectors[v] = at + (size_t)v * d_v;
    x->row = &e->exact->rows[r];
    x->exact = e->exact->o + r * d_v;
  }
  return seen_make(&(seen_run){e->plan, e->view, evidence_tensors(e)}, e->exact->rows, take, e->exact->judged,
                   &f->seen);
}

static attn_status facts_fill(const evidence *e, const bool *take, struct run_facts *f) {
  const attn_problem *p = e->problem;
  const attn_pattern *pattern = e->view->pattern;
  facts_walk w = {.e = e,
                  .facts = f,
                  .weighted = e->view->selector && e->view->selector->weighted,
                  .lambda = row_lambda(e)};
  region memory = {.last = NULL};
  if (!((double)row_chain(&e->view->rounding) > w.lambda * w.lambda)) w.lambda = 0;
  for (int t = 0; t < ROW_DIRECTIONS && e->view->caps & ATTN_CAP_CONVEX; t++)
    w.along[t] = region_take(&memory, p->n_kv, sizeof *w.along[t]);
  if (sees_some(e->view)) {
    w.block = pattern && pattern->grain > 0 ? pattern->grain : ATTN_TILE;
    const int64_t blocks = (p->n_kv - 1) / w.block + 1;
    w.center = region_take(&memory, blocks * p->d_qk, sizeof *w.center);
    w.radius = region_take(&memory, blocks, sizeof *w.radius);
  }
  attn_status status = region_status(&memory, "for the facts of a head");
  if (!status)
    status = rows_walk(e, take, &(rows_visitor){.context = &w, .prepare = head_prepare, .visit = row_visit});
  region_free(&memory);
  return status;
}

static bool of_run(const evidence *e, const struct run_facts *f) {
  return f->exact == e->exact && f->sees == sees_some(e->view) && f->seed == e->seed &&
         memcmp(&f->rounding, &e->view->rounding, sizeof f->rounding) == 0;
}

static attn_status facts_get(const evidence *e, const struct run_facts **out) {
  struct block_cache *cache = e->cache;
  attn_status status = ATTN_OK;
  if (cache->facts && !of_run(e, cache->facts)) facts_forget(cache);
  if (!cache->facts) {
    bool *take = rows_subsample(e, work / row_work(e));
    cache->facts = calloc(1, sizeof *cache->facts);
    status = take && cache->facts ? facts_alloc(e, take, cache->facts)
                                  : attn_fail(ATTN_ENOMEM, "no memory for the facts of a run");
    if (!status) status = facts_fill(e, take, cache->facts);
    free(take);
    if (status) facts_forget(cache);
  }
  *out = cache->facts;
  return status;
}

attn_status facts_seen(const evidence *e, const seen_keys **out, const int64_t **place) {
  const struct run_facts *f = NULL;
  const attn_status status = facts_get(e, &f);
  if (status) return status;
  *out = &f->seen;
  *place = f->place;
  return ATTN_OK;
}

attn_status facts_check(const evidence *e, facts_judge *judge, result_bound *bound) {
  const attn_problem *p = e->problem;
  const struct run_facts *f = NULL;
  outcome worst = OUTCOME_NONE;
  double *given = malloc((size_t)p->d_v * sizeof *given);
  attn_status status = given ? facts_get(e, &f) : attn_fail(ATTN_ENOMEM, "no memory for an output row");
  for (int64_t r = 0; !status && r < f->count; r++) {
    row_widen(e->o, p->dtype, row_offset(p, f->rows[r].row, p->d_v), p->d_v, given);
    outcome_worsen(&worst, judge(e, &f->rows[r], given));
  }
  if (!status) outcome_to_verdict(&worst, bound);
  free(given);
  return status;
}

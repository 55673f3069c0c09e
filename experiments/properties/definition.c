/* definition.c - the output by its definition, from the view alone:
 *
 *   exact        softmax over every key that the mask leaves; of a store, over the numbers that it keeps; of
 *                latents, over the products of their factors; of a relocation, over keys as they are met
 *   a pattern    softmax over the keys that the law says (attn_pattern.sees), or the runs where blocks are
 *   drawn a selector   softmax over the keys that attn_plan_select gives, with their log-weights
 *   features     sum_j (f_q + eps).(e^(c_j - M) f_j + eps) v_j over the sum without v_j, M the largest c_j
 *   seen
 *   toeplitz     the same, each weight times e^b of the distance
 *   pooling      softmax over the last keys and the means of blocks
 *   residual     what a softmax has of a pattern's or a selector's keys, and features of the others, in one
 *   sum
 *   normaliser   the weights of its law, with the threshold for which they sum to 1, if they do
 *   recurrence   the recursion over the keys seen, by the law of its gates
 *   projection   softmax(scale q (E K)^T) F V with E and F as the projection gives them for the identity, or,
 *                of many keys, E K and F V as it gives them
 *   low rank     what checks/lowrank/defined.h makes of landmarks or picked rows, or the best approximation
 *
 * The map and the projection are called on all rows at once: how an engine cuts them into chunks and slices
 * does not enter. */
#include "experiments/properties/definition.h"

#include "experiments/checks/fixed/toeplitz_factor.h"
#include "experiments/checks/lowrank/defined.h"
#include "experiments/reference/exact_residual.h"
#include "experiments/reference/normalise.h"
#include "experiments/reference/pooled_row.h"
#include "experiments/reference/visible.h"

#include <math.h>
#include <stdlib.h>

bool definition_exists(const attn_view *v) {
  return v->pattern || v->selector || v->features || v->toeplitz || v->projection || v->low_rank ||
         v->residual || v->latent || v->pooling || (v->normaliser && v->normaliser->weight) ||
         (v->recurrence && v->recurrence->law && !v->recurrence->rounds) || v->caps & ATTN_CAP_EXACT ||
         (v->store && !v->store->reader);
}

bool definition_divides(const attn_view *v) {
  const attn_feature_map *map = v->toeplitz ? v->toeplitz->features : v->features;
  return !v->recurrence && !v->normaliser && !(map && map->unnormalised);
}

static int64_t kv_head_of(const definition *d) {
  return d->head / (d->in->problem.heads / d->in->problem.kv_heads);
}

/* Keys that exist. */
static int64_t keys_of(const definition *d) {
  return d->in->padded ? d->in->kv_len[d->batch] : d->in->problem.n_kv;
}

static double inner(const void *a, const double *b, int64_t d, attn_dtype t) {
  double sum = 0;
  for (int64_t l = 0; l < d; l++) sum += attn_get(a, l, t) * b[l];
  return sum;
}

/* -- features -- */

static const attn_feature_map *map_of(const definition *d) {
  const attn_view *v = d->view;
  return v->residual ? v->residual->features : v->toeplitz ? v->toeplitz->features : v->features;
}

static attn_status map_rows(definition *d, attn_side side, const void *x, double **out, double **scale) {
  const attn_problem *p = &d->in->problem;
  const attn_feature_map *map = map_of(d);
  const int64_t n = side == ATTN_QUERY ? p->n_q : p->n_kv, row = attn_padded(map->columns, p->dtype);
  void *f = aligned_alloc(64, (size_t)(n * row) * attn_dtype_size(p->dtype));
  double *to = *out = region_take(&d->memory, n * map->columns, sizeof *to),
         *c = *scale = region_zeros(&d->memory, n, sizeof *c);
  if (f && to && c) {
    const int64_t first = side == ATTN_QUERY ? attn_problem_position(p, 0) : 0;
    map->map(map->state, attn_plan_context(d->plan),
             &(attn_feature_rows){kv_head_of(d), side, x, p->d_qk, first, n}, f, row, c);
    for (int64_t i = 0; i < n * map->columns; i++)
      to[i] = attn_get(f, i / map->columns * row + i % map->columns, p->dtype);
  }
  free(f);
  return f && to && c ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the features of a definition");
}

static double feature_weight(const definition *d, int64_t i, int64_t j, double top, double *size) {
  const int64_t m = map_of(d)->columns;
  const double eps = map_of(d)->eps, factor = exp(d->scale[j] - top);
  double sum = 0;
  for (int64_t c = 0; c < m; c++) {
    const double x = (d->query[i * m + c] + eps) * (factor * d->key[j * m + c] + eps);
    sum += x;
    *size += fabs(x);
  }
  return sum;
}

static double feature_norm(const definition *d, const double *f) {
  double square = 0;
  for (int64_t c = 0; c < map_of(d)->columns; c++) square += pow(f[c] + map_of(d)->eps, 2);
  return sqrt(square);
}

/* Weights of the keys that the row sees (marked with 1), by the law of the bias; *size: of the products in
 * them, and what transforms in fp64 add, whose rounding is relative to all keys at all distances, as
 * roundings of the type. Infinite where that may be as large as their sum: the row may be NaN. */
static void toeplitz_weights(const definition *d, int64_t i, double *size) {
  const attn_problem *p = &d->in->problem;
  const attn_toeplitz *x = d->view->toeplitz;
  const int64_t m = map_of(d)->columns;
  double norms = 0, most = 0, sum = 0;
  for (int64_t j = 0; j < p->n_kv; j++) {
    for (int64_t l = 0; l<p->n_q; l += p->n_q> 1 ? p->n_q - 1 : 1)
      most = fmax(most, toeplitz_factor(x, p, d->batch, d->head, l, j));
    if (!(d->weights[j] > 0)) continue;
    const double factor = toeplitz_factor(x, p, d->batch, d->head, i, j);
    double own = 0;
    d->weights[j] = factor * feature_weight(d, i, j, 0, &own);
    sum += d->weights[j];
    *size += factor * own;
    norms += feature_norm(d, d->key + j * m);
  }
  const double n = (double)x->length, far = 0x1p-53 * feature_norm(d, d->query + i * m) * norms * most;
  *size += far / attn_numbers[p->dtype].unit;
  if (definition_divides(d->view) && !(fabs(sum) > 4 * (double)x->transforms * (10 * log2(n) + 4) * n * far))
    *size = (double)INFINITY;
}

/* -- projections -- */

/* E X of all rows at once, X [keys, width], into y [slots, width]; as many columns in a call as the engine
 * may ask for. Returns the slots in use. */
static int64_t project_whole(const definition *d, attn_side side, const void *x, int64_t width, void *y,
                             void *scratch) {
  const attn_problem *p = &d->in->problem;
  const attn_projection *e = d->view->projection;
  const int64_t columns = e->columns ? e->columns : p->d_qk < p->d_v ? p->d_qk : p->d_v;
  int64_t used = 0;
  for (int64_t first = 0; first < width; first += columns) {
    const attn_slab slab = {.head = kv_head_of(d),
                            .side = side,
                            .x = attn_at(x, first, p->dtype),
                            .x_row = width,
                            .rows = keys_of(d),
                            .d = width - first < columns ? width - first : columns,
                            .y = attn_at(y, first, p->dtype),
                            .y_row = width};
    used = e->project(e->state, attn_plan_context(d->plan), &slab, scratch);
  }
  return used;
}

/* Beyond so many keys E, as large as their square, is not written down: X itself is projected. */
enum { IDENTITY_MAX = 1024 };

/* E X, E the projection of the identity. */
static attn_status project_rows(const definition *d, attn_side side, const void *x, int64_t width,
                                double *out, int64_t *used) {
  const attn_dtype t = d->in->problem.dtype;
  const attn_projection *e = d->view->projection;
  const int64_t n = keys_of(d);
  const bool direct = n > IDENTITY_MAX;
  const size_t size = attn_dtype_size(t), columns = (size_t)(direct ? width : n);
  void *scratch = aligned_alloc(64, (e->scratch + 64) / 64 * 64),
       *unit = calloc(direct ? 1 : (size_t)n, columns * size), *y = malloc((size_t)e->slots * columns * size);
  attn_status status = ATTN_OK;
  if (!scratch || !unit || !y) {
    status = attn_fail(ATTN_ENOMEM, "no memory for the projection of a definition");
    goto out;
  }
  for (int64_t j = 0; j < n && !direct; j++) attn_set(unit, j * n + j, t, 1);
  *used = project_whole(d, side, direct ? x : unit, (int64_t)columns, y, scratch);
  for (int64_t s = 0; s < *used; s++)
    for (int64_t l = 0; l < width; l++) {
      double sum = direct ? attn_get(y, s * width + l, t) : 0;
      for (int64_t j = 0; j < n && !direct; j++)
        sum += attn_get(y, s * n + j, t) * attn_get(x, j * width + l, t);
      out[s * width + l] = sum;
    }
out:
  free(scratch);
  free(unit);
  free(y);
  return status;
}

/* -- all -- */

static attn_status record_rows(definition *d) {
  const trial_inputs *in = d->in;
  const int64_t count = in->problem.n_q;
  const seen_run run = {
      d->plan, d->view, {.q = in->q, .k = in->k, .v = in->v, .kv_len = in->padded ? in->kv_len : NULL}};
  sample_row *rows = region_take(&d->memory, count, sizeof *rows);
  if (region_status(&d->memory, "for the rows of a definition")) return ATTN_ENOMEM;
  for (int64_t i = 0; i < count; i++) rows[i] = (sample_row){d->batch, d->head, i};
  return seen_make(&run, rows, NULL, count, &d->seen);
}

/* -- low rank -- */

static void see(const definition *d, int64_t i);

static attn_status low_rank_rows(definition *d) {
  const attn_problem *p = &d->in->problem;
  const int64_t keys = keys_of(d), h = kv_head_of(d);
  const int64_t sizes[] = {p->n_q * p->d_qk, keys * p->d_qk, keys * p->d_v};
  const void *from[] = {trial_row(d->in, ATTN_QUERY, d->batch, d->head, 0),
                        trial_row(d->in, ATTN_KEY, d->batch, h, 0),
                        trial_row(d->in, ATTN_VALUE, d->batch, h, 0)};
  double *wide = region_take(&d->memory, sizes[0] + sizes[1] + sizes[2], sizeof *wide), *to = wide;
  bool *seen = region_take(&d->memory, p->n_q * keys, sizeof *seen);
  d->o = region_take(&d->memory, p->n_q * p->d_v, sizeof *d->o);
  d->amplified = region_take(&d->memory, p->n_q, sizeof *d->amplified);
  if (region_status(&d->memory, "for a definition")) return ATTN_ENOMEM;
  for (int s = 0; s < 3; s++)
    for (int64_t l = 0; l < sizes[s]; l++) *to++ = attn_get(from[s], l, p->dtype);
  for (int64_t i = 0; i < p->n_q; i++) {
    see(d, i);
    for (int64_t j = 0; j < keys; j++) seen[i * keys + j] = d->weights[j] > 0;
  }
  const low_rank_head head = {p->n_q,
                              keys,
                              p->d_qk,
                              p->d_v,
                              p->scale,
                              wide,
                              wide + sizes[0],
                              wide + sizes[0] + sizes[1],
                              seen,
                              attn_plan_context(d->plan)};
  return low_rank_output(d->view->low_rank, &head, attn_numbers[p->dtype].unit, d->o, d->amplified);
}

/* Keys and values of the head, by factors of those of all heads. */
static attn_status keep_latents(definition *d) {
  const attn_problem *p = &d->in->problem;
  latent_factors factors;
  attn_status status =
      latent_factors_make(d->plan, d->view->latent, d->in->k, d->in->v, d->batch, keys_of(d), &factors);
  if (!status) status = latent_copies_make(d->plan, &factors, 1, &d->kept);
  latent_factors_free(&factors);
  if (status) return status;
  d->kept.k = attn_at(d->kept.k, kv_head_of(d) * p->n_kv * p->d_qk, p->dtype);
  d->kept.v = attn_at(d->kept.v, kv_head_of(d) * p->n_kv * p->d_v, p->dtype);
  return ATTN_OK;
}

attn_status definition_make(const attn_plan *plan, const attn_view *view, const trial_inputs *in,
                            int64_t batch, int64_t head, definition *out) {
  const attn_problem *p = &in->problem;
  definition d = {.plan = plan, .view = view, .in = in, .batch = batch, .head = head};
  const int64_t h = kv_head_of(&d), slots = view->projection ? view->projection->slots : 0,
                head_runs = view->residual ? residual_runs(view->residual) : 1,
                mask_runs = visible_most_runs(view->pattern, p),
                runs = head_runs > mask_runs ? head_runs : mask_runs,
                most = p->n_kv > slots ? p->n_kv : slots;
  region *memory = &d.memory;
  d.weights = region_zeros(memory, most, sizeof *d.weights);
  d.runs = region_zeros(memory, runs, sizeof *d.runs);
  d.q = region_zeros(memory, p->d_qk, sizeof *d.q);
  d.met = region_zeros(memory, p->d_qk, sizeof *d.met);
  d.inside = region_zeros(memory, p->n_kv, sizeof *d.inside);
  d.index = region_zeros(memory, p->n_kv, sizeof *d.index);
  d.log_weights = region_zeros(memory, most, sizeof *d.log_weights);
  d.key = map_of(&d) ? NULL : region_zeros(memory, slots * (p->d_qk + p->d_v), sizeof *d.key);
  attn_status status = region_status(memory, "for a definition");
  if (!status && map_of(&d)) {
    status = map_rows(&d, ATTN_QUERY, trial_row(in, ATTN_QUERY, batch, head, 0), &d.query, &d.query_scale);
    if (!status) status = map_rows(&d, ATTN_KEY, trial_row(in, ATTN_KEY, batch, h, 0), &d.key, &d.scale);
  } else if (!status && view->projection) {
    status = project_rows(&d, ATTN_KEY, trial_row(in, ATTN_KEY, batch, h, 0), p->d_qk, d.key, &d.slots);
    if (!status)
      status = project_rows(&d, ATTN_VALUE, trial_row(in, ATTN_VALUE, batch, h, 0), p->d_v,
                            d.key + slots * p->d_qk, &d.slots);
  }
  attn_problem one = *p;
  one.batch = one.kv_heads = 1;
  one.k = one.v = (attn_stride){.batch = 0};
  if (!status && view->latent)
    status = keep_latents(&d);
  else if (!status)
    status = stored_copies_make(&one, view->store, trial_row(in, ATTN_KEY, batch, h, 0),
                                trial_row(in, ATTN_VALUE, batch, h, 0),
                                in->padded ? &in->kv_len[batch] : NULL, &d.kept);
  *out = d;
  if (!status) status = record_rows(out);
  if (!status && view->low_rank) status = low_rank_rows(out);
  if (status) definition_free(out);
  return status;
}

void definition_free(definition *d) {
  stored_copies_free(&d->kept);
  seen_free(&d->seen);
  region_free(&d->memory);
  *d = (definition){.slots = 0};
}

/* Marks with 1 the keys that row i sees, in d->weights; the others are 0. Their log-weights, by place among
 * them. */
static void see(const definition *d, int64_t i) {
  const attn_problem *p = &d->in->problem;
  visible_mark(seen_of(&d->seen, d->batch), p, d->batch, d->head, i, keys_of(d), d->runs, d->inside);
  for (int64_t j = 0; j < p->n_kv; j++) d->weights[j] = d->inside[j];
  int64_t count = 0;
  for (int64_t j = 0; j < p->n_kv; j++)
    if (d->inside[j]) d->index[count++] = j;
  seen_log_weights(&d->seen, &(sample_row){d->batch, d->head, i}, d->index, count, d->log_weights);
}

/* q.k of row i and key j, which stands at `key`. */
static double product_of(const definition *d, int64_t i, int64_t j, const void *key, attn_dtype type) {
  const attn_problem *p = &d->in->problem;
  const attn_relocation *x = d->view->relocation;
  double sum = 0;
  if (!x) return inner(key, d->q, p->d_qk, type);
  for (int64_t l = 0; l < p->d_qk; l++) d->met[l] = attn_get(key, l, type);
  x->meet(x->state, attn_problem_position(p, i), j, d->met);
  for (int64_t l = 0; l < p->d_qk; l++) sum += d->q[l] * d->met[l];
  return sum;
}

static void softmax_weights(const definition *d, int64_t i, const void *keys, attn_dtype type,
                            int64_t count) {
  const int64_t width = d->in->problem.d_qk;
  double top = -(double)INFINITY;
  for (int64_t j = 0, place = 0; j < count; j++) {
    if (!(d->weights[j] > 0)) {
      d->weights[j] = -(double)INFINITY;
      continue;
    }
    d->weights[j] = d->in->problem.scale * product_of(d, i, j, attn_at(keys, j * width, type), type) +
                    d->log_weights[place++];
    top = fmax(top, d->weights[j]);
  }
  for (int64_t j = 0; j < count; j++) d->weights[j] = exp(d->weights[j] - top);
}

/* By the law of a normaliser, of the keys that the row sees (marked with 1). */
static void normaliser_weights(const definition *d, int64_t i, const void *keys, attn_dtype type) {
  const attn_problem *p = &d->in->problem;
  const attn_normaliser *x = d->view->normaliser;
  const attn_call call = {.context = attn_plan_context(d->plan),
                          .kv_len = d->in->padded ? d->in->kv_len : NULL};
  double top = -(double)INFINITY, gates = 0;
  int64_t count = 0, at = attn_problem_position(p, i);
  if (at >= keys_of(d)) at = keys_of(d) - 1;
  for (int64_t l = 0; l < p->d_qk && x->columns; l++)
    d->q[l] *= l >= x->first && l < x->first + x->columns ? x->gain : 0;
  for (int64_t j = p->n_kv - 1; j >= 0; j--) {
    if (!(d->weights[j] > 0)) continue;
    for (; x->gate && at > j; at--) gates += x->gate(x->state, &call, d->batch, d->head, at);
    d->index[count] = j;
    d->log_weights[count] = p->scale * product_of(d, i, j, attn_at(keys, j * p->d_qk, type), type) + gates;
    top = fmax(top, d->log_weights[count++]);
  }
  for (int64_t a = 0; a < count && x->sums; a++) d->log_weights[a] -= top;
  const double tau = normalise_threshold(x, count, d->log_weights, 1, false);
  for (int64_t a = 0; a < count; a++)
    d->weights[d->index[a]] = x->weight(x->state, count, d->log_weights[a] - tau);
}

/* Weights of the head's keys and of the others, of those that the row sees (marked with 1); *size: of what is
 * added and taken out again. */
static attn_status residual_weights(const definition *d, int64_t i, const void *keys, double *size) {
  const attn_problem *p = &d->in->problem;
  const attn_residual *x = d->view->residual;
  double top = -(double)INFINITY;
  attn_status status = residual_mark(
      &(residual_run){d->plan, x, d->in->q, d->in->k, d->in->v, d->in->padded ? d->in->kv_len : NULL},
      &(sample_row){d->batch, d->head, i}, d->runs, d->inside);
  if (status) return status;
  const double gain = log(residual_gain(x->features)) + d->query_scale[i];
  for (int64_t j = 0; j < p->n_kv; j++) {
    if (!(d->weights[j] > 0)) continue;
    d->log_weights[j] = d->inside[j]
                            ? p->scale * inner(attn_at(keys, j * p->d_qk, p->dtype), d->q, p->d_qk, p->dtype)
                            : -(double)INFINITY;
    top = fmax(top, fmax(d->log_weights[j], gain + d->scale[j]));
  }
  for (int64_t j = 0; j < p->n_kv; j++) {
    if (!(d->weights[j] > 0)) continue;
    double own = 0;
    d->weights[j] = exp(gain + d->scale[j] - top) * feature_weight(d, i, j, d->scale[j], &own);
    own *= exp(gain + d->scale[j] - top);
    *size += own;
    if (!d->inside[j]) continue;
    d->weights[j] = exp(d->log_weights[j] - top);
    *size += own + d->weights[j];
  }
  return ATTN_OK;
}

/* r, turned back by these angles. */
static void turn_back(const attn_recurrence *x, const double *angles, double *r) {
  for (int64_t l = 0; l < x->turns; l++) {
    const double c = cos(angles[l]), s = sin(angles[l]), one = r[l], two = r[l + x->turns];
    r[l] = c * one + s * two;
    r[l + x->turns] = c * two - s * one;
  }
}

/* A row of a recurrence into o, from the keys that it sees (marked with 1), by the law of the gates. From
 * the last key back, r begins as q, a key adds c (k.r) (w + e) . v, e what the key behind it says of it, and
 * what earlier ones meet is r <- R^T diag(a) r, under the delta rule R^T diag(a) (r - (k.r) b . k). Returns
 * the magnitudes of the products, infinite where a state may overflow, and without memory. */
static double recurrent_row(const definition *d, int64_t i, double *o) {
  const attn_problem *p = &d->in->problem;
  const attn_recurrence *x = d->view->recurrence;
  const attn_call call = {.context = attn_plan_context(d->plan),
                          .q = d->in->q,
                          .k = d->in->k,
                          .v = d->in->v,
                          .kv_len = d->in->padded ? d->in->kv_len : NULL};
  const int64_t width = p->d_qk, betas = (x->betas > 1 ? x->betas : 1) + x->turns,
                last = attn_problem_position(p, i) - x->before;
  const bool vectors = x->betas > 1 && !x->carries;
  bool read = false;
  double *r = malloc((size_t)(3 * width + betas) * sizeof *r), *k = r + width, *logs = k + width,
         *beta = logs + width;
  double reach = 0, total = 0, again = 0, of_query = 0; /* unscaled and times the values; scaled; e */
  if (!r) return (double)INFINITY;
  for (int64_t l = 0; l < width; l++) of_query += d->q[l] * d->q[l];
  of_query = x->query_scale ? x->query_scale(x->state, width, of_query) : 1;
  for (int64_t l = 0; l < width; l++) r[l] = of_query * d->q[l];
  for (int64_t j = p->n_kv - 1; j >= 0; j--) {
    double square = 0, sum = 0, size = 0, most = 1, written = 1;
    if (!(d->weights[j] > 0) || j > last) continue;
    read = true;
    *beta = 1;
    x->law(x->state, &call, d->batch, d->head, j, logs, beta);
    for (int64_t l = 0; l < width; l++) {
      k[l] = attn_get(d->kept.k, j * width + l, p->dtype);
      square += k[l] * k[l];
    }
    for (int64_t l = 0; l < width; l++) {
      if (x->key_scale) k[l] *= x->key_scale(x->state, width, square);
      sum += k[l] * r[l];
      size += fabs(k[l] * r[l]);
    }
    /* Whatever the angles by which either is turned. */
    for (int64_t l = 0; l < x->turns; l++)
      size += 2 * hypot(k[l], k[l + x->turns]) * hypot(r[l], r[l + x->turns]);
    for (int64_t l = 0; l < p->d_v; l++) {
      const double w = beta[vectors ? width + l : 0] + again,
                   v = attn_get(d->kept.v, j * p->d_v + l, p->dtype);
      o[l] += p->scale * sum * w * v;
      most = fmax(most, fabs(w * v));
      written = l ? fmax(written, fabs(w)) : fabs(w);
    }
    reach += size * most;
    total += fabs(p->scale) * size * written;
    for (int64_t l = 0; l < width; l++) {
      if (x->delta) r[l] -= beta[vectors ? l : 0] * sum * k[l];
      r[l] *= exp(logs[x->columns ? l : 0]);
    }
    turn_back(x, beta + betas - x->turns, r);
    again = x->carries ? beta[1] : 0;
  }
  free(r);
  if (!read) return 1; /* zeros */
  return reach * fmax(1, fabs(p->scale)) < 0x1p-20 * attn_numbers[p->dtype].largest ? total
                                                                                    : (double)INFINITY;
}

/* May rounding have made the denominator? The row is NaN then. Magnitudes are bounded by norms, which are at
 * most a few times as large. */
static bool residual_lost(const definition *d, double sum, double size) {
  const attn_problem *p = &d->in->problem;
  const double chain = (double)(p->n_kv + map_of(d)->columns + 256) * attn_numbers[p->dtype].unit;
  return !(sum > 8 * chain * size);
}

double definition_row(const definition *d, int64_t i, double *o) {
  const attn_problem *p = &d->in->problem;
  const int64_t slots = d->view->projection ? d->view->projection->slots : 0;
  const void *k = d->kept.k, *v = d->kept.v, *query = trial_row(d->in, ATTN_QUERY, d->batch, d->head, i);
  stored_copies_see(&d->kept, 0, i);
  if (d->view->latent && !latent_reads(d->view->latent, p, i)) {
    k = trial_row(d->in, ATTN_KEY, d->batch, kv_head_of(d), 0);
    v = trial_row(d->in, ATTN_VALUE, d->batch, kv_head_of(d), 0);
  }
  int64_t count = p->n_kv;
  attn_dtype type = p->dtype;
  double sum = 0, size = 0, top = -(double)INFINITY;
  for (int64_t l = 0; l < p->d_v; l++) o[l] = 0;
  if (keys_of(d) == 0) return 1;
  if (d->o) {
    for (int64_t l = 0; l < p->d_v; l++) o[l] = d->o[i * p->d_v + l];
    return d->amplified[i];
  }
  for (int64_t l = 0; l < p->d_qk; l++) d->q[l] = attn_get(query, l, p->dtype);
  if (d->view->projection) {
    count = d->slots;
    type = ATTN_F64;
    k = d->key;
    v = d->key + slots * p->d_qk;
    for (int64_t s = 0; s < count; s++) d->weights[s] = 1;
  } else {
    see(d, i);
    bool any = false;
    for (int64_t j = 0; j < count; j++) any = any || d->weights[j] > 0;
    if (!any) return 1; /* zeros */
  }
  if (d->view->recurrence) return recurrent_row(d, i, o);
  if (d->view->pooling) {
    for (int64_t j = 0; j < keys_of(d); j++)
      d->log_weights[j] = p->scale * inner(attn_at(k, j * p->d_qk, type), d->q, p->d_qk, type);
    pooled_row(d->view->pooling, p, d->batch, d->head, i, keys_of(d), d->log_weights, d->weights);
  } else if (d->view->residual) {
    if (residual_weights(d, i, k, &size)) size = (double)INFINITY;
  } else if (d->view->toeplitz) {
    toeplitz_weights(d, i, &size);
  } else if (d->view->features) {
    for (int64_t j = 0; j < count; j++)
      if (d->weights[j] > 0) top = fmax(top, d->scale[j]);
    for (int64_t j = 0; j < count; j++)
      if (d->weights[j] > 0) d->weights[j] = feature_weight(d, i, j, top, &size);
  } else if (d->view->normaliser) {
    normaliser_weights(d, i, k, type);
  } else {
    softmax_weights(d, i, k, type, count);
  }
  for (int64_t j = 0; j < count; j++) sum += d->weights[j];
  if (!map_of(d)) size = d->view->normaliser ? fmax(1, sum) : sum;
  if (d->view->pooling) sum = size = 1; /* a sink has the rest */
  if (!definition_divides(d->view)) sum = 1;
  for (int64_t j = 0; j < count; j++) /* a key that is not seen may have any value */
    for (int64_t l = 0; l < p->d_v && d->weights[j] != 0; l++)
      o[l] += d->weights[j] / sum * attn_get(v, j * p->d_v + l, type);
  if (d->view->residual && residual_lost(d, sum, size)) return (double)INFINITY;
  return size / fabs(sum);
}

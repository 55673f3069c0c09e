/* definition.c - the output by its definition, from the view alone:
 *
 *   exact        softmax over every key that the mask leaves; of a store, over the numbers that it keeps; of
 *                latents, over the products of their factors; of a relocation, over keys as they are met
 *   a pattern    softmax over the keys that the law says (attn_pattern.sees), or the runs where blocks are
 *                drawn
 *   a selector   softmax over the keys that attn_plan_select gives, with their log-weights
 *   features     sum_j (f_q + eps).(e^(c_j - M) f_j + eps) v_j over the sum without v_j, M the largest c_j
 *                seen
 *   toeplitz     the same, each weight times e^b of the distance
 *   pooling      softmax over the last keys and the means of blocks
 *   residual     what a softmax has of a pattern's or a selector's keys, and features of the others, in one
 *                sum
 *   normaliser   the weights of its law, with the threshold for which they sum to 1, if they do
 *   recurrence   the recursion over the keys seen, by the law of its gates
 *   projection   softmax(scale q (E K)^T) F V with E and F as the projection gives them for the identity
 *   low rank     what checks/lowrank/defined.h makes of landmarks or picked rows, or the best approximation
 *
 * The map is called on all rows at once: how an engine cuts them into chunks does not enter. */
#include "experiments/properties/definition.h"

#include "experiments/checks/fixed/toeplitz_factor.h"
#include "experiments/checks/lowrank/defined.h"
#include "experiments/checks/recurrences/gates.h"
#include "experiments/evidence/rounding/normaliser_bound.h"
#include "experiments/mathematics/vector.h"
#include "experiments/reference/exact_residual.h"
#include "experiments/reference/pooled_row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool definition_exists(const attn_view *v) {
  return v->pattern || v->selector || v->features || v->toeplitz || v->projection || v->low_rank ||
         v->residual || v->latent || v->pooling || (v->normaliser && v->normaliser->weight) ||
         (v->recurrence && v->recurrence->law && !v->recurrence->rounds) || v->caps & ATTN_CAP_EXACT ||
         (v->store && !v->store->reader);
}

static const attn_feature_map *map_of(const attn_view *v) {
  return v->residual ? v->residual->features : v->toeplitz ? v->toeplitz->features : v->features;
}

bool definition_divides(const attn_view *v) {
  const attn_feature_map *map = v->residual ? NULL : map_of(v);
  return !v->recurrence && !v->normaliser && !(map && map->unnormalised);
}

static const void *rows_of(const definition *d, attn_side side) {
  const attn_problem *p = d->e.problem;
  const int64_t head = side == ATTN_QUERY ? d->head.head : d->head.head / (p->heads / p->kv_heads);
  return trial_row(d->in, side, d->head.batch, head, 0);
}

/* -- what the rows of a head share -- */

static attn_status map_rows(definition *d, attn_side side, double **out, double **scale) {
  const attn_problem *p = d->e.problem;
  const attn_feature_map *map = map_of(d->e.view);
  const int64_t n = side == ATTN_QUERY ? p->n_q : p->n_kv, row = attn_padded(map->columns, p->dtype),
                first = side == ATTN_QUERY ? attn_problem_position(p, 0) : 0;
  void *f = aligned_alloc(64, (size_t)(n * row) * attn_dtype_size(p->dtype));
  *out = region_take(&d->memory, n * map->columns, sizeof **out);
  *scale = region_zeros(&d->memory, n, sizeof **scale);
  if (f && *out && *scale) {
    map->map(map->state, attn_plan_context(d->e.plan),
             &(attn_feature_rows){d->head.head / (p->heads / p->kv_heads), side, rows_of(d, side), p->d_qk,
                                  first, n},
             f, row, *scale);
    for (int64_t i = 0; i < n; i++) row_widen(f, p->dtype, i * row, map->columns, *out + i * map->columns);
  }
  free(f);
  return f && *out && *scale ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the features of a definition");
}

/* Slots of E and F in fp64. */
static attn_status project(definition *d) {
  const attn_problem *p = d->e.problem;
  projector by;
  projected_pair m = {.e = NULL};
  attn_status status = projector_make(&d->e, NULL, p, &by);
  if (!status) status = projected_pair_read(&by, d->head.head / (p->heads / p->kv_heads), d->head.keys, &m);
  if (!status) status = projected_slots_make(p, &m, d->head.k, d->head.v, 0x1p-53, &d->slots);
  projected_pair_free(&m);
  projector_free(&by);
  return status;
}

static attn_status record_rows(definition *d) {
  const int64_t count = d->e.problem->n_q;
  sample_row *rows = region_take(&d->memory, count, sizeof *rows);
  if (region_status(&d->memory, "for the rows of a definition")) return ATTN_ENOMEM;
  for (int64_t i = 0; i < count; i++) rows[i] = (sample_row){d->head.batch, d->head.head, i};
  return seen_make(&(seen_run){d->e.plan, d->e.view, evidence_tensors(&d->e)}, rows, NULL, count, &d->seen);
}

/* Keys and values as a store keeps them, or as factors of those of all heads give them. */
static attn_status keep_rows(definition *d) {
  const attn_problem *p = d->e.problem;
  const int64_t h = d->head.head / (p->heads / p->kv_heads);
  attn_problem one = *p;
  latent_factors factors;
  one.batch = one.kv_heads = 1;
  one.k = one.v = (attn_stride){.batch = 0};
  if (!d->e.view->latent)
    return stored_copies_make(&one, d->e.view->store, rows_of(d, ATTN_KEY), rows_of(d, ATTN_VALUE),
                              d->e.kv_len ? d->e.kv_len + d->head.batch : NULL, &d->kept);
  attn_status status = latent_factors_make(d->e.plan, d->e.view->latent, d->e.k, d->e.v, d->head.batch,
                                           d->head.keys, &factors);
  if (!status) status = latent_copies_make(d->e.plan, &factors, 1, &d->kept);
  latent_factors_free(&factors);
  if (status) return status;
  d->kept.k = attn_at(d->kept.k, h * p->n_kv * p->d_qk, p->dtype);
  d->kept.v = attn_at(d->kept.v, h * p->n_kv * p->d_v, p->dtype);
  return ATTN_OK;
}

/* Row i: its query, its support, and keys and values as it reads them. */
static void see(definition *d, int64_t i) {
  const attn_problem *p = d->e.problem;
  const attn_view *v = d->e.view;
  const attn_relocation *x = v->relocation;
  const bool kept = !v->latent || latent_reads(v->latent, p, i);
  row_space *s = &d->space;
  row_widen(rows_of(d, ATTN_QUERY), p->dtype, i * p->d_qk, p->d_qk, s->q);
  if (v->projection)
    row_support(&d->slots.head, NULL, 0, s);
  else
    row_see(&d->head, &d->seen, i, s);
  if (!v->latent && !v->store && !x) return;
  stored_copies_see(&d->kept, 0, i);
  row_widen(kept ? d->kept.k : rows_of(d, ATTN_KEY), p->dtype, 0, d->head.keys * p->d_qk, d->head.k);
  row_widen(kept ? d->kept.v : rows_of(d, ATTN_VALUE), p->dtype, 0, d->head.keys * p->d_v, d->head.v);
  for (int64_t a = 0; x && a < s->count; a++)
    x->meet(x->state, attn_problem_position(p, i), s->index[a], d->head.k + s->index[a] * p->d_qk);
}

static attn_status low_rank_rows(definition *d) {
  const attn_problem *p = d->e.problem;
  const int64_t keys = d->head.keys;
  double *q = region_take(&d->memory, p->n_q * p->d_qk, sizeof *q);
  bool *seen = region_take(&d->memory, p->n_q * keys, sizeof *seen);
  d->o = region_take(&d->memory, p->n_q * p->d_v, sizeof *d->o);
  d->amplified = region_take(&d->memory, p->n_q, sizeof *d->amplified);
  if (region_status(&d->memory, "for a definition")) return ATTN_ENOMEM;
  row_widen(rows_of(d, ATTN_QUERY), p->dtype, 0, p->n_q * p->d_qk, q);
  for (int64_t i = 0; i < p->n_q; i++) {
    see(d, i);
    memcpy(seen + i * keys, d->space.inside, (size_t)keys * sizeof *seen);
  }
  const low_rank_head head = {.n_q = p->n_q,
                              .keys = keys,
                              .d_qk = p->d_qk,
                              .d_v = p->d_v,
                              .scale = p->scale,
                              .q = q,
                              .k = d->head.k,
                              .v = d->head.v,
                              .seen = seen,
                              .context = attn_plan_context(d->e.plan)};
  return low_rank_output(d->e.view->low_rank, &head, attn_numbers[p->dtype].unit, d->o, d->amplified);
}

attn_status definition_make(const attn_plan *plan, const attn_view *view, const trial_inputs *in,
                            int64_t batch, int64_t head, definition *d) {
  attn_problem larger = in->problem;
  *d = (definition){.in = in,
                    .e = {.plan = plan,
                          .problem = &in->problem,
                          .view = view,
                          .q = in->q,
                          .k = in->k,
                          .v = in->v,
                          .kv_len = in->padded ? in->kv_len : NULL}};
  if (view->projection && view->projection->slots > larger.n_kv) larger.n_kv = view->projection->slots;
  attn_status status = head_data_load(&d->e, batch, head, &d->head);
  if (!status) status = row_space_make(&larger, view->pattern, &d->space);
  if (!status) status = record_rows(d);
  if (!status && map_of(view)) {
    d->features.columns = map_of(view)->columns;
    status = map_rows(d, ATTN_QUERY, &d->features.query, &d->features.query_scale);
    if (!status) status = map_rows(d, ATTN_KEY, &d->features.key, &d->features.key_scale);
  }
  if (!status && view->projection) status = project(d);
  if (!status) status = keep_rows(d);
  /* A key that is not seen may have any value. */
  d->head.finite = d->slots.head.finite = true;
  if (!status && view->low_rank) status = low_rank_rows(d);
  if (status) definition_free(d);
  return status;
}

void definition_free(definition *d) {
  stored_copies_free(&d->kept);
  projected_slots_free(&d->slots);
  seen_free(&d->seen);
  row_space_free(&d->space);
  head_data_free(&d->head);
  region_free(&d->memory);
  *d = (definition){.in = NULL};
}

/* -- weights of the support into space->weight; each returns the sum of the magnitudes of what is added -- */

static double pooled_weights(definition *d, int64_t i) {
  const attn_problem *p = d->e.problem;
  const head_data *h = &d->head;
  row_space *s = &d->space;
  const attn_call call = evidence_call(&d->e);
  pooled_choice choice = {.kept = s->inside, .open = s->index};
  pooled_choose(d->e.view->pooling, &(attn_query){.call = &call, .batch = h->batch, .head = h->head, .i = i},
                h->keys, s->size, s->slack, &choice);
  if (choice.opened) return (double)INFINITY; /* rounding decides which entries the query sees */
  for (int64_t j = 0; j < h->keys; j++)
    s->score[j] = p->scale * vector_dot(s->q, h->k + j * p->d_qk, p->d_qk);
  pooled_row(d->e.view->pooling, p, h->batch, h->head, i, h->keys, s->score, s->inside, s->weight);
  return 1; /* a sink has the rest */
}

static double feature_weights(definition *d, int64_t i) {
  double size = 0;
  features_weigh(&d->features, map_of(d->e.view)->eps, i, &d->space);
  for (int64_t a = 0; a < d->space.count; a++) size += d->space.slack[a];
  return size;
}

static double feature_norm(const definition *d, const double *f) {
  double square = 0;
  for (int64_t c = 0; c < d->features.columns; c++) square += pow(f[c] + map_of(d->e.view)->eps, 2);
  return sqrt(square);
}

/* By the law of the bias; with what transforms in fp64 add, whose rounding is relative to all keys at all
 * distances, as roundings of the type. Infinite where that may be as large as their sum: the row may be
 * NaN. */
static double toeplitz_weights(definition *d, int64_t i) {
  const attn_problem *p = d->e.problem;
  const attn_toeplitz *x = d->e.view->toeplitz;
  row_space *s = &d->space;
  const int64_t m = d->features.columns, b = d->head.batch, h = d->head.head;
  const double unit = exp(features_weigh(&d->features, x->features->eps, i, s)), n = (double)x->length;
  double norms = 0, most = 0, sum = 0, size = 0;
  for (int64_t j = 0; j < p->n_kv; j++)
    most = fmax(most, fmax(toeplitz_factor(x, p, b, h, 0, j), toeplitz_factor(x, p, b, h, p->n_q - 1, j)));
  for (int64_t a = 0; a < s->count; a++) {
    const double factor = unit * toeplitz_factor(x, p, b, h, i, s->index[a]);
    s->weight[a] *= factor;
    sum += s->weight[a];
    size += factor * s->slack[a];
    norms += feature_norm(d, d->features.key + s->index[a] * m);
  }
  const double far = 0x1p-53 * feature_norm(d, d->features.query + i * m) * norms * most;
  if (definition_divides(d->e.view) &&
      !(fabs(sum) > 4 * (double)x->transforms * (10 * log2(n) + 4) * n * far))
    return (double)INFINITY;
  return size + far / attn_numbers[p->dtype].unit;
}

/* Of the exact keys and of the others; what is added and taken out again counts. */
static double residual_weights(definition *d, int64_t i) {
  const attn_residual *x = d->e.view->residual;
  const residual_run run = {d->e.plan, x, d->e.q, d->e.k, d->e.v, d->e.kv_len};
  row_space *s = &d->space;
  row_extremes scores;
  double size = 0;
  attn_run *runs = malloc((size_t)residual_runs(x) * sizeof *runs);
  const bool marked = runs && row_attend(&d->head, NULL, s, &scores) == ROW_OK &&
                      !residual_mark(&run, &(sample_row){d->head.batch, d->head.head, i}, runs, s->inside);
  free(runs);
  if (!marked) return (double)INFINITY;
  const double gain = features_weigh(&d->features, x->features->eps, i, s) + d->features.query_scale[i] +
                      log(residual_gain(x->features));
  double top = gain;
  for (int64_t a = 0; a < s->count; a++)
    if (s->inside[s->index[a]]) top = fmax(top, s->score[a]);
  for (int64_t a = 0; a < s->count; a++) {
    const double own = exp(gain - top) * s->slack[a];
    s->weight[a] *= exp(gain - top);
    size += own;
    if (!s->inside[s->index[a]]) continue;
    s->weight[a] = exp(s->score[a] - top);
    size += own + s->weight[a];
  }
  return size;
}

/* May rounding have made the denominator? The row is NaN then. Magnitudes are bounded by norms, which are at
 * most a few times as large. */
static bool residual_lost(const definition *d, double sum, double size) {
  const attn_problem *p = d->e.problem;
  const double chain = (double)(p->n_kv + d->features.columns + 256) * attn_numbers[p->dtype].unit;
  return !(sum > 8 * chain * size);
}

/* A row of a recurrence into o, from the keys that it sees, by the law of the gates. From the last key back,
 * r begins as q, a key adds (k.r) (w + e) . v, e what the key behind it says of it, and what earlier ones
 * meet is r <- R^T diag(a) r, under the delta rule R^T diag(a) (r - (k.r) b . k). Returns the magnitudes of
 * the products, infinite where a state may overflow, and without memory. */
static double recurrent_row(const definition *d, double *o) {
  const attn_problem *p = d->e.problem;
  const attn_recurrence *x = d->e.view->recurrence;
  const row_space *s = &d->space;
  const int64_t width = p->d_qk, last = recurrent_last(x, attn_problem_position(p, s->i), d->head.keys);
  const double scale = recurrent_query_scale(p, x, s->q);
  bool read = false;
  double *r = malloc((size_t)(3 * width + recurrent_betas(x)) * sizeof *r), *k = r + width,
         *decay = k + width, *beta = decay + width;
  double reach = 0, total = 0, again = 0; /* times the values; times what is written; e */
  double ones = 0;                        /* the sum of the row's weights */
  if (!r) return (double)INFINITY;
  for (int64_t l = 0; l < width; l++) r[l] = scale * s->q[l];
  for (int64_t a = s->count - 1; a >= 0; a--) {
    const int64_t j = s->index[a];
    double sum = 0, size = 0, most = 1, written = 1;
    recurrent_key key;
    if (j > last) continue;
    read = true;
    recurrent_key_make(&d->e, &d->head, j, k, decay, beta, &key);
    for (int64_t l = 0; l < width; l++) {
      sum += k[l] * r[l];
      size += fabs(k[l] * r[l]);
    }
    /* Whatever the angles by which either is turned. */
    for (int64_t l = 0; l < x->turns; l++)
      size += 2 * hypot(k[l], k[l + x->turns]) * hypot(r[l], r[l + x->turns]);
    for (int64_t l = 0; l < p->d_v; l++) {
      const double w = beta[recurrent_vectors(x) ? width + l : 0] + again, v = d->head.v[j * p->d_v + l];
      o[l] += sum * w * v;
      most = fmax(most, fabs(w * v));
      written = l ? fmax(written, fabs(w)) : fabs(w);
    }
    ones += sum * (beta[0] + again);
    reach += size * most;
    total += size * written;
    for (int64_t l = 0; l < width; l++) {
      if (x->delta) r[l] -= beta[recurrent_vectors(x) ? l : 0] * sum * k[l];
      r[l] *= decay[x->columns ? l : 0];
    }
    recurrent_turn(x, beta + recurrent_angles(x), -1, r);
    again = x->carries ? beta[1] : 0;
  }
  free(r);
  if (!read) return 1; /* zeros */
  const double by = x->normalised ? fmax(fabs(ones), 1) : 1;
  for (int64_t l = 0; l < p->d_v; l++) o[l] /= by;
  if (x->normalised) total = total / by * (1 + total / by);
  return reach <= 0x1p-20 * attn_numbers[p->dtype].largest * fmin(1, fabs(p->scale)) ? total
                                                                                     : (double)INFINITY;
}

double definition_row(definition *d, int64_t i, double *o) {
  const attn_view *v = d->e.view;
  const head_data *h = v->projection ? &d->slots.head : &d->head;
  const int64_t d_v = d->e.problem->d_v;
  row_space *s = &d->space;
  row_extremes scores;
  double sum = 0, size;
  memset(o, 0, (size_t)d_v * sizeof *o);
  if (d->o) memcpy(o, d->o + i * d_v, (size_t)d_v * sizeof *o);
  if (d->o) return d->amplified[i];
  see(d, i);
  if (s->count == 0) return 1; /* zeros */
  if (v->recurrence) return recurrent_row(d, o);
  if (!v->pooling && !map_of(v)) {
    const row_verdict verdict =
        v->normaliser ? normaliser_bound(&d->e, h, NULL, s) : row_attend(h, NULL, s, &scores);
    memcpy(o, s->o, (size_t)d_v * sizeof *o);
    for (int64_t a = 0; a < s->count; a++) sum += s->weight[a];
    return verdict == ROW_OK ? fmax(1, sum) : (double)INFINITY;
  }
  size = v->pooling    ? pooled_weights(d, i)
         : v->residual ? residual_weights(d, i)
         : v->toeplitz ? toeplitz_weights(d, i)
                       : feature_weights(d, i);
  for (int64_t a = 0; a < s->count; a++) sum += s->weight[a];
  if (v->residual && residual_lost(d, sum, size)) return (double)INFINITY;
  if (v->pooling || !definition_divides(v)) sum = 1;
  for (int64_t a = 0; a < s->count; a++)
    for (int64_t l = 0; l < d_v; l++) o[l] += s->weight[a] / sum * h->v[s->index[a] * d_v + l];
  return size / fabs(sum);
}

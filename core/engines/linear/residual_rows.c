/* residual_rows.c - a chunk of queries of a residual (residual.c): what the head has is taken out of the sums
 * over all keys, and the rest is joined with the head.
 *
 * It is taken out chunk by chunk of keys: the same features, from the same bits, times the same e^(c_j - M).
 * Of its own chunk a causal row adds only what the head has not. The two parts have scales of their own,
 * log-sum-exp and c_i + M + ln gain, and are joined in units of the larger. A row whose head has every key is
 * the head's, bit by bit, and one whose head has none is that of the features. */
#include "core/engines/linear/linear_engine.h"

#include <math.h>
#include <string.h>

void linear_residual_carve(const linear_shape *s, attn_carver *carver, linear_residual_room *r) {
  const size_t e = attn_dtype_size(s->t);
  const linear_residual *x = s->residual;
  *r = (linear_residual_room){.runs = attn_carve(carver, CHUNK, x->max_runs, sizeof *r->runs),
                              .counts = attn_carve(carver, CHUNK, 1, sizeof *r->counts),
                              .next = attn_carve(carver, CHUNK, 1, sizeof *r->next),
                              .exact = attn_carve(carver, CHUNK, 1, sizeof *r->exact),
                              .seen = attn_carve(carver, CHUNK, 1, sizeof *r->seen),
                              .left = attn_carve(carver, CHUNK, 1, sizeof *r->left),
                              .scale_q = attn_carve(carver, CHUNK, 1, sizeof(double)),
                              .reference = attn_carve(carver, CHUNK, 1, sizeof(double)),
                              .size = attn_carve(carver, CHUNK, 1, sizeof(double)),
                              .norms = attn_carve(carver, CHUNK, 1, sizeof(double)),
                              .numerators = attn_carve(carver, CHUNK, s->v_row, e),
                              .fk = attn_carve(carver, CHUNK, s->f_row, e),
                              .weights = attn_carve(carver, CHUNK, 1, e),
                              .mask = attn_carve(carver, CHUNK, 1, e),
                              .picker = {.memory = attn_carve(carver, 1, 1, x->picker_bytes)}};
  for (int64_t i = 0; i <= SLOTS; i++)
    r->slots[i] = (linear_slot){.features = attn_carve(carver, s->columns, CHUNK, e),
                                .scales = attn_carve(carver, CHUNK, 1, sizeof(double))};
}

static attn_run *runs_of(const linear_shape *s, const linear_worker *w, int64_t i) {
  return w->residual.runs + i * s->residual->max_runs;
}

/* The first key of a row's runs; INT64_MAX: they have none. */
static int64_t first_key(const attn_run *runs, int64_t count) {
  int64_t first = INT64_MAX;
  for (int64_t r = 0; r < count; r++) {
    if (runs[r].count) first = attn_min(first, runs[r].first);
    if (runs[r].count && runs[r].step == 1) break;
  }
  return first;
}

void linear_residual_find(const linear_shape *s, linear_worker *w, const linear_queries *x) {
  linear_residual_room *r = &w->residual;
  const linear_residual *own = s->residual;
  const attn_problem of_head = attn_call_problem(x->call, x->h->batch, x->head), *p = &of_head;
  const int64_t keys = x->h->keys;
  if (!own->pattern && !r->picker.call)
    r->picker = attn_selection_picker(own->head, &own->call, r->picker.memory);
  for (int64_t i = 0; i < x->count; i++) {
    attn_run *runs = runs_of(s, w, i);
    const int64_t row = x->first + i,
                  all = own->pattern ? attn_pattern_row(own->pattern, p, x->head, row, runs)
                                     : attn_picker_row(&r->picker, x->h->batch, x->head, row, runs);
    r->counts[i] = r->exact[i] = 0;
    for (int64_t k = 0; k < all; k++) {
      attn_run run = runs[k];
      if (run.first >= keys) continue;
      run.count = attn_min(run.count, (keys - run.first - 1) / run.step + 1);
      r->exact[i] += run.count;
      runs[r->counts[i]++] = run;
    }
    r->next[i] = first_key(runs, r->counts[i]);
    r->seen[i] = p->causal ? attn_min(attn_problem_position(p, row) + 1, keys) : keys;
  }
}

static int64_t tag_of(const linear_shape *s, const linear_head *h, int64_t chunk) {
  return (h->batch * s->p->kv_heads + h->head) * attn_ceil_div(s->p->n_kv, CHUNK) + chunk + 1;
}

/* That of a chunk of keys; not the one in which those of the queries' own chunk are kept. */
static linear_slot *slot_of(linear_residual_room *r, int64_t chunk, int64_t tag) {
  linear_slot *slot = &r->slots[chunk % SLOTS];
  return r->own && slot->tag == r->own && tag != r->own ? &r->slots[SLOTS] : slot;
}

static const linear_slot *features_of(const linear_shape *s, linear_worker *w, const linear_head *h,
                                      int64_t chunk) {
  const int64_t tag = tag_of(s, h, chunk), j = chunk * CHUNK, keys = attn_min(CHUNK, h->keys - j);
  linear_slot *slot = slot_of(&w->residual, chunk, tag);
  if (slot->tag == tag) return slot;
  linear_worker other = *w;
  other.fk = w->residual.fk;
  other.scale_k = slot->scales;
  linear_map(
      s, &other,
      &(attn_feature_rows){h->head, ATTN_KEY, attn_row_behind(h->k, s->p->k, j, s->t), s->p->k.row, j, keys});
  s->simd->transpose(keys, s->columns, other.fk, s->f_row, slot->features, CHUNK);
  slot->tag = tag;
  return slot;
}

void *linear_residual_keep(const linear_shape *s, linear_worker *w, const linear_head *h, int64_t chunk,
                           int64_t keys) {
  linear_residual_room *r = &w->residual;
  linear_slot *slot = &r->slots[chunk % SLOTS];
  slot->tag = r->own = tag_of(s, h, chunk);
  memcpy(slot->scales, w->scale_k, (size_t)keys * sizeof(double));
  for (int64_t j = 0; s->residual->norms && j < keys; j++)
    r->norms[j] = sqrt(attn_square_row(s->simd, s->columns, attn_at(w->fk, j * s->f_row, s->t)));
  return slot->features;
}

/* A chunk of keys of which the head has some, in numbers of the first. */
typedef struct part {
  int64_t first, end;
  const void *features, *values;
  int64_t v_row;
} part;

/* The keys of the part that query i takes out: from *low to *high - 1. */
static void hull(const linear_shape *s, const linear_worker *w, const part *c, int64_t i, int64_t *low,
                 int64_t *high) {
  const attn_run *runs = runs_of(s, w, i);
  for (int64_t k = 0; k < w->residual.counts[i]; k++) {
    if (!runs[k].count) continue;
    if (runs[k].first >= c->end && runs[k].step == 1) break;
    if (runs[k].first >= c->end) continue;
    const int64_t count = attn_min(runs[k].count, (c->end - runs[k].first - 1) / runs[k].step + 1);
    *low = attn_min(*low, runs[k].first - c->first);
    *high = attn_max(*high, runs[k].first + (count - 1) * runs[k].step + 1 - c->first);
  }
}

/* The mask <- the weights of the part's keys that query i takes out, 0 of the others; its runs go on behind
 * the part. */
static void take_out_weights(const linear_shape *s, linear_worker *w, const part *c, int64_t i) {
  linear_residual_room *r = &w->residual;
  const size_t e = attn_dtype_size(s->t);
  attn_run *runs = runs_of(s, w, i);
  memset(r->mask, 0, CHUNK * e);
  for (int64_t k = 0; k < r->counts[i]; k++) {
    attn_run *run = &runs[k];
    if (!run->count) continue;
    if (run->first >= c->end && run->step == 1) break;
    if (run->first >= c->end) continue;
    const int64_t count = attn_min(run->count, (c->end - run->first - 1) / run->step + 1),
                  at = run->first - c->first;
    if (run->step == 1) memcpy(attn_at(r->mask, at, s->t), attn_at(r->weights, at, s->t), (size_t)count * e);
    for (int64_t l = 0; run->step > 1 && l < count; l++)
      memcpy(attn_at(r->mask, at + l * run->step, s->t), attn_at(r->weights, at + l * run->step, s->t), e);
    run->first += count * run->step;
    run->count -= count;
  }
  r->next[i] = first_key(runs, r->counts[i]);
}

/* Queries i ... i + count - 1 of the chunk. Their scores are computed where some of them takes keys out; but
 * a row is summed from fixed places on, so that it does not depend on the others: all of it here, and in the
 * product, which adds up AT_A_TIME keys at once, from a multiple of that. */
static void subtract_part(const linear_shape *s, linear_worker *w, const part *c, int64_t i, int64_t count) {
  enum { AT_A_TIME = 64 };
  linear_residual_room *r = &w->residual;
  const int64_t line = 64 / (int64_t)attn_dtype_size(s->t);
  int64_t low = CHUNK, high = 0;
  for (int64_t l = i; l < i + count; l++)
    if (r->next[l] < c->end) hull(s, w, c, l, &low, &high);
  if (!high) return;
  low = low / line * line; /* where rows of features may be read from */
  const int64_t first = low / AT_A_TIME * AT_A_TIME;
  memset(w->scores, 0, (size_t)(count * CHUNK) * attn_dtype_size(s->t));
  attn_product(s->simd, count, high - low, s->columns,
               (attn_matrix){attn_at(w->fq, i * s->f_row, s->t), s->f_row, 1},
               attn_at(c->features, low, s->t), CHUNK, false, attn_at(w->scores, low, s->t), CHUNK);
  for (int64_t l = 0; l < count; l++) {
    void *row = attn_at(w->scores, l * CHUNK, s->t);
    if (r->next[i + l] >= c->end) {
      memset(row, 0, CHUNK * attn_dtype_size(s->t));
      continue;
    }
    take_out_weights(s, w, c, i + l);
    const double sum = s->simd->weigh_row(CHUNK, row, r->mask, 0);
    w->sums[i + l] += sum;
    if (!s->residual->norms) r->size[i + l] -= sum;
  }
  attn_product(s->simd, count, s->p->d_v, high - first,
               (attn_matrix){attn_at(w->scores, first, s->t), CHUNK, 1},
               attn_at(c->values, first * c->v_row, s->t), c->v_row, true,
               attn_at(r->numerators, i * s->v_row, s->t), s->v_row);
}

/* Values that end where vectors do are read where they are. */
static void find_values(const linear_shape *s, linear_worker *w, const linear_head *h, part *c) {
  const int64_t d = s->p->d_v, keys = c->end - c->first;
  const void *v = attn_row_behind(h->v, s->p->v, c->first, s->t);
  const bool plain = !s->p->v.stored && d * (int64_t)attn_dtype_size(s->t) % 64 == 0;
  for (int64_t j = 0; j < keys && !plain; j++)
    attn_load_row(s->simd, attn_stored(s->p->v, s->t), d, attn_row_behind(v, s->p->v, j, s->t),
                  attn_at(w->values, j * s->v_row, s->t));
  c->values = plain ? v : w->values;
  c->v_row = plain ? s->p->v.row : s->v_row;
}

void linear_residual_subtract(const linear_shape *s, linear_worker *w, const linear_queries *x,
                              int64_t before, const linear_state *all) {
  linear_residual_room *r = &w->residual;
  const int64_t end = attn_min(before, x->h->keys);
  for (int64_t i = 0; i < x->count; i++) {
    r->reference[i] = *all->reference;
    r->size[i] = w->sums[i];
    if (!s->residual->norms) continue;
    /* By Cauchy and Schwarz; what is taken out is part of the whole. */
    const void *f = attn_at(w->fq, i * s->f_row, s->t);
    r->size[i] = 2 * sqrt(attn_square_row(s->simd, s->columns, f)) * *all->norms;
  }
  for (;;) {
    int64_t next = INT64_MAX;
    for (int64_t i = 0; i < x->count; i++) next = attn_min(next, r->next[i]);
    if (next >= end) break;
    const int64_t chunk = next / CHUNK;
    const linear_slot *slot = features_of(s, w, x->h, chunk);
    part c = {.first = chunk * CHUNK, .end = attn_min((chunk + 1) * CHUNK, end), .features = slot->features};
    find_values(s, w, x->h, &c);
    for (int64_t j = 0; j < c.end - c.first; j++)
      attn_set(r->weights, j, s->t, -linear_rescale(s, slot->scales[j], *all->reference));
    for (int64_t i = 0; i < x->count; i += STEP) subtract_part(s, w, &c, i, attn_min(STEP, x->count - i));
  }
  for (int64_t i = 0; i < x->count; i++) {
    r->left[i] = attn_max(0, r->seen[i] - end);
    for (int64_t k = 0; k < r->counts[i]; k++) r->left[i] -= runs_of(s, w, i)[k].count;
  }
}

/* ---- of the own chunk of causal queries -------------------------------------------------------------- */

const void *linear_residual_weights(const linear_shape *s, linear_worker *w, int64_t i, int64_t first,
                                    int64_t seen) {
  linear_residual_room *r = &w->residual;
  if (!r->left[i]) return NULL;
  const attn_run *runs = runs_of(s, w, i);
  memcpy(r->mask, w->weights, (size_t)seen * attn_dtype_size(s->t));
  for (int64_t k = 0; k < r->counts[i]; k++)
    for (int64_t l = 0; l < runs[k].count; l++)
      attn_set(r->mask, runs[k].first + l * runs[k].step - first, s->t, 0);
  return r->mask;
}

void linear_residual_rescale(const linear_shape *s, linear_worker *w, int64_t i, int64_t seen, double factor,
                             double added, double reference) {
  linear_residual_room *r = &w->residual;
  if (s->residual->norms) {
    added = 0;
    for (int64_t j = 0; j < seen; j++) added += attn_get(w->weights, j, s->t) * r->norms[j];
    added *= sqrt(attn_square_row(s->simd, s->columns, attn_at(w->fq, i * s->f_row, s->t)));
  }
  r->size[i] = factor * r->size[i] + added;
  r->reference[i] = reference;
}

/* ---- the join ---------------------------------------------------------------------------------------- */

void linear_residual_join(const linear_shape *s, linear_worker *w, const linear_queries *x) {
  linear_residual_room *r = &w->residual;
  const linear_residual *own = s->residual;
  const attn_problem *p = s->p;
  double *lse = own->call.lse + (x->h->batch * p->heads + x->head) * p->n_q + x->first;
  for (int64_t i = 0; i < x->count; i++) {
    void *o = attn_at(x->o, i * p->o.row, s->t);
    const void *numerator = attn_at(r->numerators, i * s->v_row, s->t);
    const double unit = r->scale_q[i] + r->reference[i] + own->gain;
    if (r->exact[i] == r->seen[i]) continue;
    if (!r->exact[i]) {
      s->simd->divide_row(p->d_v, numerator, w->sums[i], o);
      lse[i] = unit + log(w->sums[i]);
      continue;
    }
    const double larger = linear_raise(lse[i], unit), head = exp(lse[i] - larger), rest = exp(unit - larger),
                 sum = head + rest * w->sums[i];
    if (!(sum > own->rounding * (head + rest * r->size[i]))) {
      for (int64_t l = 0; l < p->d_v; l++) attn_set(o, l, s->t, (double)NAN);
      lse[i] = (double)NAN;
      continue;
    }
    s->simd->combine_rows(p->d_v, head / sum, o, rest / sum, numerator, o);
    lse[i] = larger + log(sum);
  }
}

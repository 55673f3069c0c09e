/* linear_back_block.c - the gradients of a chunk of keys and queries: those that meet within it by the lower
 * triangle of f_q f_k^T, all others by states. linear_back.c has the formulas. */
#include "core/engines/linear/linear_engine.h"

#include <string.h>

/* The first query of a head among all. */
static int64_t line_of(const linear_back *b, const linear_block *k, int64_t head) {
  return (k->h->batch * b->s->p->heads + head) * b->s->p->n_q + k->query;
}

/* The first key among all, and the gradient by its value. */
static int64_t key_line(const linear_back *b, const linear_block *k) {
  return (k->h->batch * b->s->p->kv_heads + k->h->head) * b->s->p->n_kv + k->key;
}
static void *dv_at(const linear_back *b, const linear_block *k) {
  return attn_at(b->of->dv, key_line(b, k) * b->s->p->d_v, b->s->t);
}

static const void *upstream_at(const linear_back *b, const linear_block *k, int64_t head, int64_t i) {
  return attn_row(b->of->d_o, b->of->d_o_at, k->h->batch, head, k->query + i, b->s->t);
}

/* The queries of a head, mapped. */
static attn_feature_rows map_queries(linear_back *b, const linear_block *k, int64_t head) {
  const attn_stride at = b->s->p->q;
  const void *q = attn_row(b->call->q, at, k->h->batch, head, k->query, b->s->t);
  const int64_t first = attn_call_position(b->call, k->h->batch, k->query);
  const attn_feature_rows rows = {k->h->head, ATTN_QUERY, q, at.row, first, k->queries};
  linear_map(b->s, &b->w, &rows);
  return rows;
}

/* b->g and b->dz <- the gradients by numerators and denominators. */
static void take_upstream(linear_back *b, const linear_block *k, int64_t head) {
  const linear_shape *s = b->s;
  const linear_back_row *row = b->rows + line_of(b, k, head);
  for (int64_t i = 0; i < k->queries; i++) {
    s->simd->divide_row(s->p->d_v, upstream_at(b, k, head, i), row[i].z, attn_at(b->g, i * s->v_row, s->t));
    attn_set(b->dz, i, s->t, row[i].dz);
  }
}

/* -- pairs within the block -- */

/* The scores w.scores_ij of the keys j that query i sees, 0 of others that are read: e^(c_j - M_i) f_i.f_j
 * and the term of eps, or the gradients by f_i.f_j, e^(c_j - M_i) (g_i.v_j + e_i). b->sums: of a row, or of
 * its g_i.v_j + e_i. */
static void weigh_pairs(linear_back *b, const linear_block *k, const linear_back_row *row, bool gradients) {
  const linear_shape *s = b->s;
  const bool eps = s->map->eps > 0 && !gradients;
  const void *a = gradients ? b->g : b->w.fq, *x = gradients ? b->value_columns : b->w.fk_transposed;
  const int64_t a_row = gradients ? s->v_row : s->f_row, depth = gradients ? s->p->d_v : s->columns;
  double reference = 0;
  for (int64_t i = 0, done = 0, read = 0; i < k->queries; i++) {
    void *to = attn_at(b->w.scores, i * CHUNK, s->t);
    if (i % STEP == 0) {
      read = attn_min(k->before + i + STEP, k->keys);
      attn_product(s->simd, attn_min(STEP, k->queries - i), read, depth,
                   (attn_matrix){attn_at(a, i * a_row, s->t), a_row, 1}, x, CHUNK, false, to, CHUNK);
    }
    const int64_t seen = attn_min(k->before + i + 1, k->keys);
    if (!i || row[i].reference != reference) done = 0;
    reference = row[i].reference;
    for (; done < seen; done++)
      attn_set(b->w.weights, done, s->t, linear_rescale(s, b->w.scale_k[done], reference));
    if (gradients) b->sums[i] = s->simd->weigh_row(seen, to, NULL, row[i].dz);
    const double sum = s->simd->weigh_row(seen, to, b->w.weights, eps ? attn_get(b->w.eps_term, i, s->t) : 0);
    if (!gradients) b->sums[i] = sum;
    memset(attn_at(to, seen, s->t), 0, (size_t)(read - seen) * attn_dtype_size(s->t));
  }
}

/* Queries whose pairs are multiplied at once: a zero must not multiply what is not finite. */
static int64_t step_of(const linear_shape *s, const void *x, int64_t row, int64_t rows, int64_t d) {
  return attn_all_finite(x, row, rows, d, s->t) ? STEP : 1;
}

/* df, rows of queries, += scores f, f of the keys. */
static void give_queries(linear_back *b, const linear_block *k) {
  const linear_shape *s = b->s;
  const int64_t step = step_of(s, b->w.fk, s->f_row, k->keys, s->columns);
  for (int64_t i = 0; i < k->queries; i += step)
    attn_product(s->simd, attn_min(step, k->queries - i), s->columns, attn_min(k->before + i + step, k->keys),
                 (attn_matrix){attn_at(b->w.scores, i * CHUNK, s->t), CHUNK, 1}, b->w.fk, s->f_row, true,
                 attn_at(b->df, i * s->f_row, s->t), s->f_row);
}

/* out, rows of keys, += pairs^T x, x rows of queries: the same bits, whether rows of x are finite or not. */
static void give_keys(const linear_shape *s, const linear_block *k, const void *pairs, const void *x,
                      int64_t row, int64_t columns, void *out, int64_t out_row) {
  const int64_t step = step_of(s, x, row, k->queries, columns);
  for (int64_t i = 0; i < k->queries; i += STEP) {
    const int64_t rows = attn_min(STEP, k->queries - i), end = attn_min(k->before + i + rows, k->keys);
    for (int64_t j = 0, next; j < end; j = next) {
      /* Keys that all of the queries see come first, then each with those that see it. */
      const int64_t hidden = attn_max(0, j - k->before - i);
      next = j ? j + 1 : attn_min(k->before + i + step, end);
      attn_product(s->simd, next - j, columns, rows - hidden,
                   (attn_matrix){attn_at(pairs, (i + hidden) * CHUNK + j, s->t), 1, CHUNK},
                   attn_at(x, (i + hidden) * row, s->t), row, true, attn_at(out, j * out_row, s->t), out_row);
    }
  }
}

/* The keys, mapped, and columns of their values. */
static attn_feature_rows load_keys(linear_back *b, const linear_block *k) {
  const linear_shape *s = b->s;
  const void *at = attn_row_behind(k->h->k, s->p->k, k->key, s->t);
  const attn_feature_rows keys = {k->h->head, ATTN_KEY, at, s->p->k.row, k->key, k->keys};
  const void *v = attn_row_behind(k->h->v, s->p->v, k->key, s->t);
  linear_map(s, &b->w, &keys);
  for (int64_t j = 0; j < k->keys; j++)
    attn_load_row(s->simd, attn_stored(s->p->v, s->t), s->p->d_v, attn_row_behind(v, s->p->v, j, s->t),
                  attn_at(b->w.values, j * s->v_row, s->t));
  if (s->p->causal) s->simd->transpose(k->keys, s->p->d_v, b->w.values, s->v_row, b->value_columns, CHUNK);
  return keys;
}

/* df <- x state^T + dz z^T, of rows. The state is turned, which is less to turn than x and df. */
static void read_state(linear_back *b, linear_state state, int64_t rows, const void *x, const void *dz) {
  const linear_shape *s = b->s;
  s->simd->transpose(s->columns, s->p->d_v, state.sums, s->v_row, b->state_columns, s->f_row);
  attn_product(s->simd, rows, s->columns, s->p->d_v, (attn_matrix){x, s->v_row, 1}, b->state_columns,
               s->f_row, false, b->df, s->f_row);
  attn_product(s->simd, rows, s->columns, 1, (attn_matrix){dz, 1, 0}, state.z, 0, true, b->df, s->f_row);
}

static void pull_back(linear_back *b, const attn_feature_rows *x, attn_dtype stored, void *f,
                      const double *dscale, void *dx) {
  const linear_shape *s = b->s;
  const attn_matrix loaded = attn_load_rows(s->simd, stored, x->x, x->stride, x->rows, s->p->d_qk, b->w.rows);
  attn_feature_rows own = *x;
  own.x = loaded.at;
  own.stride = loaded.row;
  s->map->vjp(s->map->state, s->c, &own,
              &(attn_feature_gradients){f, b->df, s->f_row, dscale, dx, b->scratch});
}

/* -- states of queries -- */

/* Adds mapped queries, except what they pull by. */
static void sum_head(linear_back *b, const linear_block *k, int64_t head, linear_state to) {
  const linear_shape *s = b->s;
  linear_worker *w = &b->w;
  const linear_back_row *row = b->rows + line_of(b, k, head);
  for (int64_t i = 0; i < k->queries; i++) {
    const double factor = linear_rescale(s, *to.reference, row[i].reference);
    s->simd->scale_row(s->p->d_v, factor, attn_at(b->g, i * s->v_row, s->t),
                       attn_at(w->values, i * s->v_row, s->t));
    attn_set(w->weights, i, s->t, factor * row[i].dz);
  }
  attn_product(s->simd, s->columns, s->p->d_v, k->queries, (attn_matrix){w->fq, 1, s->f_row}, w->values,
               s->v_row, true, to.sums, s->v_row);
  attn_product(s->simd, 1, s->columns, k->queries, (attn_matrix){w->weights, 0, 1}, w->fq, s->f_row, true,
               to.z, 0);
  if (s->map->eps > 0)
    attn_product(s->simd, 1, s->p->d_v, k->queries, (attn_matrix){w->eps_term, 0, 1}, b->g, s->v_row, true,
                 attn_at(to.sums, s->columns * s->v_row, s->t), 0);
}

static void add_pulls(const linear_back *b, const linear_block *k, int64_t head, linear_state to) {
  const linear_back_row *row = b->rows + line_of(b, k, head);
  for (int64_t i = 0; i < k->queries; i++)
    if (row[i].reference == *to.reference) *to.keys += row[i].pull;
}

/* -- queries -- */

/* What is kept of the rows of mapped queries; w.scores: their pairs, where a denominator or dv takes them. */
static void keep_rows(linear_back *b, const linear_block *k, int64_t head, linear_state before) {
  const linear_shape *s = b->s;
  linear_back_row *row = b->rows + line_of(b, k, head);
  double reference = *before.reference;
  for (int64_t i = 0, j = 0; i < k->queries; i++) {
    for (; j < attn_min(k->before + i + 1, k->keys); j++)
      reference = linear_raise(reference, b->w.scale_k[j]);
    row[i] = (linear_back_row){.z = 1, .reference = reference};
    b->sums[i] = 0;
  }
  if (k->keys && (b->of->dv || !s->map->unnormalised)) weigh_pairs(b, k, row, false);
  if (s->map->unnormalised) return;
  for (int64_t i = 0; i < k->queries; i++) {
    row[i].z = linear_rescale(s, *before.reference, row[i].reference) *
                   s->simd->dot_row(s->columns, attn_at(b->w.fq, i * s->f_row, s->t), before.z) +
               b->sums[i];
    if (s->map->eps > 0) row[i].z += attn_get(b->w.eps_term, i, s->t) * *before.keys;
    attn_load_row(s->simd, attn_stored(s->p->o, s->t), s->p->d_v,
                  attn_row(b->call->o, s->p->o, k->h->batch, head, k->query + i, s->t), b->g);
    row[i].dz = -s->simd->dot_row(s->p->d_v, upstream_at(b, k, head, i), b->g) / row[i].z;
  }
}

/* What eps adds to the gradients by features f + eps, which become f again. */
static void add_eps(linear_back *b, const linear_block *k, linear_back_row *row, linear_state before) {
  const linear_shape *s = b->s;
  const double eps = s->map->eps;
  const void *values = attn_at(before.sums, s->columns * s->v_row, s->t);
  for (int64_t i = 0; i < k->queries; i++) {
    void *f = attn_at(b->w.fq, i * s->f_row, s->t), *df = attn_at(b->df, i * s->f_row, s->t);
    const double all = s->simd->dot_row(s->p->d_v, attn_at(b->g, i * s->v_row, s->t), values) +
                       row[i].dz * *before.keys + (k->keys ? b->sums[i] : 0);
    row[i].pull = s->simd->dot_row(s->columns, f, df);
    s->simd->weigh_row(s->columns, df, NULL, eps * all);
    s->simd->weigh_row(s->columns, f, NULL, -eps);
  }
}

static void queries_of_head(linear_back *b, const linear_block *k, int64_t head, linear_state before,
                            const linear_state *to) {
  const linear_shape *s = b->s;
  const bool gradients = b->of->dq || s->map->eps > 0;
  const attn_feature_rows rows = map_queries(b, k, head);
  linear_back_row *row = b->rows + line_of(b, k, head);
  keep_rows(b, k, head, before);
  take_upstream(b, k, head);
  if (k->keys && b->of->dv) give_keys(s, k, b->w.scores, b->g, s->v_row, s->p->d_v, dv_at(b, k), s->p->d_v);
  if (to) sum_head(b, k, head, *to);
  if (!gradients) return;
  read_state(b, before, k->queries, b->g, b->dz);
  for (int64_t i = 0; i < k->queries; i++) {
    const double factor = linear_rescale(s, *before.reference, row[i].reference);
    void *df = attn_at(b->df, i * s->f_row, s->t);
    if (factor != 1) s->simd->scale_row(s->columns, factor, df, df);
  }
  if (k->keys) {
    weigh_pairs(b, k, row, true);
    give_queries(b, k);
  }
  if (s->map->eps > 0) add_eps(b, k, row, before);
  if (to) add_pulls(b, k, head, *to);
  if (b->of->dq)
    pull_back(b, &rows, attn_stored(s->p->q, s->t), b->w.fq, NULL,
              attn_at(b->of->dq, line_of(b, k, head) * s->p->d_qk, s->t));
}

void linear_back_queries(linear_back *b, const linear_block *k, linear_state before, const linear_state *to) {
  const linear_shape *s = b->s;
  if (k->keys) {
    load_keys(b, k);
    s->simd->transpose(k->keys, s->columns, b->w.fk, s->f_row, b->w.fk_transposed, CHUNK);
  }
  if (!k->queries) return;
  const int64_t group = s->p->heads / s->p->kv_heads, head = k->h->head * group;
  for (int64_t g = 0; g < group; g++) queries_of_head(b, k, head + g, before, to);
}

/* -- keys -- */

/* The first key that attains a reference is given what it is pulled by. */
static void pull_key(const linear_back *b, const linear_block *k, double reference, double pull) {
  int64_t j = 0;
  while (j < k->keys && b->w.scale_k[j] != reference) j++;
  if (j < k->keys) b->dscale[j] -= pull;
}

/* From the queries after the block. */
static void take_after(linear_back *b, const linear_block *k, linear_state after) {
  const linear_shape *s = b->s;
  linear_worker *w = &b->w;
  for (int64_t j = 0; j < k->keys; j++) {
    const double weight = linear_rescale(s, w->scale_k[j], *after.reference);
    attn_set(w->weights, j, s->t, weight);
    s->simd->scale_row(s->p->d_v, weight, attn_at(w->values, j * s->v_row, s->t),
                       attn_at(b->g, j * s->v_row, s->t));
    b->dscale[j] = 0;
  }
  read_state(b, after, k->keys, b->g, w->weights);
  if (k->peak == *after.reference && k->reference < k->peak) pull_key(b, k, *after.reference, *after.keys);
  if (!b->of->dv) return;
  attn_product(s->simd, k->keys, s->p->d_v, s->columns, (attn_matrix){w->fk, s->f_row, 1}, after.sums,
               s->v_row, false, b->g, s->v_row);
  for (int64_t j = 0; j < k->keys; j++) {
    void *to = attn_at(dv_at(b, k), j * s->p->d_v, s->t);
    s->simd->combine_rows(s->p->d_v, attn_get(w->weights, j, s->t), attn_at(b->g, j * s->v_row, s->t), 1, to,
                          to);
    if (s->map->eps > 0)
      s->simd->combine_rows(s->p->d_v, 1, attn_at(after.sums, s->columns * s->v_row, s->t), 1, to, to);
  }
}

/* From the queries within it, which are mapped. */
static void take_pairs(linear_back *b, const linear_block *k, int64_t head) {
  const linear_shape *s = b->s;
  const linear_back_row *row = b->rows + line_of(b, k, head);
  for (int64_t i = 0; i < k->queries; i++)
    if (row[i].reference > k->reference) pull_key(b, k, row[i].reference, row[i].pull);
  weigh_pairs(b, k, row, true);
  give_keys(s, k, b->w.scores, b->w.fq, s->f_row, s->columns, b->df, s->f_row);
}

void linear_back_sum(linear_back *b, const linear_block *k, linear_state to) {
  if (k->reference != *to.reference) *to.keys = 0;
  linear_refer(b->s, to, k->reference, linear_rescale(b->s, k->reference, *to.reference));
  const int64_t group = b->s->p->heads / b->s->p->kv_heads;
  for (int64_t head = k->h->head * group; k->queries && head < (k->h->head + 1) * group; head++) {
    map_queries(b, k, head);
    take_upstream(b, k, head);
    if (k->keys) take_pairs(b, k, head);
    sum_head(b, k, head, to);
    add_pulls(b, k, head, to);
  }
}

void linear_back_keys(linear_back *b, const linear_block *k, linear_state after, linear_state part) {
  const linear_shape *s = b->s;
  const attn_problem *p = s->p;
  attn_feature_rows keys = {0};
  if (k->keys) {
    keys = load_keys(b, k);
    take_after(b, k, after);
  }
  linear_back_sum(b, k, part);
  if (!k->keys || !b->of->dk) return;
  for (int64_t j = 0; j < k->keys; j++)
    b->dscale[j] += s->simd->dot_row(s->columns, attn_at(b->w.fk, j * s->f_row, s->t),
                                     attn_at(b->df, j * s->f_row, s->t));
  pull_back(b, &keys, attn_stored(p->k, s->t), b->w.fk, b->dscale,
            attn_at(b->of->dk, key_line(b, k) * p->d_qk, s->t));
}

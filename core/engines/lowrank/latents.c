/* latents.c - keys and values of all kv heads as products of one latent vector a token (attn_latent): its
 * factors, and the rows of queries, keys and outputs on their way to latents and back. In fp64, rounded to
 * the type of the arithmetic. */
#include "core/internal.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* ---- factors ------------------------------------------------------------------------------------------ */

/* Where column `at` of what is factored stands in X. */
static int64_t column_of(const attn_latent *l, const attn_problem *p, int64_t at) {
  const int64_t d = p->d_qk - l->shared, of_keys = p->kv_heads * d;
  return at < of_keys ? at / d * p->d_qk + at % d : at + p->kv_heads * l->shared;
}

/* The matrix that is factored, of `keys` rows: X without what is shared. Its Gram matrix is that of its fewer
 * rows or columns; with a prompt of its columns, whose eigenvectors are orthonormal whatever its rank. */
typedef struct fit {
  int64_t keys, columns, side, length;
  bool tall;
  double *a; /* [side, length] */
  double *gram, *vectors, *values, *scratch;
} fit;

static fit fit_at(const attn_latent *l, const attn_problem *p, int64_t keys, attn_carver *carver) {
  const int64_t columns = p->kv_heads * (p->d_qk - l->shared + p->d_v),
                rows = l->prompt ? attn_min(l->prompt, keys) : keys;
  const bool tall = l->prompt || rows > columns;
  const int64_t side = tall ? columns : rows, length = tall ? rows : columns;
  return (fit){.keys = rows,
               .columns = columns,
               .side = side,
               .length = length,
               .tall = tall,
               .a = attn_carve(carver, side, length, sizeof(double)),
               .gram = attn_carve(carver, side, side, sizeof(double)),
               .vectors = attn_carve(carver, side, side, sizeof(double)),
               .values = attn_carve(carver, side, 1, sizeof(double)),
               .scratch = attn_carve(carver, side, 2, sizeof(double))};
}

size_t attn_latent_room(const attn_latent *l, const attn_problem *p) {
  attn_carver counter = {.base = NULL};
  if (l && p) fit_at(l, p, p->n_kv, &counter);
  return counter.used;
}

static void gram_of(const attn_context *c, const fit *f) {
#pragma omp parallel for num_threads(c->threads) schedule(dynamic, 8)
  for (int64_t i = 0; i < f->side; i++) {
    fenv_t outer;
    attn_float_enter(&outer);
    for (int64_t j = 0; j <= i; j++)
      f->gram[i * f->side + j] = f->gram[j * f->side + i] =
          attn_inner(f->a + i * f->length, f->a + j * f->length, f->length);
    attn_float_leave(&outer);
  }
}

/* Triplet e, of u, a left singular vector of a: a^T u is the right one times the singular value. */
static void triplet(const attn_latent *l, const attn_problem *p, const fit *f, double scale, int64_t e,
                    double *to_c, double *to_w) {
  const double *u = f->vectors + e * f->side;
  double *z = f->tall ? to_c : to_w;
  for (int64_t i = 0; i < f->side && !l->prompt; i++)
    attn_add_times(u[i], f->a + i * f->length, z, f->length);
  const double size = sqrt(attn_inner(z, z, f->length));
  for (int64_t j = 0; j < f->keys && !l->prompt; j++)
    to_c[j] = attn_rounded((f->tall ? z[j] : u[j] * size) / scale, p->dtype);
  for (int64_t at = f->columns - 1; at >= 0;
       at--) { /* where z is W's column, to places at or behind its own */
    const double value = f->tall ? u[at] : size > 0 ? z[at] / size : 0;
    to_w[at] = 0;
    to_w[column_of(l, p, at)] = attn_rounded(value, p->dtype);
  }
}

void attn_latent_project(const attn_latent *l, const attn_problem *p, const double *w, const double *x,
                         int64_t first, double *c, int64_t step) {
  if (!l || !p || !w || !x || !c) return;
  const int64_t width = p->kv_heads * (p->d_qk + p->d_v), free = l->rank - l->shared;
  for (int64_t e = first; e < l->rank; e++)
    c[e * step] =
        attn_rounded(attn_inner(w + e * width, x, width) / (e < free ? 1 : (double)p->kv_heads), p->dtype);
}

void attn_latent_factor(const attn_latent *l, const attn_context *c, int64_t keys, const double *x,
                        double *to_c, double *to_w, void *room) {
  if (!l || !c || !x || !to_c || !to_w || !room) return;
  const attn_problem *p = c->problem;
  const int64_t width = p->kv_heads * (p->d_qk + p->d_v), free = l->rank - l->shared;
  attn_carver carver = {.base = room};
  const fit f = fit_at(l, p, keys, &carver);
  const double scale = attn_unit_scale(f.keys * width, x);
  memset(to_c, 0, (size_t)(l->rank * keys) * sizeof *to_c);
  memset(to_w, 0, (size_t)(l->rank * width) * sizeof *to_w);
  for (int64_t at = 0; at < f.columns; at++)
    for (int64_t j = 0, own = column_of(l, p, at); j < f.keys; j++)
      f.a[f.tall ? at * f.keys + j : j * f.columns + at] = x[j * width + own] * scale;
  gram_of(c, &f);
  const bool found = attn_eigen(f.side, f.gram, f.vectors, f.values, f.scratch);
#pragma omp parallel for num_threads(c->threads) schedule(static)
  for (int64_t e = 0; e < (found ? attn_min(free, f.side) : 0); e++) {
    fenv_t outer;
    attn_float_enter(&outer);
    triplet(l, p, &f, scale, e, to_c + e * keys, to_w + e * width);
    attn_float_leave(&outer);
  }
  for (int64_t e = free; e < l->rank; e++)
    for (int64_t h = 1; h <= p->kv_heads; h++) to_w[e * width + h * p->d_qk - l->rank + e] = 1;
#pragma omp parallel for num_threads(c->threads) schedule(static)
  for (int64_t j = 0; j < keys; j++) {
    fenv_t outer;
    attn_float_enter(&outer);
    attn_latent_project(l, p, to_w, x + j * width, l->prompt ? 0 : free, to_c + j, keys);
    attn_float_leave(&outer);
  }
  for (int64_t i = 0; !found && i < l->rank * keys; i++) to_c[i] = (double)NAN;
}

/* ---- rows --------------------------------------------------------------------------------------------- */

attn_problem attn_latent_problem(const attn_latent *l, const attn_problem *problem) {
  if (!l || !problem) return (attn_problem){.batch = 0};
  attn_problem p = *problem;
  p.q = p.o = (attn_stride){.batch = 0};
  p.k = p.v = (attn_stride){.batch = p.n_kv * l->rank, .head = 0, .row = l->rank};
  p.d_qk = l->rank;
  p.d_v = l->rank - l->shared;
  return p;
}

void attn_latent_load(const attn_problem *p, const void *k, const void *v, int64_t batch, int64_t j,
                      double *x) {
  if (!p || !k || !v || !x) return;
  for (int64_t h = 0; h < p->kv_heads; h++) {
    attn_numbers[attn_stored(p->k, p->dtype)].load(attn_row(k, p->k, batch, h, j, p->dtype), p->d_qk,
                                                   x + h * p->d_qk);
    attn_numbers[attn_stored(p->v, p->dtype)].load(attn_row(v, p->v, batch, h, j, p->dtype), p->d_v,
                                                   x + p->kv_heads * p->d_qk + h * p->d_v);
  }
}

/* Row `at` of [batch, heads, n_q], as one of its head. */
typedef struct place {
  int64_t batch, head, i;
  const double *w; /* of the entry, from its kv head on */
} place;

static place place_of(const attn_latent *l, const attn_problem *p, const double *w, int64_t at, bool key) {
  const int64_t line = at / p->n_q, batch = line / p->heads, head = line % p->heads,
                h = head / (p->heads / p->kv_heads), width = p->kv_heads * (p->d_qk + p->d_v);
  w += batch * l->rank * width;
  return (place){batch, head, at % p->n_q, w + (key ? h * p->d_qk : p->kv_heads * p->d_qk + h * p->d_v)};
}

void attn_latent_absorb(const attn_latent *l, const attn_problem *p, const double *w, const void *q,
                        int64_t at, void *to, double *room) {
  if (!l || !p || !w || !q || !to || !room) return;
  const place x = place_of(l, p, w, at, true);
  const attn_dtype t = p->dtype;
  attn_numbers[attn_stored(p->q, t)].load(attn_row(q, p->q, x.batch, x.head, x.i, t), p->d_qk, room);
  for (int64_t e = 0; e < l->rank; e++)
    attn_set(to, at * l->rank + e, t, attn_inner(x.w + e * p->kv_heads * (p->d_qk + p->d_v), room, p->d_qk));
}

void attn_latent_expand(const attn_latent *l, const attn_problem *p, const double *w, const void *from,
                        int64_t at, void *o, double *room) {
  if (!l || !p || !w || !from || !o || !room) return;
  const place x = place_of(l, p, w, at, false);
  const attn_dtype t = p->dtype;
  const int64_t free = l->rank - l->shared;
  void *row = attn_row(o, p->o, x.batch, x.head, x.i, t);
  memset(room, 0, (size_t)p->d_v * sizeof *room);
  for (int64_t e = 0; e < free; e++)
    attn_add_times(attn_get(from, at * free + e, t), x.w + e * p->kv_heads * (p->d_qk + p->d_v), room,
                   p->d_v);
  for (int64_t d = 0; d < p->d_v; d++) attn_set(row, d, attn_stored(p->o, t), attn_rounded(room[d], t));
}

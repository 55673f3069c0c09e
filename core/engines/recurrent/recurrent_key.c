/* recurrent_key.c - see recurrent_key.h. With G the gradient by S_t and X_t = S_t-1, or S_t-1 + e_t k_t-1
 * v_t-1^T, S' = diag(a_t) R_t X_t:
 *   of queries that read S_t   G += c q do^T, dq = c S_t do
 *   of what is written         du = G^T k_t, dk_t = G u_t, dw_t = v_t . du, dv_t = w_t . du
 *   of delta besides           dc = -S' du, db_t = k_t . dc, dk_t += b_t . dc, G -= (b_t . k_t) du^T
 *   of S'                      d ln a_t = the rows of G . S', summed, and of row l and its pair m = l + turns
 *                              dangle_l = G_m.S'_l - G_l.S'_m; G <- R_t^T diag(a_t) G, that by X_t
 *   of the key before          de_t = k_t-1^T G v_t-1, dk_t-1 += e_t G v_t-1, dv_t-1 += e_t G^T k_t-1
 * Nothing is divided by a decay: S' is that of the forward recursion. */
#include "core/engines/recurrent/recurrent_key.h"

#include <math.h>
#include <string.h>

typedef recurrent_shape shape;
typedef recurrent_line line;
typedef recurrent_segment room;

room attn_recurrent_segment_carve(const shape *s, attn_carver *c) {
  const size_t e = attn_dtype_size(s->t);
  const int64_t d = s->p->d_qk;
  return (room){.k = attn_carve(c, ATTN_RECURRENT_SEGMENT + 1, d, e),
                .v = attn_carve(c, ATTN_RECURRENT_SEGMENT + 1, s->v_row, e),
                .asks = attn_carve(c, ATTN_RECURRENT_SEGMENT, d, e),
                .enters = attn_carve(c, ATTN_RECURRENT_SEGMENT, s->v_row, e),
                .decays = attn_carve(c, ATTN_RECURRENT_SEGMENT, s->rule->columns ? d : 1, sizeof(double)),
                .betas = attn_carve(c, ATTN_RECURRENT_SEGMENT, s->betas, sizeof(double)),
                .state = attn_carve(c, 1, recurrent_state_size(s), e),
                .blocks =
                    attn_carve(c, ATTN_RECURRENT_SEGMENT / ATTN_RECURRENT_BLOCK, recurrent_state_size(s), e),
                .met = attn_carve(c, ATTN_RECURRENT_BLOCK, recurrent_state_size(s), e),
                .written = attn_carve(c, ATTN_RECURRENT_BLOCK, s->v_row, e),
                .row = attn_carve(c, 1, d, e),
                .up = attn_carve(c, 1, s->v_row, e),
                .du = attn_carve(c, 1, s->v_row, e),
                .scratch = attn_carve(c, 1, attn_max(d, s->v_row), e),
                .product = attn_carve(c, 1, d, sizeof(double))};
}

/* -- products with a state m -- */

/* m += by x y^T */
static void add_outer(const shape *s, room *r, double by, const void *x, const void *y, void *m) {
  attn_scale_row(s->simd, s->p->d_qk, by, x, r->scratch);
  attn_product(s->simd, s->p->d_qk, s->p->d_v, 1, (attn_matrix){r->scratch, 1, 1}, y, s->v_row, true, m,
               s->v_row);
}
/* y <- m^T x */
static void read_state(const shape *s, const void *m, const void *x, void *y) {
  attn_product(s->simd, 1, s->p->d_v, s->p->d_qk, (attn_matrix){x, s->p->d_qk, 1}, m, s->v_row, false, y,
               s->v_row);
}
/* x <- m y */
static void read_rows(const shape *s, const void *m, const void *y, double *x) {
  for (int64_t l = 0; l < s->p->d_qk; l++)
    x[l] = s->simd->dot_row(s->p->d_v, recurrent_row(s, m, l, s->v_row), y);
}

/* m <- R m, or back. */
static void turn(const shape *s, room *r, const double *angles, bool back, void *m) {
  for (int64_t l = 0; l < s->rule->turns; l++) {
    const double c = cos(angles[l]), sine = back ? -sin(angles[l]) : sin(angles[l]);
    void *one = recurrent_row(s, m, l, s->v_row), *two = recurrent_row(s, m, l + s->rule->turns, s->v_row);
    s->simd->combine_rows(s->v_row, c, one, -sine, two, r->scratch);
    s->simd->combine_rows(s->v_row, sine, one, c, two, two);
    memcpy(one, r->scratch, (size_t)s->v_row * attn_dtype_size(s->t));
  }
}

/* -- a segment -- */

/* Number l of b, or of w, at key i of the segment. */
static double erase_of(const shape *s, const room *r, int64_t i, int64_t l) {
  return s->betas ? r->betas[i * s->betas + (s->vectors ? l : 0)] : 1;
}
static double write_of(const shape *s, const room *r, int64_t i, int64_t l) {
  return erase_of(s, r, i, s->p->d_qk + l);
}
static const double *angles_of(const shape *s, const room *r, int64_t i) {
  return r->betas + i * s->betas + s->rule->betas;
}
/* Does the key before enter once more? */
static bool carries(const shape *s, const line *x, int64_t i) { return s->rule->carries && x->first + i > 0; }

static void load_raw(const shape *s, const void *x, attn_stride at, const line *of, int64_t head, int64_t i,
                     int64_t d, void *to) {
  attn_load_row(s->simd, attn_stored(at, s->t), d, attn_row(x, at, of->batch, head, i, s->t), to);
}

void attn_recurrent_load_segment(const shape *s, room *r, line *x, int64_t first, int64_t count) {
  const attn_problem *p = s->p;
  const attn_recurrence *rule = s->rule;
  const int64_t d = p->d_qk, width = rule->columns ? d : 1;
  x->first = first;
  x->count = count;
  rule->gates(rule->state, x->call, x->batch, x->head, first, count, r->decays, s->betas ? r->betas : NULL);
  for (int64_t i = 0; i < count * width; i++) r->decays[i] = exp(r->decays[i]);
  for (int64_t i = first ? -1 : 0; i < count; i++) {
    void *k = recurrent_row(s, r->k, i + 1, d), *v = recurrent_row(s, r->v, i + 1, s->v_row);
    load_raw(s, x->call->k, p->k, x, x->kv_head, first + i, d, k);
    load_raw(s, x->call->v, p->v, x, x->kv_head, first + i, p->d_v, v);
    if (rule->key_scale)
      attn_scale_row(s->simd, d, rule->key_scale(rule->state, d, attn_square_row(s->simd, d, k)), k, k);
    for (int64_t l = 0; l < d && i >= 0; l++)
      attn_set(r->asks, i * d + l, s->t, erase_of(s, r, i, l) * attn_get(k, l, s->t));
    for (int64_t l = 0; l < p->d_v && i >= 0; l++)
      attn_set(r->enters, i * s->v_row + l, s->t, write_of(s, r, i, l) * attn_get(v, l, s->t));
  }
}

void attn_recurrent_meet_key(const shape *s, room *r, const line *x, int64_t i, void *m) {
  const int64_t width = s->rule->columns ? s->p->d_qk : 1;
  if (attn_document_begins(s->p, x->first + i)) {
    memset(m, 0, recurrent_state_bytes(s));
    return;
  }
  if (carries(s, x, i))
    add_outer(s, r, r->betas[i * s->betas + 1], recurrent_row(s, r->k, i, s->p->d_qk),
              recurrent_row(s, r->v, i, s->v_row), m);
  s->simd->scale_rows(s->p->d_qk, s->v_row, m, s->v_row, r->decays + i * width, s->rule->columns ? 1 : 0, m);
  turn(s, r, angles_of(s, r, i), false, m);
}

void attn_recurrent_write_key(const shape *s, room *r, int64_t i, void *m, void *u) {
  const void *enters = recurrent_row(s, r->enters, i, s->v_row);
  if (s->rule->delta) read_state(s, m, recurrent_row(s, r->asks, i, s->p->d_qk), u);
  if (s->rule->delta)
    s->simd->combine_rows(s->p->d_v, 1, enters, -1, u, u);
  else
    memcpy(u, enters, (size_t)s->p->d_v * attn_dtype_size(s->t));
  add_outer(s, r, 1, recurrent_row(s, r->k, i + 1, s->p->d_qk), u, m);
}

/* -- back through a key -- */

/* d, the gradient by f x, becomes `by` times that by x: f the scale of the squares of x. */
static void scale_back(const shape *s, double (*scale)(const void *, int64_t, double),
                       double (*slope)(const void *, int64_t, double), double by, const void *x, double *d) {
  const int64_t width = s->p->d_qk;
  const double square = attn_square_row(s->simd, width, x),
               f = scale ? scale(s->rule->state, width, square) : 1,
               rises = scale ? 2 * slope(s->rule->state, width, square) : 0;
  double along = 0;
  for (int64_t l = 0; l < width && scale; l++) along += d[l] * attn_get(x, l, s->t);
  for (int64_t l = 0; l < width; l++)
    d[l] = by * (f * d[l] + (scale ? rises * along * attn_get(x, l, s->t) : 0));
}

/* Query i reads S behind a key, of which S', what was written and G are given. */
static void back_query(const shape *s, room *r, const line *x, const recurrent_gradients *h, int64_t i,
                       const void *k, const void *met, const void *u) {
  const attn_problem *p = s->p;
  const attn_recurrence *rule = s->rule;
  const int64_t d = p->d_qk;
  load_raw(s, x->call->q, p->q, x, x->head, i, d, r->row);
  memcpy(r->up, attn_row(h->of->d_o, h->of->d_o_at, x->batch, x->head, i, s->t),
         (size_t)p->d_v * attn_dtype_size(s->t));
  const double square = attn_square_row(s->simd, d, r->row),
               by = p->scale * (rule->query_scale ? rule->query_scale(rule->state, d, square) : 1);
  add_outer(s, r, by, r->row, r->up, h->state);
  if (!h->of->dq) return;
  const double own = s->simd->dot_row(p->d_v, u, r->up);
  read_rows(s, met, r->up, r->product);
  for (int64_t l = 0; l < d; l++) r->product[l] += attn_get(k, l, s->t) * own;
  scale_back(s, rule->query_scale, rule->query_slope, p->scale, r->row, r->product);
  attn_convert(r->product, ATTN_F64, d, s->t,
               attn_at(h->of->dq, ((x->batch * p->heads + x->head) * p->n_q + i) * d, s->t));
}

/* The queries that read behind the line's key t: behind its last, all that come later. */
static void back_queries(const shape *s, room *r, const line *x, const recurrent_gradients *h, int64_t t,
                         const void *k, const void *met, const void *u) {
  const int64_t first = t + s->rule->before - attn_call_position(x->call, x->batch, 0),
                end = t + 1 < x->keys ? first + 1 : s->p->n_q;
  for (int64_t i = attn_max(0, first); i < attn_min(end, s->p->n_q); i++)
    if (attn_recurrent_reads(s, x, i)) back_query(s, r, x, h, i, k, met, u);
}

/* G, by S_t, becomes that by S', and what is written gives its gradients. */
static void back_write(const shape *s, room *r, const recurrent_gradients *h, int64_t i, const void *met,
                       const void *u) {
  const int64_t d = s->p->d_qk, d_v = s->p->d_v;
  const void *k = recurrent_row(s, r->k, i + 1, d), *v = recurrent_row(s, r->v, i + 1, s->v_row);
  double *dk = h->k + (i + 1) * d, *dv = h->v + (i + 1) * d_v, *betas = h->betas + i * s->betas;
  read_state(s, h->state, k, r->du);
  read_rows(s, h->state, u, r->product);
  for (int64_t l = 0; l < d; l++) dk[l] += r->product[l];
  for (int64_t l = 0; l < d_v; l++) {
    const double du = attn_get(r->du, l, s->t);
    dv[l] += write_of(s, r, i, l) * du;
    if (s->betas) betas[s->vectors ? d + l : 0] += attn_get(v, l, s->t) * du;
  }
  if (!s->rule->delta) return;
  read_rows(s, met, r->du, r->product);
  for (int64_t l = 0; l < d; l++) {
    dk[l] -= erase_of(s, r, i, l) * r->product[l];
    if (s->betas) betas[s->vectors ? l : 0] -= attn_get(k, l, s->t) * r->product[l];
  }
  add_outer(s, r, -1, recurrent_row(s, r->asks, i, d), r->du, h->state);
}

/* G, by S', becomes that by S_t-1. */
static void back_meet(const shape *s, room *r, const line *x, const recurrent_gradients *h, int64_t i,
                      const void *met) {
  const int64_t d = s->p->d_qk, d_v = s->p->d_v, turns = s->rule->turns;
  const bool columns = s->rule->columns, gates = h->of->dextra;
  double *logs = h->logs + i * (columns ? d : 1), *betas = h->betas + i * s->betas;
  void *g = h->state;
  if (attn_document_begins(s->p, x->first + i)) {
    memset(g, 0, recurrent_state_bytes(s));
    return;
  }
  for (int64_t l = 0; l < d && gates; l++)
    logs[columns ? l : 0] +=
        s->simd->dot_row(d_v, recurrent_row(s, g, l, s->v_row), recurrent_row(s, met, l, s->v_row));
  for (int64_t l = 0; l < turns && gates; l++)
    betas[s->rule->betas + l] =
        s->simd->dot_row(d_v, recurrent_row(s, g, l + turns, s->v_row), recurrent_row(s, met, l, s->v_row)) -
        s->simd->dot_row(d_v, recurrent_row(s, g, l, s->v_row), recurrent_row(s, met, l + turns, s->v_row));
  turn(s, r, angles_of(s, r, i), true, g);
  s->simd->scale_rows(d, s->v_row, g, s->v_row, r->decays + i * (columns ? d : 1), columns ? 1 : 0, g);
  if (!carries(s, x, i)) return;
  const void *k = recurrent_row(s, r->k, i, d), *v = recurrent_row(s, r->v, i, s->v_row);
  const double e = r->betas[i * s->betas + 1];
  read_state(s, g, k, r->du);
  read_rows(s, g, v, r->product);
  betas[1] = s->simd->dot_row(d_v, v, r->du);
  for (int64_t l = 0; l < d; l++) h->k[i * d + l] += e * r->product[l];
  for (int64_t l = 0; l < d_v; l++) h->v[i * d_v + l] += e * attn_get(r->du, l, s->t);
}

void attn_recurrent_back_key(const shape *s, room *r, const line *x, const recurrent_gradients *h, int64_t i,
                             const void *met, const void *u) {
  const int64_t d = s->p->d_qk;
  back_queries(s, r, x, h, x->first + i, recurrent_row(s, r->k, i + 1, d), met, u);
  back_write(s, r, h, i, met, u);
  back_meet(s, r, x, h, i, met);
  if (!s->rule->key_scale) return;
  load_raw(s, x->call->k, s->p->k, x, x->kv_head, x->first + i, d, r->row);
  scale_back(s, s->rule->key_scale, s->rule->key_slope, 1, r->row, h->k + (i + 1) * d);
}

/* stored_copies.c - see stored_copies.h. */
#include "experiments/evidence/stored_copies.h"

#include <stdlib.h>
#include <string.h>

#include "core/expression/attn_expression.h"
#include "experiments/mathematics/store_law.h"

stored_side stored_side_of(const attn_problem *p, const attn_kv_store *s, int side) {
  return (stored_side){.type = side ? s->v : s->k,
                       .arithmetic = p->dtype,
                       .scheme = side ? &s->v_scheme : &s->k_scheme,
                       .d = side ? p->d_v : p->d_qk};
}

void stored_row(const stored_side *s, const double *x, double *kept, double *room) {
  if (s->scheme->decode) {
    memcpy(room, x, (size_t)s->d * sizeof *x);
    s->scheme->decode(s->scheme->state, s->d, room, kept);
  } else {
    store_law(s->type, x, s->d, kept, room);
  }
  attn_convert(kept, ATTN_F64, s->d, s->arithmetic, room);
  attn_convert(room, s->arithmetic, s->d, ATTN_F64, kept);
}

/* The numbers of a tensor [batch, kv_heads, n_kv, d] as they are stored. */
static void *copy_rows(region *memory, const attn_problem *p, const void *x, attn_stride s,
                       stored_side side) {
  const int64_t rows = p->batch * p->kv_heads * p->n_kv, d = side.d;
  void *copy = region_take(memory, rows * d, attn_dtype_size(p->dtype));
  bool failed = false;
  if (!copy) return NULL;
#pragma omp parallel
  {
    double *own = malloc(3 * (size_t)d * sizeof *own);
#pragma omp for schedule(static)
    for (int64_t r = 0; r < (own ? rows : 0); r++) {
      const int64_t line = r / p->n_kv;
      const void *from = attn_row(x, s, line / p->kv_heads, line % p->kv_heads, r % p->n_kv, p->dtype);
      attn_convert(from, attn_stored(s, p->dtype), d, ATTN_F64, own);
      stored_row(&side, own, own + d, own + 2 * d);
      attn_convert(own + d, ATTN_F64, d, p->dtype, attn_at(copy, r * d, p->dtype));
    }
    if (!own) {
#pragma omp atomic write
      failed = true;
    }
    free(own);
  }
  return failed ? NULL : copy;
}

/* One row after the other, as tensors without strides are. */
static attn_stride dense(const attn_problem *p, attn_stride s, int64_t d) {
  return s.row || s.head || s.batch ? s : (attn_stride){p->kv_heads * p->n_kv * d, p->n_kv * d, d, s.stored};
}
static bool is_dense(const attn_problem *p, attn_stride s, int64_t d) {
  return !s.stored && s.row == d && s.head == p->n_kv * d && s.batch == p->kv_heads * s.head;
}

/* ---- a residual --------------------------------------------------------------------------------------- */

typedef struct stored_versions {
  attn_problem problem;
  attn_kv_store store;
  int64_t *keys;             /* [batch] that exist */
  void *given[2], *coded[2]; /* of keys, of values, contiguous */
} stored_versions;

void stored_groups(const attn_kv_store *s, int64_t d, int64_t keys, const double *x, double *kept,
                   double *room) {
  const int64_t group = s->group;
  if (!s->residual) {
    store_law_groups(s, x, keys, d, kept, NULL, room);
    return;
  }
  memcpy(kept, x, (size_t)(keys * d) * sizeof *x);
  for (int64_t first = 0; first + group <= keys; first += group)
    for (int64_t l = 0; l < d; l++) {
      for (int64_t i = 0; i < group; i++) room[i] = x[(first + i) * d + l];
      store_law_block((int)s->k - (int)ATTN_INT1 + 1, room, group, room + group, room + 2 * group);
      for (int64_t i = 0; i < group; i++) kept[(first + i) * d + l] = room[group + i];
    }
}

/* The algorithm of KIVI, token by token: what waits goes when it has become as much as the residual, or of
 * rows that go one by one as soon as it is more. */
int64_t stored_before(const attn_problem *p, const attn_kv_store *s, int side, int64_t i, int64_t keys) {
  const int64_t position = i + p->n_kv - p->n_q, arrived = position < keys ? position + 1 : keys;
  const bool together = side == 0 && s->group;
  const int64_t going = together ? s->residual : 1, most = s->residual - together;
  int64_t end = 0;
  if (!s->residual) return INT64_MAX;
  while (position >= s->prompt && arrived - end > most) end += going;
  return end;
}

/* Rows of keys [batch, kv_heads, n_kv, d_qk] as their groups are read; in place. */
static attn_status code_groups(const attn_problem *p, const attn_kv_store *s, const int64_t *kv_len,
                               void *coded) {
  const int64_t most = p->n_kv * p->d_qk, lines = p->batch * p->kv_heads;
  if (!s->group) return ATTN_OK;
  double *room = malloc((size_t)(2 * most + 3 * s->group + p->d_qk) * sizeof *room);
  for (int64_t line = 0; line < (room ? lines : 0); line++) {
    void *rows = attn_at(coded, line * most, p->dtype);
    const int64_t keys = kv_len ? kv_len[line / p->kv_heads] : p->n_kv;
    attn_convert(rows, p->dtype, keys * p->d_qk, ATTN_F64, room);
    stored_groups(s, p->d_qk, keys, room, room + most, room + 2 * most);
    attn_convert(room + most, ATTN_F64, keys * p->d_qk, p->dtype, rows);
  }
  free(room);
  return room ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for stored keys and values");
}

static attn_status make_versions(const attn_problem *p, const attn_kv_store *s, const int64_t *kv_len,
                                 stored_copies *c) {
  const attn_problem own = {.batch = p->batch,
                            .kv_heads = p->kv_heads,
                            .n_kv = p->n_kv,
                            .n_q = p->n_q,
                            .d_qk = p->d_qk,
                            .d_v = p->d_v,
                            .dtype = p->dtype};
  int64_t *keys = region_take(&c->memory, p->batch, sizeof *keys);
  stored_versions *x = region_take(&c->memory, 1, sizeof *x);
  if (x) *x = (stored_versions){.problem = own, .store = *s, .keys = keys};
  c->versions = x;
  for (int side = 0; x && side < 2; side++) {
    const stored_side of = stored_side_of(p, s, side),
                      as_given = {.arithmetic = p->dtype, .scheme = &(attn_kv_scheme){.bits = 0}, .d = of.d};
    const attn_stride at = {p->kv_heads * p->n_kv * of.d, p->n_kv * of.d, of.d, 0};
    x->given[side] = copy_rows(&c->memory, &own, side ? c->v : c->k, at, as_given);
    x->coded[side] = copy_rows(&c->memory, &own, side ? c->v : c->k, at, side || !s->group ? of : as_given);
  }
  if (!x || !x->keys || !x->given[0] || !x->given[1] || !x->coded[0] || !x->coded[1])
    return attn_fail(ATTN_ENOMEM, "no memory for stored keys and values");
  for (int64_t b = 0; b < p->batch; b++) x->keys[b] = kv_len ? kv_len[b] : p->n_kv;
  return code_groups(p, s, x->keys, x->coded[0]);
}

void stored_copies_see(const stored_copies *c, int64_t line, int64_t i) {
  const stored_versions *x = c->versions;
  for (int side = 0; x && side < 2; side++) {
    const attn_problem *p = &x->problem;
    const int64_t keys = x->keys[line / p->kv_heads], d = side ? p->d_v : p->d_qk, first = line * p->n_kv * d,
                  part = stored_before(p, &x->store, side, i, keys) * d;
    const size_t size = attn_dtype_size(p->dtype);
    void *to = side ? c->own_v : c->own_k;
    memcpy(attn_at(to, first, p->dtype), attn_at(x->coded[side], first, p->dtype), (size_t)part * size);
    memcpy(attn_at(to, first + part, p->dtype), attn_at(x->given[side], first + part, p->dtype),
           (size_t)(p->n_kv * d - part) * size);
  }
}

/* ---- all ---------------------------------------------------------------------------------------------- */

attn_status stored_copies_make(const attn_problem *p, const attn_kv_store *store, const void *k,
                               const void *v, const int64_t *kv_len, stored_copies *out) {
  const attn_kv_store none = {.reader = NULL}, own = store && !store->residual ? *store : none;
  const bool waits = store && store->residual;
  const attn_stride k_at = dense(p, p->k, p->d_qk), v_at = dense(p, p->v, p->d_v);
  const stored_side keys = stored_side_of(p, own.group ? &none : &own, 0),
                    values = stored_side_of(p, &own, 1);
  *out = (stored_copies){.k = k, .v = v};
  if (waits || attn_kv_changes(own.k, &own.k_scheme) || !is_dense(p, k_at, p->d_qk))
    out->k = out->own_k = copy_rows(&out->memory, p, k, k_at, keys);
  if (waits || attn_kv_changes(own.v, &own.v_scheme) || !is_dense(p, v_at, p->d_v))
    out->v = out->own_v = copy_rows(&out->memory, p, v, v_at, values);
  if (!out->k || !out->v) return attn_fail(ATTN_ENOMEM, "no memory for stored keys and values");
  return waits ? make_versions(p, store, kv_len, out) : code_groups(p, &own, kv_len, out->own_k);
}

void stored_copies_free(stored_copies *c) { region_free(&c->memory); }

attn_status stored_reader_plan(const attn_plan *plan, attn_plan **out) {
  const attn_context *c = attn_plan_context(plan);
  const attn_options options = {.threads = c->threads, .isa = attn_plan_isa(plan), .blocks = c->blocks};
  const attn_expression *x = attn_plan_parsed_spec(plan)->expression;
  attn_problem p = *attn_plan_problem(plan);
  attn_spec *spec = NULL;
  p.k = p.v = (attn_stride){.batch = 0};
  attn_status status = x && x->kind == ATTN_EXPRESSION_STORED ? attn_spec_at(x->terms[0], &spec)
                                                              : attn_spec_parse(&spec, "tiled");
  if (!status) status = attn_plan_create_spec(out, &p, spec, &options);
  attn_spec_destroy(spec);
  return status;
}

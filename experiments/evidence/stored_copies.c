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
static void *copy_rows(const attn_problem *p, const void *x, attn_stride s, stored_side side) {
  const int64_t rows = p->batch * p->kv_heads * p->n_kv, d = side.d;
  void *copy = malloc((size_t)(rows * d) * attn_dtype_size(p->dtype) + 1);
  bool failed = false;
  if (!copy) return NULL;
#pragma omp parallel
  {
    double *own = malloc(4 * (size_t)d * sizeof *own);
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
  if (!failed) return copy;
  free(copy);
  return NULL;
}

/* One row after the other, as tensors without strides are. */
static attn_stride dense(const attn_problem *p, attn_stride s, int64_t d) {
  return s.row || s.head || s.batch ? s : (attn_stride){p->kv_heads * p->n_kv * d, p->n_kv * d, d, s.stored};
}
static bool is_dense(const attn_problem *p, attn_stride s, int64_t d) {
  return !s.stored && s.row == d && s.head == p->n_kv * d && s.batch == p->kv_heads * s.head;
}

attn_status stored_copies_make(const attn_problem *p, const attn_kv_store *store, const void *k,
                               const void *v, stored_copies *out) {
  const attn_kv_store own = store ? *store : (attn_kv_store){.reader = NULL};
  const attn_stride k_at = dense(p, p->k, p->d_qk), v_at = dense(p, p->v, p->d_v);
  const stored_side keys = stored_side_of(p, &own, 0), values = stored_side_of(p, &own, 1);
  *out = (stored_copies){.k = k, .v = v};
  if (attn_kv_changes(own.k, &own.k_scheme) || !is_dense(p, k_at, p->d_qk))
    out->k = out->own_k = copy_rows(p, k, k_at, keys);
  if (attn_kv_changes(own.v, &own.v_scheme) || !is_dense(p, v_at, p->d_v))
    out->v = out->own_v = copy_rows(p, v, v_at, values);
  return out->k && out->v ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for stored keys and values");
}

void stored_copies_free(stored_copies *c) {
  free(c->own_k);
  free(c->own_v);
}

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

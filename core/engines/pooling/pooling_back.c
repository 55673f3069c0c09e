/* pooling_back.c - gradients of the engine of pooled keys: each part is given the output and log-sum-exp of
 * both together. */
#include "core/engines/pooling/pooling.h"

#include <omp.h>

/* By queries, of entries; by entries, of which the plan has as many rows as there are keys. */
typedef struct back_layout {
  pooling_layout of;
  void *dq, *dk, *dv;
} back_layout;

static back_layout lay_out_back(const attn_context *c, const attn_pooling *x, size_t work,
                                attn_carver *carver) {
  const attn_problem *p = c->problem;
  const size_t size = attn_dtype_size(p->dtype);
  const int64_t rows = p->batch * p->heads * p->n_q, keys = p->batch * p->kv_heads * p->n_kv;
  return (back_layout){
      .of = pooling_lay_out(c, x, work, carver),
      .dq = attn_carve(carver, pooling_first_part(x) == POOLING_LAST ? rows : 0, p->d_qk, size),
      .dk = attn_carve(carver, keys, p->d_qk, size),
      .dv = attn_carve(carver, keys, p->d_v, size)};
}

static attn_status back_work(const pooling_state *s, size_t *most) {
  attn_status status = ATTN_OK;
  *most = pooling_work(s);
  for (int part = 0; part < POOLING_PARTS && !status; part++)
    if (s->plans[part]) status = attn_plan_backward_most(s->plans[part], most);
  return status;
}

attn_status pooling_backward_size(const void *opaque, const attn_context *c, const attn_parts *parts,
                                  size_t *bytes) {
  size_t most = 0;
  const attn_status status = back_work(opaque, &most);
  attn_carver counter = attn_carver_count(c);
  lay_out_back(c, &parts->pooling, most, &counter);
  *bytes = counter.used;
  return status;
}

/* Adds to each key its share of the entries that are means of it; what no part gave begins at 0. */
static void spread(const pooling_state *s, const attn_call *call, const void *of_entries, int64_t d,
                   void *of_keys) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  if (!of_keys) return;
#pragma omp parallel for num_threads(c->threads) schedule(static)
  for (int64_t line = 0; line < p->batch * p->kv_heads; line++) {
    const int64_t exist = pooling_entries(s->law, attn_call_keys(call, line / p->kv_heads));
    fenv_t outer;
    attn_float_enter(&outer);
    for (int64_t x = 0; !s->plans[POOLING_LAST] && x < p->n_kv * d; x++)
      attn_set(of_keys, line * p->n_kv * d + x, p->dtype, 0);
    for (int64_t e = 0; e < exist; e++) {
      int64_t first, end = pooling_keys(s->law, e, &first);
      for (int64_t x = first * d; x < end * d; x++) {
        const int64_t at = line * p->n_kv * d + x;
        attn_set(of_keys, at, p->dtype,
                 attn_get(of_keys, at, p->dtype) +
                     attn_get(of_entries, (line * p->n_kv + e) * d + x % d, p->dtype) /
                         (double)(end - first));
      }
    }
    attn_float_leave(&outer);
  }
}

attn_status pooling_backward(const void *opaque, const attn_call *call, const attn_gradients *g) {
  const pooling_state *s = opaque;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const int whole = pooling_first_part(s->law);
  size_t most = 0;
  attn_status status = back_work(s, &most);
  if (status) return status;
  attn_carver carver = attn_carver_at(call, call->work);
  const back_layout l = lay_out_back(c, s->law, most, &carver);
  attn_gradients own = *g, of_entries = *g;
  attn_call inner;
  attn_extra index[3];
  own.dextra = of_entries.dextra = NULL;
  of_entries.dk = l.dk;
  of_entries.dv = l.dv;
  if (whole == POOLING_LAST) {
    of_entries.dq = g->dq ? l.dq : NULL;
    of_entries.dsink = NULL;
  }
  status = pooling_attend(s, call, &l.of, &inner, index);
  if (!status && whole == POOLING_LAST)
    status =
        attn_call_backward(call, s->plans[POOLING_LAST], l.of.o[whole], l.of.lse[whole], &own, l.of.work);
  if (!status)
    status = attn_call_backward(&inner, s->plans[POOLING_ENTRIES], l.of.o[whole], l.of.lse[whole],
                                &of_entries, l.of.work);
  if (status) return status;
  spread(s, call, l.dk, p->d_qk, g->dk);
  spread(s, call, l.dv, p->d_v, g->dv);
#pragma omp parallel for num_threads(c->threads) schedule(static)
  for (int64_t row = 0; row < (g->dq && whole == POOLING_LAST ? p->batch * p->heads * p->n_q : 0); row++) {
    fenv_t outer;
    attn_float_enter(&outer);
    attn_add_row(c->kernels, p->d_qk, 1, attn_at(l.dq, row * p->d_qk, p->dtype),
                 attn_at(g->dq, row * p->d_qk, p->dtype));
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

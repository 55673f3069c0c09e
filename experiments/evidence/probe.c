/* probe.c - cuts a small problem from a run. */
#include "experiments/evidence/probe.h"

#include "experiments/evidence/cache.h"
#include "experiments/evidence/draws.h"

#include <stdlib.h>
#include <string.h>

enum { PROBE_ROWS = 64 };

static void probe_free(probe *p) {
  if (!p) return;
  attn_plan_destroy(p->plan);
  head_data_free(&p->head);
  head_data_free(&p->slots);
  fresh_draws_free(p->fresh);
  free(p->features.query);
  free(p->features.query_scale);
  free(p->features.key);
  free(p->features.key_scale);
  free(p->q);
  free(p->k);
  free(p->v);
  free(p->o);
  free(p->work);
  free(p->rows);
  free(p);
}

void probe_forget(struct block_cache *c) {
  if (!c) return;
  probe_free(c->probe);
  c->probe = NULL;
}

/* Fills rows, and returns how many. */
static int64_t rows_choose(const evidence *e, int64_t *rows) {
  const attn_problem *p = e->problem;
  const exact_rows *x = e->exact;
  int64_t count = p->n_q < PROBE_ROWS ? p->n_q : PROBE_ROWS, have = 0;
  if (!(e->view->caps & ATTN_CAP_CROSS)) count = p->n_q;
  while (have < x->count && x->rows[have].batch == 0 && x->rows[have].head == 0) have++;
  bool anywhere = (e->view->features || e->view->projection) && !p->causal;
  if (!anywhere || have < count) {
    for (int64_t r = 0; r < count; r++) rows[r] = p->n_q - count + r;
    return count;
  }
  for (int64_t r = 0; r < count; r++) rows[r] = x->rows[r * have / count].i;
  return count;
}

static void *widened(const void *from, attn_dtype type, int64_t count, attn_dtype to) {
  size_t size = (size_t)count;
  void *out = malloc(size * attn_dtype_size(to) + 1);
  if (!out) return NULL;
  if (type == to)
    memcpy(out, from, size * attn_dtype_size(to));
  else
    row_widen(from, type, 0, count, out);
  return out;
}

static const void *offset(const void *at, attn_dtype type, int64_t elements) {
  return (const char *)at + (size_t)elements * attn_dtype_size(type);
}

/* Queries, and outputs of the run, of the chosen rows. */
static bool rows_gather(const evidence *e, probe *p) {
  const attn_problem *from = e->problem, *to = &p->problem;
  size_t size = attn_dtype_size(to->dtype), q_row = (size_t)to->d_qk * size, o_row = (size_t)to->d_v * size;
  p->q = malloc((size_t)to->n_q * q_row + 1);
  p->o = calloc((size_t)to->n_q * o_row + 1, 1);
  if (!p->q || !p->o) return false;
  for (int64_t r = 0; r < to->n_q; r++) {
    char *q = (char *)p->q + (size_t)r * q_row, *o = (char *)p->o + (size_t)r * o_row;
    if (from->dtype == to->dtype) {
      memcpy(q, offset(e->q, from->dtype, p->rows[r] * from->d_qk), q_row);
      memcpy(o, offset(e->o, from->dtype, p->rows[r] * from->d_v), o_row);
    } else {
      row_widen(e->q, from->dtype, p->rows[r] * from->d_qk, from->d_qk, (double *)(void *)q);
    }
  }
  return true;
}

static attn_status probe_make(const evidence *e, probe *p) {
  const attn_problem *from = e->problem;
  bool wide = e->view->features || e->view->projection;
  p->problem = *from;
  attn_problem *to = &p->problem;
  to->batch = to->heads = to->kv_heads = 1;
  to->q = to->k = to->v = to->o = (attn_stride){0, 0, 0};
  if (wide) to->dtype = ATTN_F64;
  p->rows = malloc((size_t)from->n_q * sizeof *p->rows);
  if (!p->rows) return attn_fail(ATTN_ENOMEM, "no memory for the probe of a run");
  to->n_q = rows_choose(e, p->rows);
  p->k = widened(e->k, from->dtype, from->n_kv * from->d_qk, to->dtype);
  p->v = widened(e->v, from->dtype, from->n_kv * from->d_v, to->dtype);
  if (!p->k || !p->v || !rows_gather(e, p)) return attn_fail(ATTN_ENOMEM, "no memory for the probe of a run");
  attn_options options = {.threads = attn_plan_context(e->plan)->threads, .isa = attn_plan_isa(e->plan)};
  attn_status status = attn_plan_create(&p->plan, to, attn_plan_spec(e->plan), &options);
  if (status) return status;
  p->problem = *attn_plan_problem(p->plan);
  p->work = malloc(attn_plan_work_size(p->plan) + 1);
  if (!p->work) return attn_fail(ATTN_ENOMEM, "no memory for the probe of a run");
  status = attn_plan_inspect(p->plan, &p->view);
  if (status) return status;
  p->e = *e;
  p->e.plan = p->plan;
  p->e.problem = to;
  p->e.view = &p->view;
  p->e.q = p->q;
  p->e.k = p->k;
  p->e.v = p->v;
  p->e.o = p->o;
  if (e->kv_len) {
    p->kv_len = e->kv_len[0];
    p->e.kv_len = &p->kv_len;
  }
  if (wide) {
    status = attn_plan_execute(p->plan, p->q, p->k, p->v, p->e.kv_len, p->o, p->work);
    if (status) return status;
  }
  return head_data_load(&p->e, 0, 0, &p->head);
}

attn_status probe_get(const evidence *e, probe **out) {
  if (!e->cache->probe) {
    probe *p = calloc(1, sizeof *p);
    attn_status status = p ? probe_make(e, p) : attn_fail(ATTN_ENOMEM, "no memory for the probe of a run");
    if (status) {
      probe_free(p);
      return status;
    }
    e->cache->probe = p;
  }
  *out = e->cache->probe;
  return ATTN_OK;
}

static void *narrowed(const double *from, int64_t count, attn_dtype to) {
  if (to == ATTN_F64) return widened(from, ATTN_F64, count, ATTN_F64);
  float *out = malloc((size_t)count * sizeof *out + 1);
  for (int64_t i = 0; out && i < count; i++) out[i] = (float)from[i];
  return out;
}

attn_status probe_execute(const probe *p, const double *k, const double *v, double *o) {
  const attn_problem *to = &p->problem;
  int64_t out = to->n_q * to->d_v;
  void *k_own = narrowed(k, to->n_kv * to->d_qk, to->dtype),
       *v_own = narrowed(v, to->n_kv * to->d_v, to->dtype);
  void *o_own = malloc((size_t)out * attn_dtype_size(to->dtype) + 1);
  attn_status status = ATTN_OK;
  if (!k_own || !v_own || !o_own)
    status = attn_fail(ATTN_ENOMEM, "no memory to run a probe");
  else
    status = attn_plan_execute(p->plan, p->q, k_own, v_own, p->e.kv_len, o_own, p->work);
  if (!status) row_widen(o_own, to->dtype, 0, out, o);
  free(k_own);
  free(v_own);
  free(o_own);
  return status;
}

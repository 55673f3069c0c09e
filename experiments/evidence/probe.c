/* probe.c - cuts a small problem from a run. */
#include "experiments/evidence/probe.h"

#include "experiments/evidence/cache.h"
#include "experiments/evidence/feature_draws.h"
#include "experiments/evidence/probe_rows.h"
#include "experiments/evidence/rows.h"
#include "experiments/evidence/weights/selector_draws.h"
#include "experiments/reference/transform.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t purpose_plant = 0x706c616e74; /* "plant" */

static void probe_free(probe *p) {
  if (!p) return;
  attn_plan_destroy(p->plan);
  head_data_free(&p->head);
  head_data_free(&p->slots);
  seen_free(&p->seen);
  fresh_draws_free(p->fresh);
  region_free(&p->memory);
  free(p);
}

void probe_forget(struct block_cache *c) {
  if (!c) return;
  facts_forget(c);
  weight_draws_free(c->weights);
  c->weights = NULL;
  probe_free(c->probe);
  c->probe = NULL;
}

static void *widened(region *memory, const void *from, attn_dtype type, int64_t offset, int64_t count,
                     attn_dtype to) {
  void *out = region_take(memory, count, attn_dtype_size(to));
  if (!out) return NULL;
  if (type == to)
    memcpy(out, attn_at(from, offset, type), (size_t)count * attn_dtype_size(to));
  else
    row_widen(from, type, offset, count, out);
  return out;
}

/* Keys, values and queries of the chosen rows, and the outputs that the run gave them. */
static attn_status inputs_gather(const evidence *e, probe *p) {
  const attn_problem *from = e->problem, *to = &p->problem;
  size_t size = attn_dtype_size(to->dtype), q_row = (size_t)to->d_qk * size, o_row = (size_t)to->d_v * size;
  int64_t line = p->batch * from->kv_heads + p->run_head / (from->heads / from->kv_heads);
  p->k =
      widened(&p->memory, e->k, from->dtype, line * from->n_kv * from->d_qk, to->n_kv * to->d_qk, to->dtype);
  p->v = widened(&p->memory, e->v, from->dtype, line * from->n_kv * from->d_v, to->n_kv * to->d_v, to->dtype);
  p->q = region_take(&p->memory, to->n_q, q_row);
  p->o = region_zeros(&p->memory, to->n_q, o_row);
  if (region_status(&p->memory, "for the probe of a run")) return ATTN_ENOMEM;
  for (int64_t r = 0; r < to->n_q; r++) {
    char *q = (char *)p->q + (size_t)r * q_row, *o = (char *)p->o + (size_t)r * o_row;
    if (from->dtype == to->dtype) {
      memcpy(q, attn_at(e->q, p->rows[r] * from->d_qk, from->dtype), q_row);
      memcpy(o, attn_at(e->o, p->rows[r] * from->d_v, from->dtype), o_row);
    } else {
      row_widen(e->q, from->dtype, p->rows[r] * from->d_qk, from->d_qk, (double *)(void *)q);
    }
  }
  return ATTN_OK;
}

/* A plan of the probe's problem, or, where heads draw for themselves or the variant needs their number, of
 * all heads on the same tensors. */
static attn_status plan_make(const evidence *e, probe *p) {
  attn_problem to = p->problem;
  attn_status status =
      p->own_head > 0 ? ATTN_EUNSUPPORTED : evidence_plan(e, &to, NULL, 0, &p->plan, &p->view);
  if (status == ATTN_EUNSUPPORTED || (status == ATTN_EINVAL && e->problem->heads > 1)) {
    to.heads = e->problem->heads;
    to.kv_heads = e->problem->kv_heads;
    to.q.row = to.k.row = to.d_qk;
    to.v.row = to.d_v;
    to.q.head = to.k.head = to.v.head = 0;
    status = evidence_plan(e, &to, NULL, 0, &p->plan, &p->view);
  }
  if (status) return status;
  const size_t size = attn_plan_verify_size(p->plan);
  p->work = region_take(&p->memory, 1, size < SIZE_MAX ? size + 1 : size);
  return p->work ? ATTN_OK : region_status(&p->memory, "for the probe of a run");
}

static attn_status execute(const probe *p, const void *k, const void *v, void *o) {
  /* Around the output, so that a variant which writes beside it in a later execution spoils nothing here;
   * where it is timed, it is found. */
  enum { SPARE = 4096 };
  const attn_problem *to = attn_plan_problem(p->plan);
  size_t line = (size_t)(to->n_q * to->d_v) * attn_dtype_size(to->dtype);
  char *all = malloc((size_t)to->heads * line + 2 * SPARE);
  /* Under watch: a variant that leaves memory unwritten, or writes that of others, has no verdict. */
  attn_status status =
      all ? attn_plan_verify(
                p->plan,
                &(attn_tensors){
                    .q = p->q, .k = k, .v = v, .kv_len = p->e.kv_len, .o = all + SPARE, .work = p->work})
          : attn_fail(ATTN_ENOMEM, "no memory for the heads of a probe");
  if (!status) memcpy(o, all + SPARE + (size_t)(to->heads == 1 ? 0 : p->own_head) * line, line);
  free(all);
  return status;
}

static attn_status record_rows(probe *p) {
  const int64_t count = p->problem.n_q;
  sample_row *rows = calloc((size_t)count, sizeof *rows);
  attn_status status = rows ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the rows of a probe");
  for (int64_t i = 0; i < count && rows; i++) rows[i] = (sample_row){0, p->own_head, i};
  if (!status)
    status =
        seen_make(&(seen_run){p->plan, &p->view, {.q = p->q, .k = p->k, .v = p->v, .kv_len = p->e.kv_len}},
                  rows, NULL, count, &p->seen);
  free(rows);
  return status;
}

static attn_status probe_make(const evidence *e, const probe_choice *choice, probe *p) {
  const attn_problem *from = e->problem;
  bool wide = e->view->features || e->view->projection || e->view->normaliser;
  attn_problem *to = &p->problem;
  *to = *from;
  transform_clear(to);
  to->batch = to->heads = to->kv_heads = 1;
  to->q = to->k = to->v = to->o = (attn_stride){0};
  if (wide) to->dtype = ATTN_F64;
  to->n_q = choice->count;
  to->n_kv = choice->keys;
  p->batch = choice->batch;
  p->run_head = choice->head;
  p->own_head = choice->own_head;
  p->kv_head = choice->own_head / (from->heads / from->kv_heads);
  p->rows = region_take(&p->memory, choice->count, sizeof *p->rows);
  if (!p->rows) return region_status(&p->memory, "for the probe of a run");
  for (int64_t r = 0; r < choice->count; r++)
    p->rows[r] = (choice->batch * from->heads + choice->head) * from->n_q + probe_choice_row(choice, r);
  attn_status status = inputs_gather(e, p);
  if (!status) status = plan_make(e, p);
  if (!status) status = attn_problem_resolve(to);
  if (status) return status;
  p->e = *e;
  p->e.memory = NULL; /* the probe outlives the check that asked for it first */
  p->e.plan = p->plan;
  p->e.problem = to;
  p->e.view = &p->view;
  p->e.q = p->q;
  p->e.k = p->k;
  p->e.v = p->v;
  p->e.extra = NULL;
  p->e.extras = 0;
  p->e.o = p->o;
  if (e->kv_len) {
    p->kv_len = e->kv_len[choice->batch] < to->n_kv ? e->kv_len[choice->batch] : to->n_kv;
    p->e.kv_len = &p->kv_len;
  }
  /* What is drawn for other heads or other blocks of queries is something else. */
  const bool drawn = p->view.selector && p->view.selector->weighted;
  if ((wide || drawn || !attn_problem_plain(from)) && (status = execute(p, p->k, p->v, p->o))) return status;
  status = head_data_load(&p->e, 0, 0, &p->head);
  p->head.head = p->own_head;
  return status ? status : record_rows(p);
}

static attn_status probe_try(const evidence *e, const probe_choice *choice, probe **out) {
  probe *p = calloc(1, sizeof *p);
  attn_status status =
      p ? probe_make(e, choice, p) : attn_fail(ATTN_ENOMEM, "no memory for the probe of a run");
  if (status) {
    probe_free(p);
    p = NULL;
  }
  *out = p;
  return status;
}

attn_status probe_get(const evidence *e, probe **out) {
  if (!e->cache->probe) {
    probe_choice choice;
    attn_status status = probe_choose(e, &choice);
    if (status) return status;
    probe *p;
    status = probe_try(e, &choice, &p);
    /* A variant that is another one for fewer keys is looked at where it has all of them. */
    if (choice.keys < e->problem->n_kv && (status || !probe_keeps_keys(e, p))) {
      probe_free(p);
      probe_choose_last(e, &choice);
      status = probe_try(e, &choice, &p);
    }
    /* A variant may be made for the run's number of queries alone, as a graph in a file is, or for others
     * than these few. */
    if ((status == ATTN_EINVAL || status == ATTN_EUNSUPPORTED) && choice.count < e->problem->n_q) {
      probe_choose_all(e, &choice);
      status = probe_try(e, &choice, &p);
    }
    probe_choice_free(&choice);
    if (status) return status;
    e->cache->probe = p;
  }
  *out = e->cache->probe;
  return ATTN_OK;
}

static void *narrowed(region *memory, const double *from, int64_t count, attn_dtype to) {
  void *out = region_take(memory, count, attn_dtype_size(to));
  if (out) attn_numbers[to].store(from, count, out);
  return out;
}

attn_status probe_execute(const probe *p, const double *k, const double *v, double *o) {
  const attn_problem *to = &p->problem;
  int64_t out = to->n_q * to->d_v;
  region memory = {.last = NULL};
  void *k_own = narrowed(&memory, k, to->n_kv * to->d_qk, to->dtype),
       *v_own = narrowed(&memory, v, to->n_kv * to->d_v, to->dtype),
       *o_own = region_take(&memory, out, attn_dtype_size(to->dtype));
  attn_status status = region_status(&memory, "to run a probe");
  if (!status) status = execute(p, k_own, v_own, o_own);
  if (!status) row_widen(o_own, to->dtype, 0, out, o);
  region_free(&memory);
  return status;
}

attn_status probe_plant(probe *p) {
  const attn_problem *to = &p->problem;
  int64_t d = to->d_v;
  if (p->planted) return ATTN_OK;
  double *v = region_zeros(&p->memory, to->n_kv * d, sizeof *v);
  double *o = region_take(&p->memory, to->n_q * d, sizeof *o);
  attn_status status = region_status(&p->memory, "for the output of a probe");
  attn_rng rng;
  attn_rng_init(&rng, p->e.seed, purpose_plant, 0);
  for (int64_t j = 0; j < p->head.keys && !status; j++) {
    v[j * d] = 1;
    if (d > 1) v[j * d + 1 + attn_rng_below(&rng, d - 1)] = 1;
  }
  if (!status) status = probe_execute(p, p->head.k, v, o);
  if (!status) p->planted = o;
  return status;
}

attn_status probe_stored(const probe *p, const void *k, stored_copies *copies, head_data *out) {
  evidence own = p->e;
  attn_status status = stored_copies_make(&p->problem, p->view.store, k, own.v, own.kv_len, copies);
  own.k = copies->k;
  own.v = copies->v;
  if (!status) status = head_data_load(&own, 0, 0, out);
  out->head = p->own_head;
  return status;
}

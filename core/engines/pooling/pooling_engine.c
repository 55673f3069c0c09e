/* pooling_engine.c - the engine of pooled keys (attn_pooling): a softmax over the last keys, and one over
 * entries, means of blocks of keys that stand at their last keys, joined by their log-sum-exps. The sink is a
 * term of one of them. */
#include "core/engines/pooling/pooling.h"

#include <omp.h>
#include <stdio.h>

/* One part has the sink. */
static attn_problem problem_of(const attn_context *c, const attn_pooling *x, int part) {
  attn_problem own = *c->problem;
  const int64_t entries = pooling_entries(x, own.n_kv);
  own.o = (attn_stride){.batch = 0};
  if (part == POOLING_LAST) return own;
  own.k = (attn_stride){own.kv_heads * entries * own.d_qk, entries * own.d_qk, own.d_qk, 0};
  own.v = (attn_stride){own.kv_heads * entries * own.d_v, entries * own.d_v, own.d_v, 0};
  if (pooling_first_part(x) == POOLING_LAST) own.score.sink = NULL;
  return own;
}

enum { SPEC = 128 };
static const char *spec_of(const attn_pooling *x, int part, char spec[SPEC]) {
  if (part == POOLING_LAST)
    snprintf(spec, SPEC, "streaming:sink=0,window=%lld", (long long)x->window);
  else if (x->index.heads)
    snprintf(spec, SPEC, "topk:by=index,k=%lld,index_heads=%lld,index_width=%lld", (long long)x->top,
             (long long)x->index.heads, (long long)x->index.width);
  else
    snprintf(spec, SPEC, "tiled");
  return spec;
}

pooling_layout pooling_lay_out(const attn_context *c, const attn_pooling *x, size_t work,
                               attn_carver *carver) {
  const attn_problem *p = c->problem;
  const size_t size = attn_dtype_size(p->dtype);
  const int64_t rows = p->batch * p->heads * p->n_q, lines = p->batch * p->kv_heads,
                entries = pooling_entries(x, p->n_kv), width = x->index.width,
                d = attn_max(width, attn_max(p->d_qk, p->d_v));
  pooling_layout l;
  for (int part = 0; part < POOLING_PARTS; part++) {
    const int64_t own = part < pooling_first_part(x) ? 0 : rows;
    l.o[part] = attn_carve(carver, own, p->d_v, size);
    l.lse[part] = attn_carve(carver, own, 1, sizeof(double));
  }
  l.k = attn_carve(carver, lines * entries, p->d_qk, size);
  l.v = attn_carve(carver, lines * entries, p->d_v, size);
  l.index = attn_carve(carver, p->batch * p->n_kv, width, size);
  l.lengths = attn_carve(carver, p->batch, 1, sizeof(int64_t));
  l.sums = attn_carve_slices(carver, c->threads, (size_t)d * sizeof(double));
  l.work = attn_carve(carver, 1, 1, work);
  return l;
}

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  attn_carver counter = attn_carver_count(c);
  attn_status status = ATTN_OK;
  size_t most = 0, own = 0;
  char spec[SPEC];
  const attn_pooling *x = &parts->pooling;
  for (int part = pooling_first_part(x); part < POOLING_PARTS && !status; part++) {
    const attn_problem p = problem_of(c, x, part);
    status = attn_context_estimate(c, &p, spec_of(x, part, spec), &own, NULL);
    if (own > most) most = own;
  }
  pooling_lay_out(c, x, most, &counter);
  *bytes = counter.used;
  return status;
}

static attn_status plan(attn_builder *b, const attn_parts *parts, void **out) {
  const attn_context *c = attn_builder_context(b);
  const attn_pooling *x = &parts->pooling;
  const int64_t entries = pooling_entries(x, c->problem->n_kv);
  char spec[SPEC];
  pooling_state *s = attn_builder_alloc(b, 1, sizeof *s);
  if (!s) return ATTN_ENOMEM;
  *s = (pooling_state){.law = x};
  *out = s;
  if (!(s->positions = attn_builder_alloc(b, entries + 1, sizeof(int64_t)))) return ATTN_ENOMEM;
  for (int64_t e = 0; e < entries; e++) s->positions[e] = (e + x->first + 1) * x->block - 1;
  attn_status status = ATTN_OK;
  for (int part = pooling_first_part(x); part < POOLING_PARTS && !status; part++) {
    const attn_problem p = problem_of(c, x, part);
    status = attn_builder_plan(b, &p, spec_of(x, part, spec), &s->plans[part]);
  }
  return status;
}

/* The mean of rows of d elements, `row` elements apart. */
static void average(const void *x, attn_dtype of, int64_t row, int64_t rows, int64_t d, double *sums,
                    attn_dtype t, void *to) {
  for (int64_t l = 0; l < d; l++) sums[l] = 0;
  attn_numbers[of].add(x, row, rows, d, sums);
  for (int64_t l = 0; l < d; l++) attn_set(to, l, t, sums[l] / (double)rows);
}

static void make_entries(const pooling_state *s, const attn_call *call, const pooling_layout *l) {
  const attn_problem *p = call->context->problem;
  const int64_t entries = pooling_entries(s->law, p->n_kv);
#pragma omp parallel for num_threads(call->context->threads) schedule(static)
  for (int64_t at = 0; at < p->batch * p->kv_heads * entries; at++) {
    const int64_t line = at / entries, batch = line / p->kv_heads, head = line % p->kv_heads;
    int64_t first, end = pooling_keys(s->law, at % entries, &first);
    double *sums = attn_slice(l->sums, omp_get_thread_num());
    fenv_t outer;
    if (end > attn_call_keys(call, batch)) continue;
    attn_float_enter(&outer);
    average(attn_row(call->k, p->k, batch, head, first, p->dtype), attn_stored(p->k, p->dtype), p->k.row,
            end - first, p->d_qk, sums, p->dtype, attn_at(l->k, at * p->d_qk, p->dtype));
    average(attn_row(call->v, p->v, batch, head, first, p->dtype), attn_stored(p->v, p->dtype), p->v.row,
            end - first, p->d_v, sums, p->dtype, attn_at(l->v, at * p->d_v, p->dtype));
    attn_float_leave(&outer);
  }
}

/* The tensors by which entries are ranked, of which index_k has a row for each key. Returns how many. */
static int64_t make_index(const pooling_state *s, const attn_call *call, const pooling_layout *l,
                          attn_extra *of) {
  static const char *const others[] = {"index_q", "index_w"};
  const attn_problem *p = call->context->problem;
  const attn_extra *k = attn_call_extra(call, "index_k");
  const int64_t entries = pooling_entries(s->law, p->n_kv);
  int64_t count = 0;
  if (!s->law->index.heads) return 0;
  for (int x = 0; x < 2; x++)
    if (attn_call_extra(call, others[x])) of[count++] = *attn_call_extra(call, others[x]);
  if (!k) return count;
  of[count] = *k;
  of[count].dtype = p->dtype;
  of[count].at = l->index;
#pragma omp parallel for num_threads(call->context->threads) schedule(static)
  for (int64_t at = 0; at < k->batch * entries; at++) {
    const int64_t batch = at / entries, entry = at % entries;
    int64_t first, end = pooling_keys(s->law, entry, &first);
    fenv_t outer;
    attn_float_enter(&outer);
    average(attn_extra_row(k, batch, 0, first), k->dtype, k->columns, end - first, k->columns,
            attn_slice(l->sums, omp_get_thread_num()), p->dtype,
            attn_at(l->index, (batch * p->n_kv + entry) * k->columns, p->dtype));
    attn_float_leave(&outer);
  }
  return count + 1;
}

size_t pooling_work(const pooling_state *s) {
  const size_t last = s->plans[POOLING_LAST] ? attn_plan_work_size(s->plans[POOLING_LAST]) : 0,
               entries = attn_plan_work_size(s->plans[POOLING_ENTRIES]);
  return last > entries ? last : entries;
}

attn_status pooling_attend(const pooling_state *s, const attn_call *call, const pooling_layout *l,
                           attn_call *inner, attn_extra index[3]) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const bool joined = s->plans[POOLING_LAST];
  *inner = *call;
  make_entries(s, call, l);
  inner->extras = make_index(s, call, l, index);
  inner->extra = index;
  for (int64_t b = 0; b < p->batch; b++) l->lengths[b] = pooling_entries(s->law, attn_call_keys(call, b));
  attn_status status =
      joined ? attn_call_run(call, s->plans[POOLING_LAST], l->o[POOLING_LAST], l->lse[POOLING_LAST], l->work)
             : ATTN_OK;
  inner->k = l->k;
  inner->v = l->v;
  inner->kv_len = l->lengths;
  inner->k_position = (attn_key_positions){s->positions, 0, 0};
  if (!status)
    status = attn_call_run(inner, s->plans[POOLING_ENTRIES], l->o[POOLING_ENTRIES], l->lse[POOLING_ENTRIES],
                           l->work);
  if (status || !joined) return status;
#pragma omp parallel for num_threads(c->threads) schedule(static)
  for (int64_t at = 0; at < p->batch * p->heads * p->n_q; at++) {
    fenv_t outer;
    attn_float_enter(&outer);
    attn_join_row(p, attn_at(l->o[POOLING_LAST], at * p->d_v, p->dtype), &l->lse[POOLING_LAST][at],
                  attn_at(l->o[POOLING_ENTRIES], at * p->d_v, p->dtype), l->lse[POOLING_ENTRIES][at]);
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

static attn_status execute(const void *opaque, const attn_call *call) {
  const pooling_state *s = opaque;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  attn_carver carver = attn_carver_at(call, call->work);
  const pooling_layout l = pooling_lay_out(c, s->law, pooling_work(s), &carver);
  attn_call inner;
  attn_extra index[3];
  const attn_status status = pooling_attend(s, call, &l, &inner, index);
  if (status) return status;
#pragma omp parallel for num_threads(c->threads) schedule(static)
  for (int64_t at = 0; at < p->batch * p->heads * p->n_q; at++) {
    const int64_t line = at / p->n_q;
    fenv_t outer;
    attn_float_enter(&outer);
    attn_store_row(c->kernels, attn_stored(p->o, p->dtype), p->d_v,
                   attn_at(l.o[pooling_first_part(s->law)], at * p->d_v, p->dtype),
                   attn_row(call->o, p->o, line / p->heads, line % p->heads, at % p->n_q, p->dtype));
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

/* Of the longer of both, with the roundings of a join. */
static void inspect(const void *opaque, const attn_context *c, attn_view *view) {
  const pooling_state *s = opaque;
  (void)c;
  attn_view of[POOLING_PARTS] = {{0}};
  for (int part = pooling_first_part(s->law); part < POOLING_PARTS; part++)
    if (attn_plan_inspect(s->plans[part], &of[part])) return;
  const attn_rounding *last = &of[POOLING_LAST].rounding, *entries = &of[POOLING_ENTRIES].rounding;
  view->rounding = last->value > entries->value ? *last : *entries;
  view->rounding.value += 8;
  view->rounding.sum += 8;
}

static bool accepts(const attn_parts *p) { return attn_parts_kinds(p) == ATTN_PART_POOLING; }

const attn_engine attn_engine_pooling = {"pooling",
                                         accepts,
                                         {.work_size = work_size,
                                          .plan = plan,
                                          .execute = execute,
                                          .inspect = inspect,
                                          .backward_size = pooling_backward_size,
                                          .backward = pooling_backward}};

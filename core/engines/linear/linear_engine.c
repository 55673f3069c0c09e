/* linear_engine.c - the linear engine: o = phi(q)^T S / phi(q)^T z with S = sum_j phi(k_j) v_j^T, z = sum_j
 * phi(k_j) (Katharopoulos et al. 2020); causal: the sums run over j <= i, in chunks with a running state.
 *
 * A feature row is e^(c) f with f well scaled. A state carries its reference M = max c_j, as online softmax
 * does: S = sum_j e^(c_j - M) f_j v_j^T,   and adding two states rescales the one of the smaller M. In a
 * causal chunk row i uses M_i = max over j <= i only, so that no later key touches it, not even by rounding.
 *
 * Keys are cut into segments of fixed length: each is summed from zero, and added to the total of those
 * before it, in order; causal queries read that total plus the part of their own segment so far. Nothing
 * depends on the number of threads, but the work does: segments of a head that one thread takes in order (a
 * chain) are summed as they are needed, and only for the chains after the first are they summed beforehand.
 *
 * With eps > 0 every stabilised feature is f + eps: (f_q + eps)^T sum_j (e^(c_j - M) f_j + eps) (v_j, 1),
 * that is f' = f_q + eps against (S, z), and eps sum_r f'_r against sum_j (v_j, 1). */
#include "core/engines/linear/linear_engine.h"

#include <omp.h>
#include <string.h>

/* Chains of a head: as many as give every thread the same work, or one where heads are plenty. */
static int64_t chains_of(const attn_context *c, int64_t heads, int64_t segments) {
  int64_t chains = 1;
  while (heads * chains % c->threads && heads * chains < 4 * c->threads) chains++;
  return attn_min(chains, attn_max(1, segments));
}

linear_shape linear_shape_make(const attn_context *c, const attn_feature_map *map) {
  const attn_problem *p = c->problem;
  int64_t segments = attn_ceil_div(p->n_kv, SEGMENT);
  return (linear_shape){.c = c,
                        .p = p,
                        .simd = c->kernels,
                        .map = map,
                        .columns = map->columns,
                        .f_row = attn_padded(map->columns, p->dtype),
                        .v_row = attn_padded(p->d_v, p->dtype),
                        .segments = segments,
                        .chains = chains_of(c, p->batch * p->kv_heads, segments),
                        .t = p->dtype};
}

int64_t linear_chain_first(const linear_shape *s, int64_t chain) { return chain * s->segments / s->chains; }

/* Segments of a head that are summed beforehand. */
int64_t linear_summed(const linear_shape *s) {
  return s->p->causal ? linear_chain_first(s, s->chains - 1) : s->segments;
}

static linear_state carve_state(const linear_shape *s, attn_carver *carver) {
  void *block = attn_carve(carver, 1, 1, linear_state_bytes(s));
  return block ? linear_state_at(s, block) : (linear_state){0};
}

linear_worker linear_carve(const linear_shape *s, attn_carver *carver) {
  size_t e = attn_dtype_size(s->t);
  int64_t scores = s->p->causal || s->residual ? CHUNK : 0,
          transposed = s->p->causal && !s->residual ? CHUNK : 0;
  linear_worker w = {.fq = attn_carve(carver, CHUNK, s->f_row, e),
                     .fk = attn_carve(carver, CHUNK, s->f_row, e),
                     .fk_transposed = attn_carve(carver, s->columns, transposed, e),
                     .scale_k = attn_carve(carver, CHUNK, 1, sizeof(double)),
                     .weights = attn_carve(carver, CHUNK, 1, e),
                     .eps_term = attn_carve(carver, CHUNK, 1, e),
                     .scores = attn_carve(carver, CHUNK, scores, e),
                     .values = attn_carve(carver, CHUNK, s->v_row, e),
                     .rows =
                         attn_carve(carver, s->p->q.stored || s->p->k.stored || s->p->v.stored ? CHUNK : 0,
                                    attn_max(s->p->d_qk, s->p->d_v), e),
                     .outputs = attn_carve(carver, s->p->o.stored ? CHUNK : 0, s->p->d_v, e),
                     .sums = attn_carve(carver, CHUNK, 1, sizeof(double)),
                     .total = carve_state(s, carver),
                     .part = carve_state(s, carver),
                     .before = carve_state(s, carver)};
  if (s->residual) linear_residual_carve(s, carver, &w.residual);
  return w;
}

/* States of a head: the total before each segment that is summed beforehand, and of all of them. */
linear_state linear_state_before(const linear_shape *s, int64_t head, int64_t segment) {
  int64_t index = head * (linear_summed(s) + 1) + segment;
  return linear_state_at(s, (char *)s->states + (size_t)index * linear_state_bytes(s));
}

size_t linear_states_bytes(const linear_shape *s) {
  size_t count = attn_size_times((size_t)(s->p->batch * s->p->kv_heads), (size_t)linear_summed(s) + 1);
  return attn_size_times(count, linear_state_bytes(s));
}

linear_head linear_head_at(const linear_shape *s, const attn_call *call, int64_t index) {
  int64_t b = index / s->p->kv_heads, head = index % s->p->kv_heads;
  return (linear_head){b, head, attn_call_keys(call, b), attn_rows(call->k, s->p->k, b, head, s->t),
                       attn_rows(call->v, s->p->v, b, head, s->t)};
}

/* The parts of a head's segments become the totals before them. */
static void accumulate(const linear_shape *s, linear_worker *w, int64_t head) {
  linear_clear(s, w->total);
  for (int64_t g = 0; g < linear_summed(s); g++) {
    linear_state x = linear_state_before(s, head, g);
    linear_merge(s, w->total, x, w->part);
    linear_copy(s, w->total, x);
    linear_copy(s, w->part, w->total);
  }
  linear_copy(s, w->total, linear_state_before(s, head, linear_summed(s)));
}

void linear_sum_before(const linear_shape *s, linear_worker *w, const attn_call *call) {
  const int64_t heads = s->p->batch * s->p->kv_heads, first = linear_summed(s);
#pragma omp for schedule(dynamic, 1)
  for (int64_t i = 0; i < heads * first; i++) {
    linear_head h = linear_head_at(s, call, i / first);
    linear_sum_segment(s, w, &h, i % first, linear_state_before(s, i / first, i % first));
  }
#pragma omp for schedule(dynamic, 1)
  for (int64_t i = 0; i < heads; i++) accumulate(s, w, i);
}

static void causal_chain(const linear_shape *s, linear_worker *w, const attn_call *call, int64_t index) {
  int64_t head = index / s->chains, chain = index % s->chains, first = linear_chain_first(s, chain);
  linear_head h = linear_head_at(s, call, head);
  if (!h.keys) return;
  linear_copy(s, linear_state_before(s, head, first), w->total);
  for (int64_t g = first; g < linear_chain_first(s, chain + 1); g++) {
    linear_causal_segment(s, w, call, &h, g);
    linear_merge(s, w->total, w->part, w->total);
  }
}

linear_rows linear_numerators(const linear_shape *s, const linear_worker *w, const linear_queries *x) {
  if (s->residual) return (linear_rows){w->residual.numerators, s->v_row};
  return s->p->o.stored ? (linear_rows){w->outputs, s->p->d_v} : (linear_rows){x->o, s->p->o.row};
}

void linear_finish(const linear_shape *s, linear_worker *w, const linear_queries *x) {
  if (s->residual) {
    linear_residual_join(s, w, x);
    return;
  }
  const attn_stride to = s->p->o;
  const linear_rows o = linear_numerators(s, w, x);
  if (!s->map->unnormalised) linear_divide(s, w, x->count, o);
  for (int64_t i = 0; to.stored && i < x->count; i++)
    attn_store_row(s->simd, to.stored, s->p->d_v, attn_at(o.at, i * o.row, s->t),
                   attn_row_behind(x->o, to, i, s->t));
}

/* Not causal: a chunk of queries against the sum of all keys. */
static void query_chunk(const linear_shape *s, linear_worker *w, const linear_queries *x, linear_state all) {
  const attn_problem *p = s->p;
  const linear_rows out = linear_numerators(s, w, x);
  linear_map(s, w,
             &(attn_feature_rows){x->h->head, ATTN_QUERY, x->q, p->q.row,
                                  attn_call_position(x->call, x->h->batch, x->first), x->count});
  linear_read(s, w, x->count, all, out);
  linear_read_eps(s, w, x->count, all, out);
  if (s->residual) {
    linear_residual_find(s, w, x);
    linear_residual_subtract(s, w, x, x->h->keys, &all);
  }
  linear_finish(s, w, x);
}

/* Chunks of queries that one thread takes in a row: the heads of neighbours have keys in common. */
static int64_t span_of(const linear_shape *s) {
  enum { MOST = 32, TASKS = 4 };
  const int64_t chunks = s->p->batch * s->p->heads * attn_ceil_div(s->p->n_q, CHUNK);
  return s->residual ? attn_max(1, attn_min(MOST, chunks / (TASKS * s->c->threads))) : 1;
}
static int64_t spans(const linear_shape *s) { return attn_ceil_div(s->p->n_q, span_of(s) * CHUNK); }

static void query_span(const linear_shape *s, linear_worker *w, const attn_call *call, int64_t index) {
  const attn_problem *p = s->p;
  const int64_t first = index % spans(s) * span_of(s) * CHUNK,
                end = attn_min(first + span_of(s) * CHUNK, p->n_q), b = index / spans(s) / p->heads,
                head = index / spans(s) % p->heads;
  const linear_head h = linear_head_at(s, call, b * p->kv_heads + head / (p->heads / p->kv_heads));
  if (!h.keys) return;
  const linear_state all = linear_state_before(s, h.batch * p->kv_heads + h.head, linear_summed(s));
  for (int64_t i = first; i < end; i += CHUNK) {
    const linear_queries x = {.call = call,
                              .h = &h,
                              .head = head,
                              .first = i,
                              .count = attn_min(CHUNK, end - i),
                              .q = attn_row(call->q, p->q, b, head, i, s->t),
                              .o = attn_row(call->o, p->o, b, head, i, s->t)};
    query_chunk(s, w, &x, all);
  }
}

/* Queries that see no key: those that precede every key, or all of a batch entry without keys. */
static void clear_blind_rows(const linear_shape *s, const attn_call *call) {
  const attn_problem *p = s->p;
  for (int64_t b = 0; b < p->batch; b++) {
    const int64_t early = p->causal ? attn_max(0, -attn_call_position(call, b, 0)) : 0,
                  blind = attn_call_keys(call, b) ? early : p->n_q;
    for (int64_t h = 0; h < p->heads; h++)
      for (int64_t i = 0; i < blind; i++)
        memset(attn_row(call->o, p->o, b, h, i, s->t), 0,
               (size_t)p->d_v * attn_dtype_size(attn_stored(p->o, s->t)));
  }
}

attn_status linear_check(const attn_call *call) {
  if (!call->k_position.at) return ATTN_OK;
  return attn_fail(
      ATTN_EUNSUPPORTED,
      "variant %s: k_position is not supported: a sum of features cannot lose keys that entered it",
      call->context->variant->name);
}

/* Of one thread. */
static size_t worker_bytes(const linear_shape *s) {
  attn_carver one = attn_carver_count(s->c);
  linear_carve(s, &one);
  return one.used;
}

size_t linear_work_size(const linear_shape *s) {
  return attn_size_sum(linear_states_bytes(s), attn_size_times(worker_bytes(s), (size_t)s->c->threads));
}

static bool accepts(const attn_parts *p) { return attn_parts_kinds(p) == ATTN_PART_FEATURES; }

static attn_status work_size(const attn_context *c, const attn_parts *p, size_t *bytes) {
  const linear_shape s = linear_shape_make(c, &p->features);
  *bytes = linear_work_size(&s);
  return ATTN_OK;
}

/* The state is the map. */
static attn_status plan(attn_builder *b, const attn_parts *p, void **state) {
  (void)b;
  *state = (void *)(uintptr_t)&p->features;
  return ATTN_OK;
}

void linear_execute(const linear_shape *shape, const attn_call *call, void *work) {
  linear_shape s = *shape;
  const attn_problem *p = s.p;
  s.guards = call->guards;
  s.states = work;
  size_t own_bytes = worker_bytes(&s);
  int64_t tasks = p->causal ? p->batch * p->kv_heads * s.chains : p->batch * p->heads * spans(&s);
#pragma omp parallel num_threads(s.c->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
    char *own = (char *)work + linear_states_bytes(&s) + (size_t)omp_get_thread_num() * own_bytes;
    memset(own, 0, own_bytes); /* padding is multiplied, and anything but numbers may be slow */
    attn_carver carver = attn_carver_at(call, own);
    linear_worker w = linear_carve(&s, &carver);
    linear_sum_before(&s, &w, call);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < tasks; i++) {
      if (p->causal)
        causal_chain(&s, &w, call, i);
      else
        query_span(&s, &w, call, i);
    }
    attn_float_leave(&outer);
  }
}

static attn_status execute(const void *state, const attn_call *call) {
  const attn_status status = linear_check(call);
  if (status) return status;
  linear_shape s = linear_shape_make(call->context, state);
  clear_blind_rows(&s, call);
  linear_execute(&s, call, call->work);
  return ATTN_OK;
}

const attn_engine attn_engine_linear = {"linear",
                                        accepts,
                                        {.work_size = work_size,
                                         .plan = plan,
                                         .execute = execute,
                                         .backward_size = linear_back_size,
                                         .backward = linear_backward}};

attn_cost attn_linear_cost(const attn_context *c, const attn_feature_map *map) {
  if (!c || !map) return (attn_cost){0};
  const attn_problem *p = c->problem;
  linear_shape s = linear_shape_make(c, map);
  double q = (double)(p->batch * p->heads * p->n_q), kv = (double)(p->batch * p->kv_heads * p->n_kv);
  double m = (double)s.columns, width = (double)(p->d_v + 1);
  /* Keys are mapped and summed, queries mapped and read; causal adds the triangle of each chunk, and keys
   * that are summed beforehand are so twice. */
  attn_cost cost = {.mul_add = (q + kv) * (map->mul_add + m * width),
                    .exp = (q + kv) * map->exp,
                    .bytes = attn_problem_bytes(p)};
  if (p->causal) {
    double twice = kv * (double)linear_summed(&s) / (double)attn_max(1, s.segments);
    cost.mul_add += twice * (map->mul_add + m * width) + q * (CHUNK + 1) / 2 * (m + width);
    cost.exp += twice * map->exp;
  }
  return cost;
}

attn_cost attn_features_cost(const attn_context *c) {
  attn_parts parts;
  return !c || attn_describe(NULL, c, &parts) ? (attn_cost){0} : attn_linear_cost(c, &parts.features);
}

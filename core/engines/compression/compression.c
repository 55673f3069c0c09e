/* compression.c - the compression engine: keys and values become k << n slots by a linear map, and the
 * softmax engine attends to the slots (Wang et al. 2020).
 *
 * Projections run in parallel over batch, kv head and, depending on what the projection can be divided into,
 * parts of the sequence or blocks of columns. A part goes slice by slice, keys and then values, so that a
 * stored projection is read from memory once for both. */
#include "core/engines/compression/compression.h"

#include <omp.h>
#include <stdio.h>

static attn_problem inner_problem(const attn_problem *p, int64_t slots) {
  attn_problem inner = *p;
  inner.n_kv = slots;
  inner.k = (attn_stride){p->kv_heads * slots * p->d_qk, slots * p->d_qk, p->d_qk, 0};
  inner.v = (attn_stride){p->kv_heads * slots * p->d_v, slots * p->d_v, p->d_v, 0};
  return inner;
}

enum { TASKS = 32 }; /* wanted over all heads; each task has its own slots */

compression_division compression_divide(const attn_problem *p, const attn_projection *e) {
  compression_division d = {1, p->n_kv,
                            e->columns ? attn_ceil_div(attn_max(p->d_qk, p->d_v), e->columns) : 1};
  if (!e->slice) return d;
  int64_t slices = attn_ceil_div(p->n_kv, e->slice), tasks = attn_max(1, TASKS / (p->batch * p->kv_heads));
  d.rows = attn_ceil_div(slices, attn_min(slices, tasks)) * e->slice;
  d.parts = attn_ceil_div(p->n_kv, d.rows);
  return d;
}

/* Elements from the beginning of a block of codes to a column. */
static int64_t lead_of(int64_t column, attn_dtype stored) {
  return column & (attn_row_elements(1, stored) - 1);
}

/* Room for the rows of a slab, which of codes begins where a block does. */
static size_t rows_bytes(const attn_problem *p, const attn_projection *e) {
  if (!p->k.stored && !p->v.stored) return 0;
  const int64_t rows = e->slice ? attn_min(e->slice, p->n_kv) : p->n_kv, d = attn_max(p->d_qk, p->d_v);
  attn_carver counter = {0};
  const int64_t lead = attn_max(attn_row_elements(1, p->k.stored), attn_row_elements(1, p->v.stored)) - 1;
  attn_carve(&counter, rows, e->columns ? attn_min(e->columns + lead, d) : d, attn_dtype_size(p->dtype));
  return counter.used;
}

compression_layout compression_lay_out(const attn_context *c, const attn_projection *e, size_t attending,
                                       attn_carver *carver) {
  const attn_problem *p = c->problem;
  int64_t rows = compression_divide(p, e).parts * p->batch * p->kv_heads * e->slots;
  compression_layout l = {.k = attn_carve(carver, rows, p->d_qk, attn_dtype_size(p->dtype)),
                          .v = attn_carve(carver, rows, p->d_v, attn_dtype_size(p->dtype)),
                          .used = attn_carve(carver, p->batch, 1, sizeof(int64_t)),
                          .scratch = attn_size_sum(e->scratch, 63) & ~(size_t)63,
                          .rows = rows_bytes(p, e)};
  l.scratch = attn_size_sum(l.scratch, l.rows);
  size_t projecting = attn_size_times(l.scratch, (size_t)c->threads);
  l.rest = attn_carve(carver, 1, 1, projecting > attending ? projecting : attending);
  return l;
}

static bool accepts(const attn_parts *p) { return attn_parts_kinds(p) == ATTN_PART_PROJECTION; }

static size_t attending_bytes(const attn_context *c, const attn_projection *e) {
  const attn_problem inner = inner_problem(c->problem, e->slots);
  attn_context inner_context = *c;
  inner_context.problem = &inner;
  return attn_softmax_size(&inner_context, NULL, (attn_tiling){0});
}

static attn_status work_size(const attn_context *c, const attn_parts *p, size_t *bytes) {
  attn_carver counter = attn_carver_count(c);
  compression_lay_out(c, &p->projection, attending_bytes(c, &p->projection), &counter);
  *bytes = counter.used;
  return ATTN_OK;
}

static attn_status plan(attn_builder *b, const attn_parts *p, void **state) {
  compression *engine = attn_builder_alloc(b, 1, sizeof *engine);
  if (!engine) return ATTN_ENOMEM;
  *engine = (compression){.projection = &p->projection,
                          .inner = inner_problem(b->context.problem, p->projection.slots)};
  *state = engine;
  attn_builder inner = *b;
  inner.context.problem = &engine->inner;
  return attn_softmax_prepare(&inner, NULL, (attn_tiling){0}, &engine->softmax);
}

/* The slots of one side of a head, as part `part` sums them. */
static void *slots_at(const attn_call *call, const attn_projection *e, const compression_layout *l,
                      attn_side side, int64_t part, int64_t b, int64_t head) {
  const attn_problem *p = call->context->problem;
  int64_t at = (part * p->batch + b) * p->kv_heads + head;
  return attn_at(side == ATTN_VALUE ? l->v : l->k, at * e->slots * (side == ATTN_VALUE ? p->d_v : p->d_qk),
                 p->dtype);
}

/* One block of columns of one part of a head. Sets the slots in use, where there are rows. */
static attn_status project(const attn_projection *e, const attn_call *call, const compression_layout *l,
                           const compression_division *by, int64_t part, int64_t block, int64_t b,
                           int64_t head, int64_t *used) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  char *room = l->rest + (size_t)omp_get_thread_num() * l->scratch, *scratch = room + l->rows;
  int64_t first = part * by->rows, end = attn_min(first + by->rows, attn_call_keys(call, b));
  int64_t step = e->slice ? e->slice : by->rows;
  for (int64_t at = first; at < end; at += step)
    for (attn_side side = ATTN_KEY; side <= ATTN_VALUE; side++) {
      const void *base = side == ATTN_VALUE ? call->v : call->k;
      attn_stride stride = side == ATTN_VALUE ? p->v : p->k;
      int64_t d = side == ATTN_VALUE ? p->d_v : p->d_qk, column = block * e->columns;
      attn_slab slab = {.head = head,
                        .side = side,
                        .first = at,
                        .rows = attn_min(step, end - at),
                        .d = e->columns ? attn_min(e->columns, d - column) : d,
                        .y = attn_at(slots_at(call, e, l, side, part, b, head), column, p->dtype),
                        .y_row = d,
                        .accumulate = at > first};
      if (slab.d < 1) continue;
      const attn_dtype stored = attn_stored(stride, p->dtype);
      const int64_t lead = lead_of(column, stored);
      const attn_matrix x = attn_load_rows(
          c->kernels, stored, attn_at(attn_row(base, stride, b, head, at, p->dtype), column - lead, stored),
          stride.row, slab.rows, slab.d + lead, room);
      slab.x = attn_at(x.at, lead, p->dtype);
      slab.x_row = x.row;
      int64_t slots = call->guards ? compression_project_watched(e, call, &slab)
                                   : e->project(e->state, c, &slab, scratch);
      if (slots < 0 || slots > e->slots)
        return attn_fail(ATTN_EFOREIGN, "variant %s: project returns %lld slots, expected 0 ... %lld",
                         c->variant->name, (long long)slots, (long long)e->slots);
      *used = slots;
    }
  return ATTN_OK;
}

/* Adds the sums of the later parts to those of the first, in their order. */
static void join(const attn_projection *e, const attn_call *call, const compression_layout *l,
                 const compression_division *by, int64_t b, int64_t head) {
  const attn_problem *p = call->context->problem;
  for (attn_side side = ATTN_KEY; side <= ATTN_VALUE; side++) {
    void *to = slots_at(call, e, l, side, 0, b, head);
    for (int64_t part = 1; part * by->rows < attn_call_keys(call, b); part++)
      call->context->kernels->combine_rows(e->slots * (side == ATTN_VALUE ? p->d_v : p->d_qk), 1, to, 1,
                                           slots_at(call, e, l, side, part, b, head), to);
  }
}

/* The first failure of any thread. */
typedef struct fault {
  attn_status status;
  char message[400];
} fault;

static void keep_first_fault(fault *f, attn_status status) {
#pragma omp critical(compression_fault)
  if (!f->status) {
    f->status = status;
    snprintf(f->message, sizeof f->message, "%s", attn_last_error());
  }
}

attn_status compression_project(const compression *engine, const attn_call *call,
                                const compression_layout *l) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const attn_projection *e = engine->projection;
  const compression_division by = compression_divide(p, e);
  const int64_t heads = p->batch * p->kv_heads;
  fault first = {ATTN_OK, ""};
#pragma omp parallel num_threads(c->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < by.parts * by.blocks * heads; i++) {
      int64_t part = i / by.blocks / heads, b = i / p->kv_heads % p->batch, head = i % p->kv_heads;
      int64_t block = i / heads % by.blocks;
      int64_t used = 0;
      attn_status status = project(e, call, l, &by, part, block, b, head, &used);
      if (status) keep_first_fault(&first, status);
      if (!part && !block && !head) l->used[b] = used;
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < heads; i++) join(e, call, l, &by, i / p->kv_heads, i % p->kv_heads);
    attn_float_leave(&outer);
  }
  return first.status ? attn_fail(first.status, "%s", first.message) : ATTN_OK;
}

static attn_status execute(const void *state, const attn_call *call) {
  const compression *engine = state;
  const attn_projection *e = engine->projection;
  attn_carver carver = attn_carver_at(call, call->work);
  const compression_layout l =
      compression_lay_out(call->context, e, attending_bytes(call->context, e), &carver);
  const attn_status status = compression_project(engine, call, &l);
  if (status) return status;
  attn_context inner_context = *call->context;
  inner_context.problem = &engine->inner;
  attn_call inner = {.context = &inner_context,
                     .q = call->q,
                     .k = l.k,
                     .v = l.v,
                     .kv_len = l.used,
                     .o = call->o,
                     .work = l.rest,
                     .guards = call->guards};
  return attn_softmax_execute(engine->softmax, &inner);
}

const attn_engine attn_engine_compression = {"compression",
                                             accepts,
                                             {.work_size = work_size,
                                              .plan = plan,
                                              .execute = execute,
                                              .backward_size = compression_backward_size,
                                              .backward = compression_backward}};

attn_cost attn_compression_cost(const attn_context *c, int64_t slots, double project_mul_add_per_column) {
  if (!c) return (attn_cost){0};
  const attn_problem *p = c->problem;
  attn_problem inner = inner_problem(p, slots);
  attn_context inner_context = *c;
  inner_context.problem = &inner;
  attn_cost cost = attn_softmax_cost(&inner_context, (double)p->n_q * (double)slots);
  cost.mul_add += (double)(p->batch * p->kv_heads) * (double)(p->d_qk + p->d_v) * project_mul_add_per_column;
  cost.bytes = attn_problem_bytes(p);
  return cost;
}

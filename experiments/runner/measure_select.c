/* measure_select.c - which share of an execution's time selecting keys takes: an execution and its
 * selections alone, as the engine asks for them and by as many threads, in turn; the median of the ratios.
 * Both compute on what the run computes on, and with caches as the run has them. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/runner/measure.h"

#include "experiments/mathematics/statistics.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

enum { PAIRS = 15 };

/* What selections are written to. */
typedef struct picks_room {
  const attn_selector *x;
  const attn_call *call;
  int64_t rows, units,
      step; /* queries of a block; selections of a query of a batch entry; heads that share one */
  size_t prepared_bytes, thread_bytes, runs_bytes, counts_bytes, weights_bytes;
  unsigned char *prepared, *threads; /* [batch, kv_heads], [threads] */
} picks_room;

static size_t aligned(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

static picks_room lay_out(const attn_selector *x, const attn_call *call) {
  const attn_problem *p = call->context->problem;
  picks_room r = {.x = x, .call = call, .rows = x->rows < p->n_q ? x->rows : p->n_q, .step = 1};
  if (x->share == ATTN_SHARE_GROUP) r.step = p->heads / p->kv_heads;
  r.units = p->heads / r.step;
  r.prepared_bytes = aligned(x->prepared_bytes ? x->prepared_bytes(x->state, call->context) : 0);
  r.runs_bytes = aligned((size_t)(r.rows * x->max_runs) * sizeof(attn_run));
  r.counts_bytes = aligned((size_t)r.rows * sizeof(int64_t));
  r.weights_bytes = x->weighted ? aligned((size_t)(r.rows * x->max_runs) * sizeof(double)) : 0;
  r.thread_bytes = r.runs_bytes + r.counts_bytes + r.weights_bytes +
                   aligned(x->scratch_bytes ? x->scratch_bytes(x->state, call->context) : 0);
  return r;
}

static size_t all_bytes(const picks_room *r) {
  const attn_context *c = r->call->context;
  return r->prepared_bytes * (size_t)(c->problem->batch * c->problem->kv_heads) +
         r->thread_bytes * (size_t)c->threads + 64;
}

static void select_all(const picks_room *r) {
  const attn_selector *x = r->x;
  const attn_context *c = r->call->context;
  const attn_problem *p = c->problem;
  const int64_t lines = p->batch * p->kv_heads, group = p->heads / p->kv_heads,
                blocks = (p->n_q + r->rows - 1) / r->rows;
#pragma omp parallel num_threads(c->threads)
  {
    unsigned char *own = r->threads + (size_t)omp_get_thread_num() * r->thread_bytes,
                  *scratch = own + r->runs_bytes + r->counts_bytes + r->weights_bytes;
    attn_picks picks = {.max_runs = x->max_runs,
                        .runs = (attn_run *)(void *)own,
                        .counts = (int64_t *)(void *)(own + r->runs_bytes),
                        .log_weights =
                            x->weighted ? (double *)(void *)(own + r->runs_bytes + r->counts_bytes) : NULL};
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < (x->prepare ? lines : 0); i++)
      x->prepare(x->state, r->call, i / p->kv_heads, i % p->kv_heads,
                 r->prepared + (size_t)i * r->prepared_bytes, scratch);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < p->batch * r->units * blocks; task++) {
      attn_block b = {.batch = task / r->units % p->batch, .head = task % r->units * r->step};
      b.first = (blocks - 1 - task / (p->batch * r->units)) * r->rows;
      b.count = r->rows < p->n_q - b.first ? r->rows : p->n_q - b.first;
      x->select(x->state, r->call, &b,
                r->prepared + (size_t)(b.batch * p->kv_heads + b.head / group) * r->prepared_bytes, &picks,
                scratch);
    }
  }
}

/* Pairs, as long as they take no longer than the samples of a run may. */
static attn_status time_pairs(measured_run *r, const picks_room *room, void *work) {
  const measure_block *block = r->block;
  double ratio[PAIRS], spent = 0;
  size_t count = 0;
  for (; count < PAIRS && spent < block->job->timing.max_time; count++) {
    double start, whole, selecting;
    if (block->evictor.buffer) evict(&block->evictor);
    start = timing_now();
    const attn_status status =
        attn_plan_execute(r->plan, block->q.at, block->k.at, block->v.at, NULL, block->o.at, work);
    whole = timing_now() - start;
    if (status) return status;
    if (block->evictor.buffer) evict(&block->evictor);
    start = timing_now();
    select_all(room);
    selecting = timing_now() - start;
    ratio[count] = selecting / whole;
    spent += whole + selecting;
  }
  r->row.select_share = median_of(ratio, count);
  return ATTN_OK;
}

attn_status measure_select(measured_run *r) {
  const measure_block *block = r->block;
  attn_view view;
  attn_status status = attn_plan_inspect(r->plan, &view);
  if (status || !view.selector || view.selector->least > 0) return status;
  const attn_call call = {
      .context = attn_plan_context(r->plan), .q = block->q.at, .k = block->k.at, .v = block->v.at};
  picks_room room = lay_out(view.selector, &call);
  const size_t work = attn_plan_work_size(r->plan), bytes = all_bytes(&room);
  if (view.selector->every) r->row.select_share = 0;
  if (view.selector->every || !memory_take(&r->memory, work + bytes)) return ATTN_OK;
  void *at = malloc(work + 1), *own = NULL;
  if (posix_memalign(&own, 64, bytes)) own = NULL;
  room.prepared = own;
  if (own)
    room.threads =
        room.prepared + room.prepared_bytes * (size_t)(block->problem.batch * block->problem.kv_heads);
  status = at && own ? time_pairs(r, &room, at) : attn_fail(ATTN_ENOMEM, "no memory to time selections in");
  free(own);
  free(at);
  memory_give(&r->memory, work + bytes);
  return status;
}

/* select.c - the softmax engine over keys that a variant selects from Q and K when it executes (attn_selector.h).
 *
 * Two passes: what the selector prepares of each kv head, then block by block of queries its selection, of which each
 * query, group of heads or block becomes a tile. A tile's segments are the selection itself, so that nothing of the
 * size of n x n exists; a query's result depends on its selection alone. The tiles of a block take their keys in turn,
 * stretch by stretch of the keys, so that what several of them selected is read from the cache. */
#include "core/engines/softmax/softmax.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

typedef struct selection {
  attn_selector selector;
  attn_softmax softmax;
  void *every; /* attention to all keys, where the selection is that; else NULL */
} selection;

/* The workspace: what is prepared, then each thread's. */
typedef struct layout {
  attn_slices prepared, threads; /* of each batch entry and kv head; of each thread */
} layout;

/* Bytes of keys and values of a stretch: half a second cache; keys that a tile takes of it, on average. */
enum { STRETCH_BYTES = 1 << 19, STRETCH_PICKS = 64 };

typedef struct worker {
  softmax_worker softmax;
  attn_run *runs;     /* [rows of a block][max_runs] */
  int64_t *counts;    /* [rows of a block] */
  int64_t *rows;      /* of a block */
  int64_t *next;      /* of each selection, the first run that is not taken whole */
  attn_tile **states; /* [selections of a block][parts of the heads that share one] */
  softmax_segment *segments;
  void *scratch; /* the selector's */
} worker;

static softmax_shape shape_of(const attn_context *c, const attn_selector *x) {
  const attn_problem *p = c->problem;
  softmax_shape s = {
      .heads = x->share == ATTN_SHARE_GROUP ? p->heads / p->kv_heads : 1, .splits = 1, .split = p->n_kv};
  s.heads = attn_min(s.heads, ATTN_TILE);
  s.blocks.query = x->share == ATTN_SHARE_TILE ? attn_min(x->rows, p->n_q) : 1;
  s.rows = s.heads * s.blocks.query;
  s.kernels = attn_softmax_kernels(c, ATTN_PATH_AUTO, s.rows);
  s.blocks.key = attn_min(s.kernels->products ? 128 : c->blocks.key, p->n_kv);
  return s;
}

static int64_t block_rows(const attn_problem *p, const attn_selector *x) { return attn_min(x->rows, p->n_q); }

static int64_t selections_of(const attn_block *b, const attn_selector *x) {
  return x->share == ATTN_SHARE_TILE ? 1 : b->count;
}

static int64_t parts_of(const attn_problem *p, const attn_selector *x, const softmax_shape *s) {
  return x->share == ATTN_SHARE_GROUP ? attn_ceil_div(p->heads / p->kv_heads, s->heads) : 1;
}

static int64_t stretch_of(const attn_problem *p, const attn_selector *x) {
  const int64_t bytes = (p->d_qk + p->d_v) * (int64_t)attn_dtype_size(p->dtype),
                picks = x->max_keys ? attn_min(x->max_keys, p->n_kv) : p->n_kv;
  const double sparse = (double)p->n_kv / (double)picks * STRETCH_PICKS;
  if (x->share == ATTN_SHARE_TILE || sparse >= (double)p->n_kv) return p->n_kv;
  return attn_max(attn_max(STRETCH_BYTES / bytes, (int64_t)sparse), 1);
}

static worker carve_worker(const attn_context *c, const attn_selector *x, const softmax_shape *s,
                           attn_carver *carver) {
  const int64_t rows = block_rows(c->problem, x), parts = parts_of(c->problem, x, s),
                states = x->share == ATTN_SHARE_TILE ? 1 : rows * parts;
  worker w = {.softmax = attn_softmax_carve(c, s, x->max_runs, carver),
              .runs = attn_carve(carver, rows, x->max_runs, sizeof(attn_run)),
              .counts = attn_carve(carver, rows, 1, sizeof(int64_t)),
              .rows = attn_carve(carver, rows, 1, sizeof(int64_t)),
              .next = attn_carve(carver, rows, 1, sizeof(int64_t)),
              .states = attn_carve(carver, states, 1, sizeof(attn_tile *)),
              .segments = attn_carve(carver, 2 * x->max_runs + 2, 1, sizeof(softmax_segment)),
              .scratch = attn_carve(carver, 1, 1, x->scratch_bytes ? x->scratch_bytes(x->state, c) : 0)};
  for (int64_t i = 0; i < states; i++) {
    attn_tile *state = attn_softmax_carve_state(c, s, &w.softmax, carver);
    if (carver->base) w.states[i] = state;
  }
  return w;
}

static layout lay_out(const attn_context *c, const attn_selector *x, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const softmax_shape s = shape_of(c, x);
  attn_carver one = attn_carver_count(c);
  carve_worker(c, x, &s, &one);
  return (layout){.prepared = attn_carve_slices(carver, p->batch * p->kv_heads,
                                                x->prepared_bytes ? x->prepared_bytes(x->state, c) : 0),
                  .threads = attn_carve_slices(carver, c->threads, one.used)};
}

/* ---- planning ------------------------------------------------------------------------------------------- */

static attn_status check_selector(const attn_context *c, const attn_selector *x) {
  const char *name = c->variant->name;
  if (!x) return attn_fail(ATTN_EINVAL, "variant %s: its selector is NULL", name);
  attn_status status = attn_selector_check(name, x);
  if (!status && c->problem->mask.kind == ATTN_MASK_PATTERN)
    status = attn_fail(ATTN_EUNSUPPORTED,
                       "variant %s: a user's graph as a mask is not supported where keys are "
                       "selected",
                       name);
  return status;
}

size_t attn_selection_work_size(const attn_context *c, const attn_selector *x) {
  if (!c) {
    attn_null("selection", "context");
    return SIZE_MAX;
  }
  if (check_selector(c, x)) return SIZE_MAX;
  if (x->every) return attn_softmax_size(c, NULL, (attn_tiling){0});
  attn_carver counter = attn_carver_count(c);
  lay_out(c, x, &counter);
  return counter.used;
}

attn_status attn_selection_plan(attn_builder *b, const attn_selector *x, void **state) {
  if (!b) return attn_null("selection", "builder");
  if (!state) return attn_null("selection", "state");
  attn_status status = check_selector(&b->context, x);
  if (!status) status = attn_engine_room(&b->context, "selection", attn_selection_work_size(&b->context, x));
  selection *s = status ? NULL : attn_builder_alloc(b, 1, sizeof *s);
  if (!s) return status ? status : ATTN_ENOMEM;
  const int64_t n_kv = b->context.problem->n_kv;
  *s = (selection){.selector = *x,
                   .softmax = {.shape = shape_of(&b->context, x),
                               .max_runs = x->max_runs,
                               .most_keys = x->max_keys ? attn_min(x->max_keys, n_kv) : n_kv}};
  status = x->every ? attn_softmax_prepare(b, NULL, (attn_tiling){0}, &s->every)
                    : attn_softmax_score(b, &s->softmax.score);
  if (!status) *state = s;
  return status;
}

void attn_selection_inspect(const void *state, const attn_context *c, attn_view *view) {
  const selection *s = state;
  if (!s || !c || !view) return;
  view->selector = &s->selector;
  view->caps |= ATTN_CAP_DATA;
  view->rounding = attn_softmax_rounding(s->every ? s->every : &s->softmax, c);
  const int64_t stretches = s->every ? 0 : c->problem->n_kv / stretch_of(c->problem, &s->selector);
  view->rounding.value += 2 * stretches; /* of which each may end a step before it is full */
  view->rounding.sum += 2 * stretches;
}

/* ---- execution ------------------------------------------------------------------------------------------ */

/* The first fault of any thread. */
typedef struct fault {
  attn_status status;
  char text[160];
} fault;

/* NULL, or what is wrong with a selection. */
static const char *wrong_runs(const attn_selector *x, int64_t n_kv, const attn_run *runs, int64_t count) {
  int64_t end = 0;
  if (count < 0 || count > x->max_runs) return "has more than max_runs runs";
  for (int64_t r = 0; r < count; r++) {
    if (runs[r].step != 1) return "has a run of another step than 1";
    if (runs[r].count < 1) return "has a run of no keys";
    if (runs[r].first < end) return "has runs that overlap or do not ascend";
    if (runs[r].first >= n_kv || runs[r].count > n_kv - runs[r].first) return "goes beyond the last key";
    end = runs[r].first + runs[r].count;
  }
  return NULL;
}

static bool sound(const selection *s, const attn_call *call, const attn_block *block, int64_t i,
                  const worker *w, fault *f) {
  const attn_problem *p = call->context->problem;
  const char *wrong = wrong_runs(&s->selector, p->n_kv, w->runs + i * s->selector.max_runs, w->counts[i]);
  if (!wrong) return true;
#pragma omp critical(attn_selection_fault)
  if (!f->status) {
    f->status = ATTN_EINVAL;
    snprintf(f->text, sizeof f->text, "the selection of query %lld (batch entry %lld, head %lld) %s",
             (long long)(block->first + i), (long long)block->batch, (long long)block->head, wrong);
  }
  return false;
}

/* The segments that some of the rows see of keys first ... last - 1: a selection's runs from run *next on, cut where not all
 * of the rows see them. Leaves *next at the first run that goes on. */
static void find_segments(const softmax_task *t, softmax_tile *tile, int64_t first, int64_t last,
                          int64_t *next, softmax_segment *out) {
  const attn_problem *p = t->call->context->problem;
  int64_t begin, whole_end, whole_begin, end, r = *next;
  attn_visible_span(p, tile->rows[0], &begin, &whole_end);
  attn_visible_span(p, tile->rows[tile->row_count - 1], &whole_begin, &end);
  begin = attn_max(begin, first);
  end = attn_min(attn_min(end, t->keys), last);
  *tile = (softmax_tile){.rows = tile->rows, .row_count = tile->row_count, .segments = out};
  for (; r < t->pick_count && t->picks[r].first < last; r++) {
    const attn_run *run = &t->picks[r];
    const int64_t stop = attn_min(run->first + run->count, end);
    for (int64_t from = attn_max(run->first, begin), to; from < stop; from = to) {
      const bool whole = from >= whole_begin && from < whole_end;
      const int64_t cut = whole ? whole_end : from < whole_begin ? whole_begin : stop;
      to = attn_min(stop, cut);
      out[tile->segment_count++] = (softmax_segment){from, to - from, 1, !whole};
      tile->keys += to - from;
    }
    if (run->first + run->count > last) break;
  }
  *next = r;
}

/* Part `part` of the heads that share selection i of a block. */
static softmax_task task_of(const selection *s, const attn_call *call, const attn_block *block, int64_t i,
                            int64_t part, const worker *w, softmax_tile *tile) {
  const attn_problem *p = call->context->problem;
  const attn_selector *x = &s->selector;
  const int64_t group = p->heads / p->kv_heads, kv_head = block->head / group,
                heads = x->share == ATTN_SHARE_GROUP ? group : 1, first = part * s->softmax.shape.heads;
  *tile = (softmax_tile){.rows = w->rows + i, .row_count = x->share == ATTN_SHARE_TILE ? block->count : 1};
  return (softmax_task){.s = &s->softmax,
                        .call = call,
                        .tile = tile,
                        .batch = block->batch,
                        .head = block->head + first,
                        .heads = attn_min(s->softmax.shape.heads, heads - first),
                        .k = attn_rows(call->k, p->k, block->batch, kv_head, p->dtype),
                        .v = attn_rows(call->v, p->v, block->batch, kv_head, p->dtype),
                        .keys = attn_call_keys(call, block->batch),
                        .picks = w->runs + i * x->max_runs,
                        .pick_count = w->counts[i]};
}

static void attend(const selection *s, const attn_call *call, const attn_block *block, worker *w) {
  const attn_problem *p = call->context->problem;
  const int64_t count = selections_of(block, &s->selector),
                parts = parts_of(p, &s->selector, &s->softmax.shape), stretch = stretch_of(p, &s->selector),
                keys = attn_call_keys(call, block->batch);
  softmax_tile tile;
  for (int64_t i = 0; i < count * parts; i++) {
    const softmax_task t = task_of(s, call, block, i / parts, i % parts, w, &tile);
    w->next[i / parts] = 0;
    attn_softmax_begin(&t, &w->softmax, w->states[i]);
    attn_softmax_sink(&t, w->states[i]);
  }
  for (int64_t first = 0; first < keys; first += stretch)
    for (int64_t i = 0; i < count; i++)
      for (int64_t part = 0, from = w->next[i]; part < parts; part++) {
        const softmax_task t = task_of(s, call, block, i, part, w, &tile);
        w->next[i] = from;
        find_segments(&t, &tile, first, first + stretch, &w->next[i], w->segments);
        if (tile.segment_count) attn_softmax_walk(&t, &w->softmax, w->states[i * parts + part], 0, INT64_MAX);
      }
  for (int64_t i = 0; i < count * parts; i++) {
    const softmax_task t = task_of(s, call, block, i / parts, i % parts, w, &tile);
    int64_t next = 0;
    find_segments(&t, &tile, 0, keys, &next, w->segments);
    attn_softmax_finish(&t, &w->softmax, w->states[i]);
  }
}

static void run_block(const selection *s, const attn_call *call, const attn_block *block,
                      const void *prepared, worker *w, fault *f) {
  const attn_selector *x = &s->selector;
  bool all = true;
  x->select(x->state, call, block, prepared, w->runs, w->counts, w->scratch);
  for (int64_t i = 0; i < block->count; i++) w->rows[i] = block->first + i;
  for (int64_t i = 0; i < selections_of(block, x); i++) all = sound(s, call, block, i, w, f) && all;
  if (all) attend(s, call, block, w);
}

/* Block `task` of all heads, or of all kv heads that share; the last queries, which see most, first. */
static attn_block block_of(const attn_problem *p, const attn_selector *x, int64_t task) {
  const int64_t rows = block_rows(p, x), blocks = attn_ceil_div(p->n_q, rows),
                step = x->share == ATTN_SHARE_GROUP ? p->heads / p->kv_heads : 1, units = p->heads / step,
                first = (blocks - 1 - task / (p->batch * units)) * rows;
  return (attn_block){.batch = task / units % p->batch,
                      .head = task % units * step,
                      .first = first,
                      .count = attn_min(rows, p->n_q - first)};
}

static int64_t block_count(const attn_problem *p, const attn_selector *x) {
  const int64_t units = x->share == ATTN_SHARE_GROUP ? p->kv_heads : p->heads;
  return p->batch * units * attn_ceil_div(p->n_q, block_rows(p, x));
}

attn_status attn_selection_execute(const void *state, const attn_call *call) {
  if (!call) return attn_null("selection", "call");
  const selection *s = state;
  const attn_context *c = call->context;
  if (!s) return attn_no_state(c, "selection");
  if (s->every) return attn_softmax_execute(s->every, call);
  const attn_problem *p = c->problem;
  const attn_selector *x = &s->selector;
  const softmax_shape *shape = &s->softmax.shape;
  const int64_t group = p->heads / p->kv_heads;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = lay_out(c, x, &carver);
  fault f = {0};
#pragma omp parallel num_threads(c->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
    attn_carver own = attn_carver_at(call, attn_slice(l.threads, omp_get_thread_num()));
    worker w = carve_worker(c, x, shape, &own);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < (x->prepare ? p->batch * p->kv_heads : 0); i++)
      x->prepare(x->state, call, i / p->kv_heads, i % p->kv_heads, attn_slice(l.prepared, i), w.scratch);
    if (shape->kernels->enter) shape->kernels->enter();
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < block_count(p, x); task++) {
      const attn_block block = block_of(p, x, task);
      run_block(s, call, &block, attn_slice(l.prepared, block.batch * p->kv_heads + block.head / group), &w,
                &f);
    }
    if (shape->kernels->leave) shape->kernels->leave();
    attn_float_leave(&outer);
  }
  return f.status ? attn_fail(f.status, "variant %s: %s", c->variant->name, f.text) : ATTN_OK;
}

/* ---- what was selected ---------------------------------------------------------------------------------- */

static attn_status check_rows(const attn_problem *p, const attn_row_set *set) {
  if (set->batch < 0 || set->batch >= p->batch)
    return attn_fail(ATTN_EINVAL, "select: batch entry %lld of %lld", (long long)set->batch,
                     (long long)p->batch);
  if (set->head < 0 || set->head >= p->heads)
    return attn_fail(ATTN_EINVAL, "select: head %lld of %lld", (long long)set->head, (long long)p->heads);
  for (int64_t r = 0; r < set->count; r++)
    if (set->rows[r] < (r ? set->rows[r - 1] + 1 : 0) || set->rows[r] >= p->n_q)
      return attn_fail(ATTN_EINVAL, "select: rows must ascend in 0 ... %lld, not %lld", (long long)p->n_q - 1,
                       (long long)set->rows[r]);
  return ATTN_OK;
}

/* Block by block as an execution asks, of which only those with a wanted row. */
static attn_status select_rows(const attn_selector *x, const attn_call *call, const attn_row_set *set,
                               const void *prepared, void *scratch, attn_run *own, int64_t *own_counts,
                               attn_run *runs, int64_t *counts) {
  const attn_problem *p = call->context->problem;
  const int64_t rows = block_rows(p, x), group = p->heads / p->kv_heads,
                head = x->share == ATTN_SHARE_GROUP ? set->head / group * group : set->head;
  int64_t held = -1;
  for (int64_t r = 0; r < set->count; r++) {
    const int64_t first = set->rows[r] / rows * rows,
                  of = x->share == ATTN_SHARE_TILE ? 0 : set->rows[r] - first;
    const attn_block block = {
        .batch = set->batch, .head = head, .first = first, .count = attn_min(rows, p->n_q - first)};
    if (first != held) x->select(x->state, call, &block, prepared, own, own_counts, scratch);
    held = first;
    const attn_run *from = own + of * x->max_runs;
    const char *wrong = wrong_runs(x, p->n_kv, from, own_counts[of]);
    if (wrong)
      return attn_fail(ATTN_EINVAL, "variant %s: the selection of query %lld %s",
                       call->context->variant->name, (long long)set->rows[r], wrong);
    counts[r] = own_counts[of];
    memcpy(runs + r * x->max_runs, from, (size_t)counts[r] * sizeof *runs);
  }
  return ATTN_OK;
}

attn_status attn_plan_select(const attn_plan *plan, const void *q, const void *k, const void *v,
                             const int64_t *kv_len, const attn_row_set *set, attn_run *runs,
                             int64_t *counts) {
  attn_view view;
  if (!plan) return attn_null("select", "plan");
  if (!q) return attn_null("select", "q");
  if (!k) return attn_null("select", "k");
  if (!v) return attn_null("select", "v");
  if (!set || !set->rows) return attn_null("select", "rows");
  if (!runs) return attn_null("select", "runs");
  if (!counts) return attn_null("select", "counts");
  attn_status status = attn_plan_inspect(plan, &view);
  if (status) return status;
  const attn_context *c = attn_plan_context(plan);
  const attn_problem *p = c->problem;
  const attn_selector *x = view.selector;
  if (!x) return attn_fail(ATTN_EUNSUPPORTED, "variant %s: selects no keys", c->variant->name);
  if ((status = check_rows(p, set))) return status;
  const attn_call call = {.context = c, .q = q, .k = k, .v = v, .kv_len = kv_len};
  attn_arena arena = {.allocator = attn_allocator_libc};
  void *prepared = attn_arena_alloc(&arena, 1, (x->prepared_bytes ? x->prepared_bytes(x->state, c) : 0) + 64),
       *scratch = attn_arena_alloc(&arena, 1, (x->scratch_bytes ? x->scratch_bytes(x->state, c) : 0) + 64);
  attn_run *own = attn_arena_alloc(&arena, block_rows(p, x) * x->max_runs, sizeof *own);
  int64_t *own_counts = attn_arena_alloc(&arena, block_rows(p, x), sizeof *own_counts);
  fenv_t outer;
  attn_float_enter(&outer);
  if (!prepared || !scratch || !own || !own_counts) status = ATTN_ENOMEM;
  if (!status && x->prepare)
    x->prepare(x->state, &call, set->batch, set->head / (p->heads / p->kv_heads), prepared, scratch);
  if (!status) status = select_rows(x, &call, set, prepared, scratch, own, own_counts, runs, counts);
  attn_float_leave(&outer);
  attn_arena_free(&arena);
  return status;
}

/* select.c - the softmax engine over keys that a variant selects from Q and K when it executes
 * (attn_selector.h).
 *
 * Two passes: what the selector prepares of each kv head, then block by block of queries its selection. The
 * rows of a block are one tile, which takes the keys in ascending order, each for those rows that selected
 * it: keys and values are read once for all of them, and nothing of the size of n x n exists. Where each
 * query selects its own, a step ends at fixed keys: a query's result depends on its selection alone, not on
 * those of others. */
#include "core/engines/softmax/backward.h"
#include "core/engines/softmax/selected.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

typedef struct selection {
  const attn_selector *selector; /* the parts' */
  attn_softmax softmax;
  void *every; /* attention to all keys, where the selection is that; else NULL */
} selection;

/* The workspace: what is prepared, then each thread's, then the backward pass's sums. */
typedef struct layout {
  attn_slices prepared, threads; /* of each batch entry and kv head; of each thread */
  softmax_sums sums;
  attn_bias_sums biases;
} layout;

/* Where rows select for themselves: the keys whose rows are looked up at a time, and the most keys of a step,
 * which is long enough that each row has some dozens of keys in it. */
enum { STRETCH = 512, MOST_KEYS = 4096, PICKS = 32 };

typedef struct worker {
  softmax_worker softmax;
  softmax_back back;
  selected_keys keys; /* of a block */
  int64_t *rows;      /* of a block */
  void *scratch;      /* the selector's */
  attn_stages spent;
} worker;

static softmax_shape shape_of(const attn_context *c, const attn_selector *x) {
  const attn_problem *p = c->problem;
  const bool apart = x->share != ATTN_SHARE_TILE;
  softmax_shape s = {.blocks.query = attn_selection_rows(p, x), .heads = 1, .splits = 1, .split = p->n_kv};
  if (x->share == ATTN_SHARE_GROUP) s.heads = attn_min(ATTN_TILE / s.blocks.query, p->heads / p->kv_heads);
  s.rows = s.heads * s.blocks.query;
  s.weighted = x->weighted;
  s.kernels = attn_softmax_kernels(c, ATTN_PATH_AUTO, apart ? 1 : s.rows);
  /* The kernels for decoding have no biases. */
  if (x->weighted && s.kernels == &c->kernels->decode) s.kernels = &c->kernels->tile;
  const bool few = s.kernels == &c->kernels->decode;
  const int64_t most = x->max_keys ? attn_min(x->max_keys, p->n_kv) : p->n_kv,
                longest = few ? MOST_KEYS : MOST_KEYS / 2, /* tiles have weights for all queries and keys */
      sparse = attn_min(p->n_kv / most * PICKS / STRETCH * STRETCH, longest),
                tiled = s.kernels->products ? 128 : c->blocks.key;
  s.blocks.key = attn_min(apart ? attn_max(STRETCH, sparse) : tiled, p->n_kv);
  s.seen = few ? attn_min(s.blocks.key, most) : s.blocks.key;
  return s;
}

static worker carve_worker(const attn_context *c, const attn_selector *x, const softmax_shape *s, bool back,
                           attn_carver *carver) {
  const int64_t rows = s->blocks.query;
  return (worker){.softmax = attn_softmax_carve(c, s, x->max_runs, carver),
                  .back = back ? attn_softmax_back_carve(c, s, carver) : (softmax_back){0},
                  .keys = attn_selected_carve(x, rows, s->blocks.key, carver),
                  .rows = attn_carve(carver, rows, 1, sizeof(int64_t)),
                  .scratch = attn_carve(carver, 1, 1, x->scratch_bytes)};
}

/* Query heads that share a selection. */
static int64_t shared_heads(const attn_problem *p, const attn_selector *x) {
  return x->share == ATTN_SHARE_GROUP ? p->heads / p->kv_heads : 1;
}

/* Blocks of the heads of a kv head. */
static int64_t line_blocks(const attn_problem *p, const attn_selector *x) {
  return p->heads / p->kv_heads / shared_heads(p, x) * attn_ceil_div(p->n_q, attn_selection_rows(p, x));
}

static layout lay_out(const attn_context *c, const attn_selector *x, bool back, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const softmax_shape s = shape_of(c, x);
  attn_carver one = attn_carver_count(c);
  carve_worker(c, x, &s, back, &one);
  layout l = {.prepared = attn_carve_slices(carver, p->batch * p->kv_heads, x->prepared_bytes),
              .threads = attn_carve_slices(carver, c->threads, one.used)};
  if (back) {
    l.sums = attn_softmax_sums_carve(p, attn_softmax_back_slices(p, line_blocks(p, x)), carver);
    l.biases = attn_biases_carve(p, shared_heads(p, x), carver);
  }
  return l;
}

/* ---- planning ---------------------------------------------------------------------------------------- */

static bool accepts(const attn_parts *p) { return attn_parts_kinds(p) == ATTN_PART_SELECTOR; }

static attn_status work_size(const attn_context *c, const attn_parts *p, size_t *bytes) {
  if (c->problem->mask.kind == ATTN_MASK_PATTERN && !attn_mask_is_band(&c->problem->mask))
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant %s: where keys are selected, a user's graph as a mask may have one run of keys "
                     "for a query, the same in all heads",
                     c->variant->name);
  attn_carver counter = attn_carver_count(c);
  if (!p->selector.every) lay_out(c, &p->selector, false, &counter);
  *bytes = p->selector.every ? attn_softmax_size(c, NULL, (attn_tiling){0}) : counter.used;
  return ATTN_OK;
}

static attn_status backward_size(const void *state, const attn_context *c, const attn_parts *p,
                                 size_t *bytes) {
  (void)state;
  attn_carver counter = attn_carver_count(c);
  if (!p->selector.every) lay_out(c, &p->selector, true, &counter);
  *bytes = p->selector.every ? attn_softmax_back_size(c, NULL, (attn_tiling){0}) : counter.used;
  return attn_softmax_back_check(c, (attn_tiling){0});
}

static attn_status plan(attn_builder *b, const attn_parts *p, void **state) {
  const attn_selector *x = &p->selector;
  const int64_t n_kv = b->context.problem->n_kv;
  selection *s = attn_builder_alloc(b, 1, sizeof *s);
  if (!s) return ATTN_ENOMEM;
  *s = (selection){.selector = x,
                   .softmax = {.shape = shape_of(&b->context, x),
                               .max_runs = x->max_runs,
                               .most_keys = x->max_keys ? attn_min(x->max_keys, n_kv) : n_kv}};
  *state = s;
  return x->every ? attn_softmax_prepare(b, NULL, (attn_tiling){0}, &s->every)
                  : attn_softmax_score(b, &s->softmax.score);
}

static void inspect(const void *state, const attn_context *c, attn_view *view) {
  const selection *s = state;
  view->caps |= ATTN_CAP_DATA;
  view->rounding = attn_softmax_rounding(s->every ? s->every : &s->softmax, c);
  if (s->every || s->selector->share == ATTN_SHARE_TILE) return;
  const int64_t steps = attn_min(c->problem->n_kv / s->softmax.shape.blocks.key, s->softmax.most_keys);
  view->rounding.value += 2 * steps; /* which may end before they are full */
  view->rounding.sum += 2 * steps;
}

/* ---- execution --------------------------------------------------------------------------------------- */

/* The first fault of any thread. */
typedef struct fault {
  attn_status status;
  char text[160];
} fault;

static void note(fault *f, const attn_block *block, const char *of, int64_t row, const char *wrong) {
#pragma omp critical(attn_selection_fault)
  if (!f->status) {
    f->status = ATTN_EINVAL;
    snprintf(f->text, sizeof f->text, "the %s %lld (batch entry %lld, head %lld) %s", of, (long long)row,
             (long long)block->batch, (long long)block->head, wrong);
  }
}

static bool sound(const selection *s, const attn_call *call, const attn_block *block, int64_t i,
                  const worker *w, fault *f) {
  const char *wrong = attn_picks_error_text(s->selector, call->context->problem->n_kv, &w->keys.picks, i);
  if (wrong) note(f, block, "selection of query", w->rows[i], wrong);
  return !wrong;
}

/* The queries of a block, and the keys that they see. */
static bool find_rows(const attn_call *call, const attn_block *block, const int64_t *order, worker *w,
                      fault *f) {
  const attn_problem p = attn_call_problem(call, block->batch, block->head);
  for (int64_t i = 0; i < block->count; i++) {
    const int64_t row = order ? order[block->first + i] : block->first + i;
    if (row < 0 || row >= p.n_q) {
      note(f, block, "order at place", block->first + i, "has a query that does not exist");
      return false;
    }
    w->rows[i] = row;
    attn_visible_span(&p, row, &w->keys.begin[i], &w->keys.end[i]);
  }
  return true;
}

/* Heads first ... of those that share the selections of a block. */
static void attend(const selection *s, const attn_call *call, const attn_block *block, int64_t first_head,
                   worker *w) {
  const attn_problem *p = call->context->problem;
  const attn_selector *x = s->selector;
  const int64_t group = p->heads / p->kv_heads, kv_head = block->head / group, heads = shared_heads(p, x),
                keys = attn_call_keys(call, block->batch);
  const softmax_segment all = {0, keys, 1, true};
  const softmax_picks picks = {&w->keys.picks, x->share == ATTN_SHARE_TILE};
  const softmax_tile tile = {
      .rows = w->rows, .row_count = block->count, .segments = &all, .segment_count = 1};
  const softmax_task t = {.s = &s->softmax,
                          .call = call,
                          .problem = attn_call_problem(call, block->batch, block->head),
                          .tile = &tile,
                          .batch = block->batch,
                          .head = block->head + first_head,
                          .heads = attn_min(s->softmax.shape.heads, heads - first_head),
                          .k = attn_rows(call->k, p->k, block->batch, kv_head, p->dtype),
                          .v = attn_rows(call->v, p->v, block->batch, kv_head, p->dtype),
                          .keys = keys,
                          .picks = &picks};
  softmax_worker *own = &w->softmax;
  attn_softmax_begin(&t, own, own->tiles);
  attn_softmax_sink(&t, own->tiles);
  attn_selected_take(x, &t, &w->keys, own);
  attn_softmax_finish(&t, own, own->tiles);
}

/* 0 where nobody asks for the stages. */
static double stage_clock(const attn_call *call) { return call->stages ? omp_get_wtime() : 0; }

static void run_block(const selection *s, const attn_call *call, const attn_block *block,
                      const void *prepared, worker *w, fault *f) {
  const attn_selector *x = s->selector;
  const attn_problem *p = call->context->problem;
  const int64_t heads = shared_heads(p, x);
  const int64_t *order = x->order ? x->order(x->state, call, prepared, block->head) : NULL;
  bool all = find_rows(call, block, order, w, f);
  if (!all) return;
  const double start = stage_clock(call);
  attn_picks_ask(x, call, block, prepared, &w->keys.picks, w->scratch);
  const double selected = stage_clock(call);
  for (int64_t i = 0; i < attn_picks_count(block, x); i++) all = sound(s, call, block, i, w, f) && all;
  for (int64_t first = 0; all && first < heads; first += s->softmax.shape.heads)
    attend(s, call, block, first, w);
  w->spent.select += selected - start;
  w->spent.attend += stage_clock(call) - selected;
}

/* What the selector prepares of kv head `line` of all batch entries. */
static void prepare_line(const attn_selector *x, const attn_call *call, int64_t line, void *prepared,
                         worker *w) {
  const int64_t kv_heads = call->context->problem->kv_heads;
  const double start = stage_clock(call);
  x->prepare(x->state, call, line / kv_heads, line % kv_heads, prepared, w->scratch);
  w->spent.select += stage_clock(call) - start;
}

static void add_stages(attn_stages *to, const attn_stages *own) {
#pragma omp atomic
  to->select += own->select;
#pragma omp atomic
  to->attend += own->attend;
}

/* Block `at` of kv head `line` of all batch entries; the last queries, which see most, first. */
static attn_block block_of(const attn_problem *p, const attn_selector *x, int64_t line, int64_t at) {
  const int64_t rows = attn_selection_rows(p, x), blocks = attn_ceil_div(p->n_q, rows),
                step = shared_heads(p, x), group = p->heads / p->kv_heads, units = group / step,
                first = (blocks - 1 - at / units) * rows;
  return (attn_block){.batch = line / p->kv_heads,
                      .head = line % p->kv_heads * group + at % units * step,
                      .first = first,
                      .count = attn_min(rows, p->n_q - first)};
}

/* A slice of the blocks of a kv head, backward. */
static void run_slice(const selection *s, const attn_call *call, const layout *l, int64_t unit, worker *w,
                      fault *f) {
  const attn_problem *p = call->context->problem;
  const int64_t line = unit / l->sums.slices, slice = unit % l->sums.slices;
  attn_softmax_sums_begin(&l->sums, p, line, slice, &w->back);
  for (int64_t at = slice; at < line_blocks(p, s->selector); at += l->sums.slices) {
    const attn_block block = block_of(p, s->selector, line, at);
    run_block(s, call, &block, attn_slice(l->prepared, line), w, f);
  }
}

/* The gradients by biases: of the heads that share a selection, one after the other. */
static void run_biases(const selection *s, const attn_call *call, const layout *l, worker *w, fault *f) {
  const attn_problem *p = call->context->problem;
  const attn_selector *x = s->selector;
  const int64_t step = shared_heads(p, x), units = p->heads / p->kv_heads / step,
                blocks = line_blocks(p, x) / units;
  w->back.biases = &l->biases;
  attn_biases_begin(&l->biases, p);
  for (int64_t at = 0; at < p->batch * p->kv_heads * units; at++) {
    const int64_t line = at / units, unit = at % units;
    w->back.first_head = block_of(p, x, line, unit).head;
#pragma omp for schedule(dynamic, 1)
    for (int64_t slice = 0; slice < ATTN_BIAS_SLICES; slice++) {
      w->back.slice = slice;
      for (int64_t i = slice; i < blocks; i += ATTN_BIAS_SLICES) {
        const attn_block block = block_of(p, x, line, i * units + unit);
        run_block(s, call, &block, attn_slice(l->prepared, line), w, f);
      }
    }
    attn_biases_end(&l->biases, p, w->back.of, w->back.first_head, step);
  }
}

/* g: NULL forward. */
static attn_status run(const selection *s, const attn_call *call, const attn_gradients *g) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const attn_selector *x = s->selector;
  const softmax_shape *shape = &s->softmax.shape;
  const int64_t lines = p->batch * p->kv_heads;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = lay_out(c, x, g, &carver);
  fault f = {0};
#pragma omp parallel num_threads(c->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
    attn_carver own = attn_carver_at(call, attn_slice(l.threads, omp_get_thread_num()));
    worker w = carve_worker(c, x, shape, g, &own);
    w.back.of = g;
    if (g) w.softmax.back = &w.back;
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < (x->prepare ? lines : 0); i++)
      prepare_line(x, call, i, attn_slice(l.prepared, i), &w);
    if (shape->kernels->enter) shape->kernels->enter();
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < (g ? lines * l.sums.slices : lines * line_blocks(p, x)); task++) {
      if (g) {
        run_slice(s, call, &l, task, &w, &f);
        continue;
      }
      const attn_block block = block_of(p, x, task % lines, task / lines);
      run_block(s, call, &block, attn_slice(l.prepared, task % lines), &w, &f);
    }
    if (g) attn_softmax_sums_end(&l.sums, call, g);
    if (g && attn_biases_wanted(g)) run_biases(s, call, &l, &w, &f);
    if (shape->kernels->leave) shape->kernels->leave();
    if (call->stages) add_stages(call->stages, &w.spent);
    attn_float_leave(&outer);
  }
  if (f.status) return attn_fail(f.status, "variant %s: %s", c->variant->name, f.text);
  if (g) attn_softmax_sink_back(call, g);
  return ATTN_OK;
}

static attn_status execute(const void *state, const attn_call *call) {
  const selection *s = state;
  return s->every ? attn_softmax_execute(s->every, call) : run(s, call, NULL);
}

static attn_status backward(const void *state, const attn_call *call, const attn_gradients *g) {
  const selection *s = state;
  return s->every ? attn_softmax_backward(s->every, call, g) : run(s, call, g);
}

const attn_engine attn_engine_selection = {"selection",
                                           accepts,
                                           {.work_size = work_size,
                                            .plan = plan,
                                            .execute = execute,
                                            .inspect = inspect,
                                            .backward_size = backward_size,
                                            .backward = backward,
                                            .bias_gradients = true}};

/* ---- the selections of an execution, again ----------------------------------------------------------- */

static void *carve_picker(const attn_context *c, const attn_selector *x, attn_carver *carver,
                          attn_picks *picks) {
  *picks = attn_picks_carve(x, attn_selection_rows(c->problem, x), carver);
  return attn_carve(carver, 1, 1, x->scratch_bytes);
}

size_t attn_selection_picker_bytes(const attn_context *c, const attn_selector *x) {
  attn_carver counter = attn_carver_count(c);
  attn_picks picks;
  carve_picker(c, x, &counter, &picks);
  return counter.used;
}

attn_picker attn_selection_picker(const void *state, const attn_call *call, void *memory) {
  const selection *s = state;
  attn_picker out = {.call = call, .state = state, .memory = memory, .block = {.batch = -1}};
  attn_carver carver = attn_carver_at(call, memory);
  out.scratch = carve_picker(call->context, s->selector, &carver, &out.picks);
  return out;
}

int64_t attn_picker_row(attn_picker *a, int64_t batch, int64_t head, int64_t i, attn_run *runs) {
  const selection *s = a->state;
  const attn_selector *x = s->selector;
  const attn_call *call = a->call;
  const attn_problem of_head = attn_call_problem(call, batch, head), *p = &of_head;
  if (x->every) {
    *runs = (attn_run){0, p->n_kv, 1};
    return attn_picks_clip(p, i, runs, 1);
  }
  const int64_t rows = attn_selection_rows(p, x), first = i / rows * rows, group = p->heads / p->kv_heads,
                of = x->share == ATTN_SHARE_TILE ? 0 : i - first;
  const attn_block block = {.batch = batch,
                            .head = x->share == ATTN_SHARE_GROUP ? head / group * group : head,
                            .first = first,
                            .count = attn_min(rows, p->n_q - first)};
  if (memcmp(&block, &a->block, sizeof block) != 0) {
    attn_carver carver = {.base = call->work, .redzone = call->context->verify ? ATTN_REDZONE : 0};
    const layout l = lay_out(call->context, x, false, &carver);
    attn_picks_ask(x, call, &block, attn_slice(l.prepared, batch * p->kv_heads + head / group), &a->picks,
                   a->scratch);
    a->block = block;
  }
  /* The execution had sound ones; a selector that gives others now has none. */
  if (attn_picks_check(x, p->n_kv, &a->picks, of)) return 0;
  memcpy(runs, a->picks.runs + of * x->max_runs, (size_t)a->picks.counts[of] * sizeof *runs);
  return attn_picks_clip(p, i, runs, a->picks.counts[of]);
}

/* selector_draws.c - the draws of selector_draws.h: a small problem, plans of it under other seeds, and what
 * each of them keeps. */
#include "experiments/evidence/weights/means.h"

#include "experiments/evidence/cache.h"
#include "experiments/evidence/weights/law.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_LEAST = 64, KEYS_MOST = 2048, DRAWS_LEAST = 128, DRAWS_MOST = 4096, DRAWN_LEAST = 4, LOOK = 64 };
enum { SEED_STEP = 7919 };
static const double work = 0x1p30;          /* multiply-adds, roughly */
static const double overhead = 0x1p16;      /* of a plan and a selection */
static const double moments_most = 0x1p19;  /* that are asked for of the run's own law */
static const double each_moment = 64;       /* multiply-adds that one of them takes, roughly */
static const uint64_t purpose = 0x77656967; /* "weig" */

typedef struct fresh {
  const evidence *e;
  attn_problem p;
  void *q, *k, *v;
  int64_t *index; /* 0, 1, ... */
  int64_t row[WEIGHT_ROWS];
  weight_line line[WEIGHT_ROWS];
  attn_plan *plan; /* of the run's seed */
  attn_view view;
  bool varies; /* does the law depend on the seed? */
  weight_draws *out;
} fresh;

void weight_draws_free(weight_draws *d) {
  if (!d) return;
  free(d->off);
  free(d);
}

/* -- the problem -- */

static attn_status gather(fresh *f, int64_t keys) {
  const attn_problem *from = f->e->problem;
  attn_rng rng;
  attn_rng_init(&rng, f->e->seed, purpose, 0);
  const int64_t batch = attn_rng_below(&rng, from->batch), head = attn_rng_below(&rng, from->heads),
                kv = batch * from->kv_heads + head / (from->heads / from->kv_heads),
                rows = from->n_q < keys ? from->n_q : keys;
  f->p = attn_problem_make(1, 1, keys, from->d_qk);
  f->p.n_q = rows;
  f->p.d_v = from->d_v;
  f->p.causal = from->causal;
  f->p.dtype = from->dtype;
  f->p.scale = from->scale;
  const attn_status status = attn_problem_resolve(&f->p);
  if (status) return status;
  f->q = attn_at(f->e->q, (batch * from->heads + head) * from->n_q * from->d_qk, from->dtype);
  f->k = attn_at(f->e->k, kv * from->n_kv * from->d_qk, from->dtype);
  f->v = attn_at(f->e->v, kv * from->n_kv * from->d_v, from->dtype);
  return ATTN_OK;
}

/* Of a seed `steps` behind the run's. */
static attn_status plan_of(const fresh *f, int64_t steps, attn_plan **plan, attn_view *view) {
  attn_status status =
      evidence_seeded_plan(f->e, &f->p, evidence_seed(f->e) + steps * SEED_STEP, 1, plan, view);
  if (!status && !(view->selector && view->selector->weighted && view->selector->moments))
    status = attn_fail(ATTN_EUNSUPPORTED, "on a small problem the variant draws no keys");
  return status;
}

static int64_t end_of(const fresh *f, int64_t i) {
  return f->p.causal ? attn_problem_position(&f->p, i) + 1 : f->p.n_kv;
}

/* How many of the keys looked at, of the last row, are drawn. */
static int64_t drawn(const fresh *f) {
  const attn_call call = {.context = attn_plan_context(f->plan), .q = f->q, .k = f->k, .v = f->v};
  const attn_query query = {.call = &call, .i = f->p.n_q - 1};
  const int64_t end = end_of(f, query.i), look = end < LOOK ? end : LOOK;
  int64_t found = 0;
  for (int64_t a = 0; a < look; a++) {
    const int64_t key = (2 * a + 1) * end / (2 * look);
    double m;
    weight_moments(f->view.selector, &query, &key, 1, &m);
    found += !weight_always(&m, 1, 0);
  }
  return found;
}

/* The fewest keys, from 64 on, of which some are drawn. False, with `why` or a status: there are none. */
static bool prepare(fresh *f, attn_status *status) {
  const evidence *e = f->e;
  int64_t most = e->problem->n_kv;
  for (int64_t b = 0; e->kv_len && b < e->problem->batch; b++)
    if (e->kv_len[b] < most) most = e->kv_len[b];
  if (most > KEYS_MOST) most = KEYS_MOST;
  for (int64_t keys = KEYS_LEAST < most ? KEYS_LEAST : most; keys > 0;
       keys = 2 * keys < most ? 2 * keys : most) {
    attn_plan_destroy(f->plan);
    f->plan = NULL;
    *status = gather(f, keys);
    if (!*status) *status = plan_of(f, 0, &f->plan, &f->view);
    const bool refused = *status == ATTN_EUNSUPPORTED || *status == ATTN_EINVAL;
    if (*status && !refused) return false;
    if (!refused && drawn(f) >= DRAWN_LEAST) return true;
    *status = ATTN_OK;
    if (keys == most) break;
  }
  f->out->why = "up to 2048 keys every key is always taken: nothing is drawn";
  return false;
}

/* Does the last row have another law under other seeds? */
static attn_status look_at_law(fresh *f) {
  enum { SEEDS = 3 };
  const int64_t end = end_of(f, f->p.n_q - 1);
  double *excess = malloc((size_t)end * sizeof *excess + 1);
  attn_status status = excess ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a row of weights");
  for (int s = 0; !status && !f->varies && s < SEEDS; s++) {
    attn_plan *plan = NULL;
    attn_view view;
    status = plan_of(f, s, &plan, &view);
    const attn_call call = {
        .context = status ? NULL : attn_plan_context(plan), .q = f->q, .k = f->k, .v = f->v};
    const attn_query query = {.call = &call, .i = f->p.n_q - 1};
    for (int64_t j = 0; !status && j < end; j++) {
      double found;
      weight_moments(view.selector, &query, &j, 1, &found);
      f->varies = f->varies || (s > 0 && found != excess[j]);
      excess[j] = found;
    }
    attn_plan_destroy(plan);
  }
  free(excess);
  return status;
}

/* -- rows -- */

static attn_call call_of(const fresh *f, const attn_plan *plan) {
  return (attn_call){.context = attn_plan_context(plan), .q = f->q, .k = f->k, .v = f->v};
}

static attn_status lines_make(fresh *f) {
  const attn_call call = call_of(f, f->plan);
  weight_draws *d = f->out;
  const size_t n = (size_t)f->p.n_kv;
  int64_t *room = malloc(n * sizeof *room);
  attn_status status = room ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a row of weights");
  d->keys = f->p.n_kv;
  d->rows = f->p.n_q < WEIGHT_ROWS ? f->p.n_q : WEIGHT_ROWS;
  const double square = (double)f->p.n_kv * (double)f->p.n_kv;
  if ((double)d->rows * square > moments_most) d->rows = (int64_t)fmax(1, moments_most / square);
  if (f->varies) d->rows = 1;
  const double each =
      attn_plan_cost(f->plan).mul_add + overhead + (f->varies ? each_moment * square * (double)d->rows : 0);
  d->draws = (int64_t)fmin(fmax(work / each, DRAWS_LEAST), DRAWS_MOST);
  d->off = calloc((size_t)(WEIGHT_TESTS * d->draws), sizeof *d->off);
  f->index = malloc(n * sizeof *f->index);
  if (!d->off || !f->index) status = attn_fail(ATTN_ENOMEM, "no memory for the draws of weights");
  for (size_t j = 0; !status && j < n; j++) f->index[j] = (int64_t)j;
  for (int r = 0; !status && r < d->rows; r++) {
    /* Of the last half, or of the last few. */
    const int64_t from_last = (d->rows - 1 - r) * (f->p.n_q > 2 * d->rows ? f->p.n_q : 2 * d->rows);
    d->row[r] = f->row[r] = f->p.n_q - 1 - from_last / (2 * d->rows);
    status = weight_line_make(&f->line[r], f->view.selector, &call, f->row[r], f->e->seed, f->index);
    if (!status) weight_ask(d, r, &f->line[r], f->view.selector, room);
  }
  free(room);
  return status;
}

/* -- a draw -- */

/* A thread's. */
typedef struct room {
  double *weight, *log_weights;
  weight_law law;
  attn_run *runs;
  int64_t max_runs, counts[WEIGHT_ROWS];
} room;

static bool room_for(room *w, const fresh *f, int64_t max_runs) {
  const size_t n = (size_t)f->p.n_kv, runs = (size_t)(max_runs * WEIGHT_ROWS);
  if (!w->weight) {
    w->weight = malloc(n * sizeof(double));
    w->law.log_weight = malloc(n * sizeof(double));
    w->law.m = malloc(n * n * sizeof(double));
  }
  if (max_runs > w->max_runs) {
    free(w->runs);
    free(w->log_weights);
    w->runs = malloc(runs * sizeof *w->runs);
    w->log_weights = malloc(runs * sizeof(double));
    w->max_runs = max_runs;
  }
  return w->weight && w->law.log_weight && w->law.m && w->runs && w->log_weights;
}

static void room_free(room *w) {
  free(w->weight);
  free(w->law.log_weight);
  free(w->law.m);
  free(w->runs);
  free(w->log_weights);
}

/* The weights of line r, 0 where a key is not kept. */
static void weigh(const fresh *f, room *w, int64_t max_runs, int r) {
  const int64_t end = f->line[r].end;
  memset(w->weight, 0, (size_t)end * sizeof *w->weight);
  for (int64_t a = r * max_runs; a < r * max_runs + w->counts[r]; a++)
    for (int64_t j = w->runs[a].first; j < w->runs[a].first + w->runs[a].count && j < end; j++)
      w->weight[j] = exp(w->log_weights[a]);
}

static attn_status draw_once(const fresh *f, int64_t t, room *w) {
  attn_plan *plan = NULL;
  attn_view view;
  attn_status status = plan_of(f, t + 1, &plan, &view);
  const attn_selector *x = status ? NULL : view.selector;
  if (!status && !room_for(w, f, x->max_runs))
    status = attn_fail(ATTN_ENOMEM, "no memory for the draws of weights");
  if (!status) {
    attn_picks picks = {
        .max_runs = x->max_runs, .runs = w->runs, .counts = w->counts, .log_weights = w->log_weights};
    const attn_row_set set = {.count = f->out->rows, .rows = f->row};
    status = attn_plan_select(plan, &(attn_tensors){.q = f->q, .k = f->k, .v = f->v}, &set, &picks);
  }
  for (int r = 0; !status && r < f->out->rows; r++) {
    const weight_line *l = &f->line[r];
    const attn_call call = call_of(f, plan);
    weigh(f, w, x->max_runs, r);
    const bool same = !f->varies && weight_law_holds(l, x, w->weight);
    if (!same) weight_law_find(&w->law, l, x, &(attn_query){.call = &call, .i = l->i}, f->index);
    weight_note(f->out, r, t, l, same ? &l->law : &w->law, x, w->weight);
  }
  attn_plan_destroy(plan);
  return status;
}

static attn_status draw_all(const fresh *f) {
  attn_status failed = ATTN_OK;
  char text[256] = "";
#pragma omp parallel
  {
    room w = {.max_runs = 0};
#pragma omp for schedule(dynamic, 8)
    for (int64_t t = 0; t < f->out->draws; t++) {
      if (failed) continue;
      const attn_status status = draw_once(f, t, &w);
      if (!status) continue;
#pragma omp critical(weight_draws_failed)
      {
        failed = status;
        strncpy(text, attn_last_error(), sizeof text - 1);
      }
    }
    room_free(&w);
  }
  return failed ? attn_fail(failed, "%s", text) : ATTN_OK;
}

/* -- all -- */

static bool is_finite(const void *x, int64_t count, attn_dtype t) {
  for (int64_t at = 0; at < count; at++)
    if (!isfinite(attn_get(x, at, t))) return false;
  return true;
}

/* Of others there are no means, which would be looked for at each draw. */
static bool has_finite_inputs(const fresh *f) {
  const attn_problem *p = &f->p;
  return is_finite(f->q, p->n_q * p->d_qk, p->dtype) && is_finite(f->k, p->n_kv * p->d_qk, p->dtype) &&
         is_finite(f->v, p->n_kv * p->d_v, p->dtype);
}

static attn_status make(const evidence *e, weight_draws *out) {
  fresh f = {.e = e, .out = out};
  attn_status status = ATTN_OK;
  if (!e->view->selector->moments || !e->view->selector->log_weight)
    out->why = "the variant describes no law of its weights (attn_selector.moments, log_weight)";
  else if (!e->view->seed)
    out->why = "the variant names no seed: there are no other draws";
  if (out->why || !prepare(&f, &status)) goto out;
  if (!has_finite_inputs(&f)) out->why = "queries, keys or values are not finite";
  if (out->why) goto out;
  status = look_at_law(&f);
  if (!status) status = lines_make(&f);
  if (!status) status = draw_all(&f);
out:
  for (int r = 0; r < WEIGHT_ROWS; r++) weight_line_free(&f.line[r]);
  free(f.index);
  attn_plan_destroy(f.plan);
  return status;
}

attn_status weight_draws_get(const evidence *e, const weight_draws **out) {
  struct block_cache *c = e->cache;
  if (!c->weights) {
    weight_draws *made = calloc(1, sizeof *made);
    const attn_status status =
        made ? make(e, made) : attn_fail(ATTN_ENOMEM, "no memory for the draws of weights");
    if (status) {
      weight_draws_free(made);
      return status;
    }
    c->weights = made;
  }
  *out = c->weights;
  return ATTN_OK;
}

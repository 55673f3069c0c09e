/* draws.c - see draws.h. */
#include "experiments/evidence/weights/draws.h"

#include "experiments/evidence/cache.h"
#include "experiments/evidence/row.h"
#include "experiments/evidence/weights/law.h"
#include "experiments/mathematics/statistics.h"
#include "experiments/support/spec.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_LEAST = 64, KEYS_MOST = 2048, DRAWS_LEAST = 128, DRAWS_MOST = 4096, DRAWN_LEAST = 4, LOOK = 64 };
enum { SEED_STEP = 7919, COLUMNS = 1 + WEIGHT_DIRECTIONS };
static const double work = 0x1p30;         /* multiply-adds, roughly */
static const double overhead = 0x1p16;     /* of a plan and a selection */
static const double moments_most = 0x1p19; /* that are asked for of the run's own law */
static const double each_moment = 64;      /* multiply-adds that one of them takes, roughly */
static const double fp64 = 1e-9;           /* of a sum's largest terms: what its rounding stays below */
static const uint64_t purpose = 0x77656967, purpose_signs = 0x7369676e; /* "weig", "sign" */

/* What is known of a row whatever is drawn, and its law under the run's seed. */
typedef struct line {
  int64_t i, end; /* it sees keys 0 ... end - 1 */
  double *p, *x;  /* [keys]; [keys][COLUMNS] 1, and v - o along signs */
  double *m, *log_weight;
  double variance[COLUMNS], least[COLUMNS]; /* below such a deviation fp64's rounding is all there is */
} line;

typedef struct fresh {
  const evidence *e;
  attn_problem p;
  void *q, *k, *v;
  int64_t *index; /* 0, 1, ... */
  int64_t row[WEIGHT_ROWS];
  line line[WEIGHT_ROWS];
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

static attn_status plan_of(const fresh *f, const char *spec, attn_plan **plan, attn_view *view) {
  const attn_options options = {.threads = 1, .isa = attn_plan_isa(f->e->plan)};
  attn_status status = attn_plan_create(plan, &f->p, spec, &options);
  if (!status) status = attn_plan_inspect(*plan, view);
  if (!status && !(view->selector && view->selector->weighted && view->selector->moments))
    status = attn_fail(ATTN_EUNSUPPORTED, "on a small problem the variant draws no keys");
  return status;
}

static int64_t end_of(const fresh *f, int64_t i) {
  return f->p.causal ? i + f->p.n_kv - f->p.n_q + 1 : f->p.n_kv;
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
    if (!*status) *status = plan_of(f, attn_plan_spec(e->plan), &f->plan, &f->view);
    const bool refused = *status == ATTN_EUNSUPPORTED || *status == ATTN_EINVAL;
    if (*status && !refused) return false;
    if (!refused && drawn(f) >= DRAWN_LEAST) return true;
    *status = ATTN_OK;
    if (keys == most) break;
  }
  f->out->why = "up to 2048 keys every key is taken in any case: nothing is drawn";
  return false;
}

/* Does the last row have another law under other seeds? */
static attn_status look_at_law(fresh *f) {
  enum { SEEDS = 3 };
  const evidence *e = f->e;
  const int64_t end = end_of(f, f->p.n_q - 1), own = spec_number(attn_plan_spec(e->plan), e->view->seed);
  double *excess = malloc((size_t)end * sizeof *excess + 1);
  attn_status status = excess ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a row of weights");
  for (int s = 0; !status && !f->varies && s < SEEDS; s++) {
    char *spec = NULL;
    attn_plan *plan = NULL;
    attn_view view;
    status = spec_with(attn_plan_spec(e->plan), e->view->seed, own + s * SEED_STEP, &spec);
    if (!status) status = plan_of(f, spec, &plan, &view);
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
    free(spec);
  }
  free(excess);
  return status;
}

/* -- a row and its law -- */

static void exact_weights(const fresh *f, line *l) {
  const attn_problem *p = &f->p;
  double top = -(double)INFINITY, sum = 0;
  for (int64_t j = 0; j < l->end; j++) {
    l->p[j] = 0;
    for (int64_t c = 0; c < p->d_qk; c++)
      l->p[j] += attn_get(f->q, l->i * p->d_qk + c, p->dtype) * attn_get(f->k, j * p->d_qk + c, p->dtype);
    l->p[j] *= p->scale;
    top = fmax(top, l->p[j]);
  }
  for (int64_t j = 0; j < l->end; j++) sum += l->p[j] = exp(l->p[j] - top);
  for (int64_t j = 0; j < l->end; j++) l->p[j] /= sum;
}

static void columns(const fresh *f, line *l) {
  const attn_problem *p = &f->p;
  double mean[COLUMNS] = {0};
  attn_rng rng;
  attn_rng_init(&rng, f->e->seed, purpose_signs, 0);
  for (int64_t j = 0; j < l->end * COLUMNS; j++) l->x[j] = j % COLUMNS == 0;
  for (int c = 1; c < COLUMNS; c++)
    for (int64_t a = 0; a < p->d_v; a++) {
      const double sign = attn_rng_below(&rng, 2) ? 1 : -1;
      for (int64_t j = 0; j < l->end; j++)
        l->x[j * COLUMNS + c] += sign * attn_get(f->v, j * p->d_v + a, p->dtype);
    }
  for (int64_t j = 0; j < l->end; j++)
    for (int c = 1; c < COLUMNS; c++) mean[c] += l->p[j] * l->x[j * COLUMNS + c];
  for (int c = 0; c < COLUMNS; c++) l->least[c] = DBL_MIN;
  for (int64_t j = 0; j < l->end; j++)
    for (int c = 0; c < COLUMNS; c++) {
      double *x = &l->x[j * COLUMNS + c];
      l->least[c] = fmax(l->least[c], fp64 * fabs(*x));
      *x -= mean[c];
    }
}

/* Of keys that may be drawn several times: how many draws there are (law.h); 0: once at most, or unknown. */
static double draws_of(const attn_selector *x, const double *m, int64_t count) {
  for (int64_t a = 0; x->repeats && a + 1 < count; a++)
    for (int64_t b = a + 1; b < count && !weight_always(m, count, a); b++)
      if (!weight_always(m, count, b)) return m[a * count + b] < 0 ? -1 / m[a * count + b] : 0;
  return 0;
}

/* By the moments: a weight that is a number or 0, of mean 1, has the mean square of the number; of n draws of one key, 1 - 1/n
 * and the number. */
static void log_weights(const attn_selector *x, const double *m, int64_t end, double *out) {
  const double draws = draws_of(x, m, end);
  for (int64_t j = 0; j < end; j++) {
    const double excess = m[j * end + j];
    out[j] = excess == 0 ? 0 : draws > 0 ? log(excess + 1 / draws) : log1p(excess);
  }
}

static double deviation_of(double probability) {
  return fmax(sqrt(fmax(probability * (1 - probability), 0)), 1e-6);
}

/* -- what is asked -- */

static weight_test *add(fresh *f, weight_kind kind, int row, int64_t a, int64_t b) {
  weight_draws *d = f->out;
  weight_test *t = &d->test[d->count];
  *t = (weight_test){.kind = kind, .row = row, .a = a, .b = b, .off = d->off + d->count * d->draws};
  d->count++;
  return t;
}

/* Keys with a fair chance, or else any that are drawn; evenly, with the first and the last of them. */
static void ask(fresh *f, int r, int64_t *room) {
  const line *l = &f->line[r];
  const attn_selector *x = f->view.selector;
  const double draws = draws_of(x, l->m, l->end);
  int64_t count = 0;
  for (int wide = 0; wide < 2 && count < 2; wide++) {
    count = 0;
    for (int64_t j = 0; j < l->end; j++) {
      const double kept = weight_kept(l->log_weight[j], draws);
      if (!weight_always(l->m, l->end, j) && kept < 1 && (wide || (kept >= 0.1 && kept <= 0.9)))
        room[count++] = j;
    }
  }
  const int64_t keys = count < WEIGHT_KEYS ? count : WEIGHT_KEYS;
  for (int64_t k = 0; k < keys; k++) {
    const int64_t key = room[keys > 1 ? k * (count - 1) / (keys - 1) : 0];
    weight_test *t = add(f, WEIGHT_KEPT, r, key, key);
    t->mean = weight_kept(l->log_weight[key], draws);
    t->deviation = deviation_of(t->mean);
  }
  /* Neighbours, and keys far apart. */
  for (int64_t k = 0; k < WEIGHT_PAIRS && count > 1 && (!x->repeats || draws > 0); k++) {
    const int64_t at = k / 2 * (count - 1) / (WEIGHT_PAIRS / 2), far = count / 2 > 1 ? count / 2 : 1,
                  a = room[at], b = room[(at + (k % 2 ? far : 1)) % count];
    weight_test *t = add(f, WEIGHT_BOTH, r, a, b);
    t->mean = weight_both(l->log_weight[a], l->log_weight[b], l->m[a * l->end + b], draws);
    t->deviation = deviation_of(t->mean);
  }
  for (int c = 0; c < COLUMNS; c++) {
    weight_test *t = add(f, c ? WEIGHT_VALUES : WEIGHT_SUM, r, c, c);
    t->mean = c == 0;
    t->deviation = fmax(sqrt(l->variance[c]), l->least[c]);
  }
}

static attn_status lines_make(fresh *f) {
  const attn_call call = {.context = attn_plan_context(f->plan), .q = f->q, .k = f->k, .v = f->v};
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
    line *l = &f->line[r];
    d->row[r] = f->row[r] = l->i = f->p.n_q - 1 - (d->rows - 1 - r) * f->p.n_q / (2 * d->rows);
    l->end = end_of(f, l->i);
    l->p = malloc(n * (COLUMNS + 2) * sizeof(double));
    l->m = malloc((size_t)(l->end * l->end) * sizeof(double) + 1);
    if (!l->p || !l->m) status = attn_fail(ATTN_ENOMEM, "no memory for a row of weights");
    if (status) break;
    l->x = l->p + n;
    l->log_weight = l->x + n * COLUMNS;
    const attn_query query = {.call = &call, .i = l->i};
    exact_weights(f, l);
    columns(f, l);
    weight_moments(f->view.selector, &query, f->index, l->end, l->m);
    log_weights(f->view.selector, l->m, l->end, l->log_weight);
    weight_variances(l->m, l->end, l->p, l->x, COLUMNS, l->variance);
    ask(f, r, room);
  }
  free(room);
  return status;
}

/* -- a draw -- */

/* A thread's. */
typedef struct room {
  double *weight, *log_weight, *m, *log_weights;
  attn_run *runs;
  int64_t max_runs, counts[WEIGHT_ROWS];
} room;

static bool room_for(room *w, const fresh *f, int64_t max_runs) {
  const size_t n = (size_t)f->p.n_kv, runs = (size_t)(max_runs * WEIGHT_ROWS);
  if (!w->weight) {
    w->weight = malloc(n * sizeof(double));
    w->log_weight = malloc(n * sizeof(double));
    w->m = malloc(n * n * sizeof(double));
  }
  if (max_runs > w->max_runs) {
    free(w->runs);
    free(w->log_weights);
    w->runs = malloc(runs * sizeof *w->runs);
    w->log_weights = malloc(runs * sizeof(double));
    w->max_runs = max_runs;
  }
  return w->weight && w->log_weight && w->m && w->runs && w->log_weights;
}

static void room_free(room *w) {
  free(w->weight);
  free(w->log_weight);
  free(w->m);
  free(w->runs);
  free(w->log_weights);
}

/* The weights of line r, 0 where a key is not kept. */
static void weigh(const fresh *f, room *w, int64_t max_runs, int r) {
  const line *l = &f->line[r];
  memset(w->weight, 0, (size_t)l->end * sizeof *w->weight);
  for (int64_t a = r * max_runs; a < r * max_runs + w->counts[r]; a++)
    for (int64_t j = w->runs[a].first; j < w->runs[a].first + w->runs[a].count && j < l->end; j++)
      w->weight[j] = exp(w->log_weights[a]);
}

static double sum_of(const line *l, const double *weight, int64_t column) {
  double sum = 0;
  for (int64_t j = 0; j < l->end; j++) sum += l->p[j] * weight[j] * l->x[j * COLUMNS + column];
  return sum;
}

/* Is the law of this draw that of the run's seed? Then keys that are taken in any case are there, and no kept key has
 * another weight, or a whole multiple of it where keys may be drawn again. */
static bool same_law(const line *l, const attn_selector *x, const double *weight) {
  static const double near = 0x1p-20;
  for (int64_t j = 0; j < l->end; j++) {
    const bool certain = weight_always(l->m, l->end, j);
    if (!(weight[j] > 0)) {
      if (certain) return false;
      continue;
    }
    const double times = weight[j] * exp(-l->log_weight[j]),
                 whole = x->repeats && !certain ? fmax(1, round(times)) : 1;
    if (fabs(times - whole) > near * whole) return false;
  }
  return true;
}

static void note(const fresh *f, const attn_selector *x, const attn_query *query, room *w, int r, int64_t t) {
  const line *l = &f->line[r];
  weight_draws *d = f->out;
  double variance[COLUMNS];
  const double *m = l->m;
  const double *own = l->log_weight;
  memcpy(variance, l->variance, sizeof variance);
  if (f->varies || !same_law(l, x, w->weight)) {
    weight_moments(x, query, f->index, l->end, w->m);
    weight_variances(w->m, l->end, l->p, l->x, COLUMNS, variance);
    log_weights(x, w->m, l->end, w->log_weight);
    m = w->m;
    own = w->log_weight;
  }
  const double draws = draws_of(x, m, l->end);
  for (int64_t at = 0; at < d->count; at++) {
    const weight_test *test = &d->test[at];
    if (test->row != r) continue;
    const int64_t a = test->a, b = test->b;
    double mean = test->mean, deviation, seen;
    if (test->kind == WEIGHT_KEPT) {
      mean = weight_kept(own[a], draws);
      deviation = deviation_of(mean);
      seen = w->weight[a] > 0;
    } else if (test->kind == WEIGHT_BOTH) {
      mean = weight_both(own[a], own[b], m[a * l->end + b], draws);
      deviation = deviation_of(mean);
      seen = w->weight[a] > 0 && w->weight[b] > 0;
    } else {
      deviation = fmax(sqrt(variance[a]), l->least[a]);
      seen = sum_of(l, w->weight, a);
    }
    test->off[t] = (seen - mean) / deviation;
    if (test->kind != WEIGHT_SUM || fabs(seen - 1) <= x->epsilon * (1 + fp64)) continue;
#pragma omp atomic
    d->missed[r]++;
  }
}

static attn_status draw_once(const fresh *f, int64_t t, room *w) {
  const evidence *e = f->e;
  const char *name = e->view->seed;
  const int64_t seed = spec_number(attn_plan_spec(e->plan), name) + (t + 1) * SEED_STEP;
  char *spec = NULL;
  attn_plan *plan = NULL;
  attn_view view;
  attn_status status = spec_with(attn_plan_spec(e->plan), name, seed, &spec);
  if (!status) status = plan_of(f, spec, &plan, &view);
  const attn_selector *x = status ? NULL : view.selector;
  if (!status && !room_for(w, f, x->max_runs))
    status = attn_fail(ATTN_ENOMEM, "no memory for the draws of weights");
  if (!status) {
    attn_picks picks = {
        .max_runs = x->max_runs, .runs = w->runs, .counts = w->counts, .log_weights = w->log_weights};
    const attn_row_set set = {.count = f->out->rows, .rows = f->row};
    status = attn_plan_select(plan, f->q, f->k, f->v, NULL, &set, &picks);
  }
  for (int r = 0; !status && r < f->out->rows; r++) {
    const attn_call call = {.context = attn_plan_context(plan), .q = f->q, .k = f->k, .v = f->v};
    const attn_query query = {.call = &call, .i = f->row[r]};
    weigh(f, w, x->max_runs, r);
    note(f, x, &query, w, r, t);
  }
  attn_plan_destroy(plan);
  free(spec);
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

static attn_status make(const evidence *e, weight_draws *out) {
  fresh f = {.e = e, .out = out};
  attn_status status = ATTN_OK;
  if (!e->view->selector->moments || !e->view->selector->log_weight)
    out->why = "the variant describes no law of its weights (attn_selector.moments, log_weight)";
  else if (!e->view->seed)
    out->why = "the variant names no seed: there are no other draws";
  if (out->why || !prepare(&f, &status)) goto out;
  status = look_at_law(&f);
  if (!status) status = lines_make(&f);
  if (!status) status = draw_all(&f);
out:
  for (int r = 0; r < WEIGHT_ROWS; r++) {
    free(f.line[r].p);
    free(f.line[r].m);
  }
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

const weight_test *weight_draws_worst(const weight_draws *d, const bool kinds[WEIGHT_VALUES + 1], double *p,
                                      int64_t *tests) {
  const weight_test *worst = NULL;
  double lowest = 2;
  *tests = 0;
  for (int64_t at = 0; at < d->count; at++) {
    if (!kinds[d->test[at].kind]) continue;
    const double own = mean_p_value(d->test[at].off, d->draws, 0, 1, 0);
    ++*tests;
    if (own >= lowest) continue;
    lowest = own;
    worst = &d->test[at];
  }
  *p = worst ? fmin(1, lowest * (double)*tests) : 1;
  return worst;
}

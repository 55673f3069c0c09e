/* attempt.c - executions of settings, and their errors against the output of exact attention. */
#include "experiments/advice/attempt.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/evidence/budget.h"
#include "experiments/evidence/columns.h"
#include "experiments/evidence/null.h"
#include "experiments/instruments/timing.h"
#include "experiments/reference/census.h"

#define INPUTS_MOST \
  0x1p30 /* bytes of the inputs in fp64 up to which the mass that is left out is looked at */

enum { ALIGNMENT = 64 };

static int64_t rows_of(const attn_problem *p) { return p->batch * p->heads * p->n_q; }

/* |a - b|^2 over all rows; b NULL: |a|^2. Rows are summed in order, for any number of threads. */
static double distance(const attempts *x, const void *a, const void *b) {
  const attn_problem *p = &x->problem;
  const int64_t rows = rows_of(p), d = p->d_v;
  double sum = 0;
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; r++) {
    double square = 0;
    for (int64_t i = r * d; i < (r + 1) * d; i++) {
      const double gap = attn_get(a, i, p->dtype) - (b ? attn_get(b, i, p->dtype) : 0);
      square += gap * gap;
    }
    x->square[r] = square;
  }
  for (int64_t r = 0; r < rows; r++) sum += x->square[r];
  return sum;
}

/* -- what all share -- */

static evidence evidence_of(const attempts *x, const void *o) {
  const data_qkv *in = &x->input;
  return (evidence){.problem = &x->problem,
                    .q = in->q,
                    .k = in->k,
                    .v = in->v,
                    .o = o,
                    .extra = x->extra,
                    .extras = x->extras,
                    .exact = x->rows,
                    .seed = (uint64_t)x->request->seed,
                    .cache = x->cache};
}

static attn_status error_of(const attempts *x, const void *o, double *error, double *low, double *high) {
  const evidence e = evidence_of(x, o);
  result_row row;
  result_row_init(&row);
  const attn_status status = evidence_errors(&e, &row);
  *error = row.err_rel_fro;
  *low = row.err_rel_fro_lo;
  *high = row.err_rel_fro_hi;
  result_row_free(&row);
  return status;
}

attn_status attempts_refer(attempts *x, advice_setting *exact, double *mean_v) {
  const data_qkv *in = &x->input;
  attempt t = {.spec = NULL};
  double low, high;
  x->request->progress(x->request->to, 0, "exact attention");
  attn_status status = attempt_run(x, x->exact_spec, false, &t);
  if (!status)
    status = exact_rows_compute(&x->problem, in->q, in->k, in->v, NULL, (uint64_t)x->request->seed, &x->rows);
  if (!status && !x->rows->complete && census_affordable(&x->problem, (double)x->memory))
    status = census_take(&x->problem, in->q, in->k, in->v, NULL, x->rows);
  if (status) goto out;
  x->whole = x->rows->complete || x->rows->all;
  memcpy(x->exact, x->o, x->out.bytes);
  x->reference = distance(x, x->exact, NULL);
  if (!(x->reference > 0 && isfinite(x->reference))) {
    status = attn_fail(ATTN_EINVAL, "exact attention of these tensors is %s: no error is relative to it",
                       x->reference == 0 ? "zero" : "not finite");
    goto out;
  }
  status = error_of(x, x->exact, &exact->error, &exact->error_lo, &exact->error_hi);
  if (!x->whole) x->rounding = exact->error_hi;
  const evidence e = evidence_of(x, x->o);
  if (!status) status = null_fill(null_find("null_mean_v"), &e, x->o);
  if (!status) status = error_of(x, x->o, mean_v, &low, &high);
  if (status) goto out;
  exact->exact = true;
  exact->within = exact->error_hi <= x->request->error;
  exact->worst = exact->error;
  exact->left_mean = exact->left_most = (double)NAN;
  exact->keys_read = 1;
  exact->memory = t.memory;
  exact->time = t.seconds;
  exact->time_lo = exact->time_hi = (double)NAN;
  exact->parsed = attn_spec_share(x->exact_spec);
out:
  attempt_free(&t);
  return status;
}

static attn_status adopt(guard *g, void **at, int64_t batch, int64_t heads, int64_t n, int64_t d,
                         attn_dtype t) {
  const int64_t factors[] = {batch, heads, n, d, (int64_t)attn_dtype_size(t)};
  size_t bytes;
  attn_status status = attn_size_product("a tensor", factors, 5, &bytes);
  if (!status) status = guard_adopt(g, at, bytes, ALIGNMENT);
  if (!status) *at = g->at;
  return status;
}

static attn_status open_guards(attempts *x) {
  data_qkv *in = &x->input;
  const attn_problem *p = &x->problem;
  const int64_t factors[] = {p->batch, p->heads, p->n_q, p->d_v, (int64_t)attn_dtype_size(p->dtype)};
  size_t bytes;
  attn_status status = attn_size_product("an output", factors, 5, &bytes);
  if (!status) status = adopt(&x->q, &in->q, in->batch, in->heads, in->n_q, in->d_qk, in->dtype);
  if (!status) status = adopt(&x->k, &in->k, in->batch, in->kv_heads, in->n_kv, in->d_qk, in->dtype);
  if (!status) status = adopt(&x->v, &in->v, in->batch, in->kv_heads, in->n_kv, in->d_v, in->dtype);
  if (!status) status = guard_open(&x->out, bytes, ALIGNMENT);
  x->o = x->out.at;
  return status;
}

attn_status attempts_open(const advice_request *r, data_qkv *input, attempts *out) {
  attempts x = {.request = r, .problem = *r->problem, .options = {.threads = r->threads}, .input = *input};
  attn_status status = attn_problem_resolve(&x.problem);
  if (!status) status = attn_spec_parse(&x.exact_spec, "tiled");
  if (!status) status = open_guards(&x);
  *input = x.input;
  x.extras = data_qkv_extras(input, x.extra);
  x.memory = (size_t)sysconf(_SC_PHYS_PAGES) / 2 * (size_t)sysconf(_SC_PAGESIZE);
  if (!status) {
    x.cache = block_cache_create();
    x.exact = malloc(x.out.bytes);
    x.square = malloc((size_t)rows_of(&x.problem) * sizeof *x.square);
    if (!x.cache || !x.exact || !x.square)
      status = attn_fail(ATTN_ENOMEM, "no memory for outputs of %zu bytes", x.out.bytes);
  }
  if (status)
    attempts_close(&x);
  else
    *out = x;
  return status;
}

void attempts_close(attempts *x) {
  attn_spec_destroy(x->exact_spec);
  exact_rows_free(x->rows);
  block_cache_free(x->cache);
  guard_close(&x->q);
  guard_close(&x->k);
  guard_close(&x->v);
  guard_close(&x->out);
  free(x->exact);
  free(x->square);
  *x = (attempts){.request = NULL};
}

attn_status attempts_take_work(const attn_plan *plan, guard *work) {
  const size_t bytes = attn_plan_work_size(plan);
  *work = (guard){.at = NULL};
  return bytes ? guard_open(work, bytes, 1) : ATTN_OK; /* the library aligns it itself */
}

attn_status attempts_check(const attempts *x, const attn_spec *spec, const guard *work) {
  const struct {
    const guard *at;
    const char *name;
  } places[] = {{&x->out, "output"}, {work, "work memory"}};
  attn_status status = ATTN_OK;
  for (int i = 0; i < 2; i++) {
    const guard_state state = places[i].at->at ? guard_check(places[i].at) : GUARD_INTACT;
    if (state == GUARD_INTACT) continue;
    guard_reset(places[i].at);
    status = attn_fail(ATTN_EFOREIGN, "%s: wrote %s its %s", spec->text,
                       state == GUARD_BEFORE ? "before" : "behind", places[i].name);
  }
  return status;
}

attn_status attempts_execute(const attempts *x, const attn_plan *plan, const guard *work) {
  return attn_plan_run(plan, &(attn_tensors){.q = x->input.q,
                                             .k = x->input.k,
                                             .v = x->input.v,
                                             .o = x->o,
                                             .work = work->at,
                                             .extra = x->extra,
                                             .extras = x->extras});
}

/* -- one setting -- */

/* The relative error of x->o: against fp64 where all its rows are at hand; else the distance to exact
 * attention, unless that is not far above its rounding: then against fp64, on the rows that are. */
static attn_status measure(const attempts *x, attempt *t) {
  enum { FAR = 16 };
  const attn_problem *p = &x->problem;
  const data_array out = {p->dtype, 4, {p->batch, p->heads, p->n_q, p->d_v}, x->o};
  double error = x->reference > 0 ? sqrt(distance(x, x->o, x->exact) / x->reference) : (double)NAN, low, high;
  attn_status status = ATTN_OK;
  if (isfinite(error) && (x->whole || error <= FAR * x->rounding))
    status = error_of(x, x->o, &error, &low, &high);
  if (!isfinite(error) && !*t->nonfinite) data_find_nonfinite(&out, "output", t->nonfinite);
  t->error[t->draws++] = error;
  return status;
}

static attn_status execute(const attempts *x, const attn_spec *spec, attempt *t, attn_view *view) {
  attn_plan *plan = NULL;
  guard work = {.at = NULL};
  size_t bytes;
  attn_status status = attn_estimate_spec(&x->problem, spec, &x->options, &bytes, NULL);
  if (!status && bytes > x->memory)
    status = attn_fail(ATTN_ENOMEM, "%s: %zu bytes of work, more than half of this machine's memory",
                       spec->text, bytes);
  if (!status) status = attn_plan_create_spec(&plan, &x->problem, spec, &x->options);
  if (!status) status = attn_plan_inspect(plan, view);
  if (!status) status = attempts_take_work(plan, &work);
  if (!status && !t->spec) t->spec = attn_spec_share(spec);
  const double start = timing_now();
  if (!status) status = attempts_execute(x, plan, &work);
  if (!status) {
    t->seconds = timing_now() - start;
    t->memory = (double)(attn_plan_bytes(plan) + attn_plan_work_size(plan));
    status = attempts_check(x, spec, &work);
    t->damaged = status != ATTN_OK;
  }
  if (!status) {
    status = measure(x, t);
    t->exact = (view->caps & ATTN_CAP_EXACT) != 0;
    t->drawn = view->seed != NULL;
  }
  /* Its seed is a text of the variant's table, which outlives the plan. */
  attn_plan_destroy(plan);
  guard_close(&work);
  return status;
}

static bool close_enough(const attempts *x, double error) { return error + x->rounding <= x->request->error; }

/* NaN is worse than any error. */
static double worst_of(const attempt *t) {
  double worst = t->error[0];
  for (int i = 1; i < t->draws && !isnan(worst); i++)
    if (!(t->error[i] <= worst)) worst = t->error[i];
  return worst;
}

bool attempt_within(const attempts *x, const attempt *t) { return close_enough(x, worst_of(t)); }

attn_status attempt_run(const attempts *x, const attn_spec *spec, bool whole, attempt *t) {
  attn_view view;
  attn_status status = execute(x, spec, t, &view);
  for (int i = 1; !status && t->drawn && i < x->request->draws; i++) {
    attn_spec *other = NULL;
    if (!whole && !close_enough(x, t->error[i - 1])) break;
    const int64_t first = (int64_t)attn_spec_number(t->spec, view.seed);
    status = attn_spec_with_seed(t->spec, view.seed, first + i, &other);
    if (!status) status = execute(x, other, t, &view);
    attn_spec_destroy(other);
  }
  return status;
}

void attempt_free(attempt *t) {
  attn_spec_destroy(t->spec);
  *t = (attempt){.spec = NULL};
}

/* -- what is said of it -- */

/* The mean of several draws and Student's 95 % interval. */
static void summarise(const attempts *x, const attempt *t, advice_setting *s) {
  double sum = 0, squares = 0, half = (double)INFINITY;
  for (int i = 0; i < t->draws; i++) sum += t->error[i];
  s->error = sum / t->draws;
  for (int i = 0; i < t->draws; i++) squares += (t->error[i] - s->error) * (t->error[i] - s->error);
  if (!t->drawn) half = 0;
  if (t->drawn && t->draws > 1)
    half = gsl_cdf_tdist_Pinv(0.975, t->draws - 1) * sqrt(squares / (t->draws - 1) / t->draws);
  s->error_lo = s->error > half + x->rounding ? s->error - half - x->rounding
                : isnan(s->error)             ? s->error
                                              : 0;
  s->error_hi = s->error + half + x->rounding;
  s->worst = worst_of(t);
}

static attn_status look_at_keys(const attempts *x, const attempt *t, advice_setting *s) {
  const attn_problem *p = &x->problem;
  const double inputs =
      (double)(p->batch * p->kv_heads * p->n_kv) * (double)(p->d_qk + p->d_v) * sizeof(double);
  attn_plan *plan = NULL;
  attn_view view;
  kept_keys kept;
  attn_status status = attn_plan_create_spec(&plan, &x->problem, t->spec, &x->options);
  if (!status) status = attn_plan_inspect(plan, &view);
  if (!status && (view.pattern || view.selector) && inputs <= INPUTS_MOST) {
    evidence e = evidence_of(x, x->o);
    e.plan = plan;
    e.view = &view;
    e.problem = attn_plan_problem(plan);
    status = budget_kept(&e, &kept);
    if (!status) s->keys_read = kept.read_share;
    /* Keys with weights of their own stand for those that are left out. */
    if (!status && !(view.selector && view.selector->weighted) && !p->score.sink) {
      s->left_mean = 1 - kept.mass_mean;
      s->left_most = 1 - kept.mass_least;
    }
  }
  attn_plan_destroy(plan);
  return status;
}

attn_status attempt_settle(const attempts *x, const attempt *t, advice_setting *s) {
  advice_setting made = {.exact = t->exact,
                         .within = attempt_within(x, t),
                         .draws = t->drawn ? t->draws : 0,
                         .left_mean = (double)NAN,
                         .left_most = (double)NAN,
                         .keys_read = t->exact ? 1 : (double)NAN,
                         .time = t->seconds,
                         .time_lo = (double)NAN,
                         .time_hi = (double)NAN,
                         .memory = t->memory};
  memcpy(made.nonfinite, t->nonfinite, sizeof made.nonfinite);
  summarise(x, t, &made);
  const attn_status status = t->exact ? ATTN_OK : look_at_keys(x, t, &made);
  if (status) return status;
  made.parsed = attn_spec_share(t->spec);
  *s = made;
  return status;
}

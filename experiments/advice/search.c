/* search.c - doubles a variant's budget until its error is small enough, and bisects between the last two.
 *
 * The budget counts random vectors, slots or keys (attn_budget), and the variant says what its parameter is for so many.
 * Errors need not fall with it: what is found is within the error because it was measured, and the least such budget
 * only if they do. Bisection ends at a sixteenth: a few per cent of keys are less than two machines differ by. */
#include "experiments/advice/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "experiments/instruments/timing.h"
#include "experiments/support/spec.h"

#define TOO_MUCH 4 /* times the multiply-adds of exact attention */
enum { FIRST = 8, FINE = 16 };

typedef struct search {
  const attempts *x;
  char *base;      /* canonical */
  attn_plan *plan; /* of some budget: the variant's context */
  attn_view view;
  double start, work;      /* work: multiply-adds of the last budget */
  attempt within, closest; /* the least budget within the error; else the least error */
  const char *ended;       /* why there is no larger budget, or no smaller one within the error */
} search;

static attn_status plan_of(const attempts *x, const char *spec, search *s) {
  attn_status status = attn_plan_create(&s->plan, &x->problem, spec, &x->options);
  return status ? status : attn_plan_inspect(s->plan, &s->view);
}

static const attn_param *parameter_of(const attn_variant *v, const char *name) {
  for (const attn_param *p = v->params; p && p->name; p++)
    if (strcmp(p->name, name) == 0) return p;
  return NULL;
}

/* A plan with the budget of the spec, or with the least one where that is not possible for this problem; and the spec with
 * the seed of the first draw, if it names none. */
static attn_status prepare(const attempts *x, const char *spec, bool fixed, search *s) {
  attn_spec *parsed = NULL;
  char *least = NULL, *text = NULL;
  attn_status status = attn_spec_parse(&parsed, spec);
  if (status) return status;
  const char *budget = parsed->variant->budget.parameter;
  status = plan_of(x, parsed->text, s);
  if (status && budget && !fixed) {
    char why[256];
    const attn_status first = status;
    snprintf(why, sizeof why, "%s", attn_last_error());
    status = spec_with(parsed->text, budget, (int64_t)parameter_of(parsed->variant, budget)->min, &least);
    if (!status && plan_of(x, least, s)) status = attn_fail(first, "%s", why);
  }
  if (!status && !x->request->count && s->view.low_rank && s->view.low_rank->best)
    status = attn_fail(ATTN_EUNSUPPORTED,
                       "variant %s: an oracle, the best there is of its rank, slower than exact attention; "
                       "name it to try it",
                       parsed->variant->name);
  if (!status && !(text = text_format("%s", attn_plan_spec(s->plan)))) status = ATTN_ENOMEM;
  if (!status && s->view.seed && !spec_names(spec, s->view.seed))
    status = spec_with(text, s->view.seed, x->request->seed, &s->base);
  else if (!status) {
    s->base = text;
    text = NULL;
  }
  free(text);
  free(least);
  attn_spec_destroy(parsed);
  return status;
}

/* The spec for a budget; NULL: the variant does not go so far. ENOMEM. */
static attn_status spec_of(const search *s, int64_t budget, char **spec) {
  const attn_budget *buys = &s->view.budget;
  const attn_param *p = parameter_of(attn_plan_variant(s->plan), buys->parameter);
  const int64_t value = buys->value ? buys->value(attn_plan_context(s->plan), budget) : budget;
  *spec = NULL;
  if (value <= 0 || (double)value < p->min || (double)value > p->max) return ATTN_OK;
  return spec_with(s->base, buys->parameter, value, spec);
}

static void tell(const search *s, const char *spec) {
  char text[256];
  const attempt *last = s->within.spec ? &s->within : &s->closest;
  if (last->spec && isfinite(last->error[0]))
    snprintf(text, sizeof text, "trying %s (%s: error %.2g)", spec, last->spec, last->error[0]);
  else
    snprintf(text, sizeof text, "trying %s", spec);
  s->x->request->progress(s->x->request->to, s->x->done, text);
}

static void keep(attempt *to, attempt *from) {
  attempt_free(to);
  *to = *from;
  *from = (attempt){.spec = NULL};
}

typedef enum { NEAR, FAR, END } found;

/* Tries a budget, unless it gives a setting that is known. */
static attn_status try_budget(search *s, int64_t budget, found *out) {
  char *spec = NULL;
  attempt t = {.spec = NULL};
  attn_status status = spec_of(s, budget, &spec);
  *out = END;
  if (status || !spec) {
    if (!status) s->ended = "its budget ends there";
    goto out;
  }
  *out = FAR;
  if (s->closest.spec && strcmp(spec, s->closest.spec) == 0) goto out;
  *out = NEAR;
  if (s->within.spec && strcmp(spec, s->within.spec) == 0) goto out;
  attn_cost cost = {0, 0, 0};
  tell(s, spec);
  if (attn_estimate(&s->x->problem, spec, &s->x->options, NULL, &cost) ||
      attempt_run(s->x, spec, false, &t)) {
    *out = END;
    s->ended = "its budget ends there";
    goto out;
  }
  s->work = cost.mul_add;
  *out = attempt_within(s->x, &t) ? NEAR : FAR;
  if (*out == NEAR)
    keep(&s->within, &t);
  else if (!s->closest.spec || t.error[0] < s->closest.error[0] || isnan(s->closest.error[0]))
    keep(&s->closest, &t);
out:
  attempt_free(&t);
  free(spec);
  return status;
}

static bool out_of_time(search *s) {
  if (timing_now() - s->start <= s->x->request->limit) return false;
  s->ended = "the search took its time";
  return true;
}

/* Multiply-adds with a budget; infinite where there is no such setting. */
static double work_of(const search *s, int64_t budget) {
  attn_cost cost = {(double)INFINITY, 0, 0};
  char *spec = NULL;
  if (!spec_of(s, budget, &spec) && spec && attn_estimate(&s->x->problem, spec, &s->x->options, NULL, &cost))
    cost.mul_add = (double)INFINITY;
  free(spec);
  return cost.mul_add;
}

/* Doubles the budget until it is within the error: *high is, *low is not. */
static attn_status double_budget(search *s, int64_t most, int64_t *low, int64_t *high, found *now) {
  attn_cost exact = {0, 0, 0};
  attn_status status = attn_estimate(&s->x->problem, s->x->exact_spec, &s->x->options, NULL, &exact);
  while (!status) {
    status = try_budget(s, *high, now);
    if (status || *now != FAR || out_of_time(s)) break;
    if (*high == most) s->ended = "it sees every key";
    if (s->work > TOO_MUCH * exact.mul_add) s->ended = "it would compute far more than exact attention";
    if (s->ended) break;
    *low = *high;
    *high = 2 * *high < most ? 2 * *high : most;
  }
  return status;
}

static attn_status search_budget(search *s) {
  const bool keys = s->view.pattern || s->view.selector || s->view.projection || s->view.low_rank;
  /* A window of all keys around the last query is as wide as twice their number. */
  const int64_t most = keys ? 2 * s->x->problem.n_kv : INT64_C(1) << 40;
  int64_t low = 0, high = FIRST < most ? FIRST : most;
  found now = FAR;
  attn_status status = double_budget(s, most, &low, &high, &now);
  if (now != NEAR) return status;
  /* With some variants more costs less, and may be further off in between: a longer stride reads fewer keys. */
  double least = work_of(s, high);
  for (int64_t more = 2 * high; !status && more <= most && !out_of_time(s); more *= 2) {
    const double work = work_of(s, more);
    if (work > least) break;
    if (work == least) continue; /* the same setting, perhaps */
    status = try_budget(s, more, &now);
    if (now != NEAR) continue;
    low = high = more;
    least = work;
  }
  while (!status && high - low > 1 + high / FINE && !out_of_time(s)) {
    const int64_t middle = low + (high - low) / 2;
    status = try_budget(s, middle, &now);
    *(now == NEAR ? &high : &low) = middle;
  }
  return status;
}

attn_status search_setting(const attempts *x, const char *spec, advice_setting *out) {
  search s = {.x = x, .start = timing_now()};
  attempt t = {.spec = NULL};
  attn_spec *parsed = NULL;
  attn_status status = attn_spec_parse(&parsed, spec);
  if (status) return status;
  const char *budget = parsed->variant->budget.parameter;
  attn_spec_destroy(parsed);
  const bool named = budget && spec_names(spec, budget);
  status = prepare(x, spec, named, &s);
  const bool free_budget = !status && !named && s.view.budget.parameter;
  if (free_budget) status = search_budget(&s);
  if (!status && !free_budget) {
    tell(&s, s.base);
    status = attempt_run(x, s.base, true, &t);
  }
  if (!status && free_budget && !s.within.spec && !s.closest.spec)
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: no budget could be tried", spec);
  if (!status && free_budget) keep(&t, s.within.spec ? &s.within : &s.closest);
  if (!status) status = attempt_settle(x, &t, out);
  if (!status) out->ended = s.ended;
  attempt_free(&t);
  attempt_free(&s.within);
  attempt_free(&s.closest);
  attn_plan_destroy(s.plan);
  free(s.base);
  return status;
}

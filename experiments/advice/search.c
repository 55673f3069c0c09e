/* search.c - doubles a variant's budget until its error is small enough, and bisects between the last two.
 *
 * The budget counts random vectors, slots or keys (attn_budget); the variant gives the parameter's value for
 * a budget. The budget that is found was measured to be within the error; it is the least such budget only if
 * errors fall as the budget grows. Bisection ends at a sixteenth: two machines differ by more than a few per
 * cent of the keys. */
#include "experiments/advice/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/instruments/timing.h"
#include "experiments/support/names.h"

#define TOO_MUCH 4 /* times the multiply-adds of exact attention */
enum { FIRST = 8, FINE = 16 };

typedef struct search {
  const attempts *x;
  attn_spec *base;
  attn_plan *plan; /* of some budget: the variant's context */
  attn_view view;
  double start, work;      /* work: multiply-adds of the last budget */
  attempt within, closest; /* the least budget within the error; else the least error */
  const char *ended;       /* why there is no larger budget, or no smaller one within the error */
} search;

static attn_status plan_of(const attempts *x, const attn_spec *spec, search *s) {
  attn_status status = attn_plan_create_spec(&s->plan, &x->problem, spec, &x->options);
  return status ? status : attn_plan_inspect(s->plan, &s->view);
}

/* A plan with the budget of the spec, or with the least one where that is not possible for this problem; and
 * the spec with the seed of the first draw, if it names none. */
static attn_status prepare(const attempts *x, const attn_spec *spec, bool fixed, search *s) {
  attn_spec *least = NULL;
  const char *budget = spec->variant->budget.parameter;
  attn_status status = plan_of(x, spec, s);
  if (status && budget && !fixed) {
    char why[256];
    const attn_status first = status;
    snprintf(why, sizeof why, "%s", attn_last_error());
    status =
        attn_spec_with_int(spec, budget, (int64_t)names_param(spec->variant->params, budget)->min, &least);
    if (!status && plan_of(x, least, s)) status = attn_fail(first, "%s", why);
  }
  if (!status && !x->request->count && s->view.low_rank && s->view.low_rank->best)
    status = attn_fail(ATTN_EUNSUPPORTED,
                       "variant %s: an oracle, the best there is of its rank, slower than exact attention; "
                       "name it to try it",
                       spec->variant->name);
  if (!status && s->view.seed && !attn_spec_names(spec, s->view.seed))
    status = attn_spec_with_int(attn_plan_parsed_spec(s->plan), s->view.seed, x->request->seed, &s->base);
  else if (!status)
    s->base = attn_spec_share(attn_plan_parsed_spec(s->plan));
  attn_spec_destroy(least);
  return status;
}

/* The spec for a budget; NULL: the variant does not go so far. ENOMEM. */
static attn_status spec_of(const search *s, int64_t budget, attn_spec **spec) {
  const attn_budget *buys = &s->view.budget;
  const attn_param *p = names_param(attn_plan_variant(s->plan)->params, buys->parameter);
  const int64_t value = buys->value ? buys->value(attn_plan_context(s->plan), budget) : budget;
  *spec = NULL;
  if (value <= 0 || (double)value < p->min || (double)value > p->max) return ATTN_OK;
  return attn_spec_with_int(s->base, buys->parameter, value, spec);
}

static void tell(const search *s, const attn_spec *spec) {
  char text[256];
  const attempt *last = s->within.spec ? &s->within : &s->closest;
  if (last->spec && isfinite(last->error[0]))
    snprintf(text, sizeof text, "trying %s (%s: error %.2g)", spec->text, last->spec->text, last->error[0]);
  else
    snprintf(text, sizeof text, "trying %s", spec->text);
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
  attn_spec *spec = NULL;
  attempt t = {.spec = NULL};
  attn_status status = spec_of(s, budget, &spec);
  *out = END;
  if (status || !spec) {
    if (!status) s->ended = "its budget ends there";
    goto out;
  }
  *out = FAR;
  if (attn_spec_equal(spec, s->closest.spec)) goto out;
  *out = NEAR;
  if (attn_spec_equal(spec, s->within.spec)) goto out;
  attn_cost cost = {0, 0, 0};
  tell(s, spec);
  status = attn_estimate_spec(&s->x->problem, spec, &s->x->options, NULL, &cost);
  if (!status) status = attempt_run(s->x, spec, false, &t);
  if (status && !t.damaged) {
    status = ATTN_OK;
    *out = END;
    s->ended = "its budget ends there";
  }
  if (status || *out == END) goto out;
  s->work = cost.mul_add;
  *out = attempt_within(s->x, &t) ? NEAR : FAR;
  if (*out == NEAR)
    keep(&s->within, &t);
  else if (!s->closest.spec || t.error[0] < s->closest.error[0] || isnan(s->closest.error[0]))
    keep(&s->closest, &t);
out:
  attempt_free(&t);
  attn_spec_destroy(spec);
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
  attn_spec *spec = NULL;
  if (!spec_of(s, budget, &spec) && spec &&
      attn_estimate_spec(&s->x->problem, spec, &s->x->options, NULL, &cost))
    cost.mul_add = (double)INFINITY;
  attn_spec_destroy(spec);
  return cost.mul_add;
}

/* Doubles the budget until it is within the error: *high is, *low is not. The first ones may be too few. */
static attn_status double_budget(search *s, int64_t most, int64_t *low, int64_t *high, found *now) {
  attn_cost exact = {0, 0, 0};
  attn_status status = attn_estimate_spec(&s->x->problem, s->x->exact_spec, &s->x->options, NULL, &exact);
  while (!status) {
    status = try_budget(s, *high, now);
    const bool too_few = *now == END && !s->closest.spec && *high < most;
    if (too_few) s->ended = NULL;
    if (status || (*now != FAR && !too_few) || out_of_time(s)) break;
    if (*high == most) s->ended = "it sees every key";
    if (s->work > TOO_MUCH * exact.mul_add) s->ended = "it would compute far more than exact attention";
    if (s->ended) break;
    *low = *high;
    *high = 2 * *high < most ? 2 * *high : most;
  }
  return status;
}

static attn_status search_budget(search *s) {
  const bool keys =
      s->view.pattern || s->view.selector || s->view.projection || s->view.low_rank || s->view.latent;
  /* A window of all keys around the last query is as wide as twice their number. */
  const int64_t most = keys ? 2 * s->x->problem.n_kv : INT64_C(1) << 40;
  int64_t low = 0, high = FIRST < most ? FIRST : most;
  found now = FAR;
  attn_status status = double_budget(s, most, &low, &high, &now);
  if (now != NEAR) return status;
  /* With some variants more costs less, and may be further off in between: a longer stride reads fewer
   * keys. As many as there are cost least where they are not selected, and are no approximation. */
  double least = work_of(s, high);
  const int64_t end = keys ? s->x->problem.n_kv : most;
  for (int64_t more = 2 * high; !status && more < end && !out_of_time(s); more *= 2) {
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

attn_status search_setting(const attempts *x, const attn_spec *spec, advice_setting *out) {
  search s = {.x = x, .start = timing_now()};
  attempt t = {.spec = NULL};
  const char *budget = spec->variant->budget.parameter;
  const bool named = budget && attn_spec_names(spec, budget);
  attn_status status = prepare(x, spec, named, &s);
  const bool free_budget = !status && !named && s.view.budget.parameter;
  if (free_budget) status = search_budget(&s);
  if (!status && !free_budget) {
    tell(&s, s.base);
    status = attempt_run(x, s.base, true, &t);
  }
  if (!status && free_budget && !s.within.spec && !s.closest.spec)
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: no budget could be tried", spec->text);
  if (!status && free_budget) keep(&t, s.within.spec ? &s.within : &s.closest);
  if (!status) status = attempt_settle(x, &t, out);
  if (!status) out->ended = s.ended;
  attempt_free(&t);
  attempt_free(&s.within);
  attempt_free(&s.closest);
  attn_plan_destroy(s.plan);
  attn_spec_destroy(s.base);
  return status;
}

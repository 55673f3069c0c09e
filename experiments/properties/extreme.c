/* extreme.c - PROP-EXTREME: what the capabilities say of weights, on inputs on which they break: queries and
 * keys that share no positive component (features give 0/0), keys all alike, zeros, one huge key, one key. */
#include "experiments/properties/property.h"
#include "experiments/reference/visible.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef enum { OPPOSED, ORTHANTS, ALIKE, NOTHING, HUGE_KEY, INPUTS } extreme;
static const char *const names[] = {[OPPOSED] = "queries of 1, keys of -1",
                                    [ORTHANTS] = "queries of positive components, keys of negative ones",
                                    [ALIKE] = "keys all alike",
                                    [NOTHING] = "queries and keys of 0",
                                    [HUGE_KEY] = "one key a thousand times as long"};

static double element_of(extreme kind, attn_side side, int64_t row, double x) {
  const double sign = side == ATTN_QUERY ? 1 : -1;
  switch (kind) {
  case OPPOSED:
    return sign;
  case ORTHANTS:
    return sign * fabs(x);
  case NOTHING:
    return 0;
  case HUGE_KEY:
    return side == ATTN_KEY && row == 5 ? 1000 * x : x;
  default:
    return x;
  }
}

static void fill(trial_inputs *in, extreme kind, attn_side side) {
  const attn_problem *p = &in->problem;
  const int64_t heads = side == ATTN_QUERY ? p->heads : p->kv_heads,
                n = side == ATTN_QUERY ? p->n_q : p->n_kv;
  for (int64_t at = 0; at < p->batch * heads * n; at++) {
    void *x = trial_row(in, side, at / n / heads, at / n % heads, at % n);
    const void *from =
        side == ATTN_KEY && kind == ALIKE ? trial_row(in, side, at / n / heads, at / n % heads, 0) : x;
    for (int64_t l = 0; l < p->d_qk; l++)
      attn_set(x, l, p->dtype, element_of(kind, side, at % n, attn_get(from, l, p->dtype)));
  }
}

typedef struct extremes {
  const trial *t;
  trial_inputs in;
  bool *seen; /* [batch, heads, n_q] rows that see a key */
  difference found;
  const char *broken; /* the capability that found is of */
} extremes;

static attn_status mark_rows(extremes *x) {
  const attn_problem *p = &x->in.problem;
  const attn_pattern *pattern = x->t->view.pattern;
  region *memory = x->t->memory;
  attn_run *runs = region_zeros(memory, visible_most_runs(pattern, p), sizeof *runs);
  bool *inside = region_zeros(memory, p->n_kv, sizeof *inside);
  x->seen = region_zeros(memory, p->batch * p->heads * p->n_q, sizeof *x->seen);
  if (region_status(memory, "for the rows of a trial")) return ATTN_ENOMEM;
  for (int64_t at = 0; at < p->batch * p->heads * p->n_q; at++)
    x->seen[at] = visible_mark(pattern, p, at / p->n_q / p->heads, at / p->n_q % p->heads, at % p->n_q,
                               p->n_kv, runs, inside) > 0;
  return ATTN_OK;
}

/* By how much component l of the rows lies outside [low, high]. */
static void judge_range(extremes *x, const char *o, double low, double high, const char *capability) {
  const attn_problem *p = &x->in.problem;
  for (int64_t at = 0; at < p->batch * p->heads * p->n_q; at++)
    for (int64_t l = 0; l < p->d_v && x->seen[at]; l++) {
      const double y = attn_get(o, at * p->d_v + l, p->dtype), want = y < low ? low : high,
                   off = isnan(y) ? (double)INFINITY : fmax(fmax(low - y, y - high), 0);
      if (!(off > x->found.largest)) continue;
      x->found = (difference){&x->in,
                              x->found.count + 1,
                              at / p->n_q / p->heads,
                              at / p->n_q % p->heads,
                              at % p->n_q,
                              l,
                              off,
                              want,
                              y};
      x->broken = capability;
    }
}

static void judge_same(extremes *x, const char *o, const char *other, const char *capability) {
  difference here = {.count = 0};
  difference_all(&here, &x->in, other, &x->in, o);
  if (!(here.largest > x->found.largest)) return;
  x->found = here;
  x->found.in = &x->in;
  x->broken = capability;
}

/* Keys and values in the opposite order. */
static void reverse(trial_inputs *in) {
  const attn_problem *p = &in->problem;
  for (int64_t at = 0; at < p->batch * p->kv_heads * (p->n_kv / 2); at++)
    for (int side = ATTN_KEY; side <= ATTN_VALUE; side++) {
      const int64_t line = at / (p->n_kv / 2), j = at % (p->n_kv / 2);
      void *a = trial_row(in, (attn_side)side, line / p->kv_heads, line % p->kv_heads, j),
           *b = trial_row(in, (attn_side)side, line / p->kv_heads, line % p->kv_heads, p->n_kv - 1 - j);
      for (int64_t l = 0; l < (side == ATTN_VALUE ? p->d_v : p->d_qk); l++) {
        const double y = attn_get(a, l, p->dtype);
        attn_set(a, l, p->dtype, attn_get(b, l, p->dtype));
        attn_set(b, l, p->dtype, y);
      }
    }
}

/* Small multiples of 1/4, which keys of 0 and 1 take without rounding. */
static void shift(trial_inputs *in) {
  const attn_problem *p = &in->problem;
  for (int64_t at = 0; at < p->batch * p->kv_heads * p->n_kv; at++) {
    void *k = trial_row(in, ATTN_KEY, at / p->n_kv / p->kv_heads, at / p->n_kv % p->kv_heads, at % p->n_kv);
    for (int64_t l = 0; l < p->d_qk; l++)
      attn_set(k, l, p->dtype, attn_get(k, l, p->dtype) + (double)(l % 7 - 3) / 4);
  }
}

/* Values are within +-sqrt(3), and in the end 1. */
static attn_status judge_input(extremes *x, extreme kind) {
  const attn_problem *p = &x->in.problem;
  const uint32_t caps = x->t->view.caps;
  char *o = NULL, *other = NULL;
  attn_status status = trial_run(x->t, &x->in, 1, POISON_NAN, &o);
  if (!status) judge_range(x, o, -sqrt(3), sqrt(3), "convex weights");
  if (!status && caps & ATTN_CAP_SHIFT && kind != HUGE_KEY) {
    shift(&x->in);
    status = trial_run(x->t, &x->in, 1, POISON_NAN, &other);
    if (!status) judge_same(x, o, other, "a vector added to every key");
  }
  if (!status && caps & ATTN_CAP_PERMUTATION && !p->causal) {
    status = trial_run(x->t, &x->in, 1, POISON_NAN, &o);
    reverse(&x->in);
    if (!status) status = trial_run(x->t, &x->in, 1, POISON_NAN, &other);
    if (!status) judge_same(x, o, other, "keys in another order");
  }
  for (int64_t at = 0; at < p->batch * p->kv_heads * p->n_kv; at++)
    trial_row_fill(&x->in, ATTN_VALUE, at / p->n_kv / p->kv_heads, at / p->n_kv % p->kv_heads, at % p->n_kv,
                   1);
  if (!status) status = trial_run(x->t, &x->in, 1, POISON_NAN, &o);
  if (!status) judge_range(x, o, 1, 1, "weights that sum to 1");
  return status;
}

static attn_status judge_kind(const trial *t, const attn_problem *p, extreme kind, const char *what,
                              result_bound *bound) {
  extremes x = {.t = t};
  attn_status status = trial_inputs_gather(t->memory, &t->in, p, 0, &x.in);
  if (status) return status;
  fill(&x.in, kind, ATTN_QUERY);
  fill(&x.in, kind, ATTN_KEY);
  status = mark_rows(&x);
  if (!status) status = judge_input(&x, kind);
  /* Features of a huge key may cancel: only a NaN is judged. */
  const bool cancels = kind == HUGE_KEY && t->view.by_features && isfinite(x.found.largest);
  if (!status && !cancels && !(x.found.largest <= bound->measured)) {
    char text[160];
    snprintf(text, sizeof text, "%s, %s", what, x.broken);
    difference_settle(&x.found, trial_rounding(t) * sqrt(3), text, bound);
  }
  return status == ATTN_EUNSUPPORTED || status == ATTN_EINVAL ? ATTN_OK : status;
}

static attn_status extreme_judge(const trial *t, result_bound *bound) {
  if (!(t->view.caps & ATTN_CAP_CONVEX))
    return bound_not_applicable(bound, "weights may be negative, and cancel");
  attn_status status = bound_property(bound, 0, trial_rounding(t) * sqrt(3));
  attn_problem one = t->in.problem;
  one.batch = 1; /* others depend on their own numbers alone: PROP-BATCH */
  for (int kind = 0; kind < INPUTS && !status && bound->verdict != VERDICT_VIOLATED; kind++)
    status = judge_kind(t, &one, (extreme)kind, names[kind], bound);
  attn_problem single = one;
  single.n_q = single.n_kv = 1;
  if (!status && bound->verdict != VERDICT_VIOLATED)
    status = judge_kind(t, &single, ORTHANTS, "a single key, of negative components", bound);
  return status;
}

PROPERTY(extreme)
const check check_prop_extreme = {
    .name = "PROP-EXTREME",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement =
        "what the variant declares of its weights holds where queries and keys are opposed, alike, zero or "
        "huge",
    .source = "the interface: ATTN_CAP_STOCHASTIC, _CONVEX, _PERMUTATION and _SHIFT (attn_variant.h)",
    .formula =
        "With q = 1, k = -1; q of positive components, k of negative ones; keys all alike; q = k = 0; one "
        "key "
        "a thousand times as long; one key alone: values of 1 give 1, outputs lie between the least and "
        "largest value, and keys in the opposite order, or with one vector added to all, give the same, "
        "within "
        "sqrt(u) sqrt(3). A NaN is infinitely far off.",
    .assumes = "Weights that are not negative (ATTN_CAP_CONVEX): others may cancel. Rows that see no key "
               "are left out; of features and the long key only a NaN is judged.",
    .cause =
        "0/0: features that are never negative may share no positive component, so that no weight is left to "
        "divide by; add a constant to them, or leave the capability out",
    .nulls = CHECK_BLIND("it runs the variant on separate problems, and looks at no output of the run"),
    .evaluate = extreme_evaluate,
};

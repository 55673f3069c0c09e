/* cost.c - PROP-COST: the multiply-adds that a variant states are those that its keys, features or slots
 * take.
 *
 * Estimates of sweeps, their budgets of time and every column of GFLOP/s rest on what a variant states of
 * its cost. */
#include "experiments/properties/property.h"

#include "experiments/reference/seen.h"
#include "experiments/reference/visible.h"

#include <math.h>
#include <stdlib.h>

static const double factor_most = 4;

/* Query-key pairs of the trial. */
static attn_status count_pairs(const trial *t, double *pairs) {
  const trial_inputs *in = &t->in;
  const attn_problem *p = &in->problem;
  const int64_t count = p->batch * p->heads * p->n_q;
  const seen_run run = {t->plan, &t->view, {.q = in->q, .k = in->k, .v = in->v}};
  seen_keys seen = {.pattern = NULL};
  sample_row *rows = region_take(t->memory, count, sizeof *rows);
  bool *inside = region_take(t->memory, p->n_kv, sizeof *inside);
  attn_run *runs = NULL;
  attn_status status = region_status(t->memory, "for the rows of a trial");
  *pairs = 0;
  for (int64_t r = 0; !status && r < count; r++)
    rows[r] = (sample_row){r / p->n_q / p->heads, r / p->n_q % p->heads, r % p->n_q};
  if (!status) status = seen_make(&run, rows, NULL, count, &seen);
  for (int64_t r = 0; !status && r < count; r++) {
    const attn_pattern *of = seen_of(&seen, rows[r].batch);
    if (!runs && !(runs = calloc((size_t)visible_most_runs(of, p), sizeof *runs)))
      status = attn_fail(ATTN_ENOMEM, "no memory for a row of a trial");
    else
      *pairs += (double)visible_mark(of, p, rows[r].batch, rows[r].head, rows[r].i, p->n_kv, runs, inside);
  }
  seen_free(&seen);
  free(runs);
  return status;
}

/* Sums of features of keys with values, and their products with those of queries. */
static double features_take(const attn_problem *p, const attn_feature_map *m) {
  const double rows = (double)(p->batch * (p->heads * p->n_q + p->kv_heads * p->n_kv));
  return rows * (double)m->columns * (double)p->d_v;
}

/* What must be multiplied at the least. *whole: up to a constant factor it is all there is. */
static attn_status least_of(const trial *t, double *least, bool *whole) {
  const attn_problem *p = &t->in.problem;
  const attn_view *v = &t->view;
  double pairs = 0;
  *least = 0;
  *whole = v->pattern || v->normaliser || v->caps & ATTN_CAP_EXACT;
  if (v->features) *least = features_take(p, v->features);
  if (v->toeplitz) *least = features_take(p, v->toeplitz->features);
  if (v->recurrence)
    *least = (double)(p->batch * p->heads * (p->n_q + p->n_kv - 1)) * (double)(p->d_qk * p->d_v);
  if (v->projection)
    *least = (double)(p->batch * p->heads * p->n_q * v->projection->slots) * (double)(p->d_qk + p->d_v);
  if (v->residual) *least = features_take(p, v->residual->features);
  if (v->features || v->toeplitz || v->recurrence || v->projection || v->residual) return ATTN_OK;
  const attn_status status = count_pairs(t, &pairs);
  *least = pairs * (double)(p->d_qk + p->d_v);
  return status;
}

static attn_status cost_judge(const trial *t, result_bound *bound) {
  const attn_view *v = &t->view;
  const double stated = attn_plan_cost(t->plan).mul_add;
  const char *exempt = trial_exempt(t, ATTN_EXEMPT_BITS);
  double least = 0;
  bool whole = false;
  if (exempt) return bound_not_applicable(bound, exempt);
  if (!v->pattern && !v->selector && !v->features && !v->projection && !v->residual && !v->recurrence &&
      !v->toeplitz && !v->normaliser && !(v->caps & ATTN_CAP_EXACT))
    return bound_not_applicable(bound, "the variant describes nothing that could be counted");
  const attn_status status = least_of(t, &least, &whole);
  if (status) return status;
  const double low = least > 0 ? least / stated : 0, high = whole ? stated / least : 0;
  bound_property(bound, stated >= 0 && isfinite(stated) ? fmax(low, high) : (double)INFINITY, factor_most);
  if (bound->verdict == VERDICT_VIOLATED)
    bound_say(bound, "%lld queries, %lld keys, d = %lld: cost states %.4g multiply-adds, %s %.4g",
              (long long)t->in.problem.n_q, (long long)t->in.problem.n_kv, (long long)t->in.problem.d_qk,
              stated, low > factor_most ? "and it takes at least" : "and the keys that are seen take", least);
  return ATTN_OK;
}

PROPERTY(cost)
const check check_prop_cost = {
    .name = "PROP-COST",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement = "the multiply-adds that the variant states are those that are counted, within a factor of 4",
    .source = "the interface: attn_variant.cost, on which estimates, budgets and GFLOP/s rest",
    .formula =
        "measured: the larger of counted / stated and, of a pattern and of exact attention, stated / "
        "counted, on the trial. Counted: (d_qk + d_v) for each query-key pair of a pattern, a selection or "
        "exact attention; columns d_v for each row of features; d_qk d_v for each query and key of a "
        "recurrence; slots (d_qk + d_v) for each query of a "
        "projection. What ranking, hashing, mapping and projecting take besides may be more.",
    .assumes = "The variant describes which keys are seen, or its features, recurrence or projection. "
               "Exponentials and bytes are not held.",
    .cause = "a factor is missing (heads, d_qk + d_v, half of the pairs under a causal mask), a block or "
             "window is "
             "not cut at the length, or the cost is that of another parameter",
    .nulls = CHECK_BLIND("it looks at no output"),
    .evaluate = cost_evaluate,
};

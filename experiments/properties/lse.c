/* lse.c - PROP-LSE: the log-sum-exp that a variant gives of every row, log sum_j exp(scale q_i . k_j) over
 * the keys that query i sees, against fp64: every key for an exact variant, those of the law for one with a
 * pattern. And the output that comes with it, against the one that comes without. */
#include "experiments/properties/log_sum.h"
#include "experiments/properties/property.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct sums {
  double *given, *expected, *bound; /* [batch, heads, n_q]; a NaN bound: there is none */
} sums;

static attn_status sums_make(region *memory, const attn_problem *p, sums *out) {
  const int64_t rows = p->batch * p->heads * p->n_q;
  *out = (sums){.given = region_zeros(memory, 3 * rows, sizeof(double))};
  if (!out->given) return region_status(memory, "for the sums of a trial");
  out->expected = out->given + rows;
  out->bound = out->expected + rows;
  return ATTN_OK;
}

static attn_status expect(region *memory, const attn_plan *plan, const attn_view *view,
                          const trial_inputs *in, sums *s, const char **why) {
  const attn_problem *p = &in->problem;
  const int64_t count = p->batch * p->heads * p->n_q;
  const evidence e = {.plan = plan,
                      .problem = p,
                      .view = view,
                      .q = in->q,
                      .k = in->k,
                      .v = in->v,
                      .kv_len = in->padded ? in->kv_len : NULL};
  sample_row *rows = region_take(memory, count, sizeof *rows);
  if (region_status(memory, "for the rows of a trial")) return ATTN_ENOMEM;
  for (int64_t r = 0; r < count; r++)
    rows[r] = (sample_row){r / p->n_q / p->heads, r / p->n_q % p->heads, r % p->n_q};
  return log_sum_rows(&e, rows, count, s->expected, s->bound, why);
}

/* What the wrong number is, where that can be told. */
static void say_what(const attn_problem *p, const sums *s, int64_t at, result_bound *bound) {
  const double got = s->given[at], want = s->expected[at], room = s->bound[at];
  const int64_t h = at / p->n_q % p->heads, i = at % p->n_q, first = at - i - h * p->n_q;
  char hint[96] = "";
  if (isinf(want))
    snprintf(hint, sizeof hint, ": the query sees no key, and the sum of nothing has the logarithm -Inf");
  else if (p->score.sink && want == p->score.sink[h])
    snprintf(hint, sizeof hint, ": the query sees no key, and its sink is all that is summed");
  else if (fabs(got - want / log(2)) <= 2 * room)
    snprintf(hint, sizeof hint, ": that is the logarithm to base 2, the natural one is asked for");
  for (int64_t other = 0; !*hint && other < p->heads; other++)
    if (other != h && fabs(got - s->expected[first + other * p->n_q + i]) <= room)
      snprintf(hint, sizeof hint, ": that is the sum of head %lld", (long long)other);
  if (!*hint) snprintf(hint, sizeof hint, ", off by %.6g", got - want);
  bound_say(bound, "%lld queries, %lld keys, batch %lld, head %lld, row %lld: lse is %.9g, expected %.9g%s",
            (long long)p->n_q, (long long)p->n_kv, (long long)(at / p->n_q / p->heads), (long long)h,
            (long long)i, got, want, hint);
}

/* The output that came with the sums, against that without them. */
static void judge_output(const trial *t, const trial_inputs *in, const char *plain, const char *o,
                         result_bound *bound) {
  difference found = {.count = 0};
  difference_all(&found, in, o, in, plain);
  if (found.count) difference_settle(&found, trial_rounding(t) * sqrt(3), "without the log-sum-exp", bound);
}

/* One run with the sums; *rows: that were judged. plain: its output without them. */
static attn_status judge_run(const trial *t, const attn_plan *plan, const trial_inputs *in, const char *plain,
                             result_bound *bound, int64_t *rows, const char **why) {
  const attn_problem *p = &in->problem;
  attn_view view;
  sums s = {NULL, NULL, NULL};
  void *o = region_take(t->memory, p->batch * p->heads * p->n_q * p->d_v, attn_dtype_size(p->dtype)),
       *work = region_take(t->memory, 1, attn_plan_work_size(plan) + 1);
  double worst = 0;
  attn_status status = attn_plan_inspect(plan, &view);
  if (!status) status = sums_make(t->memory, p, &s);
  if (!status) status = region_status(t->memory, "for the output of a trial");
  for (int64_t r = 0; !status && r < p->batch * p->heads * p->n_q; r++) s.given[r] = (double)NAN;
  if (!status)
    status =
        attn_plan_execute_lse(plan, in->q, in->k, in->v, in->padded ? in->kv_len : NULL, o, s.given, work);
  if (!status) status = expect(t->memory, plan, &view, in, &s, why);
  for (int64_t r = 0; !status && r < p->batch * p->heads * p->n_q; r++) {
    if (isnan(s.bound[r])) continue;
    const double off = fabs(s.given[r] - s.expected[r]) / s.bound[r];
    ++*rows;
    if (log_sum_holds(s.given[r], s.expected[r], s.bound[r])) {
      worst = isnan(off) ? worst : fmax(worst, off); /* two infinities are the same */
      continue;
    }
    bound_property(bound, isnan(off) ? (double)INFINITY : off, 1);
    say_what(p, &s, r, bound);
    break;
  }
  if (!status && bound->verdict != VERDICT_VIOLATED) bound_property(bound, worst, 1);
  if (!status && bound->verdict != VERDICT_VIOLATED) judge_output(t, in, plain, o, bound);
  return status;
}

/* What the trial has not: padding, a batch entry without keys, queries without any in their past, and
 * sinks. */
static attn_status judge_empty(const trial *t, const double *sinks, result_bound *bound, int64_t *rows,
                               const char **why) {
  const bool padded = t->view.caps & ATTN_CAP_PADDING;
  attn_problem p = t->in.problem;
  trial_inputs in;
  attn_plan *plan = NULL;
  char *plain = NULL;
  p.n_kv = 70;
  p.n_q = t->view.caps & ATTN_CAP_CROSS ? 97 : 70;
  p.score.sink = sinks;
  attn_status status = trial_inputs_gather(t->memory, &t->in, &p, 0, &in);
  if (status) return status;
  in.padded = padded;
  in.kv_len[0] = p.batch > 1 ? 45 : 0;
  for (int64_t b = 1; b < p.batch; b++) in.kv_len[b] = 0;
  status = attn_plan_create_spec(&plan, &in.problem, t->spec, &t->options);
  if (!status) status = trial_execute(t->memory, plan, &in, POISON_NAN, &plain);
  if (!status) status = judge_run(t, plan, &in, plain, bound, rows, why);
  attn_plan_destroy(plan);
  return status == ATTN_EUNSUPPORTED || status == ATTN_EINVAL ? ATTN_OK
                                                              : status; /* it takes no such problem */
}

static attn_status lse_judge(const trial *t, result_bound *bound) {
  int64_t rows = 0;
  const int64_t heads = t->in.problem.heads;
  const char *why = "no row sees a key";
  double *sinks = region_take(t->memory, heads, sizeof *sinks);
  if (region_status(t->memory, "for the sinks of a trial")) return ATTN_ENOMEM;
  for (int64_t h = 0; h < heads; h++) sinks[h] = (double)(h % 3) * 5 - 4;
  attn_status status = judge_run(t, t->plan, &t->in, t->o, bound, &rows, &why);
  for (int with = 0; with < 2 && !status && bound->verdict != VERDICT_VIOLATED; with++)
    if (!with || t->view.caps & ATTN_CAP_SCORE)
      status = judge_empty(t, with ? sinks : NULL, bound, &rows, &why);
  return status || rows ? status : bound_uncertifiable(bound, why);
}

PROPERTY(lse)
const check check_prop_lse = {
    .name = "PROP-LSE",
    .of = &of_lse,
    .kind = KIND_PROPERTY,
    .statement =
        "the log-sum-exp of every row is that of the scores of the keys that the query sees and of its sink, "
        "and the output is the same whether it is wanted or not",
    .source =
        "the interface: attn_plan_execute_lse (attn.h); the bound from FP-1's errors of the log weights",
    .formula =
        "measured: |lse^ - lse| in units of ln(1 + sum_j p_j (e^h_j - 1)) - ln(1 - gamma_(D_Z)) + the fp64 "
        "roundings of the logarithm and the reference, h_j as in FP-1, over every row of the trial, and of "
        "one with padding, with more queries than keys and without any key, also with sinks; without a key "
        "the sink's logit as it is rounded, or -Inf. The output "
        "of "
        "each bitwise, or within sqrt(u) max |V|.",
    .assumes = "Declared: the log-sum-exp. Without a described rounding: the textbook form in the tensors' "
               "precision.",
    .cause =
        "the maximum is not added back, log2 where the natural logarithm is asked for, or lse [batch, "
        "heads, n_q] is indexed by the kv head; where the output differs, the code that is taken if lse is "
        "not NULL",
    .nulls = PROPERTY_BLIND,
    .evaluate = lse_evaluate,
};

/* length.c - PROP-LEN: at lengths beside those of tiles, chunks and slices the output is that of the definition. */
#include "experiments/properties/definition.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The row with the largest error in units of what rounding may do. */
typedef struct worst {
  double ratio, expected, got;
  int64_t rows; /* that were judged */
  attn_problem problem;
  int64_t batch, head, row, component;
} worst;

/* At most so much may a row's rounding be amplified for the row to be judged. */
static const double amplified_max = 1e3;

static void judge_row(const definition *d, const char *o, int64_t i, double rounding, double *own, worst *w) {
  const attn_problem *p = &d->in->problem;
  const double amplified = definition_row(d, i, own);
  double most = 0;
  if (!(amplified < amplified_max)) return;
  for (int64_t l = 0; l < p->d_v; l++) most = fmax(most, fabs(own[l]));
  w->rows++;
  for (int64_t l = 0; l < p->d_v; l++) {
    const double got = attn_get(o, ((d->batch * p->heads + d->head) * p->n_q + i) * p->d_v + l, p->dtype),
                 ratio = fabs(got - own[l]) / (rounding * amplified * fmax(most, sqrt(3)));
    if (ratio <= w->ratio) continue;
    *w = (worst){isnan(ratio) ? (double)INFINITY : ratio, own[l], got, w->rows, *p, d->batch, d->head, i, l};
  }
}

/* Rows of each head: the first, the last, and others that differ from head to head. */
static attn_status judge_length(const trial *t, const attn_plan *plan, const trial_inputs *in, const char *o,
                                worst *w) {
  const attn_problem *p = &in->problem;
  attn_view view;
  attn_status status = attn_plan_inspect(plan, &view);
  double *own = malloc((size_t)p->d_v * sizeof *own + 1);
  if (!status && !own) status = attn_fail(ATTN_ENOMEM, "no memory for a row");
  for (int64_t line = 0; !status && line < p->batch * p->heads; line++) {
    definition d;
    const int64_t n = p->n_q,
                  rows[] = {0, n - 1, (n / 3 + 7 * line) % n, (n / 2 + 11 * line) % n, 64 * (1 + line) % n};
    if ((status = definition_make(plan, &view, in, line / p->heads, line % p->heads, &d))) break;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
      judge_row(&d, o, rows[r], trial_rounding(t), own, w);
    definition_free(&d);
  }
  free(own);
  return status;
}

/* A run of a problem on the trial's numbers. */
static attn_status judge_other(const trial *t, const attn_problem *p, const int64_t *kv_len, worst *w) {
  attn_options options = t->options;
  trial_inputs in = {.padded = false};
  attn_plan *plan = NULL;
  char *o = NULL;
  attn_status status = trial_inputs_gather(&t->in, p, 0, &in);
  in.padded = kv_len;
  for (int64_t b = 0; !status && kv_len && b < p->batch; b++) in.kv_len[b] = kv_len[b];
  if (!status) status = attn_plan_create(&plan, &in.problem, t->spec, &options);
  if (!status) status = trial_execute(plan, &in, POISON_NAN, &o);
  if (!status) status = judge_length(t, plan, &in, o, w);
  attn_plan_destroy(plan);
  trial_inputs_free(&in);
  free(o);
  return status == ATTN_EUNSUPPORTED || status == ATTN_EINVAL ? ATTN_OK
                                                              : status; /* a problem it does not take */
}

static attn_status judge_shorter(const trial *t, int64_t n, worst *w) {
  attn_problem p = t->in.problem;
  p.n_q = p.n_kv = n;
  p.batch = 1;
  return judge_other(t, &p, NULL, w);
}

/* What the trial has not: groups of three heads, a third batch entry, padding, fewer queries than keys. */
static attn_status judge_crowd(const trial *t, worst *w) {
  static const int64_t kv_len[TRIAL_BATCH] = {67, 44, 66};
  const bool padded = t->view.caps & ATTN_CAP_PADDING;
  attn_problem p = t->in.problem;
  p.batch = TRIAL_BATCH;
  p.heads = 6;
  p.kv_heads = p.kv_heads < t->in.problem.heads ? 2 : 6;
  p.n_kv = kv_len[0];
  p.n_q = t->view.caps & ATTN_CAP_CROSS ? 40 : p.n_kv;
  return judge_other(t, &p, padded ? kv_len : NULL, w);
}

static attn_status length_judge(const trial *t, result_bound *bound) {
  static const int64_t lengths[] = {1, 65, 130};
  const char *exempt = trial_exempt(t, ATTN_EXEMPT_LENGTH);
  if (exempt) return bound_not_applicable(bound, exempt);
  if (!definition_exists(&t->view))
    return bound_excuse(bound, VERDICT_UNCHECKED,
                        "no definition: the variant describes no pattern, features or projection");
  worst w = {.ratio = 0};
  attn_status status = judge_length(t, t->plan, &t->in, t->o, &w);
  for (size_t m = 0; !status && m < sizeof lengths / sizeof *lengths; m++)
    status = judge_shorter(t, lengths[m], &w);
  if (!status) status = judge_crowd(t, &w);
  if (status) return status;
  if (!w.rows) return bound_uncertifiable(bound, "the weights of every row cancel");
  bound_property(bound, w.ratio, 1);
  if (bound->verdict == VERDICT_VIOLATED)
    bound_say(
        bound,
        "%lld queries, %lld keys, %lld heads on %lld: batch %lld, head %lld, row %lld, component %lld is "
        "%.7g, by the definition %.7g",
        (long long)w.problem.n_q, (long long)w.problem.n_kv, (long long)w.problem.heads,
        (long long)w.problem.kv_heads, (long long)w.batch, (long long)w.head, (long long)w.row,
        (long long)w.component, w.got, w.expected);
  return ATTN_OK;
}

PROPERTY(length)
const check check_prop_len = {
    .name = "PROP-LEN",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement =
        "at odd lengths, with grouped heads and padding, the output is that of the variant's definition",
    .source =
        "the definition: softmax over the pattern's keys, the quotient of feature products, or softmax over "
        "projected keys, in fp64",
    .formula = "measured: |o^ - o| in units of sqrt(u) max(|o|, 1.7) (sum |w_j| / |sum w_j|), the largest "
               "over rows at "
               "the edges and inside, for every head, at n = 1, 65, 130 and the trial's own length, and of "
               "40 queries over "
               "67 keys with three batch entries, groups of three heads and padding, as far as declared.",
    .assumes =
        "The view has a pattern, features or a projection, or declares that the variant is exact; else "
        "unchecked. Rows whose weights cancel a thousandfold are left out.",
    .cause =
        "the last keys of a length that is no multiple of the block are lost, a sum is not normalised, "
        "or the "
        "wrong head's keys, draws or state are used; with fewer queries than keys: query i has position i + "
        "n_kv - n_q",
    .nulls = CHECK_BLIND("it runs the variant on problems of its own, and looks at no output of the run"),
    .evaluate = length_evaluate,
};

/* sink.c - SINK-1: a sink, one more key of value 0 and score z, is a sigmoid of the log-sum-exp:
 *
 *   o_sink = sum_j e^s_j v_j / (e^z + sum_j e^s_j) = sigmoid(lse - z) o,   lse_sink = ln(e^lse + e^z).
 *
 * The trial is run again with a sink a head: near the log-sum-exp, far above it (where it must not overflow,
 * and leaves next to nothing) and far below (where it must leave the output alone). The output without a sink
 * is the variant's own. */
#include "experiments/properties/property.h"

#include "experiments/evidence/rows.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 6 }; /* of each head */
static const double sinks[] = {5, 100, -100, 1};

typedef struct sunk {
  const trial *t;
  attn_plan *plan; /* of the trial's problem with sinks */
  attn_view view;
  double *z;             /* [heads] */
  char *o;               /* its output */
  double *lse;           /* [batch, heads, n_q], or NULL */
  sample_row *rows;      /* [batch * heads * ROWS] */
  int64_t count, judged; /* rows; those of them that have a bound */
  const char *why;       /* the others have none */
  double worst;
  result_bound *bound;
} sunk;

static attn_status sunk_execute(sunk *x) {
  const attn_problem *p = attn_plan_problem(x->plan);
  const trial_inputs *in = &x->t->in;
  region *memory = x->t->memory;
  const int64_t rows = p->batch * p->heads * p->n_q;
  void *work = region_take(memory, 1, attn_plan_work_size(x->plan) + 1);
  x->o = region_zeros(memory, rows * p->d_v, attn_dtype_size(p->dtype));
  if (x->view.caps & ATTN_CAP_LSE) x->lse = region_zeros(memory, rows, sizeof *x->lse);
  if (region_status(memory, "for an output with sinks")) return ATTN_ENOMEM;
  return x->lse ? attn_plan_execute_lse(x->plan, in->q, in->k, in->v, NULL, x->o, x->lse, work)
                : attn_plan_execute(x->plan, in->q, in->k, in->v, NULL, x->o, work);
}

static attn_status sunk_make(const trial *t, result_bound *bound, sunk *x) {
  attn_problem p = t->in.problem;
  *x = (sunk){.t = t, .bound = bound, .why = "no row sees a key"};
  x->z = region_zeros(t->memory, p.heads, sizeof *x->z);
  x->rows = region_zeros(t->memory, p.batch * p.heads * ROWS, sizeof *x->rows);
  if (region_status(t->memory, "for the sinks of a trial")) return ATTN_ENOMEM;
  for (int64_t h = 0; h < p.heads; h++) x->z[h] = sinks[h % 4];
  for (int64_t line = 0; line < p.batch * p.heads; line++)
    for (int64_t r = 0; r < ROWS; r++)
      x->rows[x->count++] = (sample_row){line / p.heads, line % p.heads,
                                         r < ROWS - 1 ? r * p.n_q / ROWS + line % 7 : p.n_q - 1};
  p.score.sink = x->z;
  attn_status status = attn_plan_create_spec(&x->plan, &p, t->spec, &t->options);
  if (!status) status = attn_plan_inspect(x->plan, &x->view);
  return status ? status : sunk_execute(x);
}

/* -- a row -- */

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }

/* Keeps the worst of what was found: off by so much where so much is allowed. */
static void keep(sunk *x, const sample_row *row, const char *what, double got, double want, double room) {
  const double ratio = got == want ? 0 : fabs(got - want) / room;
  if (ratio <= x->worst) return;
  x->worst = isnan(ratio) ? (double)INFINITY : ratio;
  if (x->worst <= 1) return;
  bound_property(x->bound, x->worst, 1);
  bound_say(x->bound, "sink %g: batch %lld, head %lld, row %lld: %s is %.9g, expected %.9g", x->z[row->head],
            (long long)row->batch, (long long)row->head, (long long)row->i, what, got, want);
}

/* s: the row's query and support; exact, its sum and its bounds without (kept) and with the sink. */
static row_verdict judge_row(sunk *x, const head_data *plain, const sample_row *row, row_space *s) {
  const attn_problem *p = plain->problem;
  const attn_rounding own = row_reference_rounding(p, p->n_kv);
  const int64_t d_v = p->d_v, first = row_offset(p, row, d_v);
  const double z = x->z[row->head];
  head_data with = *plain;
  row_extremes scores;
  double sum, error = 0, joined, joined_error;
  with.problem = attn_plan_problem(x->plan);
  row_verdict verdict = row_attend(plain, NULL, s, &scores);
  if (verdict == ROW_OK) verdict = row_log_sum(plain, &own, &scores, s, &sum, &error);
  if (verdict == ROW_OK)
    verdict = row_error(plain, &x->t->view.rounding, false, NULL, 0, &scores, s, s->kept);
  if (verdict == ROW_OK) verdict = row_attend(&with, NULL, s, &scores);
  if (verdict == ROW_OK) verdict = row_error(&with, &x->view.rounding, false, NULL, 0, &scores, s, s->bound);
  if (verdict == ROW_OK) verdict = row_log_sum(&with, &x->view.rounding, &scores, s, &joined, &joined_error);
  if (verdict != ROW_OK) return verdict;
  const double share = sigmoid(sum - z);
  for (int64_t l = 0; l < d_v; l++) {
    const double o = attn_get(x->t->o, first + l, p->dtype);
    keep(x, row, "a component", attn_get(x->o, first + l, p->dtype), share * o,
         s->bound[l] + share * (s->kept[l] + 2 * error * fabs(o)));
  }
  if (x->lse)
    keep(x, row, "the log-sum-exp", x->lse[first / d_v], fmax(sum, z) + log1p(exp(-fabs(sum - z))),
         joined_error + error);
  return ROW_OK;
}

static void visit_row(void *context, int64_t r, const head_data *h, row_space *s) {
  sunk *x = context;
  if (s->count == 0) return;
  const row_verdict verdict = judge_row(x, h, &x->rows[r], s);
  x->judged += verdict == ROW_OK;
  if (verdict != ROW_OK) x->why = row_reason(verdict);
}

static attn_status judge_rows(sunk *x) {
  const trial_inputs *in = &x->t->in;
  const evidence e = {
      .plan = x->plan, .problem = &in->problem, .view = &x->view, .q = in->q, .k = in->k, .v = in->v};
  return rows_walk_stored(
      &e, &(stored_walk){.rows = x->rows, .count = x->count, .context = x, .visit = visit_row});
}

static attn_status sink_judge(const trial *t, result_bound *bound) {
  sunk x;
  if (!(t->view.rounding.unit > 0)) return bound_not_applicable(bound, "the variant describes no rounding");
  if (t->view.selector && t->view.selector->least > 0)
    return bound_not_applicable(bound, "which keys are left out depends on the sink");
  if (t->view.store && t->view.store->reader)
    return bound_not_applicable(bound, "what reads the store is judged without it");
  if (t->view.pooling)
    return bound_not_applicable(bound, "its terms are no keys alone: POOL-1 counts the sink with them");
  if (t->view.latent)
    return bound_not_applicable(bound,
                                "the rounding of latents is that of their factors, which MLA-1 judges");
  attn_status status = sunk_make(t, bound, &x);
  if (!status) status = judge_rows(&x);
  if (!status && !x.judged)
    status = bound_uncertifiable(bound, x.why);
  else if (!status && x.worst <= 1)
    status = bound_property(bound, x.worst, 1);
  attn_plan_destroy(x.plan);
  return status;
}

PROPERTY(sink)
const check check_sink1 = {
    .name = "SINK-1",
    .of = &of_transforms,
    .kind = KIND_PROPERTY,
    .statement = "with a sink of score z a row is what it is without one, times sigmoid(lse - z)",
    .source =
        "definition of a sink; Xiao et al. 2023, arXiv:2309.17453, as a key of value 0 with a learned score",
    .formula =
        "measured: |o^_sink - sigmoid(lse - z) o^| in units of b_sink + sigmoid(lse - z) (b + 2 e |o^|), and "
        "of a variant that gives it |lse^_sink - ln(e^lse + e^z)| in units of PROP-LSE's bound, the largest "
        "over 6 rows of every head of the trial; b of FP-1, lse and its error e in fp64, z = 5, 100, -100, 1 "
        "by turns of the heads.",
    .assumes = "The variant takes transforms of scores (ATTN_CAP_SCORE) and describes its rounding.",
    .cause = "the sink takes no part in the maximum and overflows, is clamped, or is another head's; or the "
             "log-sum-exp leaves it out",
    .nulls = CHECK_BLIND("it runs the variant on separate problems, and looks at no output of the run"),
    .evaluate = sink_evaluate,
};

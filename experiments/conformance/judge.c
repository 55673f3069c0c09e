/* judge.c - see judge.h.
 *
 * The problem is run twice: as it is simplest, with contiguous tensors, by one thread, in the first call of a
 * plan; then as the problem says, on rows elsewhere in memory, by several threads, watched, in a later call,
 * with log-sum-exps. The first is held to the definition row by row; a softmax by the bound of its described
 * rounding, FP-1's, with the problem's masks and transforms, anything else as PROP-LEN holds it. The second
 * has the same bits as the first; where log-sum-exps are wanted, for which another order of sums is
 * legitimate, it is held to the definition itself. */
#include "experiments/conformance/judge.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/conformance/inputs.h"
#include "experiments/evidence/rounding/declared.h"
#include "experiments/evidence/rows.h"
#include "experiments/properties/definition.h"
#include "experiments/properties/placement.h"
#include "experiments/properties/log_sum.h"
#include "experiments/reference/transform.h"

/* Multiply-adds that the rows of a problem may cost, how many rows that may be, and rounding that may be
 * amplified, as PROP-LEN's. */
static const double work_most = 4e6, rows_most = 2000, amplified_max = 1e3;

static const double vacuous_from = 0.01; /* of the values */

typedef struct judged {
  const attn_spec *spec;
  const problem *of;
  problem_inputs x;
  attn_plan *plan; /* the first */
  attn_view view;
  sample_row *rows; /* that are judged, ascending */
  int64_t count, defined;
  char *plain; /* the first output */
  finding *found;
} judged;

static void say(judged *j, finding_kind kind, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(j->found->text, sizeof j->found->text, format, args);
  va_end(args);
  j->found->kind = kind;
}

static evidence evidence_of(const judged *j, const char *o) {
  const trial_inputs *in = &j->x.in;
  return (evidence){.plan = j->plan,
                    .problem = &in->problem,
                    .view = &j->view,
                    .q = in->q,
                    .k = in->k,
                    .v = in->v,
                    .kv_len = in->padded ? in->kv_len : NULL,
                    .o = o};
}

/* Does a definition that is made for a whole head choose this one? Some, others in each problem. */
static bool is_chosen(const judged *j, int64_t line, int64_t lines, attn_rng *rng) {
  return of_softmax.holds(&j->view) || line == lines - 1 || attn_rng_below(rng, lines) < 4;
}

/* As many rows of each head as the work allows, at least one. */
static attn_status choose_rows(judged *j) {
  const attn_problem *p = &j->x.in.problem;
  const int64_t lines = p->batch * p->heads;
  const double each = (double)(lines * p->n_kv * (p->d_qk + p->d_v + 16));
  int64_t per_line = (int64_t)fmin(work_most / each, rows_most / (double)lines);
  attn_rng rng;
  per_line = per_line < 1 ? 1 : per_line > p->n_q ? p->n_q : per_line;
  int64_t *places = region_take(&j->x.memory, per_line, sizeof *places);
  j->rows = region_take(&j->x.memory, lines * per_line, sizeof *j->rows);
  if (region_status(&j->x.memory, "for the rows of a problem")) return ATTN_ENOMEM;
  attn_rng_init(&rng, (uint64_t)j->of->value[FIELD_SEED], 3, 0);
  for (int64_t line = 0; line < lines; line++) {
    rows_spread(&rng, p->n_q, per_line, places);
    if (!is_chosen(j, line, lines, &rng)) continue;
    for (int64_t r = 0; r < per_line; r++)
      j->rows[j->count++] = (sample_row){line / p->heads, line % p->heads, places[r]};
  }
  return ATTN_OK;
}

/* -- against the definition -- */

/* By how much a number that is not bounded by a described rounding may be off: PROP-LEN's. */
static double tolerance(const judged *j) {
  const trial t = {.view = j->view, .in = j->x.in};
  return trial_rounding(&t);
}

/* Of values, that are within it. */
static double size_least(const judged *j) { return sqrt(3) * problem_inputs_gain(j->of); }

/* A row against what it should be; allowed: of each component, or NULL for one of all. */
static void compare(judged *j, const char *o, const sample_row *row, const double *expected,
                    const double *allowed, double all, const char *how) {
  const attn_problem *p = &j->x.in.problem;
  const int64_t first = row_offset(p, row, p->d_v);
  j->defined++;
  for (int64_t l = 0; l < p->d_v; l++) {
    const double got = attn_get(o, first + l, p->dtype), most = allowed ? allowed[l] : all;
    if (!isfinite(expected[l]) && !isfinite(got)) continue;
    if (fabs(got - expected[l]) <= most) continue;
    say(j, FINDING_OUTPUT,
        "%sbatch %lld, head %lld, row %lld, component %lld is %.7g, by the definition %.7g (at most %.2g "
        "off)",
        how, (long long)row->batch, (long long)row->head, (long long)row->i, (long long)l, got, expected[l],
        most);
    return;
  }
}

/* A softmax over the keys that the row sees, of an output that came as `how` says. */
typedef struct softmax_rows {
  judged *j;
  const char *o, *how;
} softmax_rows;

static void judge_softmax_row(void *context, int64_t r, const head_data *h, row_space *s) {
  const softmax_rows *x = context;
  judged *j = x->j;
  const attn_problem *p = &j->x.in.problem;
  const bool described = j->view.rounding.unit > 0;
  row_extremes scores;
  double most = size_least(j);
  if (finding_failed(j->found)) return;
  for (int64_t l = 0; l < p->d_v; l++) s->bound[l] = 0;
  if (row_attend(h, NULL, s, &scores) != ROW_OK) return;
  for (int64_t l = 0; l < p->d_v; l++) most = fmax(most, fabs(s->o[l]));
  const bool bounded =
      described && row_error(h, &j->view.rounding, false, NULL, 0, &scores, s, s->bound) == ROW_OK;
  for (int64_t l = 0; described && j->found->loose && l < p->d_v; l++)
    j->found->vacuous = j->found->vacuous || !bounded || s->bound[l] > vacuous_from * most;
  if (described && !bounded) return;
  compare(j, x->o, &j->rows[r], s->o, described || !s->count ? s->bound : NULL, tolerance(j) * most, x->how);
}

static attn_status judge_softmax(judged *j, const char *o, const char *how) {
  const evidence e = evidence_of(j, o);
  return rows_walk_stored(&e, &(stored_walk){.rows = j->rows,
                                             .count = j->count,
                                             .context = &(softmax_rows){j, o, how},
                                             .visit = judge_softmax_row});
}

static attn_status judge_other(judged *j, const char *o, const char *how) {
  const attn_problem *p = &j->x.in.problem;
  double *own = region_take(&j->x.memory, p->d_v, sizeof *own);
  definition d = {.head = {.batch = -1}};
  attn_status status = region_status(&j->x.memory, "for a row");
  for (int64_t r = 0; !status && !finding_failed(j->found) && r < j->count; r++) {
    const sample_row *row = &j->rows[r];
    if (row->batch != d.head.batch || row->head != d.head.head) {
      definition_free(&d);
      if ((status = definition_make(j->plan, &j->view, &j->x.in, row->batch, row->head, &d))) break;
    }
    const double amplified = definition_row(&d, row->i, own);
    double most = size_least(j);
    if (!(amplified < (definition_divides(&j->view) ? amplified_max : (double)INFINITY))) continue;
    for (int64_t l = 0; l < p->d_v; l++) most = fmax(most, fabs(own[l]));
    compare(j, o, row, own, NULL, tolerance(j) * amplified * most, how);
  }
  definition_free(&d);
  return status;
}

/* Whether the rows of an output have a definition: that of anything but a softmax knows no transforms, and
 * features of far vectors may cancel. */
static bool is_defined(const judged *j) {
  const bool far = j->of->value[FIELD_SCALE] == SCALE_FAR;
  if (!of_softmax.holds(&j->view) && (far || transform_any(&j->x.in.problem))) return false;
  return !attn_exempt(j->view.exempt, ATTN_EXEMPT_LENGTH) && definition_exists(&j->view);
}

static attn_status judge_output(judged *j, const char *o, const char *how) {
  return of_softmax.holds(&j->view) ? judge_softmax(j, o, how) : judge_other(j, o, how);
}

static attn_status judge_sums(judged *j, const double *lse) {
  const attn_problem *p = &j->x.in.problem;
  const evidence e = evidence_of(j, NULL);
  const char *why = NULL;
  double *expected = region_take(&j->x.memory, 2 * j->count, sizeof *expected);
  if (!expected) return region_status(&j->x.memory, "for the sums of a problem");
  double *bound = expected + j->count;
  const attn_status status = log_sum_rows(&e, j->rows, j->count, expected, bound, &why);
  for (int64_t r = 0; !status && !finding_failed(j->found) && r < j->count; r++) {
    const double given = lse[row_offset(p, &j->rows[r], 1)];
    if (isnan(bound[r]) || log_sum_holds(given, expected[r], bound[r])) continue;
    say(j, FINDING_LSE, "batch %lld, head %lld, row %lld: lse is %.9g, expected %.9g (at most %.2g off)",
        (long long)j->rows[r].batch, (long long)j->rows[r].head, (long long)j->rows[r].i, given, expected[r],
        bound[r]);
  }
  return status;
}

/* -- against itself -- */

static attn_status call(const attn_plan *plan, const layout *x, double *lse, bool watched,
                        const int64_t *kv_len) {
  const size_t bytes = watched ? attn_plan_verify_size(plan) : attn_plan_work_size(plan);
  void *work = bytes < SIZE_MAX ? malloc(bytes + 1) : NULL;
  if (!work) return attn_fail(ATTN_ENOMEM, "no memory to execute a plan");
  layout_blank(x);
  const attn_status status =
      watched ? attn_plan_verify(plan, &(attn_tensors){.q = x->q.at,
                                                       .k = x->k.at,
                                                       .v = x->v_at,
                                                       .kv_len = kv_len,
                                                       .o = x->o.at,
                                                       .lse = lse,
                                                       .work = work})
      : lse   ? attn_plan_execute_lse(plan, x->q.at, x->k.at, x->v_at, kv_len, x->o.at, lse, work)
              : attn_plan_execute(plan, x->q.at, x->k.at, x->v_at, kv_len, x->o.at, work);
  free(work);
  return status;
}

static attn_status call_earlier(judged *j, const attn_plan *plan) {
  layout x;
  attn_status status = layout_make(&j->x.other, (layout_kind)j->of->value[FIELD_LAYOUT], &x);
  if (status) return status;
  status = call(plan, &x, NULL, false, NULL);
  layout_free(&x);
  return status;
}

/* The output and the sums as the problem says. */
static attn_status run_said(judged *j, const layout *x, char *o, double *lse) {
  const int64_t *v = j->of->value;
  const attn_options options = {.threads = (int)v[FIELD_THREADS], .isa = attn_isa_list()[v[FIELD_ISA]]};
  attn_plan *plan = NULL;
  attn_status status = attn_plan_create_spec(&plan, &x->problem, j->spec, &options);
  if (!status && v[FIELD_LATER]) status = call_earlier(j, plan);
  if (!status) status = call(plan, x, lse, v[FIELD_WATCHED], j->x.in.padded ? j->x.in.kv_len : NULL);
  attn_plan_destroy(plan);
  if (!status && layout_take(x, o)) say(j, FINDING_BITS, "writes to O between or behind its rows");
  return status;
}

static void compare_bits(judged *j, const char *o) {
  const double apart = attn_exempt(j->view.exempt, ATTN_EXEMPT_BITS) ? tolerance(j) * size_least(j) : 0;
  difference d = {.count = 0};
  difference_all(&d, &j->x.in, o, &j->x.in, j->plain);
  if (!(d.largest <= apart))
    say(j, FINDING_BITS,
        "batch %lld, head %lld, row %lld, component %lld is %.9g; contiguous, by one thread, in a first call "
        "and "
        "without a log-sum-exp it is %.9g",
        (long long)d.batch, (long long)d.head, (long long)d.row, (long long)d.component, d.got, d.expected);
}

static attn_status judge_said(judged *j) {
  const attn_problem *p = &j->x.in.problem;
  const int64_t *v = j->of->value;
  const int64_t rows = p->batch * p->heads * p->n_q;
  layout x;
  char *o = region_take(&j->x.memory, rows * p->d_v, attn_dtype_size(p->dtype));
  double *lse = v[FIELD_LSE] ? region_take(&j->x.memory, rows, sizeof *lse) : NULL;
  attn_status status = layout_make(&j->x.in, (layout_kind)v[FIELD_LAYOUT], &x);
  if (status) return status;
  status = region_status(&j->x.memory, "for the output of a problem");
  for (int64_t r = 0; !status && lse && r < rows; r++) lse[r] = (double)NAN;
  if (!status) status = run_said(j, &x, o, lse);
  layout_free(&x);
  if (status || finding_failed(j->found)) return status;
  if ((lse || attn_exempt(j->view.exempt, ATTN_EXEMPT_BITS)) && is_defined(j))
    status = judge_output(j, o, lse ? "where the log-sum-exp is wanted: " : "in another call: ");
  else
    compare_bits(j, o);
  if (!status && lse && !finding_failed(j->found)) status = judge_sums(j, lse);
  return status;
}

/* -- all -- */

static bool is_said_otherwise(const problem *p) {
  return p->value[FIELD_LAYOUT] || p->value[FIELD_LSE] || p->value[FIELD_WATCHED] || p->value[FIELD_LATER] ||
         p->value[FIELD_THREADS] > 1;
}

static attn_status judge(judged *j) {
  const attn_rounding usual = rounding_textbook(&j->x.in.problem);
  j->found->loose = rounding_size(&j->view.rounding) > rounding_size(&usual);
  attn_status status = trial_execute(&j->x.memory, j->plan, &j->x.in, POISON_NAN, &j->plain);
  if (!status) status = choose_rows(j);
  if (!status && is_defined(j)) status = judge_output(j, j->plain, "");
  if (!status && !finding_failed(j->found) && is_said_otherwise(j->of)) status = judge_said(j);
  return status;
}

attn_status problem_judge(const attn_spec *spec, const problem *of, finding *found) {
  const attn_options options = {.threads = 1, .isa = attn_isa_list()[of->value[FIELD_ISA]]};
  judged j = {.spec = spec, .of = of, .found = found};
  *found = (finding){.kind = FINDING_CONSISTENT};
  attn_status status = problem_inputs_make(of, &j.x);
  if (status) {
    region_free(&j.x.memory);
    return status;
  }
  status = attn_plan_create_spec(&j.plan, &j.x.in.problem, spec, &options);
  const bool invalid = status == ATTN_EINVAL; /* a parameter that does not go with these sizes */
  if (!status) status = attn_plan_inspect(j.plan, &j.view);
  /* What is exact is held against every key, whatever it says that it sees. */
  if (!status && j.view.caps & ATTN_CAP_EXACT) j.view.pattern = NULL, j.view.selector = NULL;
  if (!status) status = judge(&j);
  if (!finding_failed(found) && j.defined) found->kind = FINDING_DEFINED;
  if (status && status != ATTN_ENOMEM) {
    say(&j, invalid || status == ATTN_EUNSUPPORTED ? FINDING_REFUSED : FINDING_ERROR, "%s",
        attn_last_error());
    status = ATTN_OK;
  }
  attn_plan_destroy(j.plan);
  region_free(&j.x.memory);
  return status;
}

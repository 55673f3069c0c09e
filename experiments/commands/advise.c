/* advise.c - attnlab advise: what each variant would need for an error on this input, and what that costs. */
#include "experiments/commands/commands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/data.h"
#include "experiments/commands/cli.h"
#include "experiments/commands/operands.h"
#include "experiments/evidence/budget.h"
#include "experiments/support/spec.h"
#include "experiments/support/table.h"

enum { SPECS_MAX = 64 };
static const double patience = 0x1p36; /* multiply-adds for one kernel of features: n_kv = 30000 */

typedef struct arguments {
  const char *in;
  const char *specs[SPECS_MAX];
  int count;
  double error;
  bool causal;
  int threads;
  target_options target;
} arguments;

static const cli_option options[] = {
    {"in", 0, "FILE", "Tensors q, k, v of an HDF5 or safetensors file", CLI_TEXT, offsetof(arguments, in), 0,
     0, "--in FILE"},
    {"error", 0, "E", "Relative error, or tail mass of patterns, to be reached (0.1)", CLI_REAL,
     offsetof(arguments, error), 0, 0, NULL},
    {"causal", 0, NULL, "Query i sees key j iff j <= i + n_kv - n_q", CLI_FLAG, offsetof(arguments, causal),
     0, 0, NULL},
    TARGET_OPTIONS(arguments, target),
    {"threads", 0, "N", "OpenMP threads", CLI_THREADS, offsetof(arguments, threads), 0, 0, NULL},
    {NULL, 0, NULL, "variant", CLI_OTHER, 0, 0, 0, NULL},
    {0}};

static void read_spec(struct argp_state *state, void *input, const char *option, char *text) {
  arguments *a = input;
  (void)option;
  if (a->count == SPECS_MAX) argp_error(state, "'%s': at most %d variants", text, SPECS_MAX);
  a->specs[a->count++] = text;
}

static void complete(struct argp_state *state, void *input) {
  const arguments *a = input;
  if (!(a->error > 0 && a->error < 1))
    argp_error(state, "--error %g: expected a number between 0 and 1", a->error);
}

static const cli_command parser = {
    .usage = "[SPEC...]",
    .options = options,
    .read = read_spec,
    .complete = complete,
    .plugins = true,
    .doc = "What variants would need for an error on this input, by theory, and its cost.\v"
           "Of each SPEC, or of every variant with its defaults, a line: what it uses (random features, "
           "projected rows, mean keys of a row), the relative error that theory predicts and a bound that "
           "is certain (patterns) or holds with probability 0.999 over the draws; then what would reach "
           "the error asked for, its operations as a share of full attention's, and the least that any "
           "variant of the kind needs. All on head 0 of the first batch entry. Projections are "
           "judged by the product of weights and values, not through the softmax; patterns need a window "
           "around each query.\n\n"
           "  attnlab advise --in qkv.h5 --error 0.05\n"
           "  attnlab advise performer:features=1Ki,orthogonal=no --in qkv.h5 --causal"};

typedef struct advice {
  const arguments *a;
  evidence e; /* of the input; plan, problem and view are set for each variant */
  attn_problem problem;
  attn_options options;
  double full; /* multiply-adds of full attention */
  text_table table, notes;
} advice;

/* Multiply-adds of the variant with the budget that is needed; NaN where it cannot have that. */
static double cost_of(const advice *d, double needed) {
  const attn_budget *buys = &d->e.view->budget;
  attn_cost cost = {(double)NAN, 0, 0};
  if (!buys->parameter || !(needed >= 1 && needed < 0x1p40)) return cost.mul_add;
  int64_t value = (int64_t)needed;
  if (buys->value) value = buys->value(attn_plan_context(d->e.plan), value);
  char *spec = NULL;
  if (value > 0 && !spec_with(attn_plan_spec(d->e.plan), buys->parameter, value, &spec) &&
      attn_estimate(&d->problem, spec, &d->options, NULL, &cost))
    cost.mul_add = (double)NAN;
  free(spec);
  return cost.mul_add;
}

static void add_number(text_table *s, double x) {
  char text[SHORT_TEXT];
  if (isinf(x))
    table_add(s, "none");
  else if (x >= 1 && x < 1e7 && x == floor(x))
    table_add(s, "%.0f", x);
  else
    table_add(s, "%s", short_number(x, text));
}

static void add_row(advice *d, const char *spec, const budget *b, double cost, double cost_needed) {
  table_add(&d->table, "%s", spec);
  add_number(&d->table, b->used);
  add_number(&d->table, b->predicted);
  add_number(&d->table, b->certified);
  add_number(&d->table, cost / d->full);
  add_number(&d->table, b->needed);
  add_number(&d->table, cost_needed / d->full);
  add_number(&d->table, b->best);
}

static bool describes_itself(const attn_view *v) {
  return v->pattern || v->features || v->projection || v->rounding.unit > 0;
}

/* A variant that cannot do this problem gets a note, not a failure. */
static attn_status advise_on(advice *d, const char *spec) {
  attn_plan *plan = NULL;
  attn_view view;
  budget b;
  attn_cost cost;
  attn_status status = attn_estimate(&d->problem, spec, &d->options, NULL, &cost);
  if (!status) status = attn_plan_create(&plan, &d->problem, spec, &d->options);
  if (status == ATTN_EUNSUPPORTED || (status == ATTN_EINVAL && d->a->count == 0)) {
    table_add(&d->notes, "%s", attn_last_error());
    return ATTN_OK;
  }
  if (!status) status = attn_plan_inspect(plan, &view);
  if (!status) {
    d->e.plan = plan;
    d->e.problem = attn_plan_problem(plan);
    d->e.view = &view;
    if (!describes_itself(&view))
      table_add(&d->notes, "%s: unchecked: it describes nothing of itself that checks could hold it against",
                spec);
    status = budget_find(&d->e, d->a->error, patience, &b);
  }
  if (!status) add_row(d, spec, &b, cost.mul_add, cost_of(d, b.needed));
  attn_plan_destroy(plan);
  return status;
}

static attn_status advise_all(advice *d) {
  char header[64];
  attn_cost full;
  attn_status status = attn_estimate(&d->problem, "full", &d->options, NULL, &full);
  if (status) return status;
  d->full = full.mul_add;
  snprintf(header, sizeof header, "for %.3g", d->a->error);
  const char *const titles[] = {"variant",  "uses", "error",    "certified",
                                "ops/full", header, "ops/full", "best"};
  for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) table_add(&d->table, "%s", titles[i]);
  for (int i = 0; i < d->a->count && !status; i++) status = advise_on(d, d->a->specs[i]);
  for (size_t i = 0; d->a->count == 0 && i < attn_variant_count() && !status; i++)
    status = advise_on(d, attn_variant_at(i)->name);
  if (!status) status = table_print(stdout, &d->table, TABLE_TEXT);
  for (size_t i = 0; i < d->notes.count && !status; i++) printf("%s\n", d->notes.cells[i]);
  return status;
}

static attn_status advise(const arguments *a) {
  data_qkv qkv = {0};
  data_target *target = NULL;
  exact_rows *exact = NULL;
  void *o = NULL;
  advice d = {.a = a, .options = {.threads = a->threads}, .table = {.columns = 8, .left = 1}};
  attn_status status = data_qkv_read(a->in, 0, &qkv);
  if (status) return status;
  d.problem = data_qkv_problem(&qkv);
  d.problem.causal = a->causal;
  d.e = (evidence){.q = qkv.q, .k = qkv.k, .v = qkv.v, .cache = block_cache_create()};
  o = calloc((size_t)(qkv.batch * qkv.heads * qkv.n_q), (size_t)qkv.d_v * attn_dtype_size(qkv.dtype));
  d.e.o = o;
  status = target_make(&a->target, &d.problem, &target);
  if (!status && (!o || !d.e.cache)) status = attn_fail(ATTN_ENOMEM, "%s: out of memory", a->in);
  if (!status) status = exact_rows_compute(&d.problem, qkv.q, qkv.k, qkv.v, NULL, 0, &exact);
  d.e.exact = exact;
  if (!status) status = advise_all(&d);
  table_free(&d.table);
  table_free(&d.notes);
  block_cache_free(d.e.cache);
  exact_rows_free(exact);
  data_target_free(target);
  free(o);
  data_qkv_free(&qkv);
  return status;
}

int cmd_advise(int argc, char **argv) {
  arguments a = {.error = 0.1};
  cli_parse(&parser, argc, argv, &a);
  return cli_report(argv[0], advise(&a));
}

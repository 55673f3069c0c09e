/* advise.c - attnlab advise: what each variant would need for an error on this input, and what that costs. */
#include "experiments/commands/commands.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/data.h"
#include "data/support/file.h"
#include "experiments/commands/cli.h"
#include "experiments/commands/operands.h"
#include "experiments/evidence/budget.h"
#include "experiments/quality/advise.h"
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
  quality_request model; /* ids.model: advise on a model instead */
  const char *output, *task;
  int64_t n;
} arguments;

#define MODEL(field) offsetof(arguments, model.field)

static const cli_option options[] = {
    {"in", 0, "FILE", "Tensors q, k, v of an HDF5 or safetensors file", CLI_TEXT, offsetof(arguments, in), 0,
     0, NULL},
    {"error", 0, "E", "Relative error, or tail mass of patterns, to be reached (0.1)", CLI_REAL,
     offsetof(arguments, error), 0, 0, NULL},
    {"causal", 0, NULL, "Query i sees key j iff j <= i + n_kv - n_q", CLI_FLAG, offsetof(arguments, causal),
     0, 0, NULL},
    TARGET_OPTIONS(arguments, target),
    {"model", 0, "MODEL", "Instead of --in: the layers of this model, on windows of a text", CLI_TEXT,
     MODEL(ids.model), 0, 0, NULL},
    {"text", 0, "FILE", "The text, as of `attnlab eval'", CLI_TEXT, MODEL(ids.text), 0, 0, NULL},
    {"tokens", 0, "FILE", "Or token ids", CLI_TEXT, MODEL(ids.tokens), 0, 0, NULL},
    {"bos", 0, "ID|none", "What windows begin with, as of `attnlab eval'", CLI_TEXT, MODEL(ids.bos), 0, 0,
     NULL},
    {"task", 0, "TASK", "What is asked, as of `attnlab eval' (text)", CLI_TEXT, offsetof(arguments, task), 0,
     0, NULL},
    {"kl", 0, "K", "Divergence that all layers together may cost, nats a token (0.01)", CLI_REAL,
     MODEL(kl_budget), 0, 0, NULL},
    {"n", 'n', "N", "Positions of a window (512)", CLI_INT, offsetof(arguments, n), 2, INT32_MAX, NULL},
    {"windows", 'w', "W", "Windows (8)", CLI_INT, MODEL(windows), 1, INT32_MAX, NULL},
    {"seed", 0, "S", "Of the windows' places (0)", CLI_INT, MODEL(seed), 0, INT64_MAX, NULL},
    {"output", 'o', "FILE", "Add the runs to this evaluation, .h5; those that it has are not repeated",
     CLI_TEXT, offsetof(arguments, output), 0, 0, NULL},
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
  if (!a->in == !a->model.ids.model) argp_error(state, "one of --in FILE and --model MODEL is expected");
  if (a->in) return;
  if (!a->model.ids.text == !a->model.ids.tokens)
    argp_error(state, "--model: one of --text FILE and --tokens FILE is expected");
  if (!(a->model.kl_budget > 0)) argp_error(state, "--kl %g: expected a positive number", a->model.kl_budget);
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
           "With --model: of each method among the SPECs (by default windows with sinks, pages and the keys "
           "of largest "
           "score, of n/16, n/8, n/4 and n/2 keys) the cheapest one of each layer, so that all layers "
           "together cost the "
           "divergence --kl from the exact model, predicted from each layer's error and sensitivity; then "
           "the model is run "
           "so, and the prediction judged.\n\n"
           "  attnlab advise --model build/models/minimind2 --text LICENSE --kl 0.01\n"
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
  attn_status status = data_qkv_read(&(data_reading){.in = a->in}, &qkv);
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

/* -- a model -- */

static attn_status advise_model(void *to, const char *path) { return quality_advise(to, path, stdout); }

/* Settings to choose from where none were given: [count], to be freed. */
static attn_status make_presets(int64_t n, char **specs, int *count) {
  static const char *const methods[] = {"streaming:sink=4,window=%lld", "pages:budget=%lld", "topk:k=%lld"};
  for (size_t m = 0; m < sizeof methods / sizeof *methods; m++)
    for (int64_t part = 16; part >= 2; part /= 2) {
      const long long keys = n / part > 8 ? n / part : 8;
      specs[*count] = m == 0   ? text_format(methods[0], keys)
                      : m == 1 ? text_format(methods[1], keys)
                               : text_format(methods[2], keys);
      if (!specs[*count]) return ATTN_ENOMEM;
      ++*count;
    }
  return ATTN_OK;
}

static attn_status prepare_model(arguments *a) {
  quality_request *r = &a->model;
  char *presets[SPECS_MAX];
  int made = 0;
  char task[40];
  const char *const asked = task;
  snprintf(task, sizeof task, "text:skip=%lld", (long long)(a->n < 512 ? a->n / 4 : 128));
  r->tasks = a->task ? &a->task : &asked;
  r->task_count = 1;
  attn_status status = a->count == 0 ? make_presets(a->n, presets, &made) : ATTN_OK;
  r->specs = made ? (const char *const *)presets : a->specs;
  r->spec_count = made ? made : a->count;
  r->n = (attn_int_list){1, &a->n};
  if (a->threads) omp_set_num_threads(a->threads);
  if (!status && a->output)
    status = output_check(a->output, &kind_evaluation, (const char *const[]){r->ids.text, r->ids.tokens}, 2);
  if (!status) status = a->output ? advise_model(r, a->output) : quality_unnamed(advise_model, r);
  for (int i = 0; i < made; i++) free(presets[i]);
  return status;
}

int cmd_advise(int argc, char **argv) {
  arguments a = {
      .error = 0.1, .n = 512, .model = {.windows = 8, .kl_budget = 0.01, .margin = 0.01, .limit = 86400}};
  cli_parse(&parser, argc, argv, &a);
  const int code = cli_report(argv[0], a.in ? advise(&a) : prepare_model(&a));
  return cli_close_stdout(argv[0], code);
}

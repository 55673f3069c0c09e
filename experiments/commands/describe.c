/* describe.c - attnlab describe: a variant and its parameters, a bound check, or a dataset. */
#include "experiments/commands/commands.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/data.h"
#include "experiments/checks/check.h"
#include "experiments/commands/cli.h"
#include "experiments/quality/checks.h"
#include "experiments/support/escape.h"

static const cli_option options[] = {
    {NULL, 0, NULL, "name", CLI_TEXT, 0, 0, 0, "NAME, a variant, check or dataset,"}, {0}};

static const cli_command parser = {
    .usage = "NAME",
    .options = options,
    .plugins = true,
    .doc = "What a variant, a bound check or a dataset is, and its parameters.\v"
           "`attnlab list' has the names. Of a variant with parameters, as in performer:kernel=trig, the "
           "laws are those of these parameters."};

static const struct {
  uint32_t bit;
  const char *text;
} capabilities[] = {
    {ATTN_CAP_EXACT, "equals full attention up to rounding"},
    {ATTN_CAP_CAUSAL, "causal"},
    {ATTN_CAP_CROSS, "n_q may differ from n_kv"},
    {ATTN_CAP_PADDING, "padding (kv_len)"},
    {ATTN_CAP_STOCHASTIC, "weights of a row sum to 1"},
    {ATTN_CAP_CONVEX, "outputs lie in the hull of V"},
    {ATTN_CAP_PERMUTATION, "the order of the keys does not matter"},
    {ATTN_CAP_SHIFT, "a vector added to every key changes nothing"},
    {ATTN_CAP_LSE, "gives the log-sum-exp of every row, by which parts of the keys are joined"},
};

static void print_range(const char *noun, double min, double max) {
  /* A bound that no size reaches is not worth printing. */
  const bool low = min > -9e15, high = max < 9e15;
  printf("%s", noun);
  if (low && high)
    printf(" from %.15g to %.15g", min, max);
  else if (low)
    printf(" >= %.15g", min);
  else if (high)
    printf(" <= %.15g", max);
}

static void print_domain(const attn_param *p) {
  switch (p->type) {
  case ATTN_INT:
    print_range("integer", p->min, p->max);
    break;
  case ATTN_REAL:
    print_range("number", p->min, p->max);
    break;
  case ATTN_CHOICE:
    for (int i = 0; p->choices[i]; i++) printf("%s%s", i ? " | " : "", p->choices[i]);
    break;
  case ATTN_TEXT:
    printf("text");
    break;
  case ATTN_INT_LIST:
    print_range("integers joined by +, each", p->min, p->max);
    break;
  }
}

static void print_params(const attn_param *params) {
  int width = 0;
  for (const attn_param *p = params; p->name; p++) {
    const int length = (int)(strlen(p->name) + strlen(p->preset)) + 1;
    if (length > width) width = length;
  }
  if (width == 0) return;
  puts("\nparameters (with their presets):");
  for (const attn_param *p = params; p->name; p++) {
    printf("  %s=%-*s  %s\n  %*s  (", p->name, width - (int)strlen(p->name) - 1, p->preset, p->help, width,
           "");
    print_domain(p);
    puts(")");
  }
}

static void print_pattern_law(const attn_pattern *p) {
  printf("  pattern     %s", p->sees ? "states which keys a query must see" : "none stated");
  if (p->cache) printf("; a cache of %lld keys decodes it", (long long)p->cache);
  if (p->reach) printf("; at most %lld positions away", (long long)p->reach);
  if (p->grain) printf("; blocks of %lld%s", (long long)p->grain, p->global ? ", some seen by all" : "");
  if (p->candidate && p->drawn) printf("; %lld drawn for a block of queries", (long long)p->drawn);
  putchar('\n');
}

static void print_selector_law(const attn_selector *x) {
  printf("  selection   ");
  if (x->grain && x->mass > 0)
    printf("those of the largest scores that have the mass %g", x->mass);
  else if (x->grain)
    printf("%lld of the largest scores", (long long)x->kept);
  else if (x->hashes)
    printf("by %lld hashes of %lld buckets", (long long)x->hashes, (long long)x->buckets);
  else if (x->least > 0)
    printf("what is left out weighs less than %g of the heaviest key", x->least);
  else
    printf("none stated");
  if (x->grain > 1) printf("; units of %lld keys", (long long)x->grain);
  if (x->always) printf("; some in any case");
  if (x->enclose) printf("; states where the scores of a unit lie");
  putchar('\n');
}

static void print_feature_law(const attn_feature_law *law) {
  static const char *const kinds[] = {
      [ATTN_FEATURES_UNKNOWN] = "none stated",   [ATTN_FEATURES_POSITIVE] = "positive",
      [ATTN_FEATURES_HYPERBOLIC] = "hyperbolic", [ATTN_FEATURES_TRIG] = "trigonometric",
      [ATTN_FEATURES_RELU] = "rectified",        [ATTN_FEATURES_OTHER] = "of a kernel of its own"};
  printf("  features    %s", kinds[law->kind]);
  if (law->kind != ATTN_FEATURES_UNKNOWN)
    printf("; %lld vectors, %s%s%s; %s", (long long)law->vectors,
           law->orthogonal ? "orthogonal in blocks" : "independent",
           law->fixed_length ? " and of length sqrt(d)" : "",
           law->heads == ATTN_DRAWS_SHARED  ? ", kv heads alike"
           : law->heads == ATTN_DRAWS_APART ? ", kv heads apart"
                                            : "",
           law->softmax ? "estimate the softmax kernel" : "another kernel than softmax's");
  putchar('\n');
}

static void print_projection_law(const attn_projection *p) {
  static const char *const laws[] = {[ATTN_PROJECTION_UNKNOWN] = "none stated",
                                     [ATTN_PROJECTION_GAUSSIAN] = "Gaussian entries",
                                     [ATTN_PROJECTION_RADEMACHER] = "random signs",
                                     [ATTN_PROJECTION_SRHT] = "rows of a Walsh-Hadamard transform",
                                     [ATTN_PROJECTION_DCT] = "rows of a cosine transform",
                                     [ATTN_PROJECTION_AVERAGES] = "means of consecutive keys"};
  printf("  projection  %s; keys and values %s, kv heads %s\n", laws[p->law], p->shared ? "alike" : "apart",
         p->per_head ? "apart" : "alike");
}

static void print_checks(const attn_view *view) {
  puts("\nbounds checked:");
  for (const check *const *c = checks_all; *c; c++)
    if ((*c)->of->holds(view)) printf("  %-11s %s\n", (*c)->name, (*c)->statement);
}

/* What checks hold the variant against, as it describes itself for one small problem, and the checks. */
static void print_laws(const char *spec) {
  attn_problem problem = attn_problem_make(1, 1, 512, 64);
  attn_plan *plan = NULL;
  attn_view view;
  attn_status status = attn_plan_create(&plan, &problem, spec, NULL);
  if (!status && (status = attn_plan_inspect(plan, &view))) attn_plan_destroy(plan);
  if (status) {
    printf("\nlaws (512 positions, d = 64): %s\n", attn_last_error());
    return;
  }
  if (view.pattern || view.selector || view.features || view.projection || view.seed || view.budget.parameter)
    puts("\nlaws (512 positions, d = 64):");
  if (view.pattern) print_pattern_law(view.pattern);
  if (view.selector) print_selector_law(view.selector);
  if (view.features) print_feature_law(&view.features->law);
  if (view.projection) print_projection_law(view.projection);
  if (view.seed) printf("  draws       by %s\n", view.seed);
  for (const attn_exemption *x = view.exempt; x && x->reason; x++) printf("  exempt      %s\n", x->reason);
  if (view.budget.parameter) printf("  accuracy    by %s\n", view.budget.parameter);
  print_checks(&view);
  attn_plan_destroy(plan);
}

static void describe_variant(const attn_variant *v, const char *spec) {
  const char *const texts[] = {v->name, ": ", v->summary, "\n", v->cite, "\n\nproperties:\n"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i += 2) {
    escape_put(stdout, texts[i]);
    fputs(texts[i + 1], stdout);
  }
  for (size_t i = 0; i < sizeof capabilities / sizeof capabilities[0]; i++)
    if (v->caps & capabilities[i].bit) printf("  %s\n", capabilities[i].text);
  print_params(v->params);
  print_laws(spec);
}

/* A label and its paragraph, wrapped at blanks. */
static void print_paragraph(const char *label, const char *text) {
  enum { WIDTH = 100, INDENT = 14 };
  int column = printf("%-*s", INDENT, label) - 1;
  for (size_t length; *text; text += length + (text[length] == ' ')) {
    length = strcspn(text, " ");
    if (column >= INDENT && column + (int)length >= WIDTH) column = printf("\n%*s", INDENT, "") - 2;
    column += printf("%s%.*s", column >= INDENT ? " " : "", (int)length, text);
  }
  putchar('\n');
}

static void describe_nulls(const check *c) {
  static const char *const names[CHECK_NULLS] = {
      [CHECK_ZEROS] = "all zeros", [CHECK_MEAN_V] = "the mean of V", [CHECK_RANDOM_KEYS] = "random keys"};
  puts("\nnull approximations in place of the output or the algorithm:");
  for (int i = 0; i < CHECK_NULLS; i++) {
    char text[400];
    const check_null *null = &c->nulls[i];
    snprintf(text, sizeof text, "%s: %s", null->blind ? "blind" : "rejected on",
             null->blind ? null->blind : null->rejected_on);
    print_paragraph(names[i], text);
  }
}

static void describe_check(const check *c) {
  static const char *const kinds[] = {
      [KIND_HARD] = "a proven inequality; violated if it does not hold",
      [KIND_PROB] = "a statement of probability; violated if its p-value is too small over the whole sweep",
      [KIND_MODEL] = "rests on a model of randomness; never violated",
      [KIND_REPORT] = "a number for information; never violated",
      [KIND_PROPERTY] =
          "what every variant keeps unless it declares otherwise; judged on problems of its own",
  };
  char kind[200];
  snprintf(kind, sizeof kind, "%s: %s", check_kind_names[c->kind], kinds[c->kind]);
  printf("%s: %s\n\n", c->name, c->statement);
  print_paragraph("kind", kind);
  print_paragraph("of variants", c->of->text);
  print_paragraph("formula", c->formula);
  print_paragraph("assumes", c->assumes);
  if (c->cause) print_paragraph("usual cause", c->cause);
  print_paragraph("source", c->source);
  describe_nulls(c);
}

static void describe_source(const data_source *s) {
  printf("%s: %s\n", s->name, s->help);
  print_params(s->params);
}

int cmd_describe(int argc, char **argv) {
  const char *name = NULL;
  cli_parse(&parser, argc, argv, &name);
  attn_spec *spec = NULL;
  const data_source *source;
  const check *c = check_find(name);
  if (!c) c = quality_check_find(name);
  attn_status status = attn_spec_parse(&spec, name);
  if (status && status != ATTN_ENOTFOUND) return cli_report(argv[0], status);
  if (!status) {
    describe_variant(spec->variant, name);
    attn_spec_destroy(spec);
  } else if (c) {
    describe_check(c);
  } else if (!data_source_find(name, &source)) {
    describe_source(source);
  } else {
    fprintf(stderr, "%s: '%s': no variant, check or dataset has this name (see `attnlab list')\n", argv[0],
            name);
    return EXIT_USAGE;
  }
  return 0;
}

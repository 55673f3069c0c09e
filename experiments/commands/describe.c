/* describe.c - attnlab describe: a variant and its parameters, a bound check, or a dataset. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/commands/commands.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "data/support/file.h"
#include "experiments/checks/check.h"
#include "experiments/commands/cli.h"
#include "experiments/quality/checks.h"
#include "experiments/support/escape.h"
#include "experiments/support/explain.h"

typedef struct arguments {
  const char *name;
  bool json, checks;
} arguments;

static const cli_option options[] = {
    {"checks", 0, NULL, "Print only the checks that apply to a variant", CLI_FLAG,
     offsetof(arguments, checks), 0, 0, NULL},
    {"json", 0, NULL, "Print a JSON object", CLI_FLAG, offsetof(arguments, json), 0, 0, NULL},
    {NULL, 0, NULL, "name", CLI_TEXT, offsetof(arguments, name), 0, 0, "NAME, a variant, check or dataset,"},
    {0}};

static const cli_command parser = {
    .usage = "NAME",
    .options = options,
    .plugins = true,
    .doc = "Describes a variant, a check or a dataset, and its parameters.\v"
           "`attnlab list' has the names. With parameters, as in performer:kernel=trig, it prints the "
           "laws for them."};

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

static void print_range(FILE *out, const char *noun, double min, double max) {
  /* A bound that no size reaches is not worth printing. */
  const bool low = min > -9e15, high = max < 9e15;
  fputs(noun, out);
  if (low && high)
    fprintf(out, " from %.15g to %.15g", min, max);
  else if (low)
    fprintf(out, " >= %.15g", min);
  else if (high)
    fprintf(out, " <= %.15g", max);
}

static void print_domain(FILE *out, const void *param) {
  const attn_param *p = param;
  switch (p->type) {
  case ATTN_INT:
    print_range(out, "integer", p->min, p->max);
    break;
  case ATTN_REAL:
    print_range(out, "number", p->min, p->max);
    break;
  case ATTN_CHOICE:
    for (int i = 0; p->choices[i]; i++) fprintf(out, "%s%s", i ? " | " : "", p->choices[i]);
    break;
  case ATTN_TEXT:
    fputs("text", out);
    break;
  case ATTN_INT_LIST:
    print_range(out, "integers joined by +, each", p->min, p->max);
    break;
  }
}

static void print_exemptions(FILE *out, const void *of) {
  for (const attn_exemption *x = of; x->reason; x++) fprintf(out, "%s%s", x == of ? "" : "; ", x->reason);
}

/* The sheets. Texts of plug-ins may hold anything: they are escaped. */
static bool put_text(json_t *to, const char *name, const char *text) {
  char *harmless = escape_text(text);
  const bool good = harmless && json_object_set_new(to, name, json_string(harmless)) == 0;
  free(harmless);
  return good;
}

static json_t *give(json_t *made, bool good) {
  if (good) return made;
  json_decref(made);
  return NULL;
}

/* A member whose text a function prints. */
static bool put_printed(json_t *to, const char *name, void (*print)(FILE *, const void *), const void *of) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  if (!out) return false;
  print(out, of);
  const bool good = fclose(out) == 0 && put_text(to, name, text);
  free(text);
  return good;
}

static json_t *params_of(const attn_param *params) {
  static const char *const types[] = {[ATTN_INT] = "integer",
                                      [ATTN_REAL] = "number",
                                      [ATTN_CHOICE] = "choice",
                                      [ATTN_TEXT] = "text",
                                      [ATTN_INT_LIST] = "integers"};
  json_t *list = json_array();
  bool good = list != NULL;
  for (const attn_param *p = params; good && p->name; p++) {
    json_t *one = json_object();
    good = json_array_append_new(list, one) == 0 && put_text(one, "name", p->name) &&
           put_text(one, "type", types[p->type]) && put_text(one, "preset", p->preset) &&
           put_printed(one, "takes", print_domain, p) && put_text(one, "help", p->help);
  }
  return give(list, good);
}

static json_t *checks_of(const attn_view *view) {
  json_t *list = json_array();
  bool good = list != NULL;
  for (const check *const *c = checks_all; good && *c; c++) {
    if (!(*c)->of->holds(view)) continue;
    json_t *one = json_object();
    good = json_array_append_new(list, one) == 0 && put_text(one, "name", (*c)->name) &&
           put_text(one, "statement", (*c)->statement);
  }
  return give(list, good);
}

/* What the variant states of itself for a plan. */
static json_t *laws_of(const attn_view *view) {
  json_t *laws = json_object();
  bool good = laws != NULL;
  if (good && view->pattern) good = put_printed(laws, "pattern", law_print_pattern, view->pattern);
  if (good && view->selector) good = put_printed(laws, "selection", law_print_selector, view->selector);
  if (good && view->features) good = put_printed(laws, "features", law_print_features, &view->features->law);
  if (good && view->projection)
    good = put_printed(laws, "projection", law_print_projection, view->projection);
  if (good && view->residual) {
    const attn_residual *x = view->residual;
    good = x->pattern ? put_printed(laws, "pattern", law_print_pattern, x->pattern)
                      : put_printed(laws, "selection", law_print_selector, x->selector);
    good = good && put_printed(laws, "features of the rest", law_print_features, &x->features->law);
  }
  if (good && view->low_rank) good = put_printed(laws, "low_rank", law_print_low_rank, view->low_rank);
  if (good && view->seed) good = put_text(laws, "draws_by", view->seed);
  if (good && view->exempt) good = put_printed(laws, "exempt", print_exemptions, view->exempt);
  if (good && view->budget.parameter) good = put_text(laws, "accuracy_by", view->budget.parameter);
  return give(laws, good);
}

static attn_problem small_problem(void) { return attn_problem_make(1, 1, 512, 64); }

/* Do its parameters contradict each other? What this problem alone forbids is no failure. */
static attn_status check_params(const char *text) {
  const attn_problem problem = small_problem();
  const attn_status status = attn_estimate(&problem, text, NULL, NULL, NULL);
  return status == ATTN_EINVAL ? status : ATTN_OK;
}

/* A command with the setting: as it is named, or with the parameter that buys accuracy. */
static char *example_of(const attn_spec *spec, const char *text, bool causal) {
  const attn_variant *v = spec->variant;
  const attn_param *p = v->params;
  while (p->name && (!v->budget.parameter || strcmp(p->name, v->budget.parameter) != 0)) p++;
  const bool bare = !strpbrk(text, ":+*(") && p->name;
  char *whole = bare ? text_format("%s:%s=%s", text, p->name, p->preset) : text_format("%s", text);
  char *word = NULL, *line = NULL;
  size_t size = 0;
  FILE *out = whole ? open_memstream(&word, &size) : NULL;
  if (out) escape_put_word(out, whole);
  if (out && fclose(out) == 0)
    line = text_format("attnlab apply %s --in qkv.h5%s -o out.npy", word, causal ? " --causal" : "");
  free(whole);
  free(word);
  return line;
}

/* What checks hold the variant against, as it describes itself for one small problem, and the checks: a causal one where it
 * takes no other. */
static bool put_laws(json_t *sheet, const attn_spec *spec, const char *text) {
  attn_problem problem = small_problem();
  attn_plan *plan = NULL;
  attn_view view;
  problem.causal = attn_estimate(&problem, text, NULL, NULL, NULL) == ATTN_EUNSUPPORTED;
  attn_status status = attn_plan_create(&plan, &problem, text, NULL);
  if (!status) status = attn_plan_inspect(plan, &view);
  bool good = status ? put_text(sheet, "no_laws", attn_last_error())
                     : json_object_set_new(sheet, "laws", laws_of(&view)) == 0 &&
                           json_object_set_new(sheet, "checks", checks_of(&view)) == 0;
  if (good && spec->expression)
    good = json_object_set_new(sheet, "terms", explain_terms(spec, &problem)) == 0;
  if (good && problem.causal) good = json_object_set_new(sheet, "causal", json_true()) == 0;
  char *example = example_of(spec, text, problem.causal);
  good = good && example && put_text(sheet, "example", example);
  free(example);
  attn_plan_destroy(plan);
  return good;
}

/* text: as it was given, in which refusals name a place. */
static json_t *sheet_of_variant(const attn_spec *spec, const char *text) {
  const attn_variant *v = spec->variant;
  json_t *sheet = json_object(), *properties = json_array();
  bool good = put_text(sheet, "name", v->name) && put_text(sheet, "summary", v->summary) &&
              (!v->formula || put_text(sheet, "formula", v->formula)) && put_text(sheet, "source", v->cite) &&
              json_object_set_new(sheet, "properties", properties) == 0;
  if (v->expression) good = good && put_text(sheet, "stands_for", spec->expression->text);
  for (size_t i = 0; good && i < sizeof capabilities / sizeof capabilities[0]; i++)
    if (v->caps & capabilities[i].bit)
      good = json_array_append_new(properties, json_string(capabilities[i].text)) == 0;
  good = good && json_object_set_new(sheet, "parameters", params_of(v->params)) == 0 &&
         put_laws(sheet, spec, text);
  return give(sheet, good);
}

static json_t *sheet_of_dataset(const data_source *s) {
  json_t *sheet = json_object();
  return give(sheet, put_text(sheet, "name", s->name) && put_text(sheet, "summary", s->help) &&
                         json_object_set_new(sheet, "parameters", params_of(s->params)) == 0);
}

static json_t *sheet_of_check(const check *c) {
  static const char *const names[CHECK_NULLS] = {
      [CHECK_ZEROS] = "all zeros", [CHECK_MEAN_V] = "the mean of V", [CHECK_RANDOM_KEYS] = "random keys"};
  static const char *const kinds[] = {
      [KIND_HARD] = "a proven inequality; violated if it does not hold",
      [KIND_PROB] = "a statement of probability; violated if its p-value is too small over the whole sweep",
      [KIND_MODEL] = "rests on a model of randomness; never violated",
      [KIND_REPORT] = "a number for information; never violated",
      [KIND_PROPERTY] =
          "what every variant keeps unless it declares otherwise; judged on problems of its own",
  };
  json_t *sheet = json_object(), *nulls = json_object();
  bool good = put_text(sheet, "name", c->name) && put_text(sheet, "summary", c->statement) &&
              put_text(sheet, "kind", check_kind_names[c->kind]) &&
              put_text(sheet, "means", kinds[c->kind]) && put_text(sheet, "of_variants", c->of->text) &&
              put_text(sheet, "formula", c->formula) && put_text(sheet, "assumes", c->assumes) &&
              (!c->cause || put_text(sheet, "usual_cause", c->cause)) &&
              put_text(sheet, "source", c->source) && json_object_set_new(sheet, "nulls", nulls) == 0;
  for (int i = 0; good && i < CHECK_NULLS; i++) {
    char text[400];
    const check_null *null = &c->nulls[i];
    snprintf(text, sizeof text, "%s: %s", null->blind ? "blind" : "rejected on",
             null->blind ? null->blind : null->rejected_on);
    good = put_text(nulls, names[i], text);
  }
  return give(sheet, good);
}

/* -- a sheet as text -- */

static const char *get(const json_t *of, const char *name) {
  return json_string_value(json_object_get(of, name));
}

/* A label and its paragraph, wrapped at blanks. */
static void print_paragraph(const char *name, const char *text) {
  enum { WIDTH = 100, INDENT = 14 };
  char label[INDENT + 1];
  int column = printf("%-*s", INDENT, cli_label(name, label, sizeof label)) - 1;
  for (size_t length; *text; text += length + (text[length] == ' ')) {
    length = strcspn(text, " ");
    if (column >= INDENT && column + (int)length >= WIDTH) column = printf("\n%*s", INDENT, "") - 2;
    column += printf("%s%.*s", column >= INDENT ? " " : "", (int)length, text);
  }
  putchar('\n');
}

static void print_params(const json_t *params) {
  size_t i;
  const json_t *p;
  int width = 0;
  json_array_foreach(params, i, p) {
    const int length = (int)(strlen(get(p, "name")) + strlen(get(p, "preset"))) + 1;
    if (length > width) width = length;
  }
  if (width) puts("\nparameters (with defaults):");
  json_array_foreach(params, i, p)
      printf("  %s=%-*s  %s\n  %*s  (%s)\n", get(p, "name"), width - (int)strlen(get(p, "name")) - 1,
             get(p, "preset"), get(p, "help"), width, "", get(p, "takes"));
}

/* From left to right, what is in parentheses further in. */
static void print_terms(const json_t *terms) {
  size_t i;
  const json_t *one;
  int width = 0;
  json_array_foreach(terms, i, one) {
    const int length =
        (int)strlen(get(one, "term")) + 2 * (int)json_integer_value(json_object_get(one, "depth"));
    if (length > width) width = length;
  }
  if (width) puts("\nterms:");
  json_array_foreach(terms, i, one) {
    const int indent = 2 * (int)json_integer_value(json_object_get(one, "depth"));
    printf("  %*s%-*s  %s\n", indent, "", width - indent, get(one, "term"), get(one, "does"));
  }
}

/* "draws_by" reads "draws       by seed", and "low_rank" "low rank". */
static void print_law(const char *name, const char *text) {
  char title[40];
  snprintf(title, sizeof title, "%s", name);
  for (char *c = title; (c = strchr(c, '_'));) *c = ' ';
  char *by = strstr(title, " by");
  if (by) *by = '\0';
  printf("  %-11s %s%s\n", title, by ? "by " : "", text);
}

static void print_variant(json_t *sheet) {
  size_t i;
  const json_t *one;
  const char *name;
  json_t *text, *laws = json_object_get(sheet, "laws");
  const char *problem =
      json_object_get(sheet, "causal") ? "512 positions, d = 64, causal" : "512 positions, d = 64";
  printf("%s: %s\n", get(sheet, "name"), get(sheet, "summary"));
  if (get(sheet, "stands_for")) print_paragraph("expression", get(sheet, "stands_for"));
  if (get(sheet, "formula")) print_paragraph("formula", get(sheet, "formula"));
  print_paragraph("example", get(sheet, "example"));
  print_paragraph("source", get(sheet, "source"));
  print_terms(json_object_get(sheet, "terms"));
  print_params(json_object_get(sheet, "parameters"));
  puts("\nproperties:");
  json_array_foreach(json_object_get(sheet, "properties"), i, one) printf("  %s\n", json_string_value(one));
  if (!laws) printf("\nlaws (%s): %s\n", problem, get(sheet, "no_laws"));
  if (json_object_size(laws)) printf("\nlaws (%s):\n", problem);
  json_object_foreach(laws, name, text) print_law(name, json_string_value(text));
  const size_t checks = json_array_size(json_object_get(sheet, "checks"));
  if (checks) printf("\n%zu checks apply; --checks lists them.\n", checks);
}

static void print_checks(json_t *sheet) {
  size_t i;
  const json_t *one;
  if (get(sheet, "no_laws")) printf("none: %s\n", get(sheet, "no_laws"));
  json_array_foreach(json_object_get(sheet, "checks"), i, one)
      printf("%-11s %s\n", get(one, "name"), get(one, "statement"));
}

static void print_check(json_t *sheet) {
  static const char *const heads[] = {"name", "summary", "kind", "means", "nulls"};
  const char *name;
  json_t *text;
  printf("%s: %s\n\n", get(sheet, "name"), get(sheet, "summary"));
  char kind[200];
  snprintf(kind, sizeof kind, "%s: %s", get(sheet, "kind"), get(sheet, "means"));
  print_paragraph("kind", kind);
  json_object_foreach(sheet, name, text) {
    bool printed = false;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) printed = printed || !strcmp(name, heads[i]);
    if (!printed) print_paragraph(name, json_string_value(text));
  }
  puts("\nnull approximations in place of the output or the algorithm:");
  json_object_foreach(json_object_get(sheet, "nulls"), name, text)
      print_paragraph(name, json_string_value(text));
}

static void print_dataset(json_t *sheet) {
  printf("%s: %s\n", get(sheet, "name"), get(sheet, "summary"));
  print_params(json_object_get(sheet, "parameters"));
}

static const char *nearest(const char *name, attn_nearest *near) {
  *near = (attn_nearest){.name = name, .length = strcspn(name, ":")};
  for (size_t i = 0; i < attn_variant_count(); i++) attn_nearest_try(near, attn_variant_at(i)->name);
  for (size_t i = 0; i < data_source_count(); i++) attn_nearest_try(near, data_source_at(i)->name);
  for (const check *const *c = checks_all; *c; c++) attn_nearest_try(near, (*c)->name);
  for (int c = 0; c < QUALITY_CHECKS; c++) attn_nearest_try(near, quality_checks[c].name);
  return attn_nearest_hint(near);
}

static bool is_variant(const char *name, size_t length) {
  for (size_t i = 0; i < attn_variant_count(); i++) {
    const char *known = attn_variant_at(i)->name;
    if (strlen(known) == length && strncmp(known, name, length) == 0) return true;
  }
  return false;
}

/* Of what the name is; NULL: of nothing, or there is no memory. */
static json_t *sheet_of(const char *name, void (**print)(json_t *), attn_status *status) {
  const char *const parameters = strchr(name, ':');
  const data_source *source;
  const check *c = check_find(name);
  attn_spec *spec = NULL;
  json_t *sheet = NULL;
  attn_nearest near;
  if (!c) c = quality_check_find(name);
  *status = attn_spec_parse(&spec, name);
  if (!*status && (*status = check_params(name))) {
    attn_spec_destroy(spec);
    return NULL;
  }
  if (!*status) {
    sheet = sheet_of_variant(spec, name);
    *print = print_variant;
  } else if (*status != ATTN_ENOTFOUND || strpbrk(name, "+*(") ||
             (parameters && is_variant(name, (size_t)(parameters - name)))) {
    return NULL;
  } else if (c) {
    sheet = sheet_of_check(c);
    *print = print_check;
  } else if (!data_source_find(name, &source)) {
    sheet = sheet_of_dataset(source);
    *print = print_dataset;
  } else {
    *status =
        attn_fail(ATTN_ENOTFOUND, "'%s': no variant, check or dataset has this name%s; see `attnlab list'",
                  name, nearest(name, &near));
    return NULL;
  }
  attn_spec_destroy(spec);
  *status = sheet ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the description");
  return sheet;
}

int cmd_describe(int argc, char **argv) {
  arguments a = {0};
  attn_status status;
  void (*print)(json_t *) = NULL;
  cli_parse(&parser, argc, argv, &a);
  json_t *sheet = sheet_of(a.name, &print, &status);
  if (sheet && a.checks && print != print_variant)
    status = attn_fail(ATTN_EINVAL, "--checks: '%s' is no variant", a.name);
  else if (sheet)
    (a.json ? cli_print_json : a.checks ? print_checks : print)(sheet);
  json_decref(sheet);
  return cli_report(argv[0], status);
}

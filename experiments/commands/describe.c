/* describe.c - attnlab describe: a variant and its parameters, a bound check or a family of them, or a
 * dataset. */
#include "experiments/commands/commands.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_tools.h"
#include "attn_gradients.h"
#include "data/data.h"
#include "data/support/file.h"
#include "data/support/json_text.h"
#include "experiments/checks/check.h"
#include "experiments/commands/cli.h"
#include "experiments/commands/describe.h"
#include "experiments/quality/evaluation_checks.h"
#include "experiments/support/escape.h"
#include "experiments/support/explain.h"

typedef struct arguments {
  const char *name;
  bool json, checks;
} arguments;

static const cli_option options[] = {
    {"checks", 0, NULL, "Print only the checks that apply to a variant", CLI_SET(CLI_FLAG, checks)},
    {"json", 0, NULL, "Print a JSON object", CLI_SET(CLI_FLAG, json)},
    {NULL, 0, NULL, "name", CLI_NEED(name, "NAME, a variant, check, family of checks or dataset,")},
    {0}};

static const cli_command parser = {
    .usage = "NAME",
    .options = options,
    .plugins = true,
    .doc = "Describes a variant, a check, a family of checks or a dataset.\v"
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
    {ATTN_CAP_POSITIONS, "positions of queries and keys (q_position, k_position)"},
    {ATTN_CAP_STOCHASTIC, "weights of a row sum to 1"},
    {ATTN_CAP_CONVEX, "outputs lie in the hull of V"},
    {ATTN_CAP_PERMUTATION, "the order of the keys does not matter"},
    {ATTN_CAP_SHIFT, "a vector added to every key changes nothing"},
    {ATTN_CAP_HALF, "reads and writes tensors that are stored in f16 and bf16"},
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

bool sheet_put(json_t *to, const char *name, const char *text) {
  char *harmless = escape_text(text);
  const bool good = harmless && json_object_set_new(to, name, json_string(harmless)) == 0;
  free(harmless);
  return good;
}

/* A member whose text a function prints. */
static bool put_printed(json_t *to, const char *name, void (*print)(FILE *, const void *), const void *of) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  if (!out) return false;
  print(out, of);
  const bool good = attn_stream_text(out, &text) && sheet_put(to, name, text);
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
  bool good = true;
  for (const attn_param *p = params; p->name; p++) {
    json_t *one = json_object();
    good &= json_array_append_new(list, one) == 0 && sheet_put(one, "name", p->name) &&
            sheet_put(one, "type", types[p->type]) && sheet_put(one, "preset", p->preset) &&
            put_printed(one, "takes", print_domain, p) && sheet_put(one, "help", p->help);
  }
  return json_whole(list, good);
}

static json_t *checks_of(const attn_view *view) {
  json_t *list = json_array();
  bool good = true;
  for (const check *const *c = checks_all; *c; c++) {
    if (!(*c)->of->holds(view)) continue;
    json_t *one = json_object();
    good &= json_array_append_new(list, one) == 0 && sheet_put(one, "name", (*c)->name) &&
            sheet_put(one, "statement", (*c)->statement);
  }
  return json_whole(list, good);
}

/* What the variant states of itself for a plan. */
static json_t *laws_of(const attn_view *view) {
  json_t *laws = json_object();
  bool good = true;
  if (view->pattern) good &= put_printed(laws, "pattern", law_print_pattern, view->pattern);
  if (view->selector) good &= put_printed(laws, "selection", law_print_selector, view->selector);
  if (view->features) good &= put_printed(laws, "features", law_print_features, &view->features->law);
  if (view->toeplitz)
    good &= put_printed(laws, "features", law_print_features, &view->toeplitz->features->law) &&
            sheet_put(laws, "bias", "of the distance, stated number by number");
  if (view->normaliser) good &= put_printed(laws, "weights", law_print_normaliser, view->normaliser);
  if (view->recurrence) good &= put_printed(laws, "recurrence", law_print_recurrence, view->recurrence);
  if (view->projection) good &= put_printed(laws, "projection", law_print_projection, view->projection);
  if (view->residual) {
    const attn_residual *x = view->residual;
    good &= x->pattern ? put_printed(laws, "pattern", law_print_pattern, x->pattern)
                       : put_printed(laws, "selection", law_print_selector, x->selector);
    good &= put_printed(laws, "features of the rest", law_print_features, &x->features->law);
  }
  if (view->low_rank) good &= put_printed(laws, "low_rank", law_print_low_rank, view->low_rank);
  if (view->relocation) good &= put_printed(laws, "relocation", law_print_relocation, view->relocation);
  if (view->pooling)
    good &= sheet_put(laws, "terms",
                      view->pooling->top
                          ? "the last keys, and of means of blocks the best by an index, by their definition"
                          : "the last keys, and means of blocks, by their definition");
  if (view->latent) good &= put_printed(laws, "latent", law_print_latent, view->latent);
  if (view->seed) good &= sheet_put(laws, "draws_by", view->seed);
  if (view->exempt) good &= put_printed(laws, "exempt", print_exemptions, view->exempt);
  if (view->budget.parameter) good &= sheet_put(laws, "accuracy_by", view->budget.parameter);
  return json_whole(laws, good);
}

/* Whether the plan has gradients, or why it has none. */
static bool put_gradients(json_t *laws, const attn_plan *plan) {
  size_t bytes;
  const char *reason = attn_plan_backward_size(plan, &bytes) ? attn_last_error() : NULL;
  const char *behind = reason && strncmp(reason, "variant ", 8) == 0 ? strchr(reason, ':') : NULL;
  return sheet_put(laws, "gradients",
                   behind   ? behind + 2
                   : reason ? reason
                            : "by Q, K and V, with what is drawn or selected held fixed");
}

static attn_problem small_problem(void) { return attn_problem_make(1, 1, 512, 64); }

/* A command with the setting: as it is named, or with the parameter that buys accuracy. */
static char *example_of(const attn_spec *spec, const char *text, bool causal) {
  const attn_variant *v = spec->variant;
  const attn_param *p = v->params;
  while (p->name && (!v->budget.parameter || strcmp(p->name, v->budget.parameter) != 0)) p++;
  const bool bare = !strpbrk(text, ":+*(") && p->name;
  char *whole = bare ? text_format("%s:%s=%s", text, p->name, p->preset) : text_format("%s", text);
  char *word = NULL, *line = NULL;
  size_t size;
  FILE *out = whole ? open_memstream(&word, &size) : NULL;
  if (out) escape_put_word(out, whole);
  if (attn_stream_text(out, &word))
    line = text_format("attnlab apply %s --in qkv.h5%s -o out.npy", word, causal ? " --causal" : "");
  free(whole);
  free(word);
  return line;
}

/* What checks hold the variant against, as it describes itself for one small problem, and the checks: a
 * causal one where it takes no other. */
static bool put_laws(json_t *sheet, const attn_spec *spec, const char *text) {
  attn_problem problem = small_problem();
  attn_plan *plan = NULL;
  attn_view view;
  problem.causal = attn_estimate_spec(&problem, spec, NULL, NULL, NULL) == ATTN_EUNSUPPORTED;
  attn_status status = attn_plan_create_spec(&plan, &problem, spec, NULL);
  if (!status) status = attn_plan_inspect(plan, &view);
  bool good = status ? sheet_put(sheet, "no_laws", attn_last_error())
                     : json_object_set_new(sheet, "laws", laws_of(&view)) == 0 &&
                           json_object_set_new(sheet, "checks", checks_of(&view)) == 0;
  if (!status) good &= put_gradients(json_object_get(sheet, "laws"), plan);
  if (spec->expression) good &= json_object_set_new(sheet, "terms", explain_terms(spec, &problem)) == 0;
  if (problem.causal) good &= json_object_set_new(sheet, "causal", json_true()) == 0;
  char *example = example_of(spec, text, problem.causal);
  good &= example && sheet_put(sheet, "example", example);
  free(example);
  attn_plan_destroy(plan);
  return good;
}

/* text: as it was given, in which refusals name a place. */
static json_t *sheet_of_variant(const attn_spec *spec, const char *text) {
  const attn_variant *v = spec->variant;
  json_t *sheet = json_object(), *properties = json_array();
  bool good = true;
  for (size_t i = 0; i < sizeof capabilities / sizeof capabilities[0]; i++)
    if (v->caps & capabilities[i].bit)
      good &= json_array_append_new(properties, json_string(capabilities[i].text)) == 0;
  good &= sheet_put(sheet, "name", v->name) && sheet_put(sheet, "summary", v->summary) &&
          (!v->formula || sheet_put(sheet, "formula", v->formula)) && sheet_put(sheet, "source", v->cite);
  good &= json_object_set_new(sheet, "properties", properties) == 0;
  if (v->expression) good &= sheet_put(sheet, "stands_for", spec->expression->text);
  good &= json_object_set_new(sheet, "parameters", params_of(v->params)) == 0 && put_laws(sheet, spec, text);
  return json_whole(sheet, good);
}

static json_t *sheet_of_dataset(const data_source *s) {
  json_t *sheet = json_object();
  return json_whole(sheet, sheet_put(sheet, "name", s->name) && sheet_put(sheet, "summary", s->help) &&
                               json_object_set_new(sheet, "parameters", params_of(s->params)) == 0);
}

/* -- a sheet as text -- */

const char *sheet_get(const json_t *of, const char *name) {
  return json_string_value(json_object_get(of, name));
}

void sheet_print_paragraph(const char *name, const char *text) {
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
    const int length = (int)(strlen(sheet_get(p, "name")) + strlen(sheet_get(p, "preset"))) + 1;
    if (length > width) width = length;
  }
  if (width) puts("\nparameters (with defaults):");
  json_array_foreach(params, i, p) printf(
      "  %s=%-*s  %s\n  %*s  (%s)\n", sheet_get(p, "name"), width - (int)strlen(sheet_get(p, "name")) - 1,
      sheet_get(p, "preset"), sheet_get(p, "help"), width, "", sheet_get(p, "takes"));
}

/* From left to right, what is in parentheses further in. */
static void print_terms(const json_t *terms) {
  size_t i;
  const json_t *one;
  int width = 0;
  json_array_foreach(terms, i, one) {
    const int length =
        (int)strlen(sheet_get(one, "term")) + 2 * (int)json_integer_value(json_object_get(one, "depth"));
    if (length > width) width = length;
  }
  if (width) puts("\nterms:");
  json_array_foreach(terms, i, one) {
    const int indent = 2 * (int)json_integer_value(json_object_get(one, "depth"));
    printf("  %*s%-*s  %s\n", indent, "", width - indent, sheet_get(one, "term"), sheet_get(one, "does"));
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
  printf("%s: %s\n", sheet_get(sheet, "name"), sheet_get(sheet, "summary"));
  if (sheet_get(sheet, "stands_for")) sheet_print_paragraph("expression", sheet_get(sheet, "stands_for"));
  if (sheet_get(sheet, "formula")) sheet_print_paragraph("formula", sheet_get(sheet, "formula"));
  sheet_print_paragraph("example", sheet_get(sheet, "example"));
  sheet_print_paragraph("source", sheet_get(sheet, "source"));
  print_terms(json_object_get(sheet, "terms"));
  print_params(json_object_get(sheet, "parameters"));
  puts("\nproperties:");
  json_array_foreach(json_object_get(sheet, "properties"), i, one) printf("  %s\n", json_string_value(one));
  if (!laws) printf("\nlaws (%s): %s\n", problem, sheet_get(sheet, "no_laws"));
  if (json_object_size(laws)) printf("\nlaws (%s):\n", problem);
  json_object_foreach(laws, name, text) print_law(name, json_string_value(text));
  const size_t checks = json_array_size(json_object_get(sheet, "checks"));
  if (checks) printf("\n%zu checks apply; --checks lists them.\n", checks);
}

static void print_checks(json_t *sheet) {
  size_t i;
  const json_t *one;
  if (sheet_get(sheet, "no_laws")) printf("none: %s\n", sheet_get(sheet, "no_laws"));
  json_array_foreach(json_object_get(sheet, "checks"), i, one)
      printf("%-11s %s\n", sheet_get(one, "name"), sheet_get(one, "statement"));
}

static void print_dataset(json_t *sheet) {
  printf("%s: %s\n", sheet_get(sheet, "name"), sheet_get(sheet, "summary"));
  print_params(json_object_get(sheet, "parameters"));
}

static const char *nearest(const char *name, attn_nearest *near) {
  *near = (attn_nearest){.name = name, .length = strcspn(name, ":")};
  for (size_t i = 0; i < attn_variant_count(); i++) attn_nearest_try(near, attn_variant_at(i)->name);
  for (size_t i = 0; i < data_source_count(); i++) attn_nearest_try(near, data_source_at(i)->name);
  for (const check *const *c = checks_all; *c; c++) {
    attn_nearest_try(near, (*c)->name);
    attn_nearest_try(near, check_family(*c));
  }
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
  const check *c = quality_check_find(name);
  attn_spec *spec = NULL;
  json_t *sheet = NULL;
  attn_nearest near;
  *status = attn_spec_parse(&spec, name);
  if (!*status) {
    sheet = sheet_of_variant(spec, name);
    *print = print_variant;
  } else if (*status != ATTN_ENOTFOUND || strpbrk(name, "+*(") ||
             (parameters && is_variant(name, (size_t)(parameters - name)))) {
    return NULL;
  } else if (c) {
    sheet = sheet_of_check(c);
    *print = print_check;
  } else if (check_family_exists(name)) {
    sheet = sheet_of_family(name);
    *print = print_family;
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
    status = attn_fail(ATTN_EINVAL, "--checks: '%s' is not a variant", a.name);
  else if (sheet && a.json)
    status = cli_print_json(sheet);
  else if (sheet)
    (a.checks ? print_checks : print)(sheet);
  json_decref(sheet);
  return cli_report(argv[0], status);
}

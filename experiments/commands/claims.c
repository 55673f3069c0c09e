/* claims.c - attnlab claims: reruns published claims and prints how each came out, with the numbers. */
#include "experiments/commands/commands.h"

#include <gsl/gsl_errno.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "experiments/claims/claim.h"
#include "experiments/commands/cli.h"

#define CLAIM(name) &claim_##name,
#define MODEL_CLAIM CLAIM
static const claim *const claims_all[] = {
#include "experiments/claims/claims.def"
    NULL};
enum { CLAIMS = sizeof claims_all / sizeof *claims_all - 1 };
#undef CLAIM
#undef MODEL_CLAIM
#define CLAIM(name)
#define MODEL_CLAIM(name) &claim_##name,
static const claim *const claims_of_models[] = {
#include "experiments/claims/claims.def"
    NULL};

typedef struct arguments {
  const char *output, *captured, *model, *text;
  int64_t seed;
  bool markdown;
  const claim *chosen[CLAIMS];
  int count;
} arguments;

static void list_names(FILE *stream) {
  fputs("Claims:\n", stream);
  for (const claim *const *c = claims_all; *c; c++) fprintf(stream, "  %s\n", (*c)->name);
}

static const cli_option options[] = {
    {NULL, 0, NULL, "claim", CLI_READ},
    {"output", 'o', "FILE", "Also write every figure to this HDF5 file", CLI_SET(CLI_TEXT, output)},
    {"markdown", 'm', NULL, "Print a Markdown table, one row per claim", CLI_SET(CLI_FLAG, markdown)},
    /* of draws there are 1000 a seed, up to 10^15 */
    {"seed", 's', "N", "Seed of all draws (default 0)", CLI_RANGE(seed, 0, 999999999999)},
    {"captured", 'c', "FILE",
     "File by attnlab capture, for the claims about exactness and time (default: standard normal data)",
     CLI_SET(CLI_TEXT, captured)},
    {"model", 0, "MODEL", "Model, as for `attnlab eval', for the claims about whole models",
     CLI_SET(CLI_TEXT, model)},
    {"text", 0, "FILE", "Text for the model", CLI_SET(CLI_TEXT, text)},
    {0}};

static void read_claim(struct argp_state *state, void *input, const char *option, char *text) {
  arguments *a = input;
  const claim *const *c = claims_all;
  (void)option;
  while (*c && strcmp((*c)->name, text) != 0) c++;
  if (!*c) argp_error(state, "'%s': no claim has this name (see `attnlab claims --help')", text);
  if (a->count == CLAIMS) argp_error(state, "'%s': a claim is named twice", text);
  a->chosen[a->count++] = *c;
}

static bool of_model(const claim *c) {
  const claim *const *one = claims_of_models;
  while (*one && *one != c) one++;
  return *one;
}

/* Claims about a model that is not given are left out, unless they were asked for. */
static void complete(struct argp_state *state, void *input) {
  arguments *a = input;
  if (!a->model != !a->text) argp_error(state, "--model MODEL and --text FILE go together");
  for (int i = 0; i < a->count; i++)
    if (of_model(a->chosen[i]) && !a->model)
      argp_error(state, "'%s' needs --model MODEL and --text FILE", a->chosen[i]->name);
  if (a->count) return;
  for (const claim *const *c = claims_all; *c; c++)
    if (a->model || !of_model(*c)) a->chosen[a->count++] = *c;
}

static const cli_command parser = {
    .usage = "[CLAIM...]",
    .options = options,
    .read = read_claim,
    .complete = complete,
    .list = list_names,
    .doc =
        "Reruns published claims on small configurations (all: some minutes).\v"
        "Outcomes: reproduced; holds under a condition; derived (ours, from what the source says); refuted "
        "as printed; not reproduced. Each is a finding, not a failure: the exit code is 0."};

static void print(const claim *c, const claim_report *r) {
  char text[128];
  claim_verdict(r, text, sizeof text);
  printf("%s: %s\n  %s (%s), %.1f s\n", c->name, text, c->statement, c->source, r->seconds);
  for (int i = 0; i < r->count; i++) {
    const claim_figure *f = &r->figures[i];
    figure_interval(f, text, sizeof text);
    printf("    %-86s %10.4g  %s", f->what, f->value, text);
    if (!isnan(f->said)) printf("  said: %.4g", f->said);
    putchar('\n');
  }
  putchar('\n');
  fflush(stdout);
}

/* A cell of a table in Markdown, where | is written \|. */
static void print_cell(const char *text) {
  printf("| ");
  for (; *text; text++) {
    if (*text == '|') putchar('\\');
    putchar(*text);
  }
  putchar(' ');
}

static void print_line(const claim *c, const claim_report *r) {
  const claim_figure *f = &r->figures[r->telling];
  char text[128], said[32] = "";
  if (!isnan(f->said)) snprintf(said, sizeof said, "%.4g", f->said);
  print_cell(c->name);
  print_cell(c->statement);
  claim_verdict(r, text, sizeof text);
  if (strstr(c->source, "as recalled")) strncat(text, ", as recalled", sizeof text - strlen(text) - 1);
  print_cell(text);
  print_cell(f->what);
  figure_interval(f, text, sizeof text);
  printf("| %.4g | %s | %s |\n", f->value, text, said);
}

int cmd_claims(int argc, char **argv) {
  arguments a = {0};
  cli_parse(&parser, argc, argv, &a);
  gsl_set_error_handler_off();
  static claim_report reports[CLAIMS];
  const claim_options shared = {(uint64_t)a.seed, a.captured, a.model, a.text};
  attn_status status =
      a.output ? output_check(a.output, &kind_claims, (const char *const[]){a.captured, a.text}, 2) : ATTN_OK;
  if (a.markdown && !status)
    puts("| claim | what would have to hold | verdict | measured | value | interval | said |\n"
         "|:------|:------------------------|:--------|:---------|------:|:---------|-----:|");
  for (int i = 0; i < a.count && !status; i++) {
    const double start = omp_get_wtime();
    reports[i].level = 0.95;
    status = a.chosen[i]->test(&shared, &reports[i]);
    reports[i].seconds = omp_get_wtime() - start;
    if (status) break;
    if (a.markdown)
      print_line(a.chosen[i], &reports[i]);
    else
      print(a.chosen[i], &reports[i]);
  }
  if (!status && a.output) status = claims_write(a.output, a.chosen, reports, a.count);
  return cli_report(argv[0], status);
}

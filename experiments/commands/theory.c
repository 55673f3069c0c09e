/* theory.c - attnlab theory: measures what the mathematics of attention promises, and prints each promise. */
#include "experiments/commands/commands.h"

#include <gsl/gsl_errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/commands/cli.h"
#include "experiments/report/page.h"
#include "experiments/theory/theory.h"

enum { MOST = 32 };

typedef struct arguments {
  const char *output, *page;
  int64_t seed;
  const theory *chosen[MOST];
  int count;
} arguments;

static void list_names(FILE *stream) {
  fputs("Statements:\n", stream);
  for (const theory *const *t = theories; *t; t++) fprintf(stream, "  %s\n", (*t)->name);
}

static const cli_option options[] = {
    {NULL, 0, NULL, "statement", CLI_READ},
    {"output", 'o', "FILE", "Also write every figure to this HDF5 file", CLI_SET(CLI_TEXT, output)},
    {"html", 0, "FILE", "Also write a page with a plot for each statement", CLI_SET(CLI_TEXT, page)},
    {"seed", 's', "N", "Seed of all draws (default 0)", CLI_RANGE(seed, 0, 1e12)},
    {0}};

static void read_statement(struct argp_state *state, void *input, const char *option, char *text) {
  arguments *a = input;
  const theory *const *t = theories;
  (void)option;
  while (*t && strcmp((*t)->name, text) != 0) t++;
  if (!*t) argp_error(state, "'%s': no statement has this name (see `attnlab theory --help')", text);
  for (int i = 0; i < a->count; i++)
    if (a->chosen[i] == *t) argp_error(state, "'%s': a statement is named twice", text);
  a->chosen[a->count++] = *t;
}

static void complete(struct argp_state *state, void *input) {
  arguments *a = input;
  (void)state;
  if (a->count) return;
  for (const theory *const *t = theories; *t; t++) a->chosen[a->count++] = *t;
}

static const cli_command parser = {
    .usage = "[STATEMENT...]",
    .options = options,
    .read = read_statement,
    .complete = complete,
    .list = list_names,
    .doc = "Measures what the mathematics of attention promises, in fp64, and an input on which each promise "
           "fails (all: some seconds).\v"
           "A promise must be kept where its assumption is met, and fail where it is not; else the exit code "
           "is 1."};

/* "= 1", "<= 0.5", "= 0 +- 2e-13" */
static void promised_text(const theory_figure *f, char *text, size_t size) {
  char tolerance[16] = "";
  if (f->tolerance > 0) snprintf(tolerance, sizeof tolerance, " +- %.1g", f->tolerance);
  snprintf(text, size, "%s %.4g%s", theory_relations[f->relation], f->figure.said, tolerance);
  if (!f->relation) text[0] = '\0';
}

static void print(const theory *t, const theory_report *r) {
  char interval[96], promised[32];
  printf("%s: %s\n  %s\n  assumes that %s; fails on %s\n  (%s)\n", t->name,
         theory_holds(r) ? "holds" : "does not hold", t->statement, t->assumption, t->otherwise, t->source);
  for (int i = 0; i < r->count; i++) {
    const theory_figure *f = &r->figures[i];
    if (f->curve) continue;
    figure_interval(&f->figure, interval, sizeof interval);
    promised_text(f, promised, sizeof promised);
    printf("    %-72s %10.*g  %-14s %-18s %s\n", f->figure.what,
           f->figure.value == rint(f->figure.value) ? 9 : 4, f->figure.value, promised,
           theory_figure_verdict(f), interval);
  }
  putchar('\n');
}

int cmd_theory(int argc, char **argv) {
  static theory_report reports[MOST];
  arguments a = {0};
  bool holds = true;
  cli_parse(&parser, argc, argv, &a);
  gsl_set_error_handler_off();
  attn_status status = a.output ? output_check(a.output, &kind_theory, NULL, 0) : ATTN_OK;
  if (!status && a.page) status = output_check(a.page, &kind_report, NULL, 0);
  for (int i = 0; i < a.count && !status; i++) {
    if ((status = theory_run(a.chosen[i], (uint64_t)a.seed, &reports[i]))) break;
    holds = holds && theory_holds(&reports[i]);
    print(a.chosen[i], &reports[i]);
  }
  if (!status) status = theory_write(a.output, a.page, a.chosen, reports, a.count);
  return status ? cli_report(argv[0], status) : holds ? 0 : EXIT_BOUND;
}

/* claims.c - attnlab claims: reruns published claims and prints which were reproduced, with the numbers. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/commands/commands.h"

#include <gsl/gsl_errno.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "experiments/claims/claim.h"
#include "experiments/commands/cli.h"

const claim *const claims_all[] = {
    &claim_flash_exact,          &claim_flash_memory,      &claim_longformer_linear,
    &claim_bigbird_graph,        &claim_performer_law,     &claim_performer_std1,
    &claim_performer_trig,       &claim_performer_issue69, &claim_performer_sign,
    &claim_performer_orthogonal, &claim_linformer_flat,    &claim_linformer_lemma,
    &claim_linformer_limit,      &claim_regimes,           NULL};
enum { CLAIMS = sizeof claims_all / sizeof *claims_all - 1 };

typedef struct arguments {
  const char *output;
  bool markdown;
  const claim *chosen[CLAIMS];
  int count;
} arguments;

static char *names(int key, const char *text, void *input) {
  (void)input;
  if (key != ARGP_KEY_HELP_POST_DOC) return (char *)(uintptr_t)text;
  char *list = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&list, &size);
  if (!stream) return NULL;
  fputs("Claims:\n", stream);
  for (const claim *const *c = claims_all; *c; c++) fprintf(stream, "  %s\n", (*c)->name);
  fputs("A claim that is not reproduced is a finding, not a failure: the exit code is 0.", stream);
  fclose(stream);
  return list;
}

static const cli_option options[] = {{NULL, 0, NULL, "claim", CLI_OTHER, 0, 0, 0, NULL},
                                     {"output", 'o', "FILE", "Also write every figure to this HDF5 file",
                                      CLI_TEXT, offsetof(arguments, output), 0, 0, NULL},
                                     {"markdown", 'm', NULL, "A line a claim, as a table in Markdown",
                                      CLI_FLAG, offsetof(arguments, markdown), 0, 0, NULL},
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

static const cli_command parser = {
    .usage = "[CLAIM...]",
    .options = options,
    .read = read_claim,
    .help = names,
    .doc = "Reruns published claims on small configurations (all: some minutes).\v"};

static void print(const claim *c, const claim_report *r) {
  printf("%s: %s\n  %s (%s), %.1f s\n", c->name, r->reproduced ? "reproduced" : "NOT REPRODUCED",
         c->statement, c->source, r->seconds);
  for (int i = 0; i < r->count; i++) {
    const claim_figure *f = &r->figures[i];
    printf("    %-58s %10.4g", f->what, f->value);
    if (!isnan(f->low)) printf("  (%.4g ... %.4g)", f->low, f->high);
    if (!isnan(f->said)) printf("  said: %.4g", f->said);
    putchar('\n');
  }
  putchar('\n');
  fflush(stdout);
}

/* A cell of a table in Markdown, where | stands for itself as \|. */
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
  char said[32] = "";
  if (!isnan(f->said)) snprintf(said, sizeof said, "%.4g", f->said);
  print_cell(c->name);
  print_cell(c->statement);
  print_cell(r->reproduced ? "yes" : "**no**");
  print_cell(f->what);
  printf("| %.4g | %s |\n", f->value, said);
}

int cmd_claims(int argc, char **argv) {
  arguments a = {0};
  cli_parse(&parser, argc, argv, &a);
  if (!a.count)
    for (; a.count < CLAIMS; a.count++) a.chosen[a.count] = claims_all[a.count];
  gsl_set_error_handler_off();
  static claim_report reports[CLAIMS];
  attn_status status = a.output ? output_check(a.output, &kind_claims, NULL, 0) : ATTN_OK;
  int reproduced = 0;
  if (a.markdown && !status)
    puts("| claim | what would have to hold | reproduced | measured | value | said |\n"
         "|:------|:------------------------|:-----------|:---------|------:|-----:|");
  for (int i = 0; i < a.count && !status; i++) {
    const double start = omp_get_wtime();
    status = a.chosen[i]->test(&reports[i]);
    reports[i].seconds = omp_get_wtime() - start;
    if (status) break;
    if (a.markdown)
      print_line(a.chosen[i], &reports[i]);
    else
      print(a.chosen[i], &reports[i]);
    reproduced += reports[i].reproduced;
  }
  if (!status) printf("%s%d of %d claims reproduced\n", a.markdown ? "\n" : "", reproduced, a.count);
  if (!status && a.output) status = claims_write(a.output, a.chosen, reports, a.count);
  return cli_report(argv[0], status);
}

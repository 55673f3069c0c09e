/* export.c - attnlab export: a results file as CSV on stdout. */
#include "experiments/commands/commands.h"

#include <stdbool.h>
#include <stdio.h>

#include "experiments/commands/cli.h"
#include "experiments/results/set.h"

typedef struct arguments {
  const char *results;
  bool csv;
} arguments;

static const struct argp_option options[] = {{"csv", 'c', NULL, 0, "Comma-separated values (RFC 4180)", 0},
                                             {0}};

static error_t parse(int key, char *arg, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
  case 'c':
    a->csv = true;
    break;
  case ARGP_KEY_ARG:
    cli_argument(state, &a->results, "results file", arg);
    break;
  case ARGP_KEY_END:
    if (!a->csv) argp_error(state, "--csv is missing: the format to write");
    cli_require(state, a->results, "RESULTS.h5");
    break;
  default:
    return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

static const struct argp parser = {
    .options = options,
    .parser = parse,
    .args_doc = "RESULTS.h5",
    .doc = "The runs of a results file on stdout: a line of names, then one line a run.\v"
           "  attnlab export --csv results/default.h5 > runs.csv"};

int cmd_export(int argc, char **argv) {
  arguments a = {0};
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  result_set set;
  attn_status status = results_read(a.results, &set);
  if (status) return cli_report(argv[0], status);
  status = results_export_csv(stdout, &set);
  result_set_free(&set);
  return cli_report(argv[0], status);
}

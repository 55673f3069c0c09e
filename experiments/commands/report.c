/* report.c - attnlab report: a results file as one HTML page. */
#include "experiments/commands/commands.h"

#include <stdio.h>
#include <string.h>

#include "experiments/commands/cli.h"
#include "experiments/report/page.h"

typedef struct arguments {
  const char *results, *output;
} arguments;

static const struct argp_option options[] = {{"output", 'o', "REPORT.html", 0, "The page to write", 0}, {0}};

static error_t parse(int key, char *arg, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
  case 'o':
    a->output = arg;
    break;
  case ARGP_KEY_ARG:
    cli_argument(state, &a->results, "results file", arg);
    break;
  case ARGP_KEY_END:
    cli_require(state, a->results, "RESULTS.h5");
    cli_require(state, a->output, "-o REPORT.html");
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
    .doc = "A results file as one page for a browser: no server, no network.\v"
           "  attnlab report results/default.h5 -o report.html\n\n"
           "Plots with the numbers behind them in tables: time and error against n, Pareto "
           "fronts, bounds against measured, error against position, speed-up over exact "
           "attention; warnings about noise; every run. The same results give the same bytes."};

int cmd_report(int argc, char **argv) {
  arguments a = {0};
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  result_set set;
  attn_status status = results_read(a.results, &set);
  if (status) return cli_report(argv[0], status);
  const char *slash = strrchr(a.results, '/');
  status = report_write(a.output, &set, slash ? slash + 1 : a.results);
  result_set_free(&set);
  return cli_report(argv[0], status);
}

/* export.c - attnlab export: a results file as CSV on stdout, and what its columns are. */
#include "experiments/commands/commands.h"

#include <stdbool.h>
#include <stdio.h>

#include "experiments/commands/cli.h"
#include "experiments/results/set.h"

typedef struct arguments {
  const char *results;
  bool csv, columns;
} arguments;

static const cli_option options[] = {
    {"csv", 'c', NULL, "The runs as comma-separated values (RFC 4180)", CLI_SET(CLI_FLAG, csv)},
    {"columns", 0, NULL, "Describe the columns (type, unit, meaning) as comma-separated values",
     CLI_SET(CLI_FLAG, columns)},
    {NULL, 0, NULL, "results file", CLI_NEED(results, "RESULTS.h5")},
    {0}};

static void complete(struct argp_state *state, void *arguments_read) {
  const arguments *a = arguments_read;
  if (a->csv == a->columns) argp_error(state, "expected either --csv or --columns");
}

static const cli_command parser = {
    .complete = complete,
    .usage = "RESULTS.h5",
    .options = options,
    .doc = "Prints the runs of a results file: a line of names, then one line per run.\v"
           "  attnlab export --csv results/default.h5 > runs.csv\n"
           "  attnlab export --columns results/default.h5\n\n"
           "Control characters of texts are escaped (\\x1b), and a text that a spreadsheet would compute (it "
           "begins "
           "with =, +, - or @) follows an apostrophe."};

int cmd_export(int argc, char **argv) {
  arguments a = {0};
  cli_parse(&parser, argc, argv, &a);
  result_set set;
  attn_status status = results_read(a.results, &set);
  if (status) return cli_report(argv[0], status);
  status = (a.columns ? results_export_columns : results_export_csv)(stdout, &set);
  result_set_free(&set);
  return cli_report(argv[0], status);
}

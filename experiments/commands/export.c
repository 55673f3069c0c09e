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

static const cli_option options[] = {
    {"csv", 'c', NULL, "Comma-separated values (RFC 4180)", CLI_FLAG, offsetof(arguments, csv), 0, 0,
     "--csv, the format to write,"},
    {NULL, 0, NULL, "results file", CLI_TEXT, offsetof(arguments, results), 0, 0, "RESULTS.h5"},
    {0}};

static const cli_command parser = {
    .usage = "RESULTS.h5",
    .options = options,
    .doc = "The runs of a results file on stdout: a line of names, then one line a run.\v"
           "  attnlab export --csv results/default.h5 > runs.csv\n\n"
           "Control characters of texts are escaped (\\x1b), and a text that a spreadsheet would compute (it "
           "begins "
           "with =, +, - or @) follows an apostrophe."};

int cmd_export(int argc, char **argv) {
  arguments a = {0};
  cli_parse(&parser, argc, argv, &a);
  result_set set;
  attn_status status = results_read(a.results, &set);
  if (status) return cli_report(argv[0], status);
  status = results_export_csv(stdout, &set);
  result_set_free(&set);
  return cli_report(argv[0], status);
}

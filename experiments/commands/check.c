/* check.c - attnlab check: the tables of a results file and the verdicts on the bounds. */
#include "experiments/commands/commands.h"

#include <stdio.h>

#include "experiments/commands/cli.h"
#include "experiments/report/explain_violations.h"
#include "experiments/report/summary.h"
#include "experiments/results/write_journal.h"

typedef struct arguments {
  const char *results;
  bool bounds, markdown, json, repair;
} arguments;

static const cli_option options[] = {
    {"bounds", 0, NULL, "Print verdict counts per check and variant instead of errors and times", CLI_FLAG,
     offsetof(arguments, bounds), 0, 0, NULL},
    {"markdown", 'm', NULL, "Print tables in Markdown", CLI_FLAG, offsetof(arguments, markdown), 0, 0, NULL},
    {"json", 0, NULL, "Print counts, violations, errors and failures as one JSON object", CLI_FLAG,
     offsetof(arguments, json), 0, 0, NULL},
    {"repair", 0, NULL,
     "RESULTS.h5 is a journal, NAME.jsonl: moves its damaged lines to NAME.jsonl.damaged and keeps the whole "
     "ones",
     CLI_FLAG, offsetof(arguments, repair), 0, 0, NULL},
    {NULL, 0, NULL, "results file", CLI_TEXT, offsetof(arguments, results), 0, 0, "RESULTS.h5"},
    {0}};

static const cli_command parser = {
    .usage = "RESULTS.h5",
    .options = options,
    .doc = "Prints errors, times and verdicts of a results file.\v"
           "Exit code 1: a bound is violated; each violation is explained in a paragraph with its run and "
           "how to run it again alone. 3: a run or a check failed."};

static void print_damaged(void *context, const char *what) {
  (void)context;
  printf("%s\n", what);
}

static int repair(const char *program, const char *path) {
  size_t lines = 0, damaged = 0;
  const attn_status status = journal_repair(path, print_damaged, NULL, &lines, &damaged);
  if (status) return cli_report(program, status);
  printf("%s: %zu of %zu lines are whole", path, lines - damaged, lines);
  printf(damaged ? ", and kept; the others are in %s.damaged\n" : "\n", path);
  return 0;
}

int cmd_check(int argc, char **argv) {
  arguments a = {0};
  cli_parse(&parser, argc, argv, &a);
  if (a.repair) return repair(argv[0], a.results);
  result_set set;
  attn_status status = results_read(a.results, &set);
  if (status) return cli_report(argv[0], status);
  status = a.json ? explain_print_json(stdout, &set)
                  : summary_print(stdout, &set, a.bounds ? SUMMARY_BOUNDS : SUMMARY_RUNS,
                                  a.markdown ? TABLE_MARKDOWN : TABLE_TEXT);
  const int verdict = cli_verdict_code(summary_violations(&set), summary_failures(&set));
  result_set_free(&set);
  return status ? cli_report(argv[0], status) : verdict;
}

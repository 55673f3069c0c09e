/* check.c - attnlab check: the tables of a results file and the verdicts on the bounds. */
#include "experiments/commands/commands.h"

#include <stdio.h>

#include "data/support/json_text.h"
#include "experiments/commands/cli.h"
#include "experiments/quality/evaluation_file.h"
#include "experiments/quality/verdicts.h"
#include "experiments/report/explain_violations.h"
#include "experiments/report/summary.h"
#include "experiments/results/write_journal.h"

typedef struct arguments {
  const char *results;
  bool bounds, markdown, json, repair;
} arguments;

static const cli_option options[] = {
    {"bounds", 0, NULL, "Print verdict counts per check and variant instead of errors and times",
     CLI_SET(CLI_FLAG, bounds)},
    {"markdown", 'm', NULL, "Print tables in Markdown", CLI_SET(CLI_FLAG, markdown)},
    {"json", 0, NULL, "Print counts, violations, errors and failures as one JSON object",
     CLI_SET(CLI_FLAG, json)},
    {"repair", 0, NULL,
     "RESULTS.h5 is a journal, NAME.jsonl: moves its damaged lines to NAME.jsonl.damaged and keeps the whole "
     "ones",
     CLI_SET(CLI_FLAG, repair)},
    {NULL, 0, NULL, "results file", CLI_NEED(results, "RESULTS.h5")},
    {0}};

static void complete(struct argp_state *state, void *input) {
  const arguments *a = input;
  if (a->json && (a->markdown || a->bounds)) argp_error(state, "--json: excludes --markdown and --bounds");
  if (a->repair && (a->json || a->markdown || a->bounds))
    argp_error(state, "--repair: excludes --json, --markdown and --bounds");
}

static const cli_command parser = {
    .usage = "RESULTS.h5",
    .options = options,
    .complete = complete,
    .doc = "Prints errors, times and verdicts of a results file, of a sweep or of evaluations of models.\v"
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

/* What is found in the file. */
typedef struct findings {
  json_t *json;
  size_t violations, failures;
} findings;

static attn_status check_sweep(const arguments *a, findings *f) {
  result_set set;
  attn_status status = results_read(a->results, &set);
  if (status) return status;
  if (!a->json)
    status = summary_print(stdout, &set, a->bounds ? SUMMARY_BOUNDS : SUMMARY_RUNS,
                           a->markdown ? TABLE_MARKDOWN : TABLE_TEXT);
  else if (!(f->json = explain_json(&set)))
    status = ATTN_ENOMEM;
  f->violations = summary_violations(&set);
  f->failures = summary_failures(&set);
  result_set_free(&set);
  return status;
}

static attn_status check_evaluation(const arguments *a, findings *f) {
  quality_set set;
  json_t *json = NULL;
  attn_status status = quality_read(a->results, &set);
  if (status) return status;
  if (!a->json)
    status = quality_verdicts_print(stdout, &set, a->bounds, a->markdown ? TABLE_MARKDOWN : TABLE_TEXT);
  else if (!(json = quality_verdicts_json(&set)))
    status = ATTN_ENOMEM;
  else if (!f->json)
    f->json = json;
  else if (json_object_set_new(f->json, "evaluation", json))
    status = attn_fail(ATTN_ENOMEM, "no memory for the verdicts");
  f->violations += quality_violations(&set);
  f->failures += quality_failures(&set);
  result_set_free(&set);
  return status;
}

int cmd_check(int argc, char **argv) {
  arguments a = {0};
  findings f = {.json = NULL};
  cli_parse(&parser, argc, argv, &a);
  if (a.repair) return repair(argv[0], a.results);
  attn_status status = quality_file_is(a.results) ? ATTN_OK : check_sweep(&a, &f);
  if (!status && quality_file_has(a.results)) status = check_evaluation(&a, &f);
  if (!status && f.json) status = json_write(stdout, f.json, JSON_INDENT(2) | JSON_ENSURE_ASCII);
  json_decref(f.json);
  return status ? cli_report(argv[0], status) : cli_verdict_code(f.violations, f.failures);
}

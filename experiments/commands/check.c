/* check.c - attnlab check: the tables of a results file and the verdicts on the bounds. */
#include "experiments/commands/commands.h"

#include <stdio.h>

#include "experiments/commands/cli.h"
#include "experiments/report/explain_violations.h"
#include "experiments/report/summary.h"

typedef struct arguments {
  const char *results;
  table_format format;
  bool json;
} arguments;

enum { KEY_JSON = 1000 };

static const struct argp_option options[] = {
    {"markdown", 'm', NULL, 0, "Tables in Markdown", 0},
    {"json", KEY_JSON, NULL, 0,
     "Counts, violations, errors and failures as one JSON object, in place of tables", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
  case 'm':
    a->format = TABLE_MARKDOWN;
    break;
  case KEY_JSON:
    a->json = true;
    break;
  case ARGP_KEY_ARG:
    cli_argument(state, &a->results, "results file", arg);
    break;
  case ARGP_KEY_END:
    cli_require(state, a->results, "RESULTS.h5");
    break;
  default:
    return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

static const struct argp parser = {.options = options,
                                   .parser = parse,
                                   .args_doc = "RESULTS.h5",
                                   .doc =
                                       "Errors, times and the verdicts on the bounds of a results file.\v"
                                       "Exit code 1: a bound is violated; each violation is explained in a "
                                       "paragraph with its run and how to run it "
                                       "again alone. 3: a run or a check failed."};

static attn_status print_json(const result_set *set) {
  json_t *json = explain_json(set);
  if (!json) return ATTN_ENOMEM;
  const bool written = json_dumpf(json, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;
  json_decref(json);
  return written ? ATTN_OK : attn_fail(ATTN_EFOREIGN, "cannot write the verdicts");
}

int cmd_check(int argc, char **argv) {
  arguments a = {.format = TABLE_TEXT};
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  result_set set;
  attn_status status = results_read(a.results, &set);
  if (status) return cli_report(argv[0], status);
  status = a.json ? print_json(&set) : summary_print(stdout, &set, a.format);
  const int verdict = cli_verdict_code(summary_violations(&set), summary_failures(&set));
  result_set_free(&set);
  return status ? cli_report(argv[0], status) : verdict;
}

/* compare.c - attnlab compare: what changed between two results files. */
#include "experiments/commands/commands.h"

#include <stdio.h>

#include "experiments/commands/cli.h"
#include "experiments/report/changes.h"

typedef struct arguments {
  const char *a, *b;
  double limit;
  bool json, all;
} arguments;

static const cli_option options[] = {
    {NULL, 0, NULL, "results file", CLI_READ},
    {"max-slowdown", 's', "SHARE", "Largest slowdown not counted as a regression, as 5% or 0.05 (default 5%)",
     CLI_READ},
    {"all", 'a', NULL, "Print whole lists, and the runs without a counterpart", CLI_SET(CLI_FLAG, all)},
    {"json", 0, NULL, "Print one JSON object", CLI_SET(CLI_FLAG, json)},
    {0}};

static void read(struct argp_state *state, void *input, const char *option, char *text) {
  arguments *a = input;
  if (option)
    a->limit = 1 + cli_share(state, option, text);
  else if (!a->a)
    a->a = text;
  else if (!a->b)
    a->b = text;
  else
    argp_error(state, "'%s': expected two results files", text);
}

static void complete(struct argp_state *state, void *input) {
  const arguments *a = input;
  if (!a->b) argp_error(state, "expected two results files, A.h5 and B.h5");
}

static const cli_command parser = {
    .usage = "A.h5 B.h5",
    .options = options,
    .read = read,
    .complete = complete,
    .doc =
        "Prints what changed from results A to results B: machines, versions, compilers.\v"
        "  attnlab compare before.h5 after.h5 --max-slowdown 5%\n\n"
        "Runs pair where variant, parameters, seeds, dataset and sizes agree; instruction set, number of "
        "threads "
        "and block sizes may be another machine's. "
        "The ratio of two median times has an interval from the 95 % intervals of both, none of them taken "
        "for "
        "narrower than a standard error of 1 % allows, because sessions of one machine differ by as much.\n\n"
        "Exit code 1: a regression, or a verdict that became violated. A regression is a run, or the "
        "geometric "
        "mean of all, whose ratio lies significantly above the limit: the p-values of \"at most the limit\" "
        "(Student's distribution, log ratios), corrected by Holm over all runs, at the level 5 %. Of twenty "
        "comparisons in which nothing changed at most one is expected to end so. The intervals do not cover "
        "a slowdown of a whole session, which is in every ratio. 3: a run that ended well in A failed in "
        "B.\n\n"
        "An error has changed if it differs by more than a hundredth and by more than eight times the "
        "rounding of "
        "the exact variants on the same input."};

static int verdict(const results_change *c) {
  return cli_verdict_code(c->violated + c->slower + c->mean_slower, c->failed);
}

int cmd_compare(int argc, char **argv) {
  arguments a = {.limit = 1.05};
  cli_parse(&parser, argc, argv, &a);
  result_set sets[2];
  result_pairs pairs = {0};
  results_change change = {0};
  result_set_init(&sets[0]);
  result_set_init(&sets[1]);
  attn_status status = results_read(a.a, &sets[0]);
  if (!status) status = results_read(a.b, &sets[1]);
  if (!status) status = pairs_make(&sets[0], &sets[1], &pairs);
  if (!status && pairs.count == 0)
    status =
        attn_fail(ATTN_EINVAL,
                  "%s and %s have no run in common: variant, parameters, seeds, dataset and sizes must match",
                  a.a, a.b);
  if (!status) status = change_make(&pairs, a.limit, &change);
  const changes all = {{a.a, &sets[0]}, {a.b, &sets[1]}, a.limit, &pairs, &change};
  if (!status) status = a.json ? changes_print_json(stdout, &all) : changes_print(stdout, &all, a.all);
  const int code = status ? cli_report(argv[0], status) : verdict(&change);
  change_free(&change);
  pairs_free(&pairs);
  result_set_free(&sets[0]);
  result_set_free(&sets[1]);
  return code;
}

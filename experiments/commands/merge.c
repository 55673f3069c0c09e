/* merge.c - attnlab merge: one results file from the journals of several processes. */
#include "experiments/commands/commands.h"

#include "experiments/commands/cli.h"
#include "experiments/results/set.h"

typedef struct arguments {
  const char *output;
  char **journals;
  int count;
} arguments;

static const struct argp_option options[] = {{"output", 'o', "FILE", 0, "The results file, .h5", 0}, {0}};

static error_t parse(int key, char *arg, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
  case 'o':
    a->output = arg;
    break;
  case ARGP_KEY_ARGS:
    a->journals = state->argv + state->next;
    a->count = state->argc - state->next;
    break;
  case ARGP_KEY_END:
    if (a->count == 0) argp_error(state, "JOURNAL.jsonl is missing");
    cli_require(state, a->output, "-o FILE");
    break;
  default:
    return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

static const struct argp parser = {.options = options,
                                   .parser = parse,
                                   .args_doc = "JOURNAL.jsonl...",
                                   .doc = "One results file from the journals of several runs or shards.\v"
                                          "The same journals in any order give the same bytes.\n\n"
                                          "  attnlab merge -o results/all.h5 results/all.*-of-4.jsonl"};

int cmd_merge(int argc, char **argv) {
  arguments a = {0};
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  return cli_report(argv[0], results_merge(a.output, (const char *const *)a.journals, (size_t)a.count));
}

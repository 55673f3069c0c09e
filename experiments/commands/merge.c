/* merge.c - attnlab merge: one results file from the journals of several processes. */
#include "experiments/commands/commands.h"

#include <stdio.h>

#include "data/support/file.h"
#include "experiments/commands/cli.h"
#include "experiments/quality/file.h"
#include "experiments/quality/relate.h"
#include "experiments/results/set.h"

typedef struct arguments {
  const char *output;
  char **journals;
  int count;
} arguments;

static const cli_option options[] = {
    {NULL, 0, NULL, "journal", CLI_OTHER, 0, 0, 0, "JOURNAL.jsonl"},
    {"output", 'o', "FILE", "The results file, .h5", CLI_TEXT, offsetof(arguments, output), 0, 0, "-o FILE"},
    {0}};

/* All journals at once: they follow each other. */
static void read_journals(struct argp_state *state, void *input, const char *option, char *text) {
  arguments *a = input;
  (void)option, (void)text;
  a->journals = state->argv + state->next - 1;
  a->count = state->argc - state->next + 1;
  state->next = state->argc;
}

static const cli_command parser = {
    .usage = "JOURNAL.jsonl...",
    .options = options,
    .read = read_journals,
    .doc = "Merges the journals of several runs or shards into one results file.\v"
           "The same journals in any order give the same bytes. Evaluations "
           "of models are merged from their files.\n\n"
           "  attnlab merge -o results/all.h5 results/all.*-of-4.jsonl\n"
           "  attnlab merge -o eval.h5 eval.*-of-4.h5"};

static bool is_evaluation(const char *path) {
  file_map map;
  if (file_map_open(path, &map)) return false;
  const bool yes = kind_evaluation.is(path, &map);
  file_map_close(&map);
  return yes;
}

int cmd_merge(int argc, char **argv) {
  arguments a = {0};
  cli_parse(&parser, argc, argv, &a);
  const char *const *journals = (const char *const *)a.journals;
  const bool models = is_evaluation(journals[0]);
  attn_status status =
      output_check(a.output, models ? &kind_evaluation : &kind_results, journals, (size_t)a.count);
  size_t torn = 0;
  if (!status && models)
    status = quality_merge(a.output, journals, (size_t)a.count);
  else if (!status)
    status = results_merge(a.output, journals, (size_t)a.count, &torn);
  if (torn) fprintf(stderr, "%s: %zu torn line%s left out\n", argv[0], torn, torn == 1 ? "" : "s");
  return cli_report(argv[0], status);
}

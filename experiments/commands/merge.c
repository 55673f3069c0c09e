/* merge.c - attnlab merge: one results file from the journals of several processes. */
#include "experiments/commands/commands.h"

#include <stdio.h>
#include <stdlib.h>

#include "experiments/commands/cli.h"
#include "experiments/quality/evaluation_file.h"
#include "experiments/results/write_journal.h"

typedef struct arguments {
  const char *output;
  char **journals;
  int count;
} arguments;

static const cli_option options[] = {
    {NULL, 0, NULL, "journal", CLI_OTHER, 0, 0, 0, "JOURNAL.jsonl"},
    {"output", 'o', "FILE", "The results file, .h5", CLI_NEED(output, "-o FILE")},
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
    .doc =
        "Merges the journals of several runs or shards into one results file.\v"
        "The same journals in any order give the same bytes. Journals of sweeps and of evaluations of models "
        "may be mixed: the file then has the evaluations' runs in its group /evaluation. Instead of its "
        "journal an evaluation's file may be given.\n\n"
        "  attnlab merge -o results/all.h5 results/all.*-of-4.jsonl\n"
        "  attnlab merge -o eval.h5 eval.*-of-4.jsonl"};

/* Of each kind the files, and their rows. */
typedef struct merging {
  const char **sweeps, **evaluations;
  size_t sweep_count, evaluation_count;
  result_set sets[2];
} merging;

static void sort_by_kind(const arguments *a, merging *m) {
  for (int i = 0; i < a->count; i++) {
    const char *path = a->journals[i];
    if (journal_has(&rows_of_evaluation, path) || quality_file_is(path))
      m->evaluations[m->evaluation_count++] = path;
    else
      m->sweeps[m->sweep_count++] = path;
  }
}

static attn_status merge(const arguments *a, merging *m) {
  const layout_part all[] = {{&layout_of_sweep, &m->sets[0]}, {&layout_of_evaluation, &m->sets[1]}};
  sort_by_kind(a, m);
  const bool sweeps = m->sweep_count > 0, evaluations = m->evaluation_count > 0;
  attn_status status =
      output_check(a->output, all[!sweeps].layout->file, (const char *const *)a->journals, (size_t)a->count);
  if (!status && sweeps) status = results_load(m->sweeps, m->sweep_count, &m->sets[0]);
  if (!status && evaluations)
    status = rows_load(&rows_of_evaluation, m->evaluations, m->evaluation_count, &m->sets[1]);
  return status ? status : layout_write(a->output, &all[!sweeps], (size_t)sweeps + (size_t)evaluations);
}

int cmd_merge(int argc, char **argv) {
  arguments a = {0};
  cli_parse(&parser, argc, argv, &a);
  const size_t count = (size_t)a.count;
  merging m = {.sweeps = calloc(count, sizeof *m.sweeps),
               .evaluations = calloc(count, sizeof *m.evaluations)};
  attn_status status = m.sweeps && m.evaluations
                           ? merge(&a, &m)
                           : attn_fail(ATTN_ENOMEM, "out of memory for %zu journals", count);
  const size_t torn = m.sets[0].torn + m.sets[1].torn;
  if (torn) fprintf(stderr, "%s: %zu torn line%s left out\n", argv[0], torn, torn == 1 ? "" : "s");
  for (int i = 0; i < 2; i++) result_set_free(&m.sets[i]);
  free((void *)m.sweeps);
  free((void *)m.evaluations);
  return cli_report(argv[0], status);
}

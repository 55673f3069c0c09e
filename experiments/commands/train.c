/* train.c - attnlab train: small models trained with a variant as their attention, beside exact attention. */
#include "experiments/commands/commands.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/commands/cli.h"
#include "experiments/report/page.h"
#include "experiments/runner/sweep.h"
#include "experiments/support/label.h"
#include "experiments/support/table.h"
#include "experiments/training/train_config.h"
#include "experiments/training/train_results.h"

typedef struct arguments {
  train_study study;
  const char *config, *output, *page;
  int threads;
} arguments;

static const char *const default_tasks[] = {"copy", "mqar", "sort"};
static const char *const default_specs[] = {"longformer:window=8,global=1",
                                            "streaming:sink=2,window=8",
                                            "bigbird:block=4,window=3,random=1,global=1",
                                            "sparse_transformer:stride=4",
                                            "topk:k=4",
                                            "pages:page=4,budget=8",
                                            "lsh:rounds=2,buckets=8",
                                            "store:k=int4,v=int4",
                                            "performer:features=32",
                                            "recurrent:rule=delta"};

static void list_tasks(FILE *out) {
  fputs("Tasks:\n", out);
  for (int i = 0; i < TRAIN_TASKS; i++)
    fprintf(out, "  %-16s%s; chance %.3g, %d steps\n", train_tasks[i].name, train_tasks[i].about,
            1 / (double)train_tasks[i].answers, (int)train_tasks[i].steps);
}

static const cli_option options[] = {
    {NULL, 0, NULL, "configuration", CLI_SET(CLI_TEXT, config)},
    {"task", 't', "TASK", "Teach this task (may be repeated; default copy, mqar and sort)", CLI_READ},
    {"variant", 'v', "SPEC", "Train with this as attention (may be repeated; default: ten of them)",
     CLI_READ},
    {"seeds", 0, "N", "Seeds 0 ... N - 1 of weights, data and draws (default 8); intervals need 8",
     CLI_RANGE(study.seeds, 1, TRAIN_SEEDS)},
    {"steps", 0, "N", "Steps of a training (default: the task's)",
     CLI_RANGE(study.settings.steps, 1, INT32_MAX)},
    {"output", 'o', "NAME.h5", "Results; the journal NAME.jsonl beside it is what a study resumes from",
     CLI_SET(CLI_TEXT, output)},
    {"html", 0, "FILE", "Also write a page with the learning curves of each task", CLI_SET(CLI_TEXT, page)},
    {"threads", 0, "N", "OpenMP threads; the results do not depend on them", CLI_SET(CLI_THREADS, threads)},
    {0}};

static void read_option(struct argp_state *state, void *input, const char *option, char *text) {
  train_study *s = &((arguments *)input)->study;
  if (strcmp(option, "--task") == 0 ? train_study_add_task(s, text) : train_study_add(s, text))
    cli_fail(state);
}

/* What neither options nor configuration say. */
static attn_status take_presets(train_study *s) {
  const bool no_task = !s->task_count, no_spec = !s->spec_count;
  attn_status status = ATTN_OK;
  for (size_t i = 0; no_task && !status && i < sizeof default_tasks / sizeof *default_tasks; i++)
    status = train_study_add_task(s, default_tasks[i]);
  for (size_t i = 0; no_spec && !status && i < sizeof default_specs / sizeof *default_specs; i++)
    status = train_study_add(s, default_specs[i]);
  if (!s->seeds) s->seeds = INTERVAL_UNITS;
  return status;
}

static const cli_command parser = {
    .usage = "[CONFIG.yaml]",
    .options = options,
    .read = read_option,
    .list = list_tasks,
    .plugins = true,
    .doc =
        "Trains small models with a variant as their attention, and says what that costs beside exact "
        "attention.\v"
        "A model (two layers of width 32; fp64, its attention fp32) is trained with every variant and seed, "
        "from the same weights on the same data, and asked 256 new sequences. Of each task and variant: "
        "accuracy and loss, medians over the seeds; the mean difference of the accuracy from exact "
        "attention's of the same seed with its 95 % interval (Student's, paired), and whether it is worse or "
        "better at 5 % after Holm's correction over the variants, or open; and how the models that were "
        "trained with exact attention answer with the variant in its place (swapped).\n\n"
        "The configuration has the keys schema (1), tasks, variants, seeds and steps; options come before "
        "it. Variants that are not causal, or have no gradients, are refused; of one by which an answer may "
        "depend on later tokens (its keys are chosen for all queries together) a line below the table says "
        "why, since it may read what it is asked for. A task's steps and rate of learning are those in which "
        "exact attention learns it. A study that is killed resumes from its journal with the same bits.\n\n"
        "  attnlab train -o train.h5 --html train.html\n"
        "  attnlab train --task induction -v streaming:sink=1,window=4 -v topk:k=2"};

static attn_status print_task(const train_study *s, int64_t task) {
  train_comparison c[TRAIN_SPECS];
  text_table t = {.columns = 9, .left = 1, .last_left = false};
  attn_status status = train_compare(s, task, c);
  const train_task *about = s->tasks[task];
  printf("%s: %s (chance %.3g)\n", about->name, about->about, 1 / (double)about->answers);
  for (const char *const *h =
           (const char *const[]){"variant", "accuracy", "loss", "difference", "95 % interval", "p", "word",
                                 "swapped", "its loss", NULL};
       *h; h++)
    table_add(&t, "%s", *h);
  for (int64_t v = 0; !status && v < s->spec_count; v++) {
    char *label = NULL, loss[SHORT_TEXT], swapped[SHORT_TEXT], p[SHORT_TEXT];
    if ((status = label_make(s->specs[v], true, &label))) break;
    table_add(&t, "%s", label);
    free(label);
    table_add(&t, "%.3f", c[v].trained.accuracy);
    table_add(&t, "%s", short_number(c[v].trained.loss, loss));
    table_add(&t, v ? "%+.3f" : "", c[v].difference.at);
    table_add(&t, v && !isnan(c[v].difference.lo) ? "%+.3f ... %+.3f" : "", c[v].difference.lo,
              c[v].difference.hi);
    table_add(&t, "%s", v ? short_number(c[v].p, p) : "");
    table_add(&t, "%s", v ? train_words[c[v].word] : "exact");
    table_add(&t, "%.3f", c[v].swapped.accuracy);
    table_add(&t, "%s", short_number(c[v].swapped.loss, swapped));
  }
  if (!status) status = table_print(stdout, &t, TABLE_TEXT);
  for (int64_t v = 0; !status && v < s->spec_count; v++) {
    char *label = NULL;
    if (!s->later[v] || (status = label_make(s->specs[v], true, &label))) continue;
    printf("%s: answers may depend on later tokens: %s\n", label, s->later[v]);
    free(label);
  }
  table_free(&t);
  putchar('\n');
  fflush(stdout);
  return status;
}

/* Before anything is trained. *journal: of the results, to be freed. */
static attn_status check_outputs(const arguments *a, char **journal) {
  attn_status status = ATTN_OK;
  if (a->output) status = sweep_path(a->output, 0, 1, "jsonl", journal);
  if (!status && a->output) status = output_check(a->output, &kind_training_results, NULL, 0);
  if (!status && a->page) status = output_check(a->page, &kind_report, NULL, 0);
  return status;
}

int cmd_train(int argc, char **argv) {
  arguments a = {.study = {.settings = train_presets}};
  cli_parse(&parser, argc, argv, &a);
  if (a.threads) omp_set_num_threads(a.threads);
  char *journal = NULL;
  attn_status status = check_outputs(&a, &journal);
  a.study.path = journal;
  if (!status && a.config) status = train_config_read(a.config, &a.study);
  if (!status) status = take_presets(&a.study);
  if (!status) status = train_study_open(&a.study);
  for (int64_t t = 0; !status && t < a.study.task_count; t++) {
    status = train_study_run(&a.study, t);
    if (!status) status = print_task(&a.study, t);
  }
  if (!status) status = train_results_write(&a.study, a.output, a.page);
  train_study_free(&a.study);
  free(journal);
  return cli_close_stdout(argv[0], cli_report(argv[0], status));
}

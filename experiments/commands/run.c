/* run.c - attnlab run: the arguments of a sweep. */
#include "experiments/commands/commands.h"

#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_tools.h"
#include "data/support/file.h"
#include "experiments/commands/cli.h"
#include "experiments/commands/operands.h"
#include "experiments/functions/function.h"
#include "experiments/grid/shard.h"
#include "experiments/quality/configuration.h"
#include "experiments/quality/evaluation_tables.h"
#include "experiments/runner/sweep.h"
#include "experiments/support/escape.h"

typedef struct arguments {
  sweep_options options;
  const char **overrides;
  char **plugins;
  size_t plugin_count;
  target_options target;
  char *score, *mask; /* overrides made of it */
} arguments;

static const cli_option options[] = {
    {NULL, 0, NULL, "configuration", CLI_NEED(options.config_path, "CONFIG.yaml")},
    {"output", 'o', "NAME.h5", "Results; the journal NAME.jsonl beside it is what a sweep resumes from",
     CLI_NEED(options.output, "-o NAME.h5")},
    {"set", 0, "PATH=VALUE", "Override a key of the configuration: grid.n=1Ki,2Ki (may be repeated)",
     CLI_READ},
    TARGET_OPTIONS(target),
    {"only", 0, "PATTERN", "Only runs whose key contains this glob pattern", CLI_SET(CLI_TEXT, options.only)},
    {"threads", 0, "N", "Threads of each run, instead of the configuration's",
     CLI_RANGE(options.threads, 1, 4096)},
    {"shard", 0, "I/N|auto",
     "Run every N-th block from block I (counted from 0); write NAME.I-of-N.h5; auto: as Slurm or MPI "
     "numbers this process",
     CLI_READ},
    {"retry-failed", 0, NULL, "Also repeat runs that did not succeed before",
     CLI_SET(CLI_FLAG, options.retry_failed)},
    {"keep-stale", 0, NULL, "Keep rows that another build of the program, or another plug-in, made",
     CLI_SET(CLI_FLAG, options.keep_stale)},
    {"plugin", 'P', "FILE",
     "Load the variant in this shared object, or the function python:MODULE.NAME (may be repeated)",
     CLI_READ},
    {"dry-run", 0, NULL,
     "Print the runs with their cost and work memory, and the time, memory and disk space that all take "
     "together; run nothing, except once a calibration of the machine",
     CLI_SET(CLI_FLAG, options.dry_run)},
    {"json", 0, NULL, "With --dry-run, print one JSON object, with a rough estimate for each run",
     CLI_SET(CLI_FLAG, options.json)},
    {"no-hostname", 0, NULL, "Do not record the machine's name", CLI_SET(CLI_FLAG, options.no_hostname)},
    {"quiet", 'q', NULL, "No progress on stderr", CLI_SET(CLI_FLAG, options.quiet)},
    {0}};

static void read_other(struct argp_state *state, void *input, const char *option, char *text) {
  arguments *a = input;
  sweep_options *o = &a->options;
  attn_status status = ATTN_OK;
  if (strcmp(option, "--set") == 0) {
    a->overrides[o->override_count++] = text;
  } else if (strcmp(option, "--shard") == 0) {
    status = shard_parse(text, getenv, &o->shard, &o->shards);
  } else if (!(status = function_load(text))) {
    a->plugins[a->plugin_count++] = text;
  }
  if (status) cli_fail(state);
}

static void complete(struct argp_state *state, void *input) {
  const sweep_options *o = &((arguments *)input)->options;
  if (o->json && !o->dry_run) argp_error(state, "--json is for --dry-run: results are in -o NAME.h5");
}

static const cli_command parser = {
    .usage = "CONFIG.yaml -o NAME.h5",
    .options = options,
    .read = read_other,
    .complete = complete,
    .doc = "Runs the experiment in a YAML file: verifies each variant on each input, then times it.\vA sweep "
           "that was interrupted resumes when the same command is given again. A file with "
           "a section eval asks a model instead, as `attnlab eval' does: every combination of its lists "
           "(experiments/quality/configuration.h). Exit code: 0 if all is well, 1 if a bound is violated, 2 "
           "for a wrong argument or configuration, 3 if a run failed, 74 if a system call failed, 75 if "
           "another sweep writes to the same file or a signal stopped this one, 130 after an interrupt."};

static attn_status override(const char *path, const char *value, char **out) {
  size_t size;
  FILE *text = open_memstream(out, &size);
  if (text) {
    fprintf(text, "%s=", path);
    escape_put_yaml(text, value);
  }
  return attn_stream_text(text, out) ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for %s", path);
}

/* What the options say of scores and mask, in place of the configuration's. */
static attn_status override_target(arguments *a) {
  target_options scores = a->target;
  char *score = NULL, *mask = NULL;
  scores.mask = NULL;
  attn_status status = target_texts(&a->target, &score, &mask);
  if (!status && target_given(&scores)) status = override("grid.score", *score ? score : "none", &a->score);
  if (!status && a->target.mask) status = override("grid.mask", *mask ? mask : "none", &a->mask);
  free(score);
  free(mask);
  if (a->score) a->overrides[a->options.override_count++] = a->score;
  if (a->mask) a->overrides[a->options.override_count++] = a->mask;
  return status;
}

static int exit_code(const char *command, attn_status status, const sweep_outcome *outcome) {
  const int code = cli_report(command, status);
  if (status == ATTN_EEXIST) return EXIT_RETRY;
  if (code) return outcome->started && code == EXIT_USAGE ? EXIT_IO : code;
  if (!outcome->signal) return cli_verdict_code(outcome->violations, outcome->failures);
  fprintf(stderr, "%s: interrupted; the same command resumes\n", command);
  return outcome->signal == SIGINT ? EXIT_INTERRUPT : EXIT_RETRY;
}

/* A configuration with a section eval. */
static int evaluate(const char *command, const arguments *a, const quality_configuration *c) {
  const sweep_options *o = &a->options;
  quality_teller teller = {.command = command, .out = stdout, .errors = stderr};
  attn_status status = ATTN_OK;
  char *output = NULL;
  if (o->override_count || o->only || o->dry_run || o->retry_failed)
    status = attn_fail(
        ATTN_EINVAL, "%s: evaluations of models take -o, --shard, --threads, --keep-stale and --plugin alone",
        o->config_path);
  if (!status) status = sweep_path(o->output, o->shard, o->shards, "h5", &output);
  const quality_session session = {.path = output,
                                   .inputs = &o->config_path,
                                   .input_count = 1,
                                   .argc = o->argc,
                                   .argv = o->argv,
                                   .hostname = !o->no_hostname,
                                   .note = quality_tell_note,
                                   .to = &teller};
  quality_store store = {0};
  if (!status) status = quality_store_open(&session, &store);
  if (o->threads) omp_set_num_threads((int)o->threads);
  for (size_t i = 0; !status && i < quality_configuration_count(c); i++) {
    quality_request r;
    quality_configuration_request(c, i, &r);
    r.shard = o->shard;
    r.shards = o->shards;
    r.keep_stale = o->keep_stale;
    status = quality_answer(&r, &store, quality_tell, &teller);
  }
  quality_store_close(&store);
  free(output);
  const int code = cli_report(command, status);
  return cli_close_stdout(command, code ? code : cli_verdict_code(teller.violated, teller.failed));
}

int cmd_run(int argc, char **argv) {
  arguments a = {.options = {.shards = 1, .argc = argc, .argv = argv}};
  sweep_outcome outcome = {0};
  quality_configuration *evaluation = NULL;
  attn_status status;
  int code;
  /* No option occurs more often than there are arguments. */
  a.overrides = calloc((size_t)argc + 3, sizeof *a.overrides);
  a.plugins = calloc((size_t)argc + 1, sizeof *a.plugins);
  if (a.overrides && a.plugins) {
    cli_parse(&parser, argc, argv, &a);
    a.options.overrides = a.overrides;
    a.options.plugins = a.plugins;
    status = override_target(&a);
    if (!status) status = quality_configuration_load(a.options.config_path, &evaluation);
    if (!status && !evaluation) status = sweep_run(&a.options, &outcome);
  } else {
    status = attn_fail(ATTN_ENOMEM, "no memory for the arguments");
  }
  code = evaluation && !status ? evaluate(argv[0], &a, evaluation) : exit_code(argv[0], status, &outcome);
  quality_configuration_free(evaluation);
  free(a.overrides);
  free(a.score);
  free(a.mask);
  free(a.plugins);
  return code;
}

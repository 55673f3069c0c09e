/* run.c - attnlab run: the arguments of a sweep. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/commands/commands.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/commands/cli.h"
#include "experiments/grid/shard.h"
#include "experiments/runner/sweep.h"

typedef struct arguments {
  sweep_options options;
  const char **overrides;
  char **plugins;
  size_t plugin_count;
} arguments;

enum {
  KEY_RETRY = 1000,
  KEY_DRY_RUN,
  KEY_ONLY,
  KEY_SET,
  KEY_KEEP_STALE,
  KEY_NO_HOSTNAME,
  KEY_SHARD,
  KEY_THREADS
};

static const struct argp_option options[] = {
    {"output", 'o', "NAME.h5", 0, "Results; the journal NAME.jsonl beside it is what a sweep resumes from",
     0},
    {"set", KEY_SET, "PATH=VALUE", 0, "Override a key of the configuration: grid.n=1Ki,2Ki (may be repeated)",
     0},
    {"only", KEY_ONLY, "PATTERN", 0, "Only runs whose key contains this glob pattern", 0},
    {"threads", KEY_THREADS, "N", 0, "Threads of each run, in place of the configuration's", 0},
    {"shard", KEY_SHARD, "I/N|auto", 0,
     "Every N-th block, from the I-th (from 0), into NAME.I-of-N.h5; auto: as Slurm or MPI numbers this "
     "process",
     0},
    {"retry-failed", KEY_RETRY, NULL, 0, "Also runs that did not succeed before", 0},
    {"keep-stale", KEY_KEEP_STALE, NULL, 0, "Keep rows that another build of the program made", 0},
    {"plugin", 'P', "FILE", 0, "Load the variant in this shared object (may be repeated)", 0},
    {"dry-run", KEY_DRY_RUN, NULL, 0,
     "Print the runs with their estimated cost, work memory and time, and what they take together; run "
     "nothing but, once, a calibration of the machine",
     0},
    {"no-hostname", KEY_NO_HOSTNAME, NULL, 0, "Do not record the machine's name", 0},
    {"quiet", 'q', NULL, 0, "No progress on stderr", 0},
    {0}};

static error_t parse(int key, char *value, struct argp_state *state) {
  arguments *a = state->input;
  sweep_options *o = &a->options;
  switch (key) {
  case 'o':
    o->output = value;
    break;
  case 'P':
    if (attn_plugin_load(value)) argp_error(state, "%s", attn_last_error());
    a->plugins[a->plugin_count++] = value;
    break;
  case 'q':
    o->quiet = true;
    break;
  case KEY_SET:
    a->overrides[o->override_count++] = value;
    break;
  case KEY_ONLY:
    o->only = value;
    break;
  case KEY_THREADS:
    o->threads = cli_int(state, "--threads", value, 1, 4096);
    break;
  case KEY_SHARD:
    if (shard_parse(value, getenv, &o->shard, &o->shards)) argp_error(state, "%s", attn_last_error());
    break;
  case KEY_RETRY:
    o->retry_failed = true;
    break;
  case KEY_KEEP_STALE:
    o->keep_stale = true;
    break;
  case KEY_DRY_RUN:
    o->dry_run = true;
    break;
  case KEY_NO_HOSTNAME:
    o->no_hostname = true;
    break;
  case ARGP_KEY_ARG:
    cli_argument(state, &o->config_path, "configuration", value);
    break;
  case ARGP_KEY_END:
    cli_require(state, o->config_path, "CONFIG.yaml");
    cli_require(state, o->output, "-o NAME.h5");
    break;
  default:
    return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

static const struct argp parser = {
    .options = options,
    .parser = parse,
    .args_doc = "CONFIG.yaml -o NAME.h5",
    .doc =
        "Runs the experiment in a YAML file: verifies each variant on each input, then times it.\v"
        "A sweep that was interrupted goes on where it stopped when the same command is given again. Exit "
        "code: "
        "0 if all is "
        "well, 1 if a bound is violated, 2 for a wrong argument or configuration, 3 if a run failed, 74 if a "
        "system call "
        "failed, 75 if another sweep writes to the same file or a signal stopped this one, 130 after an "
        "interrupt."};

static int exit_code(const char *command, attn_status status, const sweep_outcome *outcome) {
  const int code = cli_report(command, status);
  if (status == ATTN_EEXIST) return EXIT_RETRY;
  if (code) return outcome->started && code == EXIT_USAGE ? EXIT_IO : code;
  if (!outcome->signal) return cli_verdict_code(outcome->violations, outcome->failures);
  fprintf(stderr, "%s: interrupted; the same command goes on where it stopped\n", command);
  return outcome->signal == SIGINT ? EXIT_INTERRUPT : EXIT_RETRY;
}

int cmd_run(int argc, char **argv) {
  arguments a = {.options = {.shards = 1, .argc = argc, .argv = argv}};
  sweep_outcome outcome = {0};
  attn_status status;
  /* No option occurs more often than there are arguments. */
  a.overrides = calloc((size_t)argc + 1, sizeof *a.overrides);
  a.plugins = calloc((size_t)argc + 1, sizeof *a.plugins);
  if (a.overrides && a.plugins) {
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    a.options.overrides = a.overrides;
    a.options.plugins = a.plugins;
    status = sweep_run(&a.options, &outcome);
  } else {
    status = attn_fail(ATTN_ENOMEM, "no memory for the arguments");
  }
  free(a.overrides);
  free(a.plugins);
  return exit_code(argv[0], status, &outcome);
}

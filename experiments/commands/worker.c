/* worker.c - attnlab worker: the process that `attnlab run' starts for a block. */
#include "experiments/commands/commands.h"

#include "experiments/commands/cli.h"
#include "experiments/runner/worker.h"

static const struct argp parser = {.doc = "Runs one block of an experiment; started by `attnlab run'.",
                                   .children = cli_plugin_children};

int cmd_worker(int argc, char **argv) {
  argp_parse(&parser, argc, argv, 0, NULL, NULL);
  return cli_report(argv[0], worker_run());
}

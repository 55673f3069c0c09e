/* worker.c - attnlab worker: the process that `attnlab run' starts for a block. */
#include "experiments/commands/commands.h"

#include "experiments/commands/cli.h"
#include "experiments/runner/worker_loop.h"

static const cli_command parser = {.plugins = true,
                                   .doc = "Runs one block of an experiment; started by `attnlab run'."};

int cmd_worker(int argc, char **argv) {
  worker_open();
  cli_parse(&parser, argc, argv, NULL);
  return cli_report(argv[0], worker_run());
}

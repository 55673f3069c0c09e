/* commands.h - the subcommands of attnlab, one function each.
 *
 * argv[0] is "attnlab NAME", so that argp's diagnostics name the subcommand; the rest are its arguments. The
 * result is the exit code: 0 ok, 1 a bound violated, 2 usage or malformed content, 3 some runs failed, 74 a
 * system call failed, 75 busy or interrupted but resumable, 130 interrupted from the keyboard. stdout carries
 * data only. */
#ifndef EXPERIMENTS_COMMANDS_COMMANDS_H
#define EXPERIMENTS_COMMANDS_COMMANDS_H

#define COMMAND(name, ...) int cmd_##name(int argc, char **argv);
#include "experiments/commands/commands.def"

#endif

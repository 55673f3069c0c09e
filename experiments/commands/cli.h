/* cli.h - what the subcommands share: exit codes, diagnostics, numbers on the command line, --plugin. */
#ifndef EXPERIMENTS_COMMANDS_CLI_H
#define EXPERIMENTS_COMMANDS_CLI_H

#include <argp.h>

#include "attn.h"

enum { EXIT_BOUND = 1, EXIT_USAGE = 2, EXIT_RUNS = 3, EXIT_IO = 74, EXIT_RETRY = 75, EXIT_INTERRUPT = 130 };

/* The exit code of a status: 74 for a failed system call or exhausted memory, 2 (the user's mistake) for
 * every other failure. */
int cli_exit_code(attn_status);

/* The exit code of results: EXIT_BOUND if any run violates a bound, else EXIT_RUNS if any failed, else 0. */
int cli_verdict_code(size_t violations, size_t failures);

/* Prints "command: <attn_last_error()>" as one line on stderr, unless the status is ATTN_OK; returns the exit
 * code. command: "attnlab apply". */
int cli_report(const char *command, attn_status);

/* Numbers as option values; a malformed or out-of-range one ends the program through argp_error with the
 * option's name (as the user writes it: "--threads"), its value and what was expected. Integers take Ki, Mi,
 * Gi. */
int64_t cli_int(struct argp_state *, const char *option, const char *text, int64_t min, int64_t max);
double cli_real(struct argp_state *, const char *option, const char *text); /* finite */

/* Sets the one argument of a command. Ends through argp_error if there is one already. */
void cli_argument(struct argp_state *, const char **value, const char *noun, const char *text);

/* Ends through argp_error, naming the option or argument that is missing. */
void cli_require(struct argp_state *, const void *value, const char *name);

/* The children of a parser that has the option --plugin FILE (repeatable), which loads at once. */
extern const struct argp_child cli_plugin_children[];

/* Flushes stdout at the end of a command. If its data did not all arrive, prints the diagnostic, unless there
 * was one before or the reader closed the pipe, and returns EXIT_IO; else returns exit_code. */
int cli_close_stdout(const char *command, int exit_code);

#endif

/* cli.h - what the subcommands share: exit codes, diagnostics, numbers on the command line, --plugin. */
#ifndef EXPERIMENTS_COMMANDS_CLI_H
#define EXPERIMENTS_COMMANDS_CLI_H

#include <argp.h>
#include <jansson.h>
#include <stdio.h>

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

/* Ends the program through argp_error with the last error. */
void cli_fail(struct argp_state *);

/* Numbers as option values; a malformed or out-of-range one ends the program through argp_error with the
 * option's name (as the user writes it: "--threads"), its value and what was expected. Integers as
 * attn_int_parse reads them. */
int64_t cli_int(struct argp_state *, const char *option, const char *text, int64_t min, int64_t max);
double cli_real(struct argp_state *, const char *option, const char *text); /* finite */

/* At least 0: "5%", "5 %" or "0.05"; from 1 on with its sign, as 5 may mean either. */
double cli_share(struct argp_state *, const char *option, const char *text);

/* f32 or f64; known: what a diagnostic says is expected. */
attn_dtype cli_dtype(struct argp_state *, const char *option, const char *text, const char *known);

/* What an option or argument sets in the command's arguments. */
typedef enum {
  CLI_TEXT,    /* const char *; an argument of this type may be given once */
  CLI_FLAG,    /* bool, to true */
  CLI_INT,     /* int64_t from min to max */
  CLI_THREADS, /* int from 1 to 4096 */
  CLI_REAL,    /* double, finite */
  CLI_OTHER,   /* what cli_command.read makes of it */
} cli_type;

typedef struct cli_option {
  const char *name;  /* without --; NULL: an argument */
  int letter;        /* of the short option, or 0 */
  const char *value; /* how the help names it; NULL: a flag */
  const char *help;  /* "": not shown; of an argument: its noun */
  cli_type type;
  size_t offset; /* in the command's arguments */
  int64_t min, max;
  const char *missing; /* how a diagnostic names it if it was not given; NULL: it may be left out */
} cli_option;

/* Where the rows of a table end: what an option sets in the struct called arguments; that it must be given;
 * the range of its integer; or that cli_command.read makes something of it. */
#define CLI_SET(type, field) type, offsetof(arguments, field), 0, 0, NULL
#define CLI_NEED(field, missing) CLI_TEXT, offsetof(arguments, field), 0, 0, missing
#define CLI_RANGE(field, min, max) CLI_INT, offsetof(arguments, field), min, max, NULL
#define CLI_READ CLI_OTHER, 0, 0, 0, NULL

typedef struct cli_command {
  const char *usage, *doc;   /* argp's args_doc and doc */
  const cli_option *options; /* ends with an empty row; NULL: none */
  bool plugins;              /* --plugin FILE, repeatable, loads variants at once */
  /* CLI_OTHER; option: "--name", NULL for an argument. complete: at the end. Either may be NULL. */
  void (*read)(struct argp_state *, void *arguments, const char *option, char *text);
  void (*complete)(struct argp_state *, void *arguments);
  void (*list)(FILE *); /* writes what stands before the last part of the doc, or NULL */
} cli_command;

/* Reads a command line into the command's arguments, which hold the defaults; a mistake ends the program
 * through argp_error. */
void cli_parse(const cli_command *, int argc, char **argv, void *arguments);

/* In complete: the first of these options, a list that ends with NULL, that was given; NULL: none. */
const char *cli_given(const struct argp_state *, const char *const *wanted);

/* Writes " --plugin FILE" for each plug-in of the command line, as words of the shell. */
void cli_put_plugins(FILE *);

/* Ends through argp_error, naming the option or argument that is missing. */
void cli_require(struct argp_state *, const void *value, const char *name);

/* The name of a JSON member as a label: "in use" of in_use. Returns text. */
const char *cli_label(const char *name, char *text, size_t size);
/* One JSON document on stdout, indented. */
attn_status cli_print_json(const json_t *);

/* Flushes stdout at the end of a command. If its data did not all arrive, prints the diagnostic, unless there
 * was one before or the reader closed the pipe, and returns EXIT_IO; else returns exit_code. */
int cli_close_stdout(const char *command, int exit_code);

#endif

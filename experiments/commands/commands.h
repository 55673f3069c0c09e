/* commands.h - the subcommands of attnlab, one function each.
 *
 * argv[0] is "attnlab NAME", so that argp's diagnostics name the subcommand; the rest are its arguments. The
 * result is the exit code: 0 ok, 1 a bound violated, 2 usage or malformed content, 3 some runs failed, 74 a
 * system call failed, 75 busy or interrupted but resumable, 130 interrupted from the keyboard. stdout carries
 * data only. */
#ifndef EXPERIMENTS_COMMANDS_COMMANDS_H
#define EXPERIMENTS_COMMANDS_COMMANDS_H

int cmd_advise(int argc, char **argv);
int cmd_apply(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_capture(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_claims(int argc, char **argv);
int cmd_describe(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_matrix(int argc, char **argv);
int cmd_merge(int argc, char **argv);
int cmd_pattern(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_ring(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_worker(int argc, char **argv); /* started by cmd_run; not listed in the help */

#endif

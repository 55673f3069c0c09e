/* terminal.h - a pseudo terminal with a program on it, and a model of what its user sees. */
#ifndef TESTS_SUPPORT_TERMINAL_H
#define TESTS_SUPPORT_TERMINAL_H

#include <stddef.h>
#include <sys/types.h>

enum { TERMINAL_ROWS = 64, TERMINAL_COLUMNS = 256 };

typedef struct terminal {
  int columns, rows, row, column;
  char cells[TERMINAL_ROWS][TERMINAL_COLUMNS + 1]; /* each row a text without blanks at its end */
  int broken;                                      /* lines that were longer than a row */
  int unexpected;      /* control characters and sequences other than those of live.h */
  int colours;         /* sequences that set one */
  char bytes[1 << 20]; /* all that was written, ends with a NUL */
  size_t count;
} terminal;

/* Runs work(context) in a child whose standard descriptors are a terminal of that size, the child's own; its
 * result is the exit code. When `awaited` has been written, `typed` is typed; both may be NULL. Returns the
 * exit code, or 128 + signal. */
int terminal_run(terminal *, int columns, int rows, int (*work)(void *), void *context, const char *awaited,
                 const char *typed);

/* Shows the first `count` bytes of what was written on an empty screen. */
void terminal_show(terminal *, size_t count);

#endif

/* status_line.h - one line on the terminal of stderr that is redrawn in place.
 *
 * Between two drawings the cursor waits at the first character of the line, so that a shell, a message or a
 * process that is killed needs no undoing. What other processes print goes through a pipe and appears above
 * the line. */
#ifndef EXPERIMENTS_SUPPORT_STATUS_LINE_H
#define EXPERIMENTS_SUPPORT_STATUS_LINE_H

#include <stdbool.h>

typedef struct status_line {
  bool on;      /* stderr is a terminal that understands sequences (TERM is set, and not "dumb") */
  bool partial; /* the last message has not ended its line */
  int pipe[2];  /* of messages; what is written to pipe[1] appears above the line. 0: there is none */
} status_line;

/* Finds out whether there is a terminal. The functions below do nothing if there is none. */
void status_line_open(status_line *);
/* Prints the messages that have come; true: the status line must be drawn again. */
bool status_line_messages(status_line *);
/* Draws the text in place of the last one, cut at the width of the terminal. */
void status_line_draw(status_line *, const char *text);
/* Prints the last messages and removes the line. */
void status_line_close(status_line *);

/* Makes a text fit for a terminal or a log: what is not printable ASCII becomes '?'. */
char *status_line_printable(char *text);

#endif

/* live.h - a block of lines on the terminal of stderr that is redrawn in place.
 *
 * Between two drawings the cursor, which is never hidden, waits at the first character of the block. All that
 * has to be undone is then below it, however the terminal was resized and the lines were broken anew, and a
 * process that is killed leaves nothing behind but text. What other processes print goes through a pipe and
 * appears above the block. */
#ifndef EXPERIMENTS_SUPPORT_LIVE_H
#define EXPERIMENTS_SUPPORT_LIVE_H

#include <stdbool.h>
#include <stddef.h>

enum { LIVE_TEXT = 256 };

typedef enum { LIVE_PLAIN, LIVE_BOLD, LIVE_DOUBT, LIVE_BAD } live_style;

typedef struct live_line {
  char text[LIVE_TEXT];
  live_style style; /* a colour, unless NO_COLOR is set */
} live_line;

typedef struct live {
  bool on;     /* stderr is a terminal that understands sequences (TERM is set, and not "dumb") */
  int pipe[2]; /* of messages; what is written to pipe[1] appears above the block. 0: there is none */
  char message[LIVE_TEXT]; /* the beginning of a line that has not ended */
  size_t message_length;
} live;

/* Finds out whether there is a terminal. Nothing else below does anything if there is none. */
void live_open(live *);
/* Of the terminal; what it does not tell is taken from COLUMNS and LINES, else it is 80 by 24. */
void live_size(int *columns, int *rows);
/* Prints the messages that have come, in lines, and stops the program if ^Z was typed. Returns whether the
 * block must be drawn again. To be called several times a second. */
bool live_messages(live *);
/* Draws the block in place of the last one. Lines are cut at the width of the terminal. */
void live_draw(live *, const live_line *, size_t count);
/* Prints the last messages and removes the block. */
void live_close(live *);

/* Makes a text fit for a terminal or a log: what is not printable ASCII becomes '?'. */
void live_clean(char *text);

#endif

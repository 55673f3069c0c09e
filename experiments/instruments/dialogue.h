/* dialogue.h - another program that answers lines: its standard input and output are one socket. */
#ifndef EXPERIMENTS_INSTRUMENTS_DIALOGUE_H
#define EXPERIMENTS_INSTRUMENTS_DIALOGUE_H

#include <sys/types.h>

#include "attn.h"

typedef struct dialogue {
  pid_t pid; /* 0: it was not started here */
  int socket;
} dialogue;

/* Starts a program, found along PATH, with arguments that NULL ends. EFOREIGN. */
attn_status dialogue_start(char *const *arguments, dialogue *);

/* Sends a question, which ends in a newline, unless it is NULL, and takes the next line that the program
 * writes, without its newline. EFOREIGN: it ended, it wrote a longer line, or it took more seconds than this
 * (INFINITY: it may take any time). */
attn_status dialogue_ask(const dialogue *, const char *question, double seconds, char *answer, size_t size);

/* Closes the socket, and waits for the program that was started; one that has not ended some seconds later is
 * killed. Returns its exit code, 0 where it has none. */
int dialogue_end(dialogue *);

#endif

/* command.h - drives the built attnlab program, as a user at a shell would. */
#ifndef TESTS_SUPPORT_COMMAND_H
#define TESTS_SUPPORT_COMMAND_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "tests/support/basics/text.h"
#include "tests/support/files.h"

typedef struct command_result {
  int exit_code;              /* 128 + signal if a signal ended it */
  char out[65536], err[4096]; /* what it printed, cut to fit */
} command_result;

extern command_result result; /* of what ran last */

#define expect_says(text, part) cr_expect(strstr(text, part), "'%s' is missing from\n%s", part, text)

/* Makes a temporary directory and enters it; command_leave removes it and all that is in it. */
void command_enter(void);
void command_leave(void);

/* Runs "attnlab <arguments>", split at blanks, in the current directory. */
void command_run(const char *arguments, command_result *);

/* Runs it into `result`, and asserts exit code 0. */
static inline void command_run_good(const char *arguments) {
  command_run(arguments, &result);
  cr_assert(result.exit_code == 0, "attnlab %s: exit %d\n%s", arguments, result.exit_code, result.err);
}

/* Starts it, without an input; what it prints is lost. */
pid_t command_start(const char *arguments);

/* Waits for the end of a program; its exit code, or 128 + signal. */
int command_exit_of(pid_t child);

/* Number of diagnostic lines on stderr: all but "Try ..." ones and those that say how tensors were read. */
int command_diagnostics(const command_result *);

void command_write_text(const char *name, const char *text);

/* A copy as a new build would leave it: another file of the same name, which may be executed. */
static inline void command_replace(const char *from, const char *to) {
  size_t size;
  void *bytes = fixture_bytes(from, &size);
  fixture_write("new", bytes, size);
  free(bytes);
  cr_assert(chmod("new", 0700) == 0 && rename("new", to) == 0, "%s", to);
}

/* Writes a .npy of the given header dictionary followed by `size` bytes. */
void command_write_npy(const char *name, const char *dictionary, const void *bytes, size_t size);

/* Writes safetensors: the header's length, the header, `size` zero bytes. */
void command_write_safetensors(const char *name, const char *header, size_t size);

#endif

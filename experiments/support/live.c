/* live.c - see live.h. Sequences: ECMA-48, which every terminal since the VT100 understands. */
#define _GNU_SOURCE /* pipe2 */
#include "experiments/support/live.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REMOVE_BELOW "\r\033[J"

static const char *const colours[] = {
    [LIVE_PLAIN] = "", [LIVE_BOLD] = "\033[1m", [LIVE_DOUBT] = "\033[33m", [LIVE_BAD] = "\033[31m"};

static volatile sig_atomic_t suspended; /* ^Z was typed */

static void note_suspension(int number) { suspended = number; }

static void on_suspension(void (*handler)(int)) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGTSTP, &action, NULL);
}

static bool is_set(const char *name) {
  const char *value = getenv(name);
  return value && *value;
}

void live_open(live *l) {
  *l = (live){.on = isatty(STDERR_FILENO) == 1 && is_set("TERM") && strcmp(getenv("TERM"), "dumb") != 0};
  if (l->on) on_suspension(note_suspension);
  if (!l->on || pipe2(l->pipe, O_CLOEXEC) != 0) return;
  /* Only the reading end: the writers shall wait. */
  fcntl(l->pipe[0], F_SETFL, O_NONBLOCK);
}

static int size_from(unsigned told, const char *name, int otherwise) {
  const char *text = getenv(name);
  const int value = told ? (int)told : text ? atoi(text) : 0;
  return value > 0 ? value : otherwise;
}

void live_size(int *columns, int *rows) {
  struct winsize size = {0};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0) size = (struct winsize){0};
  *columns = size_from(size.ws_col, "COLUMNS", 80);
  *rows = size_from(size.ws_row, "LINES", 24);
}

void live_clean(char *text) {
  for (; *text; text++)
    if (*text < ' ' || *text > '~') *text = '?';
}

/* Clears the terminal for the shell before the program stops. */
static bool suspend(void) {
  if (!suspended) return false;
  suspended = 0;
  fputs(REMOVE_BELOW, stderr);
  raise(SIGSTOP);
  return true;
}

static void end_message(live *l) {
  l->message[l->message_length] = '\0';
  live_clean(l->message);
  fprintf(stderr, REMOVE_BELOW "%s\n", l->message);
  l->message_length = 0;
}

bool live_messages(live *l) {
  char text[4096];
  ssize_t count;
  bool any = l->on && suspend();
  if (!l->pipe[1]) return any;
  while ((count = read(l->pipe[0], text, sizeof text)) > 0)
    for (ssize_t i = 0; i < count; i++) {
      const bool ends = text[i] == '\n';
      /* A NUL would end the line, and hide the rest of it. */
      if (!ends) l->message[l->message_length++] = text[i] ? text[i] : '?';
      if (!ends && l->message_length < LIVE_TEXT - 1) continue;
      end_message(l);
      any = true;
    }
  return any;
}

void live_draw(live *l, const live_line *lines, size_t count) {
  if (!l->on) return;
  const bool coloured = !is_set("NO_COLOR");
  int columns, rows;
  char *frame = NULL;
  size_t size = 0;
  live_size(&columns, &rows);
  FILE *stream = open_memstream(&frame, &size);
  if (!stream) return;
  fputc('\r', stream);
  for (size_t i = 0; i < count; i++) {
    char text[LIVE_TEXT];
    /* One less than there are: after the last column terminals differ. */
    snprintf(text, columns < LIVE_TEXT ? (size_t)columns : LIVE_TEXT, "%s", lines[i].text);
    live_clean(text);
    const char *colour = coloured ? colours[lines[i].style] : "";
    fprintf(stream, "%s%s%s%s\033[K", i ? "\r\n" : "", colour, text, *colour ? "\033[m" : "");
  }
  fputs("\033[J\r", stream);
  if (count > 1) fprintf(stream, "\033[%zuA", count - 1);
  /* In one piece, so that nothing else comes between. */
  if (fclose(stream) == 0) fwrite(frame, 1, size, stderr);
  free(frame);
}

void live_close(live *l) {
  if (!l->on) return;
  live_messages(l);
  if (l->message_length) end_message(l);
  fputs(REMOVE_BELOW, stderr);
  on_suspension(SIG_DFL);
  if (l->pipe[1]) {
    close(l->pipe[0]);
    close(l->pipe[1]);
  }
  *l = (live){.on = false};
}

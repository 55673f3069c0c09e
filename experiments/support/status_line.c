/* status_line.c - the line is drawn with ECMA-48, which every terminal since the VT100 understands. */
#define _GNU_SOURCE /* pipe2 */
#include "experiments/support/status_line.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define CLEAR "\r\033[J" /* also what a line has left below, after the terminal was made narrower */

void status_line_open(status_line *l) {
  const char *term = getenv("TERM");
  *l = (status_line){.on = isatty(STDERR_FILENO) == 1 && term && *term && strcmp(term, "dumb") != 0};
  if (!l->on || pipe2(l->pipe, O_CLOEXEC)) return;
  /* Only the reading end does not block: writers wait until there is room. */
  fcntl(l->pipe[0], F_SETFL, O_NONBLOCK);
}

static char printable_of(char c) { return c < ' ' || c > '~' ? '?' : c; }

char *status_line_printable(char *text) {
  for (char *c = text; *c; c++) *c = printable_of(*c);
  return text;
}

bool status_line_messages(status_line *l) {
  char text[4096];
  ssize_t count;
  bool any = false;
  if (!l->pipe[1]) return false;
  while ((count = read(l->pipe[0], text, sizeof text)) > 0) {
    if (!l->partial) fputs(CLEAR, stderr);
    for (ssize_t i = 0; i < count; i++)
      if (text[i] != '\n') text[i] = printable_of(text[i]);
    fwrite(text, 1, (size_t)count, stderr);
    l->partial = text[count - 1] != '\n';
    any = true;
  }
  return any;
}

static void end_message(status_line *l) {
  if (l->partial) fputc('\n', stderr);
  l->partial = false;
}

static int width(void) {
  struct winsize size = {0};
  const char *columns = getenv("COLUMNS");
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col) return size.ws_col;
  return columns && atoi(columns) > 0 ? atoi(columns) : 80;
}

void status_line_draw(status_line *l, const char *text) {
  char line[512];
  const int columns = width();
  if (!l->on) return;
  end_message(l);
  /* One character less than there are columns: terminals differ in what they do after the last one. */
  snprintf(line, columns < (int)sizeof line ? (size_t)columns : sizeof line, "%s", text);
  fprintf(stderr, CLEAR "%s\r", status_line_printable(line));
}

void status_line_close(status_line *l) {
  if (!l->on) return;
  status_line_messages(l);
  end_message(l);
  fputs(CLEAR, stderr);
  if (l->pipe[1]) {
    close(l->pipe[0]);
    close(l->pipe[1]);
  }
  *l = (status_line){.on = false};
}

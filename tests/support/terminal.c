/* terminal.c - see terminal.h. A step of the set-up that fails ends the test by assertion. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE /* struct winsize */
#include "tests/support/terminal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void require(int ok, const char *what) {
  if (ok) return;
  perror(what);
  abort();
}

static void become(const char *path, int columns, int rows) {
  setsid();
  const int slave = open(path, O_RDWR);
  const struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
  require(slave >= 0 && ioctl(slave, TIOCSCTTY, 0) == 0 && ioctl(slave, TIOCSWINSZ, &size) == 0, path);
  for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++) dup2(slave, i);
  if (slave > STDERR_FILENO) close(slave);
}

int terminal_run(terminal *t, int columns, int rows, int (*work)(void *), void *context, const char *awaited,
                 const char *typed) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  require(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0, "posix_openpt");
  const char *path = ptsname(master);
  const pid_t child = fork();
  require(path && child >= 0, "fork");
  if (child == 0) {
    become(path, columns, rows);
    _exit(work(context));
  }
  ssize_t count;
  *t = (terminal){.columns = columns, .rows = rows};
  /* At the end of the last process on the terminal reading fails. */
  while ((count = read(master, t->bytes + t->count, sizeof t->bytes - 1 - t->count)) > 0) {
    t->count += (size_t)count;
    t->bytes[t->count] = '\0';
    if (!typed || !strstr(t->bytes, awaited)) continue;
    require(write(master, typed, strlen(typed)) > 0, "write");
    typed = NULL;
  }
  int status;
  require(waitpid(child, &status, 0) == child, "waitpid");
  close(master);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void line_feed(terminal *t) {
  if (++t->row < t->rows) return;
  t->row--;
  memmove(t->cells[0], t->cells[1], (size_t)t->row * sizeof *t->cells);
  memset(t->cells[t->row], 0, sizeof *t->cells);
}

static void put(terminal *t, char c) {
  if (t->column == t->columns) {
    t->broken++;
    t->column = 0;
    line_feed(t);
  }
  char *cells = t->cells[t->row];
  for (int i = 0; i < t->column; i++)
    if (!cells[i]) cells[i] = ' ';
  cells[t->column++] = c;
}

/* Behind ESC; returns the number of bytes. */
static size_t sequence(terminal *t, const char *text) {
  size_t length = strspn(text + 1, "0123456789;") + 1;
  const int value = atoi(text + 1);
  if (text[0] != '[') {
    t->unexpected++;
    return 0;
  }
  switch (text[length++]) {
  case 'A':
    t->row = value > 0 && value <= t->row ? t->row - value : 0;
    break;
  case 'J':
    for (int i = t->row + 1; i < t->rows; i++) memset(t->cells[i], 0, sizeof *t->cells);
    /* fall through */
  case 'K':
    t->unexpected += value != 0;
    memset(t->cells[t->row] + t->column, 0, (size_t)(TERMINAL_COLUMNS - t->column));
    break;
  case 'm':
    t->colours++;
    break;
  default:
    t->unexpected++;
  }
  return length;
}

void terminal_show(terminal *t, size_t count) {
  memset(t->cells, 0, sizeof t->cells);
  t->row = t->column = t->broken = t->unexpected = t->colours = 0;
  for (size_t i = 0; i < count; i++) {
    const char c = t->bytes[i];
    if (c == '\r')
      t->column = 0;
    else if (c == '\n')
      line_feed(t);
    else if (c == '\033')
      i += sequence(t, t->bytes + i + 1);
    else if (c < ' ' || c > '~')
      t->unexpected++;
    else
      put(t, c);
  }
  for (int i = 0; i < t->rows; i++)
    for (size_t length = strlen(t->cells[i]); length && t->cells[i][length - 1] == ' ';)
      t->cells[i][--length] = '\0';
}

/* progress.c - see progress.h. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <unistd.h>

#include "progress.h"
#include "timing.h"

static const double TERMINAL_PERIOD = 0.2, LOG_PERIOD = 30;

void progress_start(progress *p, size_t runs, double work, bool quiet) {
  *p = (progress){.terminal = isatty(STDERR_FILENO) == 1, .quiet = quiet, .runs = runs, .work = work};
  p->start = p->shown = timing_now();
}

void progress_advance(progress *p, double work) {
  p->done++;
  p->worked += work;
}

static void print_duration(double seconds) {
  const long total = (long)seconds;
  if (total >= 3600)
    fprintf(stderr, "%ld h %02ld min", total / 3600, total / 60 % 60);
  else if (total >= 60)
    fprintf(stderr, "%ld min %02ld s", total / 60, total % 60);
  else
    fprintf(stderr, "%ld s", total);
}

void progress_tick(progress *p, const char *what) {
  const double now = timing_now();
  if (p->quiet || now - p->shown < (p->terminal ? TERMINAL_PERIOD : LOG_PERIOD)) return;
  p->shown = now;
  fprintf(stderr, "%s%zu/%zu runs", p->terminal ? "\r\033[K" : "", p->done, p->runs);
  if (p->worked > 0) {
    fprintf(stderr, ", ");
    print_duration((now - p->start) * (p->work - p->worked) / p->worked);
    fprintf(stderr, " left");
  }
  fprintf(stderr, ", %.*s%s", p->terminal ? 48 : 400, what, p->terminal ? "" : "\n");
  fflush(stderr);
}

void progress_stop(progress *p) {
  if (p->terminal && !p->quiet) fputs("\r\033[K", stderr);
}

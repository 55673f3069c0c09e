/* progress.c - the text of the status line, and the times at which it is shown. */
#include "experiments/runner/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "experiments/instruments/timing.h"

enum { TEXT = 512 };

static const double TERMINAL_PERIOD = 0.2, LOG_PERIOD = 30;

void progress_start(progress *p, size_t runs, double work, bool seconds, bool quiet) {
  *p = (progress){.quiet = quiet, .runs = runs, .work = work, .seconds = seconds};
  if (!quiet) status_line_open(&p->line);
  p->start = p->advanced = p->shown = timing_now();
}

void progress_advance(progress *p, double work, const result_row *row) {
  p->done++;
  p->worked += work;
  p->advanced = timing_now();
  if (row->status == RUN_OK)
    p->verdicts[row->verdict]++;
  else
    p->failed += row->status != RUN_UNSUPPORTED && row->status != RUN_SKIPPED;
}

static void put_duration(char *out, size_t size, double seconds) {
  const long total = (long)seconds;
  if (total >= 3600)
    snprintf(out, size, "%ld h %02ld min", total / 3600, total / 60 % 60);
  else if (total >= 60)
    snprintf(out, size, "%ld min %02ld s", total / 60, total % 60);
  else
    snprintf(out, size, "%ld s", total);
}

/* Seconds that are left, by the pace until the last run ended; NaN before the first has ended, unless the
 * estimates are seconds. */
static double left(const progress *p, double now) {
  if (!(p->worked > 0) && !p->seconds) return (double)NAN;
  const double pace = p->worked > 0 ? (p->advanced - p->start) / p->worked : 1;
  return fmax(0, pace * (p->work - p->worked) - (now - p->advanced));
}

/* "43 %, 57/132 runs, after 12 s, 17 s left; 1 violated, 2 failed, 40 pass, 9 consistent, 5 uncertifiable;
 * full, gaussian n=512". The percentage is one of the work, not of the runs, which differ by orders of
 * magnitude. */
static void describe(const progress *p, const grid_block *block, const grid_run *run, double now,
                     char out[TEXT]) {
  const size_t *v = p->verdicts;
  const double part = p->work > 0 ? fmin(1, p->worked / p->work) : 0, seconds = left(p, now);
  char elapsed[32], rest[32], unchecked[48] = "";
  put_duration(elapsed, sizeof elapsed, now - p->start);
  put_duration(rest, sizeof rest, isnan(seconds) ? 0 : seconds);
  if (v[VERDICT_UNCHECKED]) snprintf(unchecked, sizeof unchecked, ", %zu unchecked", v[VERDICT_UNCHECKED]);
  snprintf(out, TEXT,
           "%.0f %%, %zu/%zu runs, after %s%s%s%s; %zu violated, %zu failed, %zu pass, %zu consistent, "
           "%zu uncertifiable%s; %s%s%s n=%" PRId64 "%s",
           100 * part, p->done, p->runs, elapsed, isnan(seconds) ? "" : ", ", isnan(seconds) ? "" : rest,
           isnan(seconds) ? "" : " left", v[VERDICT_VIOLATED], v[VERDICT_ERROR] + p->failed, v[VERDICT_PASS],
           v[VERDICT_CONSISTENT], v[VERDICT_UNCERTIFIABLE], unchecked, run ? grid_run_text(run) : "",
           run ? ", " : "", block->dataset, block->n, block->causal ? " causal" : "");
}

void progress_tick(progress *p, const grid_block *block, const grid_run *run) {
  const double now = timing_now();
  const bool again = status_line_messages(&p->line);
  if (p->quiet || (!again && now - p->shown < (p->line.on ? TERMINAL_PERIOD : LOG_PERIOD))) return;
  char text[TEXT];
  p->shown = now;
  describe(p, block, run, now, text);
  if (p->line.on)
    status_line_draw(&p->line, text);
  else
    fprintf(stderr, "%s\n", status_line_printable(text));
}

void progress_stop(progress *p) { status_line_close(&p->line); }

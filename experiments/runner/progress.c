/* progress.c - what the progress of a sweep is, and when it is shown. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/runner/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/support/table.h"
#include "experiments/instruments/timing.h"

enum { HEAD_LINES = 5, BLOCK_LINES = HEAD_LINES + PROGRESS_ROWS };

static const double TERMINAL_PERIOD = 0.2, LOG_PERIOD = 30;

void progress_start(progress *p, size_t runs, size_t blocks, double work, bool seconds, bool quiet) {
  *p = (progress){.quiet = quiet, .runs = runs, .blocks = blocks, .work = work, .seconds = seconds};
  if (!quiet) live_open(&p->live);
  p->start = p->advanced = p->shown = timing_now();
}

void progress_block(progress *p, const grid_block *block, size_t place) {
  p->block = block;
  p->place = place;
}

static live_style style_of(const result_row *row) {
  if (row->status == RUN_UNSUPPORTED || row->status == RUN_SKIPPED) return LIVE_PLAIN;
  if (row->status != RUN_OK || row->verdict == VERDICT_VIOLATED || row->verdict == VERDICT_ERROR)
    return LIVE_BAD;
  return row->verdict == VERDICT_UNCERTIFIABLE ? LIVE_DOUBT : LIVE_PLAIN;
}

void progress_advance(progress *p, double work, const grid_run *run, const result_row *row) {
  progress_row *r = &p->rows[p->done++ % PROGRESS_ROWS];
  p->worked += work;
  p->advanced = timing_now();
  *r = (progress_row){.n = row->n, .style = style_of(row)};
  snprintf(r->spec, sizeof r->spec, "%s", run->spec);
  short_number(row->err_rel_fro, r->error);
  short_time(row->time_median, r->time);
  r->outcome = row->status == RUN_OK ? check_verdict_names[row->verdict] : run_status_names[row->status];
  if (row->status == RUN_OK)
    p->verdicts[row->verdict]++;
  else
    p->failed += r->style == LIVE_BAD;
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

/* Seconds that are left, by what has been done until the last run ended; NaN before anything has. */
static double left(const progress *p, double now) {
  if (!(p->worked > 0) && !p->seconds) return (double)NAN;
  const double pace = p->worked > 0 ? (p->advanced - p->start) / p->worked : 1;
  return fmax(0, pace * (p->work - p->worked) - (now - p->advanced));
}

/* "57/132 runs, 12 s, 17 s left" */
static void put_state(char *out, size_t size, const progress *p, double now) {
  char elapsed[32], rest[32];
  const double seconds = left(p, now);
  put_duration(elapsed, sizeof elapsed, now - p->start);
  put_duration(rest, sizeof rest, isnan(seconds) ? 0 : seconds);
  snprintf(out, size, isnan(seconds) ? "%zu/%zu runs, %s" : "%zu/%zu runs, %s, %s left", p->done, p->runs,
           elapsed, rest);
}

/* Fractions of the work, not of the runs, which differ by orders of magnitude. */
static void put_bar(live_line *line, const progress *p, int columns, double now) {
  char state[100], bar[32] = "";
  const double part = p->work > 0 ? fmin(1, p->worked / p->work) : 0;
  const int width = columns >= 64 ? 20 : 0, full = (int)(part * width);
  if (width) {
    memset(bar, '.', sizeof bar);
    memset(bar + 1, '#', (size_t)full);
    bar[0] = '[';
    snprintf(bar + width + 1, sizeof bar - (size_t)width - 1, "] ");
  }
  put_state(state, sizeof state, p, now);
  snprintf(line->text, sizeof line->text, "%s%3.0f %%  %s", bar, 100 * part, state);
  line->style = LIVE_BOLD;
}

static void put_block(live_line *line, const progress *p) {
  const grid_block *b = p->block;
  snprintf(line->text, sizeof line->text, "block   %zu/%zu: n=%" PRId64 "%s %s threads=%" PRId64 "%s %s",
           p->place + 1, p->blocks, b->n, b->causal ? " causal" : "", b->dtype ? "f64" : "f32", b->threads,
           b->cache == CACHE_COLD ? " cold" : "", b->dataset);
}

static void put_verdicts(live_line *line, const progress *p) {
  const size_t *v = p->verdicts, bad = v[VERDICT_VIOLATED] + v[VERDICT_ERROR] + p->failed;
  snprintf(line->text, sizeof line->text,
           "so far  %zu violated, %zu failed, %zu pass, %zu consistent, %zu uncertifiable",
           v[VERDICT_VIOLATED], v[VERDICT_ERROR] + p->failed, v[VERDICT_PASS], v[VERDICT_CONSISTENT],
           v[VERDICT_UNCERTIFIABLE]);
  line->style = bad ? LIVE_BAD : v[VERDICT_UNCERTIFIABLE] ? LIVE_DOUBT : LIVE_PLAIN;
}

/* The columns behind a name take 42; the name has the rest. */
static int name_width(int columns) { return columns > 103 ? 60 : columns > 59 ? columns - 43 : 16; }

static void put_row(live_line *line, const progress_row *r, int columns) {
  const int width = name_width(columns);
  snprintf(line->text, sizeof line->text, "%-*.*s %-14s %8" PRId64 " %8s %8s", width, width, r->spec,
           r->outcome, r->n, r->error, r->time);
  line->style = r->style;
}

static void show(progress *p, const grid_run *run, double now) {
  live_line lines[BLOCK_LINES] = {{{0}, LIVE_PLAIN}};
  int columns, rows;
  live_size(&columns, &rows);
  put_bar(&lines[0], p, columns, now);
  if (rows <= BLOCK_LINES || !p->block) {
    live_draw(&p->live, lines, 1);
    return;
  }
  size_t count = HEAD_LINES;
  const int width = name_width(columns);
  put_block(&lines[1], p);
  snprintf(lines[2].text, sizeof lines[2].text, "run     %s", run ? run->spec : "-");
  put_verdicts(&lines[3], p);
  snprintf(lines[4].text, sizeof lines[4].text, "%-*s %-14s %8s %8s %8s", width, "last", "verdict", "n",
           "error", "time");
  for (size_t i = p->done > PROGRESS_ROWS ? p->done - PROGRESS_ROWS : 0; i < p->done; i++)
    put_row(&lines[count++], &p->rows[i % PROGRESS_ROWS], columns);
  live_draw(&p->live, lines, count);
}

void progress_tick(progress *p, const grid_run *run) {
  const double now = timing_now();
  const bool again = live_messages(&p->live);
  if (p->quiet || (!again && now - p->shown < (p->live.on ? TERMINAL_PERIOD : LOG_PERIOD))) return;
  p->shown = now;
  if (p->live.on) {
    show(p, run, now);
    return;
  }
  char state[100], block[LIVE_TEXT];
  put_state(state, sizeof state, p, now);
  snprintf(block, sizeof block, "%s n=%" PRId64 "%s", p->block->dataset, p->block->n,
           p->block->causal ? " causal" : "");
  live_clean(block);
  fprintf(stderr, "%s, %s\n", state, block);
}

void progress_stop(progress *p) {
  if (p->live.on) show(p, NULL, timing_now());
  live_close(&p->live);
}

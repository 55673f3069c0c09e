/* drawn_run.c - drawn problems judged one after another in a process of their own, and a failure made
 * small. */
#include "experiments/conformance/drawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/support/forked_probe.h"
#include "experiments/conformance/shrink.h"
#include "experiments/instruments/timing.h"

/* Seconds that smaller problems are sought for: of processor time, and of the wall clock for what waits. */
static const double shrink_most = 15, shrink_wall = 300;

/* What the child tells of each problem. */
typedef struct message {
  int64_t place;
  finding found, refused; /* refused: of the problem as it was drawn */
  problem of;             /* what was judged */
  char error[160];        /* of this program, "": none */
} message;

typedef struct run {
  const attn_spec *spec;
  const problem *problems;
  int64_t count;
  const drawn_options *options;
  drawn_result *to;
  attn_status status;
  char error[160];
  double spent, until; /* processor time so far; the end of the shrinking */
} run;

/* Where a variant refuses an unusual scale the problem is worth judging without it. */
static attn_status judge_drawn(const run *r, int64_t place, message *m) {
  *m = (message){.place = place, .of = r->problems[place]};
  attn_status status = problem_judge(r->spec, &m->of, &m->found);
  if (status || m->found.kind != FINDING_REFUSED) return status;
  m->refused = m->found;
  if (m->of.value[FIELD_SCALE] == SCALE_ROOT) return ATTN_OK;
  m->of.value[FIELD_SCALE] = SCALE_ROOT;
  return problem_judge(r->spec, &m->of, &m->found);
}

static void work(void *opaque, size_t item, int to) {
  const run *r = opaque;
  const double most = r->options->seconds;
  bool sent = true;
  (void)item;
  for (int64_t i = 0; sent && i < r->count; i++) {
    message m;
    if (most > 0 && (double)clock() > most * CLOCKS_PER_SEC) return;
    const attn_status status = judge_drawn(r, i, &m);
    if (status) snprintf(m.error, sizeof m.error, "%s", attn_last_error());
    sent = probe_send(to, &m, sizeof m) && !status;
  }
}

/* A message without its numbers, by which others of its kind are told. */
static void without_numbers(const char *text, char *out, size_t size) {
  size_t used = 0;
  for (; *text && used + 1 < size; text++)
    if (!strchr("0123456789.-", *text)) out[used++] = *text;
  out[used] = 0;
}

static void note_reason(drawn_result *to, const char *reason) {
  const size_t used = strlen(to->reasons);
  char kind[FINDING_TEXT], known[sizeof to->reasons];
  without_numbers(reason, kind, sizeof kind);
  without_numbers(to->reasons, known, sizeof known);
  if (strstr(known, kind) || used + strlen(reason) + 3 > sizeof to->reasons) return;
  snprintf(to->reasons + used, sizeof to->reasons - used, "%s%s", used ? "; " : "", reason);
}

static bool take(void *opaque, size_t item, const void *at) {
  run *r = opaque;
  drawn_result *to = r->to;
  message m;
  (void)item;
  memcpy(&m, at, sizeof m);
  if (*m.error) {
    snprintf(r->error, sizeof r->error, "%s", m.error);
    return false;
  }
  to->tried++;
  to->alone += m.found.kind == FINDING_CONSISTENT && !m.found.vacuous;
  to->loose += m.found.loose;
  to->vacuous += m.found.vacuous;
  if (m.refused.kind == FINDING_REFUSED) {
    to->refused++;
    note_reason(to, m.refused.text);
  }
  if (!finding_failed(&m.found)) return true;
  to->failed = m.place;
  to->smallest = m.of;
  to->found = m.found;
  return false;
}

/* Runs the problems until one fails; what befell the process counts as the failure of the one it was at. */
static attn_status run_all(run *r) {
  const probe_job job = {.items = 1,
                         .message = sizeof(message),
                         .limit = r->options->limit,
                         .context = r,
                         .work = work,
                         .take = take};
  probe_result end;
  attn_status status = probe_run(&job, &end);
  if (status) return status;
  r->spent += end.seconds;
  if (*r->error) return attn_fail(ATTN_ENOMEM, "%s", r->error);
  if (end.end != PROBE_LOST && end.end != PROBE_ENDLESS) return ATTN_OK;
  r->to->smallest = r->problems[r->to->tried];
  r->to->failed = r->to->tried++;
  r->to->found.kind = FINDING_ERROR;
  r->to->endless = end.end == PROBE_ENDLESS;
  snprintf(r->to->found.text, sizeof r->to->found.text, "it %s", end.text);
  return ATTN_OK;
}

static bool more(void *opaque) {
  const run *r = opaque;
  return r->spent < shrink_most && timing_now() < r->until;
}

static bool fails(void *opaque, const problem *p) {
  run *outer = opaque;
  drawn_options options = *outer->options;
  drawn_result result = {.failed = -1};
  options.seconds = 0;
  run r = {.spec = outer->spec, .problems = p, .count = 1, .options = &options, .to = &result};
  const attn_status status = run_all(&r);
  outer->spent += r.spent;
  if (status || result.failed < 0) return false;
  outer->to->found = result.found;
  return true;
}

attn_status drawn_run(const attn_spec *spec, const problem *problems, int64_t count,
                      const drawn_options *options, drawn_result *out) {
  drawn_result result = {.count = count, .failed = -1};
  run r = {.spec = spec, .problems = problems, .count = count, .options = options, .to = &result};
  const attn_status status = run_all(&r);
  if (status) return status;
  if (result.failed >= 0) {
    r.spent = 0;
    r.until = timing_now() + shrink_wall;
    result.shrunk = !result.endless && count > 1;
    if (result.shrunk) problem_shrink(&(shrinking){fails, more, &r}, &result.smallest);
  }
  *out = result;
  return ATTN_OK;
}

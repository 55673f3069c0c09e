/* times.c - what was found, timed in turns with exact attention in a child process. A setting that ends
 * the process is left out, and the others begin again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/forked_probe.h"
#include "experiments/advice/attempt.h"
#include "experiments/advice/survey.h"
#include "experiments/analysis/doubts.h"
#include "experiments/instruments/timing.h"

enum { ROUNDS = 3 }; /* turns of a setting at least, unless one execution exceeds a quarter of the limit */
enum { EXACT = -1 }; /* in place of a setting's number */

typedef enum { SAID_TURN, SAID_TIME, SAID_LEFT_OUT, SAID_END } said;

typedef struct message {
  said kind;
  int64_t of; /* the setting */
  double time, time_lo, time_hi;
  unsigned doubts;
  attn_status status; /* at the end */
  char text[640];
} message;

typedef struct stage {
  const advice_request *request;
  advice *to;
  int64_t turn;       /* whose it is */
  bool ended;         /* in the child: it has taken the tensors of the request, and waits for its end */
  attn_status status; /* of the request */
} stage;

/* -- in the child -- */

typedef struct timed {
  const attempts *x;
  const attn_spec *spec;
  int64_t of;
  int pipe;
  attn_plan *plan;
  guard work;
  char damage[640]; /* "": none */
} timed;

static void end(void *context) {
  timed *t = context;
  if (!*t->damage && attempts_check(t->x, t->spec, &t->work))
    snprintf(t->damage, sizeof t->damage, "%s", attn_last_error());
  attn_plan_destroy(t->plan);
  guard_close(&t->work);
  t->plan = NULL;
}

static attn_status begin(void *context) {
  timed *t = context;
  const message m = {.kind = SAID_TURN, .of = t->of};
  (void)probe_send(t->pipe, &m, sizeof m);
  attn_status status = attn_plan_create_spec(&t->plan, &t->x->problem, t->spec, &t->x->options);
  if (!status) status = attempts_take_work(t->plan, &t->work);
  if (status) snprintf(t->damage, sizeof t->damage, "%s", attn_last_error());
  return status;
}

static attn_status execute(void *context) {
  timed *t = context;
  const attn_status status = attempts_execute(t->x, t->plan, &t->work);
  if (status) snprintf(t->damage, sizeof t->damage, "%s", attn_last_error());
  return status;
}

static attn_status summarise(const timing_subject *t, uint64_t seed, message *m) {
  timing_summary found;
  result_row row;
  const attn_status status = timing_summarise(t->samples, t->count, seed, &found);
  if (status) return status;
  result_row_init(&row);
  row.time_median = m->time = found.median;
  row.time_ci_lo = m->time_lo = found.ci_lo;
  row.time_ci_hi = m->time_hi = found.ci_hi;
  row.n_samples = t->count;
  row.iters_per_sample = t->iterations;
  row.n_outliers = found.outliers;
  row.samples = t->samples;
  m->doubts = doubts_of(&row);
  row.samples = NULL;
  result_row_free(&row);
  return ATTN_OK;
}

static attn_status send_time(const timed *t, const timing_subject *subject, uint64_t seed) {
  message m = {.kind = *t->damage ? SAID_LEFT_OUT : SAID_TIME, .of = t->of};
  const attn_status status = *t->damage ? ATTN_OK : summarise(subject, seed, &m);
  snprintf(m.text, sizeof m.text, "%s", t->damage);
  if (!status) (void)probe_send(t->pipe, &m, sizeof m);
  return status;
}

static attn_status time_all(const attempts *x, const advice *a, int pipe) {
  int64_t count = 0;
  const uint64_t seed = (uint64_t)x->request->seed;
  timing_subject *subjects = calloc((size_t)a->count + 1, sizeof *subjects);
  timed *contexts = calloc((size_t)a->count + 1, sizeof *contexts);
  timing_options options = timing_defaults();
  options.rounds = ROUNDS;
  options.max_time = fmax(options.max_time, x->request->limit / 4);
  attn_status status = subjects && contexts ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory to time settings");
  for (int64_t i = EXACT; !status && i < a->count; i++) {
    const advice_setting *s = i == EXACT ? &a->exact : &a->settings[i];
    if (i != EXACT && !s->within) continue;
    contexts[count] = (timed){.x = x, .spec = s->parsed, .of = i, .pipe = pipe};
    subjects[count] = (timing_subject){
        .begin = begin, .execute = execute, .end = end, .context = &contexts[count], .first = s->time};
    count++;
  }
  if (!status) status = timing_rounds(subjects, count, &options, seed);
  /* The last first: the parent removes what is left out. */
  for (int64_t i = count; i-- && !status;) status = send_time(&contexts[i], &subjects[i], seed);
  for (int64_t i = 0; i < count; i++) timing_subject_free(&subjects[i]);
  free(subjects);
  free(contexts);
  return status;
}

/* All that is to be timed; items of the job are for the children that follow one that was lost. */
static void work(void *context, size_t item, int to) {
  stage *s = context;
  data_qkv input = *s->request->input;
  attempts x;
  message m = {.kind = SAID_END};
  (void)item;
  if (s->ended) return;
  s->ended = true;
  m.status = attempts_open(s->request, &input, &x);
  if (!m.status) {
    m.status = time_all(&x, s->to, to);
    attempts_close(&x);
  }
  if (m.status) snprintf(m.text, sizeof m.text, "%s", attn_last_error());
  (void)probe_send(to, &m, sizeof m);
}

/* -- in the parent -- */

static attn_status remove_setting(advice *a, int64_t at, const char *spec, const char *why) {
  const attn_status status = advice_leave_out(a, spec, why);
  advice_setting_free(&a->settings[at]);
  a->count--;
  memmove(&a->settings[at], &a->settings[at + 1], (size_t)(a->count - at) * sizeof *a->settings);
  return status;
}

static bool take(void *context, size_t item, const void *at) {
  stage *s = context;
  message m;
  (void)item;
  memcpy(&m, at, sizeof m);
  advice_setting *setting = m.of == EXACT ? &s->to->exact : &s->to->settings[m.of];
  switch (m.kind) {
  case SAID_TURN:
    s->turn = m.of;
    return true;
  case SAID_TIME:
    setting->time = m.time;
    setting->time_lo = m.time_lo;
    setting->time_hi = m.time_hi;
    setting->doubts = m.doubts;
    return true;
  case SAID_LEFT_OUT:
    s->status =
        m.of == EXACT ? attn_fail(ATTN_EFOREIGN, "%s", m.text) : remove_setting(s->to, m.of, "", m.text);
    return !s->status;
  case SAID_END:
    s->status = m.status ? attn_fail(m.status, "%s", m.text) : ATTN_OK;
  }
  return false;
}

static bool lose(void *context, size_t item, const probe_result *r) {
  stage *s = context;
  char spec[256];
  (void)item;
  if (s->turn == EXACT) {
    s->status = attn_fail(ATTN_EFOREIGN, "timing: its process %s", r->text);
    return false;
  }
  snprintf(spec, sizeof spec, "%s", s->to->settings[s->turn].spec);
  s->status = remove_setting(s->to, s->turn, spec, r->text);
  s->turn = EXACT;
  return !s->status;
}

attn_status survey_time(const advice_request *r, double limit, advice *a) {
  stage s = {.request = r, .to = a, .turn = EXACT};
  const probe_job job = {.items = (size_t)a->count + 1,
                         .message = sizeof(message),
                         .limit = limit,
                         .context = &s,
                         .work = work,
                         .take = take,
                         .lost = lose};
  const double done = (double)(r->count ? (size_t)r->count : attn_variant_count());
  r->progress(r->to, done / (done + TIMING_SHARE), "timing what was found, in turns with exact attention");
  const attn_status status = probe_run(&job, NULL);
  return status ? status : s.status;
}

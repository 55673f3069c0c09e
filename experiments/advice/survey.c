/* survey.c - the search of each spec in a child process, which executes exact attention first. */
#include "experiments/advice/survey.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "data/support/forked_probe.h"
#include "experiments/advice/search.h"
#include "experiments/instruments/timing.h"
#include "experiments/support/label.h"

/* Executions that are held to be endless: times the limit of a search, at least endless_least seconds, and
 * beyond what exact attention and its errors took. */
static const double endless = 10, endless_least = 10;
static const double day = 86400; /* for exact attention, which is sound */

typedef enum { SAID_PROGRESS, SAID_EXACT, SAID_SETTING, SAID_LEFT_OUT, SAID_FAILURE } said;
enum { SPEC_TEXT = 1 << 14 };

/* Pointers of the setting are the child's, except `ended`, a constant of this program. */
typedef struct message {
  said kind;
  attn_status status;
  double done, mean_v;
  advice_setting setting;
  char text[640], spec[SPEC_TEXT];
} message;

typedef struct survey {
  const advice_request *request;
  attn_spec *const *specs;
  size_t count;
  advice *to;
  probe_job job;
  double began;
  attn_status status; /* of the request */
  /* of a child: */
  advice_request own;
  data_qkv input;
  attempts x;
  int pipe;
} survey;

const char *advice_spec_text(const advice_request *r, size_t i) {
  return r->count ? r->specs[i] : attn_variant_at(i)->name;
}

/* -- in the child -- */

static void send_progress(void *to, double done, const char *text) {
  const survey *s = to;
  message m = {.kind = SAID_PROGRESS, .done = done};
  snprintf(m.text, sizeof m.text, "%s", text);
  (void)probe_send(s->pipe, &m, sizeof m);
}

static void send_failure(const survey *s, said kind, attn_status status) {
  message m = {.kind = kind, .status = status};
  snprintf(m.text, sizeof m.text, "%s", attn_last_error());
  (void)probe_send(s->pipe, &m, sizeof m);
}

static void send_setting(const survey *s, said kind, const advice_setting *setting, double mean_v) {
  message m = {.kind = kind, .mean_v = mean_v, .setting = *setting};
  if (strlen(setting->parsed->text) >= SPEC_TEXT) {
    send_failure(s, SAID_LEFT_OUT,
                 attn_fail(ATTN_EUNSUPPORTED, "a spec of more than %d characters", SPEC_TEXT));
    return;
  }
  snprintf(m.spec, sizeof m.spec, "%s", setting->parsed->text);
  (void)probe_send(s->pipe, &m, sizeof m);
}

/* Exact attention, once in each child. */
static attn_status prepare(survey *s, advice_setting *exact, double *mean_v) {
  s->own = *s->request;
  s->own.progress = send_progress;
  s->own.to = s;
  s->input = *s->request->input;
  const attn_status status = attempts_open(&s->own, &s->input, &s->x);
  return status ? status : attempts_refer(&s->x, exact, mean_v);
}

static void work(void *context, size_t item, int to) {
  survey *s = context;
  advice_setting setting = {.spec = NULL};
  double mean_v = (double)NAN;
  s->pipe = to;
  attn_status status = s->x.request ? ATTN_OK : prepare(s, &setting, &mean_v);
  if (status) {
    send_failure(s, SAID_FAILURE, status);
  } else if (item == 0) {
    send_setting(s, SAID_EXACT, &setting, mean_v);
  } else {
    s->x.done = (double)(item - 1) / (double)(s->count + TIMING_SHARE);
    attn_spec_destroy(setting.parsed);
    setting = (advice_setting){.spec = NULL};
    status = search_setting(&s->x, s->specs[item - 1], &setting);
    if (status)
      send_failure(s, SAID_LEFT_OUT, status);
    else
      send_setting(s, SAID_SETTING, &setting, mean_v);
  }
  attn_spec_destroy(setting.parsed);
}

/* -- in the parent -- */

attn_status advice_leave_out(advice *a, const char *spec, const char *why) {
  char **lines = realloc(a->unsupported, (size_t)(a->unsupported_count + 1) * sizeof *lines);
  if (lines) a->unsupported = lines;
  char *line = lines ? text_format("%s%s%s", spec, *spec ? ": " : "", why) : NULL;
  if (!line) return attn_fail(ATTN_ENOMEM, "no memory for a line");
  a->unsupported[a->unsupported_count++] = line;
  return ATTN_OK;
}

void advice_setting_free(advice_setting *s) {
  free(s->spec);
  attn_spec_destroy(s->parsed);
}

static attn_status read_setting(const message *m, advice_setting *out) {
  advice_setting s = m->setting;
  s.spec = NULL;
  s.parsed = NULL;
  attn_status status = attn_spec_parse(&s.parsed, m->spec);
  if (!status) status = label_make(s.parsed, s.draws == 0, &s.spec);
  if (status)
    advice_setting_free(&s);
  else
    *out = s;
  return status;
}

/* Another spec may have led to the same setting. */
static bool is_known(const advice *a, const char *spec) {
  bool known = strcmp(a->exact.spec, spec) == 0;
  for (int64_t i = 0; i < a->count; i++) known = known || strcmp(a->settings[i].spec, spec) == 0;
  return known;
}

static attn_status add_setting(advice *a, const message *m) {
  advice_setting *settings = realloc(a->settings, (size_t)(a->count + 1) * sizeof *settings);
  if (!settings) return attn_fail(ATTN_ENOMEM, "no memory for a setting");
  a->settings = settings;
  const attn_status status = read_setting(m, &settings[a->count]);
  if (status) return status;
  if (is_known(a, settings[a->count].spec))
    advice_setting_free(&settings[a->count]);
  else
    a->count++;
  return ATTN_OK;
}

static attn_status take_exact(survey *s, const message *m) {
  const double spent = timing_now() - s->began;
  s->to->mean_v = m->mean_v;
  s->job.limit = ceil(s->to->threads * (fmax(endless_least, endless * s->request->limit) + endless * spent));
  return read_setting(m, &s->to->exact);
}

/* What is wrong with an expression names a place in it, and not the expression. */
static attn_status leave_out(const survey *s, size_t item, const char *why) {
  const char *spec = advice_spec_text(s->request, item - 1);
  return advice_leave_out(s->to, strpbrk(spec, "+-*(") ? spec : "", why);
}

static bool take(void *context, size_t item, const void *at) {
  survey *s = context;
  message m;
  memcpy(&m, at, sizeof m);
  switch (m.kind) {
  case SAID_PROGRESS:
    s->request->progress(s->request->to, m.done, m.text);
    break;
  case SAID_EXACT:
    s->status = take_exact(s, &m);
    break;
  case SAID_SETTING:
    s->status = add_setting(s->to, &m);
    break;
  case SAID_LEFT_OUT:
    s->status = leave_out(s, item, m.text);
    break;
  case SAID_FAILURE:
    s->status = attn_fail(m.status, "%s", m.text);
  }
  return !s->status;
}

static bool lose(void *context, size_t item, const probe_result *r) {
  survey *s = context;
  s->status = item ? advice_leave_out(s->to, advice_spec_text(s->request, item - 1), r->text)
                   : attn_fail(ATTN_EFOREIGN, "exact attention: its process %s", r->text);
  return !s->status;
}

attn_status survey_search(const advice_request *r, attn_spec *const *specs, size_t count, advice *a,
                          double *limit) {
  survey s = {.request = r, .specs = specs, .count = count, .to = a, .began = timing_now()};
  s.job = (probe_job){.items = count + 1,
                      .message = sizeof(message),
                      .limit = day * a->threads,
                      .context = &s,
                      .work = work,
                      .take = take,
                      .lost = lose};
  const attn_status status = probe_run(&s.job, NULL);
  *limit = s.job.limit;
  return status ? status : s.status;
}

/* passes.c - passes in child processes, which send the rows of their runs as text, and the rows of those that
 * fail (passes.h). */
#define _POSIX_C_SOURCE 200809L
#include "experiments/quality/passes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attn_tools.h"
#include "data/support/forked_probe.h"
#include "experiments/instruments/timing.h"
#include "experiments/quality/relate.h"

enum { CHECK_SECONDS = 60, TEXT = 4096 };
static const double PASS_SECONDS = 60; /* of several runs */

typedef struct answer {
  int status;
  char message[512];
} answer;

/* What a child sends: how a question ended, with the message or the next piece of the text. */
typedef struct piece {
  int status;
  size_t length;
  char text[TEXT];
} piece;

typedef struct passes {
  const quality_job *job;
  int64_t *wanted; /* swaps of a pass */
  int64_t count;
  answer *answers; /* of each question */
} passes;

static attn_status copy_text(char **to, const char *from) {
  char *copy = strdup(from);
  if (!copy) return attn_fail(ATTN_ENOMEM, "no memory for a text");
  free(*to);
  *to = copy;
  return ATTN_OK;
}

/* What all variants of a run are made from. */
static attn_status find_files(const quality_job *j, const data_llama_swap *first, spec_made *out) {
  attn_status status = ATTN_OK;
  *out = (spec_made){.plugin = NULL};
  for (const data_llama_swap *part = first; !status && part; part = part->next) {
    spec_made own;
    if ((status = spec_files_find(j->files, part->spec, &own))) break;
    spec_digest_add(out->plugin_sha256, own.plugin_sha256);
    spec_digest_add(out->files_sha256, own.files_sha256);
  }
  return status;
}

attn_status quality_describe(const quality_job *j, int64_t swap, quality_record *out) {
  const swap_run *run = &j->swaps->runs[swap];
  spec_made made;
  quality_record r;
  attn_status status = find_files(j, &run->swap, &made);
  if (!status) status = quality_record_init(&r);
  if (status) return status;
  const struct {
    char **to;
    const char *from;
  } texts[] = {{&r.model, j->about->model},
               {&r.model_sha256, j->about->model_sha256},
               {&r.data, j->about->data},
               {&r.data_sha256, j->about->data_sha256},
               {&r.config_sha256, j->about->config_sha256},
               {&r.tokens_sha256, j->about->tokens_sha256},
               {&r.isa, j->about->isa},
               {&r.build, j->about->build},
               {&r.plugin_sha256, made.plugin_sha256},
               {&r.files_sha256, made.files_sha256},
               {&r.task, j->about->task},
               {&r.layers, run->layers},
               {&r.heads, run->heads},
               {&r.phase, run->phase},
               {&r.spec, run->spec},
               {&r.variant, run->swap.scale > 0 ? SWAP_MEAN : run->swap.spec->variant->name}};
  for (size_t i = 0; !status && i < sizeof texts / sizeof *texts; i++)
    status = copy_text(texts[i].to, texts[i].from);
  r.n = j->windows->n;
  r.windows = j->windows->count;
  r.bos = j->about->bos;
  r.block_q = j->about->block_q;
  r.block_k = j->about->block_k;
  r.seed = j->about->seed;
  r.margin = j->about->margin;
  r.kl_budget = j->about->kl_budget;
  r.mix = run->swap.mix;
  r.session = journal_session(j->store->journal);
  if (!status) status = quality_record_name(&r);
  if (status)
    quality_record_free(&r);
  else
    *out = r;
  return status;
}

/* -- in the child -- */

static attn_status print_row(FILE *out, const quality_record *r) {
  char *line = NULL;
  size_t length = 0;
  json_t *json = quality_record_json(r);
  attn_status status = json ? result_json_line(json, &line, &length) : ATTN_ENOMEM;
  if (!status && fwrite(line, 1, length, out) != length)
    status = attn_fail(ATTN_ENOMEM, "no memory for the row of a run");
  json_decref(json);
  free(line);
  return status;
}

static attn_status fill_row(const quality_job *j, const quality_data *data, int64_t of, int64_t swap,
                            const result_bound *checks, FILE *out) {
  const int64_t vocab = data_llama_get_config(j->model)->vocab;
  quality_record r;
  attn_status status = quality_describe(j, swap, &r);
  if (status) return status;
  r.nll_uniform = log((double)vocab);
  status = quality_unigram(j->windows, vocab, &r.nll_unigram);
  if (!status) status = quality_record_fill(&r, data, j->windows, of);
  if (!status) status = quality_record_take_checks(&r, checks, QUALITY_CHECKS);
  if (!status) status = quality_record_take_checks(&r, data->judged[of].at, data->judged[of].count);
  r.verdict = (int)bounds_worst(r.checks, r.check_count);
  r.end_time = timing_wall();
  if (!status) status = print_row(out, &r);
  quality_record_free(&r);
  return status;
}

/* Prints a line for each run. */
static attn_status pass_of(const quality_job *j, const int64_t *wanted, int64_t count, FILE *out) {
  data_llama_swap *swaps = calloc((size_t)count, sizeof *swaps);
  quality_data data = {0};
  result_bound(*checks)[QUALITY_CHECKS] = calloc((size_t)count, sizeof *checks);
  attn_status status =
      swaps && checks ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for %lld runs", (long long)count);
  for (int64_t i = 0; !status && i < count; i++) swaps[i] = j->swaps->runs[wanted[i]].swap;
  if (!status) status = quality_evaluate(j->model, j->windows, swaps, count, true, &data);
  if (!status)
    status =
        quality_check(&(quality_checked){j->model, j->windows, swaps, count, &data}, wanted[0] == 0, checks);
  for (int64_t i = 0; !status && i < count; i++) status = fill_row(j, &data, i, wanted[i], checks[i], out);
  quality_data_free(&data);
  free(checks);
  free(swaps);
  return status;
}

/* Questions to a child: whether each swap can be planned, or a pass of them all. */
typedef struct asking {
  const quality_job *job;
  const int64_t *wanted;
  int64_t count;
  answer *answers;
  char *text; /* the rows of a pass, as far as they have arrived */
  size_t length;
} asking;

static void send_text(int to, attn_status status, const char *text, size_t length) {
  piece p = {.status = (int)status};
  do {
    p.length = length < TEXT ? length : TEXT;
    memcpy(p.text, text, p.length);
    text += p.length;
    length -= p.length;
  } while (probe_send(to, &p, sizeof p) && length);
}

static void send_plan(void *context, size_t item, int to) {
  const asking *a = context;
  const attn_status status =
      data_llama_try(a->job->model, a->job->windows->n, &a->job->swaps->runs[a->wanted[item]].swap);
  const char *why = status ? attn_last_error() : "";
  send_text(to, status, why, strlen(why));
}

static void send_pass(void *context, size_t item, int to) {
  const asking *a = context;
  char *text = NULL;
  size_t length;
  FILE *out = open_memstream(&text, &length);
  (void)item;
  attn_status status = out ? pass_of(a->job, a->wanted, a->count, out) : ATTN_OK;
  if (!attn_stream_text(out, &text) && !status)
    status = attn_fail(ATTN_ENOMEM, "no memory for the rows of a pass");
  if (status)
    send_text(to, status, attn_last_error(), strlen(attn_last_error()));
  else
    send_text(to, ATTN_OK, text, length);
  free(text);
}

/* -- in the parent -- */

enum { NO_ANSWER = -1 };

static void set_answer(answer *to, int status, const char *text, size_t length) {
  char message[TEXT + 1];
  memcpy(message, text, length);
  message[length] = '\0';
  to->status = status;
  column_cut_text(to->message, sizeof to->message, message);
}

static bool receive(void *context, size_t item, const void *message) {
  asking *a = context;
  const piece *p = message;
  if (p->status) {
    set_answer(&a->answers[item], p->status, p->text, p->length);
    return true;
  }
  char *text = realloc(a->text, a->length + p->length + 1);
  if (!text) {
    set_answer(&a->answers[item], ATTN_ENOMEM, "", 0);
    return false;
  }
  memcpy(text + a->length, p->text, p->length);
  a->text = text;
  a->length += p->length;
  a->answers[item].status = ATTN_OK;
  return true;
}

static bool lose(void *context, size_t item, const probe_result *r) {
  const asking *a = context;
  answer *to = &a->answers[item];
  to->status = NO_ANSWER;
  snprintf(to->message, sizeof to->message, "%s%s", r->end == PROBE_ENDLESS ? "timeout: " : "", r->text);
  return true;
}

static attn_status ask(asking *a, size_t items, double limit, void (*work)(void *, size_t, int)) {
  const probe_job job = {.items = items,
                         .message = sizeof(piece),
                         .limit = limit,
                         .by_wall = true,
                         .context = a,
                         .work = work,
                         .take = receive,
                         .lost = lose};
  return probe_run(&job, NULL);
}

/* Appends the rows of a pass, a line each. */
static attn_status append_rows(const quality_job *j, const char *text, size_t length) {
  attn_status status = ATTN_OK;
  for (const char *end = text + length, *next; !status && text < end; text = next + 1) {
    if (!(next = memchr(text, '\n', (size_t)(end - text)))) break;
    status = journal_append_text(j->store->journal, text, (size_t)(next - text));
  }
  return status;
}

/* Runs the swaps as one pass. */
static attn_status ask_pass(const passes *p, const int64_t *wanted, int64_t count, answer *out) {
  asking a = {.job = p->job, .wanted = wanted, .count = count, .answers = out};
  attn_status status = ask(&a, 1, p->job->limit, send_pass);
  if (!status && out->status == ATTN_OK) status = append_rows(p->job, a.text, a.length);
  free(a.text);
  return status;
}

static attn_status ask_plans(const passes *p) {
  asking a = {.job = p->job, .wanted = p->wanted, .count = p->count, .answers = p->answers};
  const attn_status status = ask(&a, (size_t)p->count, CHECK_SECONDS, send_plan);
  free(a.text);
  return status;
}

static run_status status_of(const answer *a) {
  if (a->status == NO_ANSWER) return strncmp(a->message, "timeout", 7) == 0 ? RUN_TIMEOUT : RUN_CRASHED;
  if (a->status == ATTN_OK) return RUN_OK;
  if (a->status == ATTN_EINVAL) return RUN_UNSUPPORTED; /* as planned with this model */
  return a->status == ATTN_EUNSUPPORTED ? RUN_UNSUPPORTED : a->status == ATTN_ENOMEM ? RUN_OOM : RUN_FAILED;
}

static attn_status add_failure(const quality_job *j, int64_t swap, const answer *a) {
  quality_record r;
  attn_status status = quality_describe(j, swap, &r);
  if (status) return status;
  r.status = (int)status_of(a);
  r.end_time = timing_wall();
  status = copy_text(&r.message, a->message);
  if (!status) status = journal_append(j->store->journal, &r);
  quality_record_free(&r);
  return status;
}

/* Leaves the swaps whose answers are good among the wanted ones, and gives the others their rows. */
static attn_status settle(passes *p) {
  int64_t kept = 0;
  attn_status status = ATTN_OK;
  for (int64_t i = 0; !status && i < p->count; i++) {
    if (p->answers[i].status == ATTN_OK)
      p->wanted[kept++] = p->wanted[i];
    else
      status = add_failure(p->job, p->wanted[i], &p->answers[i]);
  }
  p->count = kept;
  return status;
}

static void tell_stale(const quality_session *s, int64_t count) {
  char line[256];
  snprintf(line, sizeof line,
           "%.100s: %lld run%s repeated: by another build or plug-in (--keep-stale keeps such), from other "
           "files, or by an older attnlab",
           s->path ? s->path : "", (long long)count, count == 1 ? "" : "s");
  if (count && s->note) s->note(s->to, line);
}

/* A known run of which something else is asked that is no matter of the model: a row like it, with what
 * follows from that. */
static attn_status ask_anew(const quality_job *j, quality_record *known, const quality_record *asked,
                            FILE *out) {
  if (known->margin == asked->margin && known->kl_budget == asked->kl_budget) return ATTN_OK;
  known->margin = asked->margin;
  known->kl_budget = asked->kl_budget;
  known->session = journal_session(j->store->journal);
  return print_row(out, known);
}

static attn_status choose_among(const quality_job *j, const quality_set *set, passes *p, FILE *anew) {
  int64_t stale = 0;
  attn_status status = ATTN_OK;
  for (int64_t i = 0; !status && i < j->swaps->count; i++) {
    quality_record r;
    status = quality_describe(j, i, &r);
    if (status) break;
    quality_record *known = (quality_record *)quality_set_find(set, r.key);
    const bool good = known && (known->status == RUN_OK || known->status == RUN_UNSUPPORTED);
    const identity made = known ? quality_identity(known) : (identity){0}, now = quality_identity(&r);
    if (good && identity_stands(&made, &now, j->keep_stale)) {
      status = ask_anew(j, known, &r, anew);
    } else {
      p->wanted[p->count++] = i;
      stale += good;
    }
    quality_record_free(&r);
  }
  if (!status) tell_stale(j->store->session, stale);
  return status;
}

/* The swaps of which the store has no run that stands. */
static attn_status choose(const quality_job *j, passes *p) {
  quality_set set;
  char *text = NULL;
  size_t length;
  attn_status status = quality_store_set(j->store, &set);
  if (status) return status;
  FILE *anew = open_memstream(&text, &length);
  status = anew ? choose_among(j, &set, p, anew) : ATTN_ENOMEM;
  if (!attn_stream_text(anew, &text)) status = ATTN_ENOMEM;
  if (status == ATTN_ENOMEM) attn_fail(status, "no memory for the runs of an evaluation");
  result_set_free(&set);
  if (!status) status = append_rows(j, text, length);
  free(text);
  return status;
}

/* The wanted swaps from first on, as one pass; each alone if that does not end well. */
static attn_status run_pass(const passes *all, int64_t first, int64_t count) {
  passes p = {all->job, all->wanted + first, count, all->answers};
  attn_status status = ask_pass(&p, p.wanted, count, p.answers);
  if (status || p.answers[0].status == ATTN_OK) return status;
  for (int64_t i = 0; !status && count > 1 && i < count; i++)
    status = ask_pass(&p, &p.wanted[i], 1, &p.answers[i]);
  return status ? status : settle(&p);
}

static attn_status run_passes(const passes *p) {
  attn_status status = ATTN_OK;
  for (int64_t first = 0, count = 1; !status && first < p->count;) {
    const double begin = timing_now();
    status = run_pass(p, first, count);
    const double fit = PASS_SECONDS * (double)count / (timing_now() - begin);
    first += count;
    const int64_t left = p->count - first;
    count = fit < (double)left ? (int64_t)fmax(1, fit) : left;
    if (!status) status = quality_store_write(p->job->store);
  }
  return status;
}

attn_status quality_run(const quality_job *j) {
  passes p = {.job = j,
              .wanted = calloc((size_t)j->swaps->count, sizeof *p.wanted),
              .answers = calloc((size_t)j->swaps->count, sizeof *p.answers)};
  attn_status status =
      p.wanted && p.answers ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for an evaluation");
  if (!status) status = choose(j, &p);
  if (!status) status = ask_plans(&p);
  if (!status) status = settle(&p);
  if (!status) status = run_passes(&p);
  if (!status) status = quality_store_write(j->store);
  free(p.wanted);
  free(p.answers);
  return status;
}

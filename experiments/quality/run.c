/* run.c - passes in child processes, and the rows of those that fail (run.h). */
#define _POSIX_C_SOURCE 200809L
#include "experiments/quality/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/support/probe.h"
#include "experiments/instruments/timing.h"
#include "experiments/quality/relate.h"
#include "experiments/results/row.h"

enum { CHECK_SECONDS = 60 };
static const double PASS_SECONDS = 60; /* of several runs */

typedef struct answer {
  int status;
  char message[512];
} answer;

typedef struct passes {
  const quality_job *job;
  int64_t *wanted; /* swaps of a pass */
  int64_t count;
  answer *answers; /* of each question */
} passes;

static void set_answer(answer *a, attn_status status) {
  a->status = (int)status;
  column_cut_text(a->message, sizeof a->message, status ? attn_last_error() : "");
}

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
  if (!status) status = quality_record_name(&r);
  if (status)
    quality_record_free(&r);
  else
    *out = r;
  return status;
}

static attn_status read_if_there(const char *path, quality_set *out) {
  *out = (quality_set){0};
  return access(path, F_OK) == 0 ? quality_read(path, out) : ATTN_OK;
}

static void unlock(int lock) {
  if (lock >= 0) close(lock);
}

/* -- in the child -- */

static attn_status pass_of(const quality_job *j, const int64_t *wanted, int64_t count) {
  data_llama_swap *swaps = calloc((size_t)count, sizeof *swaps);
  const int64_t vocab = data_llama_get_config(j->model)->vocab;
  quality_data data = {0};
  quality_set set = {0};
  result_bound(*checks)[QUALITY_CHECKS] = calloc((size_t)count, sizeof *checks);
  attn_status status =
      swaps && checks ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for %lld runs", (long long)count);
  for (int64_t i = 0; !status && i < count; i++) swaps[i] = j->swaps->runs[wanted[i]].swap;
  if (!status) status = quality_evaluate(j->model, j->windows, swaps, count, &data);
  if (!status)
    status =
        quality_check(&(quality_checked){j->model, j->windows, swaps, count, &data}, wanted[0] == 0, checks);
  const int lock = quality_lock(j->path);
  if (!status) status = read_if_there(j->path, &set);
  for (int64_t i = 0; !status && i < count; i++) {
    quality_record r;
    status = quality_describe(j, wanted[i], &r);
    if (status) break;
    r.nll_uniform = log((double)vocab);
    status = quality_unigram(j->windows, vocab, &r.nll_unigram);
    if (!status) status = quality_record_fill(&r, &data, j->windows, i);
    memcpy(r.checks, checks[i], sizeof r.checks);
    r.verdict = (int)bounds_worst(r.checks, QUALITY_CHECKS);
    if (!status) status = quality_set_add(&set, &r);
    if (status) quality_record_free(&r);
  }
  if (!status) status = quality_relate(&set);
  if (!status) status = quality_write(j->path, &set);
  unlock(lock);
  quality_set_free(&set);
  quality_data_free(&data);
  free(checks);
  free(swaps);
  return status;
}

static void ask_plan(void *context, size_t index, void *out) {
  const passes *p = context;
  set_answer(out,
             data_llama_try(p->job->model, p->job->windows->n, &p->job->swaps->runs[p->wanted[index]].swap));
}

static void ask_together(void *context, size_t index, void *out) {
  const passes *p = context;
  (void)index;
  set_answer(out, pass_of(p->job, p->wanted, p->count));
}

static void ask_alone(void *context, size_t index, void *out) {
  const passes *p = context;
  set_answer(out, pass_of(p->job, &p->wanted[index], 1));
}

/* -- in the parent -- */

enum { NO_ANSWER = -1 };

typedef struct asking {
  passes *passes;
  void (*ask)(void *, size_t, void *);
} asking;

static void send(void *context, size_t item, int to) {
  const asking *a = context;
  answer x = {.status = ATTN_OK};
  a->ask(a->passes, item, &x);
  (void)probe_send(to, &x, sizeof x);
}

static bool receive(void *context, size_t item, const void *message) {
  const asking *a = context;
  memcpy(&a->passes->answers[item], message, sizeof(answer));
  return true;
}

static bool lose(void *context, size_t item, const probe_result *r) {
  const asking *a = context;
  answer *to = &a->passes->answers[item];
  to->status = NO_ANSWER;
  snprintf(to->message, sizeof to->message, "%s%s", r->end == PROBE_ENDLESS ? "timeout: " : "", r->text);
  return true;
}

static attn_status ask(passes *p, int64_t count, double limit, void (*question)(void *, size_t, void *)) {
  asking a = {p, question};
  const probe_job job = {.items = (size_t)count,
                         .message = sizeof(answer),
                         .limit = limit,
                         .by_wall = true,
                         .context = &a,
                         .work = send,
                         .take = receive,
                         .lost = lose};
  return probe_run(&job, NULL);
}

static run_status status_of(const answer *a) {
  if (a->status == NO_ANSWER) return strncmp(a->message, "timeout", 7) == 0 ? RUN_TIMEOUT : RUN_CRASHED;
  if (a->status == ATTN_OK) return RUN_OK;
  if (a->status == ATTN_EINVAL) return RUN_UNSUPPORTED; /* as planned with this model */
  return a->status == ATTN_EUNSUPPORTED ? RUN_UNSUPPORTED : a->status == ATTN_ENOMEM ? RUN_OOM : RUN_FAILED;
}

static attn_status add_failure(const quality_job *j, int64_t swap, const answer *a) {
  quality_record r;
  quality_set set;
  attn_status status = quality_describe(j, swap, &r);
  if (status) return status;
  r.status = (int)status_of(a);
  status = copy_text(&r.message, a->message);
  const int lock = quality_lock(j->path);
  if (!status) status = read_if_there(j->path, &set);
  if (!status) {
    status = quality_set_add(&set, &r);
    if (!status) status = quality_write(j->path, &set);
    quality_set_free(&set);
  }
  unlock(lock);
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

/* What is asked of a known run anew, and no matter of the model: it follows from what is there. */
static bool ask_anew(quality_record *known, const quality_record *asked) {
  const bool other = known->margin != asked->margin || known->kl_budget != asked->kl_budget;
  known->margin = asked->margin;
  known->kl_budget = asked->kl_budget;
  return other;
}

static void tell_stale(const quality_job *j, int64_t count) {
  char line[256];
  snprintf(line, sizeof line,
           "%.100s: %lld run%s repeated: by another build or plug-in (--keep-stale keeps such), from other "
           "files, or by an older attnlab",
           j->path, (long long)count, count == 1 ? "" : "s");
  if (count && j->note) j->note(j->to, line);
}

/* The swaps of which the file has no run that stands. */
static attn_status choose(const quality_job *j, passes *p) {
  quality_set set;
  bool other = false;
  int64_t stale = 0;
  const int lock = quality_lock(j->path);
  attn_status status = read_if_there(j->path, &set);
  for (int64_t i = 0; !status && i < j->swaps->count; i++) {
    quality_record r;
    status = quality_describe(j, i, &r);
    if (status) break;
    quality_record *known = (quality_record *)quality_set_find(&set, r.key);
    const bool good = known && known->status == RUN_OK;
    const identity made = known ? quality_identity(known) : (identity){0}, now = quality_identity(&r);
    if (good && identity_stands(&made, &now, j->keep_stale)) {
      other |= ask_anew(known, &r);
    } else {
      p->wanted[p->count++] = i;
      stale += good;
    }
    quality_record_free(&r);
  }
  if (!status && other) status = quality_relate(&set);
  if (!status && other) status = quality_write(j->path, &set);
  unlock(lock);
  quality_set_free(&set);
  if (!status) tell_stale(j, stale);
  return status;
}

/* The wanted swaps from first on, as one pass; each alone if that does not end well. */
static attn_status run_pass(const passes *all, int64_t first, int64_t count) {
  passes p = {all->job, all->wanted + first, count, all->answers};
  attn_status status = ask(&p, 1, all->job->limit, ask_together);
  if (status || p.answers[0].status == ATTN_OK) return status;
  if (count > 1) status = ask(&p, count, all->job->limit, ask_alone);
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
  }
  return status;
}

attn_status quality_run(const quality_job *j, quality_set *out) {
  passes p = {.job = j,
              .wanted = calloc((size_t)j->swaps->count + 1, sizeof *p.wanted),
              .answers = calloc((size_t)j->swaps->count + 1, sizeof *p.answers)};
  attn_status status =
      p.wanted && p.answers ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for an evaluation");
  if (!status) status = choose(j, &p);
  if (!status) status = ask(&p, p.count, CHECK_SECONDS, ask_plan);
  if (!status) status = settle(&p);
  if (!status) status = run_passes(&p);
  free(p.wanted);
  free(p.answers);
  return status ? status : read_if_there(j->path, out);
}

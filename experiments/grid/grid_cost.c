/* grid_cost.c - what the runs of a grid would cost, asked of their variants in a process of its own. */
#include "experiments/grid/grid_runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "data/support/forked_probe.h"
#include "experiments/evidence/null.h"

static const double LIMIT = 5; /* seconds for functions that only multiply a few numbers */

typedef struct question {
  grid_block *block;
  grid_run *run;
} question;

typedef struct questions {
  question *all;
  const char *silent; /* the last variant that did not answer in time: it is not asked again */
} questions;

typedef struct answer {
  attn_status status;
  size_t work;
  attn_cost cost;
  char message[200];
} answer;

static attn_status estimate(const questions *q, const question *at, answer *out) {
  attn_problem problem;
  data_target *target = NULL;
  const attn_options options = grid_options(at->block);
  if (null_find(at->run->variant)) return ATTN_OK;
  if (q->silent && strcmp(q->silent, at->run->variant) == 0)
    return attn_fail(ATTN_EFOREIGN, "timeout: its variant did not answer before");
  attn_status status = grid_target(at->block, &problem, &target);
  if (!status) status = attn_estimate_spec(&problem, at->run->spec, &options, &out->work, &out->cost);
  data_target_free(target);
  return status;
}

static void ask(void *context, size_t item, int to) {
  const questions *q = context;
  answer a = {.work = 0};
  a.status = estimate(q, &q->all[item], &a);
  if (a.status) snprintf(a.message, sizeof a.message, "%s", attn_last_error());
  (void)probe_send(to, &a, sizeof a);
}

/* Without memory for the reason it is empty. */
static bool take(void *context, size_t item, const void *message) {
  const questions *q = context;
  const question *at = &q->all[item];
  grid_run *run = at->run;
  answer a;
  memcpy(&a, message, sizeof a);
  if (a.status) {
    run->unknown = strdup(a.message);
    run->refused = a.status == ATTN_EINVAL;
    return true;
  }
  run->work = a.work;
  run->cost = a.cost;
  run->priced = true;
  at->block->cost += a.cost.mul_add;
  return true;
}

static bool lose(void *context, size_t item, const probe_result *r) {
  questions *q = context;
  grid_run *run = q->all[item].run;
  if (r->end == PROBE_ENDLESS) q->silent = run->variant;
  free(run->unknown);
  run->unknown = text_format("%s%s", r->end == PROBE_ENDLESS ? "timeout: " : "", r->text);
  return true;
}

attn_status grid_estimate(grid *g) {
  questions q = {.all = calloc(grid_run_count(g) + 1, sizeof *q.all)};
  if (!q.all) return attn_fail(ATTN_ENOMEM, "no memory to estimate %zu runs", grid_run_count(g));
  size_t count = 0;
  for (size_t b = 0; b < g->count; b++)
    for (size_t r = 0; r < g->blocks[b].count; r++)
      q.all[count++] = (question){&g->blocks[b], &g->blocks[b].runs[r]};
  const probe_job job = {.items = count,
                         .message = sizeof(answer),
                         .limit = LIMIT,
                         .context = &q,
                         .work = ask,
                         .take = take,
                         .lost = lose};
  const attn_status status = probe_run(&job, NULL);
  free(q.all);
  return status;
}

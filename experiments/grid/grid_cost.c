/* grid_cost.c - what the runs of a grid would cost, asked of their variants in a process of its own. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/grid/grid_runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/evidence/null.h"
#include "experiments/instruments/isolate.h"

static const double LIMIT = 5; /* seconds for functions that only multiply a few numbers */

typedef struct question {
  grid_block *block;
  grid_run *run;
} question;

typedef struct questions {
  isolate_questions ask;
  question *all;
  const char *silent; /* the last variant that did not answer in time: it is not asked again */
} questions;

typedef struct answer {
  attn_status status;
  size_t work;
  attn_cost cost;
  char message[200];
} answer;

static void ask(void *context, size_t index, void *out) {
  const questions *q = context;
  const question *at = &q->all[index];
  attn_problem problem;
  data_target *target = NULL;
  const attn_options options = grid_options(at->block);
  answer *a = out;
  if (null_find(at->run->variant)) return;
  if (q->silent && strcmp(q->silent, at->run->variant) == 0) {
    a->status = ATTN_EFOREIGN;
    snprintf(a->message, sizeof a->message, "timeout: its variant did not answer before");
    return;
  }
  a->status = grid_target(at->block, &problem, &target);
  if (!a->status) a->status = attn_estimate_spec(&problem, at->run->spec, &options, &a->work, &a->cost);
  data_target_free(target);
  if (a->status) snprintf(a->message, sizeof a->message, "%s", attn_last_error());
}

static void take(void *context, size_t index, const void *in) {
  questions *q = context;
  const question *at = &q->all[index];
  const answer *a = in;
  grid_run *run = at->run;
  if (!a && strncmp(q->ask.lost, "timeout", 7) == 0) q->silent = run->variant;
  /* Without memory for the reason it is empty. */
  if (!a || a->status) {
    run->unknown = strdup(a ? a->message : q->ask.lost);
    run->refused = a && a->status == ATTN_EINVAL;
    return;
  }
  run->work = a->work;
  run->cost = a->cost;
  run->priced = true;
  at->block->cost += a->cost.mul_add;
}

attn_status grid_estimate(grid *g) {
  questions q = {
      .ask = {.count = grid_run_count(g), .size = sizeof(answer), .limit = LIMIT, .ask = ask, .take = take}};
  q.ask.context = &q;
  q.all = calloc(q.ask.count + 1, sizeof *q.all);
  if (!q.all) return attn_fail(ATTN_ENOMEM, "no memory to estimate %zu runs", q.ask.count);
  size_t count = 0;
  for (size_t b = 0; b < g->count; b++)
    for (size_t r = 0; r < g->blocks[b].count; r++)
      q.all[count++] = (question){&g->blocks[b], &g->blocks[b].runs[r]};
  const attn_status status = isolate_ask(&q.ask);
  free(q.all);
  return status;
}

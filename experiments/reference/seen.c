/* seen.c - records selections row by row of each (batch, head), as few at a time as their room allows. */
#include "experiments/reference/seen.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 1 << 19 }; /* runs that are asked for at once */

struct recorded {
  const seen_keys *of;
  int64_t batch;
};

/* -- membership -- */

int64_t seen_picks(const seen_keys *s, const sample_row *row, const attn_run **runs) {
  const attn_problem *p = s->problem;
  const int64_t at = s->place[(row->batch * p->heads + row->head) * p->n_q + row->i];
  *runs = at < 0 ? NULL : s->runs + s->begin[at];
  return at < 0 ? 0 : s->count[at];
}

void seen_log_weights(const seen_keys *s, const sample_row *row, const int64_t *keys, int64_t count,
                      double *out) {
  const attn_run *run = NULL;
  const int64_t runs = s->log_weights ? seen_picks(s, row, &run) : 0;
  for (int64_t a = 0, r = 0; a < count; a++) {
    while (r < runs && run[r].first + run[r].count <= keys[a]) r++;
    out[a] = r < runs ? s->log_weights[run + r - s->runs] : 0;
  }
}

static bool takes(const void *state, int64_t head, int64_t position, int64_t key) {
  const struct recorded *x = state;
  const attn_problem *p = x->of->problem;
  const sample_row row = {x->batch, head, position - attn_problem_position(p, 0)};
  const attn_run *runs;
  const int64_t count = seen_picks(x->of, &row, &runs);
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (runs[middle].first + runs[middle].count <= key)
      low = middle + 1;
    else
      high = middle;
  }
  return low < count && runs[low].first <= key;
}

const attn_pattern *seen_of(const seen_keys *s, int64_t batch) {
  return s->selected ? &s->selected[batch] : s->pattern;
}

/* -- recording -- */

/* Rows of a head that are asked for at once: `count` of those that are listed, from `first` on. */
typedef struct question {
  int64_t line, first, count;
} question;

/* What the threads ask into, and what the answers are joined to. */
typedef struct recorder {
  const seen_run *e;
  seen_keys *to;
  int64_t rows, used, room; /* recorded; runs of them, and how many there is room for */
  int64_t most;             /* rows of a question, at most */
  int64_t *row;             /* listed */
  question *questions;
  int64_t asked;
} recorder;

/* A thread's answer. */
typedef struct answer {
  attn_run *runs;
  double *log_weights; /* NULL: the selector gives none */
  int64_t *counts;
} answer;

static attn_status keep_runs(recorder *x, const question *of, const answer *a) {
  const attn_problem *p = x->to->problem;
  const int64_t max_runs = x->e->view->selector->max_runs;
  int64_t more = 0;
  for (int64_t r = 0; r < of->count; r++) more += a->counts[r];
  if (x->used + more > x->room) {
    const int64_t room = 2 * (x->used + more);
    attn_run *larger = realloc(x->to->runs, (size_t)room * sizeof *larger);
    if (!larger) return attn_fail(ATTN_ENOMEM, "no memory for %lld selected runs", (long long)room);
    x->to->runs = larger;
    double *weights = a->log_weights ? realloc(x->to->log_weights, (size_t)room * sizeof *weights) : NULL;
    if (a->log_weights && !weights)
      return attn_fail(ATTN_ENOMEM, "no memory for %lld weights", (long long)room);
    x->to->log_weights = weights;
    x->room = room;
  }
  for (int64_t r = 0; r < of->count; r++) {
    x->to->place[of->line * p->n_q + x->row[of->first + r]] = x->rows;
    x->to->begin[x->rows] = x->used;
    x->to->count[x->rows++] = a->counts[r];
    if (a->counts[r])
      memcpy(x->to->runs + x->used, a->runs + r * max_runs, (size_t)a->counts[r] * sizeof *a->runs);
    if (a->counts[r] && a->log_weights)
      memcpy(x->to->log_weights + x->used, a->log_weights + r * max_runs,
             (size_t)a->counts[r] * sizeof(double));
    x->used += a->counts[r];
  }
  return ATTN_OK;
}

static attn_status ask_variant(const recorder *x, const question *of, const answer *a) {
  const seen_run *e = x->e;
  const int64_t heads = x->to->problem->heads;
  const attn_row_set set = {of->line / heads, of->line % heads, of->count, x->row + of->first};
  attn_picks picks = {.max_runs = e->view->selector->max_runs,
                      .runs = a->runs,
                      .counts = a->counts,
                      .log_weights = a->log_weights};
  return attn_plan_select(e->plan, &e->in, &set, &picks);
}

/* The rows of each head, ascending, as one question or more. */
static void list_questions(recorder *x, const sample_row *rows, const bool *take, int64_t count) {
  int64_t held = 0;
  question *last = NULL;
  for (int64_t r = 0; r < count; r++) {
    const int64_t line = rows[r].batch * x->to->problem->heads + rows[r].head;
    if (take && !take[r]) continue;
    if (last && line == last->line && x->row[held - 1] == rows[r].i)
      continue; /* of the sample and of edges */
    if (!last || last->count == x->most || line != last->line || x->row[held - 1] > rows[r].i) {
      last = &x->questions[x->asked++];
      *last = (question){.line = line, .first = held};
    }
    x->row[held++] = rows[r].i;
    last->count++;
  }
}

/* Heads are asked side by side, and their answers joined in the order of the rows. */
static attn_status record(recorder *x, answer *rooms, int threads) {
  attn_status status = ATTN_OK;
  const question *failed = NULL;
#pragma omp parallel for ordered schedule(static, 1) num_threads(threads)
  for (int64_t i = 0; i < x->asked; i++) {
    const answer *own = &rooms[omp_get_thread_num()];
    const attn_status asked = ask_variant(x, &x->questions[i], own);
#pragma omp ordered
    if (!status) {
      status = asked ? asked : keep_runs(x, &x->questions[i], own);
      if (status) failed = &x->questions[i];
    }
  }
  /* A message is its thread's: said once more by this one. */
  if (failed && (status = ask_variant(x, failed, &rooms[0])) == ATTN_OK)
    status = attn_fail(ATTN_ENOMEM, "no memory for the selections of %lld rows", (long long)x->rows);
  return status;
}

attn_status seen_make(const seen_run *e, const sample_row *rows, const bool *take, int64_t count,
                      seen_keys *out) {
  enum { THREADS = 8 }; /* at most, each with its room */
  const attn_selector *selector = e->view->selector;
  *out = (seen_keys){.pattern = e->view->pattern};
  if (!selector) return ATTN_OK;
  const attn_problem *p = out->problem = attn_plan_problem(e->plan);
  const int64_t all = p->batch * p->heads * p->n_q, most = ROOM / selector->max_runs;
  recorder x = {.e = e, .to = out, .most = most < 1 ? 1 : most < p->n_q ? most : p->n_q};
  answer rooms[THREADS] = {{.runs = NULL}};
  region own = {.last = NULL};
  attn_status status = ATTN_OK;
  out->entries = region_zeros(&out->memory, p->batch, sizeof *out->entries);
  out->selected = region_zeros(&out->memory, p->batch, sizeof *out->selected);
  out->place = region_take(&out->memory, all, sizeof *out->place);
  out->begin = region_take(&out->memory, count, sizeof *out->begin);
  out->count = region_take(&out->memory, count, sizeof *out->count);
  x.row = region_take(&own, count, sizeof *x.row);
  x.questions = region_take(&own, count, sizeof *x.questions);
  if (x.row && x.questions) list_questions(&x, rows, take, count);
  int threads = attn_plan_context(e->plan)->threads;
  if (threads > THREADS) threads = THREADS;
  if (threads > x.asked) threads = (int)x.asked;
  for (int i = 0; i < threads; i++) {
    rooms[i].runs = region_take(&own, x.most * selector->max_runs, sizeof(attn_run));
    rooms[i].counts = region_take(&own, x.most, sizeof(int64_t));
    if (selector->weighted)
      rooms[i].log_weights = region_take(&own, x.most * selector->max_runs, sizeof(double));
  }
  if (out->memory.refused || own.refused)
    status = attn_fail(ATTN_ENOMEM, "no memory for the selections of %lld rows", (long long)count);
  for (int64_t at = 0; at < all && !status; at++) out->place[at] = -1;
  if (!status && x.asked) status = record(&x, rooms, threads);
  for (int64_t b = 0; b < p->batch && !status; b++) {
    out->entries[b] = (struct recorded){out, b};
    out->selected[b] = (attn_pattern){.state = &out->entries[b], .sees = takes, .max_runs = 1};
  }
  region_free(&own);
  if (status) seen_free(out);
  return status;
}

void seen_free(seen_keys *s) {
  region_free(&s->memory);
  free(s->runs);
  free(s->log_weights);
  *s = (seen_keys){.pattern = NULL};
}

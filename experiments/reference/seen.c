/* seen.c - records selections row by row of each (batch, head), as few at a time as their room allows. */
#include "experiments/reference/seen.h"

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

typedef struct recorder {
  const seen_run *e;
  seen_keys *to;
  int64_t rows, used, room;    /* recorded; runs of them, and how many there is room for */
  attn_run *runs;              /* of a call */
  double *log_weights;         /* of a call; NULL: the selector gives none */
  int64_t *counts, *row, most; /* of a call, of at most `most` rows */
} recorder;

static attn_status keep_runs(recorder *x, int64_t line, int64_t count) {
  const attn_problem *p = x->to->problem;
  const int64_t max_runs = x->e->view->selector->max_runs;
  int64_t more = 0;
  for (int64_t r = 0; r < count; r++) more += x->counts[r];
  if (x->used + more > x->room) {
    const int64_t room = 2 * (x->used + more);
    attn_run *larger = realloc(x->to->runs, (size_t)room * sizeof *larger);
    if (!larger) return attn_fail(ATTN_ENOMEM, "no memory for %lld selected runs", (long long)room);
    x->to->runs = larger;
    double *weights = x->log_weights ? realloc(x->to->log_weights, (size_t)room * sizeof *weights) : NULL;
    if (x->log_weights && !weights)
      return attn_fail(ATTN_ENOMEM, "no memory for %lld weights", (long long)room);
    x->to->log_weights = weights;
    x->room = room;
  }
  for (int64_t r = 0; r < count; r++) {
    x->to->place[line * p->n_q + x->row[r]] = x->rows;
    x->to->begin[x->rows] = x->used;
    x->to->count[x->rows++] = x->counts[r];
    if (x->counts[r])
      memcpy(x->to->runs + x->used, x->runs + r * max_runs, (size_t)x->counts[r] * sizeof *x->runs);
    if (x->counts[r] && x->log_weights)
      memcpy(x->to->log_weights + x->used, x->log_weights + r * max_runs,
             (size_t)x->counts[r] * sizeof(double));
    x->used += x->counts[r];
  }
  return ATTN_OK;
}

static attn_status ask_variant(recorder *x, int64_t line, int64_t count) {
  const seen_run *e = x->e;
  const attn_row_set set = {line / x->to->problem->heads, line % x->to->problem->heads, count, x->row};
  attn_picks picks = {.max_runs = e->view->selector->max_runs,
                      .runs = x->runs,
                      .counts = x->counts,
                      .log_weights = x->log_weights};
  attn_status status = attn_plan_select(e->plan, &e->in, &set, &picks);
  return status ? status : keep_runs(x, line, count);
}

static attn_status record(recorder *x, const sample_row *rows, const bool *take, int64_t count) {
  int64_t held = 0, line = -1;
  attn_status status = ATTN_OK;
  for (int64_t r = 0; r < count && !status; r++) {
    const int64_t own = rows[r].batch * x->to->problem->heads + rows[r].head;
    if (take && !take[r]) continue;
    if (held && own == line && x->row[held - 1] == rows[r].i) continue; /* of the sample and of the edges */
    if (held == x->most || (held && (own != line || x->row[held - 1] > rows[r].i))) {
      status = ask_variant(x, line, held);
      held = 0;
    }
    line = own;
    x->row[held++] = rows[r].i;
  }
  return status || !held ? status : ask_variant(x, line, held);
}

attn_status seen_make(const seen_run *e, const sample_row *rows, const bool *take, int64_t count,
                      seen_keys *out) {
  const attn_selector *selector = e->view->selector;
  *out = (seen_keys){.pattern = e->view->pattern};
  if (!selector) return ATTN_OK;
  const attn_problem *p = out->problem = attn_plan_problem(e->plan);
  const int64_t all = p->batch * p->heads * p->n_q, most = ROOM / selector->max_runs;
  recorder x = {.e = e, .to = out, .most = most < 1 ? 1 : most < p->n_q ? most : p->n_q};
  region own = {.last = NULL};
  attn_status status = ATTN_OK;
  out->entries = region_zeros(&out->memory, p->batch, sizeof *out->entries);
  out->selected = region_zeros(&out->memory, p->batch, sizeof *out->selected);
  out->place = region_take(&out->memory, all, sizeof *out->place);
  out->begin = region_take(&out->memory, count, sizeof *out->begin);
  out->count = region_take(&out->memory, count, sizeof *out->count);
  x.runs = region_take(&own, x.most * selector->max_runs, sizeof *x.runs);
  x.counts = region_take(&own, x.most, sizeof *x.counts);
  if (selector->weighted) x.log_weights = region_take(&own, x.most * selector->max_runs, sizeof(double));
  x.row = region_take(&own, x.most, sizeof *x.row);
  if (out->memory.refused || own.refused)
    status = attn_fail(ATTN_ENOMEM, "no memory for the selections of %lld rows", (long long)count);
  for (int64_t at = 0; at < all && !status; at++) out->place[at] = -1;
  if (!status) status = record(&x, rows, take, count);
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

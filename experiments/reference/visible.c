/* visible.c - masks and supports from their definitions. What runs a variant shares one thing with it: where
 * a query stands, which the problem says (attn_problem_position). */
#include "experiments/reference/visible.h"

#include <math.h>
#include <string.h>

int64_t visible_keys(const attn_problem *p, int64_t i, int64_t keys) {
  int64_t position = attn_problem_position(p, i);
  if (!p->causal || position >= keys) return keys;
  return position < 0 ? 0 : position + 1;
}

int64_t visible_most_runs(const attn_pattern *pattern, const attn_problem *p) {
  const attn_pattern *graph = p->mask.kind == ATTN_MASK_PATTERN ? p->mask.pattern : NULL;
  int64_t most = pattern ? pattern->max_runs : 1;
  return graph && graph->max_runs > most ? graph->max_runs : most;
}

int64_t visible_runs(const attn_pattern *pattern, const attn_problem *p, int64_t head, int64_t i,
                     int64_t keys, attn_run *runs) {
  int64_t end = visible_keys(p, i, keys), kept = 0, count = 1;
  if (pattern)
    count = pattern->row(pattern->state, head, attn_problem_position(p, i), runs);
  else
    runs[0] = (attn_run){0, end, 1};
  for (int64_t r = 0; r < count && (!pattern || r < pattern->max_runs); r++) {
    attn_run run = runs[r];
    if (run.first < 0 || run.first >= end || run.count < 1 || run.step < 1) continue;
    int64_t most = (end - 1 - run.first) / run.step + 1;
    if (run.count > most) run.count = most;
    runs[kept++] = run;
  }
  return kept;
}

/* Those of the pattern's own keys that lie in a block which the law lets be drawn. */
static void mark_drawn(const attn_pattern *pattern, int64_t head, int64_t position, const attn_run *runs,
                       int64_t count, bool *inside) {
  int64_t block = -1;
  bool candidate = false;
  for (int64_t r = 0; r < count; r++)
    for (int64_t c = 0; c < runs[r].count; c++) {
      int64_t j = runs[r].first + c * runs[r].step;
      if (j / pattern->grain != block) {
        block = j / pattern->grain;
        candidate = pattern->candidate(pattern->state, head, position, block);
      }
      if (candidate) inside[j] = true;
    }
}

/* The document that holds a position, from 0; -1: none. */
static int64_t document(const attn_mask *m, int64_t position) {
  for (int64_t d = 0; d < m->count; d++)
    if (m->offsets[d] <= position && position < m->offsets[d + 1]) return d;
  return -1;
}

/* Unmarks, of the first `end` keys, those that the problem's mask hides from a query at this position. */
static void hide(const attn_problem *p, int64_t head, int64_t position, int64_t end, attn_run *runs,
                 bool *inside) {
  const attn_mask *m = &p->mask;
  const int64_t own = m->kind == ATTN_MASK_DOCUMENTS ? document(m, position) : 0;
  int64_t next = 0;
  switch (m->kind) {
  case ATTN_MASK_NONE:
    return;
  case ATTN_MASK_PREFIX:
    for (int64_t j = 0; j < end; j++) inside[j] = inside[j] && (j < m->size || j <= position);
    return;
  case ATTN_MASK_BLOCK_CAUSAL:
    for (int64_t j = 0; j < end; j++)
      inside[j] = inside[j] && position >= 0 && j / m->size <= position / m->size;
    return;
  case ATTN_MASK_DOCUMENTS:
    for (int64_t j = 0; j < end; j++)
      inside[j] = inside[j] && own >= 0 && m->offsets[own] <= j && j < m->offsets[own + 1];
    return;
  case ATTN_MASK_PATTERN:
    for (int64_t r = 0, count = m->pattern->row(m->pattern->state, head, position, runs); r < count; r++) {
      for (; next < end && next < runs[r].first; next++) inside[next] = false;
      if (next < runs[r].first + runs[r].count) next = runs[r].first + runs[r].count;
    }
    for (; next < end; next++) inside[next] = false;
  }
}

int64_t visible_mark(const attn_pattern *pattern, const attn_problem *p, int64_t batch, int64_t head,
                     int64_t i, int64_t keys, attn_run *runs, bool *inside) {
  int64_t end = visible_keys(p, i, keys), position = attn_problem_position(p, i), seen = 0;
  memset(inside, 0, (size_t)p->n_kv * sizeof *inside);
  if (!pattern) memset(inside, 1, (size_t)end * sizeof *inside);
  bool law = pattern && pattern->sees,
       draws = law && pattern->candidate && pattern->grain > 0 && pattern->drawn > 0;
  for (int64_t j = 0; j < end && law; j++) inside[j] = pattern->sees(pattern->state, head, position, j);
  if (pattern && (!law || draws)) {
    int64_t count = visible_runs(pattern, p, head, i, keys, runs);
    if (draws) mark_drawn(pattern, head, position, runs, count, inside);
    for (int64_t r = 0; r < count && !law; r++)
      for (int64_t c = 0; c < runs[r].count; c++) inside[runs[r].first + c * runs[r].step] = true;
  }
  hide(p, head, position, end, runs, inside);
  const attn_bias *bias = &p->score.dense;
  const int64_t at = batch * bias->batch + head * bias->head + i * bias->row;
  for (int64_t j = 0; j < end && bias->at; j++)
    inside[j] = inside[j] && attn_get(bias->at, at + j, bias->dtype) != -(double)INFINITY;
  for (int64_t j = 0; j < end; j++) seen += inside[j];
  return seen;
}

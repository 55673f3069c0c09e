/* within.c - a variant's pattern within the graph that is the problem's mask: the runs of every row, computed
 * when the plan is made. */
#include "core/engines/softmax/softmax.h"

#include <stdlib.h>
#include <string.h>

typedef struct within {
  attn_pattern own, graph;
  int64_t rows, first_position;
  int64_t *begin; /* [heads * rows + 1] */
  attn_run *runs;
} within;

static int64_t row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  const within *w = state;
  const int64_t at = (w->own.per_head || w->graph.per_head ? head : 0) * w->rows + position -
                     w->first_position,
                count = w->begin[at + 1] - w->begin[at];
  if (count) memcpy(runs, w->runs + w->begin[at], (size_t)count * sizeof *runs);
  return count;
}

static int64_t group(const void *state, int64_t position) {
  const within *w = state;
  return w->own.group(w->own.state, position);
}

static bool sees(const void *state, int64_t head, int64_t position, int64_t key) {
  const within *w = state;
  return w->own.sees(w->own.state, head, position, key) && w->graph.sees(w->graph.state, head, position, key);
}

/* The part of a run that keys first ... end - 1 have. */
static attn_run cut(attn_run run, int64_t first, int64_t end) {
  const int64_t skipped = first > run.first ? attn_ceil_div(first - run.first, run.step) : 0;
  run.first += skipped * run.step;
  run.count = attn_min(run.count - skipped, end > run.first ? attn_ceil_div(end - run.first, run.step) : 0);
  return run;
}

static int by_first(const void *a_, const void *b_) {
  const attn_run *a = a_, *b = b_;
  return (a->first > b->first) - (a->first < b->first);
}

/* Both ascend, and the graph's runs do not overlap. out: NULL to count. */
static int64_t intersect(const attn_run *own, int64_t own_count, const attn_run *graph, int64_t graph_count,
                         attn_run *out) {
  int64_t kept = 0, from = 0;
  for (int64_t a = 0; a < own_count; a++) {
    const int64_t end = own[a].first + own[a].count * own[a].step;
    while (from < graph_count && graph[from].first + graph[from].count <= own[a].first) from++;
    for (int64_t g = from; g < graph_count && graph[g].first < end; g++) {
      const attn_run run = cut(own[a], graph[g].first, graph[g].first + graph[g].count);
      if (run.count < 1) continue;
      if (out) out[kept] = run;
      kept++;
    }
  }
  if (out) qsort(out, (size_t)kept, sizeof *out, by_first);
  return kept;
}

bool attn_softmax_outline(const attn_problem *p, const attn_pattern *own, attn_pattern *out) {
  const attn_pattern *graph = p->mask.kind == ATTN_MASK_PATTERN ? p->mask.pattern : NULL;
  if (!own && !graph) return false;
  *out = own ? *own : *graph;
  if (!own || !graph) return true;
  out->per_head = own->per_head || graph->per_head;
  /* No two runs share a key. */
  out->max_runs = graph->max_runs > p->n_kv / own->max_runs
                      ? p->n_kv
                      : attn_min(own->max_runs * graph->max_runs, p->n_kv);
  return true;
}

static attn_status whole_runs(const attn_run *runs, int64_t count, int64_t i) {
  for (int64_t r = 0; r < count; r++)
    if (runs[r].step != 1)
      return attn_fail(ATTN_EINVAL, "mask: run %lld of query %lld has step %lld, expected 1", (long long)r,
                       (long long)i, (long long)runs[r].step);
  return ATTN_OK;
}

attn_status attn_softmax_within(attn_builder *b, const attn_pattern_reader *own, attn_pattern *out) {
  const attn_problem *p = b->context.problem;
  const attn_pattern *graph = p->mask.pattern;
  const int64_t heads = own->pattern->per_head || graph->per_head ? p->heads : 1;
  void *memory = attn_builder_scratch(b, 1, attn_pattern_reader_bytes(graph, p));
  within *w = memory ? attn_builder_alloc(b, 1, sizeof *w) : NULL;
  if (!w) return ATTN_ENOMEM;
  *w = (within){
      .own = *own->pattern, .graph = *graph, .rows = p->n_q, .first_position = attn_problem_position(p, 0)};
  w->begin = attn_builder_alloc(b, heads * p->n_q + 1, sizeof *w->begin);
  if (!w->begin) return ATTN_ENOMEM;
  const attn_pattern_reader reader = attn_pattern_reader_make("mask", graph, p, memory);
  for (int pass = 0; pass < 2; pass++) {
    int64_t all = 0;
    for (int64_t at = 0; at < heads * p->n_q; at++) {
      int64_t own_count, graph_count;
      attn_status status = attn_pattern_read(own, at / p->n_q, at % p->n_q, &own_count);
      if (!status) status = attn_pattern_read(&reader, at / p->n_q, at % p->n_q, &graph_count);
      if (!status) status = whole_runs(reader.runs, graph_count, at % p->n_q);
      if (status) return status;
      const int64_t count =
          intersect(own->runs, own_count, reader.runs, graph_count, pass ? w->runs + all : NULL);
      w->begin[at] = all;
      all += count;
    }
    w->begin[heads * p->n_q] = all;
    if (!pass && !(w->runs = attn_builder_alloc(b, attn_max(all, 1), sizeof *w->runs))) return ATTN_ENOMEM;
  }
  attn_pattern outline;
  attn_softmax_outline(p, own->pattern, &outline);
  *out = (attn_pattern){.state = w,
                        .row = row,
                        .max_runs = outline.max_runs,
                        .group = own->pattern->group ? group : NULL,
                        .per_head = outline.per_head,
                        .sees = own->pattern->sees && graph->sees && !own->pattern->drawn ? sees : NULL,
                        .reach = own->pattern->reach};
  return ATTN_OK;
}

/* reference.c - one row of exact attention in fp64 by the textbook formula: s_j = scale q.k_j and what the
 * problem makes of it, p = softmax(s) over the keys the query sees, o = sum p_j v_j. It shares no code with
 * the kernels, so that it can judge
 * them. */
#include "core/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 256 }; /* numbers that are widened at a time: whole blocks of any codes */

/* Numbers l ... of row i of a head's rows, in fp64. Returns how many. */
static int64_t widen(const void *rows, attn_stride s, int64_t i, int64_t l, int64_t d, attn_dtype t,
                     double *to) {
  const int64_t count = attn_min(d - l, CHUNK);
  t = attn_stored(s, t);
  attn_numbers[t].load(attn_at(rows, i * s.row + l, t), count, to);
  return count;
}

/* Four partial sums: the order is fixed, and the chain short. */
static void dot(const double *x, const double *y, int64_t d, double s[4]) {
  int64_t l = 0;
  for (; l + 4 <= d; l += 4)
    for (int i = 0; i < 4; i++) s[i] += x[l + i] * y[l + i];
  for (; l < d; l++) s[0] += x[l] * y[l];
}

/* What is left of runs within first ... end - 1, in place. */
static int64_t clip(int64_t first, int64_t end, attn_run *runs, int64_t count) {
  int64_t kept = 0;
  for (int64_t r = 0; r < count; r++) {
    attn_run run = runs[r];
    if (run.first < first && run.count > 0) {
      const int64_t skipped = attn_min(attn_ceil_div(first - run.first, run.step), run.count);
      run.first += skipped * run.step;
      run.count -= skipped;
    }
    if (run.first >= end || run.count < 1) continue;
    int64_t room = end - run.first;
    run.count = attn_min(run.count, run.step == 1 ? room : (room - 1) / run.step + 1);
    if (run.count == 1) run.step = 1;
    runs[kept++] = run;
  }
  return kept;
}

int64_t attn_picks_clip(const attn_problem *p, int64_t i, attn_run *runs, int64_t count) {
  int64_t first, end;
  attn_visible_span(p, i, &first, &end);
  return clip(first, end, runs, count);
}

int64_t attn_pattern_clip(const attn_problem *p, int64_t i, attn_run *runs, int64_t count) {
  int64_t first, end;
  attn_visible_positions(p, i, &first, &end);
  return attn_runs_to_keys(p, runs, clip(first, end, runs, count));
}

int64_t attn_runs_to_keys(const attn_problem *p, attn_run *runs, int64_t count) {
  int64_t kept = 0;
  if (!p->positions.key) return count;
  for (int64_t r = 0; r < count; r++) {
    const attn_run run = runs[r];
    const int64_t from = attn_key_at(p, run.first), to = attn_key_at(p, run.first + run.count);
    if (run.step > 1)
      runs[kept++] = run;
    else if (from < to)
      runs[kept++] = (attn_run){from, to - from, 1};
  }
  return kept;
}

int64_t attn_pattern_row(const attn_pattern *pattern, const attn_problem *p, int64_t head, int64_t i,
                         attn_run *runs) {
  if (!p || !runs) return -1;
  int64_t count = 1;
  if (pattern)
    count = pattern->row(pattern->state, head, attn_problem_position(p, i), runs);
  else
    runs[0] = (attn_run){0, p->n_kv, 1};
  if (count < 0 || (pattern && count > pattern->max_runs)) return -1;
  for (int64_t r = 0; r < count; r++)
    if (runs[r].count > 0 && (runs[r].first < 0 || runs[r].step < 1)) return -1;
  return attn_pattern_clip(p, i, runs, count);
}

double attn_pattern_pairs(const attn_pattern *pattern, const attn_problem *p) {
  if (!pattern || !p) return (double)NAN;
  const int64_t heads = pattern->per_head ? p->heads : 1;
  attn_run *runs = malloc((size_t)pattern->max_runs * sizeof *runs);
  double pairs = runs ? 0 : (double)NAN;
  for (int64_t row = 0; runs && row < heads * p->n_q; row++) {
    const int64_t count = attn_pattern_row(pattern, p, row / p->n_q, row % p->n_q, runs);
    for (int64_t r = 0; r < count; r++) pairs += (double)runs[r].count;
  }
  free(runs);
  return pairs / (double)heads;
}

/* The keys of a row: runs of the pattern, and whether the problem's own mask has them too. */
typedef struct row_keys {
  attn_run *runs, one;
  int64_t count, exist;
  bool *graph; /* [n_kv], of a mask that is a graph; NULL: none */
} row_keys;

static void row_keys_free(row_keys *keys) {
  if (keys->runs != &keys->one) free(keys->runs);
  free(keys->graph);
}

static bool row_keys_find(row_keys *keys, const attn_problem *p, const attn_pattern *pattern, int64_t head,
                          int64_t i, int64_t exist) {
  const attn_pattern *graph = p->mask.kind == ATTN_MASK_PATTERN ? p->mask.pattern : NULL;
  const int64_t room = attn_max(pattern ? pattern->max_runs : 1, graph ? graph->max_runs : 1);
  *keys = (row_keys){.runs = &keys->one, .exist = exist};
  if (room > 1) keys->runs = malloc((size_t)room * sizeof *keys->runs);
  if (graph) keys->graph = calloc((size_t)p->n_kv, sizeof *keys->graph);
  if (!keys->runs || (graph && !keys->graph)) return false;
  const int64_t count = graph ? attn_pattern_row(graph, p, head, i, keys->runs) : 0;
  for (int64_t r = 0; r < count; r++)
    for (int64_t c = 0; c < keys->runs[r].count; c++)
      keys->graph[keys->runs[r].first + c * keys->runs[r].step] = true;
  keys->count = attn_pattern_row(pattern, p, head, i, keys->runs);
  return true;
}

/* The key behind j of run *r, from the first on where j is -1; -1: none is left. */
static int64_t next_key(const row_keys *keys, const attn_problem *p, int64_t batch, int64_t head, int64_t i,
                        int64_t *r, int64_t j) {
  for (; *r < keys->count; ++*r, j = -1) {
    const attn_run run = keys->runs[*r];
    const bool apart = run.step > 1 && p->positions.key; /* a run of positions */
    const int64_t first = apart ? attn_key_at(p, run.first) : run.first, step = apart ? 1 : run.step,
                  past = run.first + run.count * run.step,
                  end = attn_min(apart ? attn_key_at(p, past) : past, keys->exist);
    for (j = j < 0 ? first : j + step; j < end; j += step) {
      if (apart && (attn_key_position(p, j) - run.first) % run.step) continue;
      if ((!keys->graph || keys->graph[j]) && !attn_score_hides(p, batch, head, i, j)) return j;
    }
  }
  return -1;
}

int64_t attn_reference_row(const attn_problem *problem, const attn_pattern *pattern, const void *q,
                           const void *k, const void *v, const int64_t *kv_len, int64_t batch, int64_t head,
                           int64_t i, double *p, double *o, double *scores) {
  if (!problem || !q || !k || !v || !scores) {
    attn_null("reference", !problem ? "problem" : !q ? "q" : !k ? "k" : !v ? "v" : "scratch");
    return -1;
  }
  attn_problem resolved = *problem;
  if (attn_problem_resolve(&resolved)) return -1;
  attn_dtype t = resolved.dtype;
  int64_t n = kv_len ? kv_len[batch] : resolved.n_kv, kv_head = head / (resolved.heads / resolved.kv_heads);
  const void *keys = attn_rows(k, resolved.k, batch, kv_head, t),
             *values = attn_rows(v, resolved.v, batch, kv_head, t);
  const void *queries = attn_rows(q, resolved.q, batch, head, t);
  const double *sink = resolved.score.sink;
  double query[CHUNK], x[CHUNK];
  row_keys of;
  int64_t seen = -1, there = -1; /* the first number of `query' */
  if (!row_keys_find(&of, &resolved, pattern, head, i, n)) goto out;
  seen = 0;
  double max = sink ? sink[head] : -(double)INFINITY;
  for (int64_t r = 0, j = -1; (j = next_key(&of, &resolved, batch, head, i, &r, j)) >= 0;) {
    double part[4] = {0};
    for (int64_t l = 0; l < resolved.d_qk; l += CHUNK) {
      if (l != there) widen(queries, resolved.q, i, l, resolved.d_qk, t, query);
      there = l;
      dot(query, x, widen(keys, resolved.k, j, l, resolved.d_qk, t, x), part);
    }
    const double s = attn_score_of(&resolved, batch, head, i, j,
                                   resolved.scale * ((part[0] + part[1]) + (part[2] + part[3])));
    scores[seen++] = s;
    max = s > max ? s : max;
  }
  double sum = sink ? exp(sink[head] - max) : 0;
  for (int64_t j = 0; j < seen; j++) sum += scores[j] = exp(scores[j] - max);

  if (p) memset(p, 0, (size_t)resolved.n_kv * sizeof *p);
  if (o) memset(o, 0, (size_t)resolved.d_v * sizeof *o);
  int64_t at = 0;
  for (int64_t r = 0, j = -1; (j = next_key(&of, &resolved, batch, head, i, &r, j)) >= 0;) {
    double weight = scores[at++] / sum;
    if (p) p[j] = weight;
    for (int64_t l = 0; o && l < resolved.d_v; l += CHUNK) {
      const int64_t count = widen(values, resolved.v, j, l, resolved.d_v, t, x);
      for (int64_t c = 0; c < count; c++) o[l + c] += weight * x[c];
    }
  }
out:
  row_keys_free(&of);
  return seen;
}

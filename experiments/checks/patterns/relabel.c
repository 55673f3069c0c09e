/* relabel.c - GR-1: attention over a graph does not hang on the numbers of its nodes. With permutations of
 * the queries and of the keys,
 *
 *   (Pq G Pk^T, Pq Q, Pk K, Pk V)  gives  Pq o.
 *
 * The pattern that the variant shows is written down as a graph of single edges under other numbers, and run
 * as a user's graph in the mask of exact attention: another way through the engine, in which no row is a
 * window or a block. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/probe.h"
#include "experiments/evidence/rows.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 16 };
static const uint64_t purpose_numbers = 0x67723100; /* "gr1" */

/* Edges by the new numbers: those of row i are at edges[begin[i]] ... edges[begin[i + 1] - 1], ascending. */
typedef struct renamed {
  const probe *p;
  int64_t *query, *key; /* [n_q], [n_kv] the new number of each */
  int64_t *begin, *edges;
  int64_t hidden; /* position of query 0 */
  void *q, *k, *v, *o, *work;
  attn_pattern graph;
  attn_plan *plan;
  attn_view view;
} renamed;

static int64_t row_of(const void *state, int64_t head, int64_t position, attn_run *runs) {
  const renamed *x = state;
  const int64_t i = position - x->hidden;
  int64_t count = 0;
  (void)head;
  for (int64_t e = x->begin[i]; e < x->begin[i + 1]; e++) {
    if (count && runs[count - 1].first + runs[count - 1].count == x->edges[e])
      runs[count - 1].count++;
    else
      runs[count++] = (attn_run){x->edges[e], 1, 1};
  }
  return count;
}

static void permute(attn_rng *rng, int64_t count, int64_t *to) {
  for (int64_t i = 0; i < count; i++) to[i] = i;
  for (int64_t i = count - 1; i > 0; i--) {
    const int64_t other = attn_rng_below(rng, i + 1), own = to[i];
    to[i] = to[other];
    to[other] = own;
  }
}

/* The edges of every row; padding keeps its numbers. s: room for a row. */
static attn_status write_edges(region *memory, renamed *x, row_space *s) {
  const attn_problem *p = &x->p->problem;
  const int64_t n = p->n_kv;
  int64_t *row = region_take(memory, p->n_q, sizeof *row), room = 0, total = 0;
  bool *marks = region_take(memory, n, sizeof *marks);
  if (region_status(memory, "for the numbers of a graph")) return ATTN_ENOMEM;
  for (int64_t i = 0; i < p->n_q; i++) row[x->query[i]] = i;
  for (int64_t to = 0; to < p->n_q; to++) {
    row_support(&x->p->head, seen_of(&x->p->seen, 0), row[to], s);
    if (total + s->count > room) {
      room = 2 * (total + s->count);
      int64_t *more = realloc(x->edges, (size_t)room * sizeof *more);
      if (!more) return attn_fail(ATTN_ENOMEM, "no memory for the edges of a graph");
      x->edges = more;
    }
    memset(marks, 0, (size_t)n);
    for (int64_t a = 0; a < s->count; a++) marks[x->key[s->index[a]]] = true;
    for (int64_t j = 0; j < n; j++)
      if (marks[j]) x->edges[total++] = j;
    x->begin[to + 1] = total;
    if (s->count > x->graph.max_runs) x->graph.max_runs = s->count;
  }
  return ATTN_OK;
}

static void gather(const void *from, const int64_t *to, int64_t rows, size_t bytes, void *out) {
  for (int64_t r = 0; r < rows; r++)
    memcpy((char *)out + (size_t)to[r] * bytes, (const char *)from + (size_t)r * bytes, bytes);
}

static attn_status make(const evidence *e, const probe *p, renamed *x) {
  const attn_problem *from = &p->problem;
  const size_t size = attn_dtype_size(from->dtype), wide = (size_t)from->d_qk * size,
               out = (size_t)from->d_v * size;
  const int64_t n_q = from->n_q, n_kv = from->n_kv;
  row_space s = {0};
  attn_rng rng;
  attn_rng_init(&rng, e->seed, purpose_numbers, 0);
  x->query = region_take(e->memory, n_q, sizeof *x->query);
  x->key = region_take(e->memory, n_kv, sizeof *x->key);
  x->begin = region_zeros(e->memory, n_q + 1, sizeof *x->begin);
  x->q = region_take(e->memory, n_q, wide);
  x->k = region_take(e->memory, n_kv, wide);
  x->v = region_take(e->memory, n_kv, out);
  x->o = region_take(e->memory, n_q, out);
  if (region_status(e->memory, "for the nodes of a graph")) return ATTN_ENOMEM;
  for (int64_t j = 0; j < from->n_kv; j++) x->key[j] = j;
  permute(&rng, from->n_q, x->query);
  permute(&rng, p->head.keys, x->key);
  gather(p->q, x->query, from->n_q, wide, x->q);
  gather(p->k, x->key, from->n_kv, wide, x->k);
  gather(p->v, x->key, from->n_kv, out, x->v);
  x->graph = (attn_pattern){.state = x, .row = row_of, .max_runs = 1};
  attn_status status = probe_space(p, &s);
  if (!status) status = write_edges(e->memory, x, &s);
  row_space_free(&s);
  return status;
}

static attn_status execute(const evidence *e, const probe *p, renamed *x) {
  attn_problem to = p->problem;
  const attn_options options = {.threads = attn_plan_context(e->plan)->threads,
                                .isa = attn_plan_isa(e->plan)};
  to.causal = false;
  to.mask = (attn_mask){.kind = ATTN_MASK_PATTERN, .pattern = &x->graph};
  attn_status status = attn_plan_create(&x->plan, &to, "tiled:path=fma", &options);
  if (!status) status = attn_plan_inspect(x->plan, &x->view);
  if (status) return status;
  x->work = region_take(e->memory, 1, attn_plan_work_size(x->plan) + 1);
  if (region_status(e->memory, "to run a graph")) return ATTN_ENOMEM;
  return attn_plan_execute(x->plan, x->q, x->k, x->v, p->e.kv_len, x->o, x->work);
}

/* Both runs are within their bounds of the same exact row. */
static outcome judge_row(void *context, int64_t place, int64_t r, row_space *s) {
  const renamed *x = context;
  const probe *p = x->p;
  const int64_t d_v = p->problem.d_v;
  row_verdict verdict = probe_bound(p, &p->head, NULL, r, s);
  memcpy(s->kept, s->bound, (size_t)d_v * sizeof *s->kept);
  if (verdict == ROW_OK) verdict = row_bound(&p->head, &x->view.rounding, false, NULL, s);
  (void)place;
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  for (int64_t l = 0; l < d_v; l++) s->bound[l] += s->kept[l];
  row_widen(x->o, p->problem.dtype, x->query[r] * d_v, d_v, s->left);
  return outcome_components(s->given, s->left, s->bound, d_v);
}

static attn_status relabel_evaluate(const evidence *e, result_bound *bound) {
  if (!(e->view->rounding.unit > 0)) return bound_not_applicable(bound, "the variant describes no rounding");
  if (e->view->relocation) return bound_not_applicable(bound, "what a key is met as depends on its number");
  probe *p;
  attn_status status = probe_get(e, &p);
  if (status) return status;
  renamed x = {.p = p, .hidden = attn_problem_position(&p->problem, 0)};
  status = make(e, p, &x);
  if (!status) status = execute(e, p, &x);
  if (!status) status = probe_check(p, ROWS, judge_row, &x, bound);
  attn_plan_destroy(x.plan);
  free(x.edges);
  return status;
}

const check check_gr1 = {
    .name = "GR-1",
    .of = &of_patterns,
    .kind = KIND_HARD,
    .statement = "rows are those of the same graph under other numbers of its queries and keys",
    .source = "attention is a sum over a set of keys, and no set has an order",
    .formula = "|o^_i - o'_(Pq i)| <= b_i + b'_i, o' of Pq Q, Pk K, Pk V by exact attention whose mask is "
               "the graph Pq G Pk^T, edge by edge; G the keys that the variant's queries see on a probe, "
               "causality and padding included, Pq and Pk random permutations; b of FP-2.",
    .assumes = "The variant has a pattern and describes its rounding. The probe has plain scores.",
    .cause = "a key that a tile takes for a query that does not see it, or loses at the edge of a run; a "
             "graph that is taken for its transpose",
    .nulls = CHECK_REJECTS_ALL("a window of 8 of 96 keys"),
    .evaluate = relabel_evaluate,
};

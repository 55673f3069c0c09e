/* graph.c - SP-5: the graph of blocks that see one another in a BigBird pattern, symmetrised.
 *
 * With a global block every two blocks are at most 2 apart. Without one, let N = D^{-1/2} A D^{-1/2} and
 * lambda the largest modulus of its other eigenvalues: (N^t)_ij >= sqrt(d_i d_j) / vol - lambda^t, so the
 * diameter is at most the smallest t with lambda^t < d_min / vol. It judges the pattern and never sees an
 * output: blind to zeros, the mean of V and random keys. */
#include "experiments/mathematics/graph.h"

#include "experiments/checks/table.h"
#include "experiments/evidence/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/mathematics/spectrum.h"

enum { BLOCKS_MAX = 512 }; /* for the eigenvalues: 512^3 operations */

/* edge[a * blocks + b]: a query of one of the blocks a, b sees a key of the other. */
static attn_status graph_build(const attn_pattern *pattern, const attn_problem *p, int64_t head,
                               int64_t block, int64_t blocks, bool *edge) {
  attn_run *runs = calloc((size_t)pattern->max_runs, sizeof *runs);
  if (!runs) return attn_fail(ATTN_ENOMEM, "no memory for the runs of a pattern");
  memset(edge, 0, (size_t)(blocks * blocks) * sizeof *edge);
  for (int64_t i = 0; i < p->n_q; i++) {
    int64_t from = (i + p->n_kv - p->n_q) / block, found = attn_pattern_row(pattern, p, head, i, runs);
    for (int64_t r = 0; r < found; r++) {
      /* From block to block: keys of one step that stay in a block add nothing. */
      int64_t last = runs[r].first + (runs[r].count - 1) * runs[r].step;
      int64_t stride = runs[r].step > block ? runs[r].step : block;
      for (int64_t key = runs[r].first;; key = key + stride < last ? key + stride : last) {
        int64_t to = key / block;
        edge[from * blocks + to] = edge[to * blocks + from] = true;
        if (key == last) break;
      }
    }
  }
  free(runs);
  return ATTN_OK;
}

/* Longest of the shortest paths, or -1 if some block cannot be reached. queue: blocks, depth: blocks. */
static int64_t diameter(const bool *edge, int64_t blocks, int64_t *queue, int64_t *depth) {
  int64_t longest = 0;
  for (int64_t start = 0; start < blocks; start++) {
    for (int64_t b = 0; b < blocks; b++) depth[b] = -1;
    int64_t head = 0, tail = 0;
    depth[start] = 0;
    queue[tail++] = start;
    while (head < tail) {
      int64_t at = queue[head++];
      for (int64_t b = 0; b < blocks; b++) {
        if (!edge[at * blocks + b] || depth[b] >= 0) continue;
        depth[b] = depth[at] + 1;
        queue[tail++] = b;
      }
    }
    if (tail < blocks) return -1;
    if (depth[queue[tail - 1]] > longest) longest = depth[queue[tail - 1]];
  }
  return longest;
}

/* lambda: the largest modulus of N's eigenvalues but the first, plus what the solver may be off by (n u times
 * a modest constant); ratio: d_min / vol. */
static attn_status spectrum(const bool *edge, int64_t blocks, double *lambda, double *ratio) {
  const size_t n = (size_t)blocks;
  gsl_matrix *m = gsl_matrix_calloc(n, n);
  double *values = calloc(2 * n, sizeof *values), *degree = values + n, volume = 0, least = (double)INFINITY;
  attn_status status = ATTN_OK;
  if (!m || !values) {
    status = attn_fail(ATTN_ENOMEM, "no memory for the eigenvalues of %lld blocks", (long long)blocks);
    goto out;
  }
  for (size_t a = 0; a < n; a++) {
    for (size_t b = 0; b < n; b++) degree[a] += edge[a * n + b];
    volume += degree[a];
    least = fmin(least, degree[a]);
  }
  for (size_t a = 0; a < n; a++)
    for (size_t b = 0; b < n; b++)
      if (edge[a * n + b]) gsl_matrix_set(m, a, b, 1 / sqrt(degree[a] * degree[b]));
  status = spectrum_symmetric(m, values);
  if (status) goto out;
  const double slack = 10 * (double)n * 0x1p-52;
  *lambda = slack;
  /* The largest is the eigenvalue 1, of sqrt d. */
  for (size_t a = 1; a < n; a++) *lambda = fmax(*lambda, fabs(values[a]) + slack);
  *ratio = least / volume;
out:
  gsl_matrix_free(m);
  free(values);
  return status;
}

/* The bound from the spectrum; infinite where lambda is 1 to within the solver's error. */
static attn_status spectral_bound(const bool *edge, int64_t blocks, double *out) {
  double lambda, ratio;
  attn_status status = spectrum(edge, blocks, &lambda, &ratio);
  if (!status) *out = lambda < 1 ? floor(log(ratio) / log(lambda)) + 1 : (double)INFINITY;
  return status;
}

attn_status graph_eigenvalue(const attn_pattern *pattern, const attn_problem *p, int64_t head, int64_t block,
                             double *lambda) {
  int64_t blocks = (p->n_kv - 1) / block + 1;
  double ratio;
  bool *edge = calloc((size_t)(blocks * blocks), sizeof *edge);
  attn_status status =
      edge ? graph_build(pattern, p, head, block, blocks, edge)
           : attn_fail(ATTN_ENOMEM, "no memory for a graph of %lld blocks", (long long)blocks);
  if (!status) status = spectrum(edge, blocks, lambda, &ratio);
  free(edge);
  return status;
}

static attn_status graph_judge(const evidence *e, int64_t blocks, outcome *worst) {
  int64_t heads = e->view->pattern->per_head ? e->problem->heads : 1;
  bool global = e->view->pattern->global, *edge = calloc((size_t)(blocks * blocks), sizeof *edge);
  int64_t *queue = calloc((size_t)blocks, sizeof *queue), *depth = calloc((size_t)blocks, sizeof *depth);
  attn_status status =
      edge && queue && depth ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a block graph");
  for (int64_t head = 0; head < heads && status == ATTN_OK; head++) {
    status = graph_build(e->view->pattern, e->problem, head, e->view->pattern->grain, blocks, edge);
    if (status != ATTN_OK) break;
    int64_t found = diameter(edge, blocks, queue, depth);
    double bound = 2;
    if (!global) status = spectral_bound(edge, blocks, &bound);
    if (status != ATTN_OK) break;
    if (!isfinite(bound) || (found < 0 && !global))
      outcome_worsen(worst, (outcome){.why = "the block graph is not connected, or is bipartite"});
    else
      outcome_worsen(worst, (outcome){found < 0 ? (double)INFINITY : (double)found, bound, NULL});
  }
  free(edge);
  free(queue);
  free(depth);
  return status;
}

static attn_status graph_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const attn_pattern *pattern = e->view->pattern;
  if (!pattern || pattern->grain < 1) {
    bound_not_applicable(bound, pattern ? "the variant describes no blocks of its pattern" : "no pattern");
    return ATTN_OK;
  }
  int64_t blocks = (p->n_kv - 1) / pattern->grain + 1;
  if (p->n_q != p->n_kv)
    bound_not_applicable(bound, "queries and keys are not the same positions");
  else if (blocks < 2)
    bound_not_applicable(bound, "there is one block");
  else if (blocks > BLOCKS_MAX)
    bound_uncertifiable(bound, "more than 512 blocks: eigenvalues would cost too much");
  else {
    outcome worst = {0, 0, NULL};
    attn_status status = graph_judge(e, blocks, &worst);
    if (status != ATTN_OK) return status;
    outcome_settle(&worst, bound);
  }
  return ATTN_OK;
}

const check check_sp5 = {
    .name = "SP-5",
    .kind = KIND_HARD,
    .statement =
        "the block graph's diameter is at most 2 with a global block, else at most what its spectrum allows",
    .source = "derived: powers of the normalised adjacency matrix",
    .formula = "With a global block the diameter is <= 2. Without: N = D^-1/2 A D^-1/2 of the "
               "symmetrised block graph, lambda the largest modulus of its eigenvalues but the first; "
               "(N^t)_ij >= sqrt(d_i d_j)/vol - lambda^t, so that the diameter is at most the least t "
               "with lambda^t < d_min/vol.",
    .assumes = "A pattern of blocks, n_q = n_kv, 2 to 512 blocks; the graph is connected and not "
               "bipartite (else uncertifiable).",
    .nulls = CHECK_BLIND("the graph is the pattern's; no output is looked at"),
    .evaluate = graph_evaluate,
};

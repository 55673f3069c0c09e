/* block_graph.c - the diameter of a graph of blocks, and the bound on it from the spectrum. */
#include "experiments/mathematics/block_graph.h"

#include "experiments/mathematics/spectrum.h"
#include "experiments/reference/visible.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

attn_status graph_build(const attn_pattern *pattern, const attn_problem *p, int64_t head, int64_t block,
                        int64_t blocks, bool *edge) {
  attn_run *runs = calloc((size_t)pattern->max_runs, sizeof *runs);
  if (!runs) return attn_fail(ATTN_ENOMEM, "no memory for the runs of a pattern");
  memset(edge, 0, (size_t)(blocks * blocks) * sizeof *edge);
  for (int64_t i = 0; i < p->n_q; i++) {
    int64_t from = attn_problem_position(p, i) / block,
            found = visible_runs(pattern, p, head, i, p->n_kv, runs);
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

double graph_diameter(const bool *edge, int64_t blocks, int64_t *queue, int64_t *depth) {
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
    if (tail < blocks) return (double)INFINITY;
    if (depth[queue[tail - 1]] > longest) longest = depth[queue[tail - 1]];
  }
  return (double)longest;
}

/* Of lambda, the largest modulus of N's eigenvalues but the first, plus what the solver may be off by (n u
 * times a modest constant), and d_min / vol. */
attn_status graph_spectral_bound(const bool *edge, int64_t blocks, double *out) {
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
  double lambda = slack;
  /* The largest is the eigenvalue 1, of sqrt d. */
  for (size_t a = 1; a < n; a++) lambda = fmax(lambda, fabs(values[a]) + slack);
  *out = lambda < 1 ? floor(log(least / volume) / log(lambda)) + 1 : (double)INFINITY;
out:
  gsl_matrix_free(m);
  free(values);
  return status;
}

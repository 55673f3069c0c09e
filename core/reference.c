/* reference.c - one row of exact attention in fp64 by the textbook formula: s_j = scale q.k_j, p = softmax(s)
 * over the keys the query sees, o = sum p_j v_j. It shares no code with the kernels, so that it can judge
 * them. */
#include "core/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Four partial sums: the order is fixed, and the chain short. */
static double dot(const void *a, const void *b, int64_t d, attn_dtype t) {
  double s[4] = {0};
  int64_t l = 0;
  if (t == ATTN_F64) {
    const double *x = a, *y = b;
    for (; l + 4 <= d; l += 4)
      for (int i = 0; i < 4; i++) s[i] += x[l + i] * y[l + i];
    for (; l < d; l++) s[0] += x[l] * y[l];
  } else {
    const float *x = a, *y = b;
    for (; l + 4 <= d; l += 4)
      for (int i = 0; i < 4; i++) s[i] += (double)x[l + i] * (double)y[l + i];
    for (; l < d; l++) s[0] += (double)x[l] * (double)y[l];
  }
  return (s[0] + s[1]) + (s[2] + s[3]);
}

static void axpy(double p, const void *v, int64_t d, attn_dtype t, double *o) {
  if (t == ATTN_F64)
    for (int64_t l = 0; l < d; l++) o[l] += p * ((const double *)v)[l];
  else
    for (int64_t l = 0; l < d; l++) o[l] += p * (double)((const float *)v)[l];
}

int64_t attn_pattern_clip(const attn_problem *p, int64_t i, attn_run *runs, int64_t count) {
  int64_t position = i + p->n_kv - p->n_q, limit = p->causal ? attn_min(position + 1, p->n_kv) : p->n_kv;
  int64_t kept = 0;
  for (int64_t r = 0; r < count; r++) {
    attn_run run = runs[r];
    if (run.first >= limit || run.count < 1) continue;
    int64_t room = limit - run.first;
    run.count = attn_min(run.count, run.step == 1 ? room : (room - 1) / run.step + 1);
    if (run.count == 1) run.step = 1;
    runs[kept++] = run;
  }
  return kept;
}

int64_t attn_pattern_row(const attn_pattern *pattern, const attn_problem *p, int64_t head, int64_t i,
                         attn_run *runs) {
  if (!p || !runs) return -1;
  int64_t count = 1;
  if (pattern)
    count = pattern->row(pattern->state, head, i + p->n_kv - p->n_q, runs);
  else
    runs[0] = (attn_run){0, p->n_kv, 1};
  if (count < 0 || (pattern && count > pattern->max_runs)) return -1;
  for (int64_t r = 0; r < count; r++)
    if (runs[r].count > 0 && (runs[r].first < 0 || runs[r].step < 1)) return -1;
  return attn_pattern_clip(p, i, runs, count);
}

enum { LOCAL_RUNS = 64 };

int64_t attn_reference_row(const attn_problem *problem, const attn_pattern *pattern, const void *q,
                           const void *k, const void *v, const int64_t *kv_len, int64_t batch, int64_t head,
                           int64_t i, double *p, double *o, double *scores) {
  if (!problem || !q || !k || !v || !scores) {
    attn_null("reference", !problem ? "problem" : !q ? "q" : !k ? "k" : !v ? "v" : "scratch");
    return -1;
  }
  attn_problem resolved = *problem;
  if (attn_problem_resolve(&resolved)) return 0;
  attn_dtype t = resolved.dtype;
  int64_t n = kv_len ? kv_len[batch] : resolved.n_kv, kv_head = head / (resolved.heads / resolved.kv_heads);
  const void *query = attn_at(attn_rows(q, resolved.q, batch, head, t), i * resolved.q.row, t);
  const void *keys = attn_rows(k, resolved.k, batch, kv_head, t),
             *values = attn_rows(v, resolved.v, batch, kv_head, t);

  attn_run local[LOCAL_RUNS], *runs = local;
  if (pattern && pattern->max_runs > LOCAL_RUNS) {
    runs = malloc((size_t)pattern->max_runs * sizeof *runs);
    if (!runs) return -1;
  }
  int64_t count = attn_pattern_row(pattern, &resolved, head, i, runs), seen = 0;
  double max = -(double)INFINITY, sum = 0;
  for (int64_t r = 0; r < count; r++)
    for (int64_t c = 0; c < runs[r].count; c++) {
      int64_t j = runs[r].first + c * runs[r].step;
      if (j >= n) break;
      double s = resolved.scale * dot(query, attn_at(keys, j * resolved.k.row, t), resolved.d_qk, t);
      scores[seen++] = s;
      max = s > max ? s : max;
    }
  for (int64_t j = 0; j < seen; j++) sum += scores[j] = exp(scores[j] - max);

  if (p) memset(p, 0, (size_t)resolved.n_kv * sizeof *p);
  if (o) memset(o, 0, (size_t)resolved.d_v * sizeof *o);
  int64_t at = 0;
  for (int64_t r = 0; r < count; r++)
    for (int64_t c = 0; c < runs[r].count; c++) {
      int64_t j = runs[r].first + c * runs[r].step;
      if (j >= n) break;
      double weight = scores[at++] / sum;
      if (p) p[j] = weight;
      if (o) axpy(weight, attn_at(values, j * resolved.v.row, t), resolved.d_v, t, o);
    }
  if (runs != local) free(runs);
  return seen;
}

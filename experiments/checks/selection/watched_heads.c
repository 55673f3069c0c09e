/* watched_heads.c - see watched_heads.h. */
#include "experiments/checks/selection/watched_heads.h"

#include "experiments/reference/transform.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Positions of a head that are judged, and heads. */
enum { MOST_STEPS = 512, MOST_LINES = 4 };

static void watched_free(watched *w) {
  if (w->head.k) head_data_return(w->e, &w->head);
  region_free(&w->memory);
}

static attn_status mark_held(watched *w) {
  const attn_problem *p = w->e->problem;
  const int64_t count = w->n - w->first, runs = w->e->view->selector->max_runs;
  int64_t *rows = region_take(&w->memory, count, sizeof *rows),
          *counts = region_take(&w->memory, count, sizeof *counts);
  attn_run *all = region_take(&w->memory, count * runs, sizeof *all);
  attn_picks picks = {.max_runs = runs, .runs = all, .counts = counts};
  attn_status status = region_status(&w->memory, "for a cache");
  for (int64_t r = 0; !status && r < count; r++) rows[r] = w->skipped + r;
  const attn_row_set set = {w->batch, w->kv_head * (p->heads / p->kv_heads), count, rows};
  const attn_tensors in = evidence_tensors(w->e);
  if (!status) status = attn_plan_select(w->e->plan, &in, &set, &picks);
  for (int64_t r = 0; !status && r < count; r++)
    for (int64_t i = 0; i < counts[r]; i++)
      for (int64_t j = 0; j < all[r * runs + i].count; j++) {
        const int64_t key = all[r * runs + i].first + j;
        if (key >= 0 && key <= w->first + r && key < w->keys) w->held[(w->first + r) * w->n + key] = true;
      }
  return status;
}

/* Adds the weights of the query at position t, a mean over the heads of the kv head, to sums of its keys.
 * seen: of keys 0 ... t, NULL: all; q: [d]; own: [t + 1]. */
static void add_weights(const watched *w, int64_t t, const bool *seen, double *q, double *own, double *sums) {
  const attn_problem *p = w->e->problem;
  const int64_t group = p->heads / p->kv_heads, d = p->d_qk, keys = t < w->keys ? t + 1 : w->keys;
  for (int64_t g = 0; g < group; g++) {
    const sample_row row = {w->batch, w->kv_head * group + g, w->skipped + t - w->first};
    double most = -(double)INFINITY, sum = 0;
    row_widen(w->e->q, p->dtype, row_offset(p, &row, d), d, q);
    for (int64_t j = 0; j < keys; j++) {
      double product = 0;
      if (seen && !seen[j]) continue;
      for (int64_t l = 0; l < d; l++) product += q[l] * w->head.k[j * d + l];
      own[j] = transform_score(p, w->batch, row.head, row.i, j, p->scale * product).score;
      most = fmax(most, own[j]);
    }
    for (int64_t j = 0; j < keys; j++)
      if (!seen || seen[j]) sum += exp(own[j] - most);
    for (int64_t j = 0; j < keys; j++)
      if (!seen || seen[j]) sums[j] += exp(own[j] - most) / sum / (double)group;
  }
}

/* What scores read of queries: what each gave the keys that were held, or what all later ones give all. */
static attn_status weigh(watched *w) {
  const int64_t n = w->n, all = w->e->problem->n_kv;
  double *q = region_take(&w->memory, w->e->problem->d_qk, sizeof *q),
         *own = region_take(&w->memory, all, sizeof *own),
         *sums = region_zeros(&w->memory, all, sizeof *sums),
         *table = region_zeros(&w->memory, n * n, sizeof *table);
  const attn_status status = region_status(&w->memory, "for a cache");
  if (status) return status;
  if (!w->e->view->cache->score->future) {
    for (int64_t t = w->first; t < n; t++) add_weights(w, t, w->held + t * n, q, own, table + t * n);
    w->weights = table;
  } else {
    for (int64_t t = w->keys - 1; t >= 0; t--) {
      add_weights(w, t, NULL, q, own, sums);
      if (t < n) memcpy(table + t * n, sums, (size_t)n * sizeof *sums);
    }
    w->later = table;
  }
  return ATTN_OK;
}

/* What scores read that take products. */
static attn_status multiply(watched *w) {
  const attn_problem *p = w->e->problem;
  const int64_t n = w->n, d = p->d_qk, group = p->heads / p->kv_heads;
  double *q = region_take(&w->memory, d, sizeof *q);
  w->products = region_zeros(&w->memory, group * n * n, sizeof *w->products);
  const attn_status status = region_status(&w->memory, "for a cache");
  for (int64_t i = 0; !status && i < group * (n - w->first); i++) {
    const int64_t head = i / (n - w->first), t = w->first + i % (n - w->first);
    const sample_row row = {w->batch, w->kv_head * group + head, w->skipped + t - w->first};
    row_widen(w->e->q, p->dtype, row_offset(p, &row, d), d, q);
    for (int64_t j = 0; j < n; j++)
      for (int64_t l = 0; l < d; l++)
        w->products[(head * n + t) * n + j] += p->scale * q[l] * w->head.k[j * d + l];
  }
  return status;
}

static attn_status watch(const evidence *e, int64_t line, watched *w) {
  const attn_problem *p = e->problem;
  *w = (watched){.e = e, .batch = line / p->kv_heads, .kv_head = line % p->kv_heads};
  w->keys = evidence_keys(e, w->batch);
  w->first = attn_problem_position(p, 0) > 0 ? attn_problem_position(p, 0) : 0;
  w->skipped = w->first - attn_problem_position(p, 0); /* before the first key */
  w->n = p->n_kv;
  if (w->n > MOST_STEPS) w->n = MOST_STEPS;
  attn_status status = head_data_borrow(e, w->batch, w->kv_head * (p->heads / p->kv_heads), &w->head);
  if (status || w->first >= w->n) return status;
  w->held = region_zeros(&w->memory, w->n * w->n, sizeof *w->held);
  const attn_kv_score *score = e->view->cache->score;
  status = mark_held(w);
  if (!status && score->products) return multiply(w);
  return !status && (attn_kv_observes(score) || score->future) ? weigh(w) : status;
}

/* The first batch entry in which keys go. */
static int64_t entry_of(const evidence *e) {
  for (int64_t b = 0; e->kv_len && b < e->problem->batch; b++)
    if (e->kv_len[b] > e->view->cache->prompt) return b;
  return 0;
}

/* Some kv heads of all batch entries; of one those that share. */
attn_status watched_heads_check(const evidence *e, head_judge *judge, pool_judge *settle,
                                result_bound *bound) {
  const attn_problem *p = e->problem;
  const bool shares = e->view->cache->shared > 0;
  const int64_t lines = shares ? p->kv_heads : p->batch * p->kv_heads,
                some = shares || lines < MOST_LINES ? lines : MOST_LINES,
                first = shares ? entry_of(e) * p->kv_heads : 0;
  outcome worst = OUTCOME_NONE;
  head_pool all = {.went = -(double)INFINITY, .stayed = (double)INFINITY};
  char text[160] = "", own[128] = "";
  attn_status status = ATTN_OK;
  for (int64_t i = 0; !status && i < some; i++) {
    const int64_t line = first + (some > 1 ? i * (lines - 1) / (some - 1) : 0);
    watched w;
    status = watch(e, line, &w);
    if (!status && w.held && w.head.finite) {
      all.heads++;
      if (outcome_worsen(&worst, judge(&w, &all, own, sizeof own)))
        snprintf(text, sizeof text, "batch entry %lld, kv head %lld, %s", (long long)w.batch,
                 (long long)w.kv_head, own);
    }
    watched_free(&w);
  }
  if (status) return status;
  if (shares && all.heads == p->kv_heads && outcome_worsen(&worst, settle(&all, own, sizeof own)))
    snprintf(text, sizeof text, "kv heads that share: %s", own);
  status = outcome_to_verdict(&worst, bound);
  if (bound->verdict == VERDICT_VIOLATED) bound_say(bound, "%s", text);
  return status;
}
